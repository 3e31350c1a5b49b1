"""Neurons under what follows each operation of torch: jit.trace, make_fx, FakeTensor and other dispatch modes."""

from __future__ import annotations

from typing import Any, Callable

import pytest
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils._python_dispatch import TorchDispatchMode

import snn_ipu as snn
from snn_ipu._compat import HAS_OPERATORS
from snn_ipu.errors import UnsupportedError

pytestmark = pytest.mark.filterwarnings("ignore::snn_ipu.errors.FallbackWarning")


class Operations(TorchDispatchMode):
    """The names of the operations seen."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.names.append(str(func))
        return func(*args, **(kwargs or {}))


def currents(seed: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(0, 16, (5, 3, 4), generator=generator) / 8


def neurons() -> tuple[snn.Synaptic, snn.Synaptic]:
    fused, reference = (snn.Synaptic(0.5, 0.75, learn_beta=True, backend=b) for b in ("auto", "reference"))
    return fused, reference


def spikes_and_gradient(neuron: snn.Synaptic, x: Tensor) -> tuple[Tensor, Tensor]:
    x = x.detach().requires_grad_()
    spk, (_, mem) = neuron.sequence(x)
    return spk.detach(), torch.autograd.grad(spk.sum() + mem.square().sum(), x)[0]


def test_jit_trace__run_on_other_values__follows_them() -> None:
    fused, reference = (neuron.requires_grad_(False) for neuron in neurons())
    fused.sequence(currents(0))
    traced = torch.jit.trace(lambda x: fused.sequence(x)[0], currents(0))
    assert torch.equal(traced(currents(1)), reference.sequence(currents(1))[0])
    assert not torch.equal(traced(currents(1)), traced(currents(0)))


def test_make_fx__run_on_other_values__follows_them() -> None:
    fused, reference = neurons()
    fused.sequence(currents(0))
    graph = make_fx(lambda x: spikes_and_gradient(fused, x))(currents(0))
    expected = spikes_and_gradient(reference, currents(1))
    spk, grad = graph(currents(1))
    assert torch.equal(spk, expected[0]) and spk.any()
    torch.testing.assert_close(grad, expected[1])
    if HAS_OPERATORS:
        assert "snn_ipu.scan_backward" in graph.code and "snn_ipu.scan" in graph.code


def test_dispatch_mode__neuron__is_one_operation_and_computes_the_same() -> None:
    fused, reference = neurons()
    expected = spikes_and_gradient(reference, currents(2))
    with Operations() as seen:
        spk, grad = spikes_and_gradient(fused, currents(2))
    assert torch.equal(spk, expected[0])
    torch.testing.assert_close(grad, expected[1])
    if HAS_OPERATORS:
        assert seen.names.count("snn_ipu.scan.default") == 1 and seen.names.count("snn_ipu.scan_backward.default") == 1


@pytest.mark.parametrize("form", ["sequence", "static", "expanded", "step"])
def test_dispatch_mode__saved_tensors_in_another_layout__give_the_same_gradients(form: str) -> None:
    threshold = torch.linspace(0.5, 1.5, 6).reshape(2, 3)
    neuron = snn.Leaky(0.75, threshold=threshold, learn_threshold=True)
    generator = torch.Generator().manual_seed(4)
    x = torch.rand((5, 4, 2, 3) if form == "sequence" else (4, 2, 3), generator=generator).requires_grad_()

    def gradients() -> tuple[Tensor, ...]:
        if form == "step":
            spk, mem = neuron(x, torch.ones(4, 2, 3))
        else:
            given = x[:1].expand(5, 4, 2, 3) if form == "expanded" else x
            spk, (mem,) = neuron.sequence(given, num_steps=6 if form == "static" else None)
        weights = torch.arange(spk.numel()).reshape(spk.shape)
        return torch.autograd.grad((weights * spk).sum() + mem.square().sum(), (x, neuron.threshold))

    def relaid(t: Tensor) -> Tensor:
        return t.transpose(-1, -2).contiguous().transpose(-1, -2) if t.dim() > 1 else t

    expected = gradients()
    with Operations(), torch.autograd.graph.saved_tensors_hooks(relaid, lambda t: t):
        found = gradients()
    for a, b in zip(found, expected):
        torch.testing.assert_close(a, b)


FAKE: dict[str, Callable[[snn.Synaptic, Tensor], Tensor]] = {
    "sequence": lambda neuron, x: neuron.sequence(x)[0],
    "step": lambda neuron, x: neuron(x[0])[0],
    "static": lambda neuron, x: neuron.sequence(x[0], num_steps=2)[0],
    "unroll": lambda neuron, x: snn.unroll(torch.nn.Sequential(torch.nn.Linear(4, 4), neuron), x)[0],
    "gradient": lambda neuron, x: spikes_and_gradient(neuron, x)[1],
}


@pytest.mark.parametrize("name", FAKE)
def test_fake_tensor_mode__any_call__has_shapes_and_leaves_nothing_behind(name: str) -> None:
    with FakeTensorMode():
        fake, _ = neurons()
        result = FAKE[name](fake, currents_without_values())
    fused, reference = neurons()
    expected = FAKE[name](reference, currents(3))
    assert (result.shape, result.dtype) == (expected.shape, expected.dtype)
    if name != "unroll":
        torch.testing.assert_close(FAKE[name](fused, currents(3)), expected)


def currents_without_values() -> Tensor:
    return torch.empty(5, 3, 4)


def test_fake_tensor__outside_of_its_mode__runs_plain_torch() -> None:
    with FakeTensorMode():
        fake, _ = neurons()
        x = currents_without_values()
    assert fake.sequence(x)[0].shape == (5, 3, 4)
    fake.backend = "cpu"
    with pytest.raises(UnsupportedError, match="FakeTensor follows each operation"):
        fake.sequence(x)


def test_parameter__of_a_class_that_follows_operations__is_seen_after_calls_without_it() -> None:
    fused, _ = neurons()
    fused.sequence(currents(0))
    with FakeTensorMode(allow_non_fake_inputs=True):
        beta = torch.tensor(0.75)
    fused.beta = torch.nn.Parameter(beta)
    fused.backend = "cpu"
    with pytest.raises(UnsupportedError, match="FakeTensor follows each operation"):
        fused.sequence(currents(0))
