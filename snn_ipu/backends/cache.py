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
import time
from pathlib import Path
from typing import Iterator, Sequence

from ..errors import BuildError

if sys.platform != "win32":
    import fcntl


_DIGEST_SIZE = hashlib.sha256().digest_size
_DEAD_AFTER = 24 * 3600.0


def _writable(folder: Path) -> bool:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            return True
    except OSError:
        return False


def _preferred() -> Path | None:
    """$SNN_IPU_CACHE_DIR or the user's cache; None for a user without a home."""
    chosen, base = os.environ.get("SNN_IPU_CACHE_DIR"), os.environ.get("XDG_CACHE_HOME")
    if chosen:
        return Path(chosen).expanduser()
    try:
        return (Path(base) if base else Path.home() / ".cache") / "snn_ipu"
    except RuntimeError:
        return None


def cache_dir() -> Path:
    """The folder that new kernels go to: $SNN_IPU_CACHE_DIR, else the user's cache, else a private temporary folder.

    Raises: BuildError when $SNN_IPU_CACHE_DIR is no folder and cannot become one, or when no temporary folder can be
        written either.
    """
    preferred = _preferred()
    if preferred is not None and _writable(preferred):
        return preferred
    chosen = os.environ.get("SNN_IPU_CACHE_DIR")
    if chosen and preferred is not None:
        if preferred.is_dir():
            return preferred
        raise BuildError(
            f"SNN_IPU_CACHE_DIR={chosen}: expected a folder that can be written. Point it elsewhere or unset it."
        )
    try:
        fallback = Path(tempfile.gettempdir()) / f"snn_ipu-{os.getuid()}"
        fallback.mkdir(mode=0o700, exist_ok=True)
        owner = fallback.stat().st_uid
    except OSError as error:
        raise BuildError(f"no folder for kernels can be written: {error}. Set SNN_IPU_CACHE_DIR to one.") from error
    if owner != os.getuid():
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
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
    except OSError as error:
        raise BuildError(f"{command[0]} could not be run: {error}. Install a C++ compiler or set CXX.") from error
    said = done.stdout.decode(errors="replace")
    if done.returncode != 0:
        shown = " ".join(command)
        raise BuildError(f"`{shown}` ended with {done.returncode}:\n{said.strip()[-4000:]}")
    return said


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    with open(path, "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        try:
            yield
        finally:
            # Closing is not enough: a process forked meanwhile holds the same lock.
            fcntl.flock(lock, fcntl.LOCK_UN)


def _seal(library: Path) -> None:
    """Append a digest, which the loader of libraries ignores."""
    with open(library, "r+b") as file:
        file.write(hashlib.sha256(file.read()).digest())


def _intact(library: Path) -> bool:
    """Whether the file is there, complete and unchanged; loading a truncated library could kill the process."""
    try:
        content = library.read_bytes()
    except OSError:
        return False
    return content[-_DIGEST_SIZE:] == hashlib.sha256(content[:-_DIGEST_SIZE]).digest()


def _sweep(folder: Path, key: str) -> None:
    """Remove what killed builds have left: of this key, whose lock is held, and of others after a day."""
    oldest = time.time() - _DEAD_AFTER
    for left in folder.glob("?" * len(key) + "-*"):
        with contextlib.suppress(OSError):
            if left.name.startswith(key) or left.stat().st_mtime < oldest:
                shutil.rmtree(left)


def build_library(key: str, source: str, command: Sequence[str], suffix: str = ".cpp") -> Path:
    """The shared library for `key`, built from `source` where the cache has no intact one.

    Args:
        key: from `content_key`.
        source: text of the one source file.
        command: compiler and flags; "{source}" and "{output}" in it are replaced by paths.

    Another process that builds the same key is waited for. A build goes to a temporary folder and is renamed when
    complete, so a killed one leaves nothing that counts. A cache that cannot be written serves what it holds.

    Raises: BuildError with the compiler's output, or the reason why the cache cannot be written.
    """
    preferred = _preferred()
    if preferred is not None and _intact(preferred / f"{key}.so"):
        return preferred / f"{key}.so"
    folder = cache_dir()
    library, lock = folder / f"{key}.so", folder / f"{key}.lock"
    if _intact(library):
        return library
    try:
        with _locked(lock):
            if not _intact(library):
                _sweep(folder, key)
                with tempfile.TemporaryDirectory(prefix=f"{key}-", dir=folder) as work:
                    text, output = Path(work) / f"kernel{suffix}", Path(work) / "kernel.so"
                    text.write_text(source)
                    _run([part.format(source=text, output=output) for part in command])
                    _seal(output)
                    os.replace(text, folder / f"{key}{suffix}")
                    os.replace(output, library)
        lock.unlink(missing_ok=True)
    except OSError as error:
        raise BuildError(
            f"the kernel cache {folder} cannot be written: {error}. Free space or set SNN_IPU_CACHE_DIR."
        ) from error
    return library


def load_library(path: Path) -> ctypes.CDLL:
    """Load a built library.

    Raises: BuildError where the system refuses it.
    """
    try:
        return ctypes.CDLL(str(path))
    except OSError as error:
        raise BuildError(
            f"{path} could not be loaded: {error}. Delete it if another machine built it; set SNN_IPU_CACHE_DIR to "
            "another folder if this one is on a file system mounted noexec."
        ) from error
