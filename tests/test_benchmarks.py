from __future__ import annotations

import csv
from importlib import metadata
from pathlib import Path
from typing import Any, Iterator

import pytest
import torch
from torch import Tensor

import snn_ipu as snn
from benchmarks import __main__ as bench
from benchmarks import neurons, peers, step_loop, train_step, vectorisation
from benchmarks.timing import Contender, Result, bytes_kept, interleave


def test_vectorisation__leaky__every_time_loop_is_vectorised(capsys: pytest.CaptureFixture[str]) -> None:
    assert vectorisation.main(["--only", "leaky training"]) == 0
    assert "0 loops in" in capsys.readouterr().out


def test_vectorisation__call_that_has_no_vector_form__is_found(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    @snn.neuron(states=("mem",))
    def scalar(x: Tensor, mem: Tensor, *, beta: Any = 0.9) -> tuple[Tensor, Tensor]:
        mem = beta * mem + torch.erf(x)
        return snn.spike(mem - 1.0), mem

    case = vectorisation._case("erf", scalar(), snn.surrogate.atan(), "training")
    monkeypatch.setattr(vectorisation, "cases", lambda: iter([case]))
    assert vectorisation.main([]) == 1
    out = capsys.readouterr().out
    assert "erf training" in out and "forward, line" in out


def test_vectorisation__loops_outside_time__are_not_counted() -> None:
    kernel = vectorisation._case("leaky", snn.Leaky(0.9), snn.surrogate.atan(), "training").variant.kernel()
    found = vectorisation.inner_loops(kernel.source)
    assert set(found.values()) == {"forward", "backward"}
    assert kernel.source.count("for (int64_t i = 0") > len(found)


def test_interleave__two_contenders__take_turns() -> None:
    calls: list[str] = []
    pair = [Contender(n, lambda n=n: calls.append(n), 0.0, 0.1) for n in "ab"]  # type: ignore[misc]
    interleave(pair, 10)
    assert calls == ["a"] * 3 + ["b"] * 3 + ["a", "b"] * 10
    assert all(len(c.times) == 10 for c in pair)


@pytest.mark.parametrize(("dtype", "expected"), [(torch.float32, 4), (torch.bfloat16, 2), (torch.float16, 2)])
def test_bytes_kept__leaky__is_one_membrane(dtype: torch.dtype, expected: int) -> None:
    x = torch.ones(8, 3, 1000, dtype=dtype, requires_grad=True)
    lif = snn.Leaky(0.9, backend="cpu")
    assert bytes_kept(lambda: lif.sequence(x)[0]) / x.numel() == pytest.approx(expected, abs=0.01)


def test_check__contender_with_other_results__stops_the_benchmark() -> None:
    expected = neurons._leaky()
    assert 0.05 < neurons.check("ours", expected, neurons._by_hand, 6, 500) < 0.5
    with pytest.raises(SystemExit, match=r"too leaky: .* of the neurons spike alike"):
        neurons.check("too leaky", lambda x: peers.leaky_loop(x, 0.5), expected, 6, 500)


def test_check__network_with_other_results__stops_the_benchmark() -> None:
    class Other(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = train_step._ours(lambda: snn.Leaky(0.2))

        def forward(self, x: Tensor) -> Tensor:
            return snn.unroll(self.net, x, train_step.STEPS)[0]  # type: ignore[no-any-return]

    with pytest.raises(SystemExit, match="other: loss"):
        train_step.check("other", Other(), train_step._ours(train_step._leaky))


def test_main__a_peer_is_missing__is_named_and_the_file_holds_every_row(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def suite(repeats: int) -> Iterator[Result]:
        pair = [Contender("ours", lambda: None, 0.5, 0.1, 4.0), Contender("theirs", lambda: None, 0.2, 0.1)]
        for contender, time in zip(pair, (0.010, 0.030)):
            contender.times += [time] * repeats
        yield Result("a layer", pair, ["spikingjelly 2. is not installed"])

    monkeypatch.setattr(bench, "SUITES", {"neurons": suite})
    assert bench.main(["--repeats", "10", "--out", str(tmp_path)]) == 0
    assert "left out: spikingjelly 2. is not installed" in capsys.readouterr().out
    with open(tmp_path / "bench.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [(r["contender"], r["median_ms"], r["ratio"]) for r in rows] == [
        ("ours", "10.0", "1.0"),
        ("theirs", "30.0", "3.0"),
    ]
    assert "torch" in rows[0]["machine"] and rows[0]["command"].startswith("python -m benchmarks --repeats 10")


def test_main__too_few_repeats__is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        bench.main(["--repeats", "3"])
    assert "at least 10" in capsys.readouterr().err


def test_peers__not_installed_or_of_another_version__are_named() -> None:
    assert peers._missing("surely-not-installed", "2.", "surely") == "surely-not-installed 2. is not installed"
    installed = metadata.version("torch")
    assert peers._missing("torch", "0.", "torch") == f"torch 0. was asked for, {installed} is installed"
    assert peers._missing("torch", torch.__version__[:1], "torch.surely_not") is not None


def test_step_loop__contenders_agree_and_another_neuron_is_refused() -> None:
    (result,) = step_loop.results(1, counts=(3,))
    assert result.contenders[0].name == "snn_ipu Leaky"
    assert all(0 < c.firing_rate < 0.5 and len(c.times) == 1 for c in result.contenders)
    frames = [torch.rand(4, 50, requires_grad=True) for _ in range(6)]
    grads = [torch.rand(4, 50) for _ in range(7)]
    with pytest.raises(SystemExit, match=r"too leaky: .* of the neurons spike alike"):
        step_loop.check("too leaky", snn.Leaky(0.5), snn.Leaky(0.9), frames, grads)
