"""Spiking associative memory: a linear-attention state that is read through spikes."""

from __future__ import annotations

import math
from typing import Sequence

import torch
from torch import Tensor, nn

from ..errors import ShapeError
from ..scan import check
from ..surrogate import spike
from .base import State
from .lif import LIF


def associative(x: Tensor, mem: Tensor, *, decay: Tensor, threshold: Tensor) -> tuple[Tensor, Tensor]:
    """One step: mem = decay * mem + x, x the outer product of value and key; spk = mem > threshold."""
    mem = decay * mem + x
    return spike(mem - threshold), mem


class AssociativeLeaky(LIF):
    """Spiking associative memory over a sequence: S[t] = S[t-1] diag(a[t]) + v[t] k[t]^T, y[t] = (S[t] > 1) Q[t].

    v, k, a and Q are linear in x[t], a through a sigmoid. It is no leaky integrate-and-fire neuron: the input decides
    its decay, and nothing is reset. Without the readout, y[t] are the spikes of S[t].

    Args:
        in_dim: features of x.
        d_value, d_key: rows and columns of the memory S.
        num_spiking_neurons: d_value * d_key, or None for just that.
        use_q_projection: read the memory through Q[t].

    Shape: x [T, B, in_dim]; y [T, B, d_value * d_value] with the readout, else [T, B, d_value * d_key]. The state is
        S, [B, d_value, d_key]. Units: dimensionless.

    Raises: ValueError for sizes that do not fit together.

    Source: snnTorch 1.0 `AssociativeLeaky`.
    """

    step = staticmethod(associative)
    state_names = ("mem",)
    mem: Tensor
    threshold: Tensor

    def __init__(
        self,
        in_dim: int,
        d_value: int,
        d_key: int,
        num_spiking_neurons: int | None,
        use_q_projection: bool = True,
    ) -> None:
        call = f"AssociativeLeaky(in_dim={in_dim}, d_value={d_value}, d_key={d_key}, {num_spiking_neurons})"
        if min(in_dim, d_value, d_key) < 1:
            raise ValueError(f"{call}: expected positive sizes. Change the one that is not.")
        if num_spiking_neurons not in (None, d_value * d_key):
            raise ValueError(f"{call}: expected d_value * d_key = {d_value * d_key} neurons. Pass it, or None.")
        super().__init__(reset_mechanism="none", output=True)
        self.d_value, self.d_key = d_value, d_key
        self.num_spiking_neurons = d_value * d_key
        self.use_q_projection = use_q_projection
        self.to_v = nn.Linear(in_dim, d_value)
        self.to_k = nn.Linear(in_dim, d_key)
        self.to_alpha = nn.Linear(in_dim, d_key)
        self.to_q = nn.Linear(in_dim, self.num_spiking_neurons) if use_q_projection else None

    @classmethod
    def from_num_spiking_neurons(
        cls, in_dim: int, num_spiking_neurons: int, use_q_projection: bool = True
    ) -> AssociativeLeaky:
        """A square memory, d_value = d_key = sqrt(num_spiking_neurons).

        Raises: ValueError when that is not a positive whole number.
        """
        side = math.isqrt(max(num_spiking_neurons, 0))
        if side * side != num_spiking_neurons or side == 0:
            raise ValueError(
                f"from_num_spiking_neurons({in_dim}, {num_spiking_neurons}): expected a positive square number. "
                f"Take {max(side, 1) ** 2} or {(side + 1) ** 2}."
            )
        return cls(in_dim, side, side, num_spiking_neurons, use_q_projection)

    def forward(self, x: Tensor) -> Tensor:  # type: ignore[override]
        """The readout y of a whole sequence x [T, B, in_dim], from an empty memory."""
        return self.run_sequence(x, None, None, ())[0]

    def advance(self, x: Tensor, state: Sequence[Tensor | None]) -> tuple[Tensor, State]:
        y, states, _ = self.run_sequence(x, state, 1, ())
        return y[0], states

    def run_sequence(
        self,
        x: Tensor,
        state: Sequence[Tensor | None] | None,
        num_steps: int | None,
        traced: tuple[str, ...],
    ) -> tuple[Tensor, State, dict[str, Tensor]]:
        time = num_steps is None
        if x.dim() != 2 + time or x.shape[-1] != self.to_v.in_features:
            frames = f"[{'T, ' if time else ''}B, {self.to_v.in_features}]"
            raise ShapeError(f"AssociativeLeaky(x of shape {tuple(x.shape)}): expected {frames}. Transpose the input.")
        writes = self.to_v(x).unsqueeze(-1) * self.to_k(x).unsqueeze(-2)  # [T, B, d_value, d_key]
        decays = torch.sigmoid(self.to_alpha(x)).unsqueeze(-2)  # [T, B, 1, d_key]
        owner = type(self).__name__
        _, (given,) = check(owner, self.state_names, writes, state, num_steps=num_steps, traced=traced)
        if num_steps is not None:
            writes, decays = writes.expand(num_steps, *writes.shape), decays.expand(num_steps, *decays.shape)
        mem = writes.new_zeros(writes.shape[1:]) if given is None else given.to(writes.dtype)
        record = []
        for write, decay in zip(writes.unbind(0), decays.unbind(0)):
            mem = torch.addcmul(write, mem, decay)
            record.append(mem)
        over_time = torch.stack(record) if record else writes
        spk = spike(over_time - self.threshold, self.spike_grad)
        if self.to_q is not None:
            q = self.to_q(x)
            spk = spk @ q.reshape(*q.shape[:-1], self.d_key, self.d_value)
        return spk.flatten(-2), (mem,), dict.fromkeys(traced, over_time)
