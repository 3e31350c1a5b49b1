"""Spikes from data and from labels: rate, latency and delta codes, as snntorch.spikegen.

Time is the first dimension of every spike train. Results have the dtype and device of the data; for labels
they are float32. Draws come from torch's global generators in snnTorch's order: a seed gives the same spikes.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from .functional.inputs import class_mask


def rate(
    data: Tensor,
    num_steps: int = False,
    gain: float = 1,
    offset: float = 0,
    first_spike_time: int = 0,
    time_var_input: bool = False,
) -> Tensor:
    """Random spikes with the data as probability: P(spk[t] = 1) = clamp(data · gain + offset, 0, 1).

    Args:
        data: probabilities [B, ...], or [T, B, ...] with time_var_input; floating point.
        num_steps: number of steps T; leave out with time_var_input.
        gain, offset: applied to the data first.
        first_spike_time: number of silent steps at the start; with time_var_input they precede the data.
        time_var_input: the data changes over time.

    Returns: spikes [T, B, ...].
    Raises: ValueError.
    Source: snnTorch.
    """
    _check(min(first_spike_time, num_steps) >= 0, "rate", "first_spike_time and num_steps at least 0")
    _check(
        bool(num_steps) != time_var_input,
        "rate",
        "either num_steps, or time_var_input=True with data [T, B, ...]",
    )
    probability = data * gain + offset
    if time_var_input:
        silence = probability.new_zeros((first_spike_time, *data.shape[1:]))
        return torch.cat((silence, rate_conv(probability)))
    _check_first_spike("rate", first_spike_time, num_steps)
    # expanded, not repeated: every step draws from the same probabilities
    spk = rate_conv(probability.expand(num_steps, *data.shape))
    spk[:first_spike_time] = 0
    return spk


def rate_conv(data: Tensor) -> Tensor:
    """One random spike per element: P(spk = 1) = clamp(data, 0, 1).

    Args:
        data: probabilities, any shape, floating point.

    Raises: ValueError for integer data.
    Source: snnTorch.
    """
    _check(data.is_floating_point(), "rate", f"floating point data (e.g. images / 255), got {data.dtype}")
    return torch.bernoulli(data.clamp(0, 1))


def latency(
    data: Tensor,
    num_steps: int = False,
    threshold: float = 0.01,
    tau: float = 1,
    first_spike_time: int = 0,
    on_target: float = 1,
    off_target: float = 0,
    clip: bool = False,
    normalize: bool = False,
    linear: bool = False,
    interpolate: bool = False,
    bypass: bool = False,
    epsilon: float = 1e-7,
) -> Tensor:
    """One spike per element, the earlier the larger it is: spk[t] = 1 at t = round(latency_code(data)).

    Args:
        data: values from 0 to 1, [B, ...].
        num_steps: number of steps T; with bypass it may be left out and is then one more than the last spike.
        threshold, tau, first_spike_time, normalize, linear, epsilon: see latency_code.
        on_target, off_target: value at the spike and elsewhere.
        clip: no spike for values below the threshold.
        interpolate: values rise from off_target at step 0 to on_target at the spike, then are off_target.
        bypass: spikes beyond num_steps are dropped instead of an error.

    Returns: spikes [T, B, ...].
    Raises: ValueError.
    Source: snnTorch.
    """
    times, below = _latency(data, num_steps, threshold, tau, first_spike_time, normalize, linear, epsilon)
    _check(bool(num_steps) or bypass, "latency", "num_steps, or bypass=True to take it from the last spike")
    if data.numel():
        _check_unit_range("latency", data)
        last = int(times.max().round())
        num_steps = num_steps or last + 1
        _check(
            bypass or last < num_steps,
            "latency",
            f"num_steps={num_steps} above the last spike time, which is {last}; reduce tau, or set"
            " normalize=True, or bypass=True to drop late spikes",
        )
    num_steps = int(num_steps)
    if clip:
        times = times.masked_fill(below, num_steps)
    values = latency_interpolate if interpolate else _spikes_at
    return values(times, num_steps, on_target, off_target).to(_float_type(data))


def _spikes_at(times: Tensor, num_steps: int, on: float, off: float) -> Tensor:
    at_spike = _steps(num_steps, times) == times.round()
    return torch.full_like(at_spike, off, dtype=times.dtype).masked_fill(at_spike, on)


def latency_code(
    data: Tensor,
    num_steps: int = False,
    threshold: float = 0.01,
    tau: float = 1,
    first_spike_time: int = 0,
    normalize: bool = False,
    linear: bool = False,
    epsilon: float = 1e-7,
) -> tuple[Tensor, Tensor]:
    """Spike times of values, logarithmic (latency_code_log) or linear (latency_code_linear).

    Args: see latency_code_log.
    Returns: times in steps (not rounded) and whether each value is below the threshold, both in data's shape.
    Raises: ValueError.
    Source: snnTorch.
    """
    times, below = _latency(data, num_steps, threshold, tau, first_spike_time, normalize, linear, epsilon)
    return times.to(_float_type(data)), below


def latency_code_linear(
    data: Tensor,
    num_steps: int = False,
    threshold: float = 0.01,
    tau: float = 1,
    first_spike_time: int = 0,
    normalize: bool = False,
) -> Tensor:
    """Spike times that fall linearly: time = min(tau · (1 - data), tau · (1 - threshold)) + first_spike_time.

    With normalize, tau is num_steps - 1 - first_spike_time.

    Args: see latency_code_log.
    Returns: times in steps (not rounded), in data's shape.
    Raises: ValueError.
    Source: snnTorch.
    """
    return _latency(data, num_steps, threshold, tau, first_spike_time, normalize, True, 0.0)[0].to(_float_type(data))


def latency_code_log(
    data: Tensor,
    num_steps: int = False,
    threshold: float = 0.01,
    tau: float = 1,
    first_spike_time: int = 0,
    normalize: bool = False,
    epsilon: float = 1e-7,
) -> Tensor:
    """Spike times of a charging membrane: time = tau · ln(data / (data - threshold)) + first_spike_time.

    Values below threshold + epsilon count as threshold + epsilon. With normalize the last spike is at
    num_steps - 1.

    Args:
        data: values, any shape.
        num_steps: number of steps; needed with normalize.
        threshold: firing threshold, between 0 and 1.
        tau: time constant in steps.
        first_spike_time: step added to all times.
        normalize: stretch the times to end at num_steps - 1.
        epsilon: distance kept from the pole at the threshold.

    Returns: times in steps (not rounded), in data's shape.
    Raises: ValueError.
    Source: snnTorch.
    """
    return _latency(data, num_steps, threshold, tau, first_spike_time, normalize, False, epsilon)[0].to(
        _float_type(data)
    )


def _latency(
    data: Tensor,
    num_steps: int,
    threshold: float,
    tau: float,
    first: int,
    normalize: bool,
    linear: bool,
    epsilon: float,
) -> tuple[Tensor, Tensor]:
    """Spike times, at least float32 (16 bits lose the distance to the threshold), and the clip mask."""
    _check(0 < threshold < 1, "latency", f"threshold between 0 and 1, got {threshold}")
    _check(tau > 0, "latency", f"tau above 0, got {tau}")
    _check(num_steps >= 0 and first >= 0, "latency", "num_steps and first_spike_time at least 0")
    _check(bool(num_steps) or not normalize, "latency", "num_steps with normalize=True")
    if num_steps:
        _check_first_spike("latency", first, num_steps)
    if first and data.numel():
        _check_unit_range("latency", data)
    value = data.to(torch.float64 if data.dtype == torch.float64 else torch.float32)
    if linear:
        tau = num_steps - 1 - first if normalize else tau
        times = (-tau * (value - 1)).clamp_max(-tau * (threshold - 1)) + first
        # values above 1 would fire before step 0
        if normalize and value.numel() and float(times.min()) < 0:
            times = (times - times.min()) / (times.max() - times.min()) * (num_steps - 1)
    else:
        value = value.clamp_min(threshold + epsilon)
        times = tau * torch.log(value / (value - threshold))
        if normalize and value.numel():
            times = times * (num_steps - first - 1) / times.max()
        times = times + first
    return times, data < threshold


def delta(data: Tensor, threshold: float = 0.1, padding: bool = False, off_spike: bool = False) -> Tensor:
    """Spikes where the data rises by the threshold in one step: spk[t] = [data[t] - data[t-1] ≥ threshold].

    Args:
        data: values over time [T, ...].
        threshold: change that makes a spike.
        padding: the step before the first equals the first (no spike at step 0), else it is 0.
        off_spike: -1 where the data falls by the threshold or more.

    Returns: spikes [T, ...].
    Raises: ValueError for off spikes in a type without negative numbers.
    Source: snnTorch.
    """
    _check(data.dtype.is_signed or not off_spike, "delta", f"signed data with off_spike=True, got {data.dtype}")
    # the difference of two uint8 wraps around
    values = data if data.is_floating_point() else data.to(torch.int64)
    before = torch.cat((values[:1] if padding else torch.zeros_like(values[:1]), values[:-1]))
    change = values - before
    on = (change >= threshold).to(data.dtype)
    return on - (change <= -threshold).to(data.dtype) if off_spike else on


def targets_convert(
    targets: Tensor,
    num_classes: int,
    code: str = "rate",
    num_steps: int = False,
    first_spike_time: int = 0,
    correct_rate: float = 1,
    incorrect_rate: float = 0,
    on_target: float = 1,
    off_target: float = 0,
    firing_pattern: str = "regular",
    interpolate: bool = False,
    epsilon: float = 1e-7,
    threshold: float = 0.01,
    tau: float = 1,
    clip: bool = False,
    normalize: bool = False,
    linear: bool = False,
    bypass: bool = False,
) -> Tensor:
    """Labels as spikes or target values: targets_rate for code="rate", targets_latency for code="latency".

    Args: see targets_rate and targets_latency.
    Returns: [T, B, C], or [B, C] where nothing changes over time.
    Raises: ValueError.
    Source: snnTorch.
    """
    _check(code in ("rate", "latency"), "targets_convert", f"code 'rate' or 'latency', got {code!r}")
    if code == "rate":
        return targets_rate(
            targets,
            num_classes,
            num_steps=num_steps,
            first_spike_time=first_spike_time,
            correct_rate=correct_rate,
            incorrect_rate=incorrect_rate,
            on_target=on_target,
            off_target=off_target,
            firing_pattern=firing_pattern,
            interpolate=interpolate,
            epsilon=epsilon,
        )
    return targets_latency(
        targets,
        num_classes,
        num_steps=num_steps,
        first_spike_time=first_spike_time,
        on_target=on_target,
        off_target=off_target,
        interpolate=interpolate,
        threshold=threshold,
        tau=tau,
        clip=clip,
        normalize=normalize,
        linear=linear,
        epsilon=epsilon,
        bypass=bypass,
    )


def targets_rate(
    targets: Tensor,
    num_classes: int,
    num_steps: int = False,
    first_spike_time: int = 0,
    correct_rate: float = 1,
    incorrect_rate: float = 0,
    on_target: float = 1,
    off_target: float = 0,
    firing_pattern: str = "regular",
    interpolate: bool = False,
    epsilon: float = 1e-7,
) -> Tensor:
    """Labels as spikes: the labelled class fires at correct_rate, the others at incorrect_rate.

    Every sample gets the same two spike patterns, one for the labelled class and one for the others.

    Args:
        targets: labels [B].
        num_classes: number of classes C.
        num_steps: number of steps T; needed for anything that changes over time.
        first_spike_time: number of silent steps at the start.
        correct_rate, incorrect_rate: spikes per step, from 0 to 1.
        on_target, off_target: value at a spike and elsewhere.
        firing_pattern: "regular", "uniform" (random times) or "poisson" (a draw per step).
        interpolate: values rise from off_target after a spike to on_target at the next.
        epsilon: kept for snnTorch scripts; nothing here is rounded.

    Returns: [T, B, C]; [B, C] if the rates are 1 and 0 and the first spike is at step 0.
    Raises: ValueError.
    Source: snnTorch.
    """
    call = "targets_rate"
    _check(
        0 <= incorrect_rate <= correct_rate <= 1,
        call,
        f"0 <= incorrect_rate <= correct_rate <= 1, got {incorrect_rate} and {correct_rate}",
    )
    _check_pattern(call, firing_pattern)
    _check(first_spike_time >= 0, call, f"first_spike_time at least 0, got {first_spike_time}")
    one_hot = to_one_hot(targets, num_classes).bool()
    constant = correct_rate == 1 and incorrect_rate == 0
    if constant and first_spike_time == 0:
        return torch.full_like(one_hot, off_target, dtype=torch.float32).masked_fill(one_hot, on_target)
    _check(bool(num_steps), call, "num_steps for rates other than 1 and 0, or a first_spike_time")

    patterns = []
    for class_rate in (correct_rate, incorrect_rate):
        spikes, times = target_rate_code(num_steps, first_spike_time, class_rate, firing_pattern)
        if interpolate:
            pattern = rate_interpolate(times, num_steps, on_target, off_target, epsilon)
        else:
            pattern = torch.full((num_steps,), float(off_target)).masked_fill(spikes.bool(), on_target)
        patterns.append(pattern.to(targets.device).reshape(num_steps, 1, 1))
    return torch.where(one_hot, patterns[0], patterns[1])


def target_rate_code(
    num_steps: int, first_spike_time: int = 0, rate: float = 1, firing_pattern: str = "regular"
) -> tuple[Tensor, Tensor]:
    """Spikes of one neuron at a rate: at steps ⌊first + i / rate⌋, or at random.

    Args:
        num_steps: number of steps T.
        first_spike_time: number of silent steps at the start.
        rate: spikes per step, from 0 to 1.
        firing_pattern: "regular", "uniform" (as many random times; equal ones coincide) or "poisson".

    Returns: spikes [T] as float32, and the spike times in steps.
    Raises: ValueError.
    Source: snnTorch.
    """
    call = "target_rate_code"
    _check(0 <= rate <= 1, call, f"rate from 0 to 1, got {rate}")
    _check(
        0 <= first_spike_time <= num_steps,
        call,
        f"first_spike_time from 0 to num_steps={num_steps}, got {first_spike_time}",
    )
    _check_pattern(call, firing_pattern)
    span = num_steps - first_spike_time
    if rate == 0:
        return torch.zeros(num_steps), torch.zeros(0, dtype=torch.int64)
    if firing_pattern.lower() == "poisson":
        probability = torch.full((num_steps,), float(rate))
        probability[:first_spike_time] = 0
        spikes = torch.bernoulli(probability)
        return spikes, spikes.nonzero().squeeze(1)
    # the margin is for rates such as 0.07, where 14 / 0.07 is not 200 but just below or above it
    count = math.ceil(span * rate - 1e-9)
    if firing_pattern.lower() == "regular":
        times = torch.tensor([first_spike_time + int(i / rate + 1e-9) for i in range(count)], dtype=torch.int64)
    else:
        times = (torch.rand(count) * span + first_spike_time).long()
    return torch.zeros(num_steps).index_fill(0, times, 1), times


def rate_interpolate(
    spike_time: Tensor, num_steps: int, on_target: float = 1, off_target: float = 0, epsilon: float = 1e-7
) -> Tensor:
    """Target values that rise linearly to each spike, from off_target the step after the one before.

    Before the first spike they rise from step 0; after the last they are off_target; spikes in consecutive
    steps stay at on_target.

    Args:
        spike_time: spike times of one neuron, in steps, in any order.
        num_steps: number of steps T.
        on_target, off_target: value at a spike and after one.
        epsilon: kept for snnTorch scripts; nothing here is rounded.

    Returns: values [T] as float32.
    Source: snnTorch.
    """
    values = torch.full((num_steps,), float(off_target), device=spike_time.device)
    start = 0
    for step in sorted({int(time) for time in spike_time.tolist() if time < num_steps}):
        ramp = torch.linspace(off_target, on_target, step - start + 1, device=spike_time.device)
        values[start : step + 1] = ramp if len(ramp) > 1 else on_target
        start = step + 1
    return values


def latency_interpolate(spike_time: Tensor, num_steps: int, on_target: float = 1, off_target: float = 0) -> Tensor:
    """Target values that rise linearly to one spike per neuron: off + (on - off) · t / time, then off.

    A neuron whose spike is beyond the last step is at off_target throughout.

    Args:
        spike_time: spike time of each neuron, in steps (rounded here), any shape.
        num_steps: number of steps T.
        on_target, off_target: value at the spike, and at step 0 and after the spike.

    Returns: values [T, ...].
    Source: snnTorch.
    """
    times = spike_time.round()
    times = times if times.is_floating_point() else times.to(torch.float32)
    step = _steps(num_steps, times)
    # a spike at step 0 has no ramp: 0/0
    ramp = torch.where(times == 0, 1.0, step / times)
    rising = (step <= times) & (times < num_steps)
    return torch.where(rising, ramp * (on_target - off_target) + off_target, float(off_target))


def targets_latency(
    targets: Tensor,
    num_classes: int,
    num_steps: int = False,
    first_spike_time: int = 0,
    on_target: float = 1,
    off_target: float = 0,
    interpolate: bool = False,
    threshold: float = 0.01,
    tau: float = 1,
    clip: bool = False,
    normalize: bool = False,
    linear: bool = False,
    epsilon: float = 1e-7,
    bypass: bool = False,
) -> Tensor:
    """Labels as latencies: the labelled class fires first, the others last (or, with clip, never).

    Args:
        targets: labels [B].
        num_classes: number of classes C.
        the others: see latency.

    Returns: [T, B, C].
    Raises: ValueError.
    Source: snnTorch.
    """
    return latency(
        to_one_hot(targets, num_classes),
        num_steps=num_steps,
        first_spike_time=first_spike_time,
        on_target=on_target,
        off_target=off_target,
        interpolate=interpolate,
        threshold=threshold,
        tau=tau,
        clip=clip,
        normalize=normalize,
        linear=linear,
        epsilon=epsilon,
        bypass=bypass,
    )


def to_one_hot(targets: Tensor, num_classes: int) -> Tensor:
    """One-hot rows of labels: labels [...] -> float32 [..., C].

    Raises: ValueError for a label outside 0..C-1.
    Source: snnTorch.
    """
    mask = class_mask(targets, num_classes, "to_one_hot(targets, num_classes)", targets.device)
    return mask.to(torch.float32)


def to_one_hot_inverse(one_hot_targets: Tensor) -> Tensor:
    """1 where the one-hot rows are 0, and 0 elsewhere, in their dtype.

    Source: snnTorch.
    """
    return (one_hot_targets == 0).to(one_hot_targets.dtype)


def from_one_hot(one_hot_label: Tensor) -> Tensor:
    """The labels of one-hot rows: [..., C] -> [...].

    Source: snnTorch.
    """
    return one_hot_label.argmax(-1)


def _steps(num_steps: int, like: Tensor) -> Tensor:
    """The step numbers as a column before the dimensions of `like`, [T, 1, ...]."""
    step = torch.arange(num_steps, device=like.device, dtype=like.dtype)
    return step.reshape(-1, *[1] * like.dim())


def _float_type(data: Tensor) -> torch.dtype:
    return data.dtype if data.is_floating_point() else torch.float32


def _check(holds: bool, call: str, expected: str) -> None:
    if not holds:
        raise ValueError(f"spikegen.{call} expects {expected}.")


def _check_unit_range(call: str, data: Tensor) -> None:
    low, high = float(data.min()), float(data.max())
    _check(low >= 0 and high <= 1, call, f"data from 0 to 1, got {low} to {high}")


def _check_first_spike(call: str, first_spike_time: int, num_steps: int) -> None:
    _check(
        first_spike_time < num_steps,
        call,
        f"first_spike_time below num_steps={num_steps}, got {first_spike_time}",
    )


def _check_pattern(call: str, firing_pattern: str) -> None:
    _check(
        firing_pattern.lower() in ("regular", "uniform", "poisson"),
        call,
        f"firing_pattern 'regular', 'uniform' or 'poisson', got {firing_pattern!r}",
    )
