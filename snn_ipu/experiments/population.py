"""Accuracy and time per epoch by population size and time steps: every cell is a training run in its own folder."""

from __future__ import annotations

import io
import os
import statistics
from dataclasses import asdict, dataclass, replace
from typing import Any, Iterable, Sequence

from rich.console import Console

from ..cli import run
from ..cli.config import TrainConfig
from ..cli.metrics import read_metrics
from ..cli.progress import SweepProgress
from ..data import load
from ..errors import BackendMissingError, CheckpointError, RunError
from .journal import Journal

# A minibatch costs about as much as its steps and this many more, for data and update: a weight for the time left.
_FIXED_STEPS = 5


@dataclass(frozen=True)
class Cell:
    """One training run of the study."""

    population: int
    num_steps: int
    seed: int

    @property
    def name(self) -> str:
        return f"p{self.population}-t{self.num_steps}-s{self.seed}"

    def __str__(self) -> str:
        return f"{self.population} outputs per class, {self.num_steps} time steps, seed {self.seed}"


class Study:
    """A grid of training runs that differ in population size, time steps and seed alone.

    Args: config, all other settings; populations, outputs per class; steps; seeds.
    """

    def __init__(
        self, config: TrainConfig, populations: Sequence[int], steps: Sequence[int], seeds: Sequence[int]
    ) -> None:
        self.config = config
        populations, steps, seeds = (list(dict.fromkeys(values)) for values in (populations, steps, seeds))
        # Seed by seed, so that what is done at any moment is as even as it can be.
        self.cells = [Cell(p, t, s) for s in seeds for t in steps for p in populations]
        fixed = {k: v for k, v in asdict(config).items() if k not in ("population", "num_steps", "seed", "data_root")}
        self.options: dict[str, Any] = {
            **fixed,
            "populations": populations,
            "steps": steps,
            "seeds": seeds,
        }

    @property
    def weight(self) -> int:
        """All cells, as progress counts them."""
        return sum(map(_weight, self.cells))

    def cell_config(self, cell: Cell) -> TrainConfig:
        return replace(self.config, population=cell.population, num_steps=cell.num_steps, seed=cell.seed)

    def missing(self, results: Iterable[dict[str, Any]]) -> list[Cell]:
        """The cells without a result, in order.

        Raises: RunError for a record that is none of a cell.
        """
        try:
            done = {Cell(r["population"], r["num_steps"], r["seed"]) for r in results}
        except KeyError as e:
            raise RunError(f"results.jsonl holds a line that is no training of a study: it lacks {e}.") from e
        return [cell for cell in self.cells if cell not in done]

    def run(self, folder: str, progress: SweepProgress) -> None:
        """Train what is missing; a cell that was interrupted goes on where it was.

        Raises: RunError when the folder holds another study or cannot be written; run.Interrupted on SIGINT and
        SIGTERM; DataError for missing data.
        """
        data = load(self.config.data, self.config.data_root).first(self.config.limit)
        facts = {
            "data": self.config.data,
            "model": self.config.model,
            "classes": data.num_classes,
            "train_images": len(data.train_images),
            "test_images": len(data.test_images),
        }
        with Journal(folder, "population", self.options, []) as journal:
            cells = self.missing(journal.results)
            done = set(self.cells) - set(cells)
            progress.skip(sum(map(_weight, done)))
            for cell in cells:
                progress.begin(str(cell))
                path = os.path.join(folder, "cells", cell.name)
                record = {**asdict(cell), **facts, **self._train(cell, path, len(data.train_images))}
                journal.add(record)
                progress.done(f"{cell}: {_outcome(record)}", _weight(cell))

    def _train(self, cell: Cell, folder: str, train_images: int) -> dict[str, Any]:
        config, console = self.cell_config(cell), Console(file=io.StringIO())
        try:
            if os.path.exists(os.path.join(folder, "config.json")):
                run.resume(folder, asdict(config), console)
            else:
                run.start(config, folder, console)
        except run.LossError as error:
            return _failed(str(error))
        except (RunError, CheckpointError, BackendMissingError):
            # of the folder or the machine: the next training would meet them as well
            raise
        except (RuntimeError, MemoryError) as error:
            return _failed(f"{type(error).__name__}: {error}")
        epochs = [record for record in read_metrics(os.path.join(folder, "metrics.jsonl")) if record["kind"] == "epoch"]
        # By the rate of its steps: an epoch that was interrupted has timed but a part of them.
        rates = [record["images_per_second"] for record in epochs if record["images_per_second"]]
        return {
            "status": "ok",
            "reason": None,
            "test_accuracy": [record["test_accuracy"] for record in epochs],
            "seconds_per_epoch": [train_images / float(rate) for rate in rates],
        }


def _failed(reason: str) -> dict[str, Any]:
    return {"status": "failed", "reason": reason, "test_accuracy": [], "seconds_per_epoch": []}


def _weight(cell: Cell) -> int:
    return cell.num_steps + _FIXED_STEPS


def _outcome(record: dict[str, Any]) -> str:
    if record["status"] != "ok":
        return f"failed ({record['reason']})"
    seconds = record["seconds_per_epoch"]
    time = f", {statistics.median(seconds):.1f} s per epoch" if seconds else ""
    return f"{record['test_accuracy'][-1]:.2%}{time}"
