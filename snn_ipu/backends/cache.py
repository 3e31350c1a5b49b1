"""The build cache: one shared library per content, safe for many processes at once."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Iterator, Sequence

from ..errors import BuildError

if sys.platform != "win32":
    import fcntl


def _writable(folder: Path) -> bool:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            return True
    except OSError:
        return False


def cache_dir() -> Path:
    """The folder of built kernels: $SNN_IPU_CACHE_DIR, else the user's cache, else a private temporary folder.

    Raises: BuildError when $SNN_IPU_CACHE_DIR is set but cannot be written and holds nothing.
    """
    chosen = os.environ.get("SNN_IPU_CACHE_DIR")
    if chosen:
        folder = Path(chosen).expanduser()
        if _writable(folder) or folder.is_dir():
            return folder
        raise BuildError(
            f"SNN_IPU_CACHE_DIR={chosen}: expected a folder that can be written. Point it elsewhere or unset it."
        )
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "snn_ipu"
    if _writable(home):
        return home
    fallback = Path(tempfile.gettempdir()) / f"snn_ipu-{os.getuid()}"
    fallback.mkdir(mode=0o700, parents=True, exist_ok=True)
    if fallback.stat().st_uid != os.getuid():
        raise BuildError(f"{fallback} belongs to another user. Set SNN_IPU_CACHE_DIR to a folder of your own.")
    return fallback


def content_key(*parts: str) -> str:
    """A name for a build from everything that decides its content."""
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:32]


def find_compiler() -> str | None:
    """The path of the C++ compiler: $CXX, else the first of g++, c++, clang++."""
    return _find_compiler(os.environ.get("CXX"), os.environ.get("PATH"))


@functools.lru_cache(maxsize=8)
def _find_compiler(chosen: str | None, path: str | None) -> str | None:
    names = [chosen] if chosen else ["g++", "c++", "clang++"]
    return next((found for name in names if (found := shutil.which(name, path=path))), None)


@functools.lru_cache(maxsize=None)
def compiler_version(compiler: str) -> str:
    """What the compiler says of itself; part of every content key."""
    return _run([compiler, "--version"])


@functools.lru_cache(maxsize=None)
def machine() -> str:
    """The processor's instruction sets: a library built for one processor may not run on another."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    flags = next((line for line in lines if line.startswith(("flags", "Features"))), "")
    return f"{sys.platform} {os.uname().machine} {flags}"


def _run(command: Sequence[str]) -> str:
    try:
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    except OSError as error:
        raise BuildError(f"{command[0]} could not be run: {error}. Install a C++ compiler or set CXX.") from error
    if done.returncode != 0:
        shown = " ".join(command)
        raise BuildError(f"`{shown}` ended with {done.returncode}:\n{done.stdout.strip()[-4000:]}")
    return done.stdout


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    with open(path, "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def build_library(key: str, source: str, command: Sequence[str], suffix: str = ".cpp") -> Path:
    """The shared library for `key`, built from `source` where the cache does not have it.

    Args:
        key: from `content_key`.
        source: text of the one source file.
        command: compiler and flags; "{source}" and "{output}" in it are replaced by paths.

    Another process that builds the same key is waited for. A build goes to a temporary folder and is renamed when
    complete, so a killed one leaves nothing that counts.

    Raises: BuildError with the compiler's output, or the reason why the cache cannot be written.
    """
    folder = cache_dir()
    library = folder / f"{key}.so"
    if library.exists():
        return library
    try:
        with _locked(folder / f"{key}.lock"):
            if library.exists():
                return library
            with tempfile.TemporaryDirectory(prefix=f"{key}-", dir=folder) as work:
                text, output = Path(work) / f"kernel{suffix}", Path(work) / "kernel.so"
                text.write_text(source)
                _run([part.format(source=text, output=output) for part in command])
                os.replace(text, folder / f"{key}{suffix}")
                os.replace(output, library)
    except OSError as error:
        raise BuildError(
            f"the kernel cache {folder} cannot be written: {error}. Free space or set SNN_IPU_CACHE_DIR."
        ) from error
    (folder / f"{key}.lock").unlink(missing_ok=True)
    return library


def load_library(path: Path) -> ctypes.CDLL:
    """Load a built library.

    Raises: BuildError when the file is damaged; it is removed, so that the next use builds it again.
    """
    try:
        return ctypes.CDLL(str(path))
    except OSError as error:
        path.unlink(missing_ok=True)
        raise BuildError(f"{path} could not be loaded and was removed: {error}. Run again to rebuild it.") from error
