"""Hidden state of networks, parts of data sets, and what a spike recording looks like."""

from __future__ import annotations

from typing import Any, NamedTuple, Sequence, TypeVar

import numpy as np
import torch
from torch import Tensor, nn

from .errors import DataError, ShapeError
from .neurons.base import SpikingNeuron

DataSet = TypeVar("DataSet")


def reset(net: nn.Module) -> None:
    """Forgets the hidden state of every neuron in a network, at any depth; no other network is touched.

    Call it before each new input sequence when neurons keep their state (init_hidden=True).
    Source: snnTorch.
    """
    for module in net.modules():
        if isinstance(module, SpikingNeuron):
            module.reset_mem()


def detach(net: nn.Module) -> None:
    """Cuts the hidden state of every neuron in a network from the graph of earlier steps; the values stay.

    Truncated backpropagation through time calls it after each part of a sequence.
    """
    for module in net.modules():
        if isinstance(module, SpikingNeuron):
            module.detach_mem()


def data_subset(dataset: DataSet, subset: int, idx: int = 0) -> DataSet:
    """Keeps one of `subset` equal, consecutive parts of a data set, in place.

    Args:
        dataset: data set with `data` and `targets`, each a tensor, an array or a list.
        subset: number of parts; 1 keeps everything. Samples that do not fill a part are left out.
        idx: which part to keep, from 0.

    Returns: `dataset`.
    Raises: ValueError for a part that does not exist; DataError for a data set without `data` and `targets`.
    Source: snnTorch.
    """
    if subset < 1 or not 0 <= idx < subset:
        raise ValueError(f"data_subset(dataset, {subset}, idx={idx}) expects subset >= 1 and idx from 0 to subset - 1.")
    if subset > 1:
        part = len(_samples(dataset).data) // subset
        _keep(dataset, *_pick(dataset, np.arange(part * idx, part * (idx + 1))))
    return dataset


def valid_split(ds_train: DataSet, ds_val: DataSet, split: float, seed: int = 0) -> tuple[DataSet, DataSet]:
    """Moves a random part of the training set into the validation set, in place; both keep `data` and `targets`.

    A seed gives snnTorch's split: the training samples are shuffled, the others stay in order.

    Args:
        ds_train: training set with `data` and `targets`, each a tensor, an array or a list.
        ds_val: a second object, whose data are replaced.
        split: fraction of samples that goes to the validation set, from 0 to 1.
        seed: seed of the choice.

    Returns: `(ds_train, ds_val)`.
    Raises: ValueError; DataError for a data set without `data` and `targets`.
    Source: snnTorch.
    """
    if not 0 <= split <= 1:
        raise ValueError(f"valid_split(..., split={split}) expects a fraction from 0 to 1.")
    if ds_train is ds_val:
        raise ValueError("valid_split(ds, ds, ...) got one object twice; load the training set a second time.")
    num_samples = len(_samples(ds_train).data)
    num_train = num_samples - int(num_samples * split)
    train = np.random.default_rng(seed=seed).choice(num_samples, size=num_train, replace=False)
    left = np.ones(num_samples, dtype=bool)
    left[train] = False
    picked = _pick(ds_train, train), _pick(ds_train, np.flatnonzero(left))
    for dataset, part in zip((ds_train, ds_val), picked):
        _keep(dataset, *part)
    return ds_train, ds_val


def _samples(dataset: Any) -> Any:
    for name in ("data", "targets"):
        if not hasattr(dataset, name):
            raise DataError(f"{type(dataset).__name__} has no `{name}`; expected a data set with `data` and `targets`.")
    return dataset


def _pick(dataset: Any, indices: np.ndarray[Any, Any]) -> tuple[Any, Any]:
    def pick(values: Any) -> Any:
        if isinstance(values, Tensor):
            return values[torch.from_numpy(indices).to(values.device)]
        return values[indices] if isinstance(values, np.ndarray) else [values[i] for i in indices]

    return pick(dataset.data), pick(dataset.targets)


def _keep(dataset: Any, data: Sequence[Any], targets: Sequence[Any]) -> None:
    dataset.data, dataset.targets = data, targets


class SpikeStats(NamedTuple):
    """What a spike recording looks like, see spike_stats."""

    rate: float
    spikes_per_sample: float
    silent: float
    saturated: float
    first_spike: float


def spike_stats(spk: Tensor) -> SpikeStats:
    """Activity of a recording of spikes; any nonzero value is a spike.

    Args:
        spk: spikes [T, B, ...].

    Returns:
        rate: spikes per neuron and step, from 0 to 1.
        spikes_per_sample: spikes of all neurons over all steps, mean over the batch.
        silent: fraction of neurons that spike in no sample of the batch.
        saturated: fraction of neurons that spike at every step of every sample.
        first_spike: mean step of the first spike over the neurons and samples that spike; NaN if none does.

    Raises: ShapeError for a recording without steps, samples or neurons.
    """
    if spk.dim() < 2 or not spk.numel():
        raise ShapeError(
            f"spike_stats(spk of shape {tuple(spk.shape)}) expects [T, B, ...] with at least one step, sample and"
            " neuron. Stack the spikes of all steps with torch.stack(spk_rec)."
        )
    num_steps, batch_size = spk.shape[:2]
    fired = spk.reshape(num_steps, batch_size, -1) != 0  # [T, B, N]
    counts = fired.sum(0).cpu()  # [B, N]
    step = torch.arange(num_steps, device=spk.device).reshape(-1, 1, 1)
    first = torch.where(fired, step, num_steps).amin(0).cpu()
    active = counts > 0
    values = torch.stack(
        [
            counts.sum().double() / fired.numel(),
            counts.sum().double() / batch_size,
            (counts.sum(0) == 0).double().mean(),
            (counts == num_steps).all(0).double().mean(),
            first[active].double().mean(),
        ]
    )
    return SpikeStats(*values.tolist())
