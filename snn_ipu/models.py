"""The networks of the IPU study: dense, convolutional and recurrent spiking networks with population outputs.

Their exact layers were not published; the default sizes follow the snnTorch tutorials of the same authors and are
inferred, not quoted.
"""

from __future__ import annotations

from typing import Sequence

from torch import nn

from .neurons import Leaky, RLeaky
from .surrogate import SpikeGrad, fast_sigmoid


def _grad(spike_grad: SpikeGrad | None) -> SpikeGrad:
    return fast_sigmoid(25) if spike_grad is None else spike_grad


def DSNN(
    inputs: int = 784,
    hidden: Sequence[int] = (1000,),
    classes: int = 10,
    population: int = 1,
    beta: float = 0.9,
    spike_grad: SpikeGrad | None = None,
) -> nn.Sequential:
    """Dense spiking network: flatten, then a linear layer and a `Leaky` layer for every width.

    Args:
        inputs: values per sample. hidden: widths of the hidden layers.
        classes, population: the output has classes * population neurons, one contiguous block per class.
        beta: decay per step. spike_grad: surrogate, `fast_sigmoid(25)` by default.

    Shape: x [B, ...] with `inputs` values per sample; spk [B, classes * population].
    """
    layers: list[nn.Module] = [nn.Flatten()]
    widths = [inputs, *hidden, classes * population]
    for before, after in zip(widths, widths[1:]):
        layers += [nn.Linear(before, after), Leaky(beta, spike_grad=_grad(spike_grad))]
    return nn.Sequential(*layers)


def RSNN(
    inputs: int = 784,
    hidden: Sequence[int] = (1000,),
    classes: int = 10,
    population: int = 1,
    beta: float = 0.9,
    spike_grad: SpikeGrad | None = None,
    all_to_all: bool = True,
) -> nn.Sequential:
    """Recurrent spiking network: as `DSNN`, with `RLeaky` hidden layers.

    Args:
        all_to_all: feedback through a matrix; False for one weight per neuron. All others as in `DSNN`.

    Shape: x [B, ...] with `inputs` values per sample; spk [B, classes * population].
    """
    layers: list[nn.Module] = [nn.Flatten()]
    widths = [inputs, *hidden]
    grad = _grad(spike_grad)
    for before, after in zip(widths, widths[1:]):
        feedback = after if all_to_all else None
        layers += [
            nn.Linear(before, after),
            RLeaky(beta, all_to_all=all_to_all, linear_features=feedback, spike_grad=grad),
        ]
    layers += [nn.Linear(widths[-1], classes * population), Leaky(beta, spike_grad=grad)]
    return nn.Sequential(*layers)


def CSNN(
    image_shape: tuple[int, int, int] = (1, 28, 28),
    channels: Sequence[int] = (12, 64),
    kernel_size: int = 5,
    classes: int = 10,
    population: int = 1,
    beta: float = 0.9,
    spike_grad: SpikeGrad | None = None,
) -> nn.Sequential:
    """Convolutional spiking network: convolution, 2x2 max-pooling and `Leaky` for each of `channels`, then dense.

    Args:
        image_shape: channels, height and width of the input.
        channels: output channels of each convolution, 12C5-MP2-64C5-MP2 by default.
        kernel_size: of every convolution, without padding. All others as in `DSNN`.

    Shape: x [B, channels, height, width]; spk [B, classes * population].

    Raises: ValueError when the image is too small for the layers.
    """
    depth, height, width = image_shape
    layers: list[nn.Module] = []
    grad = _grad(spike_grad)
    for after in channels:
        layers += [nn.Conv2d(depth, after, kernel_size), nn.MaxPool2d(2), Leaky(beta, spike_grad=grad)]
        depth, height, width = after, (height - kernel_size + 1) // 2, (width - kernel_size + 1) // 2
        if height < 1 or width < 1:
            raise ValueError(
                f"CSNN(image_shape={image_shape}, channels={tuple(channels)}, kernel_size={kernel_size}): the image is "
                "too small; expected at least one pixel after each layer. Use fewer channels or a smaller kernel."
            )
    layers += [
        nn.Flatten(),
        nn.Linear(depth * height * width, classes * population),
        Leaky(beta, spike_grad=grad),
    ]
    return nn.Sequential(*layers)
