"""`training_model` and `inference_model`: one minibatch as one call, with the losses of a loop written by hand."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import snn_ipu as snn
from snn_ipu.errors import BackendMissingError, ShapeError, UnsupportedError

STEPS, BATCH, CLASSES = 6, 7, 3
DEVICES = ("reference", "cpu")


def network() -> nn.Sequential:
    torch.manual_seed(2)
    grad = snn.surrogate.fast_sigmoid(slope=5)
    net = nn.Sequential(
        nn.Flatten(),
        nn.Linear(6, 9),
        snn.Leaky(0.8, spike_grad=grad, init_hidden=True, learn_beta=True),
        nn.Linear(9, CLASSES),
        snn.Leaky(0.8, spike_grad=grad, init_hidden=True),
    )
    with torch.no_grad():
        net[3].weight.mul_(4)
    return net


def batches(count: int, static: bool) -> list[tuple[Tensor, Tensor]]:
    generator = torch.Generator().manual_seed(1)
    shape = (BATCH, 2, 3) if static else (STEPS, BATCH, 2, 3)
    return [
        (
            2 * torch.randn(shape, generator=generator),
            torch.randint(CLASSES, (BATCH,), generator=generator),
        )
        for _ in range(count)
    ]


def count_loss(spk: Tensor, y: Tensor) -> Tensor:
    return F.cross_entropy(spk.sum(0), y)


def losses_by_hand(net: nn.Module, data: list[tuple[Tensor, Tensor]], static: bool) -> list[float]:
    optimizer = torch.optim.Adam(net.parameters(), lr=0.01)
    losses = []
    for x, y in data:
        snn.utils.reset(net)
        spk = torch.stack([net(x_t) for x_t in ([x] * STEPS if static else x)])
        loss = count_loss(spk, y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


@pytest.mark.parametrize("static", [True, False], ids=["static", "over_time"])
@pytest.mark.parametrize("device", DEVICES)
def test_training_model__several_minibatches__has_the_losses_and_weights_of_the_loop(device: str, static: bool) -> None:
    net, by_hand = network(), network()
    step = snn.training_model(
        net,
        count_loss,
        torch.optim.Adam(net.parameters(), lr=0.01),
        num_steps=STEPS if static else None,
        device=device,
    )
    data = batches(5, static)
    results = [step(x, y) for x, y in data]
    expected = losses_by_hand(by_hand, data, static)
    assert len({round(v, 3) for v in expected}) == 5, "the losses hardly change: the case tests nothing"
    assert [loss.item() for _, loss in results] == pytest.approx(expected, rel=1e-5)
    for p, q in zip(net.parameters(), by_hand.parameters()):
        torch.testing.assert_close(p, q, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("device", DEVICES)
def test_training_model__returns_spikes_over_time_and_a_loss_without_a_graph(device: str) -> None:
    net = network()
    step = snn.training_model(
        net, count_loss, torch.optim.SGD(net.parameters(), lr=0.0), num_steps=STEPS, device=device
    )
    (x, y), *_ = batches(1, static=True)
    spk, loss = step(x, y)
    assert spk.shape == (STEPS, BATCH, CLASSES) and set(spk.unique().tolist()) == {0.0, 1.0}
    assert not spk.requires_grad and not loss.requires_grad and loss.shape == ()
    assert loss == count_loss(spk, y)


def test_training_model__several_outputs__are_detached_in_their_structure() -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.fc, self.lif = nn.Linear(6, CLASSES), snn.Leaky(0.8, backend="reference")

        def forward(self, x: Tensor) -> dict[str, Any]:
            spk, mem = self.lif(self.fc(x.flatten(1)))
            return {"spk": spk, "both": [spk, mem]}

    net = Net()

    def loss_fn(out: dict[str, Any], y: Tensor) -> Tensor:
        return F.cross_entropy(out["both"][1].mean(0), y)

    step = snn.training_model(net, loss_fn, torch.optim.SGD(net.parameters(), lr=0.1), num_steps=STEPS)
    out, _ = step(*batches(1, static=True)[0])
    assert out.keys() == {"spk", "both"} and isinstance(out["both"], list)
    assert not any(t.requires_grad for t in (out["spk"], *out["both"]))


@pytest.mark.parametrize("device", DEVICES)
def test_inference_model__equals_unroll_and_keeps_no_graph(device: str) -> None:
    net = network()
    (x, _), *_ = batches(1, static=False)
    expected, _ = snn.unroll(copy.deepcopy(net), x)
    out = snn.inference_model(net, device=device)(x)
    assert expected.any() and torch.equal(out, expected) and not out.requires_grad


def test_models__switch_dropout_on_for_training_and_off_for_inference() -> None:
    net = nn.Sequential(nn.Dropout(0.5), snn.IF(threshold=0.5, backend="reference"), nn.Linear(200, CLASSES), snn.IF())
    optimizer = torch.optim.SGD(net.parameters(), lr=0.0)
    step = snn.training_model(net, lambda spk, y: spk.sum(), optimizer, num_steps=2, device="reference")
    run = snn.inference_model(net[:2], num_steps=2, device="reference")
    x, y = torch.ones(2, 200), torch.zeros(2)
    torch.manual_seed(0)
    for _ in range(2):
        assert run(x).eq(1).all() and not net[0].training
        step(x, y)
        assert net[0].training


def test_models__from_one_network__share_its_weights() -> None:
    net = network()
    step = snn.training_model(net, count_loss, torch.optim.SGD(net.parameters(), lr=1.0), num_steps=STEPS)
    run = snn.inference_model(net, num_steps=STEPS)
    (x, y), *_ = batches(1, static=True)
    before = run(x)
    step(x, y)
    assert not torch.equal(run(x), before)


@pytest.mark.parametrize("device", DEVICES)
def test_models__device__is_the_backend_of_every_neuron(device: str) -> None:
    net = network()
    snn.inference_model(net, num_steps=STEPS, device=device)
    assert {m.backend for m in net.modules() if isinstance(m, snn.SpikingNeuron)} == {device}


def test_models__auto__keeps_the_backend_that_a_neuron_insists_on() -> None:
    net = network()
    net[2].backend = "reference"
    run = snn.inference_model(net, num_steps=STEPS, device="auto")
    assert (net[2].backend, net[4].backend) == ("reference", "auto")
    assert run(batches(1, static=True)[0][0]).shape == (STEPS, BATCH, CLASSES)


def test_models__cpu_for_a_neuron_without_a_kernel__is_an_error_and_the_reference_runs_it() -> None:
    net = nn.Sequential(nn.Linear(6, CLASSES), snn.Leaky(0.8, spike_grad=torch.sigmoid))
    x = torch.randn(STEPS, BATCH, 6)
    with pytest.raises(UnsupportedError, match=r"sigmoid.*snn_ipu\.surrogate\.define"):
        snn.inference_model(net, device="cpu")(x)
    assert snn.inference_model(net, device="reference")(x).shape == (STEPS, BATCH, CLASSES)


# Errors


def both_models(device: str) -> list[Any]:
    net = network()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    return [
        lambda: snn.training_model(net, count_loss, optimizer, num_steps=STEPS, device=device),
        lambda: snn.inference_model(net, num_steps=STEPS, device=device),
    ]


@pytest.mark.parametrize("model", [0, 1], ids=["training", "inference"])
def test_models__unknown_device__lists_the_names(model: int) -> None:
    with pytest.raises(ValueError, match=r"device='gpu': expected one of auto, reference, cpu, cuda"):
        both_models("gpu")[model]()


@pytest.mark.parametrize("model", [0, 1], ids=["training", "inference"])
def test_models__cuda_on_a_machine_without_it__is_an_error(model: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(BackendMissingError, match=r"device='cuda'.*Use device='cpu' or 'auto'"):
        both_models("cuda")[model]()


@pytest.mark.parametrize(
    ("loss_fn", "found"),
    [
        (lambda spk, y: F.cross_entropy(spk.sum(0), y, reduction="none"), r"a tensor of shape \(7,\)"),
        (lambda spk, y: count_loss(spk, y).item(), "float"),
        (lambda spk, y: (count_loss(spk, y), spk), "tuple"),
    ],
    ids=["one_per_sample", "number", "tuple"],
)
def test_training_model__loss_that_is_no_single_value__is_an_error_and_no_update(loss_fn: Any, found: str) -> None:
    net = network()
    before = copy.deepcopy(net.state_dict())
    step = snn.training_model(net, loss_fn, torch.optim.SGD(net.parameters(), lr=0.1), num_steps=STEPS)
    with pytest.raises(ShapeError, match=f"loss_fn returned {found}; expected a tensor with one value"):
        step(*batches(1, static=True)[0])
    assert all(torch.equal(v, before[k]) for k, v in net.state_dict().items())


def test_training_model__loss_of_one_value_in_a_vector__is_taken() -> None:
    net = network()
    step = snn.training_model(
        net, lambda spk, y: count_loss(spk, y).reshape(1), torch.optim.SGD(net.parameters(), lr=0.1), num_steps=STEPS
    )
    assert step(*batches(1, static=True)[0])[1].shape == (1,)
