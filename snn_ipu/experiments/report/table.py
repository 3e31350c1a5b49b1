"""The CSV file of a report: every record of every run, one row each."""

from __future__ import annotations

import csv
import io
from typing import Any, Sequence

from .load import Record, Run
from .throughput import Throughput


def csv_bytes(runs: Sequence[Run], data: Throughput) -> bytes:
    """All records of the runs as CSV with a header; the values of a list are separated by spaces.

    `superseded` marks records that a later one of the same point replaces; they have no series and no ratio.
    """
    points = {id(point.record): point for point in data.points}
    rows: list[dict[str, str]] = []
    for run in runs:
        for place, record in enumerate(run.records):
            row = {"run": run.name, "kind": run.kind, "superseded": _cell(place in run.superseded)}
            point = points.get(id(record))
            if point is not None:
                row["series"] = point.series
                row["baseline"] = _cell(data.baseline)
                row["ratio_to_baseline"] = _cell(point.ratio)
            row.update(_flat(record))
            rows.append(row)
    columns = list(dict.fromkeys(name for row in rows for name in row))
    text = io.StringIO()
    writer = csv.DictWriter(text, columns, restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue().encode()


def _flat(record: Record) -> dict[str, str]:
    flat: dict[str, str] = {}
    for name, value in record.items():
        if isinstance(value, dict):
            prefix = "" if name == "config" else f"{name}_"
            flat.update({f"{prefix}{inner}": _cell(part) for inner, part in value.items()})
        else:
            flat[name] = _cell(value)
    return flat


def _cell(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list):
        return " ".join(map(_cell, value))
    return str(value)
