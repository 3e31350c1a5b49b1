"""Spike times of a recording, with the sign estimator as their gradient."""

from __future__ import annotations

from typing import Iterable, Union

import torch
from torch import Tensor, nn

from ..errors import ShapeError
from .inputs import check_label_shape, class_mask, class_values, recording
from .population import check_classes, output_classes, population_mean

_CALL = "SpikeTime(...)(spk_out, targets)"

Times = Union[float, Iterable[float], Tensor]


def spike_times(spk: Tensor, count: int = 1) -> Tensor:
    """The first `count` spike times of every neuron, in steps from 0; a spike that never comes is at T - 1.

    Gradient: d time / d spk = -1 at the step of that spike (at T - 1 if there is none), 0 elsewhere.
    Written with `detach` instead of an autograd function, because PopTorch never calls the latter's backward.

    Args:
        spk: spikes [T, B, N]; any nonzero value is a spike.
        count: number of spikes F.

    Returns: times [F, B, N].
    Source: snnTorch's SpikeTime.
    """
    spk = recording(spk, "spike_times(spk)")
    step = torch.arange(spk.shape[0], device=spk.device, dtype=spk.dtype).reshape(-1, 1, 1)
    fired = spk.detach() != 0
    times: list[Tensor] = []
    for _ in range(count):
        later = fired if not times else fired & (step > times[-1].detach())
        time = torch.where(later, step, step[-1]).amin(0)
        at_time = (spk * (step == time).to(spk.dtype)).sum(0)
        times.append(time - (at_time - at_time.detach()))
    return torch.stack(times)


def _one_per_spike(times: Times, multi_spike: bool, name: str) -> list[float]:
    if isinstance(times, Tensor):
        times = times.tolist()
    if isinstance(times, (int, float)) == multi_spike:
        expected = "one time per spike, such as (0, 5)" if multi_spike else "one time, such as 5"
        raise ValueError(f"{name}={times!r} with multi_spike={multi_spike}; expected {expected}.")
    return [float(times)] if isinstance(times, (int, float)) else [float(time) for time in times]


class SpikeTime(nn.Module):
    """Spikes and targets as spike times, ready to be compared.

    Args:
        target_is_time: targets are spike times; otherwise labels.
        on_target, off_target: spike time in steps of the labelled class and of the others; negative counts
            from the end (-1 is the last step). One per spike with multi_spike.
        tolerance: a spike closer than this many steps to its target is taken to be on it.
        multi_spike: compare several spikes per neuron.
        population_code, num_classes: compare the mean spike time of each class's block of neurons.

    Returns of a call with (spk_out [T, B, N], targets): times and target times, [B, N], or [F, B, N] with
    multi_spike; C in place of N with a population code. `targets` is [B] labels, or times that broadcast to
    the returned shape.
    Raises: ValueError for a label outside 0..N-1; ShapeError.
    Source: snnTorch's SpikeTime.
    """

    def __init__(
        self,
        target_is_time: bool = False,
        on_target: Times = 0,
        off_target: Times = -1,
        tolerance: float = 0,
        multi_spike: bool = False,
        *,
        population_code: bool = False,
        num_classes: int = False,
    ) -> None:
        super().__init__()
        check_classes(population_code, num_classes, "SpikeTime")
        self.target_is_time = target_is_time
        self.tolerance = tolerance
        self.multi_spike = multi_spike
        self.population_code = population_code
        self.num_classes = num_classes
        self.on_target: list[float] = []
        self.off_target: list[float] = []
        if not target_is_time:
            self.on_target = _one_per_spike(on_target, multi_spike, "on_target")
            self.off_target = _one_per_spike(off_target, multi_spike, "off_target")
        if len(self.on_target) != len(self.off_target):
            raise ValueError(
                f"on_target has {len(self.on_target)} spike times and off_target {len(self.off_target)};"
                " expected as many in both."
            )

    def forward(self, spk_out: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        spk = recording(spk_out, _CALL)
        goals = self._goals(spk, targets)
        times = spike_times(spk, goals.shape[0])
        if self.population_code:
            times = population_mean(times, self.num_classes, _CALL)
        if self.tolerance:
            times = torch.where((times - goals).abs() < self.tolerance, goals, times)
        return (times, goals) if self.multi_spike else (times[0], goals[0])

    def _goals(self, spk: Tensor, targets: Tensor) -> Tensor:
        """Target times [F, B, N]."""
        num_steps, batch_size = spk.shape[:2]
        num_outputs = output_classes(spk, self.population_code, self.num_classes, _CALL)
        if not self.target_is_time:
            check_label_shape(targets, _CALL, (batch_size,))
            mask = class_mask(targets, num_outputs, _CALL, spk.device)
            on, off = ([t + num_steps if t < 0 else t for t in times] for times in (self.on_target, self.off_target))
            return torch.stack([class_values(mask, *pair, spk.dtype) for pair in zip(on, off)])
        goals = targets.to(device=spk.device, dtype=spk.dtype)
        if not self.multi_spike:
            goals = goals.unsqueeze(0)
        elif goals.dim() != 3:
            raise ShapeError(
                f"{_CALL} with multi_spike=True got target times of shape {tuple(targets.shape)}; expected"
                f" one per spike, sample and neuron, [F, {batch_size}, {num_outputs}]."
            )
        shape = (goals.shape[0], batch_size, num_outputs)
        if goals.dim() > 3 or any(size not in (1, full) for size, full in zip(reversed(goals.shape), reversed(shape))):
            raise ShapeError(
                f"{_CALL} with target_is_time=True got target times of shape {tuple(targets.shape)}; expected a time"
                f" for each sample and neuron, [{batch_size}, {num_outputs}], or a shape that broadcasts to it."
            )
        goals = torch.where(goals < 0, goals + num_steps, goals)
        return goals.expand(goals.shape[0], batch_size, num_outputs)
