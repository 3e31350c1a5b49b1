"""A whole training step of 784-1000-10: batch 128, 25 time steps, a static input, cross-entropy of spike counts, AdamW.

Every contender starts from the same weights. What trains is timed after it was seen to give the loss and the weight
gradients of our network in the contender's own semantics.
"""

from __future__ import annotations

from typing import Any, Callable, Iterator

import torch
from torch import Tensor, nn
from torch.nn import functional as F

import snn_ipu as snn
from snn_ipu.data import load

from . import peers
from .timing import Contender, Result, interleave, seconds

BATCH, STEPS, BETA = 128, 25, 0.9
WIDTHS = (784, 1000, 10)

Forward = Callable[[Tensor], Tensor]


def _loss(spk: Tensor, y: Tensor) -> Tensor:
    return F.cross_entropy(spk.sum(0), y)


def _layers() -> tuple[nn.Linear, nn.Linear]:
    torch.manual_seed(0)
    return nn.Linear(WIDTHS[0], WIDTHS[1]), nn.Linear(WIDTHS[1], WIDTHS[2])


def _batch() -> tuple[Tensor, Tensor]:
    data = load("fashion-mnist-mini")
    return data.train_images[:BATCH].flatten(1).float() / 255, data.train_labels[:BATCH]


def _ours(neuron: Callable[[], nn.Module]) -> nn.Module:
    first, second = _layers()
    return nn.Sequential(first, neuron(), second, neuron())


def _leaky() -> nn.Module:
    return snn.Leaky(BETA, spike_grad=snn.surrogate.fast_sigmoid(peers.SLOPE), backend="cpu")


def _soft_reset() -> nn.Module:
    return peers.soft_reset(beta=BETA, spike_grad=peers.soft_sign(), backend="cpu")  # type: ignore[call-arg]


class _SnnTorch(nn.Module):
    """The loop of snnTorch's tutorials; `once` computes the first layer, which sees a static input, once."""

    def __init__(self, once: bool):
        super().__init__()
        self.fc1, self.fc2 = _layers()
        self.lif1, self.lif2 = peers.snntorch_leaky(BETA), peers.snntorch_leaky(BETA)
        self.once = once

    def forward(self, x: Tensor) -> Tensor:
        mem1, mem2 = self.lif1.reset_mem(), self.lif2.reset_mem()
        current = self.fc1(x) if self.once else None
        spikes = []
        for _ in range(STEPS):
            spk1, mem1 = self.lif1(self.fc1(x) if current is None else current, mem1)
            spk2, mem2 = self.lif2(self.fc2(spk1), mem2)
            spikes.append(spk2)
        return torch.stack(spikes)


class _SpikingJelly(nn.Module):
    """SpikingJelly's layer-by-layer mode; `once` computes the first layer once and repeats its output."""

    def __init__(self, once: bool):
        super().__init__()
        from spikingjelly.activation_based import functional

        self.fc1, self.fc2 = _layers()
        self.lif1, self.lif2 = peers.spikingjelly_lif(BETA), peers.spikingjelly_lif(BETA)
        self.once = once
        self.functional = functional

    def forward(self, x: Tensor) -> Tensor:
        self.functional.reset_net(self)
        if self.once:
            current = self.fc1(x).expand(STEPS, BATCH, WIDTHS[1])
        else:
            current = self.fc1(x.expand(STEPS, BATCH, WIDTHS[0]))
        return self.lif2(self.fc2(self.lif1(current)))  # type: ignore[no-any-return]


def _gradients(net: nn.Module, forward: Forward) -> tuple[float, list[Tensor], float]:
    x, y = _batch()
    spk = forward(x)
    loss = _loss(spk, y)
    grads = torch.autograd.grad(loss, [p for p in net.parameters() if p.requires_grad])
    return loss.item(), list(grads), spk.detach().mean().item()


def _unrolled(net: nn.Module) -> Forward:
    return lambda x: snn.unroll(net, x, STEPS)[0]  # type: ignore[no-any-return]


def check(name: str, net: nn.Module, like: nn.Module) -> float:
    """Compare a contender's loss and weight gradients with ours in its own semantics.

    Returns: the firing rate of its output layer.

    Raises: SystemExit where they differ.
    """
    loss, grads, rate = _gradients(net, net)
    expected_loss, expected, _ = _gradients(like, _unrolled(like))
    alike = [F.cosine_similarity(a.flatten(), b.flatten(), 0).item() for a, b in zip(grads, expected)]
    if abs(loss - expected_loss) > 1e-2 * expected_loss or min(alike) < 0.999:
        raise SystemExit(f"{name}: loss {loss} where {expected_loss} was expected, gradient cosines {alike}")
    return rate


def _step(net: nn.Module) -> Callable[[], None]:
    x, y = _batch()
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-4)

    def run() -> None:
        optimizer.zero_grad(set_to_none=True)
        _loss(net(x), y).backward()  # type: ignore[no-untyped-call]
        optimizer.step()

    return run


def _our_step(net: nn.Module) -> Callable[[], None]:
    x, y = _batch()
    step = snn.training_model(net, _loss, torch.optim.AdamW(net.parameters(), lr=1e-4), num_steps=STEPS, device="cpu")

    def run() -> None:
        step(x, y)

    return run


def results(repeats: int) -> Iterator[Result]:
    """The one benchmark of this file."""
    ours = _ours(_leaky)
    rate = _gradients(ours, _unrolled(ours))[2]
    run = _our_step(ours)
    entries = [Contender("snn_ipu training_model", run, seconds(run), rate)]
    left_out = []
    peer_nets: list[tuple[str, Any, Callable[[], nn.Module]]] = []
    if (reason := peers.spikingjelly_missing()) is None:
        peer_nets += [
            ("SpikingJelly 2, multi-step", _SpikingJelly(once=False), _soft_reset),
            ("SpikingJelly 2, multi-step, first layer once", _SpikingJelly(once=True), _soft_reset),
        ]
    else:
        left_out.append(reason)
    if (reason := peers.snntorch_missing()) is None:
        peer_nets += [
            ("snnTorch loop", _SnnTorch(once=False), _leaky),
            ("snnTorch loop, first layer once", _SnnTorch(once=True), _leaky),
        ]
    else:
        left_out.append(reason)
    for name, net, neuron in peer_nets:
        rate = check(name, net, _ours(neuron))
        run = _step(net)
        entries.append(Contender(name, run, seconds(run), rate))
    interleave(entries, repeats)
    yield Result(f"training step, 784-1000-10, batch {BATCH}, T={STEPS}, static input, AdamW", entries, left_out)
