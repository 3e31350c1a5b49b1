"""Leaky neuron with an alpha-function synapse: a difference of two exponentials."""

from __future__ import annotations

import torch
from torch import Tensor

from ..surrogate import SpikeGrad
from .base import Value
from .lif import LIF, Quantiser, fire, has_fired


def alpha(
    x: Tensor,
    syn_exc: Tensor,
    syn_inh: Tensor,
    mem: Tensor,
    *,
    alpha: Tensor,
    beta: Tensor,
    threshold: Tensor,
    reset_mechanism: str = "zero",
    inhibition: bool = False,
    state_quant: Quantiser | None = None,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """One step: exc = alpha * exc + x; inh = beta * inh - x; mem = tau * (exc + inh)."""
    due = has_fired(mem, threshold)
    rise, fall = alpha.clamp(0, 1), beta.clamp(0, 1)
    tau = torch.log(rise) / (torch.log(fall) - torch.log(rise)) + 1
    decayed = fall * syn_inh - x
    exc = rise * syn_exc + x
    mem = tau * (exc + decayed)
    inh = decayed
    if reset_mechanism == "subtract":
        exc, inh, mem = exc - threshold * due, inh - decayed * due, mem + syn_inh * due
    elif reset_mechanism == "zero":
        exc, inh, mem = exc - exc * due, inh - inh * due, mem - mem * due
    if state_quant is not None:
        exc, inh, mem = state_quant(exc), state_quant(inh), state_quant(mem)
    return fire(mem, threshold, None, inhibition, state_quant), exc, inh, mem


class Alpha(LIF):
    """Alpha-function neuron: exc = alpha * exc + x, inh = beta * inh - x, mem = tau * (exc + inh).

    tau = ln(alpha) / (ln(beta) - ln(alpha)) + 1. With `reset_mechanism="zero"` all three states are multiplied by
    1 - reset[t-1]; with "subtract" the threshold is taken from the excitatory current, as snnTorch does.

    Args:
        alpha: decay of the excitatory current per step, beta: of the inhibitory one; 1 >= alpha > beta > 0, clamped.
        learn_alpha: make alpha a parameter. All other arguments as in `Leaky`; the reset is always delayed.

    Shape: x [B, ...]; spk, syn_exc, syn_inh and mem as x. Units: dimensionless.

    Raises: ValueError when alpha is not above beta, or beta is 1.

    Source: snnTorch 1.0 `Alpha`.
    """

    step = staticmethod(alpha)
    state_names = ("syn_exc", "syn_inh", "mem")
    syn_exc: Tensor
    syn_inh: Tensor
    mem: Tensor
    alpha: Tensor
    beta: Tensor

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
        reset_mechanism: str = "zero",
        state_quant: bool | Quantiser = False,
        output: bool = False,
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
        if bool((self.alpha <= self.beta).any()) or bool((self.beta == 1).any()):
            raise ValueError(
                f"Alpha(alpha={alpha}, beta={beta}): expected alpha > beta and beta != 1, else tau is not defined. "
                "Choose a beta below alpha."
            )

    init_alpha = LIF.reset_mem
