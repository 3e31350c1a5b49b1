"""Print the table of speed and memory beside the peers that are installed: `make bench`.

python -m benchmarks [--only neurons] [--repeats 20] [--threads 2] [--out runs/bench]
"""

from __future__ import annotations

import argparse
import csv
import shlex
import sys
from itertools import chain
from pathlib import Path
from typing import Callable, Iterator, Sequence

import torch
from rich.console import Console
from rich.table import Table

from . import neurons, step_loop, train_step
from .timing import Result, machine

SUITES: dict[str, Callable[[int], Iterator[Result]]] = {
    "neurons": neurons.results,
    "step-loop": step_loop.results,
    "train-step": train_step.results,
}
COLUMNS = (
    "benchmark",
    "contender",
    "min_ms",
    "median_ms",
    "max_ms",
    "ratio",
    "first_call_s",
    "kept_bytes_per_neuron_step",
    "firing_rate",
    "repeats",
    "machine",
    "command",
)


def table(result: Result) -> Table:
    """The result for people; ratio is a contender's median over ours."""
    shown = Table(title=result.title, title_justify="left")
    shown.add_column("contender")
    for column in ("min ms", "median ms", "max ms", "ratio", "first call s", "kept B", "spikes"):
        shown.add_column(column, justify="right")
    ours = result.contenders[0].median
    for c in result.contenders:
        shown.add_row(
            c.name,
            *(f"{1e3 * t:.2f}" for t in (min(c.times), c.median, max(c.times))),
            f"{c.median / ours:.1f}",
            f"{c.first_call:.1f}",
            "" if c.kept is None else f"{c.kept:.2f}",
            f"{c.firing_rate:.1%}",
        )
    return shown


def rows(result: Result, where: str, command: str) -> Iterator[tuple[object, ...]]:
    """The result for files, in the order of COLUMNS."""
    ours = result.contenders[0].median
    for c in result.contenders:
        milliseconds = (round(1e3 * t, 3) for t in (min(c.times), c.median, max(c.times)))
        kept = "" if c.kept is None else round(c.kept, 3)
        yield (
            result.title,
            c.name,
            *milliseconds,
            round(c.median / ours, 2),
            round(c.first_call, 2),
            kept,
            round(c.firing_rate, 4),
            len(c.times),
            where,
            command,
        )


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--only", choices=list(SUITES), help="one suite instead of all")
    parser.add_argument("--repeats", type=int, default=20, help="timed calls of each contender, at least 10")
    parser.add_argument("--threads", type=int, help="threads of torch and of our kernels")
    parser.add_argument("--out", type=Path, help="folder for bench.csv, with the machine in every row")
    options = parser.parse_args(arguments)
    if options.repeats < 10:
        parser.error("--repeats: expected at least 10, fewer show the machine's mood")
    if options.threads:
        torch.set_num_threads(options.threads)
    # A file or a pipe has no width of its own.
    console, where = Console(width=None if sys.stdout.isatty() else 120), machine()
    command = shlex.join(["python", "-m", "benchmarks", *(sys.argv[1:] if arguments is None else arguments)])
    console.print(where, highlight=False, soft_wrap=True)
    records: list[tuple[object, ...]] = []
    suites = [SUITES[options.only]] if options.only else list(SUITES.values())
    for result in chain.from_iterable(suite(options.repeats) for suite in suites):
        console.print(table(result))
        for reason in result.left_out:
            console.print(f"left out: {reason}", highlight=False)
        records += rows(result, where, command)
    if options.out:
        options.out.mkdir(parents=True, exist_ok=True)
        with open(options.out / "bench.csv", "w", newline="") as file:
            csv.writer(file).writerows([COLUMNS, *records])
    return 0


if __name__ == "__main__":
    sys.exit(main())
