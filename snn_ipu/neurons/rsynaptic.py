"""Recurrent neuron with a synaptic current."""

from __future__ import annotations

from torch import Tensor

from ..surrogate import SpikeGrad
from .base import Value
from .lif import LIF, Quantiser, fire, has_fired, reset_at_once
from .recurrent import KernelSize, RecurrentLIF


def rsynaptic(
    x: Tensor,
    spk: Tensor,
    syn: Tensor,
    mem: Tensor,
    *,
    alpha: Tensor,
    beta: Tensor,
    threshold: Tensor,
    V: Tensor | None = None,
    reset_mechanism: str = "subtract",
    reset_delay: bool = True,
    inhibition: bool = False,
    state_quant: Quantiser | None = None,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """One step: syn = alpha * syn + x + V * spk, then mem as in `synaptic`; without V, x holds the feedback."""
    due = has_fired(mem, threshold)
    syn = alpha.clamp(0, 1) * syn + x
    if V is not None:
        syn = syn + spk * V
    mem = beta.clamp(0, 1) * mem + syn
    if reset_mechanism == "subtract":
        mem = mem - due * threshold
    elif reset_mechanism == "zero":
        mem = mem - mem * due
    if state_quant is not None:
        syn, mem = state_quant(syn), state_quant(mem)
    spk = fire(mem, threshold, None, inhibition, state_quant)
    if not reset_delay:
        mem = reset_at_once(mem, spk, due, threshold, reset_mechanism)
    return spk, spk, syn, mem


class RSynaptic(RecurrentLIF):
    """Recurrent current-based neuron: syn[t] = alpha * syn[t-1] + x[t] + recurrent(spk[t-1]), mem as in `Synaptic`.

    Args:
        alpha: decay of the current per step, beta: of the membrane; both clamped to [0, 1].
        learn_alpha: make alpha a parameter. All other arguments as in `RLeaky`.

    Shape: x [B, ...]; spk, syn and mem as x. Units: dimensionless.

    Raises: TypeError for a feedback that is not described, or described twice.

    Source: snnTorch 1.0 `RSynaptic`, whose `reset_delay=False` fails; here it resets as in `Synaptic`.
    """

    step = staticmethod(rsynaptic)
    state_names = ("spk", "syn", "mem")
    syn: Tensor
    mem: Tensor

    def __init__(
        self,
        alpha: Value,
        beta: Value,
        V: Value = 1.0,
        all_to_all: bool = True,
        linear_features: int | None = None,
        conv2d_channels: int | None = None,
        kernel_size: KernelSize | None = None,
        threshold: Value = 1.0,
        spike_grad: SpikeGrad | None = None,
        surrogate_disable: bool = False,
        init_hidden: bool = False,
        inhibition: bool = False,
        learn_alpha: bool = False,
        learn_beta: bool = False,
        learn_threshold: bool = False,
        learn_recurrent: bool = True,
        reset_mechanism: str = "subtract",
        state_quant: bool | Quantiser = False,
        output: bool = False,
        reset_delay: bool = True,
        *,
        backend: str = "auto",
    ) -> None:
        super().__init__(
            beta,
            V,
            all_to_all,
            linear_features,
            conv2d_channels,
            kernel_size,
            threshold,
            spike_grad,
            surrogate_disable,
            init_hidden,
            inhibition,
            learn_beta,
            learn_threshold,
            learn_recurrent,
            reset_mechanism,
            state_quant,
            output,
            reset_delay,
            backend,
        )
        self.add_param("alpha", alpha, learn_alpha)

    init_rsynaptic = LIF.reset_mem
