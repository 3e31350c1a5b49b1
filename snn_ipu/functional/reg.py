"""Penalties added to a loss."""

from __future__ import annotations

from torch import Tensor

from .inputs import computed


class l1_rate_sparsity:
    """Penalty on the total number of spikes: Lambda · Σ spk.

    Args:
        Lambda: cost of one spike.

    Returns of a call with spikes of any shape: a scalar.
    Source: snnTorch.
    """

    reads = "spk"

    def __init__(self, Lambda: float = 1e-5) -> None:
        self.Lambda = Lambda
        self.__name__ = "l1_rate_sparsity"

    def __call__(self, spk_out: Tensor) -> Tensor:
        return self.Lambda * computed(spk_out).sum()

    def __repr__(self) -> str:
        return f"l1_rate_sparsity(Lambda={self.Lambda!r})"
