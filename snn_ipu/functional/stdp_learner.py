"""Spike-timing-dependent plasticity by traces.

Pair-based STDP (A. Morrison, M. Diesmann and W. Gerstner, 2008; the online form with one trace per side):

    trace_pre[t] = trace_pre[t-1] · decay_pre + pre[t],   trace_post[t] = trace_post[t-1] · decay_post + post[t]
    Δw[t] = f_post(w) · post[t] ⊗ trace_pre[t] - f_pre(w) · trace_post[t] ⊗ pre[t]

summed over the batch, with decay 1 - 1/τ. Reward-modulated STDP (R. V. Florian, 2007) takes the same product per
sample, with decay exp(-1/τ), as the eligibility that the reward multiplies.
"""

from __future__ import annotations

import math
from typing import Callable, Union

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.grad import conv1d_weight, conv2d_weight

from .probe import InputMonitor, OutputMonitor

Trace = Union[float, Tensor, None]
WeightFunction = Callable[[Tensor], Tensor]
Step = Callable[..., "tuple[Tensor, Tensor, Tensor]"]


def _unchanged(weight: Tensor) -> Tensor:
    return weight


def _advance(trace: Trace, decay: float, spk: Tensor) -> Tensor:
    return spk if trace is None else trace * decay + spk


def stdp_linear_single_step(
    fc: nn.Linear,
    in_spike: Tensor,
    out_spike: Tensor,
    trace_pre: Trace,
    trace_post: Trace,
    tau_pre: float,
    tau_post: float,
    f_pre: WeightFunction = _unchanged,
    f_post: WeightFunction = _unchanged,
) -> tuple[Tensor, Tensor, Tensor]:
    """One step of STDP of a linear layer.

    Args:
        fc: layer with weight [N_out, N_in].
        in_spike, out_spike: spikes before and after it, [B, N_in] and [B, N_out].
        trace_pre, trace_post: traces of the step before, None at the start.
        tau_pre, tau_post: time constants in steps.
        f_pre, f_post: dependence on the weight, of depression and of potentiation.

    Returns: `(trace_pre, trace_post, Δw)`.
    Source: see the module; snnTorch, after SpikingJelly.
    """
    weight = fc.weight.detach()
    pre = _advance(trace_pre, 1 - 1 / tau_pre, in_spike)
    post = _advance(trace_post, 1 - 1 / tau_post, out_spike)
    return pre, post, f_post(weight) * (out_spike.T @ pre) - f_pre(weight) * (post.T @ in_spike)


def mstdp_linear_single_step(
    fc: nn.Linear,
    in_spike: Tensor,
    out_spike: Tensor,
    trace_pre: Trace,
    trace_post: Trace,
    tau_pre: float,
    tau_post: float,
    f_pre: WeightFunction = _unchanged,
    f_post: WeightFunction = _unchanged,
) -> tuple[Tensor, Tensor, Tensor]:
    """One step of the eligibility of reward-modulated STDP of a linear layer.

    Args: see stdp_linear_single_step.
    Returns: `(trace_pre, trace_post, eligibility [B, N_out, N_in])`.
    Source: see the module; snnTorch, after SpikingJelly.
    """
    weight = fc.weight.detach()
    pre = _advance(trace_pre, math.exp(-1 / tau_pre), in_spike)
    post = _advance(trace_post, math.exp(-1 / tau_post), out_spike)
    potentiation = out_spike.unsqueeze(-1) * pre.unsqueeze(-2)
    depression = post.unsqueeze(-1) * in_spike.unsqueeze(-2)
    return pre, post, f_post(weight) * potentiation - f_pre(weight) * depression


def mstdpet_linear_single_step(
    fc: nn.Linear,
    in_spike: Tensor,
    out_spike: Tensor,
    trace_pre: Trace,
    trace_post: Trace,
    tau_pre: float,
    tau_post: float,
    tau_trace: float,
    f_pre: WeightFunction = _unchanged,
    f_post: WeightFunction = _unchanged,
) -> tuple[Tensor, Tensor, Tensor]:
    """One step of the eligibility of reward-modulated STDP with an eligibility trace; the caller keeps that trace.

    Args: see stdp_linear_single_step; spikes are [N_in] and [N_out], or have a batch dimension. tau_trace is the
        time constant of the caller's trace of eligibilities and changes nothing here.
    Returns: `(trace_pre, trace_post, eligibility [..., N_out, N_in])`.
    Source: see the module; snnTorch, after SpikingJelly.
    """
    return mstdp_linear_single_step(fc, in_spike, out_spike, trace_pre, trace_post, tau_pre, tau_post, f_pre, f_post)


def stdp_conv2d_single_step(
    conv: nn.Conv2d,
    in_spike: Tensor,
    out_spike: Tensor,
    trace_pre: Trace,
    trace_post: Trace,
    tau_pre: float,
    tau_post: float,
    f_pre: WeightFunction = _unchanged,
    f_post: WeightFunction = _unchanged,
) -> tuple[Tensor, Tensor, Tensor]:
    """One step of STDP of a 2-D convolution: each weight sums over all places it is used at.

    Args: see stdp_linear_single_step; spikes are [B, C_in, H, W] and [B, C_out, H', W'].
    Returns: `(trace_pre, trace_post, Δw)`; trace_pre is padded as the input.
    Source: see the module; snnTorch, after SpikingJelly.
    """
    return _conv_step(
        conv2d_weight,
        conv,
        in_spike,
        out_spike,
        trace_pre,
        trace_post,
        tau_pre,
        tau_post,
        f_pre,
        f_post,
    )


def stdp_conv1d_single_step(
    conv: nn.Conv1d,
    in_spike: Tensor,
    out_spike: Tensor,
    trace_pre: Trace,
    trace_post: Trace,
    tau_pre: float,
    tau_post: float,
    f_pre: WeightFunction = _unchanged,
    f_post: WeightFunction = _unchanged,
) -> tuple[Tensor, Tensor, Tensor]:
    """One step of STDP of a 1-D convolution: each weight sums over all places it is used at.

    Args: see stdp_linear_single_step; spikes are [B, C_in, L] and [B, C_out, L'].
    Returns: `(trace_pre, trace_post, Δw)`; trace_pre is padded as the input.
    Source: see the module; snnTorch, after SpikingJelly.
    """
    return _conv_step(
        conv1d_weight,
        conv,
        in_spike,
        out_spike,
        trace_pre,
        trace_post,
        tau_pre,
        tau_post,
        f_pre,
        f_post,
    )


def _conv_step(
    products: Callable[..., Tensor],
    conv: nn.Conv1d | nn.Conv2d,
    in_spike: Tensor,
    out_spike: Tensor,
    trace_pre: Trace,
    trace_post: Trace,
    tau_pre: float,
    tau_post: float,
    f_pre: WeightFunction,
    f_post: WeightFunction,
) -> tuple[Tensor, Tensor, Tensor]:
    mode = "constant" if conv.padding_mode == "zeros" else conv.padding_mode
    in_spike = F.pad(in_spike, conv._reversed_padding_repeated_twice, mode=mode)
    weight = conv.weight.detach()
    pre = _advance(trace_pre, 1 - 1 / tau_pre, in_spike)
    post = _advance(trace_post, 1 - 1 / tau_post, out_spike)

    def paired(before: Tensor, after: Tensor) -> Tensor:
        # a weight's products of input and output, over all places: the gradient of a convolution's weight
        return products(before, weight.shape, after, stride=conv.stride, dilation=conv.dilation, groups=conv.groups)

    return pre, post, f_post(weight) * paired(pre, out_spike) - f_pre(weight) * paired(in_spike, post)


_STEPS: dict[type[nn.Module], Step] = {
    nn.Linear: stdp_linear_single_step,
    nn.Conv2d: stdp_conv2d_single_step,
    nn.Conv1d: stdp_conv1d_single_step,
}


class STDPLearner(nn.Module):
    """Trains one layer by STDP from the spikes that go into it and those its neurons return.

    It records every call of the layer and of the neurons; `step` turns the records into a weight change.

    Args:
        synapse: nn.Linear, nn.Conv1d or nn.Conv2d.
        sn: the neurons it feeds.
        tau_pre, tau_post: time constants of the traces in steps.
        f_pre, f_post: dependence on the weight, of depression and of potentiation.

    Raises: TypeError for another kind of layer.
    Source: see the module; snnTorch, after SpikingJelly.
    """

    def __init__(
        self,
        synapse: nn.Linear | nn.Conv1d | nn.Conv2d,
        sn: nn.Module,
        tau_pre: float,
        tau_post: float,
        f_pre: WeightFunction = _unchanged,
        f_post: WeightFunction = _unchanged,
    ) -> None:
        super().__init__()
        steps = [step for kind, step in _STEPS.items() if isinstance(synapse, kind)]
        if not steps:
            raise TypeError(f"STDPLearner(synapse={synapse!r}, ...) expects nn.Linear, nn.Conv1d or nn.Conv2d.")
        self._step = steps[0]
        self.tau_pre = tau_pre
        self.tau_post = tau_post
        self.f_pre = f_pre
        self.f_post = f_post
        self.synapse = synapse
        self.in_spike_monitor = InputMonitor(synapse, function_on_input=_spikes)
        self.out_spike_monitor = OutputMonitor(sn, function_on_output=_spikes)
        self.trace_pre: Tensor | None = None
        self.trace_post: Tensor | None = None

    def reset(self) -> None:
        """Forgets the records and the traces."""
        self.in_spike_monitor.clear_recorded_data()
        self.out_spike_monitor.clear_recorded_data()
        self.trace_pre = None
        self.trace_post = None

    def disable(self) -> None:
        """Records nothing until enabled."""
        self.in_spike_monitor.disable()
        self.out_spike_monitor.disable()

    def enable(self) -> None:
        """Records from now on."""
        self.in_spike_monitor.enable()
        self.out_spike_monitor.enable()

    def step(self, on_grad: bool = True, scale: float = 1.0) -> Tensor | None:
        """Turns the steps recorded since the last call into a weight change.

        Args:
            on_grad: subtract the change from `synapse.weight.grad`, for an optimiser to apply.
            scale: factor of the change.

        Returns: the change without on_grad, else None.
        Raises: ValueError if nothing was recorded, or not as many steps before as after the layer.
        """
        before, after = list(self.in_spike_monitor.records), list(self.out_spike_monitor.records)
        if not before or len(before) != len(after):
            raise ValueError(
                f"STDPLearner.step() has {len(before)} inputs and {len(after)} outputs on record; expected one of each"
                " per time step, and at least one. Run the network first."
            )
        self.in_spike_monitor.clear_recorded_data()
        self.out_spike_monitor.clear_recorded_data()
        delta_w = torch.zeros_like(self.synapse.weight)
        for in_spike, out_spike in zip(before, after):
            self.trace_pre, self.trace_post, change = self._step(
                self.synapse,
                in_spike,
                out_spike,
                self.trace_pre,
                self.trace_post,
                self.tau_pre,
                self.tau_post,
                self.f_pre,
                self.f_post,
            )
            delta_w += scale * change
        if not on_grad:
            return delta_w
        grad = self.synapse.weight.grad
        self.synapse.weight.grad = -delta_w if grad is None else grad - delta_w
        return None


def _spikes(value: Tensor | tuple[Tensor, ...]) -> Tensor:
    """The spikes of what a neuron returns, alone or before its states, without their graph."""
    return (value[0] if isinstance(value, tuple) else value).detach()
