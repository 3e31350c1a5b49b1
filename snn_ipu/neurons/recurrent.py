"""What the recurrent neurons share: feedback from a layer's own spikes, by weight, matrix or convolution."""

from __future__ import annotations

from typing import Any, Sequence, Tuple, Union

import torch
from torch import Tensor, nn

from ..surrogate import SpikeGrad
from .base import State, Value
from .lif import LIF, Quantiser

KernelSize = Union[int, Tuple[int, int]]


class OneToOne(nn.Module):
    """spk * V: each neuron feeds back to itself."""

    def __init__(self, V: nn.Parameter | Tensor):
        super().__init__()
        if isinstance(V, nn.Parameter):
            self.V = V
        else:
            self.register_buffer("V", V)

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
        if not all_to_all:
            self.add_param("V", V, learn_recurrent)
            self.recurrent = OneToOne(self.params()["V"])
        elif linear_features:
            self.recurrent = nn.Linear(linear_features, linear_features)
        else:
            assert conv2d_channels is not None and kernel_size is not None
            rows, columns = (kernel_size, kernel_size) if isinstance(kernel_size, int) else kernel_size
            self.padding = rows // 2, columns // 2
            self.recurrent = nn.Conv2d(conv2d_channels, conv2d_channels, kernel_size, padding=self.padding)
        if not learn_recurrent:
            self.recurrent.requires_grad_(False)

    def _check_feedback(self) -> None:
        linear = bool(self.linear_features)
        conv = (bool(self.conv2d_channels), bool(self.kernel_size))
        call = (
            f"{type(self).__name__}(all_to_all={self.all_to_all}, linear_features={self.linear_features}, "
            f"conv2d_channels={self.conv2d_channels}, kernel_size={self.kernel_size})"
        )
        if self.all_to_all and linear == all(conv):
            raise TypeError(
                f"{call}: expected linear_features, or conv2d_channels and kernel_size. Give one of the two."
            )
        if self.all_to_all and any(conv) != all(conv):
            raise TypeError(f"{call}: expected conv2d_channels and kernel_size together. Give both.")
        if self.all_to_all and linear and any(conv):
            raise TypeError(f"{call}: expected one kind of feedback. Drop the arguments of the other.")
        if not self.all_to_all and (linear or any(conv)):
            raise TypeError(f"{call}: expected V alone with all_to_all=False. Drop the other arguments.")

    def flags(self) -> dict[str, Any]:
        return {**super().flags(), "reset_delay": self.reset_delay}

    def advance(self, x: Tensor, state: Sequence[Tensor | None]) -> tuple[Tensor, State]:
        if self.all_to_all:
            spk = state[0]
            x = x + self.recurrent((torch.zeros_like(x) if spk is None else spk).to(x.dtype))
        return super().advance(x, state)

    def run_sequence(
        self,
        x: Tensor,
        state: Sequence[Tensor | None] | None,
        num_steps: int | None,
        traced: tuple[str, ...],
    ) -> tuple[Tensor, State, dict[str, Tensor]]:
        steps = x.shape[0] if num_steps is None and x.dim() > 0 else num_steps
        if not self.all_to_all or not steps:
            return super().run_sequence(x, state, num_steps, traced)
        inputs = x.unbind(0) if num_steps is None else (x,) * steps
        spikes: list[Tensor] = []
        record: dict[str, list[Tensor]] = {name: [] for name in traced}
        current: Sequence[Tensor | None] = (None,) * len(self.state_names) if state is None else state
        for x_t in inputs:
            spk, new = self.advance(x_t, current)
            current = new
            spikes.append(spk)
            for name in traced:
                record[name].append(new[self.state_names.index(name)])
        return torch.stack(spikes), new, {name: torch.stack(steps) for name, steps in record.items()}
