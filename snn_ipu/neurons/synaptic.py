"""Leaky neuron with an exponentially decaying synaptic current."""

from __future__ import annotations

from torch import Tensor

from ..surrogate import SpikeGrad
from .base import Value
from .lif import LIF, Quantiser, fire, has_fired, reset_at_once


def synaptic(
    x: Tensor,
    syn: Tensor,
    mem: Tensor,
    *,
    alpha: Tensor,
    beta: Tensor,
    threshold: Tensor,
    reset_mechanism: str = "subtract",
    reset_delay: bool = True,
    inhibition: bool = False,
    state_quant: Quantiser | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """One step: syn = alpha * syn + x; mem = beta * mem + syn, less the reset of the spike before."""
    due = has_fired(mem, threshold)
    syn = alpha.clamp(0, 1) * syn + x
    mem = beta.clamp(0, 1) * mem + syn
    if reset_mechanism == "subtract":
        mem = mem - due * threshold
    elif reset_mechanism == "zero":
        mem = mem - mem * due
    if state_quant is not None:
        mem, syn = state_quant(mem), state_quant(syn)
    spk = fire(mem, threshold, None, inhibition, state_quant)
    if not reset_delay:
        mem = reset_at_once(mem, spk, due, threshold, reset_mechanism)
    return spk, syn, mem


class Synaptic(LIF):
    """Current-based leaky neuron: syn[t] = alpha * syn[t-1] + x[t], mem[t] = beta * mem[t-1] + syn[t] - reset[t-1].

    The reset is the threshold, one step after a spike.

    With `reset_mechanism="zero"` the new membrane is multiplied by 1 - reset[t-1]; the current is kept.

    Args:
        alpha: decay of the current per step, beta: of the membrane; both clamped to [0, 1], a number or a tensor that
            broadcasts against the last dimensions of x.
        learn_alpha: make alpha a parameter. All other arguments as in `Leaky`.

    Shape: x [B, ...]; spk, syn and mem as x. Units: dimensionless.

    Raises: ValueError for an unknown reset mechanism.

    Source: snnTorch 1.0 `Synaptic`.
    """

    step = staticmethod(synaptic)
    state_names = ("syn", "mem")
    syn: Tensor
    mem: Tensor

    def __init__(
        self,
        alpha: Value,
        beta: Value,
        threshold: Value = 1.0,
        spike_grad: SpikeGrad | None = None,
        surrogate_disable: bool = False,
        init_hidden: bool = False,
        inhibition: bool = False,
        learn_alpha: bool = False,
        learn_beta: bool = False,
        learn_threshold: bool = False,
        reset_mechanism: str = "subtract",
        state_quant: bool | Quantiser = False,
        output: bool = False,
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
            backend=backend,
        )
        self.add_param("beta", beta, learn_beta)
        self.add_param("alpha", alpha, learn_alpha)
        self.reset_delay = reset_delay

    init_synaptic = LIF.reset_mem
