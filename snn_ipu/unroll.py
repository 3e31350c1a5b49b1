"""Run a network over time layer by layer: a neuron takes all its steps at once, any other layer all T * B frames."""

from __future__ import annotations

import operator
import weakref
from typing import Any, Callable, Dict, Mapping, NamedTuple

import torch
from torch import Tensor, fx, nn
from torch.nn import functional as F

from ._compat import random_state, sees_plain_torch_only
from .errors import BackendMissingError, BuildError, ShapeError, TraceError, UnsupportedError
from .neurons.base import SpikingNeuron, State

States = Dict[str, State]


class _Value:
    """A tensor computed from the network's input.

    `frames` is [T * B, ...], time first, where it varies over time; else it is the [B, ...] of every step.
    """

    def __init__(self, frames: Tensor, varies: bool):
        self.frames = frames
        self.varies = varies


class _Size(NamedTuple):
    """A number that follows from the batch size: for one frame, and for all T * B frames."""

    one: int
    all: int


def map_nested(change: Callable[[Any], Any], values: Any) -> Any:
    """Apply a function to every value in nested tuples, lists and dicts."""
    if isinstance(values, _Size):
        return change(values)
    if isinstance(values, tuple) and hasattr(values, "_fields"):
        return type(values)(*(map_nested(change, v) for v in values))
    if isinstance(values, (tuple, list)):
        return (tuple if isinstance(values, tuple) else list)(map_nested(change, v) for v in values)
    if isinstance(values, dict):
        return {k: map_nested(change, v) for k, v in values.items()}
    return change(values)


def _wrap(out: Any, varies: bool) -> Any:
    return map_nested(lambda v: _Value(v, varies) if isinstance(v, Tensor) else v, out)


def _state_path(net: nn.Module, tensor: Tensor) -> str | None:
    """The path of a neuron's state that is this tensor."""
    for path, module in net.named_modules():
        if isinstance(module, SpikingNeuron):
            for name in module.state_names:
                if module._buffers.get(name) is tensor:
                    return f"{path}.{name}"
    return None


def _holds_neurons(module: nn.Module) -> bool:
    return any(isinstance(m, SpikingNeuron) for m in module.modules())


class _LayerTracer(fx.Tracer):
    """Records a forward down to the neurons and the modules that hold none."""

    # A buffer is read when the network runs, not when it is traced.
    proxy_buffer_attributes = True

    def getattr(self, attr: str, attr_val: Any, parameter_proxy_cache: dict[str, Any]) -> Any:
        # The methods of a neuron, such as reset_mem(), see its states as they are.
        if isinstance(attr_val, Tensor) and _state_path(self.root, attr_val) is not None:
            return attr_val
        return super().getattr(attr, attr_val, parameter_proxy_cache)

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        return isinstance(m, SpikingNeuron) or not _holds_neurons(m)

    def create_args_for_root(self, root_fn: Any, is_module: bool, concrete_args: Any = None) -> tuple[Any, list[Any]]:
        return root_fn, [self.root, self.create_proxy("placeholder", "x", (), {})]

    def create_arg(self, a: Any) -> Any:
        if isinstance(a, Tensor) and not isinstance(a, nn.Parameter):
            path = _state_path(self.root, a)
            if path is not None:
                return self.create_node("get_attr", path, (), {})
            if a in self.tensor_attrs:
                return super().create_arg(a)
            raise TraceError(
                f"a tensor of shape {tuple(a.shape)} is made inside forward, so every call would reuse the first one; "
                "expected tensors computed from the input, parameters or buffers. Register it with register_buffer, or "
                "derive it from the input, as torch.zeros_like(x) or torch.randn_like(x) do"
            )
        return super().create_arg(a)


_graphs: weakref.WeakKeyDictionary[nn.Module, tuple[Any, fx.Graph]] = weakref.WeakKeyDictionary()


_OF_TORCH = frozenset(vars(nn.Module()))


def _structure(net: nn.Module) -> list[Any]:
    """What a trace depends on: the modules, and the plain attributes of those whose forward is traced."""
    structure: list[Any] = []
    for name, m in net.named_modules():
        structure.append((name, id(m)))
        if not isinstance(m, SpikingNeuron) and m._modules:
            simple = (bool, int, float, str, type(None))
            structure += [(k, v) for k, v in vars(m).items() if isinstance(v, simple)]
            containers = (tuple, list, dict)
            structure += [(k, repr(v)) for k, v in vars(m).items() if isinstance(v, containers) and k[:1] != "_"]
            # Tensors are looked up when the graph runs; of a function or another object, another one means a new trace.
            looked_up = (*simple, *containers, Tensor)
            own = ((k, v) for k, v in vars(m).items() if k not in _OF_TORCH and not isinstance(v, looked_up))
            structure += [(k, id(v)) for k, v in own]
    return structure


def _trace(net: nn.Module) -> fx.Graph:
    structure = _structure(net)
    known = _graphs.get(net)
    if known is not None and known[0] == structure:
        return known[1]
    if isinstance(net, SpikingNeuron):
        graph = fx.Graph()
        graph.output(graph.call_module("", (graph.placeholder("x"),)))
    else:
        before = random_state()
        try:
            graph = _LayerTracer().trace(net)
        except (fx.proxy.TraceError, TypeError, RuntimeError) as error:
            raise TraceError(
                f"unroll({type(net).__name__}): its forward cannot be traced ({error}). Expected one that maps one "
                "frame to one frame without Python control flow on tensors. Write the loop over time by hand, or move "
                "the control flow into a module of its own that holds no neuron."
            ) from error
        if random_state() != before:
            raise TraceError(
                f"unroll({type(net).__name__}): its forward decides by random numbers, which would be drawn once for "
                "good; expected layers such as nn.Dropout. Move the random part into a module that holds no neuron."
            )
    _graphs[net] = (structure, graph)
    return graph


# What gives the same values for any memory layout, changes nothing in place and keeps images channels-last.
_LAYOUT_FREE: frozenset[Any] = frozenset(
    (
        *(nn.Conv2d, nn.MaxPool2d, nn.AvgPool2d, nn.AdaptiveMaxPool2d, nn.AdaptiveAvgPool2d, nn.BatchNorm2d),
        *(nn.Linear, nn.Dropout, nn.Dropout2d, nn.ReLU, nn.Identity, nn.Flatten, nn.Sequential),
        *(F.relu, F.max_pool2d, F.avg_pool2d, torch.relu, torch.add, torch.flatten),
        *(operator.add, operator.mul, operator.getitem, getattr),
        *("flatten", "relu", "size"),
    )
)


def _is_layout_free(module: nn.Module) -> bool:
    hooks = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
    return all(
        type(m) in _LAYOUT_FREE
        and not any(getattr(m, name, None) for name in hooks)
        and not getattr(m, "inplace", False)
        and "forward" not in vars(m)
        for m in module.modules()
    )


def _convolves(module: nn.Module) -> bool:
    return any(isinstance(m, nn.Conv2d) and m.groups == 1 for m in module.modules())


def _may_relay(graph: fx.Graph, modules: Mapping[str, nn.Module], x: Tensor) -> bool:
    """Whether images may lie channels-last in a network, which torch's convolutions on a CPU are faster on.

    Only where nobody can tell: code that is not known may ask for one layout, or write through a view.
    """
    if x.device.type != "cpu" or x.dtype not in (torch.float32, torch.bfloat16, torch.float16):
        return False
    if sees_plain_torch_only():
        return False
    for node in graph.nodes:
        if node.op == "call_module":
            module = modules[node.target]
            if not isinstance(module, SpikingNeuron) and not _is_layout_free(module):
                return False
        elif node.op.startswith("call") and (node.target not in _LAYOUT_FREE or node.kwargs.get("inplace")):
            return False
    return True


def _channels_last(frames: Tensor) -> Tensor:
    """The same images [N, C, H, W] with the channels of a pixel side by side."""
    return frames if frames.stride(1) == 1 else frames.clone(memory_format=torch.channels_last)


def _called(node: fx.Node) -> str:
    name: str = getattr(node.target, "__name__", str(node.target))
    return name


class _Run:
    """One pass of a traced network over T steps."""

    def __init__(self, net: nn.Module, x: Tensor, num_steps: int | None, state: Mapping[str, State]):
        self.net = net
        self.x = x
        self.num_steps = num_steps
        self.steps, self.batch = (x.shape[0], x.shape[1]) if num_steps is None else (num_steps, x.shape[:1].numel())
        self.modules = dict(net.named_modules())
        self.given = state
        self.final: States = {}
        self.may_relay = False
        self.relaid = False

    def over_time(self, frames: Tensor) -> Tensor:
        return frames.reshape(self.steps, self.batch, *frames.shape[1:])

    def neuron(self, node: fx.Node, path: str, module: SpikingNeuron, input_: Any, *states: Any, **named: Any) -> Any:
        if path in self.final:
            raise TraceError(
                f"unroll: the neuron {path!r} is called twice in one step; expected once, since both calls would share "
                "one state. Use two neurons; a forward that loops over time itself is called as net(x), without unroll."
            )
        if any(s is not None for s in (*states, *named.values())):
            raise TraceError(
                f"unroll: forward hands states to the neuron {path!r}; expected the input alone, since unroll carries "
                "the states. Call it as lif(x), and pass initial states as unroll(..., state=...)."
            )
        shown = tuple(name for name in module.state_names if name != "spk")
        users = () if module.init_hidden and not module.output else tuple(node.users)
        indices = [
            u.args[1]
            for u in users
            if u.target is operator.getitem and u.args[0] is node and isinstance(u.args[1], (int, slice))
        ]
        traced = shown
        if len(indices) == len(users) and all(isinstance(i, int) for i in indices):
            wanted = {("spk", *shown)[i] for i in indices}
            traced = tuple(name for name in shown if name in wanted)
        elif not indices:
            traced = ()
        varies = isinstance(input_, _Value) and input_.varies
        if self.num_steps is None and not varies:
            raise ShapeError(
                f"unroll: the neuron {path!r} gets a value that does not vary over time; expected num_steps. "
                "Pass num_steps=, or feed the neuron from the input [T, B, ...]."
            )
        frames = input_.frames if isinstance(input_, _Value) else input_
        try:
            spk, final, traces = module.run_sequence(
                self.over_time(frames) if varies else frames,
                self.given.get(path),
                None if varies else self.num_steps,
                traced,
            )
        except (BackendMissingError, BuildError, ShapeError, UnsupportedError) as error:
            raise type(error)(f"layer {path!r}: {error}") from error
        self.final[path] = final
        spikes = _Value(spk.flatten(0, 1), varies=True)
        if not indices:
            return spikes
        return (spikes, *(_Value(traces[n].flatten(0, 1), varies=True) if n in traces else None for n in shown))

    def layer(self, node: fx.Node, function: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        """Call a stateless function once: on one frame where nothing varies over time, else on all T * B frames."""
        found: list[Any] = []
        map_nested(found.append, (args, kwargs))
        values = [v for v in found if isinstance(v, _Value)]
        if not values and any(isinstance(v, _Size) for v in found):
            return _Size(*(self.call(function, args, kwargs, varies) for varies in (False, True)))
        varies = any(v.varies for v in values)
        try:
            out = self.call(function, args, kwargs, varies)
        except RuntimeError as error:
            if type(error) is not RuntimeError:
                raise
            static = self.num_steps is not None
            given = f"unroll(x of shape {tuple(self.x.shape)}" + (f", num_steps={self.num_steps})" if static else ")")
            frames = ", ".join(f"{list(v.frames.shape)} of {v.frames.dtype}" for v in values)
            failed = f"{given}: {_called(node)!r} fails on frames {frames} ({error})"
            if self.final:
                raise RuntimeError(f"{failed}. Check what the layer before it gives.") from error
            remedy = "" if static else " Pass num_steps= if x is one static frame [B, ...]."
            remedy += "" if self.x.is_floating_point() else " Convert images by x.float() / 255."
            raise ShapeError(
                f"{failed}. Expected x {'[B, ...]' if static else '[T, B, ...]'}, and a network that takes such frames "
                f"[B, ...].{remedy}"
            ) from error
        if not varies:
            return _wrap(out, varies=False) if values else out

        def check(value: Any) -> Any:
            if isinstance(value, Tensor) and value.shape[:1] != (self.steps * self.batch,):
                raise TraceError(
                    f"unroll: {_called(node)} turns frames [T * B, ...] with T={self.steps}, B={self.batch} into shape "
                    f"{tuple(value.shape)}; expected an operation on each sample by itself, since all steps go through "
                    "it at once. Keep the batch dimension first, or write the loop over time by hand."
                )
            return value

        return _wrap(map_nested(check, out), varies=True)

    def call(self, function: Callable[..., Any], args: Any, kwargs: Any, varies: bool) -> Any:
        """Call a function on one frame, or on all T * B frames."""

        def plain(value: Any) -> Any:
            if isinstance(value, _Size):
                return value.all if varies else value.one
            if not isinstance(value, _Value):
                return value
            frames = value.frames
            if self.may_relay and frames.dim() == 4 and isinstance(function, nn.Module) and _convolves(function):
                self.relaid = True
                frames = _channels_last(frames)
            if varies and not value.varies and frames.dim() > 0 and frames.shape[0] == self.batch:
                return frames.expand(self.steps, *frames.shape).flatten(0, 1)
            return frames

        return function(*map_nested(plain, args), **map_nested(plain, kwargs))

    def shape(self, value: _Value) -> tuple[Any, ...]:
        first, rest = value.frames.shape[:1], value.frames.shape[1:]
        known = first == (self.steps * self.batch if value.varies else self.batch,)
        return (_Size(self.batch, self.steps * self.batch), *rest) if known else (*first, *rest)

    def attribute(self, node: fx.Node) -> Any:
        path = str(node.target)
        value: Any = self.net
        for part in path.split("."):
            value = getattr(value, part)
        owner, _, name = path.rpartition(".")
        module = self.modules.get(owner)
        if not isinstance(module, SpikingNeuron) or name not in module.state_names:
            return value
        # lif(x, lif.reset_mem()) starts from no state, as unroll does
        if value.shape == (0,) and all(u.op == "call_module" and u.args[0] is not node for u in node.users):
            return None
        raise TraceError(
            f"unroll: forward reads {path}, which unroll does not touch; expected the value that the call returns. "
            f"Write spk, {', '.join(n for n in module.state_names if n != 'spk')} = {owner}(x)."
        )

    def run(self, graph: fx.Graph) -> Any:
        self.may_relay = _may_relay(graph, self.modules, self.x)
        values: dict[fx.Node, Any] = {}
        for node in graph.nodes:
            args = fx.node.map_arg(node.args, values.__getitem__)
            kwargs = fx.node.map_arg(node.kwargs, values.__getitem__)
            if node.op == "placeholder":
                varies = self.num_steps is None
                values[node] = _Value(self.x.flatten(0, 1) if varies else self.x, varies)
            elif node.op == "get_attr":
                values[node] = self.attribute(node)
            elif node.op == "output":
                return args[0]
            elif node.op == "call_module":
                module = self.modules[node.target]
                if isinstance(module, SpikingNeuron):
                    values[node] = self.neuron(node, node.target, module, *args, **kwargs)
                else:
                    values[node] = self.layer(node, module, args, kwargs)
            elif node.target is getattr and isinstance(args[0], _Value) and args[1] == "shape":
                values[node] = self.shape(args[0])
            elif node.target == "size" and isinstance(args[0], _Value):
                dim = kwargs.get("dim", args[1] if len(args) > 1 else None)
                values[node] = self.shape(args[0]) if dim is None else self.shape(args[0])[dim]
            elif node.op == "call_method":
                values[node] = self.layer(
                    node, lambda me, *a, _n=node.target, **k: getattr(me, _n)(*a, **k), args, kwargs
                )
            elif node.target is operator.getitem and isinstance(args[0], tuple):
                values[node] = args[0][args[1]]
            else:
                values[node] = self.layer(node, node.target, args, kwargs)
        raise AssertionError("a traced graph ends with its output")


def unroll(
    net: nn.Module,
    x: Tensor,
    num_steps: int | None = None,
    *,
    state: Mapping[str, State] | None = None,
) -> tuple[Any, States]:
    """Run a one-step network over all time steps; equal to the loop `for t in range(T): net(x[t])` from no state.

    The network's forward is written for one frame [B, ...]. A neuron gets all its steps in one call; it stands for its
    spikes, or, unpacked as `spk, mem = self.lif(x)`, for spikes and states. A module without neurons inside sees T * B
    frames in one call, and whatever is fed by a static input alone is computed once. BatchNorm takes its statistics
    over all T * B frames and Dropout draws a mask per frame; a loop over steps would do both once per step. The hidden
    state of the modules is neither read nor changed.

    Args:
        net: a feed-forward module, residual branches included; torch.fx traces its forward down to the modules that
            hold no neurons.
        x: input [T, B, ...]; or [B, ...] with `num_steps`, the same frame at every step.
        num_steps: T for a static x.
        state: states to start from, by the neuron's path in `net`, as returned by an earlier call.

    Returns: `(out, state)`: what forward returns with a leading time axis [T, B, ...], and each neuron's final states
        by its path.

    Raises: ShapeError where time is missing or shapes do not fit; TraceError for a forward that cannot be traced, draws
        random numbers, calls a neuron twice, has hooks on neurons, or, as far as shapes show, mixes samples of the
        batch; ValueError for states of a path that is no neuron.
    """
    if not isinstance(net, nn.Module):
        raise TypeError(f"unroll({net!r}, x): expected a torch.nn.Module. Wrap the function in one.")
    if not isinstance(x, Tensor):
        raise ShapeError(f"unroll(net, {type(x).__name__}): expected a tensor. Convert the input with torch.as_tensor.")
    if num_steps is not None and (isinstance(num_steps, bool) or not isinstance(num_steps, int) or num_steps < 1):
        raise ValueError(f"unroll(num_steps={num_steps!r}): expected a positive int of time steps.")
    if x.dim() < (2 if num_steps is None else 1):
        raise ShapeError(
            f"unroll(x of shape {tuple(x.shape)}, num_steps={num_steps}): expected [T, B, ...], or [B, ...] with "
            "num_steps=. Add the missing dimensions."
        )
    run = _Run(net, x, num_steps, state or {})
    for path, m in run.modules.items():
        if (m._forward_hooks or m._forward_pre_hooks) and _holds_neurons(m):
            raise TraceError(
                f"unroll: {path!r} holds neurons and has forward hooks, which expect one step at a time; expected "
                "hooks on layers without neurons. Remove them, or run net(x) step by step."
            )
    for path in run.given:
        if not isinstance(run.modules.get(path), SpikingNeuron):
            neurons = [n for n, m in run.modules.items() if isinstance(m, SpikingNeuron)]
            raise ValueError(
                f"unroll(state={{{path!r}: ...}}): expected paths among {neurons}. Use those of this network."
            )
    out = run.run(_trace(net))
    if not run.final:
        raise TraceError(
            f"unroll({type(net).__name__}): it has no spiking neuron, so nothing depends on time. Call it directly."
        )

    def plain(value: Tensor) -> Tensor:
        return value.contiguous() if run.relaid else value

    def with_time(value: Any) -> Any:
        if isinstance(value, _Size):
            return value.one
        if isinstance(value, _Value) and value.varies:
            return run.over_time(plain(value.frames))
        value = plain(value.frames) if isinstance(value, _Value) else value
        return value.expand(run.steps, *value.shape) if isinstance(value, Tensor) else value

    final = {path: tuple(map(plain, states)) for path, states in run.final.items()}
    return map_nested(with_time, out), final
