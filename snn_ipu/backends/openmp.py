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


class Runtime(ctypes.Structure):
    """Addresses of an OpenMP runtime's functions, as kernels take them."""

    _fields_ = [("GOMP_parallel", ctypes.c_void_p), ("omp_get_thread_num", ctypes.c_void_p)]


@functools.lru_cache(maxsize=None)
def _torchs() -> Runtime | None:
    """The runtime that libtorch_cpu itself is linked to, None where there is none."""
    try:
        maps = Path("/proc/self/maps").read_text()
    except OSError:
        maps = ""
    for line in maps.splitlines():
        path = line[line.find("/") :]
        if path.endswith("/libtorch_cpu.so"):
            # A handle's symbols include those of the libraries that it depends on, and of no others.
            library = ctypes.CDLL(path)
            names = ("GOMP_parallel", "omp_get_thread_num")
            if not all(hasattr(library, name) for name in names):
                return None
            return Runtime(*(ctypes.cast(getattr(library, name), ctypes.c_void_p) for name in names))
    return None


@functools.lru_cache(maxsize=None)
def _warn(reason: str) -> None:
    warnings.warn(f"CPU kernels run on one thread: {reason}", stacklevel=3)


def runtime() -> int:
    """The address of torch's runtime, a `Runtime`; 0 with one warning where it cannot be used.

    A forked child has none of its parent's threads, and GNU's runtime would wait for them for ever. Workers of a
    DataLoader never ask: torch gives them one thread.
    """
    if _forked:
        _warn("this process was forked. Start it with the 'spawn' method to use more.")
        return 0
    found = _torchs()
    if found is None:
        _warn("torch uses no OpenMP runtime that was found.")
        return 0
    return ctypes.addressof(found)
