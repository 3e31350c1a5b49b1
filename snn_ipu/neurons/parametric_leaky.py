"""Leaky neuron with a learned time constant."""

from __future__ import annotations

import torch
from torch import Tensor

from ..surrogate import spike
from .base import Value, neuron


@neuron(states=("mem",), learn=("w",))
def ParametricLeaky(
    x: Tensor,
    mem: Tensor,
    *,
    w: Tensor = 0.0,  # type: ignore[assignment]
    threshold: Value = 1.0,
    v_reset: Value = 0.0,
) -> tuple[Tensor, Tensor]:
    """Parametric LIF: mem += sigmoid(w) * (x - (mem - v_reset)); a spike sets mem to v_reset in the same step.

    Args:
        w: 1 / tau = sigmoid(w) per step, learned by default; 0 stands for tau = 2 steps.
        threshold: a membrane strictly above it spikes.
        v_reset: membrane after a spike.

    Shape: x [B, ...]; spk and mem as x. Units: dimensionless. Source: Fang et al., ICCV 2021 (arXiv:2007.05785).
    """
    mem = mem + torch.sigmoid(w) * (x - (mem - v_reset))
    spk = spike(mem - threshold)
    fired = spk.detach()
    return spk, (1 - fired) * mem + fired * v_reset
