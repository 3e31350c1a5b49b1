"""What every loss and accuracy does to its inputs first: check them, and choose the type to compute in."""

from __future__ import annotations

from typing import Callable

import torch
from torch import Tensor

from ..errors import ShapeError

# torch.nn.NLLLoss leaves samples with this label out of the loss.
IGNORED_LABEL = -100

# torch 2.0 has no torch.compiler; there a compiled loss breaks the graph once instead.
_is_compiling: Callable[[], bool] = getattr(getattr(torch, "compiler", None), "is_compiling", lambda: False)

_is_tracing: Callable[[], bool] = torch.jit.is_tracing  # type: ignore[attr-defined]


def computed(values: Tensor) -> Tensor:
    """`values` in the type losses are computed in: float64 stays, everything else becomes float32.

    A sum of more than 2048 float16 (256 bfloat16) spikes is no longer exact in its own type.
    """
    return values if values.dtype == torch.float64 else values.to(torch.float32)


def recording(values: Tensor, call: str) -> Tensor:
    """A recording over time, [T, B, N] with T > 0, in the type losses are computed in."""
    if values.dim() != 3 or values.shape[0] == 0:
        raise ShapeError(
            f"{call} got a recording of shape {tuple(values.shape)}; expected [T, B, N] with at least one"
            " time step. Stack the outputs of all steps with torch.stack(spk_rec)."
        )
    return computed(values)


def readable(values: Tensor) -> bool:
    """Whether the values of a tensor may be looked at now.

    Reading costs a synchronisation on an accelerator and is impossible while a graph is recorded or vmapped.
    """
    if _is_compiling() or _is_tracing():
        return False
    return type(values) is Tensor and values.device.type == "cpu" and not torch._C._functorch.is_batchedtensor(values)


def check_label_shape(targets: Tensor, call: str, *shapes: tuple[int, ...]) -> None:
    """Raises ShapeError unless the labels have one of the shapes."""
    if targets.shape not in shapes:
        expected = " or ".join(str(list(shape)) for shape in shapes)
        raise ShapeError(
            f"{call} got targets of shape {tuple(targets.shape)}; expected labels of shape"
            f" {expected}, not one-hot rows."
        )


def class_mask(
    targets: Tensor, num_classes: int, call: str, device: torch.device, ignored: int | None = None
) -> Tensor:
    """Which class each label names: labels [...] -> bool [..., C].

    A comparison instead of an index: it needs no particular integer type and runs inside a PopTorch graph.
    A label outside 0..C-1 (and not `ignored`) raises ValueError if it can be read; its row is all False.
    """
    targets = targets.to(device)
    mask = targets.unsqueeze(-1) == torch.arange(num_classes, device=device)
    if readable(targets):
        bad = ~mask.any(-1)
        if ignored is not None:
            bad = bad & (targets != ignored)
        if bool(bad.any()):
            raise ValueError(
                f"{call} got label {targets[bad][0].item()}; expected whole numbers from 0 to"
                f" {num_classes - 1}. Check the labels, or the number of outputs."
            )
    return mask


def class_values(mask: Tensor, on: float, off: float, dtype: torch.dtype) -> Tensor:
    """Target values [..., C]: `on` at the labelled class, else `off`; NaN where the label names no class."""
    values = torch.full_like(mask, off, dtype=dtype).masked_fill(mask, on)
    return values.masked_fill(~mask.any(-1, keepdim=True), float("nan"))
