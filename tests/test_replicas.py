"""Replicas as DataParallel makes them, on the CPU: shallow copies whose weights are plain tensors, run in threads."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any, Callable

import pytest
import torch
from torch import Tensor, nn

import snn_ipu as snn

STEPS, BATCH, INPUTS, WIDTH = 8, 6, 4, 5


def replicate(net: nn.Module) -> Any:
    """torch.nn.parallel.replicate, which wants GPUs, for one device."""
    modules = list(net.modules())
    copies: dict[nn.Module, Any] = {module: module._replicate_for_data_parallel() for module in modules}
    for module, replica in copies.items():
        for name, child in module._modules.items():
            setattr(replica, name, None if child is None else copies[child])
        for name, parameter in module._parameters.items():
            setattr(replica, name, None if parameter is None else parameter.view_as(parameter))
    return copies[net]


def spikes(net: nn.Module, x: Tensor) -> Tensor:
    out = [net(x_t) for x_t in x] if getattr(net[-1], "init_hidden", False) else net(x)  # type: ignore[index]
    out = torch.stack([o[0] if isinstance(o, tuple) else o for o in out]) if isinstance(out, list) else out
    return out[0] if isinstance(out, tuple) else out


WIDE = snn.surrogate.fast_sigmoid(2)
NEURONS: dict[str, Callable[[], nn.Module]] = {
    "Leaky": lambda: snn.Leaky(0.9, 0.2, WIDE, init_hidden=True, learn_beta=True, learn_threshold=True),
    "Synaptic": lambda: snn.Synaptic(0.9, 0.8, 0.2, WIDE, init_hidden=True),
    "Alpha": lambda: snn.Alpha(0.9, 0.8, 0.05, WIDE, init_hidden=True),
    "Lapicque": lambda: snn.Lapicque(0.9, threshold=0.2, spike_grad=WIDE, init_hidden=True),
    "RLeaky": lambda: snn.RLeaky(0.9, linear_features=WIDTH, threshold=0.2, spike_grad=WIDE, init_hidden=True),
    "RLeaky one-to-one": lambda: snn.RLeaky(
        0.9, torch.rand(WIDTH), all_to_all=False, threshold=0.2, spike_grad=WIDE, init_hidden=True
    ),
    "RSynaptic": lambda: snn.RSynaptic(
        0.9, 0.8, linear_features=WIDTH, threshold=0.2, spike_grad=WIDE, init_hidden=True
    ),
    "SLSTM": lambda: snn.SLSTM(WIDTH, WIDTH, threshold=0.01, spike_grad=WIDE, init_hidden=True),
    "StateLeaky": lambda: snn.StateLeaky(0.9, channels=WIDTH, threshold=0.2, spike_grad=WIDE),
    "LeakyParallel": lambda: snn.LeakyParallel(WIDTH, WIDTH, threshold=0.05, spike_grad=WIDE),
}


@pytest.mark.parametrize("neuron", NEURONS.values(), ids=NEURONS)
def test_replicas__each_half_of_a_batch_in_its_thread__same_as_the_whole(neuron: Callable[[], nn.Module]) -> None:
    net = nn.Sequential(nn.Linear(INPUTS, WIDTH), neuron())
    x = torch.rand(STEPS, BATCH, INPUTS)
    halves = x.split(BATCH // 2, dim=1)
    replicas = [replicate(net) for _ in halves]
    with ThreadPoolExecutor(len(halves)) as pool:
        together = torch.cat(list(pool.map(spikes, replicas, halves)), dim=1)
    whole = spikes(net, x)
    assert 0.02 < (whole != 0).float().mean() < 0.98
    assert torch.equal(together, whole)
    parameters = [p for p in net.parameters() if p.requires_grad]
    weight = torch.rand_like(whole)
    ours, theirs = (torch.autograd.grad((out * weight).sum(), parameters) for out in (together, whole))
    for a, b in zip(ours, theirs):
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-5)


def test_replicas__have_run__leave_the_state_of_the_network_alone() -> None:
    net = nn.Sequential(nn.Linear(INPUTS, WIDTH), snn.Leaky(0.9, init_hidden=True))
    net(torch.ones(BATCH, INPUTS))
    before = net[1].mem
    replica = replicate(net)
    replica(torch.ones(BATCH, INPUTS))
    assert net[1].mem is before and replica[1].mem is not before
