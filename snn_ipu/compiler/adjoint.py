"""Reverse-mode differentiation of a traced step: one rule per operation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Callable, Iterable, Optional, Sequence, Tuple

from .program import BOOL_OPS, Graph, Program

Rule = Callable[[Graph, Tuple[int, ...], int, int], Sequence[Optional[int]]]


def _keep(g: Graph, condition: int, grad: int) -> int:
    return g.add("where", condition, grad, g.const(0.0))


def _extremum(prefer: str) -> Rule:
    def rule(g: Graph, args: tuple[int, ...], out: int, grad: int) -> list[int | None]:
        a, b = args
        half = g.add("mul", grad, g.const(0.5))
        tie = g.add("eq", a, b)
        return [
            g.add("where", tie, half, _keep(g, g.add(prefer, a, b), grad)),
            g.add("where", tie, half, _keep(g, g.add(prefer, b, a), grad)),
        ]

    return rule


def _pow(g: Graph, args: tuple[int, ...], out: int, grad: int) -> list[int | None]:
    base, exponent = args
    zero = g.const(0.0)
    slope = g.add("mul", exponent, g.add("pow", base, g.add("sub", exponent, g.const(1.0))))
    growth = g.add("mul", out, g.add("log", base))
    if g.constant(exponent) is None:
        slope = g.add("where", g.add("eq", exponent, zero), zero, slope)
    elif g.constant(exponent) == 0:
        slope = zero
    flat = g.add("and", g.add("eq", base, zero), g.add("ge", exponent, zero))
    return [g.add("mul", grad, slope), g.add("mul", grad, g.add("where", flat, zero, growth))]


def _sigmoid(g: Graph, args: tuple[int, ...], out: int, grad: int) -> list[int | None]:
    return [g.add("mul", grad, g.add("mul", out, g.add("sub", g.const(1.0), out)))]


def _tanh(g: Graph, args: tuple[int, ...], out: int, grad: int) -> list[int | None]:
    return [g.add("mul", grad, g.add("sub", g.const(1.0), g.add("mul", out, out)))]


def _erf(g: Graph, args: tuple[int, ...], out: int, grad: int) -> list[int | None]:
    bell = g.add("exp", g.add("neg", g.add("mul", args[0], args[0])))
    return [g.add("mul", grad, g.add("mul", g.const(1.1283791670955126), bell))]


def _atan(g: Graph, args: tuple[int, ...], out: int, grad: int) -> list[int | None]:
    return [g.add("div", grad, g.add("add", g.const(1.0), g.add("mul", args[0], args[0])))]


def _div(g: Graph, args: tuple[int, ...], out: int, grad: int) -> list[int | None]:
    part = g.add("div", grad, args[1])
    return [part, g.add("neg", g.add("mul", part, out))]


RULES: dict[str, Rule] = {
    "add": lambda g, a, out, grad: [grad, grad],
    "sub": lambda g, a, out, grad: [grad, g.add("neg", grad)],
    "mul": lambda g, a, out, grad: [g.add("mul", grad, a[1]), g.add("mul", grad, a[0])],
    "div": _div,
    "neg": lambda g, a, out, grad: [g.add("neg", grad)],
    "abs": lambda g, a, out, grad: [g.add("mul", grad, g.add("sign", a[0]))],
    "sqrt": lambda g, a, out, grad: [g.add("div", grad, g.add("add", out, out))],
    "exp": lambda g, a, out, grad: [g.add("mul", grad, out)],
    "log": lambda g, a, out, grad: [g.add("div", grad, a[0])],
    "tanh": _tanh,
    "sigmoid": _sigmoid,
    "erf": _erf,
    "atan": _atan,
    "min": _extremum("lt"),
    "max": _extremum("gt"),
    "pow": _pow,
    "where": lambda g, a, out, grad: [
        None,
        _keep(g, a[0], grad),
        g.add("where", a[0], g.const(0.0), grad),
    ],
}
NO_GRADIENT = frozenset(("detach", "cast", "sign", *BOOL_OPS))


@dataclass(frozen=True)
class Adjoint:
    """One backward step as nodes of the program's own graph.

    `grad:spk` and `grad:state:<name>` are its inputs: the gradients of this step's spikes and new states. `x` and
    `states` are the gradients of the step's inputs; None where nothing flows. `uniform` maps a value that is constant
    over time to its gradient in this step, to be summed over the steps as `grad:uniform:<index>`; `params` is the
    gradient of each learnable parameter, from those sums.
    """

    x: int | None
    states: dict[str, int | None]
    uniform: dict[int, int]
    params: dict[str, int | None]


def _reverse(program: Program, seeds: dict[int, int], nodes: Iterable[int], active: set[int]) -> dict[int, int]:
    """Gradients of every active node, from `seeds` back through `nodes` (in falling order)."""
    graph = program.graph
    grads = dict(seeds)
    for index in nodes:
        grad, node = grads.get(index), graph.nodes[index]
        if grad is None or node.op in NO_GRADIENT or not any(a in active for a in node.args):
            continue
        if node.op == "spike":
            parts: Sequence[int | None] = [graph.add("mul", grad, program.spike_grad[index]), None]
        else:
            parts = RULES[node.op](graph, node.args, index, grad)
        for arg, part in zip(node.args, parts):
            if part is not None and arg in active:
                grads[arg] = graph.add("add", grads[arg], part) if arg in grads else part
    return grads


def differentiate(program: Program, learn: Sequence[str] = ()) -> Adjoint:
    """The backward step of a program, with gradients for x, the states and the parameters in `learn`."""
    graph = program.graph
    count = len(graph.nodes)
    varying = program.varying()
    learnable = {program.param(p) for p in learn}
    sources = {program.x, *(program.state(s) for s in program.states), *learnable}
    active: set[int] = set()
    for index in range(count):
        node = graph.nodes[index]
        differentiable = node.op not in NO_GRADIENT and node.op not in ("const", "input")
        reached = node.args[:1] if node.op == "spike" else node.args
        if index in sources or (differentiable and any(a in active for a in reached)):
            active.add(index)

    seeds: dict[int, int] = {}
    for output, name in [
        (program.spk, "spk"),
        *zip(program.new_states, (f"state:{s}" for s in program.states)),
    ]:
        seed = graph.input(f"grad:{name}")
        if output in active:
            seeds[output] = graph.add("add", seeds[output], seed) if output in seeds else seed
    falling = range(count - 1, -1, -1)
    grads = _reverse(program, seeds, (i for i in falling if i in varying), active)

    uniform = {i: grad for i, grad in sorted(grads.items()) if i in active and i not in varying}
    sums = {i: graph.input(f"grad:uniform:{i}") for i in uniform}
    totals = _reverse(program, sums, (i for i in falling if i not in varying), active)
    return Adjoint(
        x=grads.get(program.x),
        states={s: grads.get(program.state(s)) for s in program.states},
        uniform=uniform,
        params={p: totals.get(program.param(p)) for p in learn},
    )
