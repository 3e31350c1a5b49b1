"""Kernel gradients are the derivatives of the kernel: float64, with the surrogate's primitive in place of the step."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Mapping

import pytest
import torch
from helpers import INNER, NEURONS, SURROGATES, Neuron, Setup, from_module
from torch import Tensor

import snn_ipu as snn
from snn_ipu.surrogate import Surrogate

MODES = [(neuron, mode) for neuron in (*NEURONS, *INNER) for mode in neuron.modes]


def derivatives_agree(setup: Setup, surrogate: Surrogate) -> bool:
    """gradcheck of every output for x, the initial states and the parameters."""
    call = setup.leaves()
    names = list(call.inputs())

    def run(*tensors: Tensor) -> tuple[Tensor, ...]:
        given = dict(zip(names, tensors))
        used = replace(
            call,
            x=given["x"],
            initial=tuple(given[f"initial:{s}"] for s in call.states),
            params={p: given[f"param:{p}"] for p in call.params},
        )
        return tuple(used.run("cpu", surrogate.smoothed()).values())

    return bool(torch.autograd.gradcheck(run, tuple(call.inputs().values())))


def small(neuron: Neuron, mode: Mapping[str, Any], features: bool, **options: Any) -> Setup:
    mean, spread = neuron.drive
    module = neuron.make(**mode)
    x = (mean + spread * torch.randn(3, 1, 2)).double()
    setup = from_module(module, x, traced=module.state_names, **options)
    if features:
        setup.params = {n: p + 0.02 * torch.randn(2, dtype=p.dtype) for n, p in setup.params.items()}
    return setup


@pytest.mark.parametrize(
    ("neuron", "mode"), MODES, ids=lambda v: "-".join(map(str, v.values())) if isinstance(v, dict) else v.name
)
def test_gradient__any_neuron_and_mode__is_the_derivative_of_the_smooth_kernel(
    neuron: Neuron, mode: Mapping[str, Any]
) -> None:
    features = MODES.index((neuron, mode)) % 2 == 1
    assert derivatives_agree(small(neuron, mode, features), snn.surrogate.atan())


@pytest.mark.parametrize("surrogate", SURROGATES, ids=lambda s: s.factory.__name__)
def test_gradient__any_surrogate__is_the_derivative_of_the_smooth_kernel(surrogate: Surrogate) -> None:
    assert derivatives_agree(small(NEURONS[0], {"reset_mechanism": "zero"}, features=False), surrogate)


def test_gradient__of_a_wrong_primitive__is_found_out() -> None:
    @snn.surrogate.define(primitive=lambda u: 0.5 * torch.atan(u))
    def half(u: Tensor) -> Tensor:
        return 1 / (1 + u * u)

    with pytest.raises(RuntimeError, match="Jacobian mismatch"):
        derivatives_agree(small(NEURONS[0], {}, features=False), half())
