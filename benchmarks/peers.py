"""The libraries to compare with. One that is not installed is left out by name."""

from __future__ import annotations

import importlib
from importlib.metadata import PackageNotFoundError, version
from typing import Any, Callable

import torch
from torch import Tensor

import snn_ipu as snn

SLOPE = 25.0
# SpikingJelly's SoftSign(alpha) is a fast sigmoid of slope alpha times alpha / 2.
SOFT_SIGN_SCALE = SLOPE / 2


@snn.surrogate.define(alpha=SLOPE)
def soft_sign(u: Tensor, alpha: float) -> Tensor:
    """SpikingJelly's SoftSign: alpha / 2 / (1 + alpha * |u|)^2."""
    return alpha / 2 / (1 + alpha * u.abs()) ** 2


@snn.neuron(states=("mem",))
def soft_reset(x: Tensor, mem: Tensor, *, beta: Any = 0.9, threshold: Any = 1.0) -> tuple[Tensor, Tensor]:
    """SpikingJelly's LIF with soft reset, detached: the threshold is taken off in the step of the spike."""
    mem = beta * mem + x
    spk = snn.spike(mem - threshold)
    return spk, mem - spk.detach() * threshold


class FastSigmoid(torch.autograd.Function):
    """The surrogate of the loop that is written by hand."""

    @staticmethod
    def forward(ctx: Any, u: Tensor) -> Tensor:
        ctx.save_for_backward(u)
        return (u > 0).to(u.dtype)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        (u,) = ctx.saved_tensors
        return grad / (1 + SLOPE * u.abs()) ** 2


def leaky_loop(x: Tensor, beta: float, threshold: float = 1.0) -> Tensor:
    """snnTorch's Leaky over x [T, ...], written by hand: x is unbound once and nothing is indexed inside the loop."""
    mem = torch.zeros_like(x[0])
    spikes = []
    for x_t in x.unbind(0):
        mem = beta * mem + x_t - (mem > threshold).to(x.dtype) * threshold
        spikes.append(FastSigmoid.apply(mem - threshold))  # type: ignore[no-untyped-call]
    return torch.stack(spikes)


def compiled_loop(beta: float) -> Callable[[Tensor], Tensor]:
    """The loop under torch.compile, in one graph."""
    compiled: Callable[..., Tensor] = torch.compile(leaky_loop, fullgraph=True, dynamic=False)
    return lambda x: compiled(x, beta)


def _missing(package: str, wanted: str, imports: str) -> str | None:
    """Why a peer cannot take part, None where it can."""
    try:
        found = version(package)
    except PackageNotFoundError:
        return f"{package} {wanted} is not installed"
    if not found.startswith(wanted):
        return f"{package} {wanted} was asked for, {found} is installed"
    try:
        importlib.import_module(imports)
    except ImportError as error:
        return f"{package} {found} cannot be imported: {error}"
    return None


def snntorch_missing() -> str | None:
    """Why snnTorch cannot take part, None where it can."""
    return _missing("snntorch", "1.", "snntorch")


def spikingjelly_missing() -> str | None:
    """Why SpikingJelly cannot take part, None where it can."""
    return _missing("spikingjelly", "2.", "spikingjelly.activation_based.neuron")


def snntorch_leaky(beta: float) -> Any:
    """snnTorch's Leaky with a fast sigmoid."""
    import snntorch
    from snntorch import surrogate

    return snntorch.Leaky(beta=beta, spike_grad=surrogate.fast_sigmoid(slope=SLOPE))


def snntorch_sequence(beta: float) -> Callable[[Tensor], Tensor]:
    """snnTorch's loop over time. x is unbound: indexing it inside the loop costs a backward pass quadratic in T."""
    lif = snntorch_leaky(beta)

    def run(x: Tensor) -> Tensor:
        mem = lif.reset_mem()
        spikes = []
        for x_t in x.unbind(0):
            spk, mem = lif(x_t, mem)
            spikes.append(spk)
        return torch.stack(spikes)

    return run


def spikingjelly_lif(beta: float) -> Any:
    """SpikingJelly's LIF in multi-step mode, nearest to Leaky: no decay of the input, soft reset, detached."""
    from spikingjelly.activation_based import neuron, surrogate

    return neuron.LIFNode(
        tau=1 / (1 - beta),
        decay_input=False,
        v_threshold=1.0,
        v_reset=None,
        surrogate_function=surrogate.SoftSign(alpha=SLOPE),
        detach_reset=True,
        step_mode="m",
    )


def spikingjelly_sequence(beta: float) -> Callable[[Tensor], Tensor]:
    """SpikingJelly's own multi-step path, from a fresh state."""
    lif = spikingjelly_lif(beta)

    def run(x: Tensor) -> Tensor:
        lif.reset()
        return lif(x)  # type: ignore[no-any-return]

    return run
