"""The specification: the plain-torch step in a Python loop over time, on any device, with any surrogate."""

from __future__ import annotations

import torch
from torch import Tensor

from .._compat import is_compiling
from ..compiler.trace import check_outputs
from ..errors import UnsupportedError
from ..surrogate import using
from .call import Call, Result, Runner

NAME = "reference"


def status() -> str | None:
    """Why this backend does not work here; it always does."""
    return None


def obstacle(call: Call) -> str | None:
    """Why this backend cannot run the call; it runs every call."""
    return None


def settle(call: Call) -> Runner:
    """What runs calls like this one."""
    return run


def run(call: Call) -> Result:
    """Run the step T times and stack what it returns.

    Raises: UnsupportedError for a step that changes an argument in place or returns too few or too many values.
    """
    dtype, frame, device = call.state_dtype, call.frame, call.x.device
    states = [call.x.new_zeros(frame, dtype=dtype) if s is None else s.to(dtype) for s in call.initial]
    x = call.x.to(dtype)
    inputs = [x] * call.steps if call.static else list(x.unbind(0))
    spikes: list[Tensor] = []
    traces: list[list[Tensor]] = [[] for _ in call.traced]

    def per_neuron(value: Tensor | float, kind: torch.dtype) -> Tensor:
        if isinstance(value, Tensor) and value.dtype == kind and value.shape == frame:
            return value
        return torch.as_tensor(value, dtype=kind, device=device).expand(frame)

    with using(call.spike_grad):
        for x_t in inputs:
            versions = _versions(x_t, *states)
            out = call.fn(x_t, *states, **call.params, **call.flags)
            check_outputs(call.fn, out, call.state_names)
            spk, *new = out
            if _versions(x_t, *states) != versions:
                raise UnsupportedError(
                    f"step {call.fn.__name__} changes x or a state in place; expected new values. "
                    "Write mem = mem + x instead of mem += x."
                )
            states = [per_neuron(s, dtype) for s in new]
            spikes.append(per_neuron(spk, call.x.dtype))
            for record, name in zip(traces, call.traced):
                record.append(states[call.state_names.index(name)])

    def over_time(record: list[Tensor], kind: torch.dtype) -> Tensor:
        if call.single:
            return record[0]
        return torch.stack(record) if record else call.x.new_zeros((0, *frame), dtype=kind)

    return Result(
        over_time(spikes, call.x.dtype),
        tuple(states),
        {name: over_time(record, dtype) for name, record in zip(call.traced, traces)},
    )


def _versions(*tensors: Tensor) -> list[int]:
    if is_compiling():
        # torch.compile cannot trace the question.
        return []
    return [0 if t.is_inference() else t._version for t in tensors]
