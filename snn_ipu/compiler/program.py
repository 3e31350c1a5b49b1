"""The small intermediate representation between a traced step and the printed kernels.

A graph is a list of nodes in order of evaluation; a node names its operation and the indices of its arguments. Equal
nodes are one node, constants are folded, so a printer sees each value once.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Callable, Iterable

REAL_OPS: dict[str, int] = {
    "add": 2, "sub": 2, "mul": 2, "div": 2, "neg": 1,
    "abs": 1, "sign": 1, "sqrt": 1, "exp": 1, "log": 1, "tanh": 1, "sigmoid": 1, "erf": 1, "atan": 1,
    "min": 2, "max": 2, "pow": 2, "where": 3, "cast": 1, "spike": 1, "detach": 1,
}  # fmt: skip
BOOL_OPS: dict[str, int] = {"gt": 2, "ge": 2, "lt": 2, "le": 2, "eq": 2, "ne": 2, "and": 2, "or": 2, "not": 1}
LEAVES: frozenset[str] = frozenset(("const", "input"))

_FOLD: dict[str, Callable[..., float]] = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "neg": lambda a: -a,
}


@dataclass(frozen=True)
class Node:
    """One value: an operation on earlier values, a constant, or a named input."""

    op: str
    args: tuple[int, ...] = ()
    value: float | str | None = None

    @property
    def is_bool(self) -> bool:
        return self.op in BOOL_OPS


class Graph:
    """Nodes in order of evaluation; `add` returns the index of a new or an equal existing node."""

    def __init__(self) -> None:
        self.nodes: list[Node] = []
        self._index: dict[tuple[Node, str], int] = {}

    def _intern(self, node: Node) -> int:
        key = node, str(node.value)  # 0.0 and -0.0 are equal, but not the same
        if key not in self._index:
            self._index[key] = len(self.nodes)
            self.nodes.append(node)
        return self._index[key]

    def const(self, value: float) -> int:
        return self._intern(Node("const", value=float(value)))

    def input(self, name: str) -> int:
        return self._intern(Node("input", value=name))

    def constant(self, index: int) -> float | None:
        node = self.nodes[index]
        return node.value if node.op == "const" and isinstance(node.value, float) else None

    def add(self, op: str, *args: int) -> int:
        simpler = self._simplify(op, args)
        return self._intern(Node(op, args)) if simpler is None else simpler

    def _simplify(self, op: str, args: tuple[int, ...]) -> int | None:
        values = [self.constant(a) for a in args]
        if op in _FOLD and all(v is not None for v in values):
            folded = _FOLD[op](*values)
            return self.const(folded) if math.isfinite(folded) else None
        if op == "mul" and 1.0 in values:
            return args[1 - values.index(1.0)]
        if op == "div" and values[1] == 1.0:
            return args[0]
        if op == "where" and args[1] == args[2]:
            return args[1]
        if op == "detach" and self.nodes[args[0]].op in ("const", "detach"):
            return args[0]
        return None

    def reach(self, roots: Iterable[int], stop: Callable[[int], bool] = lambda _: False) -> set[int]:
        """Every node that the roots depend on, the roots included, without going past nodes where `stop` holds."""
        seen: set[int] = set()
        stack = list(roots)
        while stack:
            index = stack.pop()
            if index not in seen:
                seen.add(index)
                if not stop(index):
                    stack.extend(self.nodes[index].args)
        return seen


@dataclass
class Program:
    """A traced neuron step of x, the states, the parameters and the surrogate's own parameters (`spike_params`).

    `spk` and `new_states` are node indices. `varying` holds the nodes that depend on x or a state; all others are
    uniform in time and are computed once, outside the time loop.
    """

    name: str
    graph: Graph
    states: tuple[str, ...]
    params: tuple[str, ...]
    spike_params: tuple[str, ...]
    spk: int
    new_states: tuple[int, ...]
    spike_grad: dict[int, int] = field(default_factory=dict)

    @property
    def x(self) -> int:
        return self.graph.input("x")

    def state(self, name: str) -> int:
        return self.graph.input(f"state:{name}")

    def param(self, name: str) -> int:
        return self.graph.input(f"param:{name}")

    def varying(self) -> set[int]:
        """Nodes that change from one time step to the next."""
        sources = {self.x, *(self.state(s) for s in self.states)}
        found: set[int] = set()
        for index, node in enumerate(self.graph.nodes):
            temporal = node.op == "input" and str(node.value).startswith("grad:")
            if index in sources or temporal or any(a in found for a in node.args):
                found.add(index)
        return found
