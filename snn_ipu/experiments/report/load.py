"""Run folders of the experiments, read and checked."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from typing import Any, Dict, Sequence

from ...errors import DataError, RunError

Record = Dict[str, Any]

SWEEPS = ("batch", "width", "depth", "steps", "neuron", "precision", "twin", "shares")
STATUSES = {
    "throughput": ("ok", "timeout", "out of memory", "failed", "unavailable"),
    "population": ("ok", "failed"),
}
_FIELDS = {
    "throughput": ("config", "sweeps", "status"),
    "population": (
        "population",
        "num_steps",
        "seed",
        "data",
        "model",
        "classes",
        "train_images",
        "test_images",
        "status",
    ),
}
_CONFIG = (
    "network",
    "device",
    "batch",
    "num_steps",
    "hidden",
    "channels",
    "neuron",
    "precision",
    "spiking",
)
_NUMBERS_IF_OK = {
    "throughput": ("images_per_second", "images_per_second_low", "images_per_second_high", "tflops"),
    "population": (),
}
_LISTS_IF_OK = {"throughput": ("seconds",), "population": ("test_accuracy", "seconds_per_epoch")}
# a training that was interrupted in each epoch has no time of a whole one
_MAY_BE_EMPTY = ("seconds_per_epoch",)
_INFO = ("command", "started", "machine", "versions", "options", "notes")


@dataclass(frozen=True)
class Run:
    """One run folder: run.json as `info`, the whole lines of results.jsonl as `records`.

    `name` tells it from the other runs of the report; `superseded` are the places of records that a later record
    of the same point replaces.
    """

    path: str
    name: str
    info: Record
    records: list[Record]
    superseded: frozenset[int]

    @property
    def kind(self) -> str:
        return str(self.info["kind"])


def read_runs(folders: Sequence[str]) -> list[Run]:
    """The runs of these folders, in this order.

    Args: folders, each with run.json and results.jsonl; a last line that a kill has cut short is left out.
    Raises: RunError for a folder without these files or given twice; DataError when their content is damaged.
    """
    absolute = [os.path.realpath(folder) for folder in folders]
    for folder, path in zip(folders, absolute):
        if absolute.count(path) > 1:
            raise RunError(f"snn-ipu report {' '.join(folders)}: {folder} is given twice. Name each run once.")
    return [_read_run(path, name) for path, name in zip(absolute, _names(absolute))]


def _names(paths: Sequence[str]) -> list[str]:
    """The ends of different absolute paths, as short as they can be and differ."""
    parts = [path.strip(os.sep).split(os.sep) for path in paths]
    for length in range(1, max(map(len, parts), default=0) + 1):
        names = ["/".join(part[-length:]) for part in parts]
        if len(set(names)) == len(names):
            return names
    return list(paths)


def _read_run(path: str, name: str) -> Run:
    info_path, results_path = os.path.join(path, "run.json"), os.path.join(path, "results.jsonl")
    for needed in (info_path, results_path):
        if not os.path.isfile(needed):
            raise RunError(
                f"snn-ipu report {path}: no {os.path.basename(needed)} there. Give the folder of a run of "
                "snn-ipu throughput or snn-ipu population."
            )
    with open(info_path, "rb") as file:
        info = _parse(file.read(), info_path)
    if info.get("kind") not in STATUSES:
        raise DataError(f"{info_path}: kind is {info.get('kind')!r}, expected one of {', '.join(STATUSES)}.")
    _need(info, _INFO, info_path)
    with open(results_path, "rb") as file:
        lines = file.read().split(b"\n")[:-1]
    kind = str(info["kind"])
    records = [_record(line, kind, f"{results_path}, line {number}") for number, line in enumerate(lines, 1)]
    last = {point_key(record, kind): place for place, record in enumerate(records)}
    superseded = frozenset(place for place, record in enumerate(records) if last[point_key(record, kind)] != place)
    return Run(path, name, info, records, superseded)


def point_key(record: Record, kind: str) -> str:
    """Equal for two records of the same point of a run of this kind."""
    if kind == "throughput":
        return json.dumps(record["config"], sort_keys=True)
    return json.dumps([record[name] for name in _FIELDS["population"] if name != "status"])


def _record(line: bytes, kind: str, where: str) -> Record:
    record = _parse(line, where)
    _need(record, _FIELDS[kind], where)
    if record["status"] not in STATUSES[kind]:
        raise DataError(f"{where}: status is {record['status']!r}, expected one of {', '.join(STATUSES[kind])}.")
    if kind == "throughput":
        if not isinstance(record["config"], dict):
            raise DataError(f"{where}: config is {record['config']!r}, expected an object.")
        _need(record["config"], _CONFIG, f"{where}, config")
        unknown = [name for name in record["sweeps"] if name not in SWEEPS]
        if unknown:
            raise DataError(f"{where}: sweeps has {unknown[0]!r}, expected names among {', '.join(SWEEPS)}.")
    if record["status"] == "ok":
        for name in _NUMBERS_IF_OK[kind]:
            if not _is_number(record.get(name)):
                raise DataError(f"{where}: {name} is {record.get(name)!r} and status ok, expected a number.")
        for name in _LISTS_IF_OK[kind]:
            values = record.get(name)
            complete = isinstance(values, list) and all(map(_is_number, values))
            if not complete or not (values or name in _MAY_BE_EMPTY):
                raise DataError(f"{where}: {name} is {values!r} and status ok, expected a list of numbers.")
    return record


def _parse(content: bytes, where: str) -> Record:
    try:
        value = json.loads(content)
    except ValueError as e:
        raise DataError(f"{where}: not valid JSON ({e}). Restore the file or leave this run out.") from e
    if not isinstance(value, dict):
        raise DataError(f"{where}: expected a JSON object, got {type(value).__name__}. Restore the file.")
    return value


def _need(record: Record, names: Sequence[str], where: str) -> None:
    missing = [name for name in names if name not in record]
    if missing:
        raise DataError(f"{where}: no {', '.join(missing)}. Restore the file or run the experiment again.")


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)
