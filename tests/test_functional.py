"""snn_ipu.functional against snnTorch 1.0 where it is right, and against the definitions where it is not."""

from __future__ import annotations

import copy
import gc
import inspect
import pickle
import re
import weakref
from pathlib import Path

import numpy as np
import pytest
import snntorch.functional as theirs
import snntorch.functional.probe as their_probe
import snntorch.functional.quant as their_quant
import snntorch.functional.stdp_learner as their_stdp
import torch
from torch import nn

import snn_ipu as snn
import snn_ipu.functional as SF
from snn_ipu.errors import ShapeError
from snn_ipu.functional import probe, quant, stdp_learner

# (T, B, N): the smallest, odd sizes, and B == N where a wrongly broadcast class weight goes unnoticed
SHAPES = [(1, 1, 2), (7, 5, 3), (4, 6, 6)]
REDUCTIONS = ["mean", "sum", "none"]
LOSSES = [
    "ce_rate_loss",
    "ce_count_loss",
    "ce_max_membrane_loss",
    "ce_temporal_loss",
    "mse_count_loss",
    "mse_membrane_loss",
    "mse_temporal_loss",
]
CE_LOSSES = LOSSES[:4]


def recording(name, shape, seed=0, dtype=torch.float32):
    """Spikes of rate 0.3, or membranes for the losses that read them, with labels."""
    generator = torch.Generator().manual_seed(seed)
    values = torch.rand(shape, generator=generator, dtype=torch.float64)
    values = values * 3 - 1 if "membrane" in name else (values < 0.3).double()
    labels = torch.randint(0, shape[2], (shape[1],), generator=generator)
    return values.to(dtype).requires_grad_(), labels


def class_weight(num_classes):
    return torch.linspace(0.5, 2.0, num_classes)


def both(ours, reference, values, labels):
    """Loss and gradient of two losses on the same recording."""
    results = []
    for loss_fn in (ours, reference):
        loss = loss_fn(values, labels)
        (grad,) = torch.autograd.grad(loss.sum(), values)
        results += [loss, grad]
    return results


def assert_same(ours, reference, values, labels):
    loss, grad, their_loss, their_grad = both(ours, reference, values, labels)
    assert loss.shape == their_loss.shape
    torch.testing.assert_close(loss, their_loss, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(grad, their_grad, rtol=1e-5, atol=1e-6)


def temporal(name):
    """Targets with which snnTorch's temporal losses are right: its defaults collapse to zero."""
    return {"on_target": 0, "off_target": 3} if name == "mse_temporal_loss" else {}


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("name", LOSSES)
def test_loss__no_weight__equals_snntorch(name, reduction, shape):
    arguments = {"reduction": reduction, **temporal(name)}
    values, labels = recording(name, shape)
    assert_same(getattr(SF, name)(**arguments), getattr(theirs, name)(**arguments), values, labels)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("reduction", ["mean", "none"])
@pytest.mark.parametrize("name", CE_LOSSES)
def test_ce_loss__class_weight__equals_snntorch(name, reduction, shape):
    arguments = {"reduction": reduction, "weight": class_weight(shape[2])}
    values, labels = recording(name, shape)
    assert_same(getattr(SF, name)(**arguments), getattr(theirs, name)(**arguments), values, labels)


@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("name", ["ce_count_loss", "mse_count_loss"])
def test_count_loss__population_code__equals_snntorch(name, reduction):
    arguments = {"population_code": True, "num_classes": 3, "reduction": reduction}
    if name == "mse_count_loss":
        arguments.update(correct_rate=0.8, incorrect_rate=0.2)
    values, _ = recording(name, (7, 5, 12))
    labels = torch.tensor([0, 2, 1, 1, 0])
    assert_same(getattr(SF, name)(**arguments), getattr(theirs, name)(**arguments), values, labels)


def test_mse_count_loss__rates__equal_snntorch():
    values, labels = recording("spk", (10, 4, 5))
    arguments = {"correct_rate": 0.75, "incorrect_rate": 0.25}
    assert_same(SF.mse_count_loss(**arguments), theirs.mse_count_loss(**arguments), values, labels)


@pytest.mark.parametrize("inverse", ["negate", "reciprocal"])
def test_ce_temporal_loss__inverse__equals_snntorch(inverse):
    values, labels = recording("spk", (9, 4, 5))
    assert_same(SF.ce_temporal_loss(inverse), theirs.ce_temporal_loss(inverse), values, labels)


def test_mse_temporal_loss__tolerance__equals_snntorch():
    values, labels = recording("spk", (9, 6, 5))
    arguments = {"on_target": 2, "off_target": 7, "tolerance": 2}
    assert_same(SF.mse_temporal_loss(**arguments), theirs.mse_temporal_loss(**arguments), values, labels)


def test_mse_temporal_loss__target_is_time__equals_snntorch_and_leaves_the_targets_alone():
    values, _ = recording("spk", (9, 4, 5))
    goals = torch.tensor([[3, 1, -1, 0, 8]] * 4)
    ours, reference = SF.mse_temporal_loss(target_is_time=True), theirs.mse_temporal_loss(target_is_time=True)
    expected = reference(values, goals.clone())
    torch.testing.assert_close(ours(values, goals), expected)
    assert goals[0].tolist() == [3, 1, -1, 0, 8]
    torch.testing.assert_close(ours(values, goals[0]), expected)


def test_mse_membrane_loss__labels_of_every_step__equals_snntorch():
    values, _ = recording("mse_membrane_loss", (6, 4, 3))
    labels = torch.tensor([0, 2, 1, 1, 0, 2])
    ours, reference = SF.mse_membrane_loss(True, 1.5, 0.5), theirs.mse_membrane_loss(True, 1.5, 0.5)
    with pytest.warns(UserWarning, match="target size"):
        expected = reference(values, labels)
    torch.testing.assert_close(ours(values, labels), expected)
    # labels of every step and sample, which snnTorch cannot take
    torch.testing.assert_close(ours(values, labels.unsqueeze(1).expand(6, 4)), expected)


@pytest.mark.parametrize("population_code", [False, True])
def test_accuracy_rate__random_spikes__equals_snntorch(population_code):
    spk, _ = recording("spk", (5, 40, 6))
    labels = torch.randint(0, 3, (40,), generator=torch.Generator().manual_seed(1))
    arguments = (population_code, 3) if population_code else ()
    ours, reference = (module.accuracy_rate(spk, labels, *arguments) for module in (SF, theirs))
    assert type(ours) is type(reference) is np.float64
    assert ours == reference > 0


def test_accuracy_temporal__random_spikes__equals_snntorch():
    spk, labels = recording("spk", (5, 40, 6))
    assert SF.accuracy_temporal(spk, labels) == theirs.accuracy_temporal(spk, labels) > 0


def test_l1_rate_sparsity__random_spikes__equals_snntorch():
    spk, _ = recording("spk", (5, 4, 6))
    torch.testing.assert_close(SF.l1_rate_sparsity(0.1)(spk), theirs.l1_rate_sparsity(0.1)(spk))


def test_ce_rate_loss__population_code__scores_a_class_by_its_blocks_mean_spike():
    spk, _ = recording("spk", (4, 3, 6))
    labels = torch.tensor([0, 1, 2])
    pooled = torch.stack([spk[..., 0:2].mean(-1), spk[..., 2:4].mean(-1), spk[..., 4:6].mean(-1)], -1)
    weight = torch.tensor([0.5, 1.0, 3.0])
    for arguments in ({}, {"weight": weight}):
        ours = SF.ce_rate_loss(population_code=True, num_classes=3, **arguments)
        torch.testing.assert_close(ours(spk, labels), SF.ce_rate_loss(**arguments)(pooled, labels))


@pytest.mark.parametrize("name", ["ce_max_membrane_loss", "mse_membrane_loss"])
def test_membrane_loss__population_code__uses_each_blocks_mean_membrane(name):
    mem, _ = recording(name, (4, 3, 6))
    labels = torch.tensor([0, 1, 1])
    pooled = torch.stack([mem[..., :3].mean(-1), mem[..., 3:].mean(-1)], -1)
    ours = getattr(SF, name)(population_code=True, num_classes=2)(mem, labels)
    torch.testing.assert_close(ours, getattr(SF, name)()(pooled, labels))


def test_temporal_loss__population_code__uses_each_blocks_mean_first_spike_time():
    spk = torch.zeros(5, 1, 4)
    spk[1, 0, 0] = spk[2, 0, 1] = spk[4, 0, 2] = 1  # times 1, 2, 4 and never (4)
    times = torch.tensor([[1.5, 4.0]])
    label = torch.tensor([0])
    population = {"population_code": True, "num_classes": 2}
    ours = SF.ce_temporal_loss(**population)(spk, label)
    torch.testing.assert_close(ours, nn.functional.cross_entropy(-times, label))
    ours = SF.mse_temporal_loss(**population)(spk, label)
    torch.testing.assert_close(ours, ((times - torch.tensor([[0.0, 4.0]])) / 5).square().mean())
    assert SF.accuracy_temporal(spk, label, **population) == 1


@pytest.mark.parametrize("population_code", [False, True])
@pytest.mark.parametrize("name", LOSSES)
def test_loss__class_weight_and_reductions__weigh_every_sample_by_its_own_class(name, population_code):
    population = {"population_code": True, "num_classes": 3} if population_code else {}
    values, _ = recording(name, (7, 5, 12 if population_code else 3))
    labels = torch.tensor([0, 2, 1, 1, 0])
    weight = torch.tensor([1.0, 0.25, 4.0])
    unweighted = getattr(SF, name)(reduction="none", **population)(values, labels)
    factor = weight[labels].reshape(-1, *[1] * (unweighted.dim() - 1))
    weighted = {
        reduction: getattr(SF, name)(reduction=reduction, weight=weight, **population)(values, labels)
        for reduction in REDUCTIONS
    }
    torch.testing.assert_close(weighted["none"], unweighted * factor)
    torch.testing.assert_close(weighted["sum"], (unweighted * factor).sum())
    mean = (unweighted * factor).sum() / (factor.sum() if name == "ce_temporal_loss" else unweighted.numel())
    torch.testing.assert_close(weighted["mean"], mean)


def test_mse_loss__class_weight_and_time_varying_labels__weigh_every_step_and_sample():
    mem, _ = recording("mse_membrane_loss", (2, 2, 2))
    labels = torch.tensor([[0, 1], [1, 1]])
    weight = torch.tensor([2.0, 8.0])
    ours = SF.mse_membrane_loss(time_var_targets=True, weight=weight)(mem, labels)
    goal = nn.functional.one_hot(labels, 2)
    torch.testing.assert_close(ours, (weight[labels].unsqueeze(-1) * (mem - goal) ** 2).mean())


def test_ce_loss__ignored_label__leaves_the_sample_out_as_torch_does():
    spk, labels = recording("spk", (7, 5, 3))
    labels[1] = -100
    kept = torch.tensor([0, 2, 3, 4])
    for name in CE_LOSSES:
        ours = getattr(SF, name)
        torch.testing.assert_close(ours()(spk, labels), ours()(spk[:, kept], labels[kept]))
        if name != "ce_temporal_loss":  # snnTorch encodes its labels first, which fails
            torch.testing.assert_close(ours()(spk, labels), getattr(theirs, name)()(spk, labels))
        weight = {"weight": class_weight(3)}
        torch.testing.assert_close(ours(**weight)(spk, labels), ours(**weight)(spk[:, kept], labels[kept]))
        assert ours(reduction="none")(spk, labels)[1] == 0


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.uint8, torch.bool, torch.float64])
@pytest.mark.parametrize("name", LOSSES)
def test_loss__any_dtype__equals_the_float32_loss(name, dtype):
    values, labels = recording(name, (7, 5, 4))
    if "membrane" in name:
        values = (values * 4).round().clamp(0, 1 if dtype == torch.bool else 8)
    loss_fn = getattr(SF, name)(weight=class_weight(2).double(), population_code=True, num_classes=2)
    labels = labels % 2
    loss = loss_fn(values.to(dtype), labels)
    assert loss.dtype == (torch.float64 if dtype == torch.float64 else torch.float32)
    torch.testing.assert_close(loss, loss_fn(values, labels), check_dtype=False, rtol=1e-5, atol=1e-6)


def test_loss__float16_recording_longer_than_float16_counts__stays_exact():
    spk = torch.ones(3001, 1, 2, dtype=torch.float16)
    spk[0, 0, 1] = 0
    assert SF.population_counts(spk, 2).tolist() == [[3001.0, 3000.0]]
    expected = nn.functional.cross_entropy(torch.tensor([[3001.0, 3000.0]]), torch.tensor([0]))
    torch.testing.assert_close(SF.ce_count_loss()(spk, torch.tensor([0])), expected)
    torch.testing.assert_close(SF.l1_rate_sparsity(1.0)(spk.expand(3001, 40, 2)), torch.tensor(240040.0))


def test_accuracy_rate__float64_scores_closer_than_float32__finds_the_right_class():
    scores = torch.tensor([[[1.0, 1.0 + 1e-12]]], dtype=torch.float64)
    assert SF.accuracy_rate(scores, torch.tensor([1]), population_code=True, num_classes=2) == 1


def test_mse_temporal_loss__default_targets__are_the_first_and_the_last_step():
    spk = torch.zeros(6, 1, 3)
    spk[0, 0, 1] = spk[5, 0, 0] = spk[5, 0, 2] = 1
    assert SF.mse_temporal_loss()(spk, torch.tensor([1])) == 0
    torch.testing.assert_close(SF.mse_temporal_loss()(spk, torch.tensor([0])), torch.tensor(2 * (5 / 6) ** 2 / 3))


def test_mse_membrane_loss__negative_off_target__is_the_target_asked_for():
    mem = torch.tensor([[[1.0, -1.0]]])
    assert SF.mse_membrane_loss(on_target=1, off_target=-1)(mem, torch.tensor([0])) == 0


def test_mse_count_loss__rate_that_rounds_down__asks_for_the_whole_count():
    spk = torch.zeros(100, 1, 2)
    spk[:29, 0, 0] = 1  # int(100 * 0.29) is 28
    assert SF.mse_count_loss(correct_rate=0.29)(spk, torch.tensor([0])) == 0


def test_spike_times__several_spikes__finds_each_of_every_neuron():
    spk = torch.zeros(8, 1, 3)
    for step, neuron in ((1, 0), (4, 0), (5, 0), (4, 1)):
        spk[step, 0, neuron] = 1
    # the last step stands for a spike that never comes
    assert SF.spike_times(spk, 3)[:, 0].T.tolist() == [[1, 4, 5], [4, 7, 7], [7, 7, 7]]


def test_spike_times__gradient__is_minus_one_at_each_spike_found():
    spk = torch.zeros(4, 1, 2)
    spk[1, 0, 0] = spk[3, 0, 0] = spk[2, 0, 1] = 1
    spk.requires_grad_()
    times = SF.spike_times(spk, 2)
    (grad,) = torch.autograd.grad(times, spk, torch.tensor([[[2.0, 3.0]], [[5.0, 7.0]]]))
    assert grad[:, 0].T.tolist() == [[0, -2, 0, -5], [0, 0, -3, -7]]


def test_spike_times__graded_spikes__times_do_not_depend_on_the_grade():
    spk = torch.zeros(4, 1, 1)
    spk[2] = 0.5
    assert SF.spike_times(spk).item() == 2


def test_mse_temporal_loss__several_spikes__compares_each_with_its_target():
    spk = torch.zeros(8, 2, 2)
    for step, sample, neuron in ((1, 0, 0), (3, 0, 0), (6, 0, 1), (2, 1, 1), (3, 1, 1)):
        spk[step, sample, neuron] = 1
    loss_fn = SF.mse_temporal_loss(
        on_target=torch.tensor([1, 3]), off_target=(6, -1), multi_spike=True, reduction="none"
    )
    loss = loss_fn(spk, torch.tensor([0, 1]))
    expected = torch.zeros(2, 2, 2)
    expected[0, 1] = torch.tensor([1.0, 1.0]) / 64  # sample 1: neuron 0 at 7 instead of 6, neuron 1 at 2 instead of 1
    torch.testing.assert_close(loss, expected)


@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.parametrize("label", [3, -1, 1.5])
def test_loss__label_outside_the_classes__raises_and_names_it(name, label):
    values, labels = recording(name, (4, 3, 3))
    labels = labels.to(torch.float32)
    labels[1] = label
    with pytest.raises(ValueError, match=rf"got label {label}.*0 to 2"):
        getattr(SF, name)()(values, labels)


@pytest.mark.parametrize("name", LOSSES)
def test_loss__unreadable_label_outside_the_classes__is_nan(name):
    values, labels = recording(name, (4, 3, 3))
    loss_fn = getattr(SF, name)(reduction="none")
    labels[1] = 3
    rows = torch.func.vmap(loss_fn)(values[None], labels[None]).reshape(3, -1).isnan()
    assert rows[1].all() and not rows[[0, 2]].any()


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::torch.jit.TracerWarning")
def test_loss__traced__reads_no_label_into_the_graph():
    values, labels = recording("ce_count_loss", (4, 3, 3))
    loss_fn = SF.ce_count_loss()
    traced = torch.jit.trace(loss_fn, (values, labels))
    labels = (labels + 1) % 3
    torch.testing.assert_close(traced(values, labels), loss_fn(values, labels))
    labels[1] = 3
    assert traced(values, labels).isnan()


@pytest.mark.parametrize("name", LOSSES)
def test_loss__values_that_cannot_be_read__needs_none(name):
    # any .item(), bool() or int() of a meta tensor raises, as it does while PopTorch builds a graph
    spk = torch.empty(5, 4, 6, device="meta", requires_grad=True)
    labels = torch.empty(4, dtype=torch.int32, device="meta")
    loss_fn = getattr(SF, name)(population_code=True, num_classes=3, weight=class_weight(3))
    loss = loss_fn(spk, labels)
    loss.sum().backward()
    assert loss.device.type == spk.grad.device.type == "meta"


@pytest.mark.parametrize("name", LOSSES)
def test_loss__vmap_over_models__equals_a_loop(name):
    values = torch.stack([recording(name, (5, 3, 4), seed)[0].detach() for seed in range(3)])
    labels = torch.tensor([[0, 1, 2], [3, 0, 1], [2, 2, 2]])
    loss_fn = getattr(SF, name)()
    expected = torch.stack([loss_fn(*pair) for pair in zip(values, labels)])
    torch.testing.assert_close(torch.func.vmap(loss_fn)(values, labels), expected)


def test_loss__torch_compile__needs_no_graph_break():
    values, labels = recording("spk", (5, 3, 4))
    losses = [getattr(SF, name)(weight=class_weight(4)) for name in LOSSES]

    def total(spk, labels):
        return sum(loss_fn(spk, labels).sum() for loss_fn in losses)

    compiled = torch.compile(total, fullgraph=True, backend="eager")
    torch.testing.assert_close(compiled(values, labels), total(values, labels))


@pytest.mark.parametrize("name", LOSSES)
def test_loss__non_contiguous_recording__equals_the_contiguous_one(name):
    values, labels = recording(name, (4, 5, 6))
    strided = values.detach().permute(2, 0, 1).contiguous().permute(1, 2, 0)
    assert not strided.is_contiguous()
    loss_fn = getattr(SF, name)(population_code=True, num_classes=3)
    torch.testing.assert_close(loss_fn(strided, labels % 3), loss_fn(values, labels % 3))


@pytest.mark.parametrize("name", LOSSES)
def test_loss__empty_batch__is_nan_on_average_and_zero_in_sum(name):
    values, labels = torch.zeros(4, 0, 3), torch.zeros(0, dtype=torch.int64)
    assert getattr(SF, name)()(values, labels).isnan().all()
    assert getattr(SF, name)(reduction="sum")(values, labels).sum() == 0


@pytest.mark.parametrize("name", LOSSES)
def test_loss__pickled_or_copied__computes_the_same(name):
    values, labels = recording(name, (4, 5, 3))
    loss_fn = getattr(SF, name)(weight=class_weight(3))
    for copied in (pickle.loads(pickle.dumps(loss_fn)), copy.deepcopy(loss_fn)):
        assert copied.__name__ == name
        torch.testing.assert_close(copied(values, labels), loss_fn(values, labels))


def test_loss__repr__shows_every_setting():
    shown = repr(SF.mse_count_loss(correct_rate=0.8))
    assert shown.startswith("mse_count_loss(") and "correct_rate=0.8" in shown and "reduction='mean'" in shown


@pytest.mark.parametrize("name", LOSSES)
def test_loss__malformed_input__says_what_fits(name):
    loss_fn = getattr(SF, name)()
    labels = torch.tensor([0, 1, 1])
    with pytest.raises(ShapeError, match=rf"{name}.*\(3, 4\).*\[T, B, N\]"):
        loss_fn(torch.zeros(3, 4), labels)
    with pytest.raises(ShapeError, match="at least one time step"):
        loss_fn(torch.zeros(0, 3, 4), labels)
    with pytest.raises(ShapeError, match=r"targets of shape \(2,\).*\[3\]"):
        loss_fn(torch.zeros(5, 3, 4), labels[:2])
    with pytest.raises(ShapeError, match="not one-hot"):
        loss_fn(torch.zeros(5, 3, 4), torch.zeros(3, 4))
    with pytest.raises(ShapeError, match=r"weight of shape \(2,\).*\[4\]"):
        getattr(SF, name)(weight=torch.ones(2))(torch.zeros(5, 3, 4), labels)
    with pytest.raises(ValueError, match="reduction='average'"):
        getattr(SF, name)(reduction="average")
    with pytest.raises(ValueError, match="num_classes"):
        getattr(SF, name)(population_code=True)
    with pytest.raises(ShapeError, match=r"10 outputs.*multiple of 4.*8 or 12"):
        getattr(SF, name)(population_code=True, num_classes=4)(torch.zeros(5, 3, 10), labels)


@pytest.mark.parametrize("shape", [(3,), (3, 3), (2, 4), (1, 3, 4, 1)])
def test_mse_temporal_loss__target_times_of_another_shape__says_what_fits(shape):
    with pytest.raises(ShapeError, match=r"target times of shape.*\[3, 4\]"):
        SF.mse_temporal_loss(target_is_time=True)(torch.zeros(5, 3, 4), torch.zeros(shape))


def test_population_loss__num_classes_without_population_code__raises():
    with pytest.raises(ShapeError, match="population_code=True"):
        SF.ce_count_loss(num_classes=2)(torch.zeros(5, 3, 4), torch.tensor([0, 1, 1]))
    with pytest.raises(ShapeError, match="population_code=True"):
        SF.accuracy_rate(torch.zeros(5, 3, 4), torch.tensor([0, 1, 1]), num_classes=2)


def test_temporal_loss__settings_that_contradict__raise():
    with pytest.raises(ValueError, match="one time per spike"):
        SF.mse_temporal_loss(multi_spike=True)
    with pytest.raises(ValueError, match="as many in both"):
        SF.mse_temporal_loss(on_target=(1, 2), off_target=(3,), multi_spike=True)
    with pytest.raises(ValueError, match="multi_spike=False"):
        SF.mse_temporal_loss(on_target=(1, 2))
    with pytest.raises(ValueError, match="name no class"):
        SF.mse_temporal_loss(target_is_time=True, weight=torch.ones(3))
    with pytest.raises(ValueError, match="inverse='log'"):
        SF.ce_temporal_loss("log")


def test_accuracy__no_samples__raises():
    with pytest.raises(ShapeError, match="at least one sample"):
        SF.accuracy_rate(torch.zeros(3, 0, 4), torch.zeros(0, dtype=torch.int64))


def test_accuracy_rate__equal_counts__takes_the_first_class():
    assert SF.accuracy_rate(torch.ones(3, 2, 4), torch.tensor([0, 1])) == 0.5


def test_population_counts__contiguous_blocks__are_summed_over_neurons_and_time():
    spk = torch.zeros(3, 2, 6)
    spk[0, 0, 1] = spk[2, 0, 1] = spk[1, 0, 5] = spk[1, 1, 2] = 1
    assert SF.population_counts(spk, 3).tolist() == [[2, 0, 1], [0, 1, 0]]
    assert SF.population_counts(spk, 2).tolist() == [[2, 1], [1, 0]]
    assert SF.population_counts(spk[:, :0], 3).shape == (0, 3)
    with pytest.raises(ShapeError, match="6 outputs for num_classes=4"):
        SF.population_counts(spk, 4)
    with pytest.raises(ValueError, match="num_classes, got 0"):
        SF.population_counts(spk, 0)


QUANTISERS = [
    {"num_bits": 8},
    {"num_bits": 1, "threshold": 0.7},
    {"num_bits": 4, "threshold": 2.0, "lower_limit": 0.1, "upper_limit": 0.5},
    {"num_bits": 4, "uniform": False, "lower_limit": 0.3},
    {"num_bits": 5, "uniform": False, "thr_centered": False},
    {"num_bits": 8, "uniform": False, "multiplier": 0.97},
]


@pytest.mark.parametrize("arguments", QUANTISERS, ids=str)
def test_state_quant__random_states__equals_snntorch(arguments):
    x = torch.randn(300, generator=torch.Generator().manual_seed(0)).reshape(3, 100).requires_grad_()
    ours, reference = quant.state_quant(**arguments)(x), their_quant.state_quant(**arguments)(x)
    torch.testing.assert_close(ours, reference, rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(torch.autograd.grad(ours.sum(), x)[0], torch.ones_like(x))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_state_quant__any_dtype__follows_the_state(dtype):
    quantise = quant.state_quant(num_bits=3)
    x = torch.linspace(-2, 2, 41, dtype=dtype)
    assert quantise(x).dtype == dtype
    levels = quantise.levels(torch.float64)
    nearest = levels[(x.double().unsqueeze(-1) - levels).abs().argmin(-1)]
    torch.testing.assert_close(quantise(x).double(), nearest, atol=1e-2 if dtype != torch.float64 else 1e-12, rtol=0)


def test_state_quant__half_way_between_levels__takes_the_lower():
    quantise = quant.state_quant(num_bits=1, threshold=1, upper_limit=0)  # levels -1 and 1
    assert quantise(torch.tensor([0.0, 1e-6, -5.0, 5.0])).tolist() == [-1, 1, -1, 1]


def test_state_quant__as_a_value__pickles_compares_and_says_what_it_is():
    quantise = quant.state_quant(num_bits=4, threshold=torch.tensor(2.0))
    assert pickle.loads(pickle.dumps(quantise)) == quantise == quant.state_quant(4, threshold=2.0)
    assert "num_bits=4" in repr(quantise)
    with pytest.raises(ValueError, match="num_bits must be at least 1"):
        quant.state_quant(num_bits=0)
    with pytest.raises(ValueError, match="multiplier positive"):
        quant.state_quant(uniform=False, multiplier=-1)


class TwoLayers(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1, self.act1, self.fc2, self.act2 = nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 2), nn.ReLU()
        self.act1.level = torch.tensor(1.0)  # a plain attribute, not a buffer

    def forward(self, x):
        self.act1.level = self.act1.level + 1
        return self.act2(self.fc2(self.act1(self.fc1(x))))


@pytest.mark.parametrize("name", ["OutputMonitor", "InputMonitor", "GradInputMonitor", "GradOutputMonitor"])
def test_monitor__two_calls__records_what_snntorch_records(name):
    net, x = TwoLayers(), torch.randn(5, 4, requires_grad=True)
    monitors = [getattr(module, name)(net, nn.Linear) for module in (probe, their_probe)]
    for _ in range(2):
        net(x).sum().backward()
    ours, reference = monitors
    assert ours.monitored_layers == reference.monitored_layers == ["fc1", "fc2"]
    assert len(ours.records) == len(reference.records) == 4
    for i in range(4):
        torch.testing.assert_close(ours[i], reference[i])
    torch.testing.assert_close(ours["fc2"], reference["fc2"])


def test_monitor__function_disable_clear_and_remove__do_what_they_say():
    net, x = TwoLayers(), torch.randn(5, 4)
    monitor = probe.OutputMonitor(net, (nn.ReLU, nn.Linear), lambda y: y.shape)
    net(x)
    assert monitor.records == [(5, 3), (5, 3), (5, 2), (5, 2)]
    monitor.disable()
    net(x)
    assert not monitor.is_enable() and len(monitor.records) == 4
    monitor.enable()
    monitor.clear_recorded_data()
    net(x)
    assert monitor["act1"] == [(5, 3)]
    monitor.remove_hooks()
    net(x)
    assert len(monitor.records) == 4
    with pytest.raises(KeyError, match="no such layer"):
        monitor["act9"]


def test_attribute_monitor__before_and_after_the_call__records_both():
    net, x = TwoLayers(), torch.randn(5, 4)
    before = probe.AttributeMonitor("level", True, net.act1)
    after = probe.AttributeMonitor("level", False, net.act1)
    net.act1.register_forward_hook(lambda module, x, y: None)
    net(x)
    net(x)
    assert [value.item() for value in before.records] == [value.item() for value in after.records] == [2, 3]


def test_attribute_monitor__buffer_changed_by_the_call__records_both_sides():
    class Counter(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("count", torch.zeros(()))

        def forward(self, x):
            self.count = self.count + 1
            return x

    net = Counter()
    before, after = probe.AttributeMonitor("count", True, net), probe.AttributeMonitor("count", False, net)
    net(torch.zeros(1))
    assert (before[0], after[0]) == (0, 1)


def test_monitor__deleted__is_freed_and_takes_its_hooks_away():
    net = TwoLayers()
    monitor = probe.OutputMonitor(net, nn.Linear)
    watch = weakref.ref(monitor)
    del monitor
    gc.collect()
    assert watch() is None and not net.fc1._forward_hooks


def test_monitor__spiking_network__records_spikes_and_membranes():
    net = nn.Sequential(nn.Linear(4, 3), snn.Leaky(0.9, init_hidden=True, reset_mechanism="none"))
    spikes = probe.OutputMonitor(net, snn.Leaky)
    mems = probe.AttributeMonitor("mem", False, net, snn.Leaky)
    x = torch.ones(2, 4)
    outputs = [net(x) for _ in range(3)]
    assert all(torch.equal(recorded, spk) for recorded, spk in zip(spikes["1"], outputs))
    current = net[0](x)
    torch.testing.assert_close(mems[2], current * (1 + 0.9 + 0.81))


def test_monitor__instance_instead_of_class__raises():
    with pytest.raises(TypeError, match="not an object of it"):
        probe.OutputMonitor(TwoLayers(), nn.ReLU())


def public(module):
    return {
        name: value
        for name, value in vars(module).items()
        if not name.startswith("_") and callable(value) and value.__module__.startswith("snntorch.functional")
    }


@pytest.mark.parametrize("name", sorted(public(theirs)))
def test_functional_api__every_name_of_snntorch__has_the_same_arguments(name):
    ours, reference = getattr(SF, name, getattr(probe, name, None)), public(theirs)[name]
    if name == "unpack_len1_tuple":
        assert ours((1,)) == 1
        return
    their_arguments = list(inspect.signature(reference).parameters.values())
    our_arguments = list(inspect.signature(ours).parameters.values())
    added = our_arguments[len(their_arguments) :]
    assert [a.name for a in our_arguments[: len(their_arguments)]] == [a.name for a in their_arguments]
    assert all(a.default is not a.empty for a in added)
    for mine, other in zip(our_arguments, their_arguments):
        if callable(other.default) and other.default is not other.empty:
            assert mine.default(3) == other.default(3) == 3
        elif name != "LossFunctions" and not (name.endswith("Monitor") and other.name == "instance"):
            assert mine.default == other.default


def test_quant_api__state_quant__has_the_arguments_of_snntorch():
    ours, reference = inspect.signature(quant.state_quant), inspect.signature(their_quant.state_quant)
    assert [(a.name, a.default) for a in ours.parameters.values()] == [
        (a.name, a.default) for a in reference.parameters.values()
    ]


TAUS = {"tau_pre": 3.0, "tau_post": 5.0}
SYNAPSES = {
    "linear": (nn.Linear(6, 4), (5, 6)),
    "conv1d": (nn.Conv1d(2, 3, 3, stride=2, padding=1), (5, 2, 8)),
    "conv2d": (nn.Conv2d(2, 3, (3, 2), stride=(1, 2), padding=(1, 0)), (5, 2, 6, 7)),
    "conv2d_reflect": (nn.Conv2d(2, 3, 3, padding=1, padding_mode="reflect"), (5, 2, 6, 7)),
}


def spike_pair(synapse, shape, seed):
    generator = torch.Generator().manual_seed(seed)
    before = (torch.rand(shape, generator=generator) < 0.4).float()
    with torch.no_grad():
        after = torch.rand(synapse(before).shape, generator=generator)
    return before, (after < 0.4).float()


@pytest.mark.parametrize("name", list(SYNAPSES))
def test_stdp_single_step__three_steps__equals_snntorch(name):
    synapse, shape = SYNAPSES[name]
    call = f"stdp_{name.split('_')[0]}_single_step"
    traces, their_traces = (None, None), (None, None)
    for seed in range(3):
        spikes = spike_pair(synapse, shape, seed)
        bounds = {"f_pre": torch.abs, "f_post": lambda w: 1 - w}
        *traces, ours = getattr(stdp_learner, call)(synapse, *spikes, *traces, **TAUS, **bounds)
        *their_traces, reference = getattr(their_stdp, call)(synapse, *spikes, *their_traces, **TAUS, **bounds)
        torch.testing.assert_close(ours, reference)
        torch.testing.assert_close(traces, their_traces)
        assert ours.abs().sum() > 0


def test_stdp_conv2d__groups_and_dilation__sum_over_every_place_a_weight_is_used():
    conv = nn.Conv2d(2, 4, 2, dilation=2, groups=2)
    before, after = spike_pair(conv, (3, 2, 5, 5), 0)
    *_, change = stdp_learner.stdp_conv2d_single_step(
        conv, before, after, None, None, **TAUS, f_pre=torch.zeros_like, f_post=torch.ones_like
    )
    for o in range(4):
        for h in range(2):
            for w in range(2):
                used = before[:, o // 2, 2 * h : 2 * h + 3, 2 * w : 2 * w + 3]
                torch.testing.assert_close(change[o, 0, h, w], (used * after[:, o]).sum())


def test_modulated_stdp_single_step__two_steps__equals_snntorch():
    synapse, shape = SYNAPSES["linear"]
    traces, their_traces = (None, None), (None, None)
    for seed in range(2):
        spikes = spike_pair(synapse, shape, seed)
        *traces, ours = stdp_learner.mstdp_linear_single_step(synapse, *spikes, *traces, **TAUS)
        *their_traces, reference = their_stdp.mstdp_linear_single_step(synapse, *spikes, *their_traces, **TAUS)
        torch.testing.assert_close(ours, reference)
        one = [spike[0] for spike in spikes]
        arguments = (synapse, *one, None, None, 3.0, 5.0, 7.0)
        ours = stdp_learner.mstdpet_linear_single_step(*arguments)[2]
        torch.testing.assert_close(ours, their_stdp.mstdpet_linear_single_step(*arguments)[2])


@pytest.mark.parametrize("on_grad", [True, False])
def test_stdp_learner__network_with_states__learns_what_snntorch_learns(on_grad):
    class Threshold(nn.Module):
        def forward(self, x):
            return (x > 0).float()

    class ThresholdWithState(Threshold):
        def forward(self, x):
            return super().forward(x), x  # spikes and membrane, as a neuron returns them

    changes = []
    for module, neurons in ((stdp_learner, ThresholdWithState()), (their_stdp, Threshold())):
        torch.manual_seed(2)
        synapse = nn.Linear(6, 4)
        learner = module.STDPLearner(synapse, neurons, **TAUS)
        for _ in range(2):
            for _ in range(3):
                neurons(synapse((torch.rand(5, 6) < 0.4).float()))
            change = learner.step(on_grad=on_grad, scale=0.5)
        changes.append(-synapse.weight.grad if on_grad else change)
        assert not learner.in_spike_monitor.records
    torch.testing.assert_close(*changes)
    assert not changes[0].requires_grad


def test_stdp_learner__reset_disable_and_misuse__do_what_they_say():
    synapse, neurons = nn.Linear(6, 4), nn.ReLU()
    learner = stdp_learner.STDPLearner(synapse, neurons, **TAUS)
    neurons(synapse(torch.ones(2, 6)))
    learner.step()
    assert learner.trace_pre is not None
    learner.reset()
    assert learner.trace_pre is None and learner.trace_post is None
    learner.disable()
    neurons(synapse(torch.ones(2, 6)))
    with pytest.raises(ValueError, match="0 inputs and 0 outputs"):
        learner.step()
    learner.enable()
    synapse(torch.ones(2, 6))
    with pytest.raises(ValueError, match="1 inputs and 0 outputs"):
        learner.step()
    with pytest.raises(TypeError, match=r"nn\.Conv1d"):
        stdp_learner.STDPLearner(nn.Bilinear(2, 2, 2), neurons, **TAUS)


@pytest.mark.parametrize("name", [name for name in dir(stdp_learner) if "stdp" in name.lower()])
def test_stdp_api__every_name_of_snntorch__has_the_same_arguments(name):
    ours, reference = (
        list(inspect.signature(getattr(m, name)).parameters.values()) for m in (stdp_learner, their_stdp)
    )
    assert [argument.name for argument in ours] == [argument.name for argument in reference]
    for mine, other in zip(ours, reference):
        assert (mine.default is mine.empty) == (other.default is other.empty)


def test_snntorch_table__every_row__names_tests_that_exist():
    project = Path(__file__).parents[1]
    written = set(re.findall(r"\btest_\w+__\w+", (project / "docs" / "snntorch.md").read_text()))
    defined = {
        name
        for path in (project / "tests").rglob("test_*.py")
        for name in re.findall(r"def (test_\w+)", path.read_text())
    }
    assert len(written) > 50 and written <= defined, written - defined
    table = ""
    for line in (project / "docs" / "snntorch.md").read_text().splitlines():
        if not line.startswith("| "):
            table = ""
        elif not table:
            table = line
        elif table.startswith("| snnTorch"):
            assert "test_" in line, line
