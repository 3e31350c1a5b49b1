"""A bounded pool of memory for kernel outputs, so that a training step does not pay for fresh pages every time.

A tensor from the pool owns its block: the block comes back when the last tensor or view that uses it is gone, whichever
thread lets go of it. `limit` bounds what lies idle; memory in use is bounded by what the caller keeps alive.
"""

from __future__ import annotations

import contextlib
import math
import os
import threading
import weakref
from collections import OrderedDict, deque
from pathlib import Path
from typing import NamedTuple, Sequence

import numpy as np
import torch
from torch import Tensor

_SMALL = 1 << 16
_ALIGN = 64
_BYTE = np.dtype(np.uint8)
# NumPy's name of a type, where it has one, and the size of an element.
_DTYPES: dict[torch.dtype, tuple[np.dtype | None, int]] = {
    torch.float64: (np.dtype(np.float64), 8),
    torch.float32: (np.dtype(np.float32), 4),
    torch.float16: (np.dtype(np.float16), 2),
    torch.bfloat16: (None, 2),
}


class Stats(NamedTuple):
    """Bytes of the pool: `idle` lie ready, `in_use` belong to living tensors, `limit` bounds idle."""

    idle: int
    in_use: int
    limit: int


def _memory() -> int:
    """Bytes that this process may use: the machine's, or the container's where that is less."""
    sizes = [os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")]
    for path in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        with contextlib.suppress(OSError, ValueError):
            sizes.append(int(Path(path).read_text()))
    return min(sizes)


def _default_limit() -> int:
    chosen = os.environ.get("SNN_IPU_POOL_BYTES")
    if chosen is None:
        return _memory() // 4
    if not chosen.isdecimal():
        raise ValueError(f"SNN_IPU_POOL_BYTES={chosen!r}: expected a number of bytes; 0 switches the pool off.")
    return int(chosen)


def _size_class(nbytes: int) -> int:
    """Round up to one of eight sizes per power of two, so that slightly different batches share blocks."""
    step = max(_ALIGN, 1 << max(nbytes - 1, 1).bit_length() - 4)
    return -(-nbytes // step) * step


class Pool:
    """Blocks of plain private memory by size class; the least recently used class is freed first."""

    def __init__(self, limit: int):
        self.limit = limit
        self._lock = threading.Lock()
        self._free: OrderedDict[int, list[np.ndarray]] = OrderedDict()
        self._returned: deque[weakref.ref[np.ndarray]] = deque()
        self._idle = 0
        self._loans: dict[int, tuple[weakref.ref[np.ndarray], np.ndarray, int]] = {}

    def take(self, nbytes: int, shape: Sequence[int], strides: Sequence[int] | None, dtype: np.dtype) -> np.ndarray:
        """A writable array of nbytes, 64-byte aligned, with undefined content; strides in bytes, None if contiguous."""
        size = _size_class(nbytes)
        with self._lock:
            if self._returned:
                self._collect()
            blocks = self._free.get(size)
            block = blocks.pop() if blocks else None
            if block is not None:
                self._idle -= size
        if block is None:
            block = self._allocate(size)
        array: np.ndarray = np.ndarray(shape, dtype, block, 0, strides)
        # The callback may run at any point of any thread, also while this one holds the lock, so it never waits.
        loan = weakref.ref(array, self._give_back)
        self._loans[id(loan)] = loan, block, size
        return array

    def _allocate(self, size: int) -> np.ndarray:
        try:
            raw = np.empty(size + _ALIGN, np.uint8)
        except MemoryError:
            self.empty_cache()
            raw = np.empty(size + _ALIGN, np.uint8)
        offset = -raw.ctypes.data % _ALIGN
        return raw[offset : offset + size]

    def _give_back(self, loan: weakref.ref[np.ndarray]) -> None:
        self._returned.append(loan)
        if self._lock.acquire(blocking=False):
            try:
                self._collect()
            finally:
                self._lock.release()

    def _collect(self) -> None:
        while self._returned:
            _, block, size = self._loans.pop(id(self._returned.popleft()))
            if size <= self.limit:
                self._free.setdefault(size, []).append(block)
                self._free.move_to_end(size)
                self._idle += size
        while self._idle > self.limit:
            size, blocks = next(iter(self._free.items()))
            if blocks:
                blocks.pop()
                self._idle -= size
            if not blocks:
                del self._free[size]

    def set_limit(self, limit: int) -> None:
        if isinstance(limit, bool) or not isinstance(limit, int) or limit < 0:
            raise ValueError(f"set_limit({limit!r}): expected a number of bytes, 0 or more; 0 switches the pool off.")
        self.limit = limit
        with self._lock:
            self._collect()

    def empty_cache(self) -> None:
        with self._lock:
            self._collect()
            self._free.clear()
            self._idle = 0

    def stats(self) -> Stats:
        with self._lock:
            self._collect()
            return Stats(self._idle, sum(size for _, _, size in list(self._loans.values())), self.limit)

    def after_fork(self) -> None:
        """In a forked child, where another thread may have held the lock; the blocks themselves are private copies."""
        self._lock = threading.Lock()
        self._idle = sum(size * len(blocks) for size, blocks in self._free.items())


_pool = Pool(_default_limit())
os.register_at_fork(after_in_child=_pool.after_fork)


def empty(shape: Sequence[int], strides: Sequence[int], dtype: torch.dtype) -> Tensor:
    """An uninitialised CPU tensor from the pool; small ones and those of a pool that is off come from torch.

    Args:
        shape, strides: of the tensor, in elements; the strides must cover the shape without gaps.
        dtype: its type.

    The tensor cannot grow in place: `resize_` to more elements raises RuntimeError, as for any tensor over foreign
    memory; clone it first.
    """
    known, itemsize = _DTYPES[dtype]
    nbytes = math.prod(shape) * itemsize
    if nbytes < _SMALL or _pool.limit == 0:
        return torch.empty_strided(tuple(shape), tuple(strides), dtype=dtype, device="cpu")
    if known is not None:
        return torch.from_numpy(_pool.take(nbytes, shape, [itemsize * s for s in strides], known))
    # In place, since a view would name another tensor as its base.
    return torch.frombuffer(_pool.take(nbytes, (nbytes,), None, _BYTE), dtype=dtype).as_strided_(shape, strides)


def stats() -> Stats:
    """What the pool holds, in bytes."""
    return _pool.stats()


def set_limit(limit: int) -> None:
    """Bound the idle memory of the pool, in bytes: a quarter of the memory there is at first; 0 switches it off."""
    _pool.set_limit(limit)


def empty_cache() -> None:
    """Free all idle memory of the pool."""
    _pool.empty_cache()


__all__ = ("Stats", "empty", "empty_cache", "set_limit", "stats")
