"""The tutorial programs run, here and, with their import lines changed, in snnTorch."""

from __future__ import annotations

import re
import types
from pathlib import Path
from typing import Any

import pytest

EXAMPLES = Path(__file__).parent.parent / "examples"
SHORT = {
    "dense": ["--batches", "4", "--tests", "100"],
    "convolutional": ["--batches", "2", "--steps", "4", "--tests", "100"],
    "population": ["--batches", "15", "--epochs", "1", "--tests", "500"],
}


def program(name: str, library: str = "snn_ipu") -> Any:
    """An example as a module, with the library of its import lines exchanged."""
    source = (EXAMPLES / f"{name}.py").read_text()
    source = re.sub(r"^import snn_ipu as snn$", f"import {library} as snn", source, flags=re.MULTILINE)
    source = re.sub(r"^from snn_ipu import", f"from {library} import", source, flags=re.MULTILINE)
    module = types.ModuleType(f"{name}_on_{library}")
    exec(compile(source, f"{name}.py", "exec"), module.__dict__)
    assert module.snn.__name__ == library
    return module


@pytest.mark.parametrize("name", SHORT)
def test_tutorial__few_batches__gives_the_accuracy_that_snntorch_gives(name: str) -> None:
    ours, theirs = (program(name, library).main(SHORT[name]) for library in ("snn_ipu", "snntorch"))
    if name == "population":
        assert ours.keys() == theirs.keys() == {10, 500}
        ours, theirs = ours[500][0], theirs[500][0]
        assert ours > 0.4
    # rounding may flip a spike, and training goes its own way from there
    assert abs(ours - theirs) < 0.1


def test_population__single_time_step__fifty_neurons_per_class_beat_one() -> None:
    results = program("population").main(["--epochs", "1"])
    assert results[500][0] > results[10][0] + 0.1 and results[500][0] > 0.6


@pytest.mark.parametrize("model", ["dense", "convolutional"])
def test_compare__few_batches__prints_both_accuracies_and_the_ratio(
    model: str, capsys: pytest.CaptureFixture[str]
) -> None:
    batches = "3" if model == "dense" else "1"
    arguments = ["--model", model, "--batches", batches, "--steps", "4", "--tests", "100"]
    results = program("compare_snntorch").main(arguments)
    (theirs, _), (ours, _) = results["snnTorch"], results["snn_ipu"]
    assert abs(theirs - ours) < 0.1
    printed = capsys.readouterr().out
    assert re.search(r"snnTorch +test accuracy \d+\.\d%", printed) and re.search(r"\d+\.\d times as fast", printed)
