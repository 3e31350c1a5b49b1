"""What a forward pass keeps for the backward pass: the fewest bytes from which every needed value can be had again."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Sequence

from .adjoint import Adjoint
from .program import Program


@dataclass(frozen=True)
class Plan:
    """How a backward step gets the values of its forward step.

    Attributes:
        saved: nodes written by every forward step.
        needs_x: whether the backward pass reads the input again.
        needs_state: states whose value before the step is needed.
        restore: (node, how) in order of evaluation, from saved values (and x) of a step to that step's new states.
        values: the same, to everything the backward step reads; may use the states before the step.
    """

    saved: tuple[int, ...]
    needs_x: bool
    needs_state: tuple[str, ...]
    restore: tuple[tuple[int, str], ...]
    values: tuple[tuple[int, str], ...]


def _derive(program: Program, free: set[int], known: dict[int, str], varying: set[int]) -> dict[int, str]:
    """All that `known` determines: node -> "load", "op", or "undo:<user>", an addition solved for its operand."""
    graph, how = program.graph, dict(known)

    def ready(index: int) -> bool:
        return index in how or index in free

    grew = True
    while grew:
        grew = False
        for index, node in enumerate(graph.nodes):
            if index in how or index not in varying or node.op == "input":
                continue
            args = node.args[:1] if node.op == "spike" and len(node.args) == 1 else node.args
            if all(ready(a) for a in args):
                how[index], grew = "op", True
        if not grew:
            for index, node in enumerate(graph.nodes):
                if index in how and node.op in ("add", "sub"):
                    for position in (0, 1):
                        operand, other = node.args[position], node.args[1 - position]
                        if operand in varying and not ready(operand) and other in free:
                            how[operand], grew = f"undo:{index}", True
    return how


def _ordered(how: dict[int, str], wanted: Sequence[int], program: Program) -> tuple[tuple[int, str], ...]:
    """The entries of `how` that `wanted` needs, each after what it is computed from."""
    done: list[tuple[int, str]] = []
    seen: set[int] = set()

    def visit(index: int) -> None:
        if index in seen or index not in how:
            return
        seen.add(index)
        way = how[index]
        if way == "op":
            for arg in program.graph.nodes[index].args:
                visit(arg)
        elif way.startswith("undo:"):
            user = int(way[5:])
            visit(user)
            for arg in program.graph.nodes[user].args:
                if arg != index:
                    visit(arg)
        done.append((index, way))

    for index in wanted:
        visit(index)
    return tuple(done)


def plan(
    program: Program,
    adjoint: Adjoint,
    traced: Sequence[str] = (),
    narrow: bool = False,
) -> Plan:
    """Choose what to keep.

    Args:
        program: the step; adjoint: its backward step, of the same graph.
        traced: states whose every step is an output anyway and costs nothing to keep.
        narrow: kept values have 16 bits; the argument of `spike` is preferred, whose sign survives rounding.
    """
    graph, varying = program.graph, program.varying()
    grad_inputs = {i for i, n in enumerate(graph.nodes) if n.op == "input" and str(n.value).startswith("grad:")}
    gradient: set[int] = set()
    for index, node in enumerate(graph.nodes):
        if index in grad_inputs or any(a in gradient for a in node.args):
            gradient.add(index)
    values = varying - gradient
    free = set(range(len(graph.nodes))) - varying - gradient
    roots = [r for r in (adjoint.x, *adjoint.states.values(), *adjoint.uniform.values()) if r is not None]
    used = graph.reach(roots, stop=lambda i: i not in gradient)
    needed = sorted(i for i in used if i in values)

    state_in = {program.state(s): s for s in program.states}
    new_state = dict(zip(program.states, program.new_states))
    fired = {n.args[0] for n in graph.nodes if n.op == "spike"}
    membranes = {a for i in fired for a in graph.nodes[i].args}
    free_of_charge = {new_state[s] for s in traced}
    forward = graph.reach([program.spk, *program.new_states])
    candidates = sorted(
        i
        for i in forward & values
        if i in fired or i in membranes or i in program.new_states or i in needed or i == program.x
        if not graph.nodes[i].is_bool and i not in state_in
    )

    def cost(kept: frozenset[int]) -> tuple[float, int]:
        total = 0.0
        for index in kept - free_of_charge:
            rounded_badly = narrow and index not in fired and index != program.x
            total += 1.5 if rounded_badly else 1.0
        return total, len(kept)

    def attempt(kept: frozenset[int]) -> tuple[dict[int, str], dict[int, str]]:
        alone = _derive(program, free, dict.fromkeys(kept, "load"), values)
        before = {i: "load" for i, s in state_in.items() if new_state[s] in alone or new_state[s] in free}
        return alone, _derive(program, free, {**before, **dict.fromkeys(kept, "load")}, values)

    options = [
        frozenset(c) for size in range(len(program.states) + 2) for c in itertools.combinations(candidates, size)
    ]
    options.append(frozenset({program.x, *program.new_states} & values))

    def undone(how: dict[int, str]) -> int:
        return sum(1 for _, way in _ordered(how, needed, program) if way.startswith("undo:"))

    best = None
    for kept in sorted(options, key=cost):
        if best is not None and cost(kept)[0] > best[0][0]:
            break
        alone, full = attempt(kept)
        if all(i in full for i in needed):
            ways = _ordered(full, needed, program)
            rank = (cost(kept)[0], undone(full), len(ways), sorted(kept))
            if best is None or rank < best[0]:
                best = (rank, kept, alone, full)
    assert best is not None, "the states and x determine every value of a step"
    _, kept, alone, full = best
    ways = _ordered(full, needed, program)
    used_states = tuple(s for i, s in state_in.items() if any(index == i for index, _ in ways))
    restore = _ordered(alone, [new_state[s] for s in used_states], program)
    return Plan(
        saved=tuple(sorted(kept - {program.x})),
        needs_x=any(i == program.x for i, _ in (*ways, *restore)),
        needs_state=used_states,
        restore=restore,
        values=ways,
    )
