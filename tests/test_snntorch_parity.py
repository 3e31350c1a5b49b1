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
SURROGATES: dict[str, Callable[[Any], Any]] = {
    "default": lambda library: None,
    "atan": lambda library: library.surrogate.atan(alpha=3.0),
    "sigmoid": lambda library: library.surrogate.sigmoid(slope=4),
    "straight_through_estimator": lambda library: library.surrogate.straight_through_estimator(),
    "triangular": lambda library: library.surrogate.triangular(threshold=0.5),
    "spike_rate_escape": lambda library: library.surrogate.spike_rate_escape(beta=1, slope=2),
    "SFS": lambda library: library.surrogate.SFS(slope=2, B=0.25),
    "heaviside": lambda library: library.surrogate.heaviside(),
}
SURROGATE_CASES = [
    *(Case("Leaky", LEAKY, label=name, spike_grad=grad) for name, grad in SURROGATES.items()),
    # a closure of snnTorch, and a user's own function, in both libraries
    Case("Leaky", LEAKY, compiled=False, label="closure", spike_grad=lambda _: snntorch.surrogate.atan(alpha=3.0)),
    Case(
        "Synaptic",
        SYNAPTIC,
        compiled=False,
        label="custom_surrogate",
        spike_grad=lambda _: snntorch.surrogate.custom_surrogate(lambda u, grad, spk: grad / (1 + u.abs())),
    ),
]
CASES = [*LEAKY_CASES, *SYNAPTIC_CASES, *LAPICQUE_CASES, *ALPHA_CASES, *RECURRENT_CASES, *SURROGATE_CASES]


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


FIRST_OF_KIND = {CASES[i].kind: i for i in reversed(range(len(CASES))) if CASES[i].compiled}


@pytest.mark.parametrize("kind", FIRST_OF_KIND)
def test_step_loop__compiled__same_spikes_states_and_gradients(kind: str) -> None:
    compare(FIRST_OF_KIND[kind], "cpu", by_steps)


BUILDS = {
    "Leaky": {"beta": 0.5},
    "Synaptic": {"alpha": 0.5, "beta": 0.5},
    "Alpha": {"alpha": 0.75, "beta": 0.5},
    "Lapicque": {"beta": 0.5},
    "RLeaky": {"beta": 0.5, "linear_features": 5},
    "RSynaptic": {"alpha": 0.5, "beta": 0.5, "all_to_all": False},
}


@pytest.mark.parametrize("kind", BUILDS)
def test_state_dict__same_keys_and_shapes_as_snntorch__loads_both_ways(kind: str) -> None:
    theirs, ours = getattr(snntorch, kind)(**BUILDS[kind]), getattr(snn, kind)(**BUILDS[kind])
    assert {k: v.shape for k, v in ours.state_dict().items()} == {k: v.shape for k, v in theirs.state_dict().items()}
    for values in theirs.state_dict().values():
        values.mul_(2)
    ours.load_state_dict(theirs.state_dict())
    for name, values in theirs.state_dict().items():
        torch.testing.assert_close(ours.state_dict()[name], values, check_dtype=False)
    theirs.load_state_dict(getattr(snn, kind)(**BUILDS[kind]).state_dict())


LEARNED = {
    "Leaky": {"learn_beta": True, "learn_threshold": True, "learn_graded_spikes_factor": True},
    "Synaptic": {"learn_alpha": True, "learn_beta": True, "learn_threshold": True},
    "Alpha": {"learn_beta": True, "learn_threshold": True},
    "Lapicque": {"learn_threshold": True},
    "RLeaky": {"learn_beta": True, "learn_threshold": True},
    "RSynaptic": {"learn_alpha": True, "learn_beta": True, "learn_threshold": True},
}


@pytest.mark.parametrize("kind", BUILDS)
def test_parameters__learned__are_in_the_order_of_snntorch(kind: str) -> None:
    one_to_one = [{"linear_features": None, "all_to_all": False}] if kind in ("RLeaky", "RSynaptic") else []
    for options in ({}, LEARNED[kind], *({**LEARNED[kind], **o} for o in one_to_one)):
        theirs, ours = (getattr(library, kind)(**{**BUILDS[kind], **options}) for library in (snntorch, snn))
        assert [n for n, _ in ours.named_parameters()] == [n for n, _ in theirs.named_parameters()]
        assert list(ours.state_dict()) == list(theirs.state_dict())


def test_optimiser__state_of_snntorch_is_loaded__goes_on_as_there() -> None:
    options = {"beta": 0.75, "V": 0.25, "all_to_all": False, "learn_beta": True, "learn_threshold": True}
    theirs, ours = snntorch.RLeaky(**options), snn.RLeaky(**options)
    optimizers = [torch.optim.Adam(neuron.parameters(), lr=0.01) for neuron in (theirs, ours)]
    x = grid(6, 3, 5, low=0.0, high=2.0, generator=torch.Generator().manual_seed(1))

    def train(neuron: nn.Module, optimizer: torch.optim.Optimizer) -> None:
        spk, mem = neuron.init_rleaky()
        loss = torch.zeros(())
        for x_t in x:
            spk, mem = neuron(x_t, spk, mem)
            loss = loss + mem.square().mean() + spk.mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    train(theirs, optimizers[0])
    ours.load_state_dict(theirs.state_dict())
    optimizers[1].load_state_dict(copy.deepcopy(optimizers[0].state_dict()))
    for neuron, optimizer in zip((theirs, ours), optimizers):
        train(neuron, optimizer)
    for name, expected in theirs.named_parameters():
        torch.testing.assert_close(ours.get_parameter(name), expected)


def test_step__one_neuron_without_a_batch__runs_as_in_snntorch() -> None:
    currents = torch.cat((torch.zeros(10), torch.full((90,), 0.25)))
    for library in (snntorch, snn):
        neuron, mem, seen = library.Leaky(0.8125), torch.zeros(1), []
        for current in currents:
            spk, mem = neuron(current, mem)
            seen.append((spk.item(), mem.item()))
        if library is snntorch:
            expected = seen
    assert seen == expected and any(spk for spk, _ in seen)


def test_step__input_by_name__as_in_snntorch() -> None:
    x, mem = torch.full((2, 3), 0.75), torch.ones(2, 3)
    expected = snntorch.Leaky(0.5)(input_=x, mem=mem)
    assert all(torch.equal(a, b) for a, b in zip(snn.Leaky(0.5)(input_=x, mem=mem), expected))


def test_step__gradient_of_spikes_by_the_membrane_beside_them__is_that_of_the_reference_alone() -> None:
    x, mem = torch.full((2, 3), 0.75), torch.ones(2, 3, requires_grad=True)
    found = {}
    for name, neuron in {
        "snntorch": snntorch.Leaky(0.5),
        "reference": snn.Leaky(0.5, backend="reference"),
        "cpu": snn.Leaky(0.5, backend="cpu"),
    }.items():
        spk, new = neuron(x, mem)
        found[name] = torch.autograd.grad(spk.sum(), (new, mem), allow_unused=True)
    torch.testing.assert_close(found["reference"][0], found["snntorch"][0])
    assert found["cpu"][0] is None
    for of_mem in (found["reference"][1], found["cpu"][1]):
        torch.testing.assert_close(of_mem, found["snntorch"][1])


def test_step__boolean_spikes__as_in_snntorch() -> None:
    x, mem = torch.rand(4, 5, generator=torch.Generator().manual_seed(0)) > 0.5, torch.full((4, 5), 0.5)
    assert all(torch.equal(a, b) for a, b in zip(snn.Leaky(0.5)(x, mem), snntorch.Leaky(0.5)(x, mem)))


@pytest.mark.parametrize("kind", BUILDS)
def test_step__membrane_at_the_threshold__does_not_spike_as_in_snntorch(kind: str) -> None:
    x = torch.zeros(2, 5)
    for library in (snntorch, snn):
        neuron = getattr(library, kind)(**BUILDS[kind], **({} if kind == "Alpha" else {"reset_mechanism": "none"}))
        with torch.no_grad():
            neuron.threshold.zero_()  # every membrane is exactly 0, recurrent biases aside
            if kind == "RLeaky":
                neuron.recurrent.bias.zero_()
        assert not neuron(x)[0].any()


def test_step__without_states__goes_on_from_the_hidden_state_as_in_snntorch() -> None:
    x = grid(6, 3, 5, low=-1.0, high=2.0, generator=torch.Generator().manual_seed(1))
    theirs, ours = snntorch.Leaky(0.5), snn.Leaky(0.5)
    for x_t in x:
        spk, mem = ours(x_t)
        expected_spk, expected_mem = theirs(x_t)
        assert torch.equal(spk, expected_spk) and torch.equal(mem, expected_mem)
    assert torch.equal(ours.mem, theirs.mem)


def test_step__states_by_name__as_in_snntorch() -> None:
    x, syn, mem = (grid(3, 5, low=0.0, high=2.0, generator=torch.Generator().manual_seed(i)) for i in range(3))
    for a, b in zip(snntorch.Synaptic(0.5, 0.5)(x, mem=mem, syn=syn), snn.Synaptic(0.5, 0.5)(x, mem=mem, syn=syn)):
        assert torch.equal(a, b)


def test_training__a_network_of_either_library__gives_the_same_losses_and_weights() -> None:
    x = 3 * torch.randn(7, 4, 6, generator=torch.Generator().manual_seed(0))
    target = torch.tensor([0, 2, 1, 0])
    losses, weights = [], []
    for library in (snntorch, snn):
        torch.manual_seed(3)
        grad = library.surrogate.fast_sigmoid(slope=5)
        net = nn.Sequential(
            nn.Linear(6, 8),
            library.Leaky(0.8, spike_grad=grad, init_hidden=True, learn_beta=True),
            nn.Linear(8, 3),
            library.Synaptic(0.7, 0.8, spike_grad=grad, init_hidden=True, learn_threshold=True),
        )
        optimizer = torch.optim.SGD(net.parameters(), lr=0.05)
        seen = []
        for _ in range(4):
            net[1].reset_mem()
            net[3].reset_mem()
            counts = torch.stack([net(x_t) for x_t in x]).sum(0)
            loss = nn.functional.cross_entropy(counts, target)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            seen.append(loss.item())
        assert seen[-1] != seen[0]
        losses.append(seen)
        weights.append([p.detach() for p in net.parameters()])
    assert losses[1] == pytest.approx(losses[0], rel=1e-5)
    for ours, theirs in zip(weights[1], weights[0]):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-6)


# What snnTorch 1.0 gets wrong, and what happens here instead.


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64], ids=str)
@pytest.mark.parametrize("kind", ["Leaky", "RLeaky"])
def test_fixed_dtype__spikes_follow_the_input__states_are_float32_or_float64(kind: str, dtype: torch.dtype) -> None:
    neuron = getattr(snn, kind)(**BUILDS[kind])
    x = torch.full((4, 3, 5), 0.75, dtype=dtype)
    spk, mem = neuron(x[0])
    expected = torch.float64 if dtype == torch.float64 else torch.float32
    assert (spk.dtype, mem.dtype) == (dtype, expected)
    spk, states = neuron.sequence(x)
    assert spk.dtype == dtype and {s.dtype for s in states} == {expected}


def test_fixed_dtype__recurrent_matrix_in_double__runs_where_snntorch_mixes_dtypes() -> None:
    neuron = snn.RLeaky(0.5, linear_features=5).double()
    x = grid(6, 3, 5, low=-1.0, high=2.0, generator=torch.Generator().manual_seed(1)).double()
    spk, _ = neuron.sequence(x)
    single = copy.deepcopy(neuron).float()
    assert torch.equal(spk.float(), single.sequence(x.float())[0])


def test_fixed_learned_integer__is_a_float_parameter() -> None:
    neuron = snn.Leaky(beta=1, threshold=1, learn_beta=True, learn_threshold=True)
    assert neuron.beta.dtype == neuron.threshold.dtype == torch.float32
    neuron(torch.full((2, 3), 1.5))[1].sum().backward()
    assert neuron.beta.grad is not None


def test_fixed_numpy_beta__does_not_widen_the_state() -> None:
    import numpy as np

    beta = np.array([0.5, 0.25, 0.75])
    assert snntorch.Leaky(beta)(torch.ones(2, 3))[1].dtype == torch.float64
    assert snn.Leaky(beta)(torch.ones(2, 3))[1].dtype == torch.float32
    assert snn.Leaky(np.float64(0.5))(torch.ones(2, 3))[1].dtype == torch.float32


def test_fixed_shared_tensor__two_layers_learn_their_own_copy() -> None:
    beta = torch.full((5,), 0.5)
    first, second = (snn.Leaky(beta, learn_beta=True) for _ in range(2))
    with torch.no_grad():
        first.beta.fill_(0.25)
    assert second.beta.eq(0.5).all() and beta.eq(0.5).all()
    parameter = nn.Parameter(beta)
    assert snn.Leaky(parameter, learn_beta=True).beta is parameter, "a parameter is shared where the user means it"


def test_fixed_reset_mechanism__set_later_or_loaded__changes_the_dynamics() -> None:
    x = grid(6, 3, 5, low=0.0, high=2.0, generator=torch.Generator().manual_seed(1))
    zero = snn.Leaky(0.5, reset_mechanism="zero")
    expected = zero.sequence(x, trace="mem")[2]
    assert not torch.equal(snn.Leaky(0.5).sequence(x, trace="mem")[2], expected)
    later, loaded = snn.Leaky(0.5), snn.Leaky(0.5)
    later.reset_mechanism = "zero"
    loaded.load_state_dict(zero.state_dict())
    for neuron in (later, loaded):
        assert neuron.reset_mechanism == "zero" and int(neuron.reset_mechanism_val) == 1
        assert torch.equal(neuron.sequence(x, trace="mem")[2], expected)


@pytest.mark.parametrize("backend", ["reference", "cpu"])
def test_fixed_sigmoid__far_below_threshold__gradient_is_finite(backend: str) -> None:
    x = torch.tensor([[-200.0, -4.0, 0.9, 200.0]], requires_grad=True)
    spk, _ = snn.Leaky(0.5, spike_grad=snn.surrogate.sigmoid(slope=25), backend=backend)(x)
    spk.sum().backward()
    assert torch.isfinite(x.grad).all() and x.grad[0, 2] > 1


@pytest.mark.parametrize("backend", ["reference", "cpu"])
def test_fixed_LSO__is_one_above_the_threshold_and_the_slope_below(backend: str) -> None:
    x = torch.tensor([[-1.0, 0.5, 1.5, 3.0]], requires_grad=True)
    snn.Leaky(0.5, spike_grad=snn.surrogate.LSO(slope=0.25), backend=backend)(x)[0].sum().backward()
    assert x.grad.tolist() == [[0.25, 0.25, 1.0, 1.0]]


@pytest.mark.parametrize("reset", RESETS)
def test_fixed_rsynaptic__reset_at_once__equals_synaptic_where_there_is_no_feedback(reset: str) -> None:
    x = grid(STEPS, *DENSE, low=-1.0, high=2.0, generator=torch.Generator().manual_seed(1))
    common = {"alpha": 0.5, "beta": 0.75, "reset_mechanism": reset, "reset_delay": False, "backend": "reference"}
    spk, states, mem = snn.Synaptic(**common).sequence(x, trace="mem")
    recurrent = snn.RSynaptic(**common, all_to_all=False, V=0.0)
    same_spk, same_states, same_mem = recurrent.sequence(x, trace="mem")
    assert spk.mean() > 0.1
    assert torch.equal(spk, same_spk) and torch.equal(mem, same_mem) and torch.equal(states[0], same_states[1])


@pytest.mark.parametrize("backend", ["reference", "cpu"])
def test_fixed_alpha__learned_alpha__has_the_gradient_of_snntorchs_equations(backend: str) -> None:
    x = 0.5 + torch.randn(STEPS, *DENSE, generator=torch.Generator().manual_seed(1))
    alpha = torch.tensor(0.75, requires_grad=True)
    theirs = snntorch.Alpha(0.75, 0.5, threshold=0.25, spike_grad=snntorch.surrogate.fast_sigmoid(SLOPE))
    theirs.alpha = alpha  # a parameter there is an error
    ours = snn.Alpha(
        0.75,
        0.5,
        threshold=0.25,
        learn_alpha=True,
        spike_grad=snn.surrogate.fast_sigmoid(SLOPE),
        backend=backend,
    )
    expected = [theirs(x_t) for x_t in x]
    spk, _, mem = ours.sequence(x, trace="mem")
    assert (mem - 0.25).abs().min() > 1e-6 and 0.1 < spk.mean() < 0.9
    assert torch.equal(spk, torch.stack([out[0] for out in expected]))
    (spk.sum() + mem.square().sum()).backward()
    (sum(out[0].sum() for out in expected) + sum(out[3].square().sum() for out in expected)).backward()
    torch.testing.assert_close(ours.alpha.grad, alpha.grad, rtol=1e-4, atol=1e-4)


def test_fixed_lapicque__learned_beta__trains_for_more_than_one_step() -> None:
    x = torch.randn(STEPS, *DENSE, generator=torch.Generator().manual_seed(1))
    for given in ({}, {"R": 2.0}, {"C": 0.5}):
        neuron = snn.Lapicque(beta=0.5, learn_beta=True, **given)
        optimizer = torch.optim.SGD(neuron.parameters(), lr=0.01)
        membranes = []
        for _ in range(3):
            _, _, mem = neuron.sequence(x, trace="mem")
            membranes.append(mem.detach())
            optimizer.zero_grad()
            mem.square().mean().backward()
            assert torch.isfinite(neuron.beta.grad) and neuron.beta.grad != 0
            optimizer.step()
        assert not torch.equal(membranes[0], membranes[2]), "the learned beta changes nothing"


def test_fixed_lapicque__a_beta_per_neuron__equals_one_neuron_each() -> None:
    x = torch.randn(STEPS, 3, 2, generator=torch.Generator().manual_seed(1))
    together = snn.Lapicque(beta=torch.tensor([0.5, 0.75]), backend="reference").sequence(x, trace="mem")[2]
    for position, beta in enumerate((0.5, 0.75)):
        alone = snn.Lapicque(beta=beta, backend="reference").sequence(x[:, :, position : position + 1], trace="mem")[2]
        torch.testing.assert_close(together[:, :, position], alone[:, :, 0])


@pytest.mark.filterwarnings("ignore:.*inhibition:UserWarning")
def test_fixed_inhibition__on_images__one_channel_per_pixel_may_spike() -> None:
    neuron = snn.Leaky(0.5, inhibition=True, backend="reference")
    spk, mem = neuron(torch.tensor([1.5, 2.5, 3.5]).reshape(1, 3, 1, 1).expand(2, 3, 4, 4))
    assert spk.sum(1).eq(1).all() and spk[:, 2].all() and mem[:, 1].gt(1).all()


def test_fixed_hidden_state__states_given_with_init_hidden__leaves_the_state_alone() -> None:
    neuron = snn.Leaky(0.5, init_hidden=True)
    neuron(torch.full((2, 3), 0.75))
    with pytest.raises(TypeError, match="Drop the states"):
        neuron(torch.ones(2, 3), torch.zeros(2, 3))
    assert neuron.mem.eq(0.75).all()


@pytest.mark.parametrize("shape", [(4, 3), (1, 3), (3,), (2, 1)], ids=str)
def test_fixed_hidden_state__of_another_shape__is_an_error_not_a_silent_restart(shape: tuple[int, ...]) -> None:
    with pytest.raises(snn.errors.ShapeError, match="reset_mem"):
        snn.Leaky(0.5)(torch.ones(2, 3), torch.ones(shape))


class Draws:
    """A surrogate whose spikes are drawn at random, more of them for a higher membrane."""

    def __call__(self, u: Tensor) -> Tensor:
        return (torch.rand_like(u) < torch.sigmoid(u)).to(u.dtype)


@pytest.mark.parametrize("reset", ["subtract", "zero"])
@pytest.mark.filterwarnings("ignore::snn_ipu.errors.FallbackWarning")
def test_fixed_random_spikes__reset_follows_the_spikes_that_there_were(reset: str) -> None:
    torch.manual_seed(0)
    neuron = snn.Leaky(0.5, spike_grad=Draws(), reset_mechanism=reset, learn_threshold=True)
    x, states = torch.full((20, 3, 50), 0.75), []
    spikes, _, trace = neuron.sequence(x, trace="mem")
    states.append((spikes.detach(), trace.detach()))
    spikes, mems, mem = [], [], neuron.reset_mem()
    for x_t in x:
        spk, mem = neuron(x_t, mem)
        spikes.append(spk.detach())
        mems.append(mem.detach())
    states.append((torch.stack(spikes), torch.stack(mems)))
    for spk, trace in states:
        kept = 0.5 * trace[:-1] if reset == "subtract" else 0.5 * trace[:-1] * (1 - spk[:-1])
        expected = kept + x[1:] - (spk[:-1] if reset == "subtract" else 0)
        torch.testing.assert_close(trace[1:], expected)
        assert 0.2 < spk.mean() < 0.8
    with torch.no_grad():
        mem.mul_(100)
    assert neuron(x[0], mem)[1].shape == mem.shape, "a membrane that was changed is drawn from anew"


@pytest.mark.parametrize("name", ["fire", "_base_state_function", "mem_reset"])
def test_fixed_subclass__that_overrides_a_part_of_snntorchs__is_refused(name: str) -> None:
    assert any(hasattr(getattr(snntorch, kind), name) for kind in BUILDS)
    with pytest.raises(TypeError, match=rf"class Own overrides {name}.*snn_ipu\.neuron"):
        type("Own", (snn.Leaky,), {name: lambda self, mem: mem})


def test_autocast__layers_before__give_the_dtype_of_spikes() -> None:
    net = nn.Sequential(
        nn.Linear(6, 5), snn.Leaky(0.9, init_hidden=True), nn.Linear(5, 4), snn.RLeaky(0.9, linear_features=4)
    )
    x = torch.randn(3, 6)
    with torch.autocast("cpu", torch.bfloat16):
        spk, mem = net(x)
        spikes, state = snn.unroll(net, x, num_steps=4)
    assert spk.dtype == spikes.dtype == torch.bfloat16
    assert mem.dtype == net[1].mem.dtype == state["3"][1].dtype == torch.float32
    (spikes.float().sum() + state["3"][1].sum()).backward()
    assert net[0].weight.grad is not None and net[0].weight.grad.dtype == torch.float32 and net[0].weight.grad.any()


@pytest.mark.parametrize("kind", BUILDS)
@pytest.mark.parametrize("sequence", [False, True], ids=["loop", "sequence"])
def test_long_sequence__same_spikes_and_gradients_as_snntorch(kind: str, sequence: bool) -> None:
    torch.manual_seed(1)
    options = {**BUILDS[kind], **LEARNED[kind], **({"beta": 0.9} if kind != "Alpha" else {})}
    options.update({"V": -0.25} if kind == "RSynaptic" else {})
    theirs, ours = getattr(snntorch, kind)(**options), getattr(snn, kind)(**options)
    if kind == "Lapicque":
        theirs, ours = (library.Lapicque(beta=0.9, R=20.0, learn_threshold=True) for library in (snntorch, snn))
    ours.load_state_dict(theirs.state_dict())
    x = (torch.rand(250, 3, 5) * (2.0 if kind == "Alpha" else 0.6)).requires_grad_()
    weights = torch.rand(250, 3, 5)
    found = []
    for neuron, whole in ((theirs, False), (ours, sequence)):
        if whole:
            spk = neuron.sequence(x)[0]
        else:
            states, record = neuron.reset_mem(), []
            for x_t in x:
                spk, *states = neuron(x_t, *(states if isinstance(states, (list, tuple)) else (states,)))
                states = [spk, *states] if kind in ("RLeaky", "RSynaptic") else states
                record.append(spk)
            spk = torch.stack(record)
        grads = torch.autograd.grad((spk * weights).sum(), (x, *neuron.parameters()))
        found.append((spk, grads))
    (their_spk, their_grads), (our_spk, our_grads) = found
    assert torch.equal(our_spk, their_spk) and 0.02 < our_spk.mean() < 0.9
    for a, b in zip(our_grads, their_grads):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-4 * b.abs().max().item())


def test_fixed_copies__reset_clears_them_and_no_other_network() -> None:
    net = nn.Sequential(nn.Linear(3, 3), nn.ModuleDict({"inner": snn.Leaky(0.5)})["inner"])
    twin = copy.deepcopy(net)
    for n in (net, twin):
        n(torch.ones(2, 3))
    snn.utils.reset(twin)
    assert twin[1].mem.shape == (0,) and net[1].mem.shape == (2, 3)
