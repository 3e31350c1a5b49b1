"""The report on runs of the experiments: a CSV file, charts, and one HTML page."""

from __future__ import annotations

import os
from typing import Sequence

from ...cli.run_folder import write_whole
from ...errors import RunError
from .load import Run, read_runs
from .page import page
from .plots import Picture, population_pictures, relative_picture, shares_picture, sweep_pictures
from .population import studies
from .table import csv_bytes
from .throughput import collect

__all__ = ["write_report"]


def write_report(folders: Sequence[str], out: str, baseline: str | None = None) -> list[str]:
    """Write report.html, results.csv and the charts about these runs.

    Args:
        folders: run folders of snn-ipu throughput and snn-ipu population, in any mix.
        out: folder for the files, made if need be; a run's own folder will do.
        baseline: device or series that speeds are compared with; None for snntorch-cpu, or else the first that ran.

    Returns: paths of the files, the page first.
    Raises: RunError for no run, an unknown baseline, runs without any measured point, or when a file cannot be
    written; DataError for damaged files.
    """
    runs = read_runs(folders)
    _check(runs, folders)
    data = collect(runs, baseline)
    found = studies(runs)

    pictures: dict[tuple[str, str], list[Picture]] = {**sweep_pictures(data)}
    for key, picture in (("relative", relative_picture(data)), ("shares", shares_picture(data))):
        if picture is not None:
            pictures[key, ""] = [picture]
    for place, study in enumerate(found):
        suffix = f"-{place + 1}" if len(found) > 1 else ""
        pictures["population", str(place)] = population_pictures(study, suffix)

    files = {"results.csv": csv_bytes(runs, data)}
    files.update({picture.name: picture.png for group in pictures.values() for picture in group})
    files = {"report.html": page(runs, data, found, pictures, list(files)).encode(), **files}
    try:
        os.makedirs(out, exist_ok=True)
    except OSError as e:
        raise RunError(f"--out {out}: cannot write there ({e.strerror}). Give a folder that can be written.") from e
    for name, content in files.items():
        write_whole(os.path.join(out, name), content)
    return [os.path.join(out, name) for name in files]


def _check(runs: Sequence[Run], folders: Sequence[str]) -> None:
    records = [record for run in runs for record in run.records]
    if any(record["status"] == "ok" for record in records):
        return
    call = f"snn-ipu report {' '.join(folders)}"
    if not records:
        raise RunError(f"{call}: no results there yet. Run the experiment again; it goes on where it stopped.")
    first = records[0]
    raise RunError(
        f"{call}: none of the {len(records)} points was measured, so there is nothing to report; the first one: "
        f"{first['status']}, {first.get('reason') or 'no reason given'}. The reasons are in results.jsonl."
    )
