"""Points of throughput runs: series, ratios to a baseline, and the views that the report shows."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from typing import Any, Sequence

from ...errors import RunError
from .load import Record, Run, point_key

DEFAULT_BASELINE = "snntorch-cpu"
NUMERIC = ("batch", "width", "depth", "steps")
CATEGORICAL = ("neuron", "precision", "twin")

# the fields of a configuration that a sweep changes
_VARIED = {
    "batch": ("batch",),
    "width": ("hidden", "channels"),
    "depth": ("hidden", "channels"),
    "steps": ("num_steps",),
    "neuron": ("neuron",),
    "precision": ("precision",),
    "twin": ("spiking",),
    "shares": (),
}


@dataclass(frozen=True)
class Point:
    """One configuration on one device; `ratio` is its speed over the baseline's at equal settings, if both ran."""

    run: Run
    series: str
    record: Record
    sweeps: tuple[str, ...]
    ratio: float | None = None

    @property
    def config(self) -> Record:
        config: Record = self.record["config"]
        return config

    @property
    def ok(self) -> bool:
        return bool(self.record["status"] == "ok")

    @property
    def speed(self) -> float:
        return float(self.record["images_per_second"])


@dataclass(frozen=True)
class Throughput:
    """All points of a report's throughput runs; `series` in order of appearance, `baseline` one of them."""

    points: list[Point]
    series: list[str]
    baseline: str | None

    @property
    def networks(self) -> list[str]:
        return sorted({str(point.config["network"]) for point in self.points})


@dataclass(frozen=True)
class Line:
    """The points of one series in a view, by value of the sweep's variable; `variant` counts other settings."""

    label: str
    series: str
    variant: int
    points: dict[Any, Point]


@dataclass(frozen=True)
class View:
    """One sweep over one network: the values in order and a line for each series and other settings."""

    sweep: str
    network: str
    values: list[Any]
    lines: list[Line]


def collect(runs: Sequence[Run], baseline: str | None) -> Throughput:
    """Points of the throughput runs, with ratios to the baseline.

    Args: runs, of any kind; baseline, a device or series, None for snntorch-cpu or else the first that ran.
    Raises: RunError when the baseline is unknown or names several series.
    """
    measured = [run for run in runs if run.kind == "throughput"]
    found = [(run, record["config"]["device"]) for run in measured for record in run.records]
    homes = {device: {run.name for run, other in found if other == device} for _, device in found}

    points = []
    for run in measured:
        sweeps: dict[str, list[str]] = {}
        for record in run.records:
            sweeps.setdefault(point_key(record, run.kind), []).extend(record["sweeps"])
        for place, record in enumerate(run.records):
            if place not in run.superseded:
                device = record["config"]["device"]
                label = device if len(homes[device]) == 1 else f"{device} ({run.name})"
                points.append(Point(run, label, record, tuple(dict.fromkeys(sweeps[point_key(record, run.kind)]))))

    chosen = _choose(points, baseline)
    base = {settings(point.config): point.speed for point in points if point.ok and point.series == chosen}
    return Throughput(
        [
            Point(point.run, point.series, point.record, point.sweeps, point.speed / base[settings(point.config)])
            if point.ok and settings(point.config) in base
            else point
            for point in points
        ],
        list(dict.fromkeys(point.series for point in points)),
        chosen,
    )


def _choose(points: Sequence[Point], baseline: str | None) -> str | None:
    ran = {point.series: str(point.config["device"]) for point in points if point.ok}
    if baseline is None:
        preferred = [series for series, device in ran.items() if device == DEFAULT_BASELINE]
        return next(iter([*preferred, *ran]), None)
    if baseline in ran:
        return baseline
    of_device = [series for series, device in ran.items() if device == baseline]
    if len(of_device) == 1:
        return of_device[0]
    if of_device:
        raise RunError(f"--baseline {baseline}: several runs have this device. Give one of: {', '.join(of_device)}.")
    known = f"Known here: {', '.join(ran)}." if ran else "No device of these runs has a throughput to compare with."
    raise RunError(f"--baseline {baseline}: no successful point has this device or label. {known}")


def settings(config: Record, without: Sequence[str] = ("device",)) -> str:
    """Equal for two configurations that differ in nothing but the fields left out."""
    return json.dumps({name: value for name, value in config.items() if name not in without}, sort_keys=True)


def differences(configs: Sequence[Record], without: Sequence[str]) -> list[str]:
    """For each configuration, in words, the fields in which these configurations differ; "" if in none."""
    names = [
        name
        for name in dict.fromkeys(name for config in configs for name in config)
        if name not in without and len({json.dumps(config.get(name)) for config in configs}) > 1
    ]
    return [", ".join(f"{name} {_text(config.get(name))}" for name in names) for config in configs]


def sweep_value(sweep: str, config: Record) -> Any:
    """The value of the sweep's variable in a configuration; it can be hashed and, unless a name, ordered."""
    sizes = config["channels"] or config["hidden"]
    if sweep == "width":
        return sizes[0]
    if sweep == "depth":
        return tuple(sizes)
    return config[_VARIED[sweep][0]]


def value_text(sweep: str, value: Any) -> str:
    """The value of a sweep's variable as people read it."""
    if sweep == "twin":
        return "SNN" if value else "non-spiking twin"
    return _text(value)


def _text(value: Any) -> str:
    if isinstance(value, (list, tuple)):
        return "-".join(map(str, value))
    if isinstance(value, bool) or value is None:
        return {True: "yes", False: "no", None: "none"}[value]
    return str(value)


def views(data: Throughput) -> list[View]:
    """Every sweep over every network that has a point, time shares apart."""
    found = []
    for sweep in (*NUMERIC, *CATEGORICAL):
        for network in data.networks:
            points = [p for p in data.points if sweep in p.sweeps and p.config["network"] == network]
            if points:
                found.append(_view(sweep, network, points, data.series))
    return found


def _view(sweep: str, network: str, points: Sequence[Point], order: Sequence[str]) -> View:
    values = list(dict.fromkeys(sweep_value(sweep, point.config) for point in points))
    if sweep in NUMERIC:
        values.sort(key=lambda value: (len(value), value) if sweep == "depth" else value)
    elif sweep == "twin":
        values.sort(reverse=True)
    fixed = ("device", *_VARIED[sweep])
    variants: dict[str, str] = {}
    for point, text in zip(points, differences([point.config for point in points], fixed)):
        variants.setdefault(settings(point.config, fixed), text)
    lines = []
    for series in order:
        for number, (key, text) in enumerate(variants.items()):
            chosen = {
                sweep_value(sweep, point.config): point
                for point in points
                if point.series == series and settings(point.config, fixed) == key
            }
            if chosen:
                lines.append(Line(f"{series}, {text}" if text else series, series, number, chosen))
    return View(sweep, network, values, lines)


def share_points(data: Throughput) -> list[tuple[str, Point]]:
    """The points of the sweep of time shares that have them, each with a label, by network and series."""
    found = []
    for network in data.networks:
        points = [
            point
            for point in data.points
            if "shares" in point.sweeps and point.ok and point.config["network"] == network
        ]
        points.sort(key=lambda point: data.series.index(point.series))
        for point, text in zip(points, differences([point.config for point in points], ("device",))):
            if point.record.get("shares"):
                found.append((", ".join(filter(None, (network, point.series, text))), point))
    return found


def pairs(data: Throughput, sweep: str, network: str, first: Any, second: Any) -> list[tuple[str, Point, Point]]:
    """Successful points of a sweep that differ only in its variable, first and second value, with a label."""
    found = []
    for view in views(data):
        if (view.sweep, view.network) == (sweep, network):
            for line in view.lines:
                one, two = line.points.get(first), line.points.get(second)
                if one is not None and two is not None and one.ok and two.ok:
                    found.append((line.label, one, two))
    return found


def geometric_mean(values: Sequence[float]) -> float:
    """The mean of ratios: a ratio and its inverse balance."""
    return math.exp(sum(map(math.log, values)) / len(values))


def relative(data: Throughput, network: str) -> dict[str, list[float]]:
    """Ratios to the baseline over one network, by series; the baseline itself is left out."""
    ratios: dict[str, list[float]] = {}
    for series in data.series:
        mine = [
            point.ratio
            for point in data.points
            if point.series == series and point.config["network"] == network and point.ratio is not None
        ]
        if mine and series != data.baseline:
            ratios[series] = mine
    return ratios
