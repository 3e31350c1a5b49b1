"""Every public name of snnTorch 1.0 is here with the same arguments, or docs/snntorch.md says why not."""

from __future__ import annotations

import importlib
import inspect
import re
import sys
import types
import warnings
from pathlib import Path
from typing import Any, Iterator

import pytest
import snntorch
import torch
from torch import nn

import snn_ipu as snn

MODULES = (
    "",
    "surrogate",
    "functional",
    "functional.acc",
    "functional.loss",
    "functional.reg",
    "functional.probe",
    "functional.quant",
    "functional.stdp_learner",
    "spikegen",
    "utils",
    "backprop",
    "export_nir",
    "import_nir",
    "spikeplot",
)
NEURONS = sorted(
    name for name, value in vars(snntorch).items() if inspect.isclass(value) and issubclass(value, nn.Module)
)
TABLE = (Path(__file__).parent.parent / "docs" / "snntorch.md").read_text().partition("## Names left out")[2]
LEFT_OUT = {
    name: reason
    for names, reason in re.findall(r"^\| (`.*?`) \| (.+?) \|$", TABLE, re.MULTILINE)
    for name in re.findall(r"`([^`]+)`", names)
}


def module_of(library: str, name: str) -> types.ModuleType:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        return importlib.import_module(f"{library}.{name}" if name else library)


def public_names(name: str) -> Iterator[tuple[str, Any]]:
    """What a module of snnTorch defines or gathers; not what it imports from elsewhere."""
    for key, value in vars(module_of("snntorch", name)).items():
        own = str(getattr(value, "__module__", "snntorch")).split(".")[0] == "snntorch"
        # utils.reset leaves a flag for every class behind
        if not key.startswith("_") and not isinstance(value, (types.ModuleType, bool)) and own:
            yield key, value


def difference(theirs: Any, ours: Any) -> str | None:
    """How a call that snnTorch takes would be taken otherwise here."""
    if not callable(theirs):
        return None if ours == theirs else f"{ours!r} instead of {theirs!r}"
    expected = list(inspect.signature(theirs).parameters.values())
    given = list(inspect.signature(ours).parameters.values())
    for a, b in zip(expected, given):
        if a.name != b.name or a.kind is not b.kind:
            return f"{b} instead of {a}"
        both_functions = callable(a.default) and callable(b.default) and a.default is not a.empty
        if a.default is not a.empty and a.default != b.default and not both_functions:
            return f"{b} instead of {a}"
    more = [p for p in given[len(expected) :] if p.default is p.empty and p.kind is not p.VAR_KEYWORD]
    if len(given) < len(expected) or more:
        return f"{inspect.signature(ours)} instead of {inspect.signature(theirs)}"
    return None


@pytest.mark.parametrize("name", MODULES)
def test_module__every_public_name_of_snntorch__is_here_or_listed(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if name == "spikeplot":
        # it imports pandas for one helper
        monkeypatch.setitem(sys.modules, "pandas", types.ModuleType("pandas"))
    ours = module_of("snn_ipu", name)
    problems, names = [], dict(public_names(name))
    assert names
    for key, value in names.items():
        full = f"{name}.{key}".lstrip(".")
        problem = difference(value, getattr(ours, key)) if hasattr(ours, key) else "missing"
        if problem is None:
            assert full not in LEFT_OUT, f"{full} is here, but docs/snntorch.md lists it as left out"
        elif full not in LEFT_OUT:
            problems.append(f"{full}: {problem}")
    assert not problems


@pytest.mark.parametrize("name", NEURONS)
def test_class__every_public_member_of_snntorch__is_here_or_listed(name: str) -> None:
    theirs, ours = getattr(snntorch, name), getattr(snn, name)
    members = [m for m in dir(theirs) if not m.startswith("_") and not hasattr(nn.Module, m)]
    missing = [m for m in members if not hasattr(ours, m) and f"{name}.{m}" not in LEFT_OUT and f".{m}" not in LEFT_OUT]
    assert not missing
    for m in members:
        if hasattr(ours, m) and callable(getattr(theirs, m)):
            problem = difference(getattr(theirs, m), getattr(ours, m))
            assert problem is None or f".{m}" in LEFT_OUT, f"{name}.{m}: {problem}"


@pytest.mark.parametrize("name", [name for name in MODULES if name not in ("", "surrogate")])
def test_class_of_a_module__every_public_member_of_snntorch__is_here_or_listed(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pandas", types.ModuleType("pandas"))
    ours = module_of("snn_ipu", name)
    for key, theirs in public_names(name):
        full = f"{name}.{key}"
        if not inspect.isclass(theirs) or full in LEFT_OUT or theirs.__module__ != f"snntorch.{name}":
            continue
        mine, module = getattr(ours, key), set(dir(nn.Module)) - {"forward"}
        members = [m for m in dir(theirs) if not m.startswith("_") and m not in module]
        missing = [m for m in members if not hasattr(mine, m) and f"{full}.{m}" not in LEFT_OUT]
        assert not missing, full
        if not issubclass(theirs, nn.Module) and "__call__" in dir(theirs) and not inspect.isabstract(theirs):
            assert list(inspect.signature(mine.__call__).parameters) == list(
                inspect.signature(theirs.__call__).parameters
            ), full


def test_names_left_out__each__exists_in_snntorch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", types.ModuleType("pandas"))
    assert len(LEFT_OUT) > 20
    for full, reason in LEFT_OUT.items():
        assert len(reason) > 10, full
        owner, _, key = full.rpartition(".")
        if full.startswith("."):
            holders: list[Any] = [getattr(snntorch, n) for n in NEURONS]
        elif owner in MODULES:
            holders = [module_of("snntorch", owner)]
        elif owner.rpartition(".")[0] in MODULES[1:]:
            module, _, kind = owner.rpartition(".")
            holders = [getattr(module_of("snntorch", module), kind)]
        else:
            holders = [getattr(snntorch, owner)]
        assert any(hasattr(h, key) for h in holders), f"{full} is no name of snnTorch"


STATES = {
    "Leaky": ("mem",),
    "Synaptic": ("syn", "mem"),
    "Alpha": ("syn_exc", "syn_inh", "mem"),
    "Lapicque": ("mem",),
    "RLeaky": ("spk", "mem"),
    "RSynaptic": ("spk", "syn", "mem"),
    "SLSTM": ("syn", "mem"),
    "SConv2dLSTM": ("syn", "mem"),
}
ARGUMENTS: dict[str, dict[str, Any]] = {
    "Leaky": {"beta": 0.9},
    "Synaptic": {"alpha": 0.5, "beta": 0.9},
    "Alpha": {"alpha": 0.9, "beta": 0.5},
    "Lapicque": {"beta": 0.9},
    "RLeaky": {"beta": 0.9, "linear_features": 3},
    "RSynaptic": {"alpha": 0.5, "beta": 0.9, "linear_features": 3},
    "SLSTM": {"input_size": 3, "hidden_size": 3},
    "SConv2dLSTM": {"in_channels": 3, "out_channels": 3, "kernel_size": 3},
}


@pytest.mark.parametrize("name", STATES)
def test_call__states_by_name__are_snntorchs_names(name: str) -> None:
    theirs = inspect.signature(getattr(snntorch, name).forward).parameters
    assert tuple(theirs)[1:] == ("input_", *STATES[name])
    ours = getattr(snn, name)(**ARGUMENTS[name])
    x = torch.rand(2, 3, 4, 4) if "Conv" in name else torch.rand(2, 3)
    states = {state: torch.full_like(x, 0.25) for state in STATES[name]}
    by_name, by_position = ours(input_=x, **states), ours(x, *states.values())
    assert all(torch.equal(a, b) for a, b in zip(by_name, by_position))
    first, *rest = ours.reset_mem() if isinstance(ours.reset_mem(), tuple) else (ours.reset_mem(),)
    assert len(rest) + 1 == len(STATES[name])
    deprecated = getattr(ours, f"init_{name.lower()}")()
    assert torch.equal(deprecated[0] if isinstance(deprecated, tuple) else deprecated, first)


def test_import__as_snntorch_scripts_write_it__gives_the_modules() -> None:
    from snn_ipu import functional as SF
    from snn_ipu import spikegen, surrogate, utils

    for module in (SF, surrogate, spikegen, utils):
        assert getattr(snn, module.__name__.split(".")[-1]) is module
