"""Losses on a recording of the output layer, [T, B, N].

All of them accept `reduction` ("mean", "sum", "none"), class weights `weight` [C], a population code, any
dtype and device, and run inside a PopTorch graph (wrap the result with poptorch.identity_loss there). A label
that names no class raises ValueError where labels can be read (on the CPU) and makes the loss NaN elsewhere.
The loss is float64 for a float64 recording, else float32.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

import torch
from torch import Tensor

from ..errors import ShapeError
from .inputs import IGNORED_LABEL, check_label_shape, class_mask, class_values, recording
from .population import check_classes, output_classes, population_counts, population_mean
from .spike_time import SpikeTime, Times, spike_times

_REDUCTIONS = ("mean", "sum", "none")


class LossFunctions(ABC):
    """Base of the losses.

    Args:
        reduction: "mean", "sum" or "none".
        weight: factor of each class's samples in the loss, [C].
        population_code: the outputs are `num_classes` contiguous blocks of neurons.
        num_classes: number of classes C, needed with a population code.

    Raises: ValueError for an unknown reduction, or a population code without num_classes.
    """

    # Whether the loss reads spikes ("spk") or membranes ("mem").
    reads = "spk"

    def __init__(
        self,
        reduction: str = "mean",
        weight: Tensor | None = None,
        population_code: bool = False,
        num_classes: int = False,
    ) -> None:
        self.__name__ = type(self).__name__
        if reduction not in _REDUCTIONS:
            raise ValueError(f"{self.__name__}(reduction={reduction!r}); expected one of {_REDUCTIONS}.")
        check_classes(population_code, num_classes, self.__name__)
        self.reduction = reduction
        self.weight = weight
        self.population_code = population_code
        self.num_classes = num_classes

    def __call__(self, spk_out: Tensor, targets: Tensor) -> Tensor:
        return self._compute_loss(recording(spk_out, self._call), targets)

    def __repr__(self) -> str:
        settings = (f"{name}={value!r}" for name, value in vars(self).items() if name != "__name__")
        return f"{self.__name__}({', '.join(settings)})"

    @property
    def _call(self) -> str:
        return f"{self.__name__}(...)(spk_out, targets)"

    @abstractmethod
    def _compute_loss(self, out: Tensor, targets: Tensor) -> Tensor:
        """The loss of spikes or membranes `out` [T, B, ...]."""

    def _classes(self, out: Tensor) -> int:
        return output_classes(out, self.population_code, self.num_classes, self._call)

    def _responses(self, out: Tensor) -> Tensor:
        """Each class's response: its neuron's, or with a population code the mean of its block, [..., C]."""
        self._classes(out)
        return population_mean(out, self.num_classes, self._call) if self.population_code else out

    def _counts(self, out: Tensor) -> Tensor:
        """Spikes of each class over time, [B, C]."""
        self._classes(out)
        return population_counts(out, self.num_classes) if self.population_code else out.sum(0)

    def _label_weight(self, mask: Tensor, dtype: torch.dtype) -> Tensor:
        """The class weight of each label, [...] for a mask [..., C]."""
        if self.weight is None:
            return torch.ones_like(mask[..., 0], dtype=dtype)
        if self.weight.shape != mask.shape[-1:]:
            raise ShapeError(
                f"{self.__name__}(weight of shape {tuple(self.weight.shape)}) got outputs for"
                f" {mask.shape[-1]} classes; expected one weight per class, [{mask.shape[-1]}]."
            )
        weight = self.weight.to(device=mask.device, dtype=dtype)
        return (weight * mask.to(dtype)).sum(-1)

    def _reduce(self, loss: Tensor) -> Tensor:
        if self.reduction == "none":
            return loss
        return loss.mean() if self.reduction == "mean" else loss.sum()


class _CrossEntropy(LossFunctions):
    """Cross entropy of scores [B, C]: loss[b] = -w[y_b] · log softmax(scores[b])[y_b]; mean over samples."""

    @abstractmethod
    def _log_p(self, out: Tensor) -> Tensor:
        """Log-probabilities of the classes, [B, C]."""

    def _compute_loss(self, out: Tensor, targets: Tensor) -> Tensor:
        log_p = self._log_p(out)  # [B, C]
        check_label_shape(targets, self._call, (out.shape[1],))
        mask = class_mask(targets, log_p.shape[1], self._call, log_p.device, ignored=IGNORED_LABEL)
        kept = targets.to(log_p.device) != IGNORED_LABEL
        weight = self._label_weight(mask, log_p.dtype) * kept.to(log_p.dtype)
        loss = -weight * log_p.masked_fill(~mask, 0.0).sum(1)
        loss = loss.masked_fill(kept & ~mask.any(1), float("nan"))
        if self.reduction == "mean":
            return loss.sum() / self._mean_over(kept.to(log_p.dtype), weight).sum()
        return self._reduce(loss)

    def _mean_over(self, kept: Tensor, weight: Tensor) -> Tensor:
        return kept


class ce_rate_loss(_CrossEntropy):
    """Cross entropy of the spikes at every step: loss[b] = (1/T) Σ_t CE(spk[t, b], y_b).

    Returns shape [1] when reduced without class weights, as snnTorch does. A population code scores a class
    by the mean spike of its block at that step.
    Source: snnTorch.
    """

    def __init__(
        self,
        population_code: bool = False,
        num_classes: int = False,
        reduction: str = "mean",
        weight: Tensor | None = None,
    ) -> None:
        super().__init__(reduction, weight, population_code, num_classes)

    def _log_p(self, out: Tensor) -> Tensor:
        # the loss is linear in log p, so the mean over time can come first
        return torch.log_softmax(self._responses(out), -1).mean(0)

    def _compute_loss(self, out: Tensor, targets: Tensor) -> Tensor:
        loss = super()._compute_loss(out, targets)
        return loss.reshape(1) if self.weight is None and self.reduction != "none" else loss


class ce_count_loss(_CrossEntropy):
    """Cross entropy of the spike counts: loss[b] = CE(Σ_t spk[t, b], y_b).

    A population code scores a class by all spikes of its block.
    Source: snnTorch.
    """

    def __init__(
        self,
        population_code: bool = False,
        num_classes: int = False,
        reduction: str = "mean",
        weight: Tensor | None = None,
    ) -> None:
        super().__init__(reduction, weight, population_code, num_classes)

    def _log_p(self, out: Tensor) -> Tensor:
        return torch.log_softmax(self._counts(out), -1)


class ce_max_membrane_loss(_CrossEntropy):
    """Cross entropy of the highest membrane: loss[b] = CE(max_t mem[t, b], y_b).

    A population code scores a class by the highest mean membrane of its block.
    Source: snnTorch; SpyTorch (F. Zenke).
    """

    reads = "mem"

    def __init__(
        self,
        reduction: str = "mean",
        weight: Tensor | None = None,
        *,
        population_code: bool = False,
        num_classes: int = False,
    ) -> None:
        super().__init__(reduction, weight, population_code, num_classes)

    def _log_p(self, out: Tensor) -> Tensor:
        return torch.log_softmax(self._responses(out).max(0).values, -1)


class ce_temporal_loss(_CrossEntropy):
    """Cross entropy of inverted first spike times: loss[b] = CE(-t[b], y_b), or CE(1 / (t[b] + 1), y_b).

    With class weights the mean is the weighted mean, Σ loss / Σ w. A population code scores a class by the
    mean first spike time of its block.

    Args:
        inverse: "negate" or "reciprocal".
        reduction, weight, population_code, num_classes: see LossFunctions.

    Source: snnTorch.
    """

    def __init__(
        self,
        inverse: str = "negate",
        reduction: str = "mean",
        weight: Tensor | None = None,
        *,
        population_code: bool = False,
        num_classes: int = False,
    ) -> None:
        super().__init__(reduction, weight, population_code, num_classes)
        if inverse not in ("negate", "reciprocal"):
            raise ValueError(f"ce_temporal_loss(inverse={inverse!r}); expected 'negate' or 'reciprocal'.")
        self.inverse = inverse

    def __call__(self, spk_rec: Tensor, targets: Tensor) -> Tensor:
        return super().__call__(spk_rec, targets)

    def _log_p(self, out: Tensor) -> Tensor:
        time = self._responses(spike_times(out)[0])
        return torch.log_softmax(-time if self.inverse == "negate" else 1 / (time + 1), -1)

    def _mean_over(self, kept: Tensor, weight: Tensor) -> Tensor:
        return weight


class _SquaredError(LossFunctions):
    """Squared distance of a value per class from the value its label asks for, [..., B, C]."""

    def _mask(self, targets: Tensor, out: Tensor) -> Tensor:
        return class_mask(targets, self._classes(out), self._call, out.device)

    def _weighted(self, squares: Tensor, mask: Tensor) -> Tensor:
        if self.weight is None:
            return squares
        return squares * self._label_weight(mask, squares.dtype).unsqueeze(-1)


class mse_count_loss(_SquaredError):
    """Squared distance of spike counts from target counts: loss[b, c] = w[y_b] (Σ_t spk[t, b, c] - goal)²/T.

    goal = ⌊T · rate⌋, or ⌊T · rate · N/C⌋ for the N/C neurons of a population.

    Args:
        correct_rate, incorrect_rate: spikes per step asked of the labelled class and of the others.
        population_code, num_classes, reduction, weight: see LossFunctions.

    Source: snnTorch; SLAYER (S. B. Shrestha, G. Orchard).
    """

    def __init__(
        self,
        correct_rate: float = 1,
        incorrect_rate: float = 0,
        population_code: bool = False,
        num_classes: int = False,
        reduction: str = "mean",
        weight: Tensor | None = None,
    ) -> None:
        super().__init__(reduction, weight, population_code, num_classes)
        self.correct_rate = correct_rate
        self.incorrect_rate = incorrect_rate

    def _compute_loss(self, out: Tensor, targets: Tensor) -> Tensor:
        counts = self._counts(out)
        check_label_shape(targets, self._call, (out.shape[1],))
        mask = self._mask(targets, out)
        most = out.shape[0] * (out.shape[2] // counts.shape[1])
        # 100 * 0.29 is 28.999999999999996
        on, off = (int(most * rate + 1e-6) for rate in (self.correct_rate, self.incorrect_rate))
        goal = class_values(mask, on, off, counts.dtype)
        return self._reduce(self._weighted((counts - goal) ** 2, mask) / out.shape[0])


class mse_membrane_loss(_SquaredError):
    """Squared distance of membranes from target values: loss[b, c] = w[y_b] (1/T) Σ_t (mem[t, b, c] - goal)².

    Returns shape [1] when reduced without class weights, as snnTorch does. A population code compares the
    mean membrane of each block.

    Args:
        time_var_targets: labels change over time, [T] or [T, B]; otherwise [B].
        on_target, off_target: membrane asked of the labelled class and of the others.
        reduction, weight, population_code, num_classes: see LossFunctions.

    Source: snnTorch.
    """

    reads = "mem"

    def __init__(
        self,
        time_var_targets: bool = False,
        on_target: float = 1,
        off_target: float = 0,
        reduction: str = "mean",
        weight: Tensor | None = None,
        *,
        population_code: bool = False,
        num_classes: int = False,
    ) -> None:
        super().__init__(reduction, weight, population_code, num_classes)
        self.time_var_targets = time_var_targets
        self.on_target = on_target
        self.off_target = off_target

    def _compute_loss(self, out: Tensor, targets: Tensor) -> Tensor:
        num_steps, batch_size = out.shape[:2]
        if self.time_var_targets:
            check_label_shape(targets, self._call, (num_steps,), (num_steps, batch_size))
            targets = targets.reshape(num_steps, -1)
        else:
            check_label_shape(targets, self._call, (batch_size,))
        mask = self._mask(targets, out)
        goal = class_values(mask, self.on_target, self.off_target, out.dtype)
        squares = self._weighted((self._responses(out) - goal) ** 2, mask)
        loss = self._reduce(squares.mean(0))
        return loss.reshape(1) if self.weight is None and self.reduction != "none" else loss


class mse_temporal_loss(_SquaredError):
    """Squared distance of spike times from target times: loss[b, c] = w[y_b] ((time[b, c] - goal) / T)².

    Args: see SpikeTime and LossFunctions. Class weights need labels, so not target_is_time.

    Source: snnTorch.
    """

    def __init__(
        self,
        target_is_time: bool = False,
        on_target: Times = 0,
        off_target: Times = -1,
        tolerance: float = 0,
        multi_spike: bool = False,
        reduction: str = "mean",
        weight: Tensor | None = None,
        *,
        population_code: bool = False,
        num_classes: int = False,
    ) -> None:
        super().__init__(reduction, weight, population_code, num_classes)
        if target_is_time and weight is not None:
            raise ValueError(
                "mse_temporal_loss(target_is_time=True, weight=...): spike times name no class to weigh."
                " Pass labels, or weigh the result of reduction='none'."
            )
        self.spk_time_fn = SpikeTime(
            target_is_time,
            on_target,
            off_target,
            tolerance,
            multi_spike,
            population_code=population_code,
            num_classes=num_classes,
        )

    def __call__(self, spk_rec: Tensor, targets: Tensor) -> Tensor:
        return super().__call__(spk_rec, targets)

    def _compute_loss(self, out: Tensor, targets: Tensor) -> Tensor:
        self._classes(out)
        time, goal = self.spk_time_fn(out, targets)
        squares = ((time - goal) / out.shape[0]) ** 2
        if self.weight is not None:
            squares = self._weighted(squares, self._mask(targets, out))
        return self._reduce(squares)
