"""Quantisation of neuron states for quantisation-aware training."""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass

import torch
from torch import Tensor

# Base of the exponential levels by number of bits, as snnTorch chooses it.
_MULTIPLIERS = {1: 0.05, 2: 0.1, 3: 0.3, 4: 0.5, 5: 0.7, 6: 0.9, 7: 0.925}


@dataclass(frozen=True)
class state_quant:
    """Rounds a state to the nearest of 2^num_bits levels; the gradient passes unchanged (straight through).

    uniform: levels evenly from -threshold·(1 + lower_limit) to threshold·(1 + upper_limit).
    Otherwise their distances shrink by `multiplier` per level towards a centre: the threshold, or 0.
    A value half way between two levels takes the lower one.

    Args:
        num_bits: bits of a quantised state.
        uniform: even levels.
        thr_centered: uneven levels are densest at the threshold rather than at 0.
        threshold: firing threshold of the neuron.
        lower_limit, upper_limit: how far the levels reach beyond -threshold and threshold, in thresholds.
        multiplier: ratio of neighbouring distances of uneven levels; chosen by num_bits if None.

    Returns of a call with a state of any shape: the quantised state, in the state's dtype.
    Raises: ValueError for num_bits < 1, or a threshold or multiplier that is not positive.
    Source: snnTorch; straight-through estimator: Bengio, Léonard and Courville 2013.
    """

    num_bits: int = 8
    uniform: bool = True
    thr_centered: bool = True
    threshold: float = 1
    lower_limit: float = 0
    upper_limit: float = 0.2
    multiplier: float | None = None

    def __post_init__(self) -> None:
        # a threshold taken from a neuron is a tensor, which does not hash by value
        object.__setattr__(self, "threshold", float(self.threshold))
        if self.num_bits < 1 or self.threshold <= 0 or (self.multiplier is not None and self.multiplier <= 0):
            raise ValueError(f"{self!r}: num_bits must be at least 1, threshold and multiplier positive.")

    def __call__(self, x: Tensor) -> Tensor:
        levels = self.levels(torch.float64 if x.dtype == torch.float64 else torch.float32).to(x.device)
        value = x.detach().to(levels.dtype)
        above = torch.bucketize(value, levels).clamp(1, len(levels) - 1)
        low, high = levels[above - 1], levels[above]
        nearest = torch.where((value - low).abs() <= (high - value).abs(), low, high)
        return nearest.to(x.dtype) + (x - x.detach())

    def levels(self, dtype: torch.dtype = torch.float32) -> Tensor:
        """The levels in rising order, [2^num_bits]."""
        return _levels(self, dtype)


@functools.lru_cache(maxsize=64)
def _levels(quant: state_quant, dtype: torch.dtype) -> Tensor:
    lowest = -quant.threshold * (1 + quant.lower_limit)
    highest = quant.threshold * (1 + quant.upper_limit)
    num_levels = 2**quant.num_bits
    if quant.uniform:
        return torch.linspace(lowest, highest, num_levels, dtype=dtype)
    multiplier = quant.multiplier or _MULTIPLIERS.get(quant.num_bits, 0.95)
    centre = quant.threshold if quant.thr_centered else 0.0
    num_below = math.floor(num_levels * (centre - lowest) / (highest - lowest))
    below = _steps(centre - lowest, num_below, multiplier)
    above = _steps(highest - centre, num_levels - num_below, multiplier)
    # the centre itself is not a level: below it levels start their steps, above it they end them
    levels = [lowest + sum(below[:i]) for i in range(len(below))]
    levels += [centre + sum(above[len(above) - 1 - i :]) for i in range(len(above))]
    return torch.tensor(levels, dtype=dtype)


def _steps(distance: float, count: int, multiplier: float) -> list[float]:
    """`count` steps that add up to `distance`, each `multiplier` times the one before."""
    powers = [multiplier**i for i in range(count)]
    return [power * distance / sum(powers) for power in powers]
