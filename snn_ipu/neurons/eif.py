"""Exponential integrate-and-fire neuron."""

from __future__ import annotations

import torch
from torch import Tensor

from ..surrogate import spike
from .base import Value, neuron


@neuron(states=("mem",))
def EIF(
    x: Tensor,
    mem: Tensor,
    *,
    tau: Value = 2.0,
    v_rest: Value = 0.0,
    v_rheobase: Value = 0.8,
    sharpness: Value = 1.0,
    threshold: Value = 1.0,
    v_reset: Value = -0.1,
) -> tuple[Tensor, Tensor]:
    """Exponential IF: mem += (x + v_rest - mem + sharpness * exp((mem - v_rheobase) / sharpness)) / tau.

    A spike sets mem to v_reset in the same step.

    Args:
        tau: time constant in steps.
        v_rest: resting membrane. v_rheobase: where the exponential takes over. sharpness: how fast.
        threshold, v_reset: spike and reset membrane.

    Shape: x [B, ...]; spk and mem as x. Units: dimensionless. Source: Fourcaud-Trocme et al., J. Neurosci. 2003.
    """
    mem = mem + (x + v_rest - mem + sharpness * torch.exp((mem - v_rheobase) / sharpness)) / tau
    spk = spike(mem - threshold)
    fired = spk.detach()
    return spk, (1 - fired) * mem + fired * v_reset
