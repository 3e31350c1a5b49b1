"""Leaky neuron that fires on change."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from .leaky import Leaky
from .lif import Quantiser, fire


def deltaleaky(
    x: Tensor,
    mem: Tensor,
    mem_prev: Tensor,
    *,
    beta: Tensor,
    delta_threshold: Tensor,
    graded_spikes_factor: Tensor,
    state_quant: Quantiser | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """One step: the new membrane is beta * mem + x; spk = |new - mem| > delta_threshold."""
    new = beta * mem + x
    if state_quant is not None:
        new = state_quant(new)
    return fire((new - mem).abs(), delta_threshold, graded_spikes_factor), new, mem


class DeltaLeaky(Leaky):
    """Leaky neuron that fires on change: mem[t] = beta * mem[t-1] + x[t], spk[t] = |mem[t] - mem[t-1]| > limit.

    The limit is delta_threshold. There is no reset, and beta is not clamped.

    Args:
        delta_threshold: a change strictly above it spikes.
        All other arguments as in `Leaky`, beta first.

    Shape: x [B, ...]; spk as x; the state is the pair (mem, mem_prev), each as x. Units: dimensionless.

    Raises: ValueError for arguments of `Leaky` that have no meaning here: threshold, inhibition, a reset.

    Source: snnTorch 1.0 `DeltaLeaky`.
    """

    step = staticmethod(deltaleaky)  # type: ignore[assignment]
    state_names = ("mem", "mem_prev")  # type: ignore[assignment]
    mem_prev: Tensor
    threshold: Tensor
    delta_threshold: Tensor

    def __init__(self, delta_threshold: float | Tensor = 1.0, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        meaningless = {
            "threshold": self.threshold.numel() != 1 or self.threshold.item() != 1,
            "learn_threshold": isinstance(self.threshold, torch.nn.Parameter),
            "inhibition": self.inhibition,
            "reset_mechanism": self.reset_mechanism == "zero",
            "reset_delay": not self.reset_delay,
        }
        given = [name for name, is_given in meaningless.items() if is_given]
        if given:
            raise ValueError(
                f"DeltaLeaky({', '.join(f'{name}=...' for name in given)}): no effect on a neuron that fires on change "
                "and is never reset. Drop the argument; the limit is delta_threshold."
            )
        limit = torch.as_tensor(delta_threshold, dtype=torch.get_default_dtype())
        self.register_buffer("delta_threshold", limit, persistent=False)
        self._param_names = ("beta", "delta_threshold", "graded_spikes_factor")

    def flags(self) -> dict[str, Any]:
        return {"state_quant": self.state_quant} if callable(self.state_quant) else {}

    def forward(  # type: ignore[override]
        self, input_: Tensor, mem: tuple[Tensor | None, Tensor | None] | None = None
    ) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        """One time step.

        Args:
            input_: currents [B, ...].
            mem: the pair that the previous step returned; without it the module goes on from its own last state.

        Returns: `(spk, (mem, mem_prev))`, with `init_hidden=True` as well.

        Raises: TypeError for a pair with init_hidden; ShapeError for shapes that do not fit.
        """
        out = super().forward(input_, *(mem or ()))
        return (out if isinstance(out, Tensor) else out[0]), (self.mem, self.mem_prev)
