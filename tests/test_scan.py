"""What a call of one look leaves behind for the next: nothing that shows but speed."""

from __future__ import annotations

import gc
import weakref
from collections import deque
from dataclasses import dataclass
from typing import Any, Callable, ClassVar, Mapping

import pytest
import torch
from torch import Tensor

import snn_ipu as snn
from snn_ipu import scan
from snn_ipu.backends import select
from snn_ipu.backends.cpu import Prepared
from snn_ipu.errors import BackendMissingError, ShapeError, UnsupportedError


@pytest.fixture()
def settled(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The name of the backend of each call that was checked and settled anew."""
    seen: list[str] = []
    settle = select.settle

    def counted(call: Any, name: str) -> Any:
        seen.append(name)
        return settle(call, name)

    monkeypatch.setattr(select, "settle", counted)
    return seen


def lif(**options: Any) -> snn.Leaky:
    return snn.Leaky(0.5, spike_grad=snn.surrogate.fast_sigmoid(5), backend="cpu", **options)


def test_loop__same_look_at_each_step__is_settled_once(settled: list[str]) -> None:
    neuron, mem = lif(), torch.zeros(3, 4)
    for _ in range(5):
        _, mem = neuron(torch.ones(3, 4), mem)
    assert settled == ["cpu"]
    lif()(torch.ones(3, 4), mem)
    assert settled == ["cpu"], "another neuron of the same kind looks alike"


LOOKS: dict[str, Callable[[], Any]] = {
    "shape": lambda: lif()(torch.ones(2, 4)),
    "strides": lambda: lif()(torch.ones(4, 3).t()),
    "dtype": lambda: lif()(torch.ones(3, 4, dtype=torch.bfloat16)),
    "gradient": lambda: lif()(torch.ones(3, 4, requires_grad=True)),
    "learned": lambda: lif(learn_beta=True)(torch.ones(3, 4)),
    "state": lambda: lif()(torch.ones(3, 4), torch.ones(3, 4)),
    "surrogate": lambda: snn.Leaky(0.5, spike_grad=snn.surrogate.fast_sigmoid(6), backend="cpu")(torch.ones(3, 4)),
    "flag": lambda: lif(reset_mechanism="zero")(torch.ones(3, 4)),
    "parameter": lambda: snn.Leaky(torch.full((4,), 0.5), backend="cpu")(torch.ones(3, 4)),
    "neuron": lambda: snn.Lapicque(0.5, backend="cpu")(torch.ones(3, 4)),
    "backend": lambda: snn.Leaky(0.5, spike_grad=snn.surrogate.fast_sigmoid(5))(torch.ones(3, 4)),
    "time": lambda: lif().sequence(torch.ones(3, 4), num_steps=1),
    "trace": lambda: lif().sequence(torch.ones(3, 1, 4), trace="mem"),
}


@pytest.mark.parametrize("call", LOOKS.values(), ids=LOOKS)
def test_call__looks_different__is_settled_anew(settled: list[str], call: Callable[[], Any]) -> None:
    lif()(torch.ones(3, 4))
    call()
    assert len(settled) == 2
    call()
    assert len(settled) == 2


def test_no_grad__after_a_call_with_gradients__keeps_no_graph() -> None:
    neuron, x = lif(), torch.ones(3, 4, requires_grad=True)
    assert neuron(x)[0].requires_grad
    neuron.reset_mem()
    with torch.no_grad():
        assert not neuron(x)[0].requires_grad
    neuron.reset_mem()
    spk, mem = neuron(x)
    mem.sum().backward()
    assert x.grad is not None and torch.equal(x.grad, torch.ones(3, 4)) and spk.requires_grad


@pytest.mark.parametrize(
    ("call", "error"),
    [
        (lambda n: n(torch.ones(3, 4), torch.ones(3, 5)), ShapeError),
        (lambda n: n(torch.ones(3, 4), [[0.0]]), ShapeError),
        (lambda n: n([1.0]), ShapeError),
        (lambda n: n(torch.ones(3, 4, dtype=torch.complex64)), ShapeError),
        (lambda n: n.sequence(torch.ones(3, 4), num_steps=True), ValueError),
        (lambda n: n.sequence(torch.ones(3, 4), num_steps=1.0), ValueError),
        (lambda n: n.sequence(torch.ones(3, 4), num_steps=[3]), ValueError),
        (lambda n: n.sequence(torch.ones(3, 4), deque([torch.ones(1, 1)]), num_steps=1), ShapeError),
        (lambda n: n.sequence(torch.ones(3, 4), deque(), num_steps=1), ShapeError),
        (lambda n: n.sequence(torch.ones(3, 4), torch.ones(3, 4), num_steps=1), ShapeError),
        (lambda n: n.sequence(torch.ones(3, 4), (), num_steps=1), ShapeError),
    ],
)
def test_wrong_call__after_right_ones__raises_each_time(call: Callable[[Any], Any], error: type[Exception]) -> None:
    neuron = lif()
    neuron(torch.ones(3, 4))
    neuron(torch.ones(3, 4))
    neuron.sequence(torch.ones(3, 4), num_steps=1)
    neuron.sequence(torch.ones(3, 4), deque([torch.ones(3, 4)]), num_steps=1)
    for _ in range(2):
        with pytest.raises(error):
            call(neuron)


def test_states_and_parameters__to_be_converted__are_converted_each_time() -> None:
    neuron = snn.Leaky(torch.tensor(0.5, dtype=torch.float64), backend="cpu")
    for value in (0.25, 0.5, 0.75):
        _, mem = neuron(torch.zeros(2, 3), torch.full((2, 3), value, dtype=torch.float64))
        assert torch.equal(mem, torch.full((2, 3), value / 2)) and mem.dtype == torch.float32


def test_start_values__state_is_not_given__are_there_at_each_first_step() -> None:
    def step(x: Tensor, mem: Tensor, *, beta: float = 0.5) -> tuple[Tensor, Tensor]:
        mem = beta * mem + x
        return snn.spike(mem - 1), mem

    neuron = snn.neuron(states={"mem": 2.0})(step)(backend="cpu")
    for _ in range(3):
        assert torch.equal(neuron.advance(torch.zeros(2, 3), [None])[1][0], torch.ones(2, 3))
        assert torch.equal(neuron.sequence(torch.zeros(1, 2, 3))[1][0], torch.ones(2, 3))
        assert torch.equal(neuron.sequence(torch.zeros(2, 3), num_steps=2)[1][0], torch.full((2, 3), 0.5))
        assert torch.equal(snn.unroll(neuron, torch.zeros(1, 2, 3))[1][""][0], torch.ones(2, 3))


class Charged(snn.Leaky):
    """A Leaky whose membrane starts at 0.5."""

    initial: ClassVar[Mapping[str, float]] = {"mem": 0.5}


@pytest.mark.parametrize("backend", ["cpu", "reference"])
def test_start_values__of_a_neuron_with_the_same_step__are_its_own(backend: str) -> None:
    x = torch.zeros(2, 4)
    kinds = (snn.Leaky, Charged, snn.Leaky, Charged)
    found = [kind(0.5, backend=backend)(x)[1][0, 0].item() for kind in kinds]
    assert found == [0.0, 0.25, 0.0, 0.25]


@pytest.mark.parametrize("dtype", [torch.bool, torch.uint8, torch.int64])
def test_whole_numbers__call_after_call__are_taken_as_floats(dtype: torch.dtype) -> None:
    neuron, x = lif(), torch.tensor([[0, 1], [1, 0]])
    for values in (x, 1 - x, x):
        spk, mem = neuron(values.to(dtype), torch.ones(2, 2))
        assert torch.equal(mem, 0.5 + values.float()) and torch.equal(spk, values.float())
        assert spk.dtype == mem.dtype == torch.float32


@dataclass
class Halves:
    """A quantiser whose values may change; equal to others of its kind, so that it has no hash."""

    steps: float = 2.0

    def __call__(self, mem: Tensor) -> Tensor:
        return torch.round(mem * self.steps) / self.steps


class Liar(Halves):
    """A quantiser that is equal to any other."""

    def __eq__(self, other: object) -> bool:
        return True

    def __hash__(self) -> int:
        return 1


@pytest.mark.filterwarnings("ignore::snn_ipu.errors.FallbackWarning")
@pytest.mark.parametrize("kind", [Halves, Liar])
@pytest.mark.parametrize("backend", ["auto", "reference"])
def test_quantiser__whose_values_change__is_asked_at_each_call(kind: type[Halves], backend: str) -> None:
    x = torch.full((2, 3), 0.3)
    for steps in (1.0, 2.0, 5.0):
        mem = snn.Leaky(0.5, state_quant=kind(steps), backend=backend)(x)[1]
        assert torch.equal(mem, torch.round(x * steps) / steps)


def test_quantiser__whose_values_change__has_no_kernel() -> None:
    with pytest.raises(UnsupportedError, match=r"state_quant=Halves\(steps=2.0\).*whose values may change.*function"):
        lif(state_quant=Halves())(torch.ones(2, 3))


def test_flags__equal_but_of_another_type__are_not_the_same() -> None:
    def doubled(x: Tensor, mem: Tensor, *, k: object = 0) -> tuple[Tensor, Tensor]:
        mem = mem + (2 * x if k is True else x)
        return snn.spike(mem - 1), mem

    class Flagged(snn.neurons.base.SpikingNeuron):
        step = staticmethod(doubled)
        state_names = ("mem",)
        k: object = 0

        def flags(self) -> dict[str, Any]:
            return {"k": self.k}

    neuron = Flagged(backend="cpu")
    for neuron.k, expected in ((1, 0.25), (True, 0.5), (1.0, 0.25), (True, 0.5)):
        assert neuron.advance(torch.full((1,), 0.25), [None])[1][0].item() == expected


def test_values__changed_between_calls__count(settled: list[str]) -> None:
    neuron, x = lif(learn_beta=True), torch.ones(2, 3)
    neuron.advance(x, [x])
    with torch.no_grad():
        neuron.beta.fill_(0.25)
    assert torch.equal(neuron.advance(x, [x])[1][0], torch.full((2, 3), 1.25))
    assert settled == ["cpu"]


def test_environment__names_another_backend__is_followed(monkeypatch: pytest.MonkeyPatch, settled: list[str]) -> None:
    neuron, x = snn.Leaky(0.5), torch.ones(2, 3)
    neuron.advance(x, [x])
    monkeypatch.setenv("SNN_IPU_BACKEND", "reference")
    neuron.advance(x, [x])
    monkeypatch.setenv("SNN_IPU_BACKEND", "cuda")
    with pytest.raises(BackendMissingError):
        neuron.advance(x, [x])
    assert settled == ["auto", "reference", "cuda"]


def test_transform__after_a_plain_call__takes_the_reference() -> None:
    neuron, x = lif(), torch.ones(2, 3)
    plain = neuron.advance(x, [x])[1][0]
    with pytest.raises(UnsupportedError, match="vmap"):
        torch.func.vmap(lambda row: neuron.advance(row, [row])[1][0])(x)
    neuron.backend = "reference"
    assert torch.equal(torch.func.vmap(lambda row: neuron.advance(row, [row])[1][0])(x), plain)


@pytest.mark.parametrize("steps", [5, 40])
def test_loop__of_steps__has_one_backward_kernel_for_each(steps: int, monkeypatch: pytest.MonkeyPatch) -> None:
    launched = []
    backward = Prepared.backward

    def counted(*args: Any) -> Any:
        launched.append(1)
        return backward(*args)

    monkeypatch.setattr(Prepared, "backward", counted)
    neuron, mem, total = lif(), torch.zeros(2, 3), torch.zeros(())
    x = torch.rand(2, 3, requires_grad=True)
    for _ in range(steps):
        spk, mem = neuron(x, mem)
        total = total + spk.sum()
    total.backward()
    assert len(launched) == steps


def test_memory__calls_are_over__no_tensor_is_held() -> None:
    x, mem = torch.ones(2, 3), torch.ones(2, 3)
    spk, new = lif().advance(x, [mem])
    gone = [weakref.ref(t) for t in (x, mem, spk, *new)]
    del x, mem, spk, new
    gc.collect()
    assert [r() for r in gone] == [None] * 4


def test_looks__ever_new_ones__are_forgotten_in_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scan, "_REMEMBERED", 3)
    neuron = lif()
    for batch in range(1, 12):
        x = torch.ones(batch, 3)
        assert torch.equal(neuron.advance(x, [x])[1][0], torch.full((batch, 3), 1.5))
    assert 0 < len(scan._runners) <= 3
