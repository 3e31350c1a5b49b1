"""Minibatches in an order that depends on the seed and the epoch alone."""

from __future__ import annotations

from typing import Iterator

import numpy as np
import torch
from torch import Tensor

from ..errors import ShapeError


def to_unit_range(images: Tensor, dtype: torch.dtype = torch.float32) -> Tensor:
    """Images as numbers: uint8 in 0..255 becomes value / 255, floating point keeps its values."""
    if images.dtype == torch.uint8:
        return images.to(torch.float32).div_(255).to(dtype)
    return images.to(dtype)


class Batches:
    """Minibatches of a labelled image set, shuffled anew in every epoch.

    order(epoch) = permutation of N drawn from (seed, epoch), so a resumed run sees the same batches.

    Args: images uint8 or floating point [N, C, H, W]; labels [N]; batch_size B; seed, a non-negative integer;
    shuffle=False keeps the stored order; drop_last=True leaves out a last batch of fewer than B images.
    Yields: images float32 [B, C, H, W] in [0, 1], labels int64 [B].
    Raises: ShapeError when images and labels differ in length, batch_size < 1 or seed < 0.
    """

    def __init__(
        self,
        images: Tensor,
        labels: Tensor,
        batch_size: int,
        *,
        seed: int = 0,
        shuffle: bool = True,
        drop_last: bool = False,
    ) -> None:
        if images.dim() != 4 or labels.shape != images.shape[:1]:
            raise ShapeError(
                f"Batches(images {list(images.shape)}, labels {list(labels.shape)}): expected images "
                "[N, C, H, W] and labels [N]. Reshape one of them."
            )
        if batch_size < 1 or seed < 0:
            raise ShapeError(
                f"Batches(batch_size={batch_size}, seed={seed}): expected batch_size >= 1 and seed >= 0. "
                "Change the value."
            )
        self.images, self.labels = images, labels
        self.batch_size, self.seed = batch_size, seed
        self.shuffle, self.drop_last = shuffle, drop_last

    def __len__(self) -> int:
        whole, rest = divmod(len(self.images), self.batch_size)
        return whole + (rest > 0 and not self.drop_last)

    def order(self, epoch: int) -> Tensor:
        """Indices of the images in the order of one epoch, int64 [N]."""
        size = len(self.images)
        if not self.shuffle:
            return torch.arange(size)
        return torch.from_numpy(np.random.default_rng((self.seed, epoch)).permutation(size))

    def epoch(self, epoch: int, start: int = 0) -> Iterator[tuple[Tensor, Tensor]]:
        """The batches of one epoch, from batch number `start` on."""
        order = self.order(epoch)
        for number in range(start, len(self)):
            chosen = order[number * self.batch_size : (number + 1) * self.batch_size]
            yield to_unit_range(self.images[chosen]), self.labels[chosen].to(torch.int64)

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        return self.epoch(0)
