"""The OpenMP runtime that torch uses, shared with the kernels instead of starting a second one."""

from __future__ import annotations

import ctypes
import functools
import os
import warnings
from pathlib import Path

_forked = False


def _after_fork() -> None:
    global _forked
    _forked = True


os.register_at_fork(after_in_child=_after_fork)


@functools.lru_cache(maxsize=None)
def _entry() -> int:
    """The address of GOMP_parallel in the runtime that libtorch_cpu itself is linked to, 0 where there is none."""
    try:
        maps = Path("/proc/self/maps").read_text()
    except OSError:
        maps = ""
    for line in maps.splitlines():
        path = line[line.find("/") :]
        if path.endswith("/libtorch_cpu.so"):
            # A handle's symbols include those of the libraries that it depends on, and of no others.
            entry = getattr(ctypes.CDLL(path), "GOMP_parallel", None)
            return 0 if entry is None else ctypes.cast(entry, ctypes.c_void_p).value or 0
    return 0


@functools.lru_cache(maxsize=None)
def _warn(reason: str) -> None:
    warnings.warn(f"CPU kernels run on one thread: {reason}", stacklevel=3)


def parallel() -> int:
    """The address of `GOMP_parallel(function, data, threads, flags)`, or 0 with one warning where it cannot be used.

    A forked child has none of its parent's threads, and GNU's runtime would wait for them for ever. Workers of a
    DataLoader never ask: torch gives them one thread.
    """
    if _forked:
        _warn("this process was forked. Start it with the 'spawn' method to use more.")
        return 0
    address = _entry()
    if not address:
        _warn("torch uses no OpenMP runtime that was found.")
    return address
