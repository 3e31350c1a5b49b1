"""Labelled image sets from files on disk, as tensors; needs torch and numpy only."""

from __future__ import annotations

from .batches import Batches, to_unit_range
from .sets import NAMES, Dataset, load

__all__ = ["NAMES", "Batches", "Dataset", "load", "to_unit_range"]
