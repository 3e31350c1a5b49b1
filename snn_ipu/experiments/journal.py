"""The folder of a sweep: what was asked for, and a line for every result, so that it goes on where it stopped."""

from __future__ import annotations

import json
import os
import shlex
import sys
from datetime import datetime, timezone
from types import TracebackType
from typing import Any

from ..cli.metrics import MetricsLog
from ..cli.run_folder import FolderLock, write_whole
from ..errors import RunError
from . import machine

# what must stay the same for results to lie in one folder
_FIXED = ("machine", "versions", "options")


def command_line() -> str:
    """The command that runs, as one would type it."""
    program, *arguments = sys.argv
    return shlex.join([*(["python", program] if program.endswith(".py") else [os.path.basename(program)]), *arguments])


class Journal:
    """Results of one sweep in `folder`, appended one line each and on disk before the next is measured.

    Args:
        folder: made where it is missing; it may hold the beginning of the same sweep.
        kind: "throughput" or "population". options: all that decides what is measured. notes: for the reader.

    Raises: RunError when the folder cannot be written, is in use, or holds another sweep or one of another machine.
    """

    def __init__(self, folder: str, kind: str, options: dict[str, Any], notes: list[str]) -> None:
        self.folder = folder
        self.header: dict[str, Any] = {
            "kind": kind,
            "command": command_line(),
            "started": datetime.now(timezone.utc).isoformat(timespec="seconds"),
            "machine": machine.describe(),
            "versions": machine.versions(),
            "options": options,
            "notes": notes,
        }
        self._header_path = os.path.join(folder, "run.json")
        self._results_path = os.path.join(folder, "results.jsonl")
        self._lock = FolderLock(folder)

    def __enter__(self) -> Journal:
        self._lock.__enter__()
        try:
            self._open()
        except BaseException:
            self._lock.__exit__()
            raise
        return self

    def _open(self) -> None:
        if os.path.exists(self._header_path):
            self._compare()
        elif os.path.exists(self._results_path):
            raise RunError(f"--out {self.folder}: results.jsonl lies there without its run.json. Give another folder.")
        else:
            write_whole(self._header_path, json.dumps(self.header, indent=2).encode() + b"\n")
        whole = b""
        if os.path.exists(self._results_path):
            content = self._read(self._results_path)
            whole = content[: content.rfind(b"\n") + 1]
        self.results = [self._parsed(line, self._results_path) for line in whole.splitlines()]
        self._log = MetricsLog(self._results_path, keep=len(whole))

    def _compare(self) -> None:
        before = self._parsed(self._read(self._header_path), self._header_path)
        wanted = json.loads(json.dumps(self.header))
        if not all(isinstance(before.get(name), dict) for name in _FIXED):
            raise self._damaged(self._header_path, "it lacks machine, versions or options")
        differing = [
            f"{name}: {key} was {before.get(name, {}).get(key)!r}, is {wanted[name].get(key)!r}"
            for name in _FIXED
            for key in sorted({*before.get(name, {}), *wanted[name]})
            if before.get(name, {}).get(key) != wanted[name].get(key)
        ]
        if before.get("kind") != wanted["kind"]:
            differing = [f"kind was {before.get('kind')!r}, is {wanted['kind']!r}"]
        if differing:
            raise RunError(
                f"--out {self.folder}: the folder holds another sweep ({'; '.join(differing)}). Give the same options "
                "on the same machine to go on with it, or another folder."
            )
        self.header = before

    def _read(self, path: str) -> bytes:
        try:
            with open(path, "rb") as file:
                return file.read()
        except OSError as e:
            raise RunError(f"cannot read {path} ({e.strerror}). Check permissions or give another folder.") from e

    def _parsed(self, text: bytes, path: str) -> dict[str, Any]:
        try:
            value = json.loads(text)
        except ValueError as e:
            raise self._damaged(path, str(e)) from e
        if not isinstance(value, dict):
            raise self._damaged(path, f"an object was expected, {text[:40]!r} found")
        return value

    def _damaged(self, path: str, reason: str) -> RunError:
        return RunError(f"{path} is damaged ({reason}). Restore it from a copy or give another folder.")

    def add(self, record: dict[str, Any]) -> None:
        """Write a result through to the disk."""
        self._log.write(record)
        self._log.sync()
        self.results.append(record)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._log.__exit__()
        self._lock.__exit__()
