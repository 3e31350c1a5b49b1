"""Trace a neuron step or a surrogate expression with torch.fx and lower it to a `Program`."""

from __future__ import annotations

import linecache
import operator
import sys
import traceback
from types import FrameType
from typing import Any, Callable, Iterable, Mapping, Sequence, Union

import torch
from torch import fx

from .._compat import random_state
from ..errors import TraceError, UnsupportedError
from ..surrogate import Expression, Surrogate, spike
from .program import BOOL_OPS, REAL_OPS, Graph, Program

Value = Union[int, float, bool]
Lowering = Callable[..., int]


class _Lower:
    """Translates one recorded torch call at a time into graph nodes."""

    def __init__(self, graph: Graph, surrogate: Surrogate | None):
        self.graph = graph
        self.surrogate = surrogate

    def node(self, value: Value) -> int:
        return value.index if isinstance(value, _Index) else self.graph.const(float(value))

    def real(self, value: Value) -> int:
        """The value as a number: comparisons become 0 or 1."""
        index = self.node(value)
        return self.graph.add("cast", index) if self.graph.nodes[index].is_bool else index

    def is_truth(self, value: Value) -> bool:
        """Whether the value is a comparison; torch adds two of them as `or`."""
        return isinstance(value, _Index) and self.graph.nodes[value.index].is_bool

    def truth(self, value: Value) -> int:
        index = self.node(value)
        return index if self.graph.nodes[index].is_bool else self.graph.add("ne", index, self.graph.const(0.0))


class _Index:
    """A graph node as a Python value; distinguishes nodes from plain numbers among a call's arguments."""

    def __init__(self, index: int):
        self.index = index


def _plain(op: str) -> Lowering:
    arity = {**REAL_OPS, **BOOL_OPS}[op]

    def lower(to: _Lower, *args: Value, alpha: Value = 1) -> int:
        if len(args) != arity:
            raise TypeError(f"{len(args)} arguments where {arity} are expected")
        if op == "add" and alpha == 1 and all(to.is_truth(a) for a in args):
            return to.graph.add("or", *map(to.node, args))
        operands = [to.real(a) for a in args]
        if alpha != 1:
            operands[1] = to.graph.add("mul", operands[1], to.real(alpha))
        return to.graph.add(op, *operands)

    return lower


def _reflected(op: str) -> Lowering:
    return lambda to, a, b: to.graph.add(op, to.real(b), to.real(a))


def _logical(op: str) -> Lowering:
    return lambda to, *args: to.graph.add(op, *(to.truth(a) for a in args))


def _bitwise(op: str) -> Lowering:
    def lower(to: _Lower, *args: Value) -> int:
        for a in args:
            if not isinstance(a, bool) and not to.graph.nodes[to.node(a)].is_bool:
                raise TypeError("bits of numbers; expected comparisons. Use torch.where or torch.logical_and")
        return to.graph.add(op, *(to.truth(a) for a in args))

    return lower


def _pow(to: _Lower, base: Value, exponent: Value) -> int:
    b, e = to.real(base), to.real(exponent)
    value = to.graph.constant(e)
    if value == 2:
        return to.graph.add("mul", b, b)
    if value == 0.5:
        return to.graph.add("sqrt", b)
    if value in (-1, -2):
        return to.graph.add("div", to.graph.const(1.0), b if value == -1 else to.graph.add("mul", b, b))
    return to.graph.add("pow", b, e)


def _clamp(to: _Lower, u: Value, min: Value | None = None, max: Value | None = None) -> int:
    out, add = to.real(u), to.graph.add
    low = None if min is None else to.real(min)
    high = None if max is None else to.real(max)
    if low is not None:
        bound = low
        if high is not None and to.graph.constant(low) is None:
            # torch gives a lower bound no gradient where the bounds are equal.
            bound = add("where", add("lt", low, high), low, add("detach", low))
        out = add("where", add("lt", out, low), bound, out)
    if high is not None:
        out = add("where", add("gt", out, high), high, out)
    return out


def _where(to: _Lower, condition: Value, a: Value, b: Value) -> int:
    chosen = to.truth(condition)
    if to.is_truth(a) and to.is_truth(b):
        otherwise = to.graph.add("and", to.graph.add("not", chosen), to.node(b))
        return to.graph.add("or", to.graph.add("and", chosen, to.node(a)), otherwise)
    return to.graph.add("where", chosen, to.real(a), to.real(b))


def _relu(to: _Lower, u: Value, inplace: bool = False) -> int:
    if inplace:
        raise TypeError("inplace=True changes its argument")
    index, zero = to.real(u), to.graph.const(0.0)
    return to.graph.add("where", to.graph.add("le", index, zero), zero, index)


def _extremum(op: str) -> Lowering:
    def lower(to: _Lower, a: Value, b: Value) -> int:
        if not isinstance(a, _Index) or not isinstance(b, _Index):
            raise TypeError("two tensors are expected, not a tensor and a dimension")
        return to.graph.add(op, to.real(a), to.real(b))

    return lower


def _to_real(to: _Lower, u: Value, *targets: Any, **keywords: Any) -> int:
    for dtype in (*targets, *keywords.values()):
        if isinstance(dtype, torch.dtype) and dtype not in (torch.float32, torch.float64):
            raise TypeError(f"a cast to {dtype} would round")
        if isinstance(dtype, _Index) and to.graph.nodes[dtype.index].is_bool:
            raise TypeError("a cast to the type of a comparison would round")
    return to.real(u)


def _attribute(to: _Lower, u: Value, name: str) -> int:
    if name not in ("dtype", "device"):
        raise TypeError(f"the attribute .{name} has no value in a kernel")
    return to.graph.const(0.0)


def _like(value: float) -> Lowering:
    return lambda to, u, *_, **__: to.graph.const(value)


def _full_like(to: _Lower, u: Value, fill_value: Value) -> int:
    return to.real(fill_value)


def _spike(to: _Lower, u: Value) -> int:
    if to.surrogate is None:
        raise TraceError("spike(u) inside a surrogate expression: expected plain arithmetic. Use torch.where.")
    index = to.real(u)
    if to.surrogate.smooth:
        assert to.surrogate.factory.primitive is not None
        value = _inline(to.graph, to.surrogate, to.surrogate.factory.primitive, index)
        return to.graph.add("spike", index, value)
    return to.graph.add("spike", index)


def _detach(to: _Lower, u: Value) -> int:
    if to.is_truth(u):
        return to.node(u)
    index = to.real(u)
    return index if to.surrogate is not None and to.surrogate.smooth else to.graph.add("detach", index)


def _one_of(*names: str) -> tuple[Any, ...]:
    return tuple(f for owner in (torch, operator, torch.special) for n in names if (f := getattr(owner, n, None)))


_TABLE: dict[str, tuple[Lowering, tuple[str, ...]]] = {
    "+": (_plain("add"), ("add",)),
    "-": (_plain("sub"), ("sub", "subtract")),
    "r-": (_reflected("sub"), ("rsub",)),
    "*": (_plain("mul"), ("mul", "multiply")),
    "/": (_plain("div"), ("div", "divide", "truediv", "true_divide")),
    "**": (_pow, ("pow",)),
    "+u": (_to_real, ("pos", "positive")),
    "-u": (_plain("neg"), ("neg", "negative")),
    ">": (_plain("gt"), ("gt", "greater")),
    ">=": (_plain("ge"), ("ge", "greater_equal")),
    "<": (_plain("lt"), ("lt", "less")),
    "<=": (_plain("le"), ("le", "less_equal")),
    "==": (_plain("eq"), ("eq",)),
    "!=": (_plain("ne"), ("ne", "not_equal")),
    "&": (_bitwise("and"), ("and_", "bitwise_and", "__and__")),
    "|": (_bitwise("or"), ("or_", "bitwise_or", "__or__")),
    "~": (_bitwise("not"), ("invert", "bitwise_not", "__invert__")),
    "logical_and": (_logical("and"), ("logical_and",)),
    "logical_or": (_logical("or"), ("logical_or",)),
    "logical_not": (_logical("not"), ("logical_not",)),
    "where": (_where, ("where",)),
    "clamp": (_clamp, ("clamp", "clip")),
    "clamp_min": (lambda to, u, min: _clamp(to, u, min=min), ("clamp_min",)),
    "clamp_max": (lambda to, u, max: _clamp(to, u, max=max), ("clamp_max",)),
    "minimum": (_extremum("min"), ("minimum", "min")),
    "maximum": (_extremum("max"), ("maximum", "max")),
    "relu": (_relu, ("relu",)),
    "exp": (_plain("exp"), ("exp",)),
    "log": (_plain("log"), ("log",)),
    "sqrt": (_plain("sqrt"), ("sqrt",)),
    "tanh": (_plain("tanh"), ("tanh",)),
    "sigmoid": (_plain("sigmoid"), ("sigmoid", "expit")),
    "erf": (_plain("erf"), ("erf",)),
    "atan": (_plain("atan"), ("atan", "arctan")),
    "abs": (_plain("abs"), ("abs", "absolute")),
    "sign": (_plain("sign"), ("sign",)),
    "square": (lambda to, u: _pow(to, u, 2), ("square",)),
    "reciprocal": (lambda to, u: _pow(to, u, -1), ("reciprocal",)),
    "detach": (_detach, ("detach",)),
    "float/to": (_to_real, ("float", "double", "to", "type_as", "clone")),
    "zeros_like": (_like(0.0), ("zeros_like",)),
    "ones_like": (_like(1.0), ("ones_like",)),
    "full_like": (_full_like, ("full_like",)),
}
ALLOWED = ", ".join(_TABLE) + ", snn_ipu.spike"
_METHODS: dict[str, Lowering] = {name: lower for lower, names in _TABLE.values() for name in names}
_METHODS["where"] = lambda to, u, condition, other: _where(to, condition, u, other)
_FUNCTIONS: dict[Any, Lowering] = {f: lower for lower, names in _TABLE.values() for f in _one_of(*names)}
_FUNCTIONS[torch.nn.functional.relu] = _relu
_FUNCTIONS[spike] = _spike
_FUNCTIONS[getattr] = _attribute


def _user_line(frames: Iterable[tuple[FrameType, int]]) -> str:
    """File, number and text of the first line that is neither torch's nor this package's way of tracing."""
    for frame, number in frames:
        name = frame.f_code.co_filename
        module = frame.f_globals.get("__name__", "")
        if module.split(".")[0] not in ("torch", "numpy") and module not in (__name__, spike.__module__):
            return f"{name}:{number}: {linecache.getline(name, number).strip()}"
    return "unknown line"


class _Tracer(fx.proxy.GraphAppendingTracer):
    """Records torch calls and the source line each came from."""

    def __init__(self, graph: fx.Graph, subject: str):
        super().__init__(graph)
        self.subject = subject
        self.lines: dict[fx.Node, str] = {}

    def where(self) -> str:
        return _user_line(traceback.walk_stack(sys._getframe(1)))

    def create_node(self, *args: Any, **kwargs: Any) -> fx.Node:
        if not torch.is_grad_enabled():
            raise TraceError(
                f"{self.subject} at {self.where()}: torch.no_grad() inside; expected plain arithmetic. "
                "Call .detach() on what should have no gradient."
            )
        node = super().create_node(*args, **kwargs)
        self.lines[node] = self.where()
        return node

    def create_arg(self, a: Any) -> Any:
        if isinstance(a, torch.Tensor):
            if a.numel() != 1 or a.requires_grad:
                kind = "learnable" if a.requires_grad else "constant"
                raise TraceError(
                    f"{self.subject} at {self.where()}: a {kind} tensor of shape {tuple(a.shape)} from outside; "
                    "expected numbers. Make it a keyword parameter of the step."
                )
            return float(a)
        return super().create_arg(a)

    def to_bool(self, obj: fx.Proxy) -> bool:
        raise TraceError(
            f"{self.subject} at {self.where()}: Python `if`, `and`, `or` or `not` on a tensor; expected branch-free "
            f"arithmetic. Allowed: {ALLOWED}. Use torch.where, & or |, or run it with backend='reference'."
        )

    def iter(self, obj: fx.Proxy) -> Any:
        raise TraceError(
            f"{self.subject} at {self.where()}: a tensor is unpacked or iterated; expected element-wise arithmetic. "
            f"Allowed: {ALLOWED}. Or run it with backend='reference'."
        )


def _record(
    fn: Callable[..., Any],
    subject: str,
    args: Sequence[str],
    kwargs: Mapping[str, Any],
    flags: Mapping[str, Any],
) -> tuple[_Tracer, Any]:
    recorded = fx.Graph()
    tracer = _Tracer(recorded, subject)

    def proxy(name: str) -> Any:
        return fx.Proxy(recorded.placeholder(name), tracer)

    before = random_state()
    try:
        with torch.enable_grad():
            out = fn(*(proxy(a) for a in args), **{k: proxy(v) for k, v in kwargs.items()}, **flags)
    except (ArithmeticError, AttributeError, LookupError, RuntimeError, TypeError, ValueError) as error:
        if isinstance(error, TraceError) and str(error).startswith(subject):
            raise
        line = _user_line(reversed(list(traceback.walk_tb(error.__traceback__))))
        remedy = "" if isinstance(error, TraceError) else f" Allowed: {ALLOWED}. Or run it with backend='reference'."
        raise TraceError(f"{subject} at {line}: {str(error).rstrip('.')}.{remedy}") from error
    if random_state() != before:
        raise TraceError(
            f"{subject} draws random numbers, which a kernel would draw once for all steps; expected arithmetic on its "
            "arguments. Add the noise to x, or run it with backend='reference'."
        )
    return tracer, out


def _lower(tracer: _Tracer, to: _Lower, env: dict[str, int], out: Any) -> Any:
    values: dict[fx.Node, _Index] = {}

    def argument(value: Any) -> Any:
        if isinstance(value, fx.Node):
            return values[value]
        if isinstance(value, fx.Proxy):
            return values[value.node]
        if isinstance(value, torch.Tensor) and value.numel() == 1:
            return float(value)
        return value

    for node in tracer.graph.nodes:
        if node.op == "placeholder":
            values[node] = _Index(env[node.target])
            continue
        table: Mapping[Any, Lowering] = _METHODS if node.op == "call_method" else _FUNCTIONS
        lower = table.get(node.target)
        if lower is None:
            name = node.target if isinstance(node.target, str) else getattr(node.target, "__name__", node.target)
            raise TraceError(
                f"{tracer.subject} at {tracer.lines[node]}: `{name}` cannot become a kernel. "
                f"Allowed: {ALLOWED}. Rewrite the line with these, or run it with backend='reference'."
            )
        try:
            values[node] = _Index(
                lower(to, *map(argument, node.args), **{k: argument(v) for k, v in node.kwargs.items()})
            )
        except (TypeError, ValueError) as error:
            if isinstance(error, TraceError):
                raise
            raise TraceError(
                f"{tracer.subject} at {tracer.lines[node]}: arguments that a kernel does not take "
                f"({str(error).split('() ')[-1]}). Allowed: {ALLOWED}. Use the element-wise form of the operation, "
                "or run it with backend='reference'."
            ) from error
    wrong = [o for o in out if not isinstance(o, (fx.Proxy, torch.Tensor, int, float))]
    if wrong:
        raise TraceError(f"{tracer.subject} returned {wrong[0]!r}; expected tensors like x. Return one per output.")
    return [to.real(argument(o)) for o in out]


def _inline(graph: Graph, surrogate: Surrogate, expression: Expression, u: int) -> int:
    """Trace an expression of the surrogate on node u into the graph; its parameters are scalar inputs."""
    names = [n for n, _ in surrogate.params]
    subject = f"surrogate {surrogate.factory.__name__}"
    tracer, out = _record(expression, subject, ["u", *names], {}, {})
    env = {"u": u, **{n: graph.input(f"spike_param:{n}") for n in names}}
    return int(_lower(tracer, _Lower(graph, None), env, [out])[0])


def inline_surrogate(graph: Graph, surrogate: Surrogate, u: int) -> int:
    """The node of d spk / d u at node u."""
    return _inline(graph, surrogate, surrogate.factory.expression, u)


def check_outputs(fn: Callable[..., Any], out: Any, states: Sequence[str]) -> None:
    """Refuse what a step returned where it is not spk and the new states; raises UnsupportedError."""
    if isinstance(out, (tuple, list)) and len(out) == 1 + len(states):
        return
    found = f"{len(out)} values" if isinstance(out, (tuple, list)) else "one value"
    raise UnsupportedError(
        f"step {fn.__name__} returned {found}; expected a tuple of spk and {len(states)} new states. "
        f"Return ({', '.join(('spk', *states))})."
    )


def _chosen(fn: Callable[..., Any], flags: Mapping[str, Any]) -> str:
    """The flags that differ from the step's own defaults, which are what its user has asked for."""
    defaults = getattr(fn, "__kwdefaults__", None) or {}
    chosen = [(name, value) for name, value in flags.items() if name not in defaults or defaults[name] != value]
    shown = [f"{name}={getattr(value, '__name__', None) or repr(value)}" for name, value in chosen]
    return f" with {', '.join(shown)}" if shown else ""


def trace(
    fn: Callable[..., Any],
    states: Sequence[str],
    params: Sequence[str],
    flags: Mapping[str, Any],
    surrogate: Surrogate,
) -> Program:
    """Trace `fn(x, *states, **params, **flags) -> (spk, *new_states)` to a program.

    Args:
        fn: the neuron's step in plain torch.
        states, params: names of the tensors; flags: values that are resolved while tracing.
        surrogate: what `spike` differentiates with; its expression must be traceable too.

    Raises: TraceError that names the line and the allowed operations; UnsupportedError for too few or too many values.
    """
    subject = f"step {fn.__name__}{_chosen(fn, flags)}"
    tracer, out = _record(fn, subject, ["x", *states], {p: f"param_{p}" for p in params}, flags)
    check_outputs(fn, out, states)
    graph = Graph()
    env = {"x": graph.input("x"), **{s: graph.input(f"state:{s}") for s in states}}
    env.update({f"param_{p}": graph.input(f"param:{p}") for p in params})
    spk, *new_states = _lower(tracer, _Lower(graph, surrogate), env, out)
    program = Program(
        name=fn.__name__,
        graph=graph,
        states=tuple(states),
        params=tuple(params),
        spike_params=tuple(n for n, _ in surrogate.params),
        spk=spk,
        new_states=tuple(new_states),
    )
    for index in [i for i, n in enumerate(graph.nodes) if n.op == "spike"]:
        program.spike_grad[index] = inline_surrogate(graph, surrogate, graph.nodes[index].args[0])
    return program


__all__ = ["ALLOWED", "check_outputs", "inline_surrogate", "trace"]
