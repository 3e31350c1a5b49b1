"""The OpenMP runtime that torch has loaded, shared with the kernels instead of starting a second one."""

from __future__ import annotations

import ctypes
import functools
import re
import warnings
from pathlib import Path

import torch

_NAME = re.compile(r"lib(?:gomp|iomp5|omp)[-.\w]*$")


def _loaded() -> list[str]:
    try:
        maps = Path("/proc/self/maps").read_text()
    except OSError:
        maps = ""
    mapped = dict.fromkeys(line.split(maxsplit=5)[5] for line in maps.splitlines() if line.count("/"))
    shipped = [str(p) for p in sorted(Path(torch.__file__).parent.joinpath("lib").glob("lib*omp*"))]
    return [path for path in (*mapped, *shipped) if _NAME.search(path)]


@functools.lru_cache(maxsize=None)
def parallel() -> int:
    """The address of `GOMP_parallel(function, data, threads, flags)`, or 0 with one warning where there is none."""
    for path in _loaded():
        entry = getattr(ctypes.CDLL(path), "GOMP_parallel", None)
        if entry is not None:
            return ctypes.cast(entry, ctypes.c_void_p).value or 0
    warnings.warn("torch uses no OpenMP runtime that was found, so CPU kernels run on one thread.", stacklevel=2)
    return 0
