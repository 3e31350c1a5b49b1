"""Floating point operations of a minibatch, where one fused multiply-add is one, as in the paper.

Synapses are counted as the step-by-step network does them, T times each, whether or not a library computes the layer
of a static input once: the count is of the task, not of the program. Neuron dynamics are counted apart.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Iterable

import torch
from torch import Tensor, nn

from ..compiler.adjoint import differentiate
from ..compiler.program import Graph
from ..compiler.trace import trace
from ..neurons import SpikingNeuron
from ..surrogate import Surrogate

_FREE = ("input", "const", "detach", "cast")


@dataclass(frozen=True)
class Flops:
    """Operations of one minibatch over all its time steps."""

    synapses_forward: int = 0
    synapses_backward: int = 0
    neurons_forward: int = 0
    neurons_backward: int = 0

    @property
    def synapses(self) -> int:
        return self.synapses_forward + self.synapses_backward

    def __add__(self, other: Flops) -> Flops:
        return Flops(*(a + b for a, b in zip(vars(self).values(), vars(other).values())))

    def __mul__(self, times: int) -> Flops:
        return Flops(*(a * times for a in vars(self).values()))


def count(net: nn.Sequential, image: Tensor, num_steps: int) -> Flops:
    """Operations for one sample `image` [1, ...] over `num_steps` steps, forward and backward; times the batch for one.

    Backward is one product for the gradient of the weights and one for that of the input, which the first layer does
    without.
    """
    total = once = Flops()
    first = True
    x = image
    for layer in net:
        with torch.no_grad():
            out = _one_step(layer, x)
        if isinstance(layer, (nn.Linear, nn.Conv2d)):
            forward = _multiply_adds(layer, out)
            total += Flops(synapses_forward=forward, synapses_backward=forward * (1 if first else 2))
            first = False
        elif isinstance(layer, SpikingNeuron):
            total += _neurons(layer, out)
            # the spikes before the first step have no gradient
            once += Flops(synapses_backward=_feedback(layer, out))
        elif isinstance(layer, nn.ReLU):
            total += Flops(neurons_forward=out.numel(), neurons_backward=out.numel())
        x = out
    return total * num_steps + once * -1


def _one_step(layer: nn.Module, x: Tensor) -> Tensor:
    out: Tensor = layer.sequence(x[None])[0][0] if isinstance(layer, SpikingNeuron) else layer(x)
    return out


def _multiply_adds(layer: nn.Module, out: Tensor) -> int:
    assert isinstance(layer.weight, Tensor)
    return out.numel() * layer.weight[0].numel()


def _neurons(layer: SpikingNeuron, out: Tensor) -> Flops:
    synapses = _feedback(layer, out)
    forward, backward = operations(layer)
    return Flops(synapses, 2 * synapses, forward * out.numel(), backward * out.numel())


def _feedback(layer: SpikingNeuron, out: Tensor) -> int:
    """Multiply-adds of a matrix or a convolution that feeds spikes back, in one step."""
    return sum(_multiply_adds(m, out) for m in layer.modules() if isinstance(m, (nn.Linear, nn.Conv2d)))


def operations(neuron: SpikingNeuron) -> tuple[int, int]:
    """Operations of one neuron in one step, forward and backward, in the equations that every kernel is printed from.

    The surrogate's derivative belongs to the backward pass. What a kernel computes again there is not counted.
    """
    assert isinstance(neuron.spike_grad, Surrogate)
    program = trace(type(neuron).step, neuron.state_names, tuple(neuron.params()), neuron.flags(), neuron.spike_grad)
    adjoint = differentiate(program)
    varying = program.varying()
    forward = program.graph.reach([program.spk, *program.new_states]) & varying
    roots = [r for r in (adjoint.x, *adjoint.states.values()) if r is not None]
    backward = (program.graph.reach(roots) & varying) - forward
    return _count(program.graph, forward), _count(program.graph, backward)


def _count(graph: Graph, indices: Iterable[int]) -> int:
    chosen = [i for i in indices if graph.nodes[i].op not in _FREE]
    uses: dict[int, int] = {}
    for i in chosen:
        for argument in graph.nodes[i].args:
            uses[argument] = uses.get(argument, 0) + 1
    fused = 0
    for i in chosen:
        if graph.nodes[i].op in ("add", "sub"):
            products = [a for a in graph.nodes[i].args if graph.nodes[a].op == "mul" and uses[a] == 1 and a in chosen]
            fused += bool(products)
    return len(chosen) - fused
