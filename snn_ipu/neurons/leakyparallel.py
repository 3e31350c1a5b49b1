"""Leaky neuron with rectified membrane and its own linear layer, over a whole sequence."""

from __future__ import annotations

import math
from typing import Any, Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ..errors import ShapeError
from ..scan import check
from ..surrogate import SpikeGrad, disabled, spike
from .base import SpikingNeuron, State, Value, loop


def leakyparallel(
    x: Tensor,
    mem: Tensor,
    *,
    threshold: Tensor,
    graded_spikes_factor: Tensor,
    decay: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """One step: mem = relu(decay * mem + x); without a decay, x holds the share of the membranes."""
    mem = torch.relu(x if decay is None else decay * mem + x)
    return spike(mem - threshold) * graded_spikes_factor, mem


class RecurrentWeights(nn.Module):
    """The weights of a one-layer `nn.RNN`, by its names and from its random draws; torch.compile refuses that class."""

    weight_ih_l0: nn.Parameter
    weight_hh_l0: nn.Parameter
    bias_ih_l0: nn.Parameter
    bias_hh_l0: nn.Parameter

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        bias: bool,
        device: torch.device | str | None,
        dtype: torch.dtype | None,
    ) -> None:
        super().__init__()
        shapes: dict[str, tuple[int, ...]] = {
            "weight_ih_l0": (hidden_size, input_size),
            "weight_hh_l0": (hidden_size, hidden_size),
        }
        if bias:
            shapes.update(bias_ih_l0=(hidden_size,), bias_hh_l0=(hidden_size,))
        bound = 1 / math.sqrt(hidden_size)
        for name, shape in shapes.items():
            values = torch.empty(shape, device=device, dtype=dtype).uniform_(-bound, bound)
            self.register_parameter(name, nn.Parameter(values))


class LeakyParallel(SpikingNeuron):
    """Rectified leaky neuron over a sequence: mem[t] = relu(W x[t] + b + w * mem[t-1]), spk[t] = mem[t] > threshold.

    There is no reset. With one decay w per neuron the sequence is one product and one fused scan; with
    `weight_hh_enable` w is a matrix, and time is a loop.

    Args:
        input_size, hidden_size: features of x, neurons of the layer.
        beta: start value of w, clamped to [0, 1]; one number, or one per neuron. None draws w as `nn.RNN` does.
        bias: whether there is b. dropout: 0, see Raises.
        learn_beta: learn w. weight_hh_enable: w is a full matrix; beta then fills its rows.
        threshold, spike_grad, surrogate_disable, learn_threshold, graded_spikes_factor, learn_graded_spikes_factor as
            in `Leaky`. device, dtype: of the weights.

    Shape: x [T, B, input_size] or [T, input_size]; spk [T, B, hidden_size]. Units: dimensionless.

    Raises: ValueError for a beta that is neither one value nor one per neuron, and for dropout, which does nothing in
        a single layer; on loading, for a full matrix where one decay per neuron is expected.

    Source: snnTorch 1.0 `LeakyParallel`.
    """

    step = staticmethod(leakyparallel)
    state_names = ("mem",)
    mem: Tensor

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        beta: Value | None = None,
        bias: bool = True,
        threshold: Value = 1.0,
        dropout: float = 0.0,
        spike_grad: SpikeGrad | None = None,
        surrogate_disable: bool = False,
        learn_beta: bool = False,
        learn_threshold: bool = False,
        graded_spikes_factor: Value = 1.0,
        learn_graded_spikes_factor: bool = False,
        weight_hh_enable: bool = False,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        *,
        backend: str = "auto",
    ) -> None:
        if dropout:
            raise ValueError(
                f"LeakyParallel(dropout={dropout}): expected 0, since nn.RNN drops nothing in a single layer. "
                "Put nn.Dropout after the layer."
            )
        super().__init__(disabled() if surrogate_disable else spike_grad, backend=backend)
        self.surrogate_disable = surrogate_disable
        self.input_size, self.hidden_size, self.bias = input_size, hidden_size, bias
        self.full_matrix = weight_hh_enable
        self.rnn = RecurrentWeights(input_size, hidden_size, bias, device, dtype)
        rows = None if beta is None else torch.as_tensor(beta, device=device).reshape(-1).clamp(0, 1)
        if rows is not None and len(rows) not in (1, hidden_size):
            raise ValueError(
                f"LeakyParallel(beta of {len(rows)} values): expected one value or one per neuron, [{hidden_size}]. "
                "Pass a number or a tensor of that shape."
            )
        self.register_buffer("beta", rows)
        with torch.no_grad():
            weight = self.rnn.weight_hh_l0
            if rows is not None:
                weight.copy_(rows.reshape(-1, 1).expand_as(weight))
            if not weight_hh_enable:
                weight.mul_(torch.eye(hidden_size, device=weight.device, dtype=weight.dtype))
        self.rnn.weight_hh_l0.requires_grad_(learn_beta)
        self.add_param("threshold", threshold, learn_threshold)
        self.add_param("graded_spikes_factor", graded_spikes_factor, learn_graded_spikes_factor)
        if not weight_hh_enable:
            self._param_names = ("decay", *self._param_names)

    @property
    def decay(self) -> Tensor:
        """One decay per step and neuron, [hidden_size]; read where w is no full matrix."""
        return self.rnn.weight_hh_l0.diagonal()

    def forward(self, input_: Tensor) -> Tensor:  # type: ignore[override]
        """Spikes [T, B, hidden_size] of a whole sequence [T, B, input_size], from no state."""
        spk, _, _ = self.run_sequence(input_, None, None, ())
        return spk

    def advance(self, x: Tensor, state: Sequence[Tensor | None]) -> tuple[Tensor, State]:
        currents = self._currents(x, "[B, ")
        _, state = check(type(self).__name__, self.state_names, currents, state, single=True)
        return self._step(currents, state)

    def run_sequence(
        self,
        x: Tensor,
        state: Sequence[Tensor | None] | None,
        num_steps: int | None,
        traced: tuple[str, ...],
    ) -> tuple[Tensor, State, dict[str, Tensor]]:
        currents = self._currents(x, "[T, B, " if num_steps is None else "[B, ")
        inputs = () if not self.full_matrix else currents.unbind(0) if num_steps is None else (currents,) * num_steps
        if not inputs:
            return super().run_sequence(currents, state, num_steps, traced)
        owner = type(self).__name__
        _, state = check(owner, self.state_names, currents, state, num_steps=num_steps, traced=traced)
        return loop(self._step, inputs, state, self.state_names, traced)

    def _step(self, currents: Tensor, state: Sequence[Tensor | None]) -> tuple[Tensor, State]:
        mem = state[0]
        if self.full_matrix and mem is not None:
            currents = currents + F.linear(mem.to(currents.dtype), self.rnn.weight_hh_l0)
        return super().advance(currents, state)

    def _currents(self, x: Tensor, shape: str) -> Tensor:
        if x.dim() < 1 or x.shape[-1] != self.input_size:
            raise ShapeError(
                f"LeakyParallel(x of shape {tuple(x.shape)}): expected {shape}{self.input_size}], features last. "
                "Transpose the input."
            )
        bias = self.rnn.bias_ih_l0 + self.rnn.bias_hh_l0 if self.bias else None
        return F.linear(x, self.rnn.weight_ih_l0, bias)

    def _load_from_state_dict(self, state_dict: Any, prefix: str, *args: Any, **kwargs: Any) -> None:
        weight = state_dict.get(prefix + "rnn.weight_hh_l0")
        if not self.full_matrix and weight is not None and bool((weight - weight.diagonal().diag()).any()):
            raise ValueError(
                "LeakyParallel.load_state_dict(rnn.weight_hh_l0 with values off the diagonal): expected one decay per "
                "neuron. Build the layer with weight_hh_enable=True."
            )
        super()._load_from_state_dict(state_dict, prefix, *args, **kwargs)
