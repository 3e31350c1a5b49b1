"""Recurrent leaky neuron."""

from __future__ import annotations

from torch import Tensor

from ..surrogate import SpikeGrad
from .base import Value
from .lif import LIF, Quantiser, fire, has_fired, reset_at_once
from .recurrent import KernelSize, RecurrentLIF


def rleaky(
    x: Tensor,
    spk: Tensor,
    mem: Tensor,
    *,
    beta: Tensor,
    threshold: Tensor,
    V: Tensor | None = None,
    reset_mechanism: str = "subtract",
    reset_delay: bool = True,
    inhibition: bool = False,
    state_quant: Quantiser | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """One step: mem = beta * mem + x + V * spk, less the reset of the spike before; without V, x holds the feedback."""
    due = has_fired(mem, threshold)
    mem = beta.clamp(0, 1) * mem + x
    if V is not None:
        mem = mem + spk * V
    if reset_mechanism == "subtract":
        mem = mem - due * threshold
    elif reset_mechanism == "zero":
        mem = mem - due * mem
    if state_quant is not None:
        mem = state_quant(mem)
    spk = fire(mem, threshold, None, inhibition, state_quant)
    if not reset_delay:
        mem = reset_at_once(mem, spk, due, threshold, reset_mechanism)
    return spk, spk, mem


class RLeaky(RecurrentLIF):
    """Recurrent leaky neuron: mem[t] = beta * mem[t-1] + x[t] + recurrent(spk[t-1]) - reset[t-1] * threshold.

    With `reset_mechanism="zero"` the new membrane is multiplied by 1 - reset[t-1].

    Args:
        beta: decay per step, clamped to [0, 1]; a number or a tensor that broadcasts against the last dimensions of x.
        V: feedback weight for `all_to_all=False`, one or per neuron.
        all_to_all: feedback through a matrix or a convolution instead of V.
        linear_features: width of the layer, for a matrix.
        conv2d_channels, kernel_size: of a convolution that keeps the image size.
        learn_recurrent: learn the feedback; True by default. All other arguments as in `Leaky`.

    Shape: x [B, ...]; spk and mem as x. Units: dimensionless.

    Raises: TypeError for a feedback that is not described, or described twice.

    Source: snnTorch 1.0 `RLeaky`.
    """

    step = staticmethod(rleaky)
    state_names = ("spk", "mem")
    mem: Tensor

    def __init__(
        self,
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

    init_rleaky = LIF.reset_mem
