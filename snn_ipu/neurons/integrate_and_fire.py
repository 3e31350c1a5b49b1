"""Integrate-and-fire neuron without leak."""

from __future__ import annotations

from torch import Tensor

from ..surrogate import spike
from .base import Value, neuron


@neuron(states=("mem",))
def IF(x: Tensor, mem: Tensor, *, threshold: Value = 1.0) -> tuple[Tensor, Tensor]:
    """Integrate-and-fire: mem[t] = mem[t-1] + x[t] - spk[t-1] * threshold, spk[t] = mem[t] > threshold.

    Args:
        threshold: a membrane strictly above it spikes and loses it at the next step.

    Shape: x [B, ...]; spk and mem as x. Units: dimensionless. Source: `Leaky` with beta = 1.
    """
    mem = mem + x - spike(mem - threshold).detach() * threshold
    return spike(mem - threshold), mem
