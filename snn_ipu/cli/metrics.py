"""Metrics of a run as JSON lines: one record per training step and one per epoch."""

from __future__ import annotations

import json
import os
from typing import Any, Dict, Mapping, Union

from ..errors import CheckpointError, RunError

Record = Dict[str, Union[str, int, float, None]]

# fields that differ between two runs of equal content
TIMING_FIELDS = ("seconds", "images_per_second")


class MetricsLog:
    """Appends records; everything after the first `keep` bytes is dropped on opening.

    Raises: CheckpointError when the file has fewer than `keep` bytes or they do not end with a line; RunError when
    the file cannot be written.
    """

    def __init__(self, path: str, keep: int = 0) -> None:
        self._path = path
        try:
            self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o666)
        except OSError as e:
            raise self._unwritable(e) from e
        size = os.fstat(self._file).st_size
        if size < keep or (keep and os.pread(self._file, 1, keep - 1) != b"\n"):
            os.close(self._file)
            raise CheckpointError(
                f"{path} has {size} bytes and the checkpoint goes with whole lines of {keep} bytes: the file "
                "was changed. Restore it or start a new run."
            )
        os.ftruncate(self._file, keep)

    def write(self, record: Mapping[str, Any]) -> None:
        line = json.dumps(record, allow_nan=False).encode() + b"\n"
        try:
            while line:
                line = line[os.write(self._file, line) :]
        except OSError as e:
            raise self._unwritable(e) from e

    def sync(self) -> int:
        """Put everything written on disk; returns the file's length in bytes."""
        try:
            os.fsync(self._file)
        except OSError as e:
            raise self._unwritable(e) from e
        return os.fstat(self._file).st_size

    def _unwritable(self, error: OSError) -> RunError:
        return RunError(f"cannot write {self._path} ({error.strerror}). Free space or check permissions, then go on.")

    def __enter__(self) -> MetricsLog:
        return self

    def __exit__(self, *error: object) -> None:
        os.close(self._file)


def read_metrics(path: str) -> list[Record]:
    """Every whole record of a metrics file; a last line that a kill has cut short is left out."""
    with open(path, "rb") as file:
        lines = file.read().split(b"\n")
    return [json.loads(line) for line in lines[:-1]]
