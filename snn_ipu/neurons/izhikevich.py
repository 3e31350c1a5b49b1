"""Izhikevich's neuron."""

from __future__ import annotations

from torch import Tensor

from ..surrogate import spike
from .base import Value, neuron


@neuron(states={"mem": -65.0, "recovery": -13.0})
def Izhikevich(
    x: Tensor,
    mem: Tensor,
    recovery: Tensor,
    *,
    a: Value = 0.02,
    b: Value = 0.2,
    c: Value = -65.0,
    d: Value = 8.0,
    dt: Value = 0.5,
    threshold: Value = 30.0,
) -> tuple[Tensor, Tensor, Tensor]:
    """Izhikevich: mem += dt * (0.04 mem^2 + 5 mem + 140 - recovery + x), recovery += dt * a * (b mem - recovery).

    A spike sets mem to c and adds d to recovery in the same step.

    Args:
        a, b: speed and coupling of the recovery. c, d: reset membrane and jump of the recovery.
        dt: step of the Euler integration in ms. threshold: peak of the spike in mV.

    Shape: x [B, ...]; spk, mem and recovery as x. Units: mV and ms; the states start at rest, -65 and -13.
    Source: Izhikevich, IEEE Trans. Neural Networks 14(6), 2003.
    """
    risen = mem + dt * (0.04 * mem * mem + 5 * mem + 140 - recovery + x)
    recovery = recovery + dt * a * (b * mem - recovery)
    spk = spike(risen - threshold)
    fired = spk.detach()
    return spk, (1 - fired) * risen + fired * c, recovery + fired * d
