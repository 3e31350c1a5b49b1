"""Quadratic integrate-and-fire neuron."""

from __future__ import annotations

from torch import Tensor

from ..surrogate import spike
from .base import Value, neuron


@neuron(states=("mem",))
def QIF(
    x: Tensor,
    mem: Tensor,
    *,
    tau: Value = 2.0,
    v_rest: Value = 0.0,
    v_critical: Value = 0.8,
    sharpness: Value = 1.0,
    threshold: Value = 1.0,
    v_reset: Value = -0.1,
) -> tuple[Tensor, Tensor]:
    """Quadratic IF: mem += (x + sharpness * (mem - v_rest) * (mem - v_critical)) / tau; a spike sets mem to v_reset.

    Args:
        tau: time constant in steps.
        v_rest, v_critical: resting and critical membrane; above the latter the neuron fires by itself.
        sharpness: curvature. threshold, v_reset: spike and reset membrane.

    Shape: x [B, ...]; spk and mem as x. Units: dimensionless. Source: Gerstner et al., Neuronal Dynamics, 2014, ch. 5.
    """
    mem = mem + (x + sharpness * (mem - v_rest) * (mem - v_critical)) / tau
    spk = spike(mem - threshold)
    fired = spk.detach()
    return spk, (1 - fired) * mem + fired * v_reset
