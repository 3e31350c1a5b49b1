"""Every neuron against snnTorch 1.0 itself: the same spikes, states and gradients, step by step and as a sequence.

Inputs, initial states and parameters lie on a dyadic grid wherever the equations allow it, so that float32 is exact in
any order of operations; elsewhere no membrane may come so near the threshold that rounding decides a spike.
"""

from __future__ import annotations

import copy
import functools
import warnings
from dataclasses import dataclass, field
from typing import Any, Callable

import pytest
import snntorch
import torch
from snntorch.functional.quant import state_quant
from torch import Tensor, nn

import snn_ipu as snn

STEPS = 8
DENSE = (3, 5)
IMAGE = (2, 2, 4, 3)
SLOPE = 2.0  # wide enough that every membrane has a gradient


@dataclass(frozen=True)
class Case:
    """One way to build a neuron that works in snnTorch 1.0."""

    kind: str
    kwargs: dict[str, Any]
    frame: tuple[int, ...] = DENSE
    exact: bool = True
    compiled: bool = True
    label: str = ""
    firing: tuple[float, float] = (0.1, 0.9)
    spike_grad: Callable[[Any], Any] = field(default=lambda library: library.surrogate.fast_sigmoid(slope=SLOPE))

    def __str__(self) -> str:
        flags = {k: v for k, v in self.kwargs.items() if isinstance(v, (str, bool))}
        return "-".join([self.kind, *([self.label] if self.label else []), *(f"{k}={v}" for k, v in flags.items())])

    def build(self, library: Any, **more: Any) -> nn.Module:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # both libraries warn of inhibition
            kwargs = copy.deepcopy({k: v for k, v in self.kwargs.items() if k != "state_quant"})
            kwargs.update({k: v for k, v in self.kwargs.items() if k == "state_quant"}, **more)
            return getattr(library, self.kind)(**kwargs, spike_grad=self.spike_grad(library))

    def pair(self, backend: str) -> tuple[nn.Module, nn.Module]:
        """The same neuron of both libraries, with the same parameters on the grid."""
        torch.manual_seed(0)
        theirs = self.build(snntorch)
        if hasattr(theirs, "recurrent"):
            for parameter in theirs.recurrent.parameters():
                parameter.data = torch.round(parameter.data * 4) / 4
        ours = self.build(snn, backend=backend)
        ours.load_state_dict(theirs.state_dict())
        return theirs, ours


QUANT = state_quant(num_bits=4, threshold=1.0)
RESETS = ("subtract", "zero", "none")
PER_NEURON = {
    "beta": torch.tensor([0.25, 0.5, 0.75, 0.5, 1.0]),
    "threshold": torch.tensor([1.0, 0.5, 0.75, 1.25, 1.0]),
}
PER_CHANNEL = {"beta": torch.tensor([0.25, 0.75]).reshape(2, 1, 1), "threshold": torch.tensor([[[1.0]], [[0.5]]])}
LEARN = {"learn_beta": True, "learn_threshold": True}
LEAKY = {"beta": 0.5, **LEARN}
SYNAPTIC = {"alpha": 0.5, "beta": 0.75, "learn_alpha": True, **LEARN}
LINEAR = {"linear_features": 5}
CONV = {"conv2d_channels": 2, "kernel_size": (3, 1)}
ONE = {"all_to_all": False}

LEAKY_CASES = [
    *(
        Case(
            "Leaky",
            {
                **LEAKY,
                "reset_mechanism": reset,
                "reset_delay": delay,
                "graded_spikes_factor": 0.5,
                "learn_graded_spikes_factor": True,
            },
        )
        for reset in RESETS
        for delay in (True, False)
    ),
    Case("Leaky", {**LEARN, **PER_NEURON}, label="per_neuron"),
    Case(
        "Leaky",
        {
            **LEARN,
            **PER_NEURON,
            "reset_mechanism": "zero",
            "reset_delay": False,
            "graded_spikes_factor": torch.tensor([0.5, 2.0, 1.0, 0.25, 4.0]),
            "learn_graded_spikes_factor": True,
        },
        label="per_neuron",
    ),
    Case("Leaky", {**LEARN, **PER_CHANNEL}, frame=IMAGE, label="per_channel"),
    Case("Leaky", {"beta": torch.tensor([-0.5, 0.5, 1.0, 1.5, 2.0]), **LEARN}, label="beta_beyond_0_and_1"),
    Case("Leaky", {"beta": 0.5, "threshold": -0.25, **LEARN}, label="negative_threshold", firing=(0.5, 0.99)),
    Case("Leaky", {"beta": 0.5, "surrogate_disable": True}),
    Case("Leaky", {**LEAKY, "init_hidden": True}),
    Case("Leaky", {**LEAKY, "init_hidden": True, "output": True}),
    Case("Leaky", {**LEAKY, "output": True}),
    Case("Leaky", {**LEAKY, "inhibition": True}, compiled=False),
    Case("Leaky", {**LEAKY, "inhibition": True, "reset_mechanism": "zero", "reset_delay": False}, compiled=False),
    Case("Leaky", {**LEAKY, "state_quant": QUANT, "graded_spikes_factor": 0.5}, compiled=False, label="state_quant"),
    Case("Leaky", {**LEAKY, "state_quant": QUANT, "reset_delay": False}, compiled=False, label="state_quant"),
]
SYNAPTIC_CASES = [
    *(
        Case("Synaptic", {**SYNAPTIC, "reset_mechanism": reset, "reset_delay": delay})
        for reset in RESETS
        for delay in (True, False)
    ),
    Case(
        "Synaptic",
        {"alpha": torch.tensor([0.0, 0.25, 0.5, 0.5, 1.0]), "learn_alpha": True, **LEARN, **PER_NEURON},
        label="per_neuron",
    ),
    Case("Synaptic", {**SYNAPTIC, "init_hidden": True}),
    Case("Synaptic", {**SYNAPTIC, "init_hidden": True, "output": True}),
    Case("Synaptic", {**SYNAPTIC, "inhibition": True, "reset_mechanism": "zero"}, compiled=False),
    Case("Synaptic", {**SYNAPTIC, "state_quant": QUANT}, compiled=False, label="state_quant"),
]
# R and C on the grid: dt / (R * C) = 1/2 and dt / C = 1
CIRCUIT = {"R": 2.0, "C": 0.5, "time_step": 0.5, "learn_threshold": True}
LAPICQUE_CASES = [
    *(Case("Lapicque", {**CIRCUIT, "reset_mechanism": reset}, label="RC") for reset in RESETS),
    Case("Lapicque", {"beta": 0.5}, exact=False, label="beta"),
    Case("Lapicque", {"beta": 0.5, "R": 2.0}, exact=False, label="beta_R", firing=(0.05, 0.9)),
    Case("Lapicque", {"beta": 0.75, "C": 0.5, "time_step": 0.5}, exact=False, label="beta_C"),
    *(Case("Lapicque", {"beta": 0.5, "reset_mechanism": r, **LEARN}, exact=False, label="beta") for r in RESETS),
    Case("Lapicque", {**CIRCUIT, "init_hidden": True}, label="RC"),
    Case("Lapicque", {**CIRCUIT, "init_hidden": True, "output": True}, label="RC"),
    Case("Lapicque", {**CIRCUIT, "inhibition": True}, compiled=False, label="RC"),
    Case("Lapicque", {**CIRCUIT, "state_quant": QUANT}, compiled=False, label="RC_state_quant"),
]
# the membrane is about half of the synaptic currents
ALPHA = {"alpha": 0.75, "beta": 0.5, "threshold": 0.5, **LEARN}
ALPHA_CASES = [
    *(Case("Alpha", {**ALPHA, "reset_mechanism": reset}, exact=False) for reset in RESETS),
    Case("Alpha", {**ALPHA, "init_hidden": True}, exact=False),
    Case("Alpha", {**ALPHA, "init_hidden": True, "output": True}, exact=False),
    Case(
        "Alpha",
        {"alpha": torch.tensor([0.5, 0.625, 0.75, 0.875, 1.0]), "beta": 0.25, "threshold": 0.5, **LEARN},
        exact=False,
        label="per_neuron",
    ),
    Case("Alpha", {**ALPHA, "inhibition": True}, exact=False, compiled=False),
    Case("Alpha", {**ALPHA, "state_quant": QUANT}, exact=False, compiled=False, label="state_quant"),
]
RECURRENT_CASES = [
    *(
        Case("RLeaky", {**LEAKY, **LINEAR, "reset_mechanism": reset, "reset_delay": delay}, label="linear")
        for reset in RESETS
        for delay in (True, False)
    ),
    Case("RLeaky", {**LEARN, **PER_CHANNEL, **CONV}, frame=IMAGE, label="conv"),
    Case(
        "RLeaky",
        {**LEAKY, "conv2d_channels": 2, "kernel_size": 3, "reset_mechanism": "zero", "reset_delay": False},
        frame=IMAGE,
        label="conv",
    ),
    *(
        Case("RLeaky", {**LEAKY, **ONE, "V": 0.75, "reset_mechanism": reset, "reset_delay": delay})
        for reset, delay in (("subtract", True), ("zero", True), ("subtract", False), ("zero", False))
    ),
    Case("RLeaky", {**LEARN, **PER_NEURON, **ONE, "V": torch.tensor([-0.5, 0.25, 1.0, 2.0, 0.0])}, label="per_neuron"),
    Case("RLeaky", {**LEAKY, **LINEAR, "learn_recurrent": False}),
    Case("RLeaky", {**LEAKY, **LINEAR, "init_hidden": True}),
    Case("RLeaky", {**LEAKY, **ONE, "init_hidden": True, "output": True}),
    Case("RLeaky", {**LEAKY, **LINEAR, "inhibition": True}, compiled=False),
    Case("RLeaky", {**LEAKY, **ONE, "state_quant": QUANT}, compiled=False, label="state_quant"),
    *(Case("RSynaptic", {**SYNAPTIC, **LINEAR, "reset_mechanism": reset}, label="linear") for reset in RESETS),
    Case("RSynaptic", {**SYNAPTIC, **CONV, "reset_mechanism": "zero"}, frame=IMAGE, label="conv"),
    *(Case("RSynaptic", {**SYNAPTIC, **ONE, "V": 0.5, "reset_mechanism": reset}) for reset in RESETS),
    Case("RSynaptic", {**SYNAPTIC, **LINEAR, "learn_recurrent": False, "init_hidden": True}),
    Case("RSynaptic", {**SYNAPTIC, **ONE, "V": torch.tensor([-0.5, 0.25, 1.0, 2.0, 0.0])}, label="per_neuron"),
    Case("RSynaptic", {**SYNAPTIC, **LINEAR, "init_hidden": True, "output": True}),
    Case("RSynaptic", {**SYNAPTIC, **ONE, "inhibition": True}, compiled=False),
    Case("RSynaptic", {**SYNAPTIC, **LINEAR, "state_quant": QUANT}, compiled=False, label="state_quant"),
]
CASES = [*LEAKY_CASES, *SYNAPTIC_CASES, *LAPICQUE_CASES, *ALPHA_CASES, *RECURRENT_CASES]


def grid(*shape: int, low: float, high: float, generator: torch.Generator) -> Tensor:
    """Random multiples of 1/8."""
    return torch.randint(int(low * 8), int(high * 8), shape, generator=generator) / 8


@dataclass
class Recording:
    """Spikes [T, B, ...], the other states of every step by name, and gradients by the name of the leaf."""

    spk: Tensor
    states: dict[str, Tensor]
    gradients: dict[str, Tensor | None]


def record(neuron: nn.Module, names: tuple[str, ...], drive: Callable[..., tuple[Tensor, list[Tensor]]]) -> Recording:
    """Drive a neuron over a fixed random sequence from random states, and differentiate a fixed random loss."""
    generator = torch.Generator().manual_seed(7)
    frame = neuron.case.frame
    x = grid(STEPS, *frame, low=-1.0, high=2.0, generator=generator).requires_grad_()
    given: list[Tensor] = []
    if not neuron.init_hidden:
        for name in names:
            low, high = (0.0, 2.0) if name == "spk" else (-1.0, 2.0)
            state = grid(*frame, low=low, high=high, generator=generator)
            given.append((state.floor() if name == "spk" else state).requires_grad_())
    spk, traces = drive(neuron, x, given)
    shown = [name for name in names if name != "spk"][: len(traces)]
    loss = torch.zeros(())
    for values in (spk, *traces):
        loss = loss + (values * torch.randn(values.shape, generator=generator)).sum()
    leaves = {"x": x, **dict(zip(names, given)), **dict(neuron.named_parameters())}
    wanted = {name: leaf for name, leaf in leaves.items() if leaf.requires_grad}
    gradients: tuple[Tensor | None, ...] = (None,) * len(wanted)
    if loss.requires_grad:
        gradients = torch.autograd.grad(loss, list(wanted.values()), allow_unused=True)
    return Recording(spk.detach(), dict(zip(shown, traces)), dict(zip(wanted, gradients)))


def by_steps(neuron: nn.Module, x: Tensor, states: list[Tensor]) -> tuple[Tensor, list[Tensor]]:
    """The loop over time as snnTorch users write it."""
    spikes, record_of_states = [], []
    current = list(states)
    for x_t in x:
        out = neuron(x_t, *current)
        if isinstance(out, Tensor):
            spikes.append(out)
            continue
        spikes.append(out[0])
        record_of_states.append(out[1:])
        if not neuron.init_hidden:
            first = [out[0]] if neuron.case.kind in ("RLeaky", "RSynaptic") else []
            current = [*first, *out[1:]]
    return torch.stack(spikes), [torch.stack(values) for values in zip(*record_of_states)]


def by_sequence(neuron: nn.Module, x: Tensor, states: list[Tensor]) -> tuple[Tensor, list[Tensor]]:
    """All steps in one call."""
    names = [name for name in neuron.state_names if name != "spk"]
    if neuron.init_hidden and not neuron.output:
        names = []
    spk, final, *traces = neuron.sequence(x, states or None, trace=names)
    for name, trace in zip(names, traces):
        assert torch.equal(final[neuron.state_names.index(name)], trace[-1]), f"final {name} is not the last step's"
    return spk, traces


def assert_same(ours: Recording, theirs: Recording, case: Case, threshold: Tensor) -> None:
    rate = (theirs.spk != 0).float().mean().item()
    assert case.firing[0] < rate < case.firing[1], f"{rate:.0%} of the steps spike: the case tests nothing"
    if not case.exact and "mem" in theirs.states:
        distance = (theirs.states["mem"] - threshold).abs().min().item()
        assert distance > 1e-5, f"a membrane {distance:.1e} from the threshold: rounding decides its spike"
    assert torch.equal(ours.spk, theirs.spk)
    assert ours.states.keys() == theirs.states.keys()
    for name, expected in theirs.states.items():
        if case.exact:
            assert torch.equal(ours.states[name], expected), name
        torch.testing.assert_close(ours.states[name], expected, rtol=1e-5, atol=1e-6, msg=lambda m, n=name: f"{n}: {m}")
    assert ours.gradients.keys() == theirs.gradients.keys()
    for name, expected in theirs.gradients.items():
        actual = ours.gradients[name]
        if expected is None:
            assert actual is None or not actual.any(), f"{name} has a gradient, snnTorch has none"
            continue
        assert actual is not None, f"{name} has no gradient"
        scale = max(1.0, expected.abs().max().item())
        torch.testing.assert_close(
            actual, expected, rtol=1e-4, atol=1e-5 * scale, msg=lambda m, n=name: f"gradient of {n}: {m}"
        )


@functools.lru_cache(maxsize=None)
def theirs_of(index: int) -> Recording:
    case = CASES[index]
    neuron, ours = case.pair("reference")
    neuron.case = case
    return record(neuron, ours.state_names, by_steps)


def compare(index: int, backend: str, drive: Callable[..., tuple[Tensor, list[Tensor]]]) -> None:
    case = CASES[index]
    _, neuron = case.pair(backend)
    neuron.case = case
    ours = record(neuron, neuron.state_names, drive)
    assert_same(ours, theirs_of(index), case, neuron.threshold.detach())


@pytest.mark.parametrize("index", range(len(CASES)), ids=lambda i: str(CASES[i]))
def test_step_loop__every_mode_of_snntorch__same_spikes_states_and_gradients(index: int) -> None:
    compare(index, "reference", by_steps)


@pytest.mark.parametrize("index", range(len(CASES)), ids=lambda i: str(CASES[i]))
def test_sequence__every_mode_of_snntorch__same_spikes_states_and_gradients(index: int) -> None:
    compare(index, "cpu" if CASES[index].compiled else "reference", by_sequence)
