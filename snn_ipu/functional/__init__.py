"""Losses, accuracies, population codes, regularisers and probes, as snntorch.functional."""

from __future__ import annotations

from .acc import accuracy_rate, accuracy_temporal
from .loss import (
    LossFunctions,
    ce_count_loss,
    ce_max_membrane_loss,
    ce_rate_loss,
    ce_temporal_loss,
    mse_count_loss,
    mse_membrane_loss,
    mse_temporal_loss,
)
from .population import population_counts
from .probe import (
    AttributeMonitor,
    BaseMonitor,
    GradInputMonitor,
    GradOutputMonitor,
    InputMonitor,
    OutputMonitor,
)
from .reg import l1_rate_sparsity
from .spike_time import SpikeTime, spike_times

__all__ = [
    "AttributeMonitor",
    "BaseMonitor",
    "GradInputMonitor",
    "GradOutputMonitor",
    "InputMonitor",
    "LossFunctions",
    "OutputMonitor",
    "SpikeTime",
    "accuracy_rate",
    "accuracy_temporal",
    "ce_count_loss",
    "ce_max_membrane_loss",
    "ce_rate_loss",
    "ce_temporal_loss",
    "l1_rate_sparsity",
    "mse_count_loss",
    "mse_membrane_loss",
    "mse_temporal_loss",
    "population_counts",
    "spike_times",
]
