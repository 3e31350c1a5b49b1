"""Memory layout of frames: kernels see a frame as one dense run of M values, whatever its strides are."""

from __future__ import annotations

import math
from typing import Sequence, Tuple

import torch
from torch import Tensor

from .. import buffers

Strides = Tuple[int, ...]


def contiguous_strides(shape: Sequence[int]) -> Strides:
    strides, step = [], 1
    for size in reversed(shape):
        strides.append(step)
        step *= max(size, 1)
    return tuple(reversed(strides))


def dense_strides(shape: Sequence[int], strides: Sequence[int], features: int = 0) -> Strides:
    """Strides of a dense frame that keep the order of dimensions in memory where that is possible.

    Args:
        shape, strides: of the frame as it comes.
        features: how many trailing dimensions the parameters span; these must lie innermost.

    Returns: the frame's own strides when it is dense and fit, else contiguous strides, which ask for a copy.
    """
    order = sorted((d for d, size in enumerate(shape) if size != 1), key=lambda d: -strides[d])
    step = 1
    for d in reversed(order):
        if strides[d] != step:
            return contiguous_strides(shape)
        step *= shape[d]
    outer = len(shape) - features
    inner_started = False
    for d in order:
        inner_started |= d >= outer
        if features and inner_started and d < outer:
            return contiguous_strides(shape)
    return tuple(strides)


def same_layout(shape: Sequence[int], a: Sequence[int], b: Sequence[int]) -> bool:
    return all(size <= 1 or s == r for size, s, r in zip(shape, a, b))


def arrange(t: Tensor, strides: Strides, dtype: torch.dtype | None = None) -> Tensor:
    """The tensor itself where it has these strides and this dtype, else a copy that has."""
    t = t.resolve_neg()
    dtype = t.dtype if dtype is None else dtype
    if t.dtype == dtype and same_layout(t.shape, t.stride(), strides):
        return t
    return buffers.empty(t.shape, strides, dtype).copy_(t)


def arrange_over_time(t: Tensor, strides: Strides) -> tuple[Tensor, int]:
    """A sequence [T, *frame] with dense frames, and its time stride in elements.

    A time stride of 0, as `expand` and the backward of `sum` produce, costs one frame, not T of them.
    """
    t = t.resolve_neg()
    if same_layout(t.shape[1:], t.stride()[1:], strides):
        return t, t.stride(0)
    if t.shape[0] > 0 and t.stride(0) == 0:
        return arrange(t[0], strides).expand(t.shape), 0
    size = max(t[0].numel(), 1) if t.shape[0] else 1
    return arrange(t, (size, *strides)), size


class Frames:
    """How the frames of a call lie in memory, and which of their trailing dimensions the parameters span."""

    def __init__(self, shape: tuple[int, ...], strides: Strides, features: int):
        self.shape = shape
        self.strides = dense_strides(shape, strides, features)
        self.neurons = math.prod(shape)
        outer = len(shape) - features
        self._inner = shape[outer:]
        self._order = sorted(range(features), key=lambda d: -self.strides[outer + d])
        self.features = math.prod(self._inner)
        self.param_strides = contiguous_strides([self._inner[d] for d in self._order])

    def spread(self, param: Tensor) -> Tensor:
        """A parameter as a kernel reads it: one value, or one per feature in the order of the frame's memory."""
        param = param.resolve_neg()
        if param.dim() == 0:
            return param
        if param.numel() == 1:
            return param.reshape(())
        return param.expand(self._inner).permute(self._order).contiguous()

    def empty(self, dtype: torch.dtype, steps: int | None = None) -> Tensor:
        """An uninitialised frame, or `steps` of them."""
        if steps is None:
            return buffers.empty(self.shape, self.strides, dtype)
        return buffers.empty((steps, *self.shape), (max(self.neurons, 1), *self.strides), dtype)
