"""Spiking convolutional LSTM."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ..errors import ShapeError
from ..surrogate import SpikeGrad, using
from .base import Value
from .lif import LIF, Quantiser, fire
from .recurrent import KernelSize
from .slstm import SpikingLSTM


class SConv2dLSTM(SpikingLSTM):
    """Spiking convolutional LSTM: `SLSTM` whose gates are one convolution of the input stacked on the membrane.

    Args:
        in_channels, out_channels: of the image x, and of the states.
        kernel_size: odd, one number or (height, width); images keep their size.
        bias: whether the gates have biases.
        max_pool, avg_pool: pool the membrane by this factor before it is compared with the threshold; the states keep
            their size. At most one of the two.
        All other arguments as in `SLSTM`.

    Shape: x [B, in_channels, H, W]; syn and mem [B, out_channels, H, W]; spk as mem, smaller by the pooling factor.
        Units: dimensionless; mem lies in (-1, 1).

    Raises: ValueError for both poolings, an even kernel, inhibition, or an unknown reset mechanism.

    Source: snnTorch 1.0 `SConv2dLSTM`; Shi et al., 2015 (arXiv:1506.04214).
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: KernelSize,
        bias: bool = True,
        max_pool: int = 0,
        avg_pool: int = 0,
        threshold: Value = 1.0,
        spike_grad: SpikeGrad | None = None,
        surrogate_disable: bool = False,
        init_hidden: bool = False,
        inhibition: bool = False,
        learn_threshold: bool = False,
        reset_mechanism: str = "none",
        state_quant: bool | Quantiser = False,
        output: bool = False,
        *,
        backend: str = "auto",
    ) -> None:
        rows, columns = (kernel_size, kernel_size) if isinstance(kernel_size, int) else kernel_size
        if max_pool and avg_pool:
            raise ValueError(
                f"SConv2dLSTM(max_pool={max_pool}, avg_pool={avg_pool}): expected one of the two. Set the other to 0."
            )
        if rows % 2 == 0 or columns % 2 == 0:
            raise ValueError(
                f"SConv2dLSTM(kernel_size={kernel_size}): expected odd sizes, so that images keep theirs. Use 3 or 5."
            )
        if inhibition:
            raise ValueError(
                "SConv2dLSTM(inhibition=True): expected False, since inhibition is defined for dense layers. Use SLSTM."
            )
        super().__init__(
            threshold,
            spike_grad,
            surrogate_disable,
            init_hidden,
            inhibition,
            learn_threshold,
            reset_mechanism,
            state_quant,
            output,
            backend=backend,
        )
        self.in_channels, self.out_channels, self.kernel_size = in_channels, out_channels, kernel_size
        self.max_pool, self.avg_pool, self.bias = max_pool, avg_pool, bias
        self.padding = rows // 2, columns // 2
        self.conv = nn.Conv2d(
            in_channels + out_channels, 4 * out_channels, kernel_size, padding=self.padding, bias=bias
        )

    def input_sums(self, x: Tensor) -> Tensor:
        return F.conv2d(x, self.conv.weight[:, : self.in_channels], self.conv.bias, padding=self.padding)

    def membrane_sums(self, mem: Tensor) -> Tensor:
        return F.conv2d(mem, self.conv.weight[:, self.in_channels :], padding=self.padding)

    def joint_sums(self, x: Tensor, mem: Tensor) -> Tensor:
        return F.conv2d(torch.cat((x, mem), 1), self.conv.weight, self.conv.bias, padding=self.padding)

    def frame(self, x: Tensor) -> tuple[int, ...]:
        return (x.shape[0], self.out_channels, *x.shape[2:])

    def gates(self, sums: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        i, f, o, g = sums.chunk(4, 1)
        return i, f, g, o

    def spikes(self, spk: Tensor, mem: Tensor) -> Tensor:
        if not (self.max_pool or self.avg_pool):
            return spk
        pooled = F.max_pool2d(mem, self.max_pool) if self.max_pool else F.avg_pool2d(mem, self.avg_pool)
        with using(self.spike_grad):
            fired = fire(pooled, self.params()["threshold"].to(mem.dtype), None, False, self.flags().get("state_quant"))
        return fired.to(spk.dtype)

    def _check_input(self, x: Tensor, time: bool) -> None:
        if x.dim() != 4 + time or x.shape[-3] != self.in_channels:
            frames = f"[{'T, ' if time else ''}B, {self.in_channels}, H, W]"
            raise ShapeError(f"SConv2dLSTM(x of shape {tuple(x.shape)}): expected {frames}. Give images of that shape.")

    init_sconv2dlstm = LIF.reset_mem
