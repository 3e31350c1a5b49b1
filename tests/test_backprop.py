"""snn_ipu.backprop trains as snnTorch's does where that works, and also where it does not."""

from __future__ import annotations

import inspect
import warnings

import pytest
import snntorch
import snntorch.functional as their_functional
import torch
from torch import nn

import snn_ipu as snn
import snn_ipu.functional as SF
from snn_ipu import backprop
from snn_ipu.errors import ShapeError

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)
    import snntorch.backprop as theirs

LABELS = torch.tensor([0, 2, 1, 1])


def network(library, output=True, hidden="Leaky"):
    """784-5-3 in small: two layers, of the same weights in both libraries."""
    torch.manual_seed(3)
    first = (
        library.Synaptic(0.7, 0.8, init_hidden=True) if hidden == "Synaptic" else library.Leaky(0.8, init_hidden=True)
    )
    return nn.Sequential(
        nn.Flatten(), nn.Linear(6, 5), first, nn.Linear(5, 3), library.Leaky(0.9, init_hidden=True, output=output)
    )


def batches(num_steps=None, count=2, batch_first=False):
    generator = torch.Generator().manual_seed(5)
    shape = (4, 2, 3) if num_steps is None else (num_steps, 4, 2, 3)
    data = [torch.rand(shape, generator=generator) * 2 for _ in range(count)]
    return [(x.transpose(0, 1) if batch_first else x, LABELS) for x in data]


def train(module, functional, net, data, method="TBPTT", criterion="ce_count_loss", penalty=False, **keywords):
    """Mean loss of one epoch and the parameters after it."""
    loss = getattr(module, method)(
        net,
        data,
        torch.optim.SGD(net.parameters(), lr=0.5),
        getattr(functional, criterion)(),
        regularization=functional.l1_rate_sparsity(0.01) if penalty else False,
        **keywords,
    )
    return loss, list(net.parameters())


def assert_same_training(data, **keywords):
    ours = train(backprop, SF, network(snn), data, **keywords)
    reference = train(theirs, their_functional, network(snntorch), data, **keywords)
    torch.testing.assert_close(ours[0], reference[0].squeeze(), rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(ours[1], reference[1], rtol=1e-4, atol=1e-5)
    untrained = list(network(snn).parameters())
    assert not any(torch.equal(after, before) for after, before in zip(ours[1], untrained))


@pytest.mark.parametrize("criterion", ["ce_count_loss", "ce_rate_loss", "mse_count_loss", "mse_membrane_loss"])
def test_bptt__static_data__trains_as_snntorch(criterion):
    assert_same_training(batches(), method="BPTT", criterion=criterion, num_steps=6, time_var=False)


@pytest.mark.parametrize("K", [1, 2, 3, 6])
def test_tbptt__static_data__trains_as_snntorch(K):
    assert_same_training(batches(), criterion="ce_rate_loss", num_steps=6, time_var=False, K=K, penalty=True)


def test_rtrl__static_data__trains_as_snntorch():
    assert_same_training(batches(), method="RTRL", num_steps=5, time_var=False, criterion="ce_max_membrane_loss")


@pytest.mark.parametrize("batch_first", [False, True])
def test_bptt__time_varying_data__trains_as_snntorch(batch_first):
    assert_same_training(batches(5, batch_first=batch_first), method="BPTT", time_first=not batch_first)


def by_hand(net, data, K):
    """TBPTT written out, returning the mean loss per step."""
    optimizer = torch.optim.SGD(net.parameters(), lr=0.5)
    losses = []
    for x, labels in data:
        snn.utils.reset(net)
        for start in range(0, len(x), K):
            part = x[start : start + K]
            loss = SF.ce_count_loss()(torch.stack([net(step)[0] for step in part]), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            snn.utils.detach(net)
            losses.append(loss.item() * len(part) / len(x))
    return sum(losses) / len(data)


@pytest.mark.parametrize("hidden", ["Leaky", "Synaptic"])
@pytest.mark.parametrize("K", [1, 3, 7, 9])
def test_tbptt__time_varying_data__updates_every_k_steps(K, hidden):
    # in snnTorch: UnboundLocalError, and with two kinds of neuron a second backward through one graph
    ours, expected = network(snn, hidden=hidden), network(snn, hidden=hidden)
    loss, _ = train(backprop, SF, ours, batches(7), K=K)
    assert loss.item() == pytest.approx(by_hand(expected, batches(7), K), rel=1e-5)
    torch.testing.assert_close(list(ours.parameters()), list(expected.parameters()))


def test_tbptt__loss_of_sequences_with_a_rest__is_a_mean_over_steps():
    net = nn.Sequential(nn.Flatten(), nn.Linear(6, 3), snn.Leaky(0.9, init_hidden=True, output=True))
    losses = []

    class FiveThenSeven:
        reads = "spk"

        def __call__(self, spk, labels):
            losses.append(len(spk))
            return spk.sum() * 0 + (5.0 if len(spk) == 3 else 7.0)

    loss = backprop.TBPTT(net, batches(8, 1), torch.optim.SGD(net.parameters(), 0.1), FiveThenSeven(), K=3)
    assert losses == [3, 3, 2]
    assert loss.item() == pytest.approx((5 * 6 + 7 * 2) / 8)


@pytest.mark.parametrize("time_first", [True, False])
def test_tbptt__labels_of_every_step__follow_the_parts_in_every_batch(time_first):
    seen = []

    class Watch(SF.mse_membrane_loss):
        def __call__(self, mem, labels):
            seen.append(labels.clone())
            return super().__call__(mem, labels)

    net = network(snn)
    labels = torch.arange(5).unsqueeze(1).expand(5, 4) % 3
    data = [(x, labels if time_first else labels.T) for x, _ in batches(5, batch_first=not time_first)]
    criterion = Watch(time_var_targets=True)
    backprop.TBPTT(net, data, torch.optim.SGD(net.parameters(), 0.1), criterion, K=2, time_first=time_first)
    assert [part[:, 0].tolist() for part in seen] == [[0, 1], [2, 0], [1]] * 2


def test_bptt__returned_loss__is_a_scalar_without_graph():
    loss, _ = train(backprop, SF, network(snn), batches(), "BPTT", "ce_rate_loss", num_steps=3, time_var=False)
    assert loss.shape == () and not loss.requires_grad


def test_bptt__network_of_spikes_alone__trains_on_a_spike_loss_and_refuses_a_membrane_loss():
    loss, _ = train(backprop, SF, network(snn, output=False), batches(), "BPTT", num_steps=3, time_var=False)
    assert loss > 0
    with pytest.raises(TypeError, match="output=True"):
        train(
            backprop,
            SF,
            network(snn, output=False),
            batches(),
            "BPTT",
            "mse_membrane_loss",
            num_steps=3,
            time_var=False,
        )


def test_bptt__two_epochs__learn_the_labels():
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(3, 3), snn.Leaky(0.9, init_hidden=True, output=True))
    data = [(torch.eye(3), torch.arange(3))]
    optimizer = torch.optim.Adam(net.parameters(), 0.1)
    losses = [backprop.BPTT(net, data, optimizer, SF.ce_count_loss(), 5, time_var=False).item() for _ in range(30)]
    assert losses[-1] < 0.3 * losses[0]


@pytest.mark.parametrize(
    ("keywords", "message"),
    [
        ({"num_steps": 5}, "none for data"),
        ({"time_var": False}, "expected num_steps"),
        ({"num_steps": 5, "time_var": False, "time_first": False}, "no time dimension"),
        ({"num_steps": 5, "time_var": False, "K": 6}, "K=6 with num_steps=5"),
        ({"K": -1}, "K=-1"),
    ],
    ids=str,
)
def test_tbptt__arguments_that_contradict__raise(keywords, message):
    with pytest.raises(ValueError, match=message):
        train(backprop, SF, network(snn), batches(), **keywords)


def test_tbptt__unknown_criterion_or_no_data__raises():
    net = network(snn)
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    with pytest.raises(TypeError, match="reads = 'spk' or 'mem'"):
        backprop.BPTT(net, batches(4), optimizer, nn.CrossEntropyLoss())
    with pytest.raises(TypeError, match="reads = 'spk' or 'mem'"):
        backprop.BPTT(net, batches(4), optimizer, SF.ce_count_loss(), regularization=torch.sum)
    with pytest.raises(ValueError, match="no batch"):
        backprop.BPTT(net, [], optimizer, SF.ce_count_loss())
    with pytest.raises(ShapeError, match="at least one time step"):
        backprop.BPTT(net, batches(0), optimizer, SF.ce_count_loss())


@pytest.mark.parametrize("name", ["TBPTT", "BPTT", "RTRL"])
def test_backprop_api__every_function_of_snntorch__has_the_same_arguments(name):
    ours, reference = (inspect.signature(getattr(module, name)).parameters for module in (backprop, theirs))
    assert [(a.name, a.default) for a in ours.values()] == [(a.name, a.default) for a in reference.values()]
