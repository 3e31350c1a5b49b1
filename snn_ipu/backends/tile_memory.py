"""What a scan costs on the tiles of an IPU, before anything is built: the mapping of custom_ops, called from Python."""

from __future__ import annotations

import ctypes
import functools
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import NamedTuple

from ..errors import BuildError
from . import cache

CUSTOM_OPS = Path(__file__).resolve().parent.parent / "custom_ops"
TILES = 1472
TILE_BYTES = 624 * 1024
# Left to code, exchange buffers, stacks and other tensors.
ROOM = TILE_BYTES - TILE_BYTES // 10
_FLAGS = ("-std=c++17", "-O2", "-fPIC", "-shared")


class Share(NamedTuple):
    """Neurons [begin, end) on one tile; `padded` is their number in whole 8-byte grains."""

    tile: int
    begin: int
    end: int
    padded: int


@dataclass(frozen=True)
class ScanSizes:
    """The sizes of a scan, field by field as in mapping.hpp."""

    steps: int
    batch: int
    features: int
    item_bytes: int
    static: bool
    states: int
    traces: int
    saves: int
    save_bytes: int
    checkpoint: int
    params: int
    learned: int
    needs_x: bool
    kept_traces: int
    training: bool


class ScanBytes(NamedTuple):
    """Bytes on the fullest tile in the forward and in the backward vertex, held between them, and exchanged in all."""

    forward: int
    backward: int
    held: int
    exchanged: int


@functools.lru_cache(maxsize=None)
def _library() -> ctypes.CDLL:
    compiler = cache.find_compiler()
    if compiler is None:
        raise BuildError("no C++ compiler was found. Install g++ or set CXX to one.")
    files = [CUSTOM_OPS / name for name in ("mapping.hpp", "mapping.cpp")]
    source = "\n".join(f.read_text() for f in files)
    command = [compiler, *_FLAGS, str(files[1]), "-o", "{output}"]
    key = cache.content_key(source, " ".join(_FLAGS), cache.compiler_version(compiler), cache.machine())
    library = cache.load_library(cache.build_library(key, source, command))
    library.snn_ipu_spread.restype = ctypes.c_int64
    library.snn_ipu_spread.argtypes = [ctypes.c_int64] * 3 + [ctypes.c_void_p, ctypes.c_int64]
    library.snn_ipu_scan_bytes.restype = None
    library.snn_ipu_scan_bytes.argtypes = [ctypes.c_void_p, ctypes.c_int64, ctypes.c_void_p]
    return library


def spread(neurons: int, tiles: int, grain: int) -> list[Share]:
    """Neurons over tiles as evenly as whole grains allow; few neurons use few tiles, so that all workers have work.

    Args:
        neurons: B * N. tiles: of the IPU. grain: neurons in 8 bytes of data, 2 for float32 and 4 for float16.
    """
    rows = (ctypes.c_int64 * (4 * tiles))()
    count = _library().snn_ipu_spread(neurons, tiles, grain, rows, tiles)
    return [Share(*rows[4 * i : 4 * i + 4]) for i in range(count)]


def scan_bytes(sizes: ScanSizes, tiles: int = TILES) -> ScanBytes:
    """Bytes of a scan on `tiles` tiles."""
    values = [int(v) for v in astuple(sizes)]
    out = (ctypes.c_int64 * 4)()
    _library().snn_ipu_scan_bytes((ctypes.c_int64 * len(values))(*values), tiles, out)
    return ScanBytes(*out)
