"""What a backend is asked to run, and what it gives back."""

from __future__ import annotations

from typing import Any, Callable, Mapping, NamedTuple, Tuple

import torch
from torch import Tensor

from ..surrogate import SpikeGrad


class Flag(NamedTuple):
    """One flag of a step; with its type, since 1 and True are equal."""

    name: str
    value: Any
    kind: type


Flags = Tuple[Flag, ...]


def frozen(flags: Mapping[str, Any]) -> Flags:
    """Flags as a hashable value."""
    return tuple(Flag(name, value, type(value)) for name, value in flags.items())


def thawed(flags: Flags) -> dict[str, Any]:
    """Flags as a step takes them."""
    return {flag.name: flag.value for flag in flags}


class Call(NamedTuple):
    """T steps of one neuron layer.

    Attributes:
        fn: the step, `fn(x, *states, **params, **flags) -> (spk, *new_states)`.
        state_names: names of the states, in the step's order.
        x: [T, *frame], or one frame that is used at every step when `num_steps` is given.
        initial: initial states [*frame] in the state's dtype; None stands for zeros.
        params: tensors that broadcast against a frame, in the state's dtype.
        flags: arguments of the step that are resolved before the time loop.
        spike_grad: the surrogate.
        num_steps: T for a static x, else None.
        traced: names of the states whose every step is wanted.
        single: one step; outputs have no time axis.
        learned: parameters that want a gradient, also where a cast has hidden it.
    """

    fn: Callable[..., Any]
    state_names: tuple[str, ...]
    x: Tensor
    initial: tuple[Tensor | None, ...]
    params: Mapping[str, Tensor]
    flags: Mapping[str, Any]
    spike_grad: SpikeGrad
    num_steps: int | None = None
    traced: tuple[str, ...] = ()
    single: bool = False
    learned: tuple[str, ...] = ()

    @property
    def static(self) -> bool:
        return self.single or self.num_steps is not None

    @property
    def steps(self) -> int:
        if self.single:
            return 1
        return self.x.shape[0] if self.num_steps is None else self.num_steps

    @property
    def frame(self) -> torch.Size:
        return self.x.shape if self.static else self.x.shape[1:]

    @property
    def state_dtype(self) -> torch.dtype:
        return state_dtype(self.x.dtype)

    @property
    def flags_key(self) -> Flags:
        """The flags as a hashable value."""
        return frozen(self.flags)


class Result(NamedTuple):
    """Spikes [T, *frame] in x's dtype, final states [*frame] and traces [T, *frame] in the state's dtype."""

    spk: Tensor
    states: tuple[Tensor, ...]
    traces: dict[str, Tensor]


# Runs a call, and every other one that differs in nothing but the values of its tensors.
Runner = Callable[[Call], Result]


def state_dtype(dtype: torch.dtype) -> torch.dtype:
    """The dtype that states are computed in: float64 for float64, float32 for every other input."""
    return torch.float64 if dtype == torch.float64 else torch.float32
