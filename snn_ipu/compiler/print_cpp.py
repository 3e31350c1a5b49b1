"""Print a program and its adjoint as C++: one function over blocks of neurons, time as the loop inside."""

from __future__ import annotations

import re
from typing import Sequence

from .adjoint import Adjoint
from .plan import Plan
from .printing import Kernel, Layout, StepPrinter
from .program import Program

BLOCK = 1024

TYPES = {"float32": "float", "float64": "double", "bfloat16": "bf16", "float16": "f16"}


class _Printer(StepPrinter):
    def loop(self) -> None:
        self.put("#pragma GCC ivdep")
        self.put("for (int64_t i = 0; i < n; ++i) {")

    def uniforms(self, roots: Sequence[int]) -> None:
        """Values that do not change over time: scalars once, per-feature values once per block."""
        needed = sorted(i for i in self.graph.reach(roots) if i not in self.varying)
        arrays = [i for i in needed if i in self.per_feature]
        for index in needed:
            node = self.graph.nodes[index]
            if node.op == "input" and index not in arrays and not str(node.value).startswith("grad:"):
                self.put(f"const S u{index} = {self.buffer(str(node.value))}[0];")
            elif node.op not in ("const", "input") and index not in arrays:
                self.put(f"const {'bool' if node.is_bool else 'S'} u{index} = {self.expression(node)};")
        if not arrays:
            return
        for index in arrays:
            self.put(f"{'bool' if self.graph.nodes[index].is_bool else 'S'} u{index}[BLOCK];")
        leaves = [i for i in arrays if self.graph.nodes[i].op == "input"]
        self.put("for (int64_t i = 0, j = m0 % N; i < n; ++i, j = j + 1 == N ? 0 : j + 1) {")
        for index in leaves:
            self.put(f"u{index}[i] = {self.buffer(str(self.graph.nodes[index].value))}[j];")
        self.put("}")
        self.loop()
        for index in arrays:
            if index not in leaves:
                self.put(f"u{index}[i] = {self.expression(self.graph.nodes[index])};")
        self.put("}")

    def storage(self, buffer: str) -> str:
        return "K" if buffer.startswith("save:") else "S"

    def function(self, name: str, buffers: Sequence[tuple[str, str]], sizes: Sequence[str], body: list[str]) -> None:
        """A function over one block, with declarations for what its body mentions."""
        mentioned = set(re.findall(r"\w+", "\n".join(body)))
        self.put(f"static void {name}_block(const int64_t* sizes, void* const* buffers, int64_t block) {{")
        self.put("const int64_t M = sizes[1], m0 = block * BLOCK, n = M - m0 < BLOCK ? M - m0 : BLOCK;")
        for position, size in enumerate(sizes):
            if size in mentioned and size != "M":
                self.put(f"const int64_t {size} = sizes[{position}];")
        for position, (buffer, kind) in enumerate(buffers):
            variable = self.buffer(buffer)
            if variable in mentioned:
                self.put(f"{kind}* __restrict const {variable} = static_cast<{kind}*>(buffers[{position}]);")
        self.lines.extend("  " + line for line in body)
        self.put("}")

    def forward(self) -> list[tuple[str, str]]:
        program = self.program
        saved = self.plan.saved if self.plan else ()
        saves = [(self.kept(i), i) for i in saved if self.kept(i).startswith("save:")]
        new_state = dict(zip(program.states, program.new_states))
        buffers = [
            ("x", "const X"),
            ("spk", "X"),
            *((f"state:{s}", "const S") for s in program.states),
            *((f"final:{s}", "S") for s in program.states),
            *((f"trace:{s}", "S") for s in self.layout.traced),
            *((name, "K") for name, _ in saves),
            *self.parameter_buffers(),
        ]
        outputs = [program.spk, *program.new_states, *saved]
        outer, self.lines = self.lines, []
        self.uniforms(outputs)
        for state in program.states:
            self.put(f"alignas(64) S s_{state}[BLOCK];")
            self.put(f"fill(s_{state}, {self.buffer('state:' + state)}, m0, n);")
        self.put("for (int64_t t = 0; t < T; ++t) {")
        self.put("const X* __restrict const x = b_x + t * x_step + m0;")
        self.put("X* __restrict const spk = b_spk + t * M + m0;")
        for state in self.layout.traced:
            self.put(f"S* __restrict const trace_{state} = {self.buffer('trace:' + state)} + t * M + m0;")
        for name, index in saves:
            self.put(f"K* __restrict const save_{index} = {self.buffer(name)} + t * M + m0;")
        self.loop()
        inputs = self.graph.reach(outputs)
        if program.x in inputs:
            self.put(f"const S v{program.x} = load(x[i]);")
        for state in program.states:
            if program.state(state) in inputs:
                self.put(f"const S v{program.state(state)} = s_{state}[i];")
        for index in self.values(outputs, set()):
            self.define(index)
        self.put(f"store(&spk[i], {self.name(program.spk)});")
        for state, index in new_state.items():
            self.put(f"s_{state}[i] = {self.name(index)};")
        for state in self.layout.traced:
            self.put(f"trace_{state}[i] = {self.name(new_state[state])};")
        fired = {node.args[0] for node in self.graph.nodes if node.op == "spike"}
        for _, index in saves:
            keep = "store_signed" if index in fired else "store"
            self.put(f"{keep}(&save_{index}[i], {self.name(index)});")
        self.put("}")
        self.put("}")
        for state in program.states:
            self.put(f"copy({self.buffer('final:' + state)} + m0, s_{state}, n);")
        body, self.lines = self.lines, outer
        self.function("forward", buffers, ("T", "M", "N", "x_step"), body)
        return buffers

    def point_at_kept(self, indices: Sequence[int], step: str) -> None:
        for index in indices:
            name = self.kept(index)
            kind = self.storage(name)
            self.put(f"const {kind}* __restrict const save_{index} = {self.buffer(name)} + ({step}) * M + m0;")

    def backward(self, adjoint: Adjoint, plan: Plan) -> list[tuple[str, str]]:
        program, graph = self.program, self.graph
        learn = [p for p, node in adjoint.params.items() if node is not None]
        scalar = [p for p in learn if p not in self.layout.features]
        buffers = [
            ("x", "const X"),
            *((f"state:{s}", "const S") for s in program.states),
            *((f"trace:{s}", "const S") for s in self.layout.traced),
            *((name, "const K") for name in map(self.kept, plan.saved) if name.startswith("save:")),
            *self.parameter_buffers(),
            ("grad_spk", "const X"),
            *((f"grad_final:{s}", "const S") for s in program.states),
            *((f"grad_trace:{s}", "const S") for s in self.layout.traced),
            ("grad_x", "X"),
            *((f"grad_state:{s}", "S") for s in program.states),
            *((f"partial:{p}", "double" if p in scalar else "S") for p in learn),
            *((f"grad_param:{p}", "S") for p in learn),
        ]
        sizes = (
            "T",
            "M",
            "N",
            "x_step",
            "grad_spk_step",
            *(f"grad_trace_{s}_step" for s in self.layout.traced),
        )
        grads = {
            graph.input("grad:spk"): "load(grad_spk[i])",
            **{graph.input(f"grad:state:{s}"): self.carried(s) for s in program.states},
        }
        before = set(map(program.state, plan.needs_state))
        roots = [r for r in (adjoint.x, *adjoint.states.values(), *adjoint.uniform.values()) if r is not None]
        epilogue = [node for node in adjoint.params.values() if node is not None]

        outer, self.lines = self.lines, []
        values = [i for i, _ in (*plan.values, *plan.restore)]
        self.uniforms([*roots, *values, *epilogue, *(a for i in values for a in graph.nodes[i].args)])
        if not self.layout.static:
            self.put("alignas(64) X scratch[BLOCK];")
        for state in program.states:
            self.put(f"alignas(64) S g_{state}[BLOCK];")
            self.put(f"fill(g_{state}, {self.buffer('grad_final:' + state)}, m0, n);")
        if self.layout.static:
            self.put("alignas(64) S g_x[BLOCK];")
            self.put("fill<S>(g_x, nullptr, 0, n);")
        for index in adjoint.uniform:
            self.put(f"alignas(64) S acc{index}[BLOCK];")
            self.put(f"fill<S>(acc{index}, nullptr, 0, n);")
        self.put("for (int64_t t = T - 1; t >= 0; --t) {")
        self.states_before(plan)
        if plan.needs_x:
            self.put("const X* __restrict const x = b_x + t * x_step + m0;")
        self.point_at_kept(plan.saved, "t")
        self.put("const X* __restrict const grad_spk = b_grad_spk ? b_grad_spk + t * grad_spk_step + m0 : zeros<X>();")
        for state in self.layout.traced:
            buffer = self.buffer(f"grad_trace:{state}")
            source = f"{buffer} ? {buffer} + t * grad_trace_{state}_step + m0 : zeros<S>()"
            self.put(f"const S* __restrict const grad_trace_{state} = {source};")
        if not self.layout.static:
            self.put("X* __restrict const grad_x = b_grad_x ? b_grad_x + t * M + m0 : scratch;")
        self.loop()
        if plan.needs_x and any(i == program.x for i, _ in plan.values):
            self.put(f"const S v{program.x} = load(x[i]);")
        for state in plan.needs_state:
            self.put(f"const S v{program.state(state)} = before_{state}[i];")
        self.derived(plan.values, {program.x, *before})
        known = {i for i, _ in plan.values} | before | {program.x}
        reached = graph.reach(roots)
        for index, text in grads.items():
            if index in reached:
                self.put(f"const S v{index} = {text};")
        for index in self.values(roots, known):
            if index not in grads:
                self.define(index)
        for state in program.states:
            node = adjoint.states[state]
            self.put(f"g_{state}[i] = {'S(0)' if node is None else self.name(node)};")
        gradient = "S(0)" if adjoint.x is None else self.name(adjoint.x)
        self.put(f"g_x[i] += {gradient};" if self.layout.static else f"store(&grad_x[i], {gradient});")
        for index, node in adjoint.uniform.items():
            self.put(f"acc{index}[i] += {self.name(node)};")
        self.put("}")
        self.put("}")
        for state in program.states:
            target = self.buffer(f"grad_state:{state}")
            self.put(f"if ({target}) copy({target} + m0, g_{state}, n);")
        if self.layout.static:
            self.put("if (b_grad_x) copy(b_grad_x + m0, g_x, n);")
        if learn:
            self.epilogue(adjoint, learn, scalar)
        body, self.lines = self.lines, outer
        self.function("backward", buffers, sizes, body)
        self.reduction(buffers, learn, scalar)
        return buffers

    def carried(self, state: str) -> str:
        return f"g_{state}[i] + grad_trace_{state}[i]" if state in self.layout.traced else f"g_{state}[i]"

    def states_before(self, plan: Plan) -> None:
        """The states before step t: what step t - 1 kept, or the initial state."""
        new_state = dict(zip(self.program.states, self.program.new_states))
        ways = dict(plan.restore)
        for state in plan.needs_state:
            node = new_state[state]
            initial = self.buffer(f"state:{state}")
            if ways.get(node) == "load" and node != self.program.x and self.storage(self.kept(node)) == "S":
                kept = self.buffer(self.kept(node))
                first = f"{initial} ? {initial} + m0 : zeros<S>()"
                self.put(f"const S* __restrict const before_{state} = t > 0 ? {kept} + (t - 1) * M + m0 : {first};")
                continue
            self.put(f"alignas(64) S before_{state}[BLOCK];")
            self.put("if (t > 0) {")
            if plan.needs_x:
                self.put("const X* __restrict const x = b_x + (t - 1) * x_step + m0;")
            loaded = [i for i, way in plan.restore if way == "load" and i != self.program.x]
            self.point_at_kept(loaded, "t - 1")
            self.loop()
            if any(i == self.program.x for i, _ in plan.restore):
                self.put(f"const S v{self.program.x} = load(x[i]);")
            self.derived(plan.restore, {self.program.x})
            self.put(f"before_{state}[i] = {self.name(node)};")
            self.put("}")
            self.put("} else {")
            self.put(f"fill(before_{state}, {initial}, m0, n);")
            self.put("}")

    def epilogue(self, adjoint: Adjoint, learn: Sequence[str], scalar: Sequence[str]) -> None:
        """From the sums over time to the parameters' gradients: per element, then one sum per block for scalars."""
        for param in scalar:
            self.put(f"double sum_{param} = 0;")
        self.put("for (int64_t i = 0; i < n; ++i) {")
        sums = {self.graph.input(f"grad:uniform:{index}"): index for index in adjoint.uniform}
        roots = [node for p in learn if (node := adjoint.params[p]) is not None]
        reached = self.graph.reach(roots)
        for node, index in sums.items():
            if node in reached:
                self.put(f"const S v{node} = acc{index}[i];")
        for index in self.values(roots, set(sums)):
            self.define(index)
        for param in learn:
            gradient = adjoint.params[param]
            assert gradient is not None
            target = f"sum_{param} += " if param in scalar else f"{self.buffer('partial:' + param)}[m0 + i] = "
            self.put(f"{target}{self.name(gradient)};")
        self.put("}")
        for param in scalar:
            self.put(f"{self.buffer('partial:' + param)}[block] = sum_{param};")

    def reduction(self, buffers: Sequence[tuple[str, str]], learn: Sequence[str], scalar: Sequence[str]) -> None:
        """Sums the partial gradients in an order that depends on no thread."""
        self.put("static void reduce(const int64_t* sizes, void* const* buffers) {")
        if learn:
            self.put("const int64_t M = sizes[1], N = sizes[2];")
        names = [name for name, _ in buffers]
        for param in learn:
            total = f"static_cast<S*>(buffers[{names.index(f'grad_param:{param}')}])"
            position = names.index(f"partial:{param}")
            if param in scalar:
                self.put(
                    f"reduce_blocks(static_cast<const double*>(buffers[{position}]), (M + BLOCK - 1) / BLOCK, {total});"
                )
            else:
                self.put(f"reduce_rows(static_cast<const S*>(buffers[{position}]), M / (N ? N : 1), N, {total});")
        self.put("}")


_PRELUDE = """\
#include "scan_math.hpp"

namespace {{
using namespace snn;
using X = {x};
using S = {s};
using K = {k};
constexpr int64_t BLOCK = {block};

template <class V>
inline const V* zeros() {{
  alignas(64) static const V block[BLOCK] = {{}};
  return block;
}}
inline void fill(S* to, const S* from, int64_t m0, int64_t n) {{
  for (int64_t i = 0; i < n; ++i) to[i] = from ? from[m0 + i] : S(0);
}}
template <class V>
inline void fill(V* to, std::nullptr_t, int64_t, int64_t n) {{
  for (int64_t i = 0; i < n; ++i) to[i] = V(0);
}}
template <class V>
inline void copy(V* to, const S* from, int64_t n) {{
  for (int64_t i = 0; i < n; ++i) store(&to[i], from[i]);
}}
[[maybe_unused]] inline void reduce_blocks(const double* partial, int64_t blocks, S* total) {{
  double sum = 0;
  for (int64_t b = 0; b < blocks; ++b) sum += partial[b];
  total[0] = S(sum);
}}
[[maybe_unused]] inline void reduce_rows(const S* partial, int64_t rows, int64_t columns, S* total) {{
  double sum[BLOCK];
  for (int64_t c0 = 0; c0 < columns; c0 += BLOCK) {{
    const int64_t n = columns - c0 < BLOCK ? columns - c0 : BLOCK;
    for (int64_t i = 0; i < n; ++i) sum[i] = 0;
    for (int64_t r = 0; r < rows; ++r)
      for (int64_t i = 0; i < n; ++i) sum[i] += double(partial[r * columns + c0 + i]);
    for (int64_t i = 0; i < n; ++i) total[c0 + i] = S(sum[i]);
  }}
}}

"""

_ENTRY = """
extern "C" void {name}(const int64_t* sizes, void* const* buffers, int64_t threads, const snn::Runtime* runtime) {{
  snn::for_blocks((sizes[1] + BLOCK - 1) / BLOCK, threads, runtime,
                  [=](int64_t block) {{ {name}_block(sizes, buffers, block); }});{after}
}}
"""


def print_kernel(program: Program, layout: Layout, adjoint: Adjoint | None = None, plan: Plan | None = None) -> Kernel:
    """The C++ of a step: `forward`, and `backward` where an adjoint and a plan are given."""
    printer = _Printer(program, layout, adjoint, plan)
    kinds = (
        TYPES[layout.dtype],
        layout.state_type,
        TYPES[layout.dtype] if layout.narrow else layout.state_type,
    )
    forward = printer.forward()
    entries = _ENTRY.format(name="forward", after="")
    backward: list[tuple[str, str]] = []
    if adjoint is not None and plan is not None:
        printer.put("")
        backward = printer.backward(adjoint, plan)
        entries += _ENTRY.format(name="backward", after="\n  reduce(sizes, buffers);")
    prelude = _PRELUDE.format(x=kinds[0], s=kinds[1], k=kinds[2], block=BLOCK)
    source = f"// Neuron step `{program.name}`.\n{prelude}" + "\n".join(printer.lines) + "\n}  // namespace\n" + entries
    if adjoint is None or plan is None:
        return Kernel(source, tuple(n for n, _ in forward))
    reads = {printer.kept(i) for i in plan.saved} | {f"state:{s}" for s in plan.needs_state}
    reads |= {"x"} if plan.needs_x else set()
    available = [n for n, _ in backward[: [n for n, _ in backward].index("grad_spk")]]
    return Kernel(
        source,
        tuple(n for n, _ in forward),
        tuple(n for n, _ in backward),
        saved=tuple(n for n in available if n.startswith("save:")),
        kept=tuple(n in reads or n.startswith("param:") for n in available if not n.startswith("spike_param:")),
        learned=tuple(p for p, node in adjoint.params.items() if node is not None),
    )
