"""snn_ipu.spikegen against snnTorch 1.0 where it is right, and against the definitions where it is not."""

from __future__ import annotations

import inspect
from fractions import Fraction

import pytest
import snntorch.spikegen as theirs
import torch

from snn_ipu import spikegen

CALLS = [name for name, value in vars(theirs).items() if inspect.isfunction(value) and not name.startswith("_")]


def values(*shape, seed=0, dtype=torch.float32):
    generator = torch.Generator().manual_seed(seed)
    return torch.rand(shape, generator=generator, dtype=torch.float64).to(dtype)


def both(name, *arguments, **keywords):
    """The same call of both libraries under the same seed."""
    results = []
    for module in (spikegen, theirs):
        torch.manual_seed(7)
        results.append(getattr(module, name)(*arguments, **keywords))
    return results


@pytest.mark.parametrize(
    "keywords",
    [
        {"num_steps": 7},
        {"num_steps": 7, "gain": 0.5, "offset": 0.2, "first_spike_time": 3},
        {"time_var_input": True},
        {"time_var_input": True, "first_spike_time": 2},
    ],
    ids=str,
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_rate__same_seed__draws_snntorchs_spikes(keywords, dtype):
    data = values(11, 5, 3, dtype=dtype)
    ours, reference = both("rate", data, **keywords)
    assert ours.dtype == dtype and 0 < ours.mean() < 1
    torch.testing.assert_close(ours, reference, rtol=0, atol=0)


def test_rate__non_contiguous_data__draws_snntorchs_spikes():
    ours, reference = both("rate", values(5, 11).T, num_steps=9)
    torch.testing.assert_close(ours, reference, rtol=0, atol=0)


def test_rate__sixteen_bit_and_empty_data__follow_the_data():
    assert spikegen.rate(values(3, dtype=torch.bfloat16), num_steps=4, first_spike_time=1).dtype == torch.bfloat16
    assert spikegen.rate(torch.zeros(0, 3), num_steps=4).shape == (4, 0, 3)


def test_rate__gain_and_offset_with_time_varying_data__are_applied():
    data = torch.full((4, 3), 0.5)
    assert spikegen.rate(data, gain=2, time_var_input=True).eq(1).all()
    assert spikegen.rate(data, offset=-0.5, time_var_input=True).eq(0).all()


@pytest.mark.parametrize(
    ("keywords", "message"),
    [
        ({}, "either num_steps"),
        ({"num_steps": 4, "time_var_input": True}, "either num_steps"),
        ({"num_steps": -1}, "at least 0"),
        ({"num_steps": 4, "first_spike_time": 4}, "below num_steps=4, got 4"),
        ({"first_spike_time": 2}, "either num_steps"),
    ],
    ids=str,
)
def test_rate__arguments_that_contradict__raise(keywords, message):
    with pytest.raises(ValueError, match=message):
        spikegen.rate(values(3), **keywords)
    with pytest.raises(Exception):  # noqa: B017 - snnTorch raises bare exceptions
        theirs.rate(values(3), **keywords)


def test_rate__integer_data__raises_unless_scaled():
    image = torch.tensor([0, 255], dtype=torch.uint8)
    with pytest.raises(ValueError, match=r"images / 255.*torch.uint8"):
        spikegen.rate(image, num_steps=3)
    assert spikegen.rate(image, num_steps=3, gain=1 / 255).tolist() == [[0, 1]] * 3


LATENCY = [
    {"num_steps": 5, "normalize": True},
    {"num_steps": 6, "normalize": True, "linear": True, "first_spike_time": 2},
    {"num_steps": 9, "normalize": True, "clip": True, "threshold": 0.3},
    {"num_steps": 9, "tau": 3, "first_spike_time": 1, "bypass": True},
    {"num_steps": 12, "tau": 5, "linear": True, "on_target": 1.5, "off_target": 0.25},
    {"tau": 2, "bypass": True},
    {"num_steps": 8, "normalize": True, "interpolate": True, "on_target": 1.25, "off_target": 0.25},
    {"num_steps": 7, "normalize": True, "linear": True, "interpolate": True},
]


@pytest.mark.parametrize("keywords", LATENCY, ids=str)
def test_latency__random_values__equals_snntorch(keywords):
    ours, reference = both("latency", values(6, 5), **keywords)
    torch.testing.assert_close(ours, reference)


@pytest.mark.parametrize("linear", [False, True])
@pytest.mark.parametrize("normalize", [False, True])
def test_latency_code__random_values__equals_snntorch(linear, normalize):
    keywords = {"num_steps": 20, "tau": 2.5, "first_spike_time": 3, "normalize": normalize, "linear": linear}
    for ours, reference in zip(*both("latency_code", values(6, 5), **keywords)):
        torch.testing.assert_close(ours, reference)
    name = "latency_code_linear" if linear else "latency_code_log"
    del keywords["linear"]
    torch.testing.assert_close(*both(name, values(6, 5), **keywords))


def test_latency_code_linear__values_above_one__are_stretched_as_snntorch_does():
    torch.testing.assert_close(*both("latency_code_linear", values(9) * 2, num_steps=8, normalize=True))
    with pytest.raises(ValueError, match="data from 0 to 1"):
        spikegen.latency_code_linear(values(9) * 2, num_steps=8, first_spike_time=1)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_latency__any_dtype__follows_the_data_and_keeps_the_times(dtype):
    data = torch.tensor([0.0, 0.25, 0.5, 1.0], dtype=dtype)
    keywords = {"num_steps": 6, "normalize": True, "threshold": 0.25}
    spikes = spikegen.latency(data, **keywords)
    assert spikes.dtype == dtype
    torch.testing.assert_close(spikes.float(), theirs.latency(data.float(), **keywords))
    assert spikegen.latency_code(data, **keywords)[0].dtype == dtype


def test_latency__negative_off_target__is_the_value_asked_for():
    spikes = spikegen.latency(torch.tensor([1.0, 0.1]), 3, normalize=True, linear=True, off_target=-1)
    assert spikes.tolist() == [[1, -1], [-1, -1], [-1, 1]]


def test_latency__clip_with_interpolate__silences_values_below_the_threshold():
    keywords = {"num_steps": 4, "normalize": True, "linear": True, "threshold": 0.5, "interpolate": True}
    spikes = spikegen.latency(torch.tensor([0.2, 1.0]), clip=True, **keywords)
    assert spikes[:, 0].tolist() == [0, 0, 0, 0]
    assert spikes[:, 1].tolist() == [1, 0, 0, 0]


def test_latency__empty_data__is_empty():
    assert spikegen.latency(torch.zeros(0, 3), num_steps=4).shape == (4, 0, 3)
    assert spikegen.latency(torch.zeros(0, 3), bypass=True).shape == (0, 0, 3)


@pytest.mark.parametrize(
    ("data", "keywords", "message"),
    [
        ([0.5, 1.5], {"num_steps": 5}, "data from 0 to 1, got 0.5 to 1.5"),
        ([0.5, float("nan")], {"num_steps": 5}, "data from 0 to 1, got nan"),
        ([0.5], {}, "bypass=True"),
        ([0.5], {"num_steps": 5, "threshold": 1.0}, "threshold between 0 and 1, got 1.0"),
        ([0.5], {"num_steps": 5, "tau": 0}, "tau above 0"),
        ([0.5], {"num_steps": 5, "first_spike_time": 5}, "below num_steps=5, got 5"),
        ([0.5], {"num_steps": 5, "first_spike_time": -1}, "at least 0"),
        ([0.5], {"bypass": True, "normalize": True}, "num_steps with normalize"),
        ([0.01, 0.5], {"num_steps": 5}, "above the last spike time, which is 12"),
    ],
)
def test_latency__arguments_that_do_not_fit__raise(data, keywords, message):
    with pytest.raises(ValueError, match=message):
        spikegen.latency(torch.tensor(data), **keywords)


def test_latency_interpolate__random_times__equals_snntorch():
    times = (values(5, 4) * 9).round()
    torch.testing.assert_close(*both("latency_interpolate", times, 10))
    torch.testing.assert_close(*both("latency_interpolate", times, 10, on_target=1.25, off_target=0.5))


def test_latency_interpolate__targets_that_round_up__keep_the_spike():
    # 0.7 + (1.9 - 0.7) is above 1.9 in float32, where snnTorch takes it for a step after the spike
    on, off = 1.9, 0.7
    ours, reference = both("latency_interpolate", torch.tensor([3.0]), 5, on_target=on, off_target=off)
    torch.testing.assert_close(ours[3], torch.tensor([on]))
    assert reference[3] == pytest.approx(off)


def test_latency_interpolate__spike_just_beyond_the_end__leaves_no_ramp():
    times = torch.tensor([4.0, 5.0, 2.0])
    assert spikegen.latency_interpolate(times, 4)[:, :2].eq(0).all()
    assert spikegen.latency_interpolate(times, 4)[:, 2].tolist() == [0, 0.5, 1, 0]
    assert times.tolist() == [4, 5, 2]


@pytest.mark.parametrize("padding", [False, True])
@pytest.mark.parametrize("off_spike", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.int64])
def test_delta__random_values__equals_snntorch(padding, off_spike, dtype):
    data = (values(8, 3, 4) * 4).round().to(dtype)
    ours, reference = both("delta", data, threshold=1, padding=padding, off_spike=off_spike)
    assert ours.dtype == dtype
    torch.testing.assert_close(ours, reference)


def test_delta__documented_examples__hold():
    rising, both_ways = torch.tensor([1, 2, 2.9, 3, 3.9]), torch.tensor([1, 2, 0, 2, 2.9])
    assert spikegen.delta(rising, threshold=1).tolist() == [1, 1, 0, 0, 0]
    assert spikegen.delta(rising, threshold=1, padding=True).tolist() == [0, 1, 0, 0, 0]
    assert spikegen.delta(both_ways, threshold=1, off_spike=True).tolist() == [1, 1, -1, 1, 0]
    assert spikegen.delta(both_ways, threshold=1, padding=True, off_spike=True).tolist() == [0, 1, -1, 1, 0]
    assert spikegen.delta(torch.zeros(0, 3)).shape == (0, 3)


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int8])
def test_delta__small_integers__do_not_wrap_around(dtype):
    data = torch.tensor([100, 99, 120, 0], dtype=dtype)
    assert spikegen.delta(data, threshold=10).tolist() == [1, 0, 1, 0]


def test_delta__off_spikes_in_unsigned_data__raises():
    with pytest.raises(ValueError, match=r"signed data.*torch.uint8"):
        spikegen.delta(torch.zeros(3, dtype=torch.uint8), off_spike=True)


LABELS = torch.tensor([4, 0, 2])


@pytest.mark.parametrize(
    "keywords",
    [
        {},
        {"on_target": 1.2, "off_target": 0.5},
        {"on_target": 0.5, "off_target": 2},
        {"num_steps": 7, "first_spike_time": 3, "on_target": 1.2, "off_target": 0.5},
        {"num_steps": 5, "correct_rate": 0.25, "interpolate": True, "on_target": 1.2, "off_target": 0.5},
        {"num_steps": 5, "correct_rate": 0.8, "incorrect_rate": 0.3, "interpolate": True},
        {
            "num_steps": 5,
            "correct_rate": 0.8,
            "incorrect_rate": 0.3,
            "interpolate": True,
            "firing_pattern": "uniform",
        },
        {
            "num_steps": 5,
            "correct_rate": 0.8,
            "incorrect_rate": 0.3,
            "interpolate": True,
            "firing_pattern": "poisson",
        },
        {"code": "latency", "num_steps": 6, "normalize": True},
        {"code": "latency", "num_steps": 6, "normalize": True, "linear": True, "clip": True},
    ],
    ids=str,
)
def test_targets_convert__labels__equal_snntorch(keywords):
    # rates work in snnTorch only for as many steps as classes
    ours, reference = both("targets_convert", LABELS, 5, **keywords)
    assert ours.shape == reference.shape and ours.dtype == torch.float32
    torch.testing.assert_close(ours, reference, rtol=1e-5, atol=1e-5)


def test_targets_rate__rates_for_both_classes__has_the_documented_shape_and_rates():
    spikes = spikegen.targets_rate(LABELS, 5, num_steps=10, correct_rate=0.5, incorrect_rate=0.2)
    assert spikes.shape == (10, 3, 5)
    assert spikes.sum(0)[0].tolist() == [2, 2, 2, 2, 5]
    assert spikes[:, 1, 0].tolist() == [1, 0] * 5
    assert spikes[:, 1, 3].tolist() == [1, 0, 0, 0, 0] * 2


def test_targets_rate__negative_off_target__is_the_value_asked_for():
    assert spikegen.targets_rate(torch.tensor([1]), 2, on_target=1, off_target=-1).tolist() == [[-1, 1]]
    late = spikegen.targets_rate(torch.tensor([0]), 1, num_steps=3, first_spike_time=2, off_target=-1)
    assert late.flatten().tolist() == [-1, -1, 1]


def test_targets_rate__interpolate_to_a_late_first_spike__rises_to_it():
    rising = spikegen.targets_rate(torch.tensor([0]), 2, num_steps=4, first_spike_time=2, interpolate=True)
    assert rising[:, 0].tolist() == [[0, 0], [0.5, 0], [1, 0], [1, 0]]


def test_targets_convert__latency_with_targets_and_interpolation__passes_them_on():
    keywords = {"num_steps": 5, "normalize": True, "on_target": 1.25, "off_target": 0.25, "interpolate": True}
    ours = spikegen.targets_convert(LABELS, 5, code="latency", **keywords)
    torch.testing.assert_close(ours, theirs.targets_latency(LABELS, 5, **keywords))


@pytest.mark.parametrize(
    ("keywords", "message"),
    [
        ({"code": "phase"}, "code 'rate' or 'latency', got 'phase'"),
        ({"correct_rate": 0.5}, "num_steps for rates"),
        ({"first_spike_time": 2}, "num_steps for rates"),
        ({"num_steps": 5, "first_spike_time": -1}, "at least 0, got -1"),
        ({"num_steps": 5, "correct_rate": 0.2, "incorrect_rate": 0.5}, "got 0.5 and 0.2"),
        ({"num_steps": 5, "correct_rate": 1.5}, "correct_rate <= 1"),
        ({"num_steps": 5, "firing_pattern": "burst"}, "got 'burst'"),
        ({"num_steps": 5, "first_spike_time": 6, "correct_rate": 0.5}, "from 0 to num_steps=5, got 6"),
    ],
    ids=str,
)
def test_targets_convert__arguments_that_do_not_fit__raise(keywords, message):
    with pytest.raises(ValueError, match=message):
        spikegen.targets_convert(LABELS, 5, **keywords)


@pytest.mark.parametrize("firing_pattern", ["regular", "uniform", "poisson"])
@pytest.mark.parametrize("rate", [1, 0.5, 0.3, 0])
def test_target_rate_code__same_seed__equals_snntorch(rate, firing_pattern):
    for first_spike_time in (0, 3):
        ours, reference = both("target_rate_code", 11, first_spike_time, rate, firing_pattern)
        torch.testing.assert_close(ours[0], reference[0])
        torch.testing.assert_close(ours[1], reference[1].long())


def test_target_rate_code__every_rate_in_percent__fires_at_exact_times():
    # for 0.07, 0.13, ... snnTorch puts a spike on step 200, past the end
    for percent in range(1, 101):
        spikes, times = spikegen.target_rate_code(200, rate=percent / 100)
        exact = [int(Fraction(100 * i, percent)) for i in range(2 * percent)]
        assert times.tolist() == exact
        assert spikes.sum() == len(exact)


@pytest.mark.parametrize("times", [[0, 4], [2, 3, 7], [6, 1], [], [9]], ids=str)
def test_rate_interpolate__spike_times__equal_snntorch(times):
    times = torch.tensor(times)
    torch.testing.assert_close(*both("rate_interpolate", times, 10), rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(*both("rate_interpolate", times, 10, 1.25, 0.25), rtol=1e-5, atol=1e-5)


def test_rate_interpolate__any_gap_and_targets__has_one_value_per_step():
    for gap in range(1, 80):
        assert len(spikegen.rate_interpolate(torch.tensor([gap]), gap + 2, 1.1, 0.1)) == gap + 2
    # snnTorch leaves out the 0
    assert spikegen.rate_interpolate(torch.tensor([2]), 4, on_target=0, off_target=1).tolist() == [1, 0.5, 0, 1]


def test_to_one_hot__labels_of_any_shape__mark_their_class():
    torch.testing.assert_close(*both("to_one_hot", LABELS, 5))
    torch.testing.assert_close(*both("to_one_hot", LABELS.float(), 5))
    assert spikegen.to_one_hot(LABELS.reshape(3, 1).expand(3, 2), 5).shape == (3, 2, 5)
    assert spikegen.to_one_hot(LABELS[:0], 5).shape == (0, 5)
    for bad in (5, -1):
        with pytest.raises(ValueError, match=f"got label {bad}.*0 to 4"):
            spikegen.to_one_hot(torch.tensor([1, bad]), 5)


def test_one_hot_inverse_and_back__random_labels__round_trip():
    one_hot = spikegen.to_one_hot(LABELS, 5)
    torch.testing.assert_close(*both("to_one_hot_inverse", one_hot))
    # snnTorch returns the row numbers
    assert spikegen.from_one_hot(one_hot).tolist() == LABELS.tolist()


@pytest.mark.parametrize("name", CALLS)
def test_spikegen_api__every_function_of_snntorch__has_the_same_arguments(name):
    ours, reference = (inspect.signature(getattr(module, name)).parameters for module in (spikegen, theirs))
    assert [(a.name, a.default) for a in ours.values()] == [(a.name, a.default) for a in reference.values()]
