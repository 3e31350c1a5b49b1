"""The CPU kernels equal the plain-torch reference: every neuron, dtype, layout and use of the outputs."""

from __future__ import annotations

import pytest
from helpers import CASES, NEURONS, SURROGATES, TOLERANCE, Case, assert_same, drawn


@pytest.mark.parametrize("case", CASES, ids=str)
def test_kernel__any_neuron_mode_dtype_surrogate_and_form__equals_the_reference(case: Case) -> None:
    setup = drawn(case.neuron, case.mode, case.dtype, case.form)
    rate = assert_same(setup, case.surrogate)
    assert case.form == "single" or 0.02 < rate < 0.8, "the comparison needs spikes and silence"


def test_cases__all_pairs_that_matter__are_covered() -> None:
    def pairs(*names: str) -> int:
        return len({tuple(str(getattr(case, n)) for n in names) for case in CASES})

    assert pairs("neuron", "mode", "dtype") == sum(len(n.modes) for n in NEURONS) * len(TOLERANCE)
    assert pairs("neuron", "surrogate") == len(NEURONS) * len(SURROGATES)
    assert pairs("dtype", "surrogate") == len(TOLERANCE) * len(SURROGATES)
    assert pairs("dtype", "form") == len(TOLERANCE) * 6
