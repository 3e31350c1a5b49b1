"""A linear layer and a leaky neuron without reset, over a whole sequence."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from ..errors import ShapeError
from ..surrogate import SpikeGrad
from .base import Value
from .lif import Quantiser
from .stateleaky import StateLeaky


class LinearLeaky(StateLeaky):
    """`StateLeaky` behind a linear layer: mem[t] = sum over k of exp(-k / tau) * (W x[t-k] + b).

    Args:
        in_features, out_features, bias, device, dtype: of the linear layer; out_features is the number of neurons.
        All other arguments as in `StateLeaky`.

    Shape: x [T, B, ..., in_features]; spk and mem [T, B, ..., out_features]. Units: dimensionless.

    Raises: as `StateLeaky`.

    Source: snnTorch 1.0 `LinearLeaky`.
    """

    def __init__(
        self,
        beta: Value,
        in_features: int,
        out_features: int,
        bias: bool = True,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        threshold: Value = 1.0,
        spike_grad: SpikeGrad | None = None,
        surrogate_disable: bool = False,
        learn_beta: bool = False,
        learn_threshold: bool = False,
        state_quant: bool | Quantiser = False,
        output: bool = True,
        graded_spikes_factor: Value = 1.0,
        learn_graded_spikes_factor: bool = False,
        kernel_truncation_steps: int | None = None,
        *,
        backend: str = "auto",
    ) -> None:
        super().__init__(
            beta,
            out_features,
            threshold,
            spike_grad,
            surrogate_disable,
            learn_beta,
            learn_threshold,
            state_quant,
            output,
            graded_spikes_factor,
            learn_graded_spikes_factor,
            kernel_truncation_steps,
            backend=backend,
        )
        self.linear = nn.Linear(in_features, out_features, bias, device, dtype)

    def _currents(self, x: Tensor) -> Tensor:
        if x.dim() < 1 or x.shape[-1] != self.linear.in_features:
            raise ShapeError(
                f"LinearLeaky(x of shape {tuple(x.shape)}): expected [T, B, {self.linear.in_features}], features last. "
                "Transpose the input."
            )
        currents: Tensor = self.linear(x)
        return currents
