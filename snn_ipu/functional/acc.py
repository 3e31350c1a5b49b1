"""Classification accuracy of a recording of the output layer."""

from __future__ import annotations

import numpy as np
from torch import Tensor

from ..errors import ShapeError
from .inputs import recording
from .population import output_classes, population_counts, population_mean
from .spike_time import spike_times


def accuracy_rate(
    spk_out: Tensor, targets: Tensor, population_code: bool = False, num_classes: int = False
) -> np.float64:
    """Fraction of samples whose label is the class with most spikes (the first of equals).

    Args:
        spk_out: spikes [T, B, N].
        targets: labels [B].
        population_code, num_classes: count the spikes of `num_classes` contiguous blocks of neurons.

    Raises: ShapeError; ValueError for a population code without num_classes.
    Source: snnTorch.
    """
    call = "accuracy_rate(spk_out, targets)"
    spk = recording(spk_out, call)
    output_classes(spk, population_code, num_classes, call)
    counts = population_counts(spk, num_classes) if population_code else spk.sum(0)
    return _fraction(counts.argmax(1), targets, call)


def accuracy_temporal(
    spk_out: Tensor, targets: Tensor, *, population_code: bool = False, num_classes: int = False
) -> np.float64:
    """Fraction of samples whose label is the class that spikes first (the first of equals).

    A neuron that never spikes counts as spiking at the last step. Population codes compare the mean first
    spike time of each class's block.

    Args: see accuracy_rate.
    Raises: ShapeError; ValueError for a population code without num_classes.
    Source: snnTorch.
    """
    call = "accuracy_temporal(spk_out, targets)"
    times = spike_times(recording(spk_out, call))[0]
    output_classes(times, population_code, num_classes, call)
    if population_code:
        times = population_mean(times, num_classes, call)
    return _fraction(times.argmin(1), targets, call)


def _fraction(predicted: Tensor, targets: Tensor, call: str) -> np.float64:
    if targets.shape != predicted.shape or not len(predicted):
        raise ShapeError(
            f"{call} got targets of shape {tuple(targets.shape)} for {len(predicted)} samples; expected one"
            " label per sample and at least one sample."
        )
    correct = int((predicted == targets.to(predicted.device)).sum())
    accuracy: np.float64 = np.float64(correct / len(predicted))
    return accuracy
