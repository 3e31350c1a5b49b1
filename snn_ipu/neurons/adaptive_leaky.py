"""Leaky neuron with an adaptive threshold."""

from __future__ import annotations

from torch import Tensor

from ..surrogate import spike
from .base import Value, neuron


@neuron(states=("mem", "adapt"))
def AdaptiveLeaky(
    x: Tensor,
    mem: Tensor,
    adapt: Tensor,
    *,
    beta: Value = 0.9,
    rho: Value = 0.97,
    gain: Value = 0.18,
    threshold: Value = 1.0,
) -> tuple[Tensor, Tensor, Tensor]:
    """Adaptive-threshold LIF: spk[t] = mem[t] > threshold + gain * adapt[t], adapt[t+1] = rho * adapt[t] + spk[t].

    mem[t] = beta * mem[t-1] + x[t]; a spike takes the threshold from mem in the same step.

    Args:
        beta: decay of the membrane per step; rho: of the adaptation, slower.
        gain: how far one spike lifts the threshold.
        threshold: at rest.

    Shape: x [B, ...]; spk, mem and adapt as x. Units: dimensionless. Source: Bellec et al., 2018 (arXiv:1803.09574).
    """
    mem = beta * mem + x
    spk = spike(mem - threshold - gain * adapt)
    return spk, mem - spk.detach() * threshold, rho * adapt + spk
