"""What a forward pass keeps for the backward pass: the fewest bytes from which every needed value can be had again."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from typing import Sequence, Tuple

from .adjoint import Adjoint
from .program import BOOL_OPS, Node, Program

Ways = Tuple[Tuple[int, str], ...]
_MOST_OPTIONS = 5000


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


def _exact(program: Program, how: dict[int, str], free: set[int], lossless: set[int]) -> set[int]:
    """The nodes of `how` that come out with the bits of the forward pass, given the inputs and kept ones that do."""
    found: set[int] = set()
    for index, way in how.items():
        args = program.graph.nodes[index].args
        if index in lossless or (way == "op" and all(a in free or a in found for a in args)):
            found.add(index)
    return found


def _options(candidates: Sequence[int], fewer: Sequence[int], most: int) -> list[frozenset[int]]:
    """Sets of at most `most` candidates; of the fewer ones, or of fewer at a time, where these are too many."""
    for pool, size in ((candidates, most), (fewer, most), (fewer, 2)):
        if sum(math.comb(len(pool), k) for k in range(size + 1)) <= _MOST_OPTIONS:
            break
    return [frozenset(c) for k in range(size + 1) for c in itertools.combinations(pool, k)]


def plan(
    program: Program,
    adjoint: Adjoint,
    traced: Sequence[str] = (),
    narrow: bool = False,
) -> Plan:
    """Choose what to keep.

    A spike that the backward step needs is the spike of the forward step: its argument is kept, or had again without
    rounding. So are, with full-width kept values, the operands of comparisons; 16-bit values are compared as they are.

    Args:
        program: the step; adjoint: its backward step, of the same graph.
        traced: states whose every step is an output anyway and costs nothing to keep.
        narrow: kept values have 16 bits; the argument of `spike` is stored so that its sign survives rounding.
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
    fired = {n.args[0] for n in graph.nodes if n.op == "spike"} & values
    membranes = {a for i in fired for a in graph.nodes[i].args}
    free_of_charge = {new_state[s] for s in traced}
    forward = graph.reach([program.spk, *program.new_states])
    essential = {program.x, *fired, *program.new_states} & forward & values
    candidates = sorted(
        i
        for i in forward & values
        if i in essential or ((i in membranes or i in needed) and not graph.nodes[i].is_bool and i not in state_in)
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

    def started_from(kept: frozenset[int], ways: Ways) -> tuple[str, ...]:
        return tuple(s for i, s in state_in.items() if i not in kept and (i, "load") in ways)

    def restored(kept: frozenset[int], alone: dict[int, str], ways: Ways) -> Ways:
        """How the states that `ways` starts from come out of the step before."""
        wanted = [new_state[s] for s in started_from(kept, ways)]
        return (*_ordered(alone, wanted, program), *((i, "op") for i in dict.fromkeys(wanted) if i in free))

    def faithful(kept: frozenset[int], alone: dict[int, str], full: dict[int, str], ways: Ways, restore: Ways) -> bool:
        """Whether spikes, and comparisons of values of full width, come out as in the forward step."""
        lossless = {i for i in kept if not narrow or i in free_of_charge or i == program.x}
        after = _exact(program, alone, free, lossless)
        before = {program.state(s) for s in started_from(kept, ways) if new_state[s] in after | free}
        now = _exact(program, full, free, lossless | before)

        def same_sign(u: int, exact: set[int]) -> bool:
            if u in kept or u in exact or u in free:
                return True
            # (u + c) - c has the sign of u when u = mem - c, in full width or rounded to 16 bits.
            node = graph.nodes[u]
            state = state_in.get(node.args[0]) if node.op == "sub" else None
            if state is None or node.args[1] not in free:
                return False
            way = alone.get(new_state[state], "")
            return way in {f"undo:{k}" for k in kept if graph.nodes[k] == Node("sub", (new_state[state], node.args[1]))}

        for wanted, exact in ((ways, now), (restore, after)):
            for index, _ in wanted:
                node = graph.nodes[index]
                if index in fired and narrow and not same_sign(index, exact):
                    return False
                if node.op == "spike" and not same_sign(node.args[0], exact):
                    return False
                decides = node.op in BOOL_OPS or node.op == "sign"
                if decides and not narrow and not all(a in exact or a in free for a in node.args):
                    return False
        return True

    options = _options(candidates, sorted(essential), len(program.states) + 1)
    options.append(frozenset({program.x, *program.new_states} & values))
    options.append(frozenset(essential))

    best = None
    for kept in sorted(options, key=cost):
        if best is not None and cost(kept)[0] > best[0][0]:
            break
        alone, full = attempt(kept)
        if all(i in full for i in needed):
            ways = _ordered(full, needed, program)
            restore = restored(kept, alone, ways)
            if faithful(kept, alone, full, ways, restore):
                undone = sum(1 for _, way in ways if way.startswith("undo:"))
                rank = (cost(kept)[0], undone, len(ways), sorted(kept))
                if best is None or rank < best[0]:
                    best = (rank, kept, ways, restore)
    assert best is not None, "the states, x and the arguments of spikes determine every value of a step"
    _, kept, ways, restore = best
    return Plan(
        saved=tuple(sorted(kept - {program.x})),
        needs_x=any(i == program.x for i, _ in (*ways, *restore)),
        needs_state=started_from(kept, ways),
        restore=restore,
        values=ways,
    )
