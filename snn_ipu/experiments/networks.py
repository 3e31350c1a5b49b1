"""The networks that are measured, written once for this package and for snnTorch, whose names are the same."""

from __future__ import annotations

import importlib
import math
from typing import Any

from torch import nn

from .points import Point

BETA = 0.9
ALPHA = 0.8
SLOPE = 25.0
KERNEL_SIZE = 5


def _neuron(library: Any, point: Point, features: int | None, channels: int | None) -> nn.Module:
    """A hidden layer's neurons; `features` of a dense layer or `channels` of a convolution for feedback weights."""
    common = {"beta": BETA, "spike_grad": library.surrogate.fast_sigmoid(slope=SLOPE), "init_hidden": True}
    made: nn.Module
    if point.neuron == "leaky":
        made = library.Leaky(**common)
    elif point.neuron == "synaptic":
        made = library.Synaptic(alpha=ALPHA, **common)
    elif point.neuron == "rleaky-one-to-one":
        made = library.RLeaky(all_to_all=False, V=0.5, **common)
    elif channels is not None:
        made = library.RLeaky(all_to_all=True, conv2d_channels=channels, kernel_size=KERNEL_SIZE, **common)
    else:
        made = library.RLeaky(all_to_all=True, linear_features=features, **common)
    return made


def build(point: Point, image_shape: tuple[int, int, int], classes: int) -> nn.Sequential:
    """The untrained network of a point, float32.

    The output layer is leaky whatever the hidden neurons are; the twin that does not spike gives its last sums.
    """
    library = importlib.import_module("snntorch" if point.device.startswith("snntorch") else "snn_ipu")

    def neuron(features: int | None = None, channels: int | None = None) -> nn.Module:
        return _neuron(library, point, features, channels) if point.spiking else nn.ReLU()

    layers: list[nn.Module] = []
    depth, height, width = image_shape
    if point.network == "csnn":
        for after in point.channels or ():
            layers += [nn.Conv2d(depth, after, KERNEL_SIZE), nn.MaxPool2d(2), neuron(channels=after)]
            depth, height, width = after, (height - KERNEL_SIZE + 1) // 2, (width - KERNEL_SIZE + 1) // 2
    layers.append(nn.Flatten())
    before = math.prod((depth, height, width))
    for after in point.hidden or ():
        layers += [nn.Linear(before, after), neuron(features=after)]
        before = after
    layers.append(nn.Linear(before, classes))
    if point.spiking:
        grad = library.surrogate.fast_sigmoid(slope=SLOPE)
        layers.append(library.Leaky(beta=BETA, spike_grad=grad, init_hidden=True))
    return nn.Sequential(*layers)


def is_neuron(layer: nn.Module) -> bool:
    """Whether a layer of a network made here is its neurons, of either library."""
    return isinstance(layer, nn.ReLU) or hasattr(layer, "reset_mem")


def pieces(net: nn.Sequential) -> list[tuple[str, nn.Sequential]]:
    """The network cut where synapses and neurons meet, each piece with "synapses" or "neurons"."""
    found: list[tuple[str, nn.Sequential]] = []
    for layer in net:
        kind = "neurons" if is_neuron(layer) else "synapses"
        if not found or found[-1][0] != kind:
            found.append((kind, nn.Sequential()))
        found[-1][1].append(layer)
    return found
