"""Show the compiler's vectorisation report for the printed loops of every built-in neuron and surrogate.

    python -m benchmarks.vectorisation [--only leaky] [--verbose]

Ends with 1 when a loop over neurons inside a time loop was not vectorised: such a loop runs 3 to 10 times slower.
"""

from __future__ import annotations

import argparse
import re
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from subprocess import PIPE, STDOUT, run
from typing import Iterator, NamedTuple, Sequence

import snn_ipu as snn
from snn_ipu.backends import cache, cpu
from snn_ipu.backends.call import frozen
from snn_ipu.backends.cpu import Variant
from snn_ipu.compiler.printing import Kernel, Layout
from snn_ipu.surrogate import BUILTIN, SSO, Surrogate

NEURONS: tuple[snn.SpikingNeuron, ...] = (
    snn.Leaky(0.9),
    snn.Leaky(0.9, reset_mechanism="zero"),
    snn.Leaky(0.9, reset_mechanism="none"),
    snn.Leaky(0.9, reset_delay=False),
    snn.Synaptic(0.8, 0.9),
    snn.Alpha(0.8, 0.7),
    snn.Lapicque(beta=0.9),
    snn.RLeaky(0.9, all_to_all=False),
    snn.RLeaky(0.9, linear_features=8),
    snn.RSynaptic(0.8, 0.9, all_to_all=False),
    snn.IF(),
    snn.ParametricLeaky(),
    snn.AdaptiveLeaky(),
    snn.QIF(),
    snn.EIF(),
    snn.Izhikevich(),
)
LAYOUTS: dict[str, tuple[Layout, bool]] = {
    "inference": (Layout("float32"), False),
    "training": (Layout("float32", training=True), False),
    "learned": (Layout("float32", training=True), True),
    "traced": (Layout("float32", training=True), False),
    "static": (Layout("float32", training=True, static=True), False),
    "bfloat16": (Layout("bfloat16", training=True), False),
    "float16": (Layout("float16", training=True), False),
    "float64": (Layout("float64", training=True), False),
}
SURROGATES = tuple(factory() for factory in BUILTIN if factory is not SSO)


class Case(NamedTuple):
    """One kernel to look at."""

    name: str
    variant: Variant


class Loop(NamedTuple):
    """One loop over neurons inside a time loop; `width` in bytes, 0 with the compiler's reason where it is scalar."""

    function: str
    line: int
    width: int
    reason: str


def _case(name: str, neuron: snn.SpikingNeuron, surrogate: Surrogate, layout_name: str) -> Case:
    layout, learned = LAYOUTS[layout_name]
    if layout_name == "traced":
        layout = Layout(layout.dtype, traced=neuron.state_names, training=True)
    params = tuple(neuron.params())
    flags = frozen(neuron.flags())
    step = type(neuron).step
    return Case(
        f"{name} {layout_name}",
        Variant(step, neuron.state_names, params, flags, surrogate, layout, params if learned else ()),
    )


def cases() -> Iterator[Case]:
    """Every neuron in the layouts that print other loops, and every surrogate in a `Leaky`."""
    surrogate = snn.surrogate.fast_sigmoid()
    for neuron in NEURONS:
        flags = [str(v) for n, v in neuron.flags().items() if n == "reset_mechanism" and v != "subtract"]
        flags += ["at once"] if neuron.flags().get("reset_delay") is False else []
        flags += ["one to one"] if getattr(neuron, "all_to_all", True) is False else []
        name = " ".join([type(neuron).__name__, *flags])
        every = LAYOUTS if type(neuron) is snn.Leaky and not flags else ("inference", "training", "learned")
        for layout in every:
            yield _case(name, neuron, surrogate, layout)
    for chosen in SURROGATES:
        yield _case(f"Leaky {chosen.factory.__name__}", NEURONS[0], chosen, "training")


def inner_loops(source: str) -> dict[int, str]:
    """Line numbers of the loops over neurons inside a time loop, each with its function."""
    found: dict[int, str] = {}
    function, time_loop = "", None
    for number, line in enumerate(source.splitlines(), start=1):
        indent = len(line) - len(line.lstrip())
        opened = re.match(r"static void (\w+)_block\(", line)
        if opened:
            function = opened.group(1)
        elif re.match(r"\s*for \(int64_t t = ", line):
            time_loop = indent
        elif time_loop is not None and line.startswith(" " * time_loop + "}"):
            time_loop = None
        elif time_loop is not None and re.match(r"\s*for \(int64_t i = ", line):
            found[number] = function
    return found


def report(kernel: Kernel, compiler: str) -> list[Loop]:
    """What the compiler made of every loop over neurons inside a time loop, with the flags of the CPU backend.

    A loop that only copies counts as vectorised where it became a call of memcpy.
    """
    header = Path(cpu.__file__).parent / "native"
    with tempfile.TemporaryDirectory() as work:
        source = Path(work) / "kernel.cpp"
        source.write_text(kernel.source)
        command = [compiler, *cpu.FLAGS, f"-I{header}", "-fopt-info-loop-all", str(source), "-o", f"{work}/kernel.so"]
        done = run(command, stdout=PIPE, stderr=STDOUT, text=True, check=False)
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(command)}\n{done.stdout}")
    wanted = inner_loops(kernel.source)
    widths = dict.fromkeys(wanted, 0)
    reasons: dict[int, dict[str, None]] = {}
    current = 0
    for line in done.stdout.splitlines():
        note = re.search(r"(\w+)\.[ch]pp:(\d+):\d+: (optimized|missed): +(.*)", line)
        if note is None:
            continue
        number = int(note.group(2)) if note.group(1) == "kernel" else 0
        kind, text = note.group(3), note.group(4)
        vectorised = re.search(r"loop vectorized using (\d+) byte|0 loops and 1 library call", text)
        if vectorised and kind == "optimized":
            widths[number] = max(widths.get(number, 0), int(vectorised.group(1) or 64))
        elif "couldn't vectorize loop" in text:
            current = number
        elif kind == "missed" and text.startswith("not vectorized: "):
            reasons.setdefault(current, {})[f"line {number}: {text[16:]}"] = None
    loops = []
    for number, function in wanted.items():
        reason = "" if widths[number] else "; ".join(reasons.get(number, ["the compiler gives no reason"]))
        loops.append(Loop(function, number, widths[number], reason))
    return loops


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.vectorisation", description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="", help="only kernels whose name holds this text")
    parser.add_argument("--verbose", action="store_true", help="print the source of loops that did not vectorise")
    options = parser.parse_args(arguments)
    compiler = cache.find_compiler()
    if compiler is None:
        print("no C++ compiler was found: install g++ or set CXX", file=sys.stderr)
        return 1
    chosen = [case for case in cases() if options.only.lower() in case.name.lower()]
    if not chosen:
        print(f"--only {options.only}: no kernel's name holds this text", file=sys.stderr)
        return 1
    print(f"{cache.compiler_version(compiler).splitlines()[0]}; {' '.join(cpu.FLAGS)}")
    failed = 0
    with ThreadPoolExecutor(2) as workers:
        kernels = [case.variant.kernel() for case in chosen]
        for case, kernel, loops in zip(chosen, kernels, workers.map(lambda k: report(k, compiler), kernels)):
            bad = [loop for loop in loops if not loop.width]
            failed += len(bad)
            widths = ", ".join(f"{loop.function} {loop.width}" for loop in loops)
            print(f"{case.name:42} {len(loops) - len(bad)} of {len(loops)} loops vectorised; bytes: {widths}")
            for loop in bad:
                print(f"    {loop.function}, line {loop.line}: {loop.reason}")
                if options.verbose:
                    print("\n".join(f"      {text}" for text in kernel.source.splitlines()[loop.line - 1 :][:40]))
    print(f"{failed} loops in {len(chosen)} kernels did not vectorise")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
