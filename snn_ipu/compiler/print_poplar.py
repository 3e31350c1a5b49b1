"""Print a program and its adjoint as Poplar codelets: one MultiVertex per tile, time as the loop inside.

A worker takes two neurons at a time and runs all their steps with the states in registers. Data lie in rows of `size`
neurons, a whole number of 8-byte grains, so that no two workers share a 32-bit word. Fields are numbered: the program
builder that connects them knows no neuron.
"""

from __future__ import annotations

import hashlib
import math
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Callable, Sequence

from ..surrogate import Surrogate, spike
from .adjoint import Adjoint, differentiate
from .plan import Plan
from .printing import OPS, Layout, StepPrinter
from .program import Node, Program
from .trace import trace

TYPES = {"float32": "float", "float16": "half"}

_OPS = {
    **OPS,
    "sqrt": "sqrt_({0})",
    "erf": "erf_({0})",
    "atan": "atan_({0})",
    "pow": "pow_({0}, {1})",
    "where": "select_({0}, {1}, {2})",
    "cast": "select_({0}, splat(1.0f), splat(0.0f))",
    "not": "~{0}",
}
# Instructions of one worker for two neurons; what is not listed takes one. Estimates, for performance models only.
_CYCLES = {
    "div": 6,
    "sqrt": 6,
    "exp": 8,
    "log": 8,
    "tanh": 8,
    "sigmoid": 8,
    "erf": 40,
    "atan": 40,
    "pow": 40,
    "where": 3,
}
_ACCESS = {"float": 1, "half": 3}
_LOOP = 2


@dataclass(frozen=True)
class Codelet:
    """C++ of the vertices of one step, and what the program builder must know of them.

    Attributes:
        key: the hash of the source; vertices are `snn::ScanForward_<key>` and `snn::ScanBackward_<key>`.
        saves: how many values forward keeps for backward alone, in x's type where `narrow`.
        checkpoint: keep the states before every so many steps instead, 0 for all kept values.
        needs_x: backward reads x. needs_states, kept_traces, learned: what it reads or differentiates, by position.
        forward_cycles, backward_cycles: estimated instructions of a worker for two neurons and one step.
    """

    source: str
    key: str
    saves: int = 0
    narrow: bool = False
    checkpoint: int = 0
    needs_x: bool = False
    needs_states: tuple[int, ...] = ()
    kept_traces: tuple[int, ...] = ()
    learned: tuple[int, ...] = ()
    forward_cycles: int = 0
    backward_cycles: int = 0


def _literal(value: float) -> str:
    if math.isnan(value):
        return 'splat(__builtin_nanf(""))'
    if math.isinf(value):
        return f"splat({'-' if value < 0 else ''}__builtin_inff())"
    return f"splat({value!r}f)"


class _Printer(StepPrinter):
    ops = _OPS

    def __init__(
        self, program: Program, layout: Layout, adjoint: Adjoint | None, plan: Plan | None, checkpoint: int = 0
    ):
        super().__init__(program, layout, adjoint, plan)
        self.x_type = TYPES[layout.dtype]
        self.checkpoint = checkpoint
        self.at = "at"
        self.cycles = 0
        saved = () if plan is None or checkpoint else plan.saved
        self.saves = [i for i in saved if self.kept(i).startswith("save:")]
        self.save_type = self.x_type if layout.narrow and not checkpoint else "float"

    def put(self, line: str) -> None:
        if line:
            super().put(line)
        else:
            self.lines.append("")

    def name(self, index: int) -> str:
        node = self.graph.nodes[index]
        if node.op == "const":
            assert isinstance(node.value, float)
            return _literal(node.value)
        return f"v{index}" if index in self.varying else f"u{index}"

    def expression(self, node: Node) -> str:
        if node.op == "spike" and len(node.args) == 1:
            return f"select_({self.name(node.args[0])} > splat(0.0f), splat(1.0f), splat(0.0f))"
        return super().expression(node)

    def kind(self, index: int) -> str:
        return "M" if self.graph.nodes[index].is_bool else "S"

    def define(self, index: int) -> None:
        node = self.graph.nodes[index]
        if node.op not in ("const", "input"):
            self.cycles += _CYCLES.get(node.op, 1)
            self.put(f"const {self.kind(index)} {self.name(index)} = {self.expression(node)};")

    def loaded(self, index: int) -> str:
        name = self.kept(index)
        if name.startswith("trace:"):
            self.cycles += _ACCESS["float"]
            return f"load(&trace{self.layout.traced.index(name[6:])}[{self.at}])"
        self.cycles += _ACCESS[self.save_type]
        return f"load(&save{self.saves.index(index)}[{self.at}])"

    def store(self, field: str, at: str, value: str, kind: str = "float", store: str = "store") -> None:
        self.cycles += _ACCESS[kind]
        self.put(f"{store}(&{field}[{at}], {value});")

    def uniforms(self, roots: Sequence[int]) -> list[int]:
        """Define the scalars that do not change over time; returns those that have a value per feature."""
        needed = sorted(i for i in self.graph.reach(roots) if i not in self.varying)
        names = [f"param:{p}" for p in self.program.params]
        spike_names = [f"spike_param:{p}" for p in self.program.spike_params]
        for index in needed:
            node = self.graph.nodes[index]
            if index in self.per_feature or node.op == "const":
                continue
            if node.op != "input":
                self.put(f"const {self.kind(index)} u{index} = {self.expression(node)};")
            elif node.value in names:
                self.put(f"const S u{index} = splat(*param{names.index(node.value)});")
            elif node.value in spike_names:
                self.put(f"const S u{index} = splat(spikeParam{spike_names.index(node.value)});")
        return [i for i in needed if i in self.per_feature]

    def per_neuron(self, indices: Sequence[int]) -> None:
        names = [f"param:{p}" for p in self.program.params]
        for index in indices:
            node = self.graph.nodes[index]
            if node.op == "input":
                self.put(f"const S u{index} = load(&param{names.index(str(node.value))}[i]);")
            else:
                self.put(f"const {self.kind(index)} u{index} = {self.expression(node)};")

    def param_fields(self) -> list[str]:
        fields = [
            _vector("Input", "float", f"param{i}") if p in self.layout.features else f"poplar::Input<float> param{i};"
            for i, p in enumerate(self.program.params)
        ]
        return fields + [f"const float spikeParam{i};" for i in range(len(self.program.spike_params))]

    def vertex(self, name: str, fields: Sequence[str], body: Callable[[], None]) -> None:
        self.put(f"class {name}_{{id}} : public poplar::MultiVertex {{")
        self.put(" public:")
        for field in (*fields, "const unsigned steps;", "const unsigned size;"):
            self.put(field)
        if self.checkpoint:
            self.put("const unsigned checkpoint;")
        self.put("")
        self.put("bool compute(unsigned worker) {")
        outer, self.lines = self.lines, []
        body()
        self.lines = [*outer, *_mentioned(self.lines)]
        self.put("return true;")
        self.put("}")
        self.put("};")

    def neurons(self) -> None:
        self.put("for (unsigned i = kLanes * worker; i < size; i += kLanes * numWorkers()) {")

    def step(self, outputs: Sequence[int], states: Callable[[int], str], x: str) -> None:
        """Define values of a forward step from x and the states before it."""
        program = self.program
        inputs = self.graph.reach(outputs)
        if program.x in inputs:
            self.cycles += _ACCESS[self.x_type]
            self.put(f"const S v{program.x} = load(&x[{x}]);")
        for position, state in enumerate(program.states):
            if program.state(state) in inputs:
                self.put(f"const S v{program.state(state)} = {states(position)};")
        for index in self.values(outputs, set()):
            self.define(index)

    def forward(self) -> None:
        program, layout = self.program, self.layout
        kept = range(len(program.states)) if self.checkpoint else range(len(self.saves))
        self.cycles = 0
        fields = [
            _vector("Input", self.x_type, "x"),
            *(_vector("Input", "float", f"initial{j}") for j in range(len(program.states))),
            *self.param_fields(),
            _vector("Output", self.x_type, "spk"),
            *(_vector("Output", "float", f"final{j}") for j in range(len(program.states))),
            *(_vector("Output", "float", f"trace{j}") for j in range(len(layout.traced))),
            *(_vector("Output", self.save_type, f"save{j}") for j in kept),
        ]

        def body() -> None:
            saved = self.plan.saved if self.plan and not self.checkpoint else ()
            outputs = [program.spk, *program.new_states, *saved]
            features = self.uniforms(outputs)
            self.neurons()
            self.per_neuron(features)
            for j in range(len(program.states)):
                self.put(f"S s{j} = load(&initial{j}[i]);")
            if self.checkpoint:
                self.put("unsigned due = 0, row = i;")
            self.put("for (unsigned t = 0, at = i; t < steps; ++t, at += size) {")
            self.cycles = _LOOP
            if self.checkpoint:
                self.put("if (due == 0) {")
                for j in range(len(program.states)):
                    self.put(f"store(&save{j}[row], s{j});")
                self.put("row += size;")
                self.put("due = checkpoint;")
                self.put("}")
                self.put("--due;")
            self.step(outputs, lambda j: f"s{j}", "i" if layout.static else "at")
            self.store("spk", "at", self.name(program.spk), self.x_type)
            for j, index in enumerate(program.new_states):
                self.put(f"s{j} = {self.name(index)};")
            for j, state in enumerate(layout.traced):
                self.store(f"trace{j}", "at", self.name(program.new_states[program.states.index(state)]))
            fired = {node.args[0] for node in self.graph.nodes if node.op == "spike"}
            for j, index in enumerate(self.saves):
                how = "storeSigned" if index in fired else "store"
                self.store(f"save{j}", "at", self.name(index), self.save_type, how)
            self.put("}")
            for j in range(len(program.states)):
                self.put(f"store(&final{j}[i], s{j});")
            self.put("}")

        self.vertex("ScanForward", fields, body)

    def backward(self) -> None:
        program, layout, graph, adjoint, plan = self.program, self.layout, self.graph, self.adjoint, self.plan
        assert adjoint is not None and plan is not None
        learned = self.learned()
        states = range(len(program.states))
        kept = states if self.checkpoint else range(len(self.saves))
        fields = [
            _vector("Input", self.x_type, "gradSpk"),
            *(_vector("Input", "float", f"gradFinal{j}") for j in states),
            *(_vector("Input", "float", f"gradTrace{j}") for j in range(len(layout.traced))),
            *([_vector("Input", self.x_type, "x")] if self.needs_x() else []),
            *(_vector("Input", "float", f"initial{j}") for j in self.needs_states()),
            *self.param_fields(),
            *(_vector("Input", "float", f"trace{j}") for j in self.kept_traces()),
            *(_vector("Input", self.save_type, f"save{j}") for j in kept),
            _vector("Output", self.x_type, "gradX"),
            *(_vector("Output", "float", f"gradInitial{j}") for j in states),
            *(_vector("Output", "float", f"partial{j}") for j in learned),
            *(_vector("InOut", "float", f"scratch{j}") for j in states if self.checkpoint),
        ]
        roots = [r for r in (adjoint.x, *adjoint.states.values(), *adjoint.uniform.values()) if r is not None]
        totals = [node for node in adjoint.params.values() if node is not None]
        ways = [] if self.checkpoint else [i for i, _ in (*plan.values, *plan.restore)]
        ways = [*program.new_states] if self.checkpoint else ways

        def body() -> None:
            features = self.uniforms([*roots, *totals, *ways, *(a for i in ways for a in graph.nodes[i].args)])
            self.neurons()
            self.per_neuron(features)
            for j in states:
                self.put(f"S g{j} = load(&gradFinal{j}[i]);")
            if layout.static:
                self.put("S gx = splat(0.0f);")
            for index in adjoint.uniform:
                self.put(f"S acc{index} = splat(0.0f);")
            if self.checkpoint:
                self.segments(roots)
            else:
                self.put("for (unsigned t = steps, at = i + steps * size; t-- > 0;) {")
                self.put("at -= size;")
                self.cycles = _LOOP
                self.states_before(plan)
                self.backward_step(
                    roots, [(i, how) for i, how in plan.values], set(map(program.state, plan.needs_state))
                )
                self.put("}")
            for j in states:
                self.put(f"store(&gradInitial{j}[i], g{j});")
            if layout.static:
                self.put("store(&gradX[i], gx);")
            self.partials(learned)
            self.put("}")

        self.vertex("ScanBackward", fields, body)

    def segments(self, roots: Sequence[int]) -> None:
        """From the last checkpoint to the first: run its steps again, then go back through them."""
        states = range(len(self.program.states))
        before = {self.program.state(s) for s in self.program.states}
        frame = "i" if self.layout.static else "at"
        self.put("unsigned row = i + (steps + checkpoint - 1) / checkpoint * size;")
        self.put("for (unsigned end = steps; end > 0;) {")
        self.put("const unsigned count = (end - 1) % checkpoint + 1;")
        self.put("row -= size;")
        self.put("unsigned at = i + (end - count) * size, back = i;")
        for j in states:
            self.put(f"S s{j} = load(&save{j}[row]);")
        self.put("for (unsigned t = 0; t < count; ++t, at += size, back += size) {")
        self.cycles = _LOOP
        for j in states:
            self.store(f"scratch{j}", "back", f"s{j}")
        self.step(self.program.new_states, lambda j: f"s{j}", frame)
        for j, index in enumerate(self.program.new_states):
            self.put(f"s{j} = {self.name(index)};")
        self.put("}")
        self.put("for (unsigned t = count; t-- > 0;) {")
        self.put("at -= size;")
        self.put("back -= size;")
        self.cycles += _LOOP
        reached = self.graph.reach(roots)
        for j, state in enumerate(self.program.states):
            if self.program.state(state) in reached:
                self.cycles += _ACCESS["float"]
                self.put(f"const S v{self.program.state(state)} = load(&scratch{j}[back]);")
        self.backward_step(roots, [(self.program.x, "load")] if self.program.x in reached else [], before)
        self.put("}")
        self.put("end -= count;")
        self.put("}")

    def backward_step(self, roots: Sequence[int], ways: Sequence[tuple[int, str]], before: set[int]) -> None:
        program, layout, graph, adjoint = self.program, self.layout, self.graph, self.adjoint
        assert adjoint is not None
        if any(i == program.x for i, _ in ways):
            self.cycles += _ACCESS[self.x_type]
            self.put(f"const S v{program.x} = load(&x[{'i' if layout.static else 'at'}]);")
        self.derived(ways, {program.x, *before})
        grads = {graph.input("grad:spk"): "load(&gradSpk[at])"}
        for j, state in enumerate(program.states):
            trace_of = f" + load(&gradTrace{layout.traced.index(state)}[at])" if state in layout.traced else ""
            grads[graph.input(f"grad:state:{state}")] = f"g{j}{trace_of}"
        reached = graph.reach(roots)
        self.cycles += _ACCESS[self.x_type] + len(layout.traced)
        for index, text in grads.items():
            if index in reached:
                self.put(f"const S v{index} = {text};")
        for index in self.values(roots, {i for i, _ in ways} | before | {program.x}):
            if index not in grads:
                self.define(index)
        for j, state in enumerate(program.states):
            node = adjoint.states[state]
            self.put(f"g{j} = {_literal(0.0) if node is None else self.name(node)};")
        gradient = _literal(0.0) if adjoint.x is None else self.name(adjoint.x)
        if layout.static:
            self.put(f"gx += {gradient};")
        else:
            self.store("gradX", "at", gradient, self.x_type)
        for index, node in adjoint.uniform.items():
            self.cycles += 1
            self.put(f"acc{index} += {self.name(node)};")

    def states_before(self, plan: Plan) -> None:
        """The states before step t: from what step t - 1 kept, or the initial state."""
        new_state = dict(zip(self.program.states, self.program.new_states))
        if not plan.needs_state:
            return
        names = [f"before{self.program.states.index(s)}" for s in plan.needs_state]
        self.put(f"S {', '.join(names)};")
        self.put("if (t > 0) {")
        self.put("const unsigned last = at - size;")
        self.at = "last"
        if any(i == self.program.x for i, _ in plan.restore):
            self.put(f"const S v{self.program.x} = load(&x[{'i' if self.layout.static else 'last'}]);")
        self.derived(plan.restore, {self.program.x})
        self.at = "at"
        for name, state in zip(names, plan.needs_state):
            self.put(f"{name} = {self.name(new_state[state])};")
        self.put("} else {")
        for name, state in zip(names, plan.needs_state):
            self.put(f"{name} = load(&initial{self.program.states.index(state)}[i]);")
        self.put("}")
        for name, state in zip(names, plan.needs_state):
            self.put(f"const S v{self.program.state(state)} = {name};")

    def partials(self, learned: Sequence[int]) -> None:
        """From the sums over time to each neuron's share of the parameters' gradients."""
        assert self.adjoint is not None
        sums = {self.graph.input(f"grad:uniform:{index}"): index for index in self.adjoint.uniform}
        gradients = [self.adjoint.params[self.program.params[j]] for j in learned]
        roots = [g for g in gradients if g is not None]
        reached = self.graph.reach(roots)
        for node, index in sums.items():
            if node in reached:
                self.put(f"const S v{node} = acc{index};")
        # Values of a time step are out of scope here; an epilogue depends on sums and uniforms alone.
        for index in self.values(roots, set(sums)):
            self.define(index)
        for j, root in zip(learned, roots):
            self.put(f"store(&partial{j}[i], {self.name(root)});")

    def learned(self) -> tuple[int, ...]:
        if self.adjoint is None:
            return ()
        return tuple(j for j, p in enumerate(self.program.params) if self.adjoint.params.get(p) is not None)

    def needs_x(self) -> bool:
        return bool(self.checkpoint) or (self.plan is not None and self.plan.needs_x)

    def needs_states(self) -> tuple[int, ...]:
        if self.plan is None or self.checkpoint:
            return ()
        return tuple(self.program.states.index(s) for s in self.plan.needs_state)

    def kept_traces(self) -> tuple[int, ...]:
        if self.plan is None or self.checkpoint:
            return ()
        kept = [self.kept(i) for i in self.plan.saved]
        return tuple(j for j, s in enumerate(self.layout.traced) if f"trace:{s}" in kept)


def _mentioned(lines: Sequence[str]) -> list[str]:
    """Without the definitions that nothing after them mentions."""
    kept: list[str] = []
    words: set[str] = set()
    for line in reversed(lines):
        defined = re.match(r" *const [SM] (\w+) = ", line)
        if defined is None or defined[1] in words:
            kept.append(line)
            words.update(re.findall(r"\w+", line))
    return kept[::-1]


def _vector(access: str, kind: str, name: str) -> str:
    return f"poplar::{access}<poplar::Vector<{kind}, poplar::VectorLayout::ONE_PTR, 8>> {name};"


def _finish(subject: str, lines: Sequence[str], math_text: str) -> tuple[str, str]:
    text = (
        f"// {subject}. Generated; do not edit.\n{math_text}\nnamespace snn {{\n"
        + "\n".join(lines)
        + "\n}  // namespace snn\n"
    )
    key = hashlib.sha256(text.encode()).hexdigest()[:16]
    return text.replace("{id}", key), key


def math_text(custom_ops: Path) -> str:
    """The arithmetic that every codelet starts with."""
    return (custom_ops / "codelet_math.hpp").read_text()


def print_scan(
    program: Program,
    layout: Layout,
    prelude: str,
    adjoint: Adjoint | None = None,
    plan: Plan | None = None,
    checkpoint: int = 0,
) -> Codelet:
    """The codelets of a step: forward, and backward where an adjoint and a plan are given.

    Args:
        program, layout, adjoint, plan: as for `print_cpp.print_kernel`; float32 and float16 only.
        prelude: from `math_text`.
        checkpoint: keep only the states before every so many steps and run the steps between them again; 0 keeps what
            the plan says.
    """
    printer = _Printer(program, layout, adjoint, plan, checkpoint)
    printer.forward()
    forward_cycles, backward_cycles = printer.cycles, 0
    if adjoint is not None:
        printer.put("")
        printer.backward()
        backward_cycles = printer.cycles
    source, key = _finish(f"Neuron step `{program.name}`", printer.lines, prelude)
    training = adjoint is not None
    return Codelet(
        source=source,
        key=key,
        saves=(len(program.states) if checkpoint else len(printer.saves)) if training else 0,
        narrow=layout.narrow and not checkpoint,
        checkpoint=checkpoint,
        needs_x=printer.needs_x(),
        needs_states=printer.needs_states(),
        kept_traces=printer.kept_traces(),
        learned=printer.learned(),
        forward_cycles=forward_cycles,
        backward_cycles=backward_cycles,
    )


class _SpikePrinter(_Printer):
    def spike_vertex(self, name: str, backward: bool) -> None:
        fields = [_vector("Input", self.x_type, "x")]
        fields += [_vector("Input", self.x_type, "gradSpk")] if backward else []
        fields += [_vector("Output", self.x_type, "gradX" if backward else "spk"), "const float threshold;"]
        fields += [f"const float spikeParam{i};" for i in range(len(self.program.spike_params))]
        graph, x = self.graph, self.program.x
        if backward:
            assert self.adjoint is not None
            root = graph.const(0.0) if self.adjoint.x is None else self.adjoint.x
        else:
            root = self.program.spk
        self.put(f"class {name}_{{id}} : public poplar::MultiVertex {{")
        self.put(" public:")
        for field in (*fields, "const unsigned size;"):
            self.put(field)
        self.put("")
        self.put("bool compute(unsigned worker) {")
        reached = graph.reach([root])
        self.uniforms([root])
        self.neurons()
        if x in reached:
            self.put(f"const S v{x} = load(&x[i]);")
        grad = graph.input("grad:spk")
        if grad in reached:
            self.put(f"const S v{grad} = load(&gradSpk[i]);")
        for index in self.values([root], {x, grad}):
            self.define(index)
        self.put(f"store(&{'gradX' if backward else 'spk'}[i], {self.name(root)});")
        self.put("}")
        self.put("return true;")
        self.put("}")
        self.put("};")

    def uniforms(self, roots: Sequence[int]) -> list[int]:
        threshold = self.program.param("threshold")
        if threshold in self.graph.reach(roots):
            self.put(f"const S u{threshold} = splat(threshold);")
        self.program.params = ()
        return super().uniforms(roots)


def _heaviside(x: object, *, threshold: object) -> tuple[object]:
    return (spike(x - threshold),)  # type: ignore[operator]


def print_spike(surrogate: Surrogate, dtype: str, prelude: str) -> Codelet:
    """The codelets of the threshold-shifted step: spk = x > threshold, and gradX = gradSpk * d spk / d u.

    Args:
        surrogate: its expression is printed; its parameter values are given when the program is built.
        dtype: "float32" or "float16".
    """
    program = trace(_heaviside, (), ("threshold",), {}, surrogate)
    adjoint = differentiate(program)
    printer = _SpikePrinter(program, Layout(dtype), adjoint, None)
    printer.spike_vertex("Spike", backward=False)
    printer.put("")
    printer.spike_vertex("SpikeGrad", backward=True)
    source, key = _finish(f"Surrogate `{surrogate.factory.__name__}`", printer.lines, prelude)
    return Codelet(source, key)
