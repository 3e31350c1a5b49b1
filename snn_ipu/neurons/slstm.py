"""Spiking LSTM: a long short-term memory whose hidden state is a membrane."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from .._compat import constant_result, is_recording
from ..errors import ShapeError
from ..scan import check, register, scan
from ..surrogate import SpikeGrad
from .base import State, Value, loop, seen
from .lif import LIF, Quantiser, fire, has_fired


def lstm(
    x: Tensor,
    syn: Tensor,
    mem: Tensor,
    *,
    i: Tensor,
    f: Tensor,
    o: Tensor,
    threshold: Tensor,
    reset_mechanism: str = "none",
    inhibition: bool = False,
    state_quant: Quantiser | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """One step from the four gates' sums: syn = s(f) * syn + s(i) * tanh(x); mem = s(o) * tanh(syn), less a reset."""
    due = has_fired(mem, threshold)
    syn = torch.sigmoid(f) * syn + torch.sigmoid(i) * torch.tanh(x)
    mem = torch.sigmoid(o) * torch.tanh(syn)
    if reset_mechanism == "subtract":
        mem = mem - due * threshold
    elif reset_mechanism == "zero":
        mem = mem - mem * due
    if state_quant is not None:
        syn, mem = state_quant(syn), state_quant(mem)
    return fire(mem, threshold, None, inhibition, state_quant), syn, mem


class SpikingLSTM(LIF, ABC):
    """Base of SLSTM and SConv2dLSTM: a product makes the sums of the four gates, one fused step does all the rest.

    The input's share of the sums is computed for all time steps at once, the membrane's step by step.
    """

    step = staticmethod(lstm)
    state_names = ("syn", "mem")
    syn: Tensor
    mem: Tensor

    @abstractmethod
    def input_sums(self, x: Tensor) -> Tensor:
        """The input's share of the gates' sums, biases included, [B, 4 * features, ...]."""

    @abstractmethod
    def membrane_sums(self, mem: Tensor) -> Tensor:
        """The membrane's share, [B, 4 * features, ...]."""

    def joint_sums(self, x: Tensor, mem: Tensor) -> Tensor:
        """Both shares for one step, [B, 4 * features, ...]."""
        return self.input_sums(x) + self.membrane_sums(mem)

    def gates(self, sums: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """The sums of input gate, forget gate, candidate and output gate, [B, features, ...] each."""
        i, f, g, o = sums.chunk(4, 1)
        return i, f, g, o

    def spikes(self, spk: Tensor, mem: Tensor) -> Tensor:
        """What the layer gives out for one step."""
        return spk

    def _step(self, sums: Tensor, state: Sequence[Tensor | None]) -> tuple[Tensor, State]:
        mem = state[-1]
        if mem is not None:
            sums = sums + self.membrane_sums(mem.to(sums.dtype))
        return self._gated(sums, state)

    def _gated(self, sums: Tensor, state: Sequence[Tensor | None]) -> tuple[Tensor, State]:
        i, f, g, o = self.gates(sums)
        result = scan(
            type(self).__name__,
            type(self).step,
            self.state_names,
            g,
            state,
            {"i": i, "f": f, "o": o, **self.params()},
            self.flags(),
            self.spike_grad,
            single=True,
            backend=self.backend,
            operator=self.operator(*seen(self.spike_grad, self.flags())) if is_recording() else "",
        )
        return self.spikes(result.spk, result.states[-1]), result.states

    @constant_result
    def operator(self, *values: Any) -> str:
        params = ("i", "f", "o", *self._param_names)
        return register(type(self).step, self.state_names, params, self.flags(), self.spike_grad, self.backend)

    @abstractmethod
    def frame(self, x: Tensor) -> tuple[int, ...]:
        """The shape of the states for one step's input x."""

    @abstractmethod
    def _check_input(self, x: Tensor, time: bool) -> None:
        """Raises: ShapeError where x is no input of this layer, with a leading time axis where `time` is set."""

    def advance(self, x: Tensor, state: Sequence[Tensor | None]) -> tuple[Tensor, State]:
        self._check_input(x, time=False)
        mem = state[-1]
        step = self._step
        if isinstance(mem, Tensor) and mem.shape == self.frame(x) and mem.device == x.device:
            sums, step = self.joint_sums(x, mem.to(x.dtype)), self._gated
        else:
            sums = self.input_sums(x)
        _, state = check(type(self).__name__, self.state_names, sums.chunk(4, 1)[0], state, single=True)
        return step(sums, state)

    def run_sequence(
        self,
        x: Tensor,
        state: Sequence[Tensor | None] | None,
        num_steps: int | None,
        traced: tuple[str, ...],
    ) -> tuple[Tensor, State, dict[str, Tensor]]:
        self._check_input(x, time=num_steps is None)
        if num_steps is None:
            flat = self.input_sums(x.flatten(0, 1))
            sums = flat.reshape(*x.shape[:2], *flat.shape[1:])
        else:
            sums = self.input_sums(x)
        frames = sums.chunk(4, 2 if num_steps is None else 1)[0]
        owner = type(self).__name__
        _, state = check(owner, self.state_names, frames, state, num_steps=num_steps, traced=traced)
        inputs = sums.unbind(0) if num_steps is None else (sums,) * num_steps
        if inputs:
            return loop(self._step, inputs, state, self.state_names, traced)
        nothing = sums.new_zeros(sums.shape[1:])
        spk, final, traces = loop(self._step, (nothing,), state, self.state_names, traced)
        unchanged = tuple(torch.zeros_like(f) if s is None else s for f, s in zip(final, state))
        return spk[:0], unchanged, {name: trace[:0] for name, trace in traces.items()}


class SLSTM(SpikingLSTM):
    """Spiking LSTM: (mem, syn) = LSTMCell(x, (mem, syn)), spk[t] = mem[t] > threshold.

    syn[t] = sigmoid(f) * syn[t-1] + sigmoid(i) * tanh(g), mem[t] = sigmoid(o) * tanh(syn[t]), with i, f, g, o linear in
    x[t] and mem[t-1]. A reset takes the threshold from the new membrane, or zeroes it, one step after a spike.

    Args:
        input_size, hidden_size: features of x, neurons of the layer.
        bias: whether the gates have biases.
        reset_mechanism: "none" by default. All other arguments as in `Leaky`; the reset is always delayed.

    Shape: x [B, input_size]; spk, syn and mem [B, hidden_size]. Units: dimensionless; mem lies in (-1, 1), so a layer
        with the default threshold of 1 never spikes.

    Raises: ValueError for an unknown reset mechanism.

    Source: snnTorch 1.0 `SLSTM`.
    """

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        bias: bool = True,
        threshold: Value = 1.0,
        spike_grad: SpikeGrad | None = None,
        surrogate_disable: bool = False,
        init_hidden: bool = False,
        inhibition: bool = False,
        learn_threshold: bool = False,
        reset_mechanism: str = "none",
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
        self.input_size, self.hidden_size, self.bias = input_size, hidden_size, bias
        self.lstm_cell = nn.LSTMCell(input_size, hidden_size, bias=bias)

    def input_sums(self, x: Tensor) -> Tensor:
        cell = self.lstm_cell
        return F.linear(x, cell.weight_ih, cell.bias_ih + cell.bias_hh if self.bias else None)

    def frame(self, x: Tensor) -> tuple[int, ...]:
        return (x.shape[0], self.hidden_size)

    def membrane_sums(self, mem: Tensor) -> Tensor:
        return F.linear(mem, self.lstm_cell.weight_hh)

    def _check_input(self, x: Tensor, time: bool) -> None:
        if x.dim() != 2 + time or x.shape[-1] != self.input_size:
            frames = f"[{'T, ' if time else ''}B, {self.input_size}]"
            raise ShapeError(f"SLSTM(x of shape {tuple(x.shape)}): expected {frames}. Flatten or transpose the input.")

    init_slstm = LIF.reset_mem
