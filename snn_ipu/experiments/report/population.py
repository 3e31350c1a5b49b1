"""Population studies: accuracy and time by size of the output population and number of time steps."""

from __future__ import annotations

import json
import math
import statistics
from dataclasses import dataclass
from typing import Sequence

from .load import Record, Run

_TASK = ("data", "model", "classes", "train_images", "test_images")


@dataclass(frozen=True)
class Cell:
    """The trainings of one population size and number of steps; one accuracy and time for each seed that ended.

    A seed's accuracy is that after its last epoch, in [0, 1]; its time the median over its epochs, in seconds, left out
    where no epoch was timed.
    """

    population: int
    num_steps: int
    seeds: tuple[int, ...]
    missing: tuple[int, ...]
    accuracies: tuple[float, ...]
    seconds: tuple[float, ...]

    @property
    def accuracy(self) -> float:
        return statistics.mean(self.accuracies)

    @property
    def accuracy_deviation(self) -> float:
        return deviation(self.accuracies)

    @property
    def time(self) -> float:
        return statistics.median(self.seconds) if self.seconds else math.nan

    @property
    def time_deviation(self) -> float:
        return deviation(self.seconds)

    @property
    def name(self) -> str:
        return f"population {self.population:,} with T = {self.num_steps}"


@dataclass(frozen=True)
class Study:
    """The cells of one run on one task; `epochs` are the numbers of epochs that its trainings had."""

    run: Run
    task: Record
    cells: list[Cell]
    seeds: tuple[int, ...]
    epochs: tuple[int, ...]

    @property
    def title(self) -> str:
        return f"{self.task['model']} on {self.task['data']}"

    @property
    def done(self) -> list[Cell]:
        return [cell for cell in self.cells if cell.seeds]


@dataclass(frozen=True)
class Claim:
    """The claim under test in a study: `verdict` in one sentence, `text` the numbers, `cells` that support it."""

    verdict: str
    text: list[str]
    cells: list[Cell]


def studies(runs: Sequence[Run]) -> list[Study]:
    """The studies of the population runs; times of two runs are not put together."""
    found = []
    for run in runs:
        if run.kind == "population":
            groups: dict[str, list[Record]] = {}
            for place, record in enumerate(run.records):
                if place not in run.superseded:
                    groups.setdefault(json.dumps([record[name] for name in _TASK]), []).append(record)
            found += [_study(run, records) for records in groups.values()]
    return found


def _study(run: Run, records: Sequence[Record]) -> Study:
    seeds = tuple(sorted({int(record["seed"]) for record in records}))
    groups: dict[tuple[int, int], list[Record]] = {}
    for record in records:
        groups.setdefault((record["population"], record["num_steps"]), []).append(record)
    cells = []
    for (population, num_steps), members in sorted(groups.items()):
        done = sorted((record for record in members if record["status"] == "ok"), key=lambda r: int(r["seed"]))
        mine = tuple(int(record["seed"]) for record in done)
        cells.append(
            Cell(
                population,
                num_steps,
                mine,
                tuple(seed for seed in seeds if seed not in mine),
                tuple(float(record["test_accuracy"][-1]) for record in done),
                tuple(
                    float(statistics.median(record["seconds_per_epoch"]))
                    for record in done
                    if record["seconds_per_epoch"]
                ),
            )
        )
    epochs = sorted({len(record["test_accuracy"]) for record in records if record["status"] == "ok"})
    return Study(run, {name: records[0][name] for name in _TASK}, cells, seeds, tuple(epochs))


def deviation(values: Sequence[float]) -> float:
    """Standard deviation of a sample, nan for fewer than two values."""
    return statistics.stdev(values) if len(values) > 1 else math.nan


def margin(cell: Cell, base: Cell) -> float:
    """Standard error of the difference of two cells' mean accuracies; 0 where a cell has one seed only."""
    if min(len(cell.seeds), len(base.seeds)) < 2:
        return 0.0
    return math.hypot(
        cell.accuracy_deviation / math.sqrt(len(cell.seeds)), base.accuracy_deviation / math.sqrt(len(base.seeds))
    )


def base_cell(study: Study) -> Cell:
    """The cell that the claim starts from: the smallest population with the most time steps."""
    smallest = min(cell.population for cell in study.cells)
    return max((cell for cell in study.cells if cell.population == smallest), key=lambda cell: cell.num_steps)


def claim(study: Study) -> Claim:
    """Whether a larger population makes fewer time steps enough, at equal accuracy and in less time."""
    base = base_cell(study)
    if not base.seeds:
        return Claim(
            f"The claim cannot be judged in this run: no training of {base.name} ended well.",
            ["It is the cell to compare with; see the table of points that failed."],
            [],
        )
    if not base.seconds:
        return Claim(f"The claim cannot be judged in this run: no epoch of {base.name} was timed.", [], [])
    chance = 1 / int(study.task["classes"])
    if base.accuracy < 2 * chance:
        return Claim(
            f"The claim cannot be judged in this run: {base.name} learned too little, less than twice the accuracy of "
            f"guessing ({100 * chance:.3g} %).",
            [f"Baseline cell: {describe(base)}."],
            [],
        )
    rivals = [cell for cell in study.done if cell.num_steps < base.num_steps]
    enough = sorted(
        (cell for cell in rivals if cell.accuracy >= base.accuracy - margin(cell, base) and cell.time < base.time),
        key=lambda cell: cell.time,
    )
    larger = [cell for cell in enough if cell.population > base.population]
    alike = [cell for cell in enough if cell.population == base.population]
    candidates = sum(cell.population > base.population for cell in rivals)
    text = [f"Baseline cell: {describe(base)}."]
    rule = (
        "at least as accurate (mean over seeds no lower than the baseline cell's by more than one standard error of "
        "the difference of the two means) with less time per epoch"
    )
    if larger:
        best = larger[0]
        verdict = (
            f"The claim holds in this run: {best.name} is {base.time / best.time:.2f} times faster per epoch than "
            f"{base.name} at no lower accuracy, within one standard error."
        )
        outright = sum(cell.accuracy >= base.accuracy for cell in larger)
        text.append(
            f"{len(larger)} of {candidates} cells with a larger population and fewer time steps are {rule}; in "
            f"{outright} of them the mean itself is no lower."
        )
        text.append(f"Fastest of them: {compare(best, base)}.")
        text += [f"Also: {compare(cell, base)}." for cell in larger[1:]]
    elif candidates:
        verdict = (
            "The claim does not hold in this run: no cell with a larger population and fewer time steps is as "
            f"accurate as {base.name}, within one standard error, in less time."
        )
        text.append(f"0 of {candidates} cells with a larger population and fewer time steps are {rule}.")
        closest = max((cell for cell in rivals if cell.population > base.population), key=lambda cell: cell.accuracy)
        text.append(f"Most accurate of them: {compare(closest, base)}.")
    else:
        verdict = (
            "The claim cannot be judged in this run: it has no cell with a larger population and fewer time steps "
            f"than {base.name}."
        )
    if alike:
        text.append(f"Fewer time steps alone are enough, without a larger population: {compare(alike[0], base)}.")
    if any(len(cell.seeds) < 2 for cell in study.done):
        text.append("A cell with one seed has no standard error; its mean is compared as it is.")
    return Claim(verdict, text, larger)


def describe(cell: Cell) -> str:
    """A cell's accuracy and time in words."""
    seeds = f"{len(cell.seeds)} seeds" if len(cell.seeds) > 1 else "1 seed"
    spread = f" ± {100 * cell.accuracy_deviation:.2f}" if len(cell.seeds) > 1 else ""
    time = f"{cell.time:.3g} s per epoch" if cell.seconds else "not timed"
    return f"{cell.name}, test accuracy {100 * cell.accuracy:.2f}{spread} % ({seeds}), {time}"


def compare(cell: Cell, base: Cell) -> str:
    """A cell beside the baseline cell in words."""
    speed = f", {base.time / cell.time:.2f} times the speed" if cell.seconds else ""
    return (
        f"{describe(cell)}: {100 * (cell.accuracy - base.accuracy):+.2f} percentage points (standard error "
        f"{100 * margin(cell, base):.2f}){speed}"
    )
