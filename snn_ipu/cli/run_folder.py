"""The folder of one training run: its files, replaced whole, and a lock against a second process."""

from __future__ import annotations

import fcntl
import os

from ..errors import RunError


class FolderLock:
    """Makes a folder and keeps other processes out; the kernel frees the lock when the process ends, however it ends.

    Raises: RunError when another process uses the folder, or when it cannot be written.
    """

    def __init__(self, path: str) -> None:
        self._path = path

    def __enter__(self) -> FolderLock:
        try:
            os.makedirs(self._path, exist_ok=True)
            self._lock = os.open(os.path.join(self._path, ".lock"), os.O_WRONLY | os.O_CREAT, 0o666)
        except OSError as e:
            raise RunError(
                f"--out {self._path}: cannot write there ({e.strerror}). Give a folder that can be written."
            ) from e
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as e:
            os.close(self._lock)
            raise RunError(
                f"--out {self._path}: another process works in this folder. Wait or give another folder."
            ) from e
        return self

    def __exit__(self, *error: object) -> None:
        os.close(self._lock)


class RunFolder:
    """A locked run folder.

    Args: path; resume, whether the folder must hold a run (True) or must not (False).
    Raises: RunError when it does not, when another process uses it, or when it cannot be written.
    """

    def __init__(self, path: str, *, resume: bool) -> None:
        self.path = path
        self.config = os.path.join(path, "config.json")
        self.checkpoint = os.path.join(path, "checkpoint.pt")
        self.metrics = os.path.join(path, "metrics.jsonl")
        self.curves = os.path.join(path, "curves.png")
        self.raster = os.path.join(path, "raster.png")
        self._resume = resume
        self._lock = FolderLock(path)

    def __enter__(self) -> RunFolder:
        if self._resume and not self.holds_run():
            raise RunError(f"--out {self.path} --resume: the folder holds no run. Start it without --resume.")
        self._lock.__enter__()
        if not self._resume and self.holds_run():
            self._lock.__exit__()
            raise RunError(
                f"--out {self.path}: the folder holds a run. Add --resume to continue it or give another folder."
            )
        return self

    def __exit__(self, *error: object) -> None:
        self._lock.__exit__()

    def holds_run(self) -> bool:
        return os.path.exists(self.config)


def write_whole(path: str, content: bytes) -> None:
    """Replace a file's content so that at any moment it holds the old bytes or the new, never a part.

    Raises: RunError when the content cannot be written; the old file is then as it was.
    """
    temporary = f"{path}.tmp"
    try:
        with open(temporary, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
        _sync_folder(os.path.dirname(path) or ".")
    except OSError as e:
        raise RunError(f"cannot write {path} ({e.strerror}). Free space or check permissions, then go on.") from e


def _sync_folder(path: str) -> None:
    # the rename itself is durable only once its folder is
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
