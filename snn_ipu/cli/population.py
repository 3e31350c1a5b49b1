"""`snn-ipu population`: accuracy and time per epoch by population size and time steps."""

from __future__ import annotations

import os
import signal
import sys
import time
from dataclasses import replace

import click
import torch
from click.core import ParameterSource
from rich.console import Console

from ..data import NAMES
from ..experiments.population import Study
from ..experiments.report import write_report
from ..experiments.throughput import check_devices
from . import run
from .config import DTYPES, MODELS, TrainConfig
from .progress import SweepProgress
from .train import sizes

_POSITIVE = click.IntRange(min=1)


@click.command(context_settings={"max_content_width": 110})
@click.option("--data", type=click.Choice(NAMES), default="fashion-mnist", show_default=True, help="Data set.")
@click.option(
    "--data-root",
    type=click.Path(exists=True, file_okay=False),
    help="Folder of the data set's files; fashion-mnist is found without it where Debian's package is.",
)
@click.option(
    "--model",
    type=click.Choice(MODELS),
    default=None,
    show_default="csnn for cifar10, dsnn for all others",
    help="Dense or convolutional network.",
)
@click.option("--populations", type=sizes, default="1,5,10,50", show_default=True, help="Outputs per class.")
@click.option("--steps", type=sizes, default="1,2,5,25", show_default=True, help="Time steps.")
@click.option("--seeds", type=_POSITIVE, default=3, show_default=True, help="Trainings of each, with seeds 0, 1, ...")
@click.option("--epochs", type=_POSITIVE, default=5, show_default=True, help="Passes over the training images.")
@click.option("--batch-size", type=_POSITIVE, default=128, show_default=True, help="Images in a minibatch.")
@click.option("--limit", type=_POSITIVE, default=None, show_default="all", help="Use the first so many images.")
@click.option("--dtype", type=click.Choice(list(DTYPES)), default="float32", show_default=True, help="Of weights.")
@click.option(
    "--device",
    type=click.Choice(["auto", "cpu", "cuda", "ipu", "reference"]),
    default="auto",
    show_default=True,
    help="Where to run.",
)
@click.option(
    "--threads", type=_POSITIVE, default=torch.get_num_threads, show_default="as torch chooses", help="CPU threads."
)
@click.option("--quick", is_flag=True, help="Two populations and step counts on 1,000 images: a minute on a CPU.")
@click.option("--dry-run", is_flag=True, help="Print the plan and train nothing.")
@click.option("--out", type=click.Path(file_okay=False), help="Folder.  [default: runs/TIME-population-DATA]")
@click.pass_context
def command(
    ctx: click.Context,
    /,
    data: str,
    data_root: str | None,
    model: str | None,
    populations: tuple[int, ...],
    steps: tuple[int, ...],
    seeds: int,
    epochs: int,
    batch_size: int,
    limit: int | None,
    dtype: str,
    device: str,
    threads: int,
    quick: bool,
    dry_run: bool,
    out: str | None,
) -> None:
    """Train a network for every population size, number of time steps and seed; a study that was stopped goes on.

    The question: do more outputs per class let the time steps shrink at equal accuracy, and is that faster? The folder
    gets results.jsonl and results.csv, plots, report.html, and each training's own folder under cells/.
    """
    if quick:
        fixed = ("data", "data_root", "populations", "steps", "seeds", "epochs", "limit")
        given = [n for n in fixed if ctx.get_parameter_source(n) is not ParameterSource.DEFAULT]
        if given:
            raise click.UsageError(f"--quick sets {given[0].replace('_', '-')} itself: leave one of the two out.")
    if device != "auto":
        check_devices([device])
    model = model or ("csnn" if data == "cifar10" else "dsnn")
    config = TrainConfig(
        model=model,
        data=data,
        data_root=data_root,
        epochs=epochs,
        batch_size=batch_size,
        limit=limit,
        dtype=dtype,
        device=device,
        threads=threads,
    )
    if quick:
        small = {"hidden": (100,)} if model == "dsnn" else {"channels": (4, 8)}
        config = replace(config, data="fashion-mnist-mini", limit=1000, epochs=1, **small)
        populations, steps, seeds = (1, 10), (1, 5), 2
    study = Study(config, populations, steps, range(seeds))
    if dry_run:
        for cell in study.cells:
            click.echo(str(cell))
        click.echo(f"{len(study.cells)} trainings of {config.epochs} epochs: {config.model} on {config.data}")
        return
    out = out or os.path.join("runs", f"{time.strftime('%Y%m%d-%H%M%S')}-population-{config.data}")
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        with SweepProgress(Console(), study.weight) as progress:
            study.run(out, progress)
    except KeyboardInterrupt:
        click.echo(f"stopped; go on with the same command and --out {out}", err=True)
        sys.exit(130)
    except run.Interrupted as error:
        click.echo(f"stopped by {error.signal}; go on with the same command and --out {out}", err=True)
        sys.exit(128 + error.number)
    paths = write_report([out], out, None)
    click.echo(f"{len(paths)} files of the report are in {out}: open {os.path.join(out, 'report.html')}")
