"""What the recurrent neurons share: feedback from a layer's own spikes, by weight, matrix or convolution."""

from __future__ import annotations

from typing import Sequence, Tuple, Union

import torch
from torch import Tensor, nn

from ..backends.call import state_dtype
from ..errors import ShapeError
from ..scan import check
from ..surrogate import SpikeGrad
from .base import State, Value, loop
from .lif import LIF, Quantiser

KernelSize = Union[int, Tuple[int, int]]


class OneToOne(nn.Module):
    """spk * V: each neuron feeds back to itself."""

    def __init__(self, V: nn.Parameter | Tensor):
        super().__init__()
        if isinstance(V, nn.Parameter):
            self.V = V
        else:
            # in the state_dict once, as the neuron's own V
            self.register_buffer("V", V, persistent=False)

    def forward(self, spk: Tensor) -> Tensor:
        return spk * self.V


class RecurrentLIF(LIF):
    """Base of RLeaky and RSynaptic: `spk` is a state, and the feedback adds `recurrent(spk[t-1])` to the input.

    Element-wise feedback is part of the fused kernel; a linear or convolutional one is a loop over time that launches
    one fused step and one product per time step.
    """

    spk: Tensor
    recurrent: nn.Module

    def __init__(
        self,
        beta: Value,
        V: Value,
        all_to_all: bool,
        linear_features: int | None,
        conv2d_channels: int | None,
        kernel_size: KernelSize | None,
        threshold: Value,
        spike_grad: SpikeGrad | None,
        surrogate_disable: bool,
        init_hidden: bool,
        inhibition: bool,
        learn_beta: bool,
        learn_threshold: bool,
        learn_recurrent: bool,
        reset_mechanism: str,
        state_quant: bool | Quantiser,
        output: bool,
        reset_delay: bool,
        backend: str,
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
        self.all_to_all, self.learn_recurrent = all_to_all, learn_recurrent
        self.linear_features, self.conv2d_channels, self.kernel_size = (
            linear_features,
            conv2d_channels,
            kernel_size,
        )
        self.reset_delay = reset_delay
        self._check_feedback()
        # In snnTorch's order, by which the state of an optimiser is loaded.
        self.add_param("beta", beta, learn_beta)
        if not all_to_all:
            self.add_param("V", V, learn_recurrent)
            self.recurrent = OneToOne(self.params()["V"])
        elif linear_features:
            self.recurrent = nn.Linear(linear_features, linear_features)
        else:
            assert conv2d_channels is not None and kernel_size is not None
            rows, columns = (kernel_size, kernel_size) if isinstance(kernel_size, int) else kernel_size
            if rows % 2 == 0 or columns % 2 == 0:
                raise ValueError(
                    f"{type(self).__name__}(kernel_size={kernel_size}): expected odd sizes, so that the feedback keeps "
                    "the size of the image. Use one more or one less."
                )
            self.padding = rows // 2, columns // 2
            self.recurrent = nn.Conv2d(conv2d_channels, conv2d_channels, kernel_size, padding=self.padding)
        if not learn_recurrent:
            self.recurrent.requires_grad_(False)

    def _check_feedback(self) -> None:
        given = (self.linear_features, self.conv2d_channels, self.kernel_size)
        fits = ((True, False, False), (False, True, True)) if self.all_to_all else ((False, False, False),)
        if tuple(map(bool, given)) not in fits:
            raise TypeError(
                f"{type(self).__name__}(all_to_all={self.all_to_all}, linear_features={given[0]}, "
                f"conv2d_channels={given[1]}, kernel_size={given[2]}): expected linear_features, or conv2d_channels "
                "and kernel_size, or all_to_all=False with V alone. Give one of the three."
            )

    def _check_width(self, frame: torch.Size) -> None:
        dim, width = (-1, self.linear_features) if self.linear_features else (-3, self.conv2d_channels)
        if len(frame) < -dim or frame[dim] != width:
            expected = f"[B, {width}]" if dim == -1 else f"[B, {width}, height, width]"
            raise ShapeError(
                f"{type(self).__name__}(frames of shape {tuple(frame)}): expected {expected}, as its feedback has. "
                "Give the neuron the width of the layer before it."
            )

    def _step(self, x: Tensor, state: Sequence[Tensor | None]) -> tuple[Tensor, State]:
        dtype = state_dtype(x.dtype)
        spk = torch.zeros_like(x) if state[0] is None else state[0]
        # A replica of DataParallel has the attribute and lists no parameters.
        weight = getattr(self.recurrent, "weight", None)
        weight = next(self.recurrent.parameters(), spk) if weight is None else weight
        feedback = self.recurrent(spk.to(weight.dtype))
        spk, new = super().advance(x.to(dtype) + feedback.to(dtype), state)
        return spk.to(x.dtype), new

    def advance(self, x: Tensor, state: Sequence[Tensor | None]) -> tuple[Tensor, State]:
        if not self.all_to_all:
            return super().advance(x, state)
        x, state = check(type(self).__name__, self.state_names, x, state, single=True)
        self._check_width(x.shape)
        return self._step(x, state)

    def run_sequence(
        self,
        x: Tensor,
        state: Sequence[Tensor | None] | None,
        num_steps: int | None,
        traced: tuple[str, ...],
    ) -> tuple[Tensor, State, dict[str, Tensor]]:
        if not self.all_to_all:
            return super().run_sequence(x, state, num_steps, traced)
        x, state = check(type(self).__name__, self.state_names, x, state, num_steps=num_steps, traced=traced)
        self._check_width(x.shape[1:] if num_steps is None else x.shape)
        inputs = x.unbind(0) if num_steps is None else (x,) * num_steps
        if not inputs:
            return super().run_sequence(x, state, num_steps, traced)
        return loop(self._step, inputs, state, self.state_names, traced)
