"""snn_ipu.utils: hidden state, data subsets, spike statistics."""

from __future__ import annotations

import copy
import gc
import inspect
import math
import weakref
from types import SimpleNamespace

import numpy as np
import pytest
import snntorch.utils as theirs
import torch
from torch import nn

import snn_ipu as snn
from snn_ipu import utils
from snn_ipu.errors import DataError, ShapeError


class Block(nn.Module):
    """Neurons at two depths, out of sight of a look at direct children."""

    def __init__(self):
        super().__init__()
        self.first = nn.Sequential(nn.Linear(4, 3), snn.Leaky(0.9, init_hidden=True))
        self.rest = nn.ModuleList(
            [snn.Synaptic(0.8, 0.9, init_hidden=True), snn.RSynaptic(0.8, 0.9, linear_features=3, init_hidden=True)]
        )

    def forward(self, x):
        x = self.first(x)
        for neuron in self.rest:
            x = neuron(x)
        return x


def states(net):
    return [
        getattr(module, name)
        for module in net.modules()
        if isinstance(module, snn.SpikingNeuron)
        for name in module.state_names
    ]


X = torch.randn(5, 4, generator=torch.Generator().manual_seed(0)) * 3


def test_reset__nested_network__forgets_every_state_at_any_depth():
    net = Block()
    first, second = net(X), net(X)
    assert len(states(net)) == 6 and all(state.shape == (5, 3) for state in states(net))
    assert not torch.equal(first, second)
    utils.reset(net)
    assert all(state.numel() == 0 for state in states(net))
    assert torch.equal(net(X), first)
    utils.reset(net)
    assert net(X[:2]).shape == (2, 3)


def test_reset__one_network__leaves_every_other_network_alone():
    net, other = Block(), Block()
    net(X), other(X)
    copied = copy.deepcopy(net)
    kept = [state.clone() for state in states(other)]
    utils.reset(net)
    assert all(torch.equal(state, before) for state, before in zip(states(other), kept))
    assert all(state.shape == (5, 3) for state in states(copied))
    utils.reset(copied)
    assert all(state.numel() == 0 for state in states(copied))


def test_reset__after_it__nothing_keeps_a_deleted_network_alive():
    net = Block()
    net(X)
    utils.reset(net)
    utils.detach(net)
    watch = weakref.ref(net)
    del net
    gc.collect()
    assert watch() is None


def test_reset__a_neuron_itself__forgets_its_state():
    lif = snn.Leaky(0.9, init_hidden=True)
    lif(X)
    utils.reset(lif)
    assert lif.mem.numel() == 0


def test_reset__between_sequences__frees_the_earlier_graph():
    net = Block()
    for _ in range(2):
        utils.reset(net)
        net(X).sum().backward()


def test_detach__after_a_step__keeps_the_values_and_drops_the_graph():
    net = Block()
    net(X)
    before = [state.clone() for state in states(net)]
    assert any(state.grad_fn is not None for state in states(net))
    utils.detach(net)
    assert all(state.grad_fn is None for state in states(net))
    assert all(torch.equal(state, value) for state, value in zip(states(net), before))
    net(X).sum().backward()


class Samples(SimpleNamespace):
    def __len__(self):
        return len(self.data)


def data_set(kind, size=23):
    data, targets = np.arange(size * 2).reshape(size, 2), np.arange(size)
    if kind == "tensors":
        return Samples(data=torch.tensor(data), targets=torch.tensor(targets))
    return Samples(data=data, targets=targets.tolist())  # as torchvision's CIFAR-10 holds them


def as_lists(dataset):
    return [np.asarray(values).tolist() for values in (dataset.data, dataset.targets)]


@pytest.mark.parametrize("subset", [1, 2, 5])
def test_data_subset__tensors__equals_snntorch(subset):
    for idx in range(subset):
        ours, reference = data_set("tensors"), data_set("tensors")
        assert utils.data_subset(ours, subset, idx) is ours
        theirs.data_subset(reference, subset, idx)
        assert as_lists(ours) == as_lists(reference)


def test_data_subset__lists_and_arrays__keeps_their_type():
    dataset = utils.data_subset(data_set("list"), 5, 2)
    assert type(dataset.targets) is list and type(dataset.data) is np.ndarray
    assert dataset.targets == [8, 9, 10, 11]


def test_data_subset__part_that_does_not_exist__raises():
    for subset, idx in ((0, 0), (5, 5), (5, -1)):
        with pytest.raises(ValueError, match="idx from 0 to subset - 1"):
            utils.data_subset(data_set("tensors"), subset, idx)
    with pytest.raises(DataError, match="no `targets`"):
        utils.data_subset(SimpleNamespace(data=torch.zeros(4)), 2)


@pytest.mark.parametrize("split", [0, 0.1, 0.5, 1])
def test_valid_split__same_seed__makes_snntorchs_split(split):
    ours = utils.valid_split(data_set("tensors"), data_set("tensors"), split, seed=3)
    reference = theirs.valid_split(data_set("tensors"), data_set("tensors"), split, seed=3)
    assert [as_lists(part) for part in ours] == [as_lists(part) for part in reference]
    assert sorted(as_lists(ours[0])[1] + as_lists(ours[1])[1]) == list(range(23))


def test_valid_split__lists_and_arrays__keeps_samples_and_labels_together():
    for part in utils.valid_split(data_set("list"), data_set("list"), 0.3):
        assert part.data[:, 0].tolist() == [2 * label for label in part.targets]


def test_valid_split__arguments_that_do_not_fit__raise():
    with pytest.raises(ValueError, match="from 0 to 1"):
        utils.valid_split(data_set("tensors"), data_set("tensors"), 1.5)
    dataset = data_set("tensors")
    with pytest.raises(ValueError, match="one object twice"):
        utils.valid_split(dataset, dataset, 0.5)


@pytest.mark.parametrize("dtype", [torch.float32, torch.uint8, torch.bool])
def test_spike_stats__known_spikes__counts_them(dtype):
    spk = torch.zeros(4, 2, 2, 2)
    spk[:, :, 0, 0] = 1  # saturated
    spk[2, 1, 0, 1] = spk[3, 1, 0, 1] = 1
    stats = utils.spike_stats(spk.to(dtype))
    assert stats == (10 / 32, 5, 0.5, 0.25, (0 + 0 + 2) / 3)
    assert stats.silent == 0.5


def test_spike_stats__no_spikes_or_no_neurons__says_so():
    stats = utils.spike_stats(torch.zeros(3, 2, 5))
    assert stats[:4] == (0, 0, 1, 0) and math.isnan(stats.first_spike)
    with pytest.raises(ShapeError, match=r"\(3, 0, 5\)"):
        utils.spike_stats(torch.zeros(3, 0, 5))


@pytest.mark.parametrize("name", ["data_subset", "valid_split", "reset"])
def test_utils_api__every_function_of_snntorch__has_the_same_arguments(name):
    ours, reference = (inspect.signature(getattr(module, name)).parameters for module in (utils, theirs))
    assert [(a.name, a.default) for a in ours.values()] == [(a.name, a.default) for a in reference.values()]
