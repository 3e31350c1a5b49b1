"""Population codes: N outputs in C contiguous blocks; class c owns neurons cN/C to (c+1)N/C - 1."""

from __future__ import annotations

from torch import Tensor

from ..errors import ShapeError
from .inputs import recording


def check_classes(population_code: bool, num_classes: int, call: str) -> None:
    """Raises ValueError if a population code is asked for without a number of classes."""
    if population_code and num_classes < 1:
        raise ValueError(
            f"{call} with population_code=True needs num_classes, got {num_classes!r}."
            " Pass the number of classes, e.g. num_classes=10."
        )


def blocks(values: Tensor, num_classes: int, call: str) -> Tensor:
    """The last dimension split into one block per class: [..., N] -> [..., C, N/C]."""
    check_classes(True, num_classes, call)
    num_outputs = values.shape[-1]
    if num_outputs % num_classes:
        below = max(num_outputs // num_classes, 1) * num_classes
        raise ShapeError(
            f"{call} got {num_outputs} outputs for num_classes={num_classes}; expected a multiple of"
            f" {num_classes}. Use a last layer of {below} or {below + num_classes} neurons."
        )
    return values.reshape(*values.shape[:-1], num_classes, num_outputs // num_classes)


def output_classes(values: Tensor, population_code: bool, num_classes: int, call: str) -> int:
    """The number of classes a recording [..., N] stands for."""
    if population_code:
        return blocks(values, num_classes, call).shape[-2]
    if num_classes and num_classes != values.shape[-1]:
        raise ShapeError(
            f"{call} got {values.shape[-1]} outputs for num_classes={num_classes} without a population code."
            " Pass population_code=True to pool the outputs, or leave num_classes out."
        )
    return values.shape[-1]


def population_mean(values: Tensor, num_classes: int, call: str) -> Tensor:
    """The mean of each class's block: [..., N] -> [..., C]."""
    return blocks(values, num_classes, call).mean(-1)


def population_counts(spk: Tensor, num_classes: int) -> Tensor:
    """Spikes of each class's block over time: counts[b, c] = Σ_t Σ_{n in block c} spk[t, b, n].

    Args:
        spk: spikes [T, B, N], any dtype.
        num_classes: number of classes C; N must be a multiple of C.

    Returns: counts [B, C], float64 for float64 spikes, else float32.
    Raises: ShapeError if N is not a multiple of C or `spk` is not [T, B, N]; ValueError if C < 1.
    Source: snnTorch's population code (contiguous blocks).
    """
    call = "population_counts(spk, num_classes)"
    return blocks(recording(spk, call).sum(0), num_classes, call).sum(-1)
