from __future__ import annotations

import io
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import click
import numpy as np
import pytest
from click.testing import CliRunner, Result
from PIL import Image
from rich.console import Console

import snn_ipu
from snn_ipu import errors, surrogate
from snn_ipu.backends import cache, select
from snn_ipu.cli import app as cli_app
from snn_ipu.cli import plots
from snn_ipu.cli.app import app
from snn_ipu.cli.config import FREE_ON_RESUME, TrainConfig, build_net, parse_surrogate
from snn_ipu.cli.metrics import read_metrics
from snn_ipu.cli.progress import Rate, RunProgress
from snn_ipu.data import load
from snn_ipu.errors import CheckpointError, UnsupportedError

TINY = ["--num-steps", "3", "--limit", "40", "--batch-size", "16", "--epochs", "2", "--threads", "1"]


def invoke(*arguments: str) -> Result:
    return CliRunner().invoke(app, [*arguments], prog_name="snn-ipu")


def train(out: Path, *more: str) -> Result:
    return invoke("train", "--out", str(out), *TINY, *more)


def failure(result: Result) -> str:
    """The one line of an error: no traceback, exit code 2."""
    assert result.exit_code == 2, result.output
    assert "Traceback" not in result.output and result.exception.__class__ is SystemExit
    return result.output.strip().splitlines()[-1]


@pytest.mark.parametrize(
    ("model", "sizes"), [("dsnn", ["--hidden", "9,7"]), ("csnn", ["--channels", "2,3"])], ids=["dsnn", "csnn"]
)
def test_train__tiny_run__writes_all_files_and_prints_the_result(tmp_path: Path, model: str, sizes: list) -> None:
    out = tmp_path / "run"
    result = train(out, "--model", model, *sizes)
    assert result.exit_code == 0, result.output
    records = read_metrics(str(out / "metrics.jsonl"))
    steps = [record for record in records if record["kind"] == "step"]
    epochs = [record for record in records if record["kind"] == "epoch"]
    assert [(r["epoch"], r["step"]) for r in steps] == [(e, s) for e in (1, 2) for s in (1, 2, 3)]
    assert [r["epoch"] for r in epochs] == [1, 2]
    # the mean over images: the last batch has 8 of 40
    for epoch in (1, 2):
        losses = [r["loss"] for r in steps if r["epoch"] == epoch]
        assert epochs[epoch - 1]["train_loss"] == pytest.approx(np.average(losses, weights=[16, 16, 8]))
    for record in epochs:
        assert 0 <= record["train_accuracy"] <= 1 and (record["test_accuracy"] * 40) % 1 == 0
        assert record["images_per_second"] > 0 and record["seconds"] >= 0
    accuracy = f"test accuracy {epochs[-1]['test_accuracy']:.2%} after 2 epochs"
    assert accuracy in result.output and "images/s in training" in result.output
    assert json.loads((out / "config.json").read_text())["model"] == model
    for name in ("curves.png", "raster.png"):
        with Image.open(out / name) as image:
            assert image.format == "PNG" and min(image.size) > 400
            assert np.asarray(image.convert("L")).std() > 5
    assert not list(out.glob("*.tmp"))


@pytest.mark.parametrize(
    "options",
    [
        ["--population", "3", "--loss", "mse_count"],
        ["--population", "2", "--loss", "ce_rate", "--surrogate", "atan:alpha=3", "--beta", "0.5"],
        ["--loss", "ce_count", "--optimizer", "sgd", "--lr", "0.1", "--num-steps", "1"],
        ["--dtype", "bfloat16", "--optimizer", "adam"],
        ["--device", "reference", "--limit", "1"],
    ],
    ids=" ".join,
)
def test_train__each_kind_of_setting__runs(tmp_path: Path, options: list) -> None:
    result = train(tmp_path / "run", "--hidden", "6", "--epochs", "1", *options)
    assert result.exit_code == 0, result.output
    assert len(read_metrics(str(tmp_path / "run" / "metrics.jsonl"))) >= 2


def test_train__real_images__learns(tmp_path: Path) -> None:
    out = tmp_path / "run"
    result = invoke(
        *[
            "train",
            "--out",
            str(out),
            "--hidden",
            "64",
            "--num-steps",
            "5",
            "--epochs",
            "2",
            "--batch-size",
            "64",
        ]
    )
    assert result.exit_code == 0, result.output
    epochs = [r for r in read_metrics(str(out / "metrics.jsonl")) if r["kind"] == "epoch"]
    assert epochs[-1]["test_accuracy"] > 0.65
    assert epochs[1]["train_loss"] < epochs[0]["train_loss"]


def test_train__without_terminal__prints_plain_lines(tmp_path: Path) -> None:
    result = train(tmp_path / "run", "--hidden", "6")
    assert "\x1b" not in result.output and "━" not in result.output
    lines = result.output.splitlines()
    assert [line.split("  ")[0] for line in lines[:2]] == ["epoch 1/2", "epoch 2/2"]


def test_train__out_that_holds_a_run__is_refused_unless_resumed(tmp_path: Path) -> None:
    out = tmp_path / "run"
    assert train(out, "--hidden", "6", "--epochs", "1").exit_code == 0
    before = (out / "checkpoint.pt").read_bytes()
    assert "holds a run" in failure(train(out, "--hidden", "6"))
    assert (out / "checkpoint.pt").read_bytes() == before
    result = invoke("train", "--resume", "--out", str(out), "--epochs", "2")
    assert result.exit_code == 0 and "after 2 epochs" in result.output


def test_train__resume__takes_settings_from_the_run_and_refuses_others(tmp_path: Path) -> None:
    out = tmp_path / "run"
    assert train(out, "--hidden", "6", "--seed", "5").exit_code == 0
    message = failure(invoke("train", "--resume", "--out", str(out), "--hidden", "7", "--model", "csnn"))
    assert "model (here 'dsnn', asked for 'csnn')" in message
    assert "hidden (here (6,), asked for (7,))" in message
    assert invoke("train", "--resume", "--out", str(out), "--hidden", "6", "--seed", "5").exit_code == 0
    assert "not to the same bits" in invoke("train", "--resume", "--out", str(out), "--device", "reference").output


def test_train__resume_without_run_or_out__is_refused(tmp_path: Path) -> None:
    assert "holds no run" in failure(invoke("train", "--resume", "--out", str(tmp_path)))
    assert "--resume needs --out" in failure(invoke("train", "--resume"))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--model", "mlp"], "'dsnn', 'csnn'"),
        (["--hidden", "10,x"], "positive integers separated by commas"),
        (["--hidden", "0"], "positive integers separated by commas"),
        (["--channels", "2,3"], "--channels with --model dsnn: it goes with csnn"),
        (["--model", "csnn", "--hidden", "9"], "--hidden with --model csnn: it goes with dsnn"),
        (["--surrogate", "relu"], "expected one of LSO, SFS"),
        (["--surrogate", "atan:slope=2"], "atan takes alpha=2, finite numbers"),
        (["--surrogate", "atan:alpha=nan"], "finite numbers"),
        (["--surrogate", "atan:alpha"], "'alpha' is not parameter=number"),
        (["--beta", "1.5"], "0<=x<=1"),
        (["--lr", "0"], "x>0"),
        (["--epochs", "0"], "x>=1"),
        (["--seed", "-1"], "x>=0"),
        (["--data", "imagenet"], "fashion-mnist-mini"),
        (["--data", "mnist"], "no folder was given. Give the folder of the four MNIST files"),
        (["--data", "cifar10", "--data-root", "."], "Unpack cifar-10-python.tar.gz"),
        (["--data-root", "absent"], "'absent' does not exist"),
        (["--device", "tpu"], "reference"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_train__bad_option__one_message_and_nothing_written(tmp_path: Path, options: list, message: str) -> None:
    out = tmp_path / "run"
    assert message in failure(train(out, *options))
    assert not (out / "config.json").exists()


@pytest.mark.parametrize(
    ("device", "part", "answer", "message"),
    [
        ("cuda", "torch.cuda.is_available", False, "device='cuda': torch finds no CUDA device"),
        ("ipu", "snn_ipu.backends.ipu.status", "poptorch is not installed", "device='ipu': poptorch is not installed"),
        ("cpu", "snn_ipu.backends.cpu.status", "no compiler was found", "backend='cpu': no compiler was found"),
    ],
)
def test_train__device_that_does_not_work_here__says_why_and_leaves_the_folder_free(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, device: str, part: str, answer: Any, message: str
) -> None:
    out = tmp_path / "run"
    with monkeypatch.context() as patch:
        patch.setattr(part, lambda: answer)
        assert message in failure(train(out, "--hidden", "6", "--device", device))
    assert train(out, "--hidden", "6", "--epochs", "1").exit_code == 0


def test_train__loss_that_is_not_finite__stops_with_a_message(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from snn_ipu.cli import run

    monkeypatch.setattr(run, "build_loss", lambda config, data: lambda spk, y: spk.sum() / 0)
    assert "the loss became" in failure(train(tmp_path / "run", "--hidden", "6"))


def test_train__run_folder_that_cannot_be_made__is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert "cannot write there" in failure(train(tmp_path / "file" / "run", "--hidden", "6"))


def test_train__default_out__is_a_new_folder_under_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    result = invoke("train", *TINY, "--hidden", "6", "--epochs", "1")
    assert result.exit_code == 0, result.output
    (out,) = (tmp_path / "runs").iterdir()
    assert out.name.endswith("-dsnn-fashion-mnist-mini") and (out / "checkpoint.pt").exists()


def test_info__any_machine__shows_backends_cache_pool_and_versions(monkeypatch: pytest.MonkeyPatch) -> None:
    status = [select.Status("cpu", True, "works"), select.Status("cuda", False, "no CUDA device is visible")]
    monkeypatch.setattr(select, "status", lambda: status)
    result = invoke("info")
    assert result.exit_code == 0, result.output
    rows = dict(line.split("  ", 1) for line in result.output.splitlines())
    rows = {name.strip(): value.strip() for name, value in rows.items()}
    assert rows["backend cpu"] == "works"
    assert rows["backend cuda"] == "not here: no CUDA device is visible"
    assert rows["kernel cache"] == str(cache.cache_dir())
    assert rows["snn_ipu"] == snn_ipu.__version__
    assert int(rows["threads"]) >= 1 and "MiB idle" in rows["buffer pool"]


def test_app__every_command__has_a_help_text() -> None:
    overview = invoke("--help").output
    for name in cli_app.COMMANDS:
        assert name in overview
        result = invoke(name, "--help")
        assert result.exit_code == 0 and "Usage: snn-ipu" in result.output
    assert "No such command" in invoke("trian").output


def test_app__exceptions_of_the_package__become_messages_and_others_do_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fails_with(error: Exception) -> Result:
        @click.command()
        def command() -> None:
            raise error

        monkeypatch.setattr(cli_app.App, "get_command", lambda self, ctx, name: command)
        return invoke("info")

    for kind in (errors.DataError, errors.CheckpointError, errors.ShapeError, errors.BackendMissingError):
        assert failure(fails_with(kind("what is wrong"))) == "Error: what is wrong"
    bug = fails_with(KeyError("a bug"))
    assert bug.exit_code == 1 and isinstance(bug.exception, KeyError)


@pytest.mark.parametrize("package", ["click", "rich", "matplotlib"])
def test_main__package_of_the_extra_missing__says_how_to_install_it(package: str) -> None:
    hide = f"import sys; sys.modules[{package!r}] = None; sys.argv[1:] = ['train']"
    code = f"{hide}; from snn_ipu.cli import main; main()"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert result.returncode == 2
    assert result.stderr == f"snn-ipu needs the package {package}: pip install 'snn_ipu[train]'\n"


def test_import__of_the_package__loads_nothing_of_the_command_line() -> None:
    code = (
        "import sys, snn_ipu, snn_ipu.data\n"
        "print([m for m in ('click', 'rich', 'matplotlib', 'snn_ipu.cli') if m in sys.modules])"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "[]\n"


def test_parse_surrogate__every_built_in__round_trips_its_parameters() -> None:
    assert parse_surrogate("fast_sigmoid") == surrogate.fast_sigmoid()
    assert parse_surrogate("fast_sigmoid:slope=10") == surrogate.fast_sigmoid(slope=10)
    assert parse_surrogate("SFS:slope=2,B=0.5") == surrogate.SFS(slope=2, B=0.5)
    with pytest.raises(UnsupportedError, match="heaviside takes no parameters"):
        parse_surrogate("heaviside:a=1")


def test_config__json__gives_back_the_same_settings() -> None:
    config = TrainConfig(hidden=(5, 6), limit=3, beta=0.3)
    assert TrainConfig.from_json(config.to_json(), "c") == config


def test_config__what_is_left_out__follows_the_model() -> None:
    dense, convolutional = TrainConfig(), TrainConfig(model="csnn")
    assert (dense.hidden, dense.channels, dense.lr) == ((1000,), None, 3e-4)
    assert (convolutional.hidden, convolutional.channels, convolutional.lr) == (None, (12, 64), 1e-3)
    assert TrainConfig(model="csnn", lr=0.5).lr == 0.5


def test_config__continued_with__changes_only_what_is_free() -> None:
    config = TrainConfig()
    later = config.continued_with({"epochs": 50, "threads": 2, "seed": 0})
    assert later.epochs == 50 and later.threads == 2 and later.seed == config.seed
    values: dict[str, Any] = {"lr": 1.0, "batch_size": 1, "num_steps": 2, "seed": 3, "limit": 4, "loss": "x"}
    for name, value in values.items():
        assert name not in FREE_ON_RESUME
        with pytest.raises(CheckpointError, match=rf"differ in {name} \(here"):
            config.continued_with({name: value})


def test_build_net__default_sizes__are_those_of_the_paper() -> None:
    data = load("fashion-mnist-mini").first(1)
    dense = [tuple(p.shape) for p in build_net(TrainConfig(), data).parameters() if p.dim() > 1]
    assert dense == [(1000, 784), (10, 1000)]
    net = build_net(TrainConfig(model="csnn", population=3), data)
    assert [tuple(p.shape) for p in net.parameters() if p.dim() > 1] == [
        (12, 1, 5, 5),
        (64, 12, 5, 5),
        (30, 1024),
    ]


def test_progress__on_a_terminal__shows_epoch_loss_and_rate() -> None:
    text = io.StringIO()
    console = Console(file=text, force_terminal=True, width=120)
    rate = Rate()
    rate.add(8, 9.0)
    rate.add(1000, 0.5)
    with RunProgress(console, epochs=2, steps=5, done=5) as progress:
        progress.step(2, 1, 0.25, rate)
        progress.line("epoch [1/2] done")
    shown = text.getvalue()
    for part in ("epoch 2/2", "6/10", "loss 0.2500", "2,000 images/s", "epoch [1/2] done"):
        assert part in shown


def test_rate__first_piece__does_not_count() -> None:
    rate = Rate()
    assert rate.per_second() is None
    rate.add(100, 5.0)
    assert rate.per_second() is None
    rate.add(100, 0.5)
    assert rate.per_second() == 200
    rate.restart()
    rate.add(100, 1.0)
    assert rate.per_second() == 100


def test_curves__run_of_one_step__are_drawn() -> None:
    step: dict[str, Any] = {"kind": "step", "epoch": 1, "step": 1, "loss": 2.0}
    epoch: dict[str, Any] = {"kind": "epoch", "epoch": 1, "train_accuracy": 0.1, "test_accuracy": 0.2}
    for records in ([step], [step, epoch]):
        with Image.open(io.BytesIO(plots.curves(records, "t"))) as image:
            assert image.size == (1200, 480)


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("outputs", [2, 6])  # one neuron for each class, a population of three
def test_raster__silent_and_busy_layers__are_drawn(channels: int, outputs: int) -> None:
    image = np.zeros((channels, 5, 5), np.float32)
    for busy in (False, True):
        layers = [("hidden", np.full((4, 7), busy)), ("output", np.full((4, outputs), busy))]
        with Image.open(io.BytesIO(plots.raster(image, layers, ("a", "b"), 1, "t"))) as picture:
            assert picture.format == "PNG"
