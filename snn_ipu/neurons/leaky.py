"""Leaky integrate-and-fire neuron."""

from __future__ import annotations

from torch import Tensor

from ..surrogate import SpikeGrad
from .base import Value
from .lif import LIF, Quantiser, fire, has_fired, reset_at_once


def leaky(
    x: Tensor,
    mem: Tensor,
    *,
    beta: Tensor,
    threshold: Tensor,
    graded_spikes_factor: Tensor,
    reset_mechanism: str = "subtract",
    reset_delay: bool = True,
    inhibition: bool = False,
    state_quant: Quantiser | None = None,
) -> tuple[Tensor, Tensor]:
    """One step: mem = beta * mem + x, less the reset of the spike before; spk = mem > threshold."""
    due = has_fired(mem, threshold)
    if reset_mechanism == "zero":
        mem = (1 - due) * mem
    mem = beta.clamp(0, 1) * mem + x
    if reset_mechanism == "subtract":
        mem = mem - due * threshold
    if state_quant is not None:
        mem = state_quant(mem)
    spk = fire(mem, threshold, None if inhibition else graded_spikes_factor, inhibition, state_quant)
    if not reset_delay:
        mem = reset_at_once(mem, spk, due, threshold, reset_mechanism, graded_spikes_factor)
    return spk, mem


class Leaky(LIF):
    """Leaky integrate-and-fire: mem[t] = beta * mem[t-1] + x[t] - reset[t-1] * threshold, spk[t] = mem[t] > threshold.

    With `reset_mechanism="zero"` the membrane before the step is zeroed instead and the new input is kept:
    mem[t] = beta * (1 - reset[t-1]) * mem[t-1] + x[t].

    Args:
        beta: decay per step, clamped to [0, 1]; a number or a tensor that broadcasts against the last dimensions of x.
        threshold: a membrane strictly above it spikes.
        spike_grad: surrogate gradient, `surrogate.atan()` by default.
        surrogate_disable: no gradient through spikes.
        init_hidden: keep the states in the module; calls take x and return spk alone.
        inhibition: only the neuron with the largest membrane of a sample may spike.
        learn_beta, learn_threshold, learn_graded_spikes_factor: make the value a parameter.
        reset_mechanism: "subtract", "zero" or "none".
        state_quant: function applied to the membrane after each step.
        output: return the states as well when init_hidden is set.
        graded_spikes_factor: scales the spikes that are returned.
        reset_delay: reset in the step after the spike; False resets in the step of the spike.
        backend: "auto", or a backend to insist on.

    Shape: x [B, ...]; spk and mem as x. Units: dimensionless; beta = exp(-dt / tau), dt one step.

    Raises: ValueError for an unknown reset mechanism.

    Source: snnTorch 1.0 `Leaky`.
    """

    step = staticmethod(leaky)
    state_names = ("mem",)
    graded = True
    mem: Tensor

    def __init__(
        self,
        beta: Value,
        threshold: Value = 1.0,
        spike_grad: SpikeGrad | None = None,
        surrogate_disable: bool = False,
        init_hidden: bool = False,
        inhibition: bool = False,
        learn_beta: bool = False,
        learn_threshold: bool = False,
        reset_mechanism: str = "subtract",
        state_quant: bool | Quantiser = False,
        output: bool = False,
        graded_spikes_factor: Value = 1.0,
        learn_graded_spikes_factor: bool = False,
        reset_delay: bool = True,
        *,
        backend: str = "auto",
    ) -> None:
        super().__init__(
            threshold,
            spike_grad,
            surrogate_disable,
            init_hidden,
            inhibition,
            learn_threshold,
            reset_mechanism,
            state_quant,
            output,
            graded_spikes_factor,
            learn_graded_spikes_factor,
            backend,
        )
        self.add_param("beta", beta, learn_beta)
        self.reset_delay = reset_delay

    init_leaky = LIF.reset_mem
