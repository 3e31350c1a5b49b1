"""Run a network over time layer by layer: a neuron takes all its steps at once, any other layer all T * B frames."""

from __future__ import annotations

import operator
import weakref
from typing import Any, Callable, Dict, Mapping

from torch import Tensor, fx, nn

from .errors import ShapeError, TraceError
from .neurons.base import SpikingNeuron, State

States = Dict[str, State]


class _Sequence:
    """A value with a time axis, kept as frames [T * B, ...]."""

    def __init__(self, frames: Tensor, num_steps: int):
        self.frames = frames
        self.num_steps = num_steps

    @classmethod
    def of(cls, over_time: Tensor) -> _Sequence:
        return cls(over_time.flatten(0, 1), over_time.shape[0])

    def over_time(self) -> Tensor:
        batch = self.frames.shape[0] // max(self.num_steps, 1)
        return self.frames.reshape(self.num_steps, batch, *self.frames.shape[1:])


class _LayerTracer(fx.Tracer):
    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        return isinstance(m, SpikingNeuron) or super().is_leaf_module(m, module_qualified_name)


_graphs: weakref.WeakKeyDictionary[nn.Module, tuple[Any, fx.Graph]] = weakref.WeakKeyDictionary()


def _structure(net: nn.Module) -> tuple[Any, ...]:
    return tuple((name, id(m), m.training) for name, m in net.named_modules())


def _trace(net: nn.Module) -> fx.Graph:
    structure = _structure(net)
    known = _graphs.get(net)
    if known is not None and known[0] == structure:
        return known[1]
    if isinstance(net, SpikingNeuron):
        graph = fx.Graph()
        graph.output(graph.call_module("", (graph.placeholder("x"),)))
    else:
        try:
            graph = _LayerTracer().trace(net)
        except (fx.proxy.TraceError, TypeError) as error:
            raise TraceError(
                f"unroll({type(net).__name__}): its forward cannot be traced ({error}). Expected one that maps one "
                "frame to one frame without Python control flow on tensors. Write the loop over time by hand, or move "
                "the control flow into a module of its own."
            ) from error
    _graphs[net] = (structure, graph)
    return graph


class _Run:
    """One pass of a traced network over T steps."""

    def __init__(self, net: nn.Module, num_steps: int | None, state: Mapping[str, State]):
        self.net = net
        self.num_steps = num_steps
        self.modules = dict(net.named_modules())
        self.given = state
        self.final: States = {}

    def neuron(self, node: fx.Node, path: str, module: SpikingNeuron, value: Any) -> Any:
        if path in self.final:
            raise TraceError(
                f"unroll: the neuron {path!r} is called twice in one step; expected once, since both calls would share "
                "one state. Use two neurons, or write the loop over time by hand."
            )
        picks = [u.args[1] for u in node.users if u.target is operator.getitem and u.args[0] is node]
        wanted = {i for i in picks if isinstance(i, int)}
        shown = [name for name in module.state_names if name != "spk"]
        traced = tuple(name for i, name in enumerate(shown, start=1) if i in wanted)
        state = self.given.get(path)
        if isinstance(value, _Sequence):
            spk, final, traces = module.run_sequence(value.over_time(), state, None, traced)
        else:
            if self.num_steps is None:
                raise ShapeError(
                    f"unroll: the neuron {path!r} gets a value without a time axis; expected num_steps. "
                    "Pass num_steps=, or an input [T, B, ...]."
                )
            spk, final, traces = module.run_sequence(value, state, self.num_steps, traced)
        self.final[path] = final
        spikes = _Sequence.of(spk)
        if not wanted:
            return spikes
        return (spikes, *(_Sequence.of(traces[n]) if n in traces else None for n in shown))

    def layer(self, function: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        """Call a stateless function once: on the frame where nothing varies over time, else on all T * B frames."""
        steps: list[int] = []
        fx.node.map_aggregate((args, kwargs), lambda v: steps.append(v.num_steps) if isinstance(v, _Sequence) else None)
        if not steps:
            return function(*args, **kwargs)
        num_steps = steps[0]
        batch: list[int] = []
        fx.node.map_aggregate(
            (args, kwargs),
            lambda v: batch.append(v.frames.shape[0] // num_steps) if isinstance(v, _Sequence) else None,
        )

        def frames(value: Any) -> Any:
            if isinstance(value, _Sequence):
                return value.frames
            if isinstance(value, Tensor) and value.dim() > 0 and value.shape[0] == batch[0]:
                return value.expand(num_steps, *value.shape).flatten(0, 1)
            return value

        args, kwargs = fx.node.map_aggregate(args, frames), fx.node.map_aggregate(kwargs, frames)
        out = function(*args, **kwargs)

        def varying(value: Any) -> Any:
            return _Sequence(value, num_steps) if isinstance(value, Tensor) and value.dim() > 0 else value

        return fx.node.map_aggregate(out, varying)

    def attribute(self, path: str) -> Any:
        value: Any = self.net
        for part in path.split("."):
            value = getattr(value, part)
        return value

    def run(self, graph: fx.Graph, x: Any) -> Any:
        values: dict[fx.Node, Any] = {}
        inputs = iter((x,))
        for node in graph.nodes:
            args = fx.node.map_arg(node.args, values.__getitem__)
            kwargs = fx.node.map_arg(node.kwargs, values.__getitem__)
            if node.op == "placeholder":
                values[node] = next(inputs, node.args[0] if node.args else None)
            elif node.op == "get_attr":
                values[node] = self.attribute(node.target)
            elif node.op == "output":
                return args[0]
            elif node.op == "call_module":
                module = self.modules[node.target]
                if isinstance(module, SpikingNeuron):
                    values[node] = self.neuron(node, node.target, module, args[0])
                else:
                    values[node] = self.layer(module, args, kwargs)
            elif node.op == "call_method":
                values[node] = self.layer(lambda me, *a, _n=node.target, **k: getattr(me, _n)(*a, **k), args, kwargs)
            elif node.target is operator.getitem and isinstance(args[0], tuple):
                values[node] = args[0][args[1]]
            else:
                values[node] = self.layer(node.target, args, kwargs)
        raise AssertionError("a traced graph ends with its output")


def unroll(
    net: nn.Module,
    x: Tensor,
    num_steps: int | None = None,
    *,
    state: Mapping[str, State] | None = None,
) -> tuple[Any, States]:
    """Run a one-step network over all time steps; equal to the loop `for t in range(T): net(x[t])` from no state.

    The network's forward is written for one frame [B, ...]; neurons are leaves and get all their steps at once, every
    other layer sees T * B frames in one call, and whatever is fed by a static input alone is computed once. BatchNorm
    takes its statistics over all T * B frames and Dropout draws a mask per frame; a loop over steps would do both once
    per step.

    Args:
        net: any feed-forward module that torch.fx can trace, residual branches included.
        x: input [T, B, ...]; or [B, ...] with `num_steps`, the same frame at every step.
        num_steps: T for a static x.
        state: states to start from, by the neuron's path in `net`, as returned by an earlier call.

    Returns: `(out, state)`: what forward returns with a leading time axis [T, B, ...], and each neuron's final states
        by its path.

    Raises: ShapeError where time is missing or shapes do not fit; TraceError for a forward that cannot be traced;
        ValueError for states of a path that is no neuron.
    """
    if num_steps is None and x.dim() < 2:
        raise ShapeError(
            f"unroll(x of shape {tuple(x.shape)}): expected [T, B, ...]. Pass num_steps= for one static frame."
        )
    if num_steps is not None and (isinstance(num_steps, bool) or not isinstance(num_steps, int) or num_steps < 1):
        raise ValueError(f"unroll(num_steps={num_steps!r}): expected a positive whole number of time steps.")
    run = _Run(net, num_steps, state or {})
    for path in run.given:
        if not isinstance(run.modules.get(path), SpikingNeuron):
            neurons = [n for n, m in run.modules.items() if isinstance(m, SpikingNeuron)]
            raise ValueError(
                f"unroll(state={{{path!r}: ...}}): expected paths among {neurons}. Use those of this network."
            )
    out = run.run(_trace(net), x if num_steps is not None else _Sequence.of(x))
    if not run.final:
        raise TraceError(
            f"unroll({type(net).__name__}): it has no spiking neuron, so nothing depends on time. Call it directly."
        )

    def with_time(value: Any) -> Any:
        return value.over_time() if isinstance(value, _Sequence) else value

    return _map_output(out, with_time), run.final


def _map_output(out: Any, change: Callable[[Any], Any]) -> Any:
    if isinstance(out, (tuple, list)):
        return type(out)(_map_output(v, change) for v in out)
    if isinstance(out, dict):
        return {k: _map_output(v, change) for k, v in out.items()}
    return change(out)
