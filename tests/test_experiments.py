"""The throughput sweeps and the population study: what they plan, count, measure and write, and how they go on."""

from __future__ import annotations

import itertools
import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from click.testing import CliRunner
from ipu_host import HOST_SDK, host_sdk
from rich.console import Console
from torch import nn

import snn_ipu as snn
from snn_ipu.cli.app import app
from snn_ipu.cli.config import TrainConfig
from snn_ipu.cli.progress import SweepProgress
from snn_ipu.errors import BackendMissingError, RunError, UnsupportedError
from snn_ipu.experiments import flops, measure, networks, population, throughput
from snn_ipu.experiments.points import NETWORKS, NEURONS, SWEEPS, Point, base, plan
from snn_ipu.experiments.population import Cell, Study
from snn_ipu.experiments.throughput import Settings, Sweep

IMAGE, CLASSES = (1, 28, 28), 10
REQUEST = {"repeats": 4, "seconds": 5.0, "shares": False, "ipu_clock_ghz": 1.33}
ANSWER = {
    "status": "ok",
    "reason": None,
    "seconds": [0.1, 0.2, 0.3],
    "first_call_seconds": 1.0,
    "images_per_second": 40.0,
    "images_per_second_low": 30.0,
    "images_per_second_high": 50.0,
    "firing_rate": 0.1,
    "flops": {"synapses_forward": 4, "synapses_backward": 8, "neurons_forward": 1, "neurons_backward": 1},
    "tflops": 1e-3,
    "shares": None,
    "device_only_images_per_second": None,
}


def _progress() -> SweepProgress:
    return SweepProgress(Console(quiet=True), 1)


def _small(**changes: Any) -> Point:
    return replace(base("dsnn", quick=True), **changes)


def _results(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "results.jsonl").read_text().splitlines()]


class TestPlan:
    def test_every_sweep_goes_through_the_base_point_which_is_measured_once(self):
        points = plan(NETWORKS, SWEEPS, ["cpu"], threads=1)
        for network in NETWORKS:
            names = points[base(network)]
            assert set(names) == {sweep for sweep in SWEEPS if network in SWEEPS[sweep]}
        assert len(points) == len(set(points))

    def test_a_point_changes_one_setting_of_the_base(self):
        for point in plan(NETWORKS, SWEEPS, ["cpu"], threads=1):
            differing = [k for k, v in vars(base(point.network)).items() if vars(point)[k] != v]
            assert len(differing) <= 1, point

    def test_devices_are_measured_one_after_the_other_and_the_twin_on_its_own_devices(self):
        points = list(plan(["dsnn"], ["batch", "twin"], ["cpu", "snntorch-cpu"], threads=1))
        for ours, theirs in zip(points[0:10:2], points[1:10:2]):
            assert replace(ours, device="snntorch-cpu") == theirs
        assert [p.device for p in points if not p.spiking] == ["cpu"]

    def test_a_point_survives_json(self):
        for point in plan(NETWORKS, SWEEPS, ["cpu"], threads=3):
            assert Point.from_json(json.loads(json.dumps(point.to_json()))) == point


class TestFlops:
    @pytest.mark.parametrize("network", NETWORKS)
    @pytest.mark.parametrize("neuron", NEURONS)
    def test_synapses_agree_with_the_counter_of_torch(self, network, neuron):
        counter = pytest.importorskip("torch.utils.flop_counter").FlopCounterMode(display=False)
        point = replace(base(network, quick=True), neuron=neuron, device="reference")
        net = networks.build(point, IMAGE, CLASSES)
        x = torch.rand(1, *IMAGE)
        counted = flops.count(net, x, 3)
        for layer in net:
            if isinstance(layer, snn.SpikingNeuron):
                layer.backend = "reference"
        with counter:
            out = torch.stack([net(x) for _ in range(3)])
            forward = counter.get_total_flops()
            out.sum().backward()
            backward = counter.get_total_flops() - forward
        # torch counts two for a multiply-add
        assert (counted.synapses_forward, counted.synapses_backward) == (forward // 2, backward // 2)

    def test_neurons_are_counted_by_hand(self):
        @snn.neuron(states=("mem",))
        def plain(x, mem, *, beta=0.9, threshold=1.0):
            mem = beta * mem + x
            return snn.spike(mem - threshold), mem

        # forward: a fused multiply-add, a difference, a comparison; backward, after the surrogate's derivative:
        # its product with the gradient of the spike, added to that of the membrane, and beta times the sum
        forward, backward = flops.operations(plain(spike_grad=snn.surrogate.straight_through_estimator()))
        assert (forward, backward) == (3, 2)

    def test_steps_and_batch_multiply(self):
        net, x = networks.build(_small(), IMAGE, CLASSES), torch.rand(1, *IMAGE)
        one, ten = flops.count(net, x, 1), flops.count(net, x, 10)
        assert ten == one * 10
        assert one.synapses_forward == 784 * 100 + 100 * 10
        assert one.synapses_backward == 784 * 100 + 2 * 100 * 10


class TestNetworks:
    @pytest.mark.parametrize("network", NETWORKS)
    @pytest.mark.parametrize("neuron", NEURONS)
    def test_both_libraries_run_the_same_network(self, network, neuron):
        utils = pytest.importorskip("snntorch.utils")
        point = replace(base(network, quick=True), neuron=neuron)
        built = {}
        for device in ("cpu", "snntorch-cpu"):
            torch.manual_seed(0)
            built[device] = networks.build(replace(point, device=device), IMAGE, CLASSES)
        x = 5 * torch.rand(4, *IMAGE)
        theirs = built["snntorch-cpu"]
        utils.reset(theirs)
        expected = torch.stack([theirs(x) for _ in range(12)])
        spk, _ = snn.unroll(built["cpu"], x, 12)
        assert expected.mean() > 0
        # sums of products are rounded in another order, which may move a spike
        assert (spk != expected).float().mean() < 0.01

    def test_pieces_alternate_and_keep_every_layer(self):
        net = networks.build(base("csnn"), IMAGE, CLASSES)
        found = networks.pieces(net)
        assert [kind for kind, _ in found] == ["synapses", "neurons"] * 3
        assert list(itertools.chain.from_iterable(piece for _, piece in found)) == list(net)


class TestMeasure:
    @pytest.mark.parametrize("device", ["cpu", "reference", "snntorch-cpu"])
    def test_a_point_is_measured(self, device):
        if device.startswith("snntorch"):
            pytest.importorskip("snntorch")
        answer = measure.measure({**REQUEST, "point": _small(device=device).to_json(), "shares": True})
        assert answer["status"] == "ok", answer
        seconds = sorted(answer["seconds"])
        assert len(seconds) == 4
        assert answer["images_per_second"] == pytest.approx(8 / ((seconds[1] + seconds[2]) / 2))
        assert answer["images_per_second_low"] <= answer["images_per_second"] <= answer["images_per_second_high"]
        assert sum(answer["shares"].values()) == pytest.approx((seconds[1] + seconds[2]) / 2)
        assert answer["flops"]["synapses_forward"] == 8 * 5 * (784 * 100 + 1000)
        json.dumps(answer, allow_nan=False)

    def test_training_learns_on_every_device(self):
        """What is timed is training: the loss falls, by the same steps in both libraries."""
        pytest.importorskip("snntorch")
        losses = {}
        for device in ("cpu", "reference", "snntorch-cpu"):
            torch.manual_seed(0)
            net = networks.build(_small(device=device, num_steps=8), IMAGE, CLASSES)
            step = measure.make_step(net, _small(device=device, num_steps=8))
            x, y = torch.rand(8, *IMAGE, generator=torch.Generator().manual_seed(0)), torch.arange(8)
            losses[device] = [step(x, y)[1].item() for _ in range(40)]
            assert losses[device][-1] < losses[device][0]
        assert losses["cpu"][0] == pytest.approx(losses["snntorch-cpu"][0], rel=1e-4)
        assert losses["cpu"] == pytest.approx(losses["reference"], rel=0.05)

    def test_device_only_speed_comes_from_the_cycles_of_a_run_without_host_data(self, monkeypatch):
        """The model of an IPU counts no cycles, so what a device would count is made up here."""
        asked: list[dict[str, Any]] = []

        class Step:
            def __call__(self, x: torch.Tensor, y: torch.Tensor) -> None:
                asked.append({"shape": tuple(x.shape)})

            def cycle_count(self) -> int:
                return 2_000_000

        def make_step(net: nn.Module, point: Point, **options: Any) -> Step:
            asked.append(options)
            return Step()

        monkeypatch.setattr(measure, "make_step", make_step)
        point = _small(device="ipu")
        x, y = torch.rand(8, *IMAGE), torch.arange(8)
        assert measure._device_only(point, x, y, clock_ghz=1.5) == pytest.approx(8 * 1.5e9 / 2e6)
        assert asked[0] == {"synthetic_data": True, "cycle_count": True}
        assert {"shape": (8, *IMAGE)} in asked

    def test_the_twin_does_not_spike(self):
        answer = measure.measure({**REQUEST, "point": _small(spiking=False).to_json()})
        assert answer["status"] == "ok" and answer["firing_rate"] is None
        assert answer["flops"]["synapses_forward"] == 8 * (784 * 100 + 1000)

    @pytest.mark.parametrize("spiking", [True, False])
    def test_an_ipu_trains_as_the_cpu_does(self, spiking):
        """On the host model: gradients show in the losses of the steps after the first."""
        losses = {}
        x, y = torch.rand(8, *IMAGE, generator=torch.Generator().manual_seed(0)), torch.arange(8)
        with host_sdk():
            for device in ("cpu", "ipu"):
                torch.manual_seed(0)
                point = _small(device=device, spiking=spiking)
                step = measure.make_step(networks.build(point, IMAGE, CLASSES), point)
                losses[device] = [step(x, y)[1].item() for _ in range(5)]
        assert len(set(losses["cpu"])) > 1
        assert losses["ipu"] == pytest.approx(losses["cpu"], rel=1e-4)

    def test_decays_keep_their_value_in_16_bits(self):
        point = _small(precision="bfloat16")
        net = networks.build(point, IMAGE, CLASSES)
        measure.place(net, point, torch.bfloat16)
        assert {p.dtype for layer in net if isinstance(layer, nn.Linear) for p in layer.parameters()} == {
            torch.bfloat16
        }
        assert float(net[2].beta) == pytest.approx(networks.BETA, rel=1e-6)

    @pytest.mark.parametrize(
        "error, status",
        [
            (MemoryError(), "out of memory"),
            (RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried ..."), "out of memory"),
            (RuntimeError("CUDA out of memory. Tried to allocate 2 GiB"), "out of memory"),
            (ValueError("no such layer"), "failed"),
        ],
    )
    def test_a_failure_is_an_answer(self, monkeypatch, error, status):
        def fail(*_: Any) -> None:
            raise error

        monkeypatch.setattr(measure, "_measured", fail)
        answer = measure.measure({**REQUEST, "point": _small().to_json()})
        assert answer["status"] == status and type(error).__name__ in answer["reason"]


class TestWatchdog:
    @pytest.mark.parametrize(
        "script, status, reason",
        [
            ("import time; time.sleep(60)", "timeout", "1 s"),
            ("import os; os.kill(os.getpid(), 9)", "out of memory", "SIGKILL"),
            ("raise SystemError('broken driver')", "failed", "broken driver"),
        ],
    )
    def test_a_worker_that_ends_badly_is_an_answer(self, monkeypatch, script, status, reason):
        monkeypatch.setattr(throughput, "_WORKER", script)
        began = time.monotonic()
        answer = throughput.watched({}, timeout=1 if status == "timeout" else 60)
        assert answer["status"] == status and reason in answer["reason"]
        assert time.monotonic() - began < 30

    def test_nothing_that_the_worker_started_lives_on(self, monkeypatch, tmp_path):
        mark = tmp_path / "pid"
        script = f"""
import subprocess
child = subprocess.Popen(["sleep", "600"])
open({str(mark)!r}, "w").write(str(child.pid))
child.wait()
"""
        monkeypatch.setattr(throughput, "_WORKER", script)
        assert throughput.watched({}, timeout=2)["status"] == "timeout"
        child = int(mark.read_text())
        deadline = time.monotonic() + 10
        while time.monotonic() < deadline and _alive(child):
            time.sleep(0.05)
        assert not _alive(child)

    @pytest.mark.skipif(sys.platform != "linux", reason="Linux tells a process of its parent's death")
    def test_a_worker_does_not_outlive_its_sweep(self, tmp_path):
        """Also not one that was killed, which can end nothing itself."""
        mark = tmp_path / "pid"
        worker = throughput._WORKER.split("runpy.run_module")[0]
        worker += f"import os, time; pathlib.Path({str(mark)!r}).write_text(str(os.getpid())); time.sleep(600)"
        script = f"from snn_ipu.experiments import throughput as t; t._WORKER = {worker!r}; t.watched({{}}, 600)"
        with subprocess.Popen([sys.executable, "-c", script]) as sweep:
            deadline = time.monotonic() + 60
            while not (mark.exists() and mark.read_text()) and time.monotonic() < deadline:
                time.sleep(0.05)
            sweep.kill()
        child = int(mark.read_text())
        while time.monotonic() < deadline and _alive(child):
            time.sleep(0.05)
        assert not _alive(child)

    def test_a_network_that_fits_in_no_memory_is_recorded_as_such(self):
        answer = throughput.watched({**REQUEST, "point": _small(hidden=(10**10,)).to_json()}, timeout=120)
        assert answer["status"] == "out of memory", answer

    def test_a_real_point_in_a_process_of_its_own(self):
        answer = throughput.watched({**REQUEST, "point": _small().to_json()}, timeout=120)
        assert answer["status"] == "ok", answer


def _alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except OSError:
        return False
    return state != "Z"


def _sweep(**changes: Any) -> Sweep:
    settings = {"networks": ["dsnn"], "sweeps": ["batch"], "devices": ["cpu"], "threads": 1, "settings": Settings()}
    return Sweep(**{**settings, **changes})


class TestSweep:
    def test_it_goes_on_where_it_was_killed(self, monkeypatch, tmp_path):
        asked: list[int] = []

        def answer(request: dict[str, Any], timeout: float) -> dict[str, Any]:
            asked.append(request["point"]["batch"])
            if len(asked) == 3:
                raise KeyboardInterrupt
            return dict(ANSWER)

        monkeypatch.setattr(throughput, "watched", answer)
        with pytest.raises(KeyboardInterrupt), _progress() as progress:
            _sweep().run(str(tmp_path), progress)
        assert len(_results(tmp_path)) == 2
        with open(tmp_path / "results.jsonl", "a") as file:
            file.write('{"config": {"net')  # a kill may cut a line short
        with _progress() as progress:
            _sweep().run(str(tmp_path), progress)
        assert asked == [8, 16, 32, 32, 64, 128]
        assert [r["config"]["batch"] for r in _results(tmp_path)] == [8, 16, 32, 64, 128]
        with _progress() as progress:
            _sweep().run(str(tmp_path), progress)
        assert len(asked) == 6

    def test_points_that_fail_are_recorded_and_the_sweep_goes_on(self, monkeypatch, tmp_path):
        bad = {"status": "timeout", "reason": "no result within 1 s"}
        monkeypatch.setattr(throughput, "watched", lambda r, t: bad if r["point"]["batch"] == 16 else dict(ANSWER))
        with _progress() as progress:
            assert _sweep().run(str(tmp_path), progress) == 1
            assert [r["status"] for r in _results(tmp_path)] == ["ok", "timeout", "ok", "ok", "ok"]
            monkeypatch.setattr(throughput, "watched", lambda r, t: dict(ANSWER))
            assert _sweep().run(str(tmp_path), progress) == 1
            assert len(_results(tmp_path)) == 5
            assert _sweep(settings=Settings(timeout=9.0)).run(str(tmp_path), progress, retry=True) == 0
        last = _results(tmp_path)[5]
        assert (last["config"]["batch"], last["status"]) == (16, "ok") and len(_results(tmp_path)) == 6

    def test_a_sweep_without_any_measured_point_is_an_error(self, monkeypatch, tmp_path):
        monkeypatch.setattr(throughput, "watched", lambda r, t: {"status": "failed", "reason": "no luck"})
        with _progress() as progress, pytest.raises(RunError, match=r"none of the 5 points .*no luck.*--retry"):
            _sweep().run(str(tmp_path), progress)

    @pytest.mark.parametrize(
        "name, content",
        [
            ("run.json", b""),
            ("run.json", b"[]"),
            ("run.json", b"{}"),
            ("run.json", b"\xff\xfe"),
            ("results.jsonl", b"nonsense\n"),
            ("results.jsonl", b"\x00\xff\n"),
            ("results.jsonl", b"[1]\n"),
            ("results.jsonl", b'{"loss": 1}\n'),
        ],
    )
    def test_a_damaged_folder_is_an_error_that_names_the_file(self, monkeypatch, tmp_path, name, content):
        monkeypatch.setattr(throughput, "watched", lambda r, t: dict(ANSWER))
        with _progress() as progress:
            _sweep().run(str(tmp_path), progress)
            (tmp_path / name).write_bytes(content)
            with pytest.raises(RunError, match=name):
                _sweep().run(str(tmp_path), progress)
        assert (tmp_path / name).read_bytes() == content

    @pytest.mark.parametrize("option", ["seconds", "timeout", "ipu_clock_ghz"])
    @pytest.mark.parametrize("value", [float("nan"), float("inf"), 0.0, 1e300])
    def test_settings_that_no_clock_can_keep_are_refused(self, option, value):
        with pytest.raises(UnsupportedError, match=f"--{option.replace('_', '-')}"):
            Settings(**{option: value})

    @pytest.mark.parametrize(
        "argv, shown",
        [
            (["/usr/bin/snn-ipu", "throughput", "--out", "a b"], "snn-ipu throughput --out 'a b'"),
            (["experiments/throughput.py", "--quick"], "python experiments/throughput.py --quick"),
        ],
    )
    def test_a_run_names_the_command_that_made_it(self, monkeypatch, tmp_path, argv, shown):
        monkeypatch.setattr(throughput, "watched", lambda r, t: dict(ANSWER))
        monkeypatch.setattr(sys, "argv", argv)
        with _progress() as progress:
            _sweep().run(str(tmp_path), progress)
        assert json.loads((tmp_path / "run.json").read_text())["command"] == shown

    def test_names_that_are_given_twice_count_once(self):
        twice = _sweep(devices=["cpu", "cpu"], sweeps=["batch", "batch"])
        assert twice.plan == _sweep().plan and twice.options == _sweep().options

    def test_another_sweep_or_machine_is_refused(self, monkeypatch, tmp_path):
        monkeypatch.setattr(throughput, "watched", lambda r, t: dict(ANSWER))
        with _progress() as progress:
            _sweep().run(str(tmp_path), progress)
            with pytest.raises(RunError, match=r"repeats was 20, is 5"):
                _sweep(settings=Settings(repeats=5)).run(str(tmp_path), progress)
            header = json.loads((tmp_path / "run.json").read_text())
            header["machine"]["cpu"] = "another"
            (tmp_path / "run.json").write_text(json.dumps(header))
            with pytest.raises(RunError, match="cpu was 'another'"):
                _sweep().run(str(tmp_path), progress)
            _study(tmp_path, RunError, "kind was 'throughput'")
        assert len(_results(tmp_path)) == 5

    def test_a_full_disk_is_an_error_that_names_the_file(self, monkeypatch, tmp_path):
        monkeypatch.setattr(throughput, "watched", lambda r, t: dict(ANSWER))
        real = os.write

        def full(fd: int, data: bytes) -> int:
            if b"images_per_second" in data:
                raise OSError(28, "No space left on device")
            return real(fd, data)

        monkeypatch.setattr(os, "write", full)
        with _progress() as progress, pytest.raises(RunError, match=r"results.jsonl \(No space left on device\)"):
            _sweep().run(str(tmp_path), progress)

    def test_unknown_names_and_missing_devices(self, tmp_path):
        with pytest.raises(UnsupportedError, match="--device tpu: expected one of cpu, "):
            _sweep(devices=["tpu"])
        with pytest.raises(UnsupportedError, match="--sweep size"):
            _sweep(sweeps=["size"])
        with pytest.raises(UnsupportedError, match="width goes with dsnn"):
            _sweep(networks=["csnn"], sweeps=["width"])
        if not torch.cuda.is_available():
            with pytest.raises(BackendMissingError, match="no CUDA device"):
                _sweep(devices=["snntorch-cuda"])
        shown = CliRunner().invoke(app, ["throughput", "--device", "cuda", "--out", str(tmp_path / "x")])
        if not torch.cuda.is_available():
            assert shown.exit_code == 2 and "no CUDA device" in shown.output and "Traceback" not in shown.output
            assert not (tmp_path / "x").exists()

    def test_a_dry_run_prints_the_plan_and_writes_nothing(self, tmp_path):
        shown = CliRunner().invoke(app, ["throughput", "--dry-run", "--device", "cpu", "--out", str(tmp_path / "x")])
        assert shown.exit_code == 0, shown.output
        expected = plan(NETWORKS, SWEEPS, ["cpu"], torch.get_num_threads())
        assert shown.output.splitlines()[-1] == f"{len(expected)} points"
        assert len(shown.output.splitlines()) == len(expected) + 1
        assert not (tmp_path / "x").exists()


CONFIG = TrainConfig(data="fashion-mnist-mini", hidden=(20,), limit=200, epochs=2, batch_size=50, device="cpu")


def _study(folder: Path, error: type[BaseException] | None = None, match: str = "", **changes: Any) -> None:
    study = Study(replace(CONFIG, **changes), (1, 3), (1, 4), (0, 1))
    with _progress() as progress:
        if error is None:
            study.run(str(folder), progress)
        else:
            with pytest.raises(error, match=match):
                study.run(str(folder), progress)


class TestPopulation:
    def test_cells_are_trained_once_and_recorded(self, tmp_path):
        _study(tmp_path)
        results = _results(tmp_path)
        cells = [Cell(r["population"], r["num_steps"], r["seed"]) for r in results]
        assert cells == [Cell(p, t, s) for s in (0, 1) for t in (1, 4) for p in (1, 3)]
        for record in results:
            assert record["status"] == "ok" and len(record["test_accuracy"]) == 2
            assert all(0 <= a <= 1 for a in record["test_accuracy"])
            assert all(s > 0 for s in record["seconds_per_epoch"])
            assert (record["train_images"], record["classes"]) == (200, 10)
        before = (tmp_path / "results.jsonl").read_bytes()
        _study(tmp_path)
        assert (tmp_path / "results.jsonl").read_bytes() == before
        _study(tmp_path, RunError, "epochs was 2, is 3", epochs=3)

    def test_killed_anywhere_it_ends_with_the_same_accuracies(self, tmp_path):
        script = (
            "import sys; sys.path.insert(0, sys.argv[2]); from pathlib import Path; import test_experiments as t; "
            "t._study(Path(sys.argv[1]))"
        )
        command = [sys.executable, "-c", script, str(tmp_path / "killed"), str(Path(__file__).parent)]
        for wait in ("cells/p1-t1-s0/config.json", "cells/p3-t4-s0/metrics.jsonl"):
            with subprocess.Popen(command, stderr=subprocess.PIPE) as process:
                deadline = time.monotonic() + 120
                while not (tmp_path / "killed" / wait).exists() and time.monotonic() < deadline:
                    assert process.poll() is None or (tmp_path / "killed" / wait).exists(), process.stderr.read()
                    time.sleep(0.005)
                process.send_signal(signal.SIGKILL)
        _study(tmp_path / "killed")
        _study(tmp_path / "whole")
        accuracies = [
            {(r["population"], r["num_steps"], r["seed"]): r["test_accuracy"] for r in _results(tmp_path / name)}
            for name in ("killed", "whole")
        ]
        assert len(accuracies[0]) == 8 and accuracies[0] == accuracies[1]
        assert len(_results(tmp_path / "killed")) == 8

    def test_a_loss_that_is_no_number_is_recorded(self, monkeypatch, tmp_path):
        def build_loss(config: TrainConfig, data: Any) -> Any:
            factor = float("nan") if config.population == 3 else 1.0
            return lambda spk, y: factor * spk.sum()

        monkeypatch.setattr("snn_ipu.cli.run.build_loss", build_loss)
        _study(tmp_path)
        results = _results(tmp_path)
        assert [r["status"] for r in results] == ["ok", "failed"] * 4
        assert all("loss became nan" in r["reason"] for r in results[1::2])

    def test_a_training_that_fails_is_recorded_and_the_study_goes_on(self, monkeypatch, tmp_path):
        real = population.run.start

        def start(config: TrainConfig, *rest: Any, **named: Any) -> Any:
            if config.population == 3:
                raise RuntimeError("can't allocate memory")
            return real(config, *rest, **named)

        monkeypatch.setattr(population.run, "start", start)
        _study(tmp_path)
        assert [r["status"] for r in _results(tmp_path)] == ["ok", "failed"] * 4
        assert "can't allocate memory" in _results(tmp_path)[1]["reason"]

    def test_values_that_are_given_twice_count_once(self):
        assert Study(CONFIG, (1, 1), (4, 4), (0, 0)).cells == [Cell(1, 4, 0)]

    @pytest.mark.parametrize("option", [("--populations", "2"), ("--data", "cifar10"), ("--epochs", "3")])
    def test_quick_goes_with_no_option_that_it_sets(self, tmp_path, option):
        shown = CliRunner().invoke(app, ["population", "--quick", *option, "--out", str(tmp_path / "x")])
        assert shown.exit_code == 2 and f"--quick sets {option[0][2:]}" in shown.output
        assert not (tmp_path / "x").exists()

    def test_missing_data_is_an_error_before_anything_is_written(self, tmp_path):
        shown = CliRunner().invoke(app, ["population", "--data", "cifar10", "--out", str(tmp_path / "x")])
        assert shown.exit_code == 2 and "--data-root" in shown.output
        assert not (tmp_path / "x").exists()

    def test_a_dry_run_prints_the_plan(self, tmp_path):
        shown = CliRunner().invoke(app, ["population", "--dry-run", "--out", str(tmp_path / "x")])
        assert shown.exit_code == 0
        assert shown.output.splitlines()[-1] == "48 trainings of 5 epochs: dsnn on fashion-mnist"
        assert not (tmp_path / "x").exists()

    def test_settings_are_those_of_training(self):
        study = Study(CONFIG, (1, 3), (4,), (2,))
        configs = [asdict(study.cell_config(cell)) for cell in study.cells]
        assert [c.pop("population") for c in configs] == [1, 3]
        assert configs[0] == configs[1] and configs[0]["num_steps"] == 4 and configs[0]["seed"] == 2


def test_quick_throughput_from_the_command_line(tmp_path):
    out = tmp_path / "run"
    arguments = ["throughput", "--quick", "--network", "dsnn", "--device", "cpu", "--out", str(out)]
    shown = CliRunner().invoke(app, arguments, catch_exceptions=False)
    assert shown.exit_code == 0, shown.output
    assert {r["status"] for r in _results(out)} == {"ok"}
    assert (out / "report.html").stat().st_size > 10_000 and (out / "results.csv").exists()


def test_the_ipu_path_runs_on_the_host_model_and_says_that_its_times_mean_nothing(tmp_path):
    with host_sdk():
        environment = sys.modules["poplar_host"].install().environment()
    environment = {**os.environ, **environment, "PYTHONPATH": os.pathsep.join([str(HOST_SDK / "python"), os.getcwd()])}
    main = "from snn_ipu.cli import main; main()"
    command = [sys.executable, "-c", main, "throughput", "--quick", "--network", "dsnn", "--device", "ipu"]
    done = subprocess.run([*command, "--out", str(tmp_path)], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    records = _results(tmp_path)
    assert records and {r["status"] for r in records} == {"ok"}, records
    assert {r["config"]["spiking"] for r in records} == {True, False}
    assert all(r["device_only_images_per_second"] is None for r in records)
    assert throughput.HOST_MODEL_NOTE in done.stderr
    assert throughput.HOST_MODEL_NOTE in json.loads((tmp_path / "run.json").read_text())["notes"]
    assert throughput.HOST_MODEL_NOTE in (tmp_path / "report.html").read_text()
