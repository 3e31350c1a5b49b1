from __future__ import annotations

import json
import os
import random
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Iterator

import pytest
import torch
from rich.console import Console
from torch import nn

from snn_ipu.cli import checkpoint, plots, run, run_folder
from snn_ipu.cli.checkpoint import Position
from snn_ipu.cli.config import TrainConfig
from snn_ipu.cli.metrics import TIMING_FIELDS, MetricsLog, read_metrics
from snn_ipu.cli.run_folder import RunFolder, write_whole
from snn_ipu.errors import CheckpointError, RunError

# 70 images in batches of 16: the last batch is partial
TINY: dict[str, Any] = {
    "hidden": (9,),
    "num_steps": 3,
    "limit": 70,
    "batch_size": 16,
    "epochs": 2,
    "threads": 1,
    "seed": 11,
}
QUIET = Console(quiet=True)


class Killed(BaseException):
    """Ends a run at once as a kill would: nothing in the package catches it."""


def content(out: Path) -> dict[str, Any]:
    """What two equal runs have in common: weights, optimizer, position, random state and metrics."""
    state = torch.load(out / "checkpoint.pt", weights_only=True)
    records = [
        {name: value for name, value in record.items() if name not in TIMING_FIELDS}
        for record in read_metrics(str(out / "metrics.jsonl"))
    ]
    return {**{name: state[name] for name in ("model", "optimizer", "position", "rng")}, "metrics": records}


def assert_same_bits(a: Any, b: Any) -> None:
    assert type(a) is type(b)
    if isinstance(a, torch.Tensor):
        assert a.dtype == b.dtype and torch.equal(a, b)
    elif isinstance(a, dict):
        assert list(a) == list(b)
        for name in a:
            assert_same_bits(a[name], b[name])
    elif isinstance(a, (list, tuple)):
        assert len(a) == len(b)
        for x, y in zip(a, b):
            assert_same_bits(x, y)
    else:
        assert a == b


@pytest.fixture(autouse=True, scope="module")
def without_pictures() -> Iterator[None]:
    """Drawing takes most of a tiny run's time; its tests are elsewhere."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(plots, "curves", lambda *_: b"")
        patch.setattr(plots, "raster", lambda *_: b"")
        yield


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("runs") / "whole"
    run.start(TrainConfig(**TINY), str(out), QUIET)
    return out


def finish(out: Path) -> None:
    """Continue a run, or start it where the kill came before its first step."""
    if (out / "config.json").exists():
        run.resume(str(out), {}, QUIET, checkpoint_every=0)
    else:
        run.start(TrainConfig(**TINY), str(out), QUIET, checkpoint_every=0)


def test_start__twice_with_one_seed__gives_the_same_bits(uninterrupted: Path, tmp_path: Path) -> None:
    torch.manual_seed(999)
    run.start(TrainConfig(**TINY), str(tmp_path / "again"), QUIET, checkpoint_every=0)
    assert_same_bits(content(tmp_path / "again"), content(uninterrupted))
    run.start(TrainConfig(**{**TINY, "seed": 12}), str(tmp_path / "other"), QUIET)
    assert content(tmp_path / "other")["metrics"] != content(uninterrupted)["metrics"]


@pytest.mark.parametrize("function", ["fsync", "replace"])
def test_resume__killed_at_any_write__ends_with_the_same_bits(
    uninterrupted: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, function: str
) -> None:
    original = getattr(os, function)
    left: list[int | None] = [None]

    def counted(*args: Any) -> Any:
        if left[0] == 0:
            left[0] = None
            raise Killed
        if left[0] is not None:
            left[0] -= 1
        return original(*args)

    monkeypatch.setattr(os, function, counted)
    expected = content(uninterrupted)
    kills = 0
    for number in range(0, 1000, 3):
        out = tmp_path / str(number)
        left[0] = number
        try:
            run.start(TrainConfig(**TINY), str(out), QUIET, checkpoint_every=0)
            break
        except Killed:
            kills += 1
        if (out / "metrics.jsonl").exists():
            with open(out / "metrics.jsonl", "ab") as file:
                file.write(b'{"kind": "step", "epo')
        finish(out)
        assert_same_bits(content(out), expected)
    assert kills >= 4


def test_resume__killed_in_every_step__ends_with_the_same_bits(
    uninterrupted: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = MetricsLog.write
    out = tmp_path / "run"
    reached = [0]

    def write_once_then_die(self: MetricsLog, record: dict[str, Any]) -> None:
        write(self, record)
        reached[0] += 1
        if reached[0] == 2:
            raise Killed

    monkeypatch.setattr(MetricsLog, "write", write_once_then_die)
    kills = 0
    while True:
        reached[0] = 0
        try:
            finish(out)
            break
        except Killed:
            kills += 1
            assert kills < 50
    assert kills >= 10
    assert_same_bits(content(out), content(uninterrupted))


def command(out: Path, *more: str) -> list[str]:
    settings = ["--hidden", "9", "--num-steps", "3", "--limit", "70", "--batch-size", "16", "--epochs", "60"]
    options = [*settings, "--threads", "1", "--seed", "11", "--checkpoint-every", "0", "--out", str(out)]
    call = "import sys; from snn_ipu.cli import main; sys.argv[0] = 'snn-ipu'; main()"
    return [sys.executable, "-c", call, "train", *(more or options)]


def wait_for_growth(process: subprocess.Popen, path: Path, lines: int) -> None:
    before = path.read_bytes().count(b"\n") if path.exists() else 0
    deadline = time.monotonic() + 60
    while not path.exists() or path.read_bytes().count(b"\n") < before + lines:
        assert process.poll() is None, "the run ended before it could be killed"
        assert time.monotonic() < deadline
        time.sleep(0.002)


def test_train_command__kill_9_at_random_moments__ends_with_the_same_bits(tmp_path: Path) -> None:
    whole, out = tmp_path / "whole", tmp_path / "killed"
    run.start(TrainConfig(**{**TINY, "epochs": 60}), str(whole), QUIET)
    moments = random.Random(0)
    again: list[str] = []
    for _ in range(3):
        process = subprocess.Popen(command(out, *again), stdout=subprocess.DEVNULL)
        wait_for_growth(process, out / "metrics.jsonl", moments.randrange(5, 60))
        time.sleep(moments.random() * 0.01)
        process.kill()
        assert process.wait() == -signal.SIGKILL
        again = ["--resume", "--out", str(out)]
    subprocess.run(command(out, *again), check=True, stdout=subprocess.DEVNULL)
    assert_same_bits(content(out), content(whole))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_train_command__signal__leaves_a_checkpoint_and_says_how_to_go_on(tmp_path: Path, number: int) -> None:
    out = tmp_path / "run"
    process = subprocess.Popen(command(out), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    wait_for_growth(process, out / "metrics.jsonl", 2)
    process.send_signal(number)
    _, message = process.communicate(timeout=60)
    assert process.returncode == 128 + number
    assert message.splitlines() == [
        f"stopped by {signal.Signals(number).name}; continue with: snn-ipu train --out {out} --resume"
    ]
    state = torch.load(out / "checkpoint.pt", weights_only=True)
    steps = sum(record["kind"] == "step" for record in read_metrics(str(out / "metrics.jsonl")))
    assert steps == state["position"]["epoch"] * 5 + state["position"]["step"]
    assert state["metrics_bytes"] == (out / "metrics.jsonl").stat().st_size


def test_resume__more_epochs__goes_on_where_the_run_ended(uninterrupted: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    run.start(TrainConfig(**{**TINY, "epochs": 1}), str(out), QUIET)
    result = run.resume(str(out), {"epochs": 2}, QUIET)
    assert result.epochs == 2
    assert_same_bits(content(out), content(uninterrupted))
    assert json.loads((out / "config.json").read_text())["epochs"] == 2


def test_resume__finished_run__trains_nothing_and_reports_again(uninterrupted: Path) -> None:
    before = (uninterrupted / "metrics.jsonl").read_bytes()
    result = run.resume(str(uninterrupted), {}, QUIET)
    assert (uninterrupted / "metrics.jsonl").read_bytes() == before
    assert result.epochs == 2
    assert result.test_accuracy == read_metrics(str(uninterrupted / "metrics.jsonl"))[-1]["test_accuracy"]


def test_resume__other_settings__names_each_difference(uninterrupted: Path) -> None:
    changes = {"hidden": (10,), "data": "mnist", "lr": TrainConfig().lr, "epochs": 9, "seed": 11}
    with pytest.raises(CheckpointError, match="they differ in") as error:
        run.resume(str(uninterrupted), changes, QUIET)
    message = str(error.value)
    assert "hidden (here (9,), asked for (10,))" in message
    assert "data (here 'fashion-mnist-mini', asked for 'mnist')" in message
    for same in ("lr", "epochs", "seed"):
        assert f"{same} (" not in message


def test_resume__other_images__raises(uninterrupted: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    out.mkdir()
    for name in ("config.json", "metrics.jsonl"):
        (out / name).write_bytes((uninterrupted / name).read_bytes())
    state = torch.load(uninterrupted / "checkpoint.pt", weights_only=True)
    torch.save({**state, "data": "0" * 32}, out / "checkpoint.pt")
    with pytest.raises(CheckpointError, match="other data"):
        run.resume(str(out), {}, QUIET)


def test_resume__damaged_checkpoint__raises(uninterrupted: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    out.mkdir()
    (out / "config.json").write_bytes((uninterrupted / "config.json").read_bytes())
    whole = (uninterrupted / "checkpoint.pt").read_bytes()
    for bad in (b"", b"not a checkpoint", whole[: len(whole) // 2], whole[:-1], whole[100:]):
        (out / "checkpoint.pt").write_bytes(bad)
        with pytest.raises(CheckpointError, match=r"checkpoint\.pt is unreadable or damaged"):
            run.resume(str(out), {}, QUIET)
    for other in ({"model": {}}, [1, 2], {**torch.load(uninterrupted / "checkpoint.pt"), "format": 0}):
        torch.save(other, out / "checkpoint.pt")
        with pytest.raises(CheckpointError, match="not a checkpoint of a run of this version"):
            run.resume(str(out), {}, QUIET)


def test_resume__metrics_shorter_than_the_checkpoint__raises(uninterrupted: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    out.mkdir()
    for name in ("config.json", "checkpoint.pt"):
        (out / name).write_bytes((uninterrupted / name).read_bytes())
    (out / "metrics.jsonl").write_bytes((uninterrupted / "metrics.jsonl").read_bytes()[:-5])
    with pytest.raises(CheckpointError, match="the file was changed"):
        run.resume(str(out), {}, QUIET)


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"hidden": 3}', '{"hidden": null, "channels": null, "epocs": 1}'])
def test_resume__damaged_config_and_no_checkpoint__raises(tmp_path: Path, text: str) -> None:
    (tmp_path / "config.json").write_text(text)
    with pytest.raises(CheckpointError, match=r"config\.json does not hold the configuration"):
        run.resume(str(tmp_path), {}, QUIET)


def test_load__pickle_that_runs_code__is_refused(tmp_path: Path) -> None:
    class Runs:
        def __reduce__(self) -> tuple:
            return os.mkdir, (str(tmp_path / "ran"),)

    torch.save({"format": Runs()}, tmp_path / "checkpoint.pt")
    with pytest.raises(CheckpointError, match="unreadable"):
        checkpoint.load(str(tmp_path / "checkpoint.pt"))
    assert not (tmp_path / "ran").exists()


def saved(path: Path, net: nn.Module) -> dict[str, Any]:
    optimizer = torch.optim.AdamW(net.parameters())
    net(torch.ones(1, 3)).sum().backward()
    optimizer.step()
    position = Position(epoch=2, step=3, loss_sum=0.1, correct=4, seen=5)
    checkpoint.save(str(path), net, optimizer, position, config="{}", data="d", metrics_bytes=6)
    return checkpoint.load(str(path))


def test_restore__same_build__gives_back_everything(tmp_path: Path) -> None:
    net = nn.Linear(3, 2)
    state = saved(tmp_path / "c.pt", net)
    drawn = torch.rand(5)
    other = nn.Linear(3, 2)
    optimizer = torch.optim.AdamW(other.parameters())
    assert checkpoint.restore(state, "c.pt", other, optimizer, "d") == Position(2, 3, 0.1, 4, 5)
    assert torch.equal(torch.rand(5), drawn)
    assert torch.equal(other.weight, net.weight)
    assert optimizer.state_dict()["state"][0]["step"] == 1


def test_restore__another_net_or_optimizer__raises(tmp_path: Path) -> None:
    state = saved(tmp_path / "c.pt", nn.Linear(3, 2))
    wide = nn.Linear(3, 4)
    with pytest.raises(CheckpointError, match="another model"):
        checkpoint.restore(state, "c.pt", wide, torch.optim.AdamW(wide.parameters()), "d")
    net = nn.Linear(3, 2)
    with pytest.raises(CheckpointError, match="another model or optimizer"):
        checkpoint.restore(state, "c.pt", net, torch.optim.AdamW([net.weight]), "d")


def test_write_whole__disk_full__keeps_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "checkpoint.pt"
    write_whole(str(path), b"old")

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(run_folder.os, "fsync", full)
    with pytest.raises(RunError, match="No space left on device"):
        write_whole(str(path), b"new")
    assert path.read_bytes() == b"old"


def test_metrics__no_space_for_a_line__raises_and_keeps_what_was_written(tmp_path: Path) -> None:
    path = str(tmp_path / "m.jsonl")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    with MetricsLog(path) as log:
        log.write({"kind": "step"})
        resource.setrlimit(resource.RLIMIT_FSIZE, (30, before[1]))
        try:
            with pytest.raises(RunError, match="File too large"):
                log.write({"kind": "epoch", "epoch": 1})
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert read_metrics(path) == [{"kind": "step"}]


def test_metrics__torn_last_line__is_left_out_and_dropped_on_opening(tmp_path: Path) -> None:
    path = str(tmp_path / "m.jsonl")
    with MetricsLog(path) as log:
        log.write({"kind": "step", "loss": 0.1})
        keep = log.sync()
        log.write({"kind": "step", "loss": 0.2})
    with open(path, "ab") as file:
        file.write(b'{"kind": "st')
    assert [record["loss"] for record in read_metrics(path)] == [0.1, 0.2]
    with MetricsLog(path, keep) as log:
        log.write({"kind": "step", "loss": 0.3})
    assert [record["loss"] for record in read_metrics(path)] == [0.1, 0.3]


def test_metrics__checkpoint_ends_inside_a_line__raises(tmp_path: Path) -> None:
    (tmp_path / "m.jsonl").write_text('{"a": 1}\n{"b": 2}\n')
    with pytest.raises(CheckpointError, match="the file was changed"):
        MetricsLog(str(tmp_path / "m.jsonl"), 5)
    assert len(read_metrics(str(tmp_path / "m.jsonl"))) == 2


def test_run_folder__second_process__is_refused_until_the_first_ends(tmp_path: Path) -> None:
    hold = (
        "import sys, time; from snn_ipu.cli.run_folder import RunFolder\n"
        "with RunFolder(sys.argv[1], resume=False):\n    print('held', flush=True); time.sleep(60)"
    )
    process = subprocess.Popen([sys.executable, "-c", hold, str(tmp_path)], stdout=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stdout.readline() == b"held\n"
    with pytest.raises(RunError, match="another process"), RunFolder(str(tmp_path), resume=False):
        pass
    process.kill()
    process.communicate()
    with RunFolder(str(tmp_path), resume=False) as folder:
        assert folder.path == str(tmp_path)


def test_run_folder__holding_a_run_or_not__must_fit_resume(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="holds no run"), RunFolder(str(tmp_path / "absent"), resume=True):
        pass
    assert not (tmp_path / "absent").exists()
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(RunError, match="Add --resume to continue it"), RunFolder(str(tmp_path), resume=False):
        pass
    (tmp_path / "file").write_text("")
    with pytest.raises(RunError, match="cannot write there"), RunFolder(str(tmp_path / "file" / "x"), resume=False):
        pass
