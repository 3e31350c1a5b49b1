"""What every neuron module shares: parameters, hidden state, one-step and whole-sequence calls."""

from __future__ import annotations

import inspect
from itertools import zip_longest
from typing import Any, Callable, ClassVar, Iterable, Mapping, Sequence, Tuple, Union

import torch
from torch import Tensor, nn

from .._compat import constant_result, is_recording
from ..backends.select import check_name, traced_once
from ..errors import ShapeError, UnsupportedError
from ..scan import Result, register, scan
from ..surrogate import SpikeGrad, Surrogate, SurrogateFactory, atan

Value = Union[float, Tensor]
State = Tuple[Tensor, ...]


def loop(
    advance: Callable[[Tensor, Sequence[Tensor | None]], tuple[Tensor, State]],
    inputs: Sequence[Tensor],
    state: Sequence[Tensor | None],
    state_names: Sequence[str],
    traced: Sequence[str],
) -> tuple[Tensor, State, dict[str, Tensor]]:
    """A sequence as a loop of single steps, for a step that needs more than the neuron's own states; T >= 1."""
    spikes: list[Tensor] = []
    record: dict[str, list[Tensor]] = {name: [] for name in traced}
    for x_t in inputs:
        spk, new = advance(x_t, state)
        state = new
        spikes.append(spk)
        for name in traced:
            record[name].append(new[state_names.index(name)])
    return torch.stack(spikes), new, {name: torch.stack(steps) for name, steps in record.items()}


class SpikingNeuron(nn.Module):
    """Base of all neurons: a layer of independent cells, each following the class's `step`.

    A subclass gives the step in plain torch and the names of its states and parameters; everything else is here. States
    are plain tensors that follow the input's device; they are held as non-persistent buffers, so a `state_dict` holds
    parameters only and no network knows of another.

    Attributes:
        step: `step(x, *states, **params, **flags) -> (spk, *new_states)`.
        state_names: the states in the step's order.
        initial: start value of each state that does not start at 0.
        backend: "auto", or the name of the backend to insist on.
    """

    step: ClassVar[Callable[..., Any]]
    state_names: ClassVar[tuple[str, ...]] = ()
    initial: ClassVar[Mapping[str, float]] = {}

    def __init__(
        self,
        spike_grad: SpikeGrad | None = None,
        *,
        init_hidden: bool = False,
        output: bool = False,
        backend: str = "auto",
    ) -> None:
        super().__init__()
        if isinstance(spike_grad, SurrogateFactory):
            name = spike_grad.__name__
            raise TypeError(
                f"{type(self).__name__}(spike_grad={name}): expected a surrogate, which calling {name} makes. "
                f"Write spike_grad={name}()."
            )
        if spike_grad is not None and not callable(spike_grad):
            raise TypeError(
                f"{type(self).__name__}(spike_grad={spike_grad!r}): expected a surrogate, or any callable of "
                "mem - threshold. Pass for example snn_ipu.surrogate.fast_sigmoid()."
            )
        self.spike_grad: SpikeGrad = atan() if spike_grad is None else spike_grad
        self.init_hidden = init_hidden
        self.output = output
        self.backend = check_name(backend)
        self._param_names: tuple[str, ...] = ()
        for name in self.state_names:
            self.register_buffer(name, torch.zeros(0), persistent=False)

    def add_param(self, name: str, value: Value, learn: bool = False) -> None:
        """Register a value that the step takes: a learnable parameter or a buffer, a copy of a tensor given.

        A parameter, or a tensor with a gradient that is not to be learned, is kept as it is.
        """
        try:
            tensor = torch.as_tensor(value)
        except (TypeError, ValueError, RuntimeError) as error:
            raise TypeError(
                f"{type(self).__name__}({name}={value!r}): expected a number, or a tensor with one value per feature "
                f"({error}). Pass a float."
            ) from error
        if not tensor.is_floating_point():
            tensor = tensor.to(torch.get_default_dtype())
        if not isinstance(tensor, nn.Parameter) and (learn or not tensor.requires_grad):
            tensor = tensor.detach().clone()
        if learn:
            setattr(self, name, tensor if isinstance(tensor, nn.Parameter) else nn.Parameter(tensor))
        else:
            self.register_buffer(name, tensor)
        self._param_names = (*self._param_names, name)

    def params(self) -> dict[str, Tensor]:
        """The tensors that the step takes by name."""
        held, buffers = self._parameters, self._buffers
        found: dict[str, Any] = {}
        for name in self._param_names:
            # As getattr does, which would look in every other place first; what is parametrised or in a replica of
            # DataParallel is found there.
            found[name] = held[name] if name in held else buffers[name] if name in buffers else getattr(self, name)
        return found

    def flags(self) -> dict[str, Any]:
        """Arguments of the step that are fixed for the module, such as the reset mechanism."""
        return {}

    def forward(self, input_: Tensor, *states: Tensor | None, **named: Tensor | None) -> Any:
        """One time step.

        Args:
            input_: currents x [B, ...].
            states: as returned by the previous step, [B, ...] each, by position or by name; without them the module
                goes on from its own last state, the start values after `reset_mem`. Not allowed with
                `init_hidden=True`.

        Returns: `(spk, *states)`; with `init_hidden=True` only spk, unless `output=True`.

        Raises: TypeError for unknown states, or states with init_hidden; ShapeError for shapes that do not fit;
            UnsupportedError for a call without states in a model for an IPU.
        """
        state = self._given(states, named) if named or len(states) > len(self.state_names) else states
        if self.init_hidden and any(s is not None for s in state):
            raise TypeError(
                f"{type(self).__name__}(init_hidden=True) called with states: expected the input alone. "
                "Drop the states, or build the neuron with init_hidden=False."
            )
        kept = not traced_once(input_)
        if not (kept or states or named):
            raise UnsupportedError(
                f"{type(self).__name__}(x) in a model for an IPU: expected states, because modules keep none there. "
                "Start with mem = neuron.reset_mem() and go on with spk, mem = neuron(x, mem), or use unroll."
            )
        current = [getattr(self, n) if s is None else s for n, s in zip_longest(self.state_names, state)]
        spk, new = self.advance(input_, [None if isinstance(s, Tensor) and s.shape == (0,) else s for s in current])
        if kept:
            for name, value in zip(self.state_names, new):
                if name in self._buffers:
                    # As setattr does for a buffer, which would look the name up in every other place first.
                    self._buffers[name] = value
                else:
                    setattr(self, name, value)
        if self.init_hidden and not self.output:
            return spk
        return (spk, *(s for name, s in zip(self.state_names, new) if name != "spk"))

    def _given(self, states: Sequence[Tensor | None], named: Mapping[str, Tensor | None]) -> list[Tensor | None]:
        given = {**dict(zip(self.state_names, states)), **named}
        if len(given) != len(states) + len(named) or not given.keys() <= set(self.state_names):
            raise TypeError(
                f"{type(self).__name__}(x, {len(states)} states{''.join(f', {n}=...' for n in named)}): expected at "
                f"most {', '.join(self.state_names)}, each once. Pass what the step before returned."
            )
        return [given.get(n) for n in self.state_names]

    def advance(self, x: Tensor, state: Sequence[Tensor | None]) -> tuple[Tensor, State]:
        """One step from an explicit state; touches nothing of the module."""
        result = self._scan(x, state, single=True)
        return result.spk, result.states

    def sequence(
        self,
        x: Tensor,
        state: Sequence[Tensor | None] | None = None,
        *,
        num_steps: int | None = None,
        trace: str | Sequence[str] | None = None,
    ) -> Any:
        """All time steps in one fused call; touches nothing of the module.

        Args:
            x: input currents [T, B, ...]; or one frame [B, ...] that is repeated `num_steps` times.
            state: initial states by position, [B, ...] each; None starts from the neuron's start values.
            num_steps: T, for a static x.
            trace: a state's name, or several, of which every step is wanted.

        Returns: `(spk, state)`: spikes [T, B, ...] in x's dtype, final states [B, ...]; with `trace`, also the traced
            states [T, B, ...], one tensor each. States are float32, float64 for float64 input.

        Raises: ShapeError for shapes and dtypes that do not fit; UnsupportedError for a backend that cannot run it.
        """
        traced = _names(trace or ())
        spk, states, traces = self.run_sequence(x, state, num_steps, traced)
        return (spk, states, *(traces[name] for name in traced))

    def run_sequence(
        self,
        x: Tensor,
        state: Sequence[Tensor | None] | None,
        num_steps: int | None,
        traced: tuple[str, ...],
    ) -> tuple[Tensor, State, dict[str, Tensor]]:
        """`sequence` with traces by name."""
        return self._scan(x, state, num_steps=num_steps, traced=traced)

    def _scan(self, x: Tensor, state: Sequence[Tensor | None] | None, **how: Any) -> Result:
        return scan(
            type(self).__name__,
            type(self).step,
            self.state_names,
            x,
            state,
            self.params(),
            self.flags(),
            self.spike_grad,
            start=self.initial,
            backend=self.backend,
            operator=self.operator(*seen(self.spike_grad, self.flags())) if is_recording() else "",
            **how,
        )

    @constant_result
    def operator(self, *values: Any) -> str:
        """This neuron's name in graphs of torch.compile and torch.export; other `values` ask for a new one."""
        return register(
            type(self).step, self.state_names, self._param_names, self.flags(), self.spike_grad, self.backend
        )

    def reset_mem(self) -> Any:
        """Forget the hidden state; the next step starts anew, with any batch size. Returns the empty states."""
        for name in self.state_names:
            held = getattr(self, name)
            # PopTorch forbids to assign buffers, also empty ones, while it traces.
            if held is not None and held.shape != (0,):
                setattr(self, name, torch.zeros(0, device=held.device))
        states = tuple(getattr(self, name) for name in self.state_names)
        return states[0] if len(states) == 1 else states

    def detach_mem(self) -> None:
        """Cut the hidden state from the graph of earlier steps, as truncated backpropagation through time needs."""
        for name in self.state_names:
            setattr(self, name, getattr(self, name).detach())

    def __getstate__(self) -> dict[str, Any]:
        # Copies and pickles hold the values of the states, not the graph that made them.
        members = dict(self.__dict__)
        members["_buffers"] = {
            name: b.detach() if name in self.state_names and b is not None else b for name, b in self._buffers.items()
        }
        return members

    def extra_repr(self) -> str:
        def shown(tensor: Tensor) -> str:
            return f"{tensor.item():.4g}" if tensor.numel() == 1 else f"tensor{list(tensor.shape)}"

        parts = [
            f"{name}={shown(p)}" + (" (learned)" if isinstance(p, nn.Parameter) else "")
            for name, p in self.params().items()
        ]
        grad = self.spike_grad
        name = grad if isinstance(grad, Surrogate) else getattr(grad, "__name__", None) or type(grad).__name__
        parts += [f"spike_grad={name}"]
        parts += [f"{name}={value!r}" for name, value in self.flags().items()]
        return ", ".join([*parts, f"backend={self.backend!r}"])


def seen(spike_grad: SpikeGrad, flags: Mapping[str, Any]) -> tuple[Any, ...]:
    """What torch.compile has to read, so that it makes a new graph for another surrogate or other flags."""
    fixed = [value if isinstance(value, (bool, int, float, str, type(None))) else id(value) for value in flags.values()]
    if not isinstance(spike_grad, Surrogate):
        return (*flags, *fixed)
    return (*flags, *fixed, spike_grad.factory.serial, *(value for _, value in spike_grad.params))


def _keyword_only(step: Callable[..., Any], states: Sequence[str]) -> dict[str, float]:
    """The step's parameters with their defaults.

    Raises: TypeError where the step is not `step(x, *states, *, name=number, ...)`, or a name is taken.
    """
    parameters = list(inspect.signature(step).parameters.values())
    positional = [p.name for p in parameters if p.kind is not p.KEYWORD_ONLY]
    defaults = {p.name: p.default for p in parameters if p.kind is p.KEYWORD_ONLY}
    wrong = [n for n, v in defaults.items() if isinstance(v, bool) or not isinstance(v, (int, float))]
    if positional[1:] != list(states) or wrong:
        raise TypeError(
            f"neuron(states={tuple(states)}) on {step.__name__}{inspect.signature(step)}: expected the arguments "
            f"x, {', '.join(states)}, then keyword-only parameters with numbers as defaults"
            + (f"; {wrong[0]} has none. " if wrong else ". ")
            + f"Write def {step.__name__}(x, {', '.join(states)}, *, beta=0.9, ...)."
        )
    own = {*dir(SpikingNeuron), "step", "spike_grad", "init_hidden", "output", "backend", "training", "learn"}
    taken = [n for n in (*states, *defaults) if n in own]
    if taken:
        raise TypeError(
            f"neuron(states={tuple(states)}) on {step.__name__}{inspect.signature(step)}: {taken[0]} is an attribute "
            "of every neuron; expected names of its own for states and parameters. Choose another name."
        )
    return {name: float(value) for name, value in defaults.items()}


def _names(given: str | Iterable[str]) -> tuple[str, ...]:
    return (given,) if isinstance(given, str) else tuple(given)


def neuron(
    states: str | Sequence[str] | Mapping[str, float], learn: str | Sequence[str] = ()
) -> Callable[[Callable[..., Any]], type[SpikingNeuron]]:
    """Turn one step of plain torch into a neuron module that every backend compiles.

        @snn.neuron(states=("mem",))
        def integrator(x, mem, *, beta=0.9, threshold=1.0):
            mem = beta * mem + x
            return snn.spike(mem - threshold), mem

    A number that the step takes from outside, as a global or from a closure, is fixed when the step is first compiled.
    What is to change goes into the keyword-only parameters.

    Args:
        states: names of the states, in the order of the step's arguments; a mapping gives their start values.
        learn: parameters that are learned unless the module is told otherwise.

    Returns: a class; `integrator(beta=0.95, spike_grad=..., learn=("beta",))` makes a layer. Each parameter is a number
        or a tensor that broadcasts against the last dimensions of [B, ...].

    Raises: TypeError when the step's arguments are not x, the states, and keyword-only numbers.
    """
    names = _names(states)
    start = {n: float(v) for n, v in states.items() if v != 0} if isinstance(states, Mapping) else {}

    def decorate(step: Callable[..., Any]) -> type[SpikingNeuron]:
        defaults = _keyword_only(step, names)
        learned_by_default = _names(learn)

        def check_names(given: Sequence[str]) -> None:
            unknown = [n for n in given if n not in defaults]
            if unknown:
                raise TypeError(
                    f"{step.__name__}({unknown[0]}=...): expected parameters among {', '.join(defaults)}. "
                    "Add it to the step as a keyword-only argument."
                )

        check_names(learned_by_default)

        class Neuron(SpikingNeuron):
            def __init__(
                self,
                *,
                spike_grad: SpikeGrad | None = None,
                learn: str | Sequence[str] = learned_by_default,
                init_hidden: bool = False,
                output: bool = False,
                backend: str = "auto",
                **values: Value,
            ) -> None:
                super().__init__(spike_grad, init_hidden=init_hidden, output=output, backend=backend)
                learned = _names(learn)
                check_names((*values, *learned))
                for name, default in defaults.items():
                    self.add_param(name, values.get(name, default), name in learned)

        Neuron.step = staticmethod(step)
        Neuron.state_names = names
        Neuron.initial = start
        Neuron.__name__ = step.__name__
        Neuron.__qualname__ = step.__qualname__
        Neuron.__module__ = step.__module__
        Neuron.__doc__ = step.__doc__
        return Neuron

    return decorate


__all__ = ["ShapeError", "SpikingNeuron", "State", "Value", "neuron"]
