"""`snn-ipu throughput`: images per second by device, network and setting."""

from __future__ import annotations

import os
import signal
import sys
import time
from typing import Any, Callable, TypeVar

import click
import torch
from rich.console import Console

from ..experiments.points import DEVICES, NETWORKS, SWEEPS
from ..experiments.report import write_report
from ..experiments.throughput import Settings, Sweep, default_devices
from .progress import SweepProgress

_POSITIVE = click.IntRange(min=1)
_SECONDS = click.FloatRange(min=0, min_open=True)
Command = TypeVar("Command", bound=Callable[..., Any])


def _setting(name: str, kind: Any, help: str) -> Callable[[Command], Command]:
    default = getattr(Settings(), name[2:].replace("-", "_"))
    return click.option(name, type=kind, default=default, show_default=True, help=help)


@click.command(context_settings={"max_content_width": 110})
@click.option("--network", multiple=True, type=click.Choice(NETWORKS), default=NETWORKS, show_default="both")
@click.option(
    "--sweep",
    multiple=True,
    type=click.Choice(list(SWEEPS)),
    default=list(SWEEPS),
    show_default="all",
    help="What changes from point to point; give it several times for several.",
)
@click.option(
    "--device",
    multiple=True,
    type=click.Choice(DEVICES),
    default=default_devices,
    show_default="the fastest here, and snnTorch on the same",
    help="Where to run; give it several times to compare.",
)
@click.option(
    "--threads", type=_POSITIVE, default=torch.get_num_threads, show_default="as torch chooses", help="CPU threads."
)
@_setting("--repeats", click.IntRange(min=3), "Timed minibatches.")
@_setting("--seconds", _SECONDS, "Stop the repeats of a point after so long, with three at least.")
@_setting("--timeout", _SECONDS, "Seconds after which a point is given up, recorded as such.")
@_setting("--ipu-clock-ghz", _SECONDS, "Turns cycles of an IPU into seconds: 1.33 for a Mk2, 1.85 for a Bow.")
@click.option("--retry", is_flag=True, help="Measure points again that failed or ran out of time or memory before.")
@click.option("--quick", is_flag=True, help="A small plan on small networks, done in a minute on a CPU.")
@click.option("--dry-run", is_flag=True, help="Print the plan and measure nothing.")
@click.option("--out", type=click.Path(file_okay=False), help="Folder.  [default: runs/TIME-throughput]")
def command(
    network: tuple[str, ...],
    sweep: tuple[str, ...],
    device: tuple[str, ...],
    threads: int,
    retry: bool,
    quick: bool,
    dry_run: bool,
    out: str | None,
    **settings: Any,
) -> None:
    """Time one minibatch, forward, backward and update, over sweeps of settings; a sweep that was stopped goes on.

    The folder gets results.jsonl and results.csv, plots, and report.html. Give the same command to go on.
    """
    if quick:
        settings = {**settings, "repeats": min(settings["repeats"], 5), "seconds": min(settings["seconds"], 2.0)}
    wanted = Sweep(network, sweep, device, threads, Settings(**settings), quick=quick)
    out = out or os.path.join("runs", f"{time.strftime('%Y%m%d-%H%M%S')}-throughput")
    if dry_run:
        for point, names in wanted.plan.items():
            click.echo(f"{point}  ({', '.join(names)})")
        click.echo(f"{len(wanted.plan)} points")
        return
    for note in wanted.notes:
        click.echo(note, err=True)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        with SweepProgress(Console(), len(wanted.plan)) as progress:
            failed = wanted.run(out, progress, retry=retry)
    except KeyboardInterrupt:
        click.echo(f"stopped; go on with the same command and --out {out}", err=True)
        sys.exit(130)
    if failed:
        click.echo(f"{failed} points were not measured; --retry tries them again", err=True)
    paths = write_report([out], out, None)
    click.echo(f"{len(paths)} files of the report are in {out}: open {os.path.join(out, 'report.html')}")
