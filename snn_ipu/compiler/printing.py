"""What the printers share: how a node becomes a line of C++, and what a kernel is specialised for."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Sequence

from .adjoint import Adjoint
from .plan import Plan
from .program import Node, Program

OPS: dict[str, str] = {
    "add": "{0} + {1}",
    "sub": "{0} - {1}",
    "mul": "{0} * {1}",
    "div": "{0} / {1}",
    "neg": "-{0}",
    "abs": "abs_({0})",
    "sign": "sign_({0})",
    "sqrt": "std::sqrt({0})",
    "exp": "exp_({0})",
    "log": "log_({0})",
    "tanh": "tanh_({0})",
    "sigmoid": "sigmoid_({0})",
    "erf": "std::erf({0})",
    "atan": "std::atan({0})",
    "pow": "std::pow({0}, {1})",
    "min": "min_({0}, {1})",
    "max": "max_({0}, {1})",
    "where": "{0} ? {1} : {2}",
    "cast": "{0} ? S(1) : S(0)",
    "detach": "{0}",
    "gt": "{0} > {1}",
    "ge": "{0} >= {1}",
    "lt": "{0} < {1}",
    "le": "{0} <= {1}",
    "eq": "{0} == {1}",
    "ne": "{0} != {1}",
    "and": "{0} & {1}",
    "or": "{0} | {1}",
    "not": "!{0}",
}
UNDO: dict[tuple[str, int], str] = {
    ("add", 0): "{out} - {other}",
    ("add", 1): "{out} - {other}",
    ("sub", 0): "{out} + {other}",
    ("sub", 1): "{other} - {out}",
}


@dataclass(frozen=True)
class Layout:
    """What a kernel is specialised for, apart from the program itself.

    Attributes:
        dtype: of x, spikes and their gradients; states are float64 for float64, else float32.
        features: parameters with one value per feature; all others are scalars.
        traced: states of which every step is written.
        static: x is one frame, used at every step; its gradient is the sum over the steps.
        training: keep values for a backward pass.
    """

    dtype: str
    features: frozenset[str] = frozenset()
    traced: tuple[str, ...] = ()
    static: bool = False
    training: bool = False

    @property
    def state_type(self) -> str:
        return "double" if self.dtype == "float64" else "float"

    @property
    def narrow(self) -> bool:
        return self.dtype in ("bfloat16", "float16")


@dataclass(frozen=True)
class Kernel:
    """C++ source with the order of the buffers that its functions take.

    `forward(sizes, buffers, threads, runtime)`; sizes are T, M (neurons), N (features), then the time strides of x and
    of the gradients that come in, in elements.

    Attributes:
        forward, backward: names of the buffers of each function, in order; backward is empty without training.
        saved: buffers that forward writes for backward alone, in 16 bits for a 16-bit dtype.
        kept: whether backward reads each of x, the initial states, the traces, the saved buffers and the parameters.
        learned: parameters that backward gives a gradient.
    """

    source: str
    forward: tuple[str, ...]
    backward: tuple[str, ...] = ()
    saved: tuple[str, ...] = ()
    kept: tuple[bool, ...] = ()
    learned: tuple[str, ...] = ()


def _literal(value: float) -> str:
    if math.isnan(value):
        return "S(NAN)"
    if math.isinf(value):
        return "S(INFINITY)" if value > 0 else "S(-INFINITY)"
    return f"S({value!r})"


class StepPrinter:
    """Prints the nodes of one step: `v3` varies over time, `u3` is uniform, `u3[i]` has a value per feature."""

    ops = OPS

    def __init__(self, program: Program, layout: Layout, adjoint: Adjoint | None, plan: Plan | None):
        self.program, self.layout, self.adjoint, self.plan = program, layout, adjoint, plan
        self.graph = program.graph
        self.varying = program.varying()
        self.per_feature = self._per_feature()
        self.lines: list[str] = []
        self.depth = 0

    def _per_feature(self) -> set[int]:
        found: set[int] = set()
        roots = {self.program.param(p) for p in self.layout.features}
        for index, node in enumerate(self.graph.nodes):
            if index in roots or (index not in self.varying and any(a in found for a in node.args)):
                found.add(index)
        return found

    def put(self, line: str) -> None:
        self.depth -= line.startswith("}")
        self.lines.append("  " * self.depth + line)
        self.depth += line.endswith("{")

    def name(self, index: int) -> str:
        node = self.graph.nodes[index]
        if node.op == "const":
            assert isinstance(node.value, float)
            return _literal(node.value)
        if index in self.varying:
            return f"v{index}"
        return f"u{index}[i]" if index in self.per_feature else f"u{index}"

    def expression(self, node: Node) -> str:
        args = [self.name(a) for a in node.args]
        if node.op == "spike":
            return args[1] if len(args) == 2 else f"{args[0]} > S(0) ? S(1) : S(0)"
        return self.ops[node.op].format(*args)

    def define(self, index: int) -> None:
        node = self.graph.nodes[index]
        if node.op in ("const", "input"):
            return
        kind = "bool" if node.is_bool else "S"
        self.put(f"const {kind} v{index} = {self.expression(node)};")

    def values(self, roots: Sequence[int], stop: set[int]) -> list[int]:
        reached = self.graph.reach(roots, stop=lambda i: i in stop)
        return sorted(i for i in reached if i in self.varying and i not in stop)

    @staticmethod
    def buffer(name: str) -> str:
        return "b_" + name.replace(":", "_")

    def loaded(self, index: int) -> str:
        """The expression that reads a kept value."""
        return f"load(save_{index}[i])"

    def kept(self, index: int) -> str:
        """The buffer that a kept value lives in: the trace, where the value is a traced state."""
        for state, node in zip(self.program.states, self.program.new_states):
            if node == index and state in self.layout.traced:
                return f"trace:{state}"
        return f"save:{index}"

    def parameter_buffers(self) -> list[tuple[str, str]]:
        names = [f"param:{p}" for p in self.program.params] + [f"spike_param:{p}" for p in self.program.spike_params]
        return [(n, "const S") for n in names]

    def derived(self, ways: Sequence[tuple[int, str]], known: set[int]) -> None:
        """Define kept, recomputed and solved values, in order; `known` are defined already."""
        for index, way in ways:
            node = self.graph.nodes[index]
            if index in known or index not in self.varying:
                continue
            if way == "load":
                self.put(f"const S v{index} = {self.loaded(index)};")
            elif way == "op":
                self.define(index)
            else:
                user = int(way.split(":")[1])
                args = self.graph.nodes[user].args
                position = args.index(index)
                form = UNDO[self.graph.nodes[user].op, position]
                solved = form.format(out=self.name(user), other=self.name(args[1 - position]))
                self.put(f"const {'bool' if node.is_bool else 'S'} v{index} = {solved};")
