"""Layers around the neurons: graded spikes and batch normalisation through time."""

from __future__ import annotations

from typing import Callable

import torch
from torch import Tensor, nn

from .errors import ShapeError


class GradedSpikes(nn.Module):
    """Spikes of learnable magnitude: y = weights * x, one weight per neuron.

    Args:
        size: number of neurons of the layer before.
        constant_factor: start value of every weight; 0, False or None draws each from U(0.5, 1.5).

    Shape: x [..., size], or [..., size, K] with K other than size; y as x.

    Raises: ShapeError for an x without a dimension of `size` neurons.

    Source: snnTorch 1.0 `GradedSpikes`.
    """

    def __init__(self, size: int, constant_factor: float | None) -> None:
        super().__init__()
        self.size = size
        start = torch.full((size, 1), float(constant_factor)) if constant_factor else torch.rand(size, 1) + 0.5
        self.weights = nn.Parameter(start)

    def forward(self, x: Tensor) -> Tensor:
        weights = self.weights.to(x.dtype) if x.is_floating_point() else self.weights
        if x.dim() >= 1 and x.shape[-1] == self.size:
            return x * weights.squeeze(1)
        if x.dim() >= 2 and x.shape[-2] == self.size:
            return x * weights
        raise ShapeError(
            f"GradedSpikes({self.size})(x of shape {tuple(x.shape)}): expected [..., {self.size}], one value per "
            "neuron. Use the width of the layer before as size."
        )

    def extra_repr(self) -> str:
        return f"size={self.size}"


def _through_time(
    layer: Callable[..., nn.Module], features: int, time_steps: int, eps: float, momentum: float, affine: bool
) -> nn.ModuleList:
    layers = nn.ModuleList(layer(features, eps=eps, momentum=momentum, affine=affine) for _ in range(time_steps))
    for of_step in layers:
        of_step.register_parameter("bias", None)
    return layers


def BatchNormTT1d(
    input_features: int, time_steps: int, eps: float = 1e-5, momentum: float = 0.1, affine: bool = True
) -> nn.ModuleList:
    """Batch normalisation through time: one `nn.BatchNorm1d` without bias for every time step.

    Args:
        input_features: features of the input. time_steps: T. eps, momentum, affine: of every layer.

    Returns: T layers; step t uses the t-th.

    Source: Kim and Panda, 2020 (arXiv:2010.01729); snnTorch 1.0.
    """
    return _through_time(nn.BatchNorm1d, input_features, time_steps, eps, momentum, affine)


def BatchNormTT2d(
    input_features: int, time_steps: int, eps: float = 1e-5, momentum: float = 0.1, affine: bool = True
) -> nn.ModuleList:
    """Batch normalisation through time for images: as `BatchNormTT1d` with `nn.BatchNorm2d`; features are channels."""
    return _through_time(nn.BatchNorm2d, input_features, time_steps, eps, momentum, affine)
