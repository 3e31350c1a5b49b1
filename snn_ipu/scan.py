"""The one path of a neuron call: check at the border, then hand it to a backend."""

from __future__ import annotations

from operator import is_
from typing import Any, Callable, Mapping, Sequence

import torch
from torch import Tensor

from ._compat import is_recording, sees_plain_torch_only
from .backends import operators, select
from .backends.call import Call, Runner, state_dtype
from .backends.call import Result as Result
from .backends.operators import register as register
from .errors import ShapeError
from .surrogate import SpikeGrad, Surrogate

# What runs calls that were seen before, so that a loop over single steps does not check and choose anew each time.
_runners: dict[Any, Runner] = {}
_REMEMBERED = 4096
_PLAIN = frozenset((bool, int, float, str, type(None)))


def _checked_x(owner: str, x: Any, time: bool) -> Tensor:
    if not isinstance(x, Tensor):
        raise ShapeError(f"{owner}({type(x).__name__}): expected a tensor. Convert the input with torch.as_tensor.")
    if x.is_complex():
        raise ShapeError(f"{owner}(x of dtype {x.dtype}): expected real input currents. Pass x.real or x.abs().")
    if time and x.dim() < 2:
        raise ShapeError(
            f"{owner}.sequence(x of shape {tuple(x.shape)}): expected time first, [T, batch, ...]. "
            "Add the missing dimensions, or pass num_steps= for one static frame."
        )
    checked: Tensor = x if x.is_floating_point() else x.to(torch.get_default_dtype())
    return checked


def _check_device(owner: str, name: str, t: Tensor, x: Tensor) -> None:
    if t.device != x.device:
        raise ShapeError(
            f"{owner}({name} on {t.device}, x on {x.device}): expected one device. "
            f"Move the network with net.to({str(x.device)!r}), or the input to the network."
        )


def _checked_state(
    owner: str,
    names: Sequence[str],
    state: Sequence[Tensor | None] | None,
    start: Mapping[str, float],
    x: Tensor,
    frame: torch.Size,
) -> tuple[Tensor | None, ...]:
    dtype = state_dtype(x.dtype)
    if state is None:
        state = (None,) * len(names)
    if isinstance(state, Tensor) or len(state) != len(names):
        given = "one tensor" if isinstance(state, Tensor) else f"{len(state)} states"
        raise ShapeError(
            f"{owner}(state of {given}): expected a tuple of {len(names)}: {', '.join(names)}. "
            "Pass the final state of an earlier call as it is."
        )
    checked: list[Tensor | None] = []
    for name, s in zip(names, state):
        if s is None:
            checked.append(torch.full(frame, start[name], dtype=dtype, device=x.device) if name in start else None)
            continue
        if not isinstance(s, Tensor):
            raise ShapeError(
                f"{owner}({name} of type {type(s).__name__}): expected a tensor of shape {tuple(frame)}, or None to "
                "start anew. Make one with torch.zeros_like or torch.full_like."
            )
        if s.shape != frame and s.numel() == frame.numel() == 1:
            s = s.reshape(frame)
        if s.shape != frame:
            raise ShapeError(
                f"{owner}({name} of shape {tuple(s.shape)}, frames of shape {tuple(frame)}): expected equal shapes. "
                "The batch size or the layer's width has changed: start from no state, or call reset_mem() "
                "(snn_ipu.utils.reset(net) for a whole network) before a new batch."
            )
        _check_device(owner, name, s, x)
        checked.append(s if s.dtype == dtype else s.to(dtype))
    return tuple(checked)


def _checked_params(owner: str, params: Mapping[str, Tensor], x: Tensor, frame: torch.Size) -> Mapping[str, Tensor]:
    dtype = state_dtype(x.dtype)
    fitted = {}
    for name, p in params.items():
        _check_device(owner, name, p, x)
        if p.dim() == 0:
            fitted[name] = p if p.dtype == dtype else p.to(dtype)
            continue
        sizes = tuple(p.shape)
        fits = len(sizes) <= len(frame) and all(s in (1, f) for s, f in zip(reversed(sizes), reversed(frame)))
        if p.numel() != 1 and not fits:
            raise ShapeError(
                f"{owner}({name} of shape {sizes}) does not fit frames of shape {tuple(frame)}; expected one value "
                f"or a shape that broadcasts against the last dimensions, such as [{frame[-1] if frame else 1}]. "
                "For [batch, channels, height, width] give one value per channel as [channels, 1, 1]."
            )
        # One value with more dimensions than a frame would add them to the states.
        fitted[name] = (p.reshape(()) if p.dim() > len(frame) else p).to(dtype)
    return fitted


def check(
    owner: str,
    state_names: tuple[str, ...],
    x: Tensor,
    state: Sequence[Tensor | None] | None,
    *,
    start: Mapping[str, float] | None = None,
    num_steps: int | None = None,
    traced: tuple[str, ...] = (),
    single: bool = False,
) -> tuple[Tensor, tuple[Tensor | None, ...]]:
    """The input and the initial states of a call as a backend takes them; arguments and errors as in `scan`."""
    if num_steps is not None and (isinstance(num_steps, bool) or not isinstance(num_steps, int) or num_steps < 1):
        raise ValueError(f"{owner}.sequence(num_steps={num_steps!r}): expected a positive int of time steps.")
    unknown = [name for name in traced if name not in state_names]
    if unknown:
        raise ValueError(f"{owner}.sequence(trace={unknown[0]!r}): expected one of {', '.join(state_names)}.")
    static = single or num_steps is not None
    x = _checked_x(owner, x, time=not static)
    return x, _checked_state(owner, state_names, state, start or {}, x, x.shape if static else x.shape[1:])


def _can_remember(x: Any, state: Any, flags: Mapping[str, Any], spike_grad: SpikeGrad, num_steps: Any) -> bool:
    """Whether all that decides a call can be compared with that of another.

    Nothing is remembered while a graph is recorded, which would then depend on what this process ran before.
    """
    return (
        type(x) is Tensor
        and isinstance(spike_grad, Surrogate)
        and (state is None or type(state) in (tuple, list))
        and (num_steps is None or type(num_steps) is int)
        and _PLAIN.issuperset(map(type, flags.values()))
        and not is_recording()
    )


def _seen(x: Tensor, state: Sequence[Tensor | None] | None, params: Mapping[str, Tensor]) -> tuple[Any, ...]:
    """All that a call's checks and its backend look at in tensors, and in how torch runs just now."""

    def looks(t: Any) -> Any:
        return (type(t), t.shape, t.stride(), t.dtype, t.device, t.requires_grad) if isinstance(t, Tensor) else type(t)

    states = (None,) if state is None else (len(state), *map(looks, state))
    return (torch.is_grad_enabled(), sees_plain_torch_only(), looks(x), *states, *params, *map(looks, params.values()))


def scan(
    owner: str,
    fn: Callable[..., Any],
    state_names: tuple[str, ...],
    x: Tensor,
    state: Sequence[Tensor | None] | None,
    params: Mapping[str, Tensor],
    flags: Mapping[str, Any],
    spike_grad: SpikeGrad,
    *,
    start: Mapping[str, float] | None = None,
    num_steps: int | None = None,
    traced: tuple[str, ...] = (),
    single: bool = False,
    backend: str = "auto",
    operator: str = "",
) -> Result:
    """Run a neuron's step over time on the backend asked for.

    Args:
        owner: the neuron's name, for messages.
        fn, state_names, params, flags, spike_grad: the step and what it is given, as in `Call`.
        x: [T, *frame]; or [*frame] when `num_steps` is given or `single` is set.
        state: initial states [*frame] by position, None for the start value.
        start: start value by name of the states that do not start at 0.
        traced: states of which every step is wanted.
        backend: "auto" or a backend's name.
        operator: name of the neuron's form in a graph that is being traced; empty to run now.

    Raises: ShapeError for input, states or parameters that do not fit; BackendMissingError; UnsupportedError.
    """
    name = select.requested(backend)
    key = None
    if _can_remember(x, state, flags, spike_grad, num_steps):
        kinds = map(type, flags.values())
        begin = tuple(start.items()) if start else ()
        how = (fn, *state_names, *flags.items(), *kinds, spike_grad, num_steps, traced, single, name, begin)
        key = (*how, *_seen(x, state, params))
    runner = _runners.get(key)
    if runner is not None:
        initial = (None,) * len(state_names) if state is None else tuple(state)
        return runner(Call(fn, state_names, x, initial, params, flags, spike_grad, num_steps, traced, single))
    asked = x
    x, initial = check(owner, state_names, x, state, start=start, num_steps=num_steps, traced=traced, single=single)
    frame = x.shape if single or num_steps is not None else x.shape[1:]
    call = Call(
        fn,
        state_names,
        x,
        initial,
        _checked_params(owner, params, x, frame),
        flags,
        spike_grad,
        num_steps,
        traced,
        single,
        learned=tuple(n for n, p in params.items() if p.requires_grad),
    )
    if operator and x.device.type == "cpu" and backend in ("auto", "cpu"):
        return operators.run(call, operator)
    runner = select.settle(call, name)
    given = (asked, *(state or (None,) * len(state_names)), *params.values())
    if key is not None and x.device.type == "cpu" and all(map(is_, (x, *call.initial, *call.params.values()), given)):
        if len(_runners) >= _REMEMBERED:
            _runners.clear()
        _runners[key] = runner
    return runner(call)
