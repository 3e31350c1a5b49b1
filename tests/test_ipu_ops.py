"""The custom ops on the host model of an IPU: outputs and every gradient against the reference. Not run on an IPU."""

from __future__ import annotations

from typing import Any, Iterator

import pytest
import torch
from helpers import NEURONS, SURROGATES, TOLERANCE, assert_near, drawn, from_module
from ipu_host import Graded, assert_same_on_ipu, host_sdk, on_ipu

import snn_ipu as snn
from snn_ipu.backends import ipu
from snn_ipu.errors import UnsupportedError


@pytest.fixture(scope="module", autouse=True)
def poptorch() -> Iterator[Any]:
    with host_sdk() as module:
        yield module


@snn.neuron(states=("mem", "adapt"))
def adaptive(x, mem, adapt, *, beta=0.9, rho=0.95, gain=0.2, threshold=1.0):
    spk = snn.spike(mem - threshold - gain * adapt)
    mem = beta * mem + x - spk.detach() * threshold
    adapt = rho * adapt + spk
    return spk, mem, adapt


@snn.surrogate.define(width=0.5)
def triangle(u, width):
    return torch.relu(1 - u.abs() / width) / width


FORMS = ("scalar", "image", "static", "mixed")


def _cases() -> list[Any]:
    """Every neuron in float and half, and every mode of the first; forms, surrogates and checkpoints take turns."""
    rows = []
    for i, neuron in enumerate(NEURONS):
        modes = neuron.modes if i == 0 else neuron.modes[:2]
        for j in range(max(2, len(modes))):
            dtype = (torch.float32, torch.float16)[j % 2]
            mode, form = modes[j % len(modes)], FORMS[(i + j) % len(FORMS)]
            checkpoint = 4 if (i + j) % 3 == 2 else 0
            surrogate = SURROGATES[(i + j) % len(SURROGATES)]
            name = f"{neuron.name}-{'-'.join(map(str, mode.values()))}-{str(dtype)[6:]}-{form}-{checkpoint}"
            rows.append(pytest.param(neuron, mode, dtype, form, surrogate, checkpoint, id=name))
    return rows


@pytest.mark.parametrize(("neuron", "mode", "dtype", "form", "surrogate", "checkpoint"), _cases())
def test_scan__every_neuron__outputs_and_gradients_are_the_reference(
    neuron: Any, mode: Any, dtype: Any, form: str, surrogate: Any, checkpoint: int
) -> None:
    setup = drawn(neuron, mode, dtype, form)
    assert_same_on_ipu(setup, surrogate, ipu.Options(checkpoint=checkpoint))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16], ids=["float32", "float16"])
def test_scan__neuron_and_surrogate_of_a_user__are_the_reference(dtype: torch.dtype) -> None:
    x = (0.3 + 0.6 * torch.randn(9, 3, 7)).to(dtype)
    assert_same_on_ipu(from_module(adaptive(), x), triangle(width=0.7))


@pytest.mark.parametrize("used", [("spk",), ("final:mem",), ("trace:mem",)], ids=lambda u: u[0])
def test_scan__outputs_outside_the_loss__have_no_gradient(used: tuple[str, ...]) -> None:
    setup = from_module(snn.Leaky(0.9), torch.randn(6, 3, 5) + 0.3, traced=("mem",))
    assert_same_on_ipu(setup, snn.surrogate.fast_sigmoid(), used=used)


@pytest.mark.parametrize("steps", [1, 1000])
def test_scan__one_step_and_a_thousand__are_the_reference(steps: int) -> None:
    setup = from_module(snn.Leaky(0.5), 0.1 + 0.4 * torch.randn(steps, 2, 3))
    assert_same_on_ipu(setup, snn.surrogate.fast_sigmoid(2.0))


# Neurons: one; an odd number on one tile; over several tiles with a part-filled last; more than 12 on every tile.
@pytest.mark.parametrize("shape", [(2, 1, 1), (3, 1, 13), (3, 5, 23), (2, 3, 5890)], ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16], ids=["float32", "float16"])
def test_scan__uneven_sizes__are_the_reference(shape: tuple[int, ...], dtype: torch.dtype) -> None:
    setup = from_module(snn.Leaky(0.9), (0.3 + 0.6 * torch.randn(shape)).to(dtype))
    assert_same_on_ipu(setup, snn.surrogate.fast_sigmoid())


def test_scan__no_initial_state__starts_from_zero() -> None:
    setup = from_module(snn.Synaptic(0.8, 0.9), 0.3 + torch.randn(5, 2, 3))
    setup.initial = (None, None)
    assert_same_on_ipu(setup, snn.surrogate.fast_sigmoid())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16], ids=["float32", "float16"])
def test_heaviside__every_surrogate__is_the_reference(dtype: torch.dtype) -> None:
    surrogates = [*SURROGATES, triangle()]
    x = torch.randn(3, 41).to(dtype)
    weight = torch.randn(3, 41).to(dtype)

    def run(inputs: Any) -> dict[str, Any]:
        return {f"spk{i}": snn.spike(inputs[f"x{i}"] - 0.25, s) for i, s in enumerate(surrogates)}

    inputs = {f"x{i}": x for i in range(len(surrogates))}
    out, grads = on_ipu(Graded(run, inputs, {f"spk{i}": weight for i in range(len(surrogates))}))
    leaves = {n: t.detach().requires_grad_() for n, t in inputs.items()}
    want = run(leaves)
    for i, s in enumerate(surrogates):
        assert torch.equal(out[i], want[f"spk{i}"]), s
        # The IPU computes the expression in float32 and rounds once.
        u = (x - 0.25).float()
        expected = (weight.float() * s.grad(u)).to(dtype).float()
        assert_near(f"grad of {s}", grads[f"x{i}"], expected, TOLERANCE[dtype].grad)


def test_heaviside__threshold__is_strict_and_an_attribute() -> None:
    x = torch.tensor([0.5, 1.0, 1.0000001, -3.0, 2.0])

    def run(inputs: Any) -> dict[str, Any]:
        return {"spk": snn.ipu.heaviside(inputs["x"], 1.0, snn.surrogate.atan())}

    (spk,), grads = on_ipu(Graded(run, {"x": x}, {"spk": torch.ones(5)}))
    assert spk.tolist() == [0.0, 0.0, 1.0, 0.0, 1.0]
    assert_near("grad", grads["x"], snn.surrogate.atan().grad(x - 1.0), 1e-6)


def test_heaviside__plain_callable__is_refused() -> None:
    module = Graded(lambda t: {"spk": snn.spike(t["x"], torch.sigmoid)}, {"x": torch.randn(4)}, {"spk": torch.ones(4)})
    with pytest.raises(UnsupportedError, match="never calls the backward"):
        on_ipu(module)


def test_loss_scaling__half__gradients_are_scaled_back() -> None:
    setup = from_module(snn.Leaky(0.9), (0.3 + 0.6 * torch.randn(5, 2, 9)).half())
    assert_same_on_ipu(setup, snn.surrogate.fast_sigmoid(), ipu.Options(loss_scaling=64.0))


def test_step_loop__in_a_model__goes_through_heaviside_with_the_same_gradients() -> None:
    x = 0.3 + 0.6 * torch.randn(4, 3, 5)
    lif = snn.Leaky(0.8, spike_grad=snn.surrogate.fast_sigmoid())

    def run(inputs: Any) -> dict[str, Any]:
        mem, spikes = lif.reset_mem(), []
        for x_t in inputs["x"]:
            spk, mem = lif(x_t, mem)
            spikes.append(spk)
        return {"spk": torch.stack(spikes), "mem": mem}

    weights = {"spk": torch.randn(4, 3, 5), "mem": torch.randn(3, 5)}
    leaf = x.clone().requires_grad_()
    want = run({"x": leaf})
    sum((want[n] * w).sum() for n, w in weights.items()).backward()
    lif.reset_mem()
    out, grads = on_ipu(Graded(run, {"x": x}, weights, layer=lif))
    assert torch.equal(out[0], want["spk"])
    assert_near("mem", out[1], want["mem"].detach(), 1e-6)
    assert_near("grad of x", grads["x"], leaf.grad, 1e-5)


def test_step_loop__without_states__is_refused() -> None:
    lif = snn.Leaky(0.8)
    inputs, weights = {"x": torch.randn(3, 5)}, {"spk": torch.ones(3, 5)}
    module = Graded(lambda t: {"spk": lif(t["x"])[0]}, inputs, weights, layer=lif)
    with pytest.raises(UnsupportedError, match="expected states, because modules keep none"):
        on_ipu(module)
