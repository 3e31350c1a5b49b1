"""`snn-ipu train`: train a network on a data set."""

from __future__ import annotations

import os
import sys
import time
from dataclasses import fields
from typing import Any, Callable, TypeVar

import click
import torch
from click.core import ParameterSource
from rich.console import Console

from ..data import NAMES
from . import run
from .config import DTYPES, LOSSES, MODELS, OPTIMIZERS, SURROGATES, TrainConfig
from .progress import rate_text

_DEFAULT = {field.name: field.default for field in fields(TrainConfig)}
Command = TypeVar("Command", bound=Callable[..., Any])
_POSITIVE = click.IntRange(min=1)


def sizes(text: str) -> tuple[int, ...]:
    """Positive integers separated by commas."""
    parts = text.split(",")
    if not all(part.isdigit() and int(part) for part in parts):
        raise ValueError("expected positive integers separated by commas")
    return tuple(map(int, parts))


def _option(name: str, kind: Any, help: str, default: str | None = None) -> Callable[[Command], Command]:
    key = name[2:].replace("-", "_")
    return click.option(name, type=kind, default=_DEFAULT[key], show_default=default or True, help=help)


@click.command(context_settings={"max_content_width": 110})
@_option("--model", click.Choice(MODELS), "Dense or convolutional network.")
@_option("--hidden", sizes, "Sizes of the hidden layers of a dsnn.", "1000")
@_option("--channels", sizes, "Channels of the convolutions of a csnn.", "12,64")
@_option("--population", _POSITIVE, "Output neurons for each class.")
@_option("--beta", click.FloatRange(0, 1), "Decay of the membrane in one time step.")
@_option(
    "--surrogate",
    str,
    f"Surrogate gradient, NAME or NAME:parameter=value,...; NAME is one of {', '.join(sorted(SURROGATES))}.",
)
@_option("--num-steps", _POSITIVE, "Time steps for each image.")
@_option("--data", click.Choice(NAMES), "Data set.")
@_option(
    "--data-root",
    click.Path(exists=True, file_okay=False),
    "Folder of the data set's files; fashion-mnist is found without it where Debian's package is.",
)
@_option("--limit", _POSITIVE, "Use the first so many images of each split.", "all")
@_option("--epochs", _POSITIVE, "Passes over the training images.")
@_option("--batch-size", _POSITIVE, "Images in a minibatch.")
@_option("--loss", click.Choice(sorted(LOSSES)), "Loss over the output spikes.")
@_option("--optimizer", click.Choice(sorted(OPTIMIZERS)), "Optimizer.")
@_option("--lr", click.FloatRange(min=0, min_open=True), "Learning rate.", "0.0003 for a dsnn, 0.001 for a csnn")
@_option("--dtype", click.Choice(list(DTYPES)), "Type of weights and spikes; neuron states are float32.")
@_option("--device", click.Choice(["auto", "cpu", "cuda", "ipu", "reference"]), "Where to run.")
@click.option(
    "--threads", type=_POSITIVE, default=torch.get_num_threads, show_default="as torch chooses", help="CPU threads."
)
@_option(
    "--seed",
    click.IntRange(min=0),
    "Decides weights and order of images; the same seed repeats a run exactly.",
)
@click.option("--out", type=click.Path(file_okay=False), help="Run folder.  [default: runs/TIME-MODEL-DATA]")
@click.option("--resume", is_flag=True, help="Go on with the run in --out, with its settings.")
@click.option(
    "--checkpoint-every",
    type=click.FloatRange(min=0),
    default=60.0,
    show_default=True,
    help="Seconds between checkpoints; one is written after each epoch and on Ctrl-C as well.",
)
@click.pass_context
def command(ctx: click.Context, /, out: str | None, resume: bool, checkpoint_every: float, **settings: Any) -> None:
    """Train a spiking network; progress here, metrics, pictures and checkpoints in the run folder."""
    console = Console()
    try:
        if resume:
            if out is None:
                raise click.UsageError("--resume needs --out, the folder of the run to go on with.")
            given = {
                name: value
                for name, value in settings.items()
                if ctx.get_parameter_source(name) is not ParameterSource.DEFAULT
            }
            result = run.resume(out, given, console, checkpoint_every=checkpoint_every)
        else:
            config = TrainConfig(**settings)
            out = out or os.path.join("runs", f"{time.strftime('%Y%m%d-%H%M%S')}-{config.model}-{config.data}")
            result = run.start(config, out, console, checkpoint_every=checkpoint_every)
    except run.Interrupted as e:
        click.echo(str(e), err=True)
        sys.exit(128 + e.number)
    click.echo(
        f"test accuracy {result.test_accuracy:.2%} after {result.epochs} epochs, "
        f"{rate_text(result.images_per_second)} images/s in training\n"
        f"metrics.jsonl, curves.png, raster.png and checkpoint.pt are in {out}"
    )
