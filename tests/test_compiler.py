"""The compiler: what a step may be, what it must refuse and how, what backward keeps, and the printed functions."""

from __future__ import annotations

import ctypes
import math
import subprocess
import warnings
from pathlib import Path
from typing import Any, Callable

import numpy as np
import pytest
import torch
from helpers import Setup
from torch import Tensor

import snn_ipu as snn
from snn_ipu import spike
from snn_ipu.backends import cache, cpu
from snn_ipu.compiler.adjoint import differentiate
from snn_ipu.compiler.plan import Plan, plan
from snn_ipu.compiler.program import Graph
from snn_ipu.compiler.trace import ALLOWED, trace
from snn_ipu.errors import TraceError

STE = snn.surrogate.straight_through_estimator()
OUTSIDE = torch.tensor([1.0, 2.0, 3.0])
LEARNED = torch.tensor(0.5, requires_grad=True)


class Steps:
    """Steps that a kernel runs, at points where derivatives have two sides: u - 0.5 and so on are often exactly 0."""

    @staticmethod
    def minimum(x: Tensor, mem: Tensor, *, p: Tensor) -> Any:
        return spike(torch.minimum(x, mem) - p), torch.min(mem, x)

    @staticmethod
    def maximum(x: Tensor, mem: Tensor, *, p: Tensor) -> Any:
        return spike(torch.maximum(x, mem) - p), torch.max(mem, p * torch.ones_like(x))

    @staticmethod
    def clamp_between_numbers(x: Tensor, mem: Tensor, *, p: Tensor) -> Any:
        return spike(x - p), torch.clamp(mem + x, -0.5, 0.5)

    @staticmethod
    def clamp_between_tensors_that_meet_and_cross(x: Tensor, mem: Tensor, *, p: Tensor) -> Any:
        return spike(x), torch.clamp(mem, x, p * torch.ones_like(x))

    @staticmethod
    def clamp_to_one_value(x: Tensor, mem: Tensor, *, p: Tensor) -> Any:
        return spike(x), torch.clamp(mem, p, p)

    @staticmethod
    def clamp_on_one_side(x: Tensor, mem: Tensor, *, p: Tensor) -> Any:
        return spike(x - p), torch.clamp(mem, min=x) + 0.5 * mem.clamp(max=x)

    @staticmethod
    def relu_and_abs_at_zero(x: Tensor, mem: Tensor, *, p: Tensor) -> Any:
        return spike(x - p), torch.relu(mem) + torch.relu(x - p) + 0.5 * mem.abs() + torch.sign(x) * mem

    @staticmethod
    def where_with_ties(x: Tensor, mem: Tensor, *, p: Tensor) -> Any:
        return spike(x - p), torch.where(x == mem, x, p * mem) + torch.where(x >= mem, x * x, mem.where(x > 0, p))

    @staticmethod
    def where_with_uniform_branches(x: Tensor, mem: Tensor, *, p: Tensor) -> Any:
        return spike(torch.where(x > mem, p, -p)), torch.where(mem > 0, p, 0.25)

    @staticmethod
    def powers_at_zero(x: Tensor, mem: Tensor, *, p: Tensor) -> Any:
        return spike(x - p), x**2 + mem.abs() ** 3 + x**0

    @staticmethod
    def learned_exponent_and_base(x: Tensor, mem: Tensor, *, p: Tensor) -> Any:
        return spike(x - p), x.abs() ** (p + 1) + (p + 0.5) ** x + 2**x + 0.0 ** x.abs() + 0.5 * mem

    @staticmethod
    def sums_of_comparisons(x: Tensor, mem: Tensor, *, p: Tensor) -> Any:
        both = (x > 0).detach() + (mem > 0)
        return spike(x - p), both * mem + (x > 0) + torch.where(x > 0, mem > 0, mem < 0) * x

    @staticmethod
    def spikes_as_comparison(x: Tensor, mem: Tensor, *, p: Tensor) -> Any:
        return mem > p, 0.5 * mem + x

    @staticmethod
    def signed_zero(x: Tensor, mem: Tensor, *, p: Tensor) -> Any:
        return spike(x - p), torch.clamp(1 / (x * -0.0), -1.0, 1.0) + 1 * (mem * 0.0)

    @staticmethod
    def state_held(x: Tensor, mem: Tensor, *, p: Tensor) -> Any:
        return spike(x * mem - p), mem

    @staticmethod
    def state_from_input(x: Tensor, mem: Tensor, *, p: Tensor) -> Any:
        return spike(x * mem - p), x

    @staticmethod
    def state_from_parameter(x: Tensor, mem: Tensor, *, p: Tensor) -> Any:
        return spike(x * mem - p), p

    @staticmethod
    def state_from_number(x: Tensor, mem: Tensor, *, p: Tensor) -> Any:
        return spike(x * mem - p), 0.25

    @staticmethod
    def state_ignored(x: Tensor, mem: Tensor, *, p: Tensor) -> Any:
        return spike(x - p), torch.zeros_like(x)

    @staticmethod
    def state_that_never_spikes(x: Tensor, mem: Tensor, *, p: Tensor) -> Any:
        return spike(x - p), p * mem + x

    @staticmethod
    def spikes_without_input(x: Tensor, mem: Tensor, *, p: Tensor) -> Any:
        return spike(mem - p), 0.5 * mem

    @staticmethod
    def spikes_of_a_parameter(x: Tensor, mem: Tensor, *, p: Tensor) -> Any:
        return spike(p - 0.25), mem * p + x

    @staticmethod
    def parameter_only_detached(x: Tensor, mem: Tensor, *, p: Tensor) -> Any:
        return spike(x - 0.25), mem * p.detach() + x

    @staticmethod
    def three_spikes(x: Tensor, mem: Tensor, *, p: Tensor) -> Any:
        mem = mem + x - spike(mem + x - 0.25) * 0.5 - spike(mem - p).detach() * p
        return spike(mem - p), mem

    @staticmethod
    def input_as_membrane(x: Tensor, mem: Tensor, *, p: Tensor) -> Any:
        return spike(x) * mem + spike(mem), 0.5 * mem * x

    @staticmethod
    def list_returned(x: Tensor, mem: Tensor, *, p: Tensor) -> Any:
        return [spike(mem - p), 0.5 * mem + x]

    @staticmethod
    def number_from_a_tensor(x: Tensor, mem: Tensor, *, p: Tensor) -> Any:
        mem = torch.tensor(0.5) * mem + x
        mem -= 0.25
        return spike(mem - p), mem

    @staticmethod
    def functions_of_torch_nn(x: Tensor, mem: Tensor, *, p: Tensor) -> Any:
        f = torch.nn.functional
        return spike(f.relu(x) - p), f.relu(mem.clone().to(x.dtype).to(x)) + torch.full_like(x, 0.25)


def _on_grid(fn: Callable[..., Any], p: Tensor) -> Setup:
    """Values in quarters, many of them equal to each other, to 0, or to p."""
    x = torch.randint(-2, 3, (3, 5, 3)).float() / 4
    mem = torch.randint(-2, 3, (5, 3)).float() / 4
    return Setup("Step", fn, ("mem",), {}, x, (mem,), {"p": p}, {"traced": ("mem",)})


ON_GRID = [name for name in vars(Steps) if not name.startswith("_")]


@pytest.mark.parametrize("name", ON_GRID)
def test_step__on_ties_and_edges__equals_the_reference(name: str) -> None:
    for p in (torch.tensor(0.5), torch.tensor([0.0, 0.5, 0.25])):
        results = []
        setup = _on_grid(getattr(Steps, name), p)
        for backend in ("cpu", "reference"):
            call = setup.leaves()
            outputs = call.run(backend, STE)
            weights = {n: torch.arange(1.0, t.numel() + 1).reshape(t.shape) % 7 - 3 for n, t in outputs.items()}
            results.append({**outputs, **call.gradients(outputs, weights)})
        for key, want in results[1].items():
            torch.testing.assert_close(results[0][key], want, rtol=1e-6, atol=1e-6, equal_nan=True, msg=key)


@snn.neuron(states=())
def stateless(x: Tensor, *, gain: Tensor = 2.0) -> Any:  # type: ignore[assignment]
    return (spike(gain * x - 1),)


@snn.neuron(states=("old", "older", "mem"))
def delayed(x: Tensor, old: Tensor, older: Tensor, mem: Tensor, *, beta: Tensor = 0.5) -> Any:  # type: ignore[assignment]
    mem = beta * mem + x * older
    return spike(mem - 0.5), x, old, mem


@snn.neuron(states=("left", "right"))
def swapped(x: Tensor, left: Tensor, right: Tensor, *, gain: Tensor = 0.75) -> Any:  # type: ignore[assignment]
    return spike(left * right + x), right * gain, left


@snn.neuron(states=("mem",))
def below(x: Tensor, mem: Tensor, *, gain: Tensor = 1.0, level: Tensor = 0.5) -> Any:  # type: ignore[assignment]
    mem = gain * mem + x
    return spike(level - mem), mem


@pytest.mark.parametrize("kind", [stateless, delayed, swapped, below], ids=lambda k: k.__name__)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_neuron__with_unusual_states_or_threshold__equals_the_reference(
    kind: Callable[..., snn.SpikingNeuron], dtype: torch.dtype
) -> None:
    """Quarters are exact in 16 bits too, so nothing is lost in what backward keeps."""
    x = torch.randint(-4, 5, (6, 2, 5)).to(dtype) / 4
    results = []
    for backend in ("cpu", "reference"):
        leaf = x.clone().requires_grad_()
        neuron = kind(spike_grad=STE, learn=tuple(kind().params()), backend=backend)
        start = tuple(torch.full((2, 5), 0.5).requires_grad_() for _ in neuron.state_names)
        spk, state = neuron.sequence(leaf, start)
        loss = (spk.float() * torch.arange(5)).sum() + sum((k + 1) * s.square().sum() for k, s in enumerate(state))
        loss.backward()
        results.append([spk, *state, leaf.grad, *(s.grad for s in start), *(p.grad for p in neuron.parameters())])
    for got, want in zip(*results):
        torch.testing.assert_close(got, want, rtol=1e-6, atol=1e-6)


def test_parameter__of_one_value_in_a_list__gets_a_gradient_of_that_shape() -> None:
    for width in (1, 4):
        neuron = snn.Leaky(torch.tensor([0.75]), learn_beta=True, spike_grad=STE, backend="cpu")
        neuron.sequence(torch.ones(3, 2, width))[0].sum().backward()
        assert neuron.beta.grad is not None
        assert neuron.beta.grad.shape == (1,)
        assert neuron.beta.grad.item() != 0


def branch(x: Tensor, mem: Tensor, *, p: Any = 0.5) -> Any:
    if (mem > 0).any():
        mem = p * mem
    return spike(mem + x - 1), mem + x


def mean(x: Tensor, mem: Tensor, *, p: Any = 0.5) -> Any:
    mem = p * mem + x - x.mean()
    return spike(mem - 1), mem


def python_number(x: Tensor, mem: Tensor, *, p: Any = 0.5) -> Any:
    mem = float(p) * mem + x
    return spike(mem - 1), mem


def python_math(x: Tensor, mem: Tensor, *, p: Any = 0.5) -> Any:
    mem = math.exp(-p) * mem + x
    return spike(mem - 1), mem


def through_numpy(x: Tensor, mem: Tensor, *, p: Any = 0.5) -> Any:
    mem = torch.as_tensor(np.tanh(mem.detach().numpy())) + x
    return spike(mem - 1), mem


def shape(x: Tensor, mem: Tensor, *, p: Any = 0.5) -> Any:
    mem = p * mem + x / x.shape[-1]
    return spike(mem - 1), mem


def length(x: Tensor, mem: Tensor, *, p: Any = 0.5) -> Any:
    mem = p * mem + x / len(x)
    return spike(mem - 1), mem


def index(x: Tensor, mem: Tensor, *, p: Any = 0.5) -> Any:
    mem = p * mem + x[0]
    return spike(mem - 1), mem


def item_set(x: Tensor, mem: Tensor, *, p: Any = 0.5) -> Any:
    mem = p * mem + x
    mem[mem > 1] = 0
    return spike(mem - 1), mem


def in_place(x: Tensor, mem: Tensor, *, p: Any = 0.5) -> Any:
    mem = (mem * p).add_(x)
    return spike(mem - 1), mem


def relu_in_place(x: Tensor, mem: Tensor, *, p: Any = 0.5) -> Any:
    mem = torch.nn.functional.relu(p * mem + x, inplace=True)
    return spike(mem - 1), mem


def largest(x: Tensor, mem: Tensor, *, p: Any = 0.5) -> Any:
    mem = p * mem + x.max()
    return spike(mem - 1), mem


def rounded_by_half(x: Tensor, mem: Tensor, *, p: Any = 0.5) -> Any:
    mem = p * mem + x.to(torch.float16)
    return spike(mem - 1), mem


def rounded_to_whole(x: Tensor, mem: Tensor, *, p: Any = 0.5) -> Any:
    mem = p * mem + x.to(torch.int32)
    return spike(mem - 1), mem


def floor_division(x: Tensor, mem: Tensor, *, p: Any = 0.5) -> Any:
    mem = p * mem + torch.div(x, 2, rounding_mode="floor")
    return spike(mem - 1), mem


def tensor_from_outside(x: Tensor, mem: Tensor, *, p: Any = 0.5) -> Any:
    mem = p * mem + OUTSIDE * x
    return spike(mem - 1), mem


def learned_from_outside(x: Tensor, mem: Tensor, *, p: Any = 0.5) -> Any:
    mem = p * mem + LEARNED * x
    return spike(mem - 1), mem


def no_grad(x: Tensor, mem: Tensor, *, p: Any = 0.5) -> Any:
    with torch.no_grad():
        decayed = p * mem
    return spike(decayed + x - 1), decayed + x


def own_surrogate(x: Tensor, mem: Tensor, *, p: Any = 0.5) -> Any:
    mem = p * mem + x
    return spike(mem - 1, snn.surrogate.atan()), mem


def iterated(x: Tensor, mem: Tensor, *, p: Any = 0.5) -> Any:
    rows = torch.stack([p * row for row in mem])
    return spike(rows - 1), rows + x


REFUSED: list[tuple[Callable[..., Any], str, str]] = [
    (branch, "if (mem > 0).any():", "Python `if`"),
    (mean, "x.mean()", "`mean` cannot become a kernel"),
    (python_number, "float(p) * mem", "float() argument"),
    (python_math, "math.exp(-p)", "must be real number"),
    (through_numpy, "np.tanh(", "."),
    (shape, "x.shape[-1]", ".shape has no value in a kernel"),
    (length, "len(x)", "len"),
    (index, "x[0]", "`getitem`"),
    (item_set, "mem[mem > 1] = 0", "item assignment"),
    (in_place, "add_(x)", "`add_`"),
    (relu_in_place, "inplace=True", "inplace=True changes its argument"),
    (largest, "x.max()", "required positional argument"),
    (rounded_by_half, "x.to(torch.float16)", "a cast to torch.float16 would round"),
    (rounded_to_whole, "x.to(torch.int32)", "a cast to torch.int32 would round"),
    (floor_division, 'rounding_mode="floor"', "rounding_mode"),
    (tensor_from_outside, "OUTSIDE * x", "a constant tensor of shape (3,) from outside"),
    (learned_from_outside, "LEARNED * x", "a learnable tensor of shape () from outside"),
    (no_grad, "decayed = p * mem", "torch.no_grad() inside"),
    (own_surrogate, "spike(mem - 1, snn.surrogate.atan())", "a step has one surrogate"),
    (iterated, "for row in mem", "unpacked or iterated"),
]
# Where the list of operations is no help, the message says what to write instead.
WITH_OWN_REMEDY = {"tensor_from_outside", "learned_from_outside", "no_grad", "own_surrogate"}


@pytest.mark.parametrize(("step", "line", "reason"), REFUSED, ids=[r[0].__name__ for r in REFUSED])
def test_step__that_is_not_element_wise__is_refused_with_its_line_and_run_by_the_reference(
    step: Callable[..., Any], line: str, reason: str
) -> None:
    kind = snn.neuron(states=("mem",))(step)
    x = torch.randn(4, 2, 3)
    with pytest.raises(snn.errors.UnsupportedError) as caught:
        kind(p=0.5, backend="cpu").sequence(x)
    message = str(caught.value)
    first = step.__code__.co_firstlineno
    lines = {f"{__file__}:{number}: " for number in range(first, first + 6)}
    assert any(place in message for place in lines), message
    assert line in message
    assert reason in message
    assert ALLOWED in message or step.__name__ in WITH_OWN_REMEDY

    spk, _ = kind(p=0.5, backend="reference").sequence(x)
    with warnings.catch_warnings(record=True) as given:
        warnings.simplefilter("always")
        neuron = kind(p=0.5)
        for _ in range(3):
            again, _ = neuron.sequence(x)
    assert [w.category for w in given] == [snn.FallbackWarning]
    assert line in str(given[0].message)
    assert torch.equal(spk, again)


def test_surrogate__that_cannot_become_a_kernel__is_refused_with_its_line() -> None:
    @snn.surrogate.define()
    def ranked(u: Tensor) -> Tensor:
        return u.argsort().to(u.dtype)

    with pytest.raises(snn.errors.UnsupportedError, match=r"surrogate ranked at .*: return u.argsort\(\).*`argsort`"):
        snn.Leaky(0.9, spike_grad=ranked(), backend="cpu").sequence(torch.randn(3, 2, 4))


def test_surrogate__plain_callable__is_refused_by_name_and_run_by_the_reference() -> None:
    def custom(u: Tensor) -> Tensor:
        return torch.sigmoid(u)

    x = torch.randn(3, 2, 4)
    with pytest.raises(snn.errors.UnsupportedError, match="spike_grad custom is a plain callable"):
        snn.Leaky(0.9, spike_grad=custom, backend="cpu").sequence(x)
    with pytest.warns(snn.FallbackWarning, match="custom"):
        snn.Leaky(0.9, spike_grad=custom).sequence(x)


@pytest.mark.parametrize("count", [0, 1, 3])
@pytest.mark.parametrize("backend", ["auto", "cpu", "reference"])
def test_step__returning_too_few_or_too_many_values__is_refused_by_every_backend(count: int, backend: str) -> None:
    def step(x: Tensor, mem: Tensor) -> Any:
        return spike(mem) if count == 0 else (spike(mem),) * count

    kind = snn.neuron(states=("mem",))(step)
    found = "one value" if count == 0 else f"{count} values"
    with warnings.catch_warnings(), pytest.raises(
        snn.errors.UnsupportedError, match=rf"returned {found}; expected a tuple of spk and 1 new states"
    ):
        warnings.simplefilter("error")
        kind(backend=backend).sequence(torch.randn(3, 2, 4))


def test_step__that_changes_its_state_in_place__is_refused_by_the_reference() -> None:
    def step(x: Tensor, mem: Tensor) -> Any:
        mem += x
        return spike(mem - 1), mem

    start = torch.zeros(2, 4)
    with pytest.raises(snn.errors.UnsupportedError, match=r"in place.*Write mem = mem"):
        snn.neuron(states=("mem",))(step)(backend="reference").sequence(torch.ones(3, 2, 4), (start,))


def test_step__that_fails_by_itself__shows_its_own_error_under_auto() -> None:
    def step(x: Tensor, mem: Tensor) -> Any:
        raise KeyError("my table")

    kind = snn.neuron(states=("mem",))(step)
    with pytest.raises(KeyError, match="my table"):
        kind().sequence(torch.ones(3, 2, 4))


def _planned(kind: snn.SpikingNeuron, learn: bool = False, narrow: bool = False) -> tuple[Any, Plan]:
    names = tuple(kind.params())
    program = trace(type(kind).step, kind.state_names, names, kind.flags(), snn.surrogate.fast_sigmoid())
    return program, plan(program, differentiate(program, names if learn else ()), (), narrow)


def test_graph__equal_nodes_and_constants__are_one_node() -> None:
    g = Graph()
    a, b = g.input("x"), g.const(2.0)
    assert g.add("mul", a, b) == g.add("mul", a, b)
    assert g.constant(g.add("add", b, g.const(3.0))) == 5.0
    assert (
        g.add("mul", g.const(1.0), a) == a == g.add("div", a, g.const(1.0)) == g.add("where", g.add("gt", a, b), a, a)
    )
    assert g.const(0.0) != g.const(-0.0)


@pytest.mark.parametrize(
    ("neuron", "learn", "values", "needs_x"),
    [
        (snn.Leaky(0.9), False, 1, False),
        (snn.Leaky(0.9), True, 1, False),
        (snn.Leaky(0.9, reset_mechanism="zero"), True, 1, False),
        (snn.Synaptic(0.9, 0.8), False, 1, False),
        (snn.Synaptic(0.9, 0.8), True, 2, False),
        (snn.Alpha(0.9, 0.8), False, 1, False),
        (snn.RLeaky(0.9, all_to_all=False), True, 1, False),
        (snn.Lapicque(R=2.0, C=1.5), True, 1, True),
        (snn.AdaptiveLeaky(), False, 1, False),
        (snn.QIF(), False, 1, False),
        (snn.EIF(), False, 1, False),
        (snn.Izhikevich(), False, 1, False),
    ],
    ids=lambda v: type(v).__name__ if isinstance(v, snn.SpikingNeuron) else str(v),
)
def test_plan__of_a_neuron__keeps_the_fewest_values(
    neuron: snn.SpikingNeuron, learn: bool, values: int, needs_x: bool
) -> None:
    for narrow in (False, True):
        _, kept = _planned(neuron, learn, narrow)
        assert (len(kept.saved), kept.needs_x) == (values, needs_x)


@pytest.mark.parametrize("delay", [True, False])
@pytest.mark.parametrize("reset", ["subtract", "zero", "none"])
@pytest.mark.parametrize("kind", [snn.Leaky, snn.RLeaky, snn.Synaptic], ids=lambda k: k.__name__)
def test_plan__in_16_bits__takes_every_spike_from_its_kept_argument(kind: Any, reset: str, delay: bool) -> None:
    """A spike taken from a rounded membrane could be another spike than the one that was sent."""
    more = {snn.Leaky: {}, snn.RLeaky: {"all_to_all": False}, snn.Synaptic: {"alpha": 0.8}}[kind]
    program, kept = _planned(kind(beta=0.9, reset_mechanism=reset, reset_delay=delay, **more), True, narrow=True)
    nodes = program.graph.nodes
    new_state = dict(zip(map(program.state, program.states), program.new_states))
    for node in (nodes[i] for i, _ in kept.values if nodes[i].op == "spike"):
        u = nodes[node.args[0]]
        last = [i for i in kept.saved if nodes[i].op == u.op and nodes[i].args == (new_state.get(u.args[0]), u.args[1])]
        assert node.args[0] in kept.saved or last


def test_plan__of_a_step_with_many_values__is_found_in_bounded_time() -> None:
    """Hodgkin and Huxley's four equations have so many values that trying every choice of five would take hours."""

    def step(x: Tensor, v: Tensor, m: Tensor, h: Tensor, n: Tensor, *, dt: Tensor) -> Any:
        rates = [0.1 * (v + 40) / (1 - torch.exp(-(v + 40) / 10)), 4 * torch.exp(-(v + 65) / 18)]
        rates += [0.07 * torch.exp(-(v + 65) / 20), 1 / (1 + torch.exp(-(v + 35) / 10))]
        rates += [0.01 * (v + 55) / (1 - torch.exp(-(v + 55) / 10)), 0.125 * torch.exp(-(v + 65) / 80)]
        current = 120 * m**3 * h * (v - 50) + 36 * n**4 * (v + 77) + 0.3 * (v + 54.4)
        gates = [g + dt * (a * (1 - g) - b * g) for g, a, b in zip((m, h, n), rates[::2], rates[1::2])]
        v = v + dt * (x - current)
        return (spike(v), v, *gates)

    program = trace(step, ("v", "m", "h", "n"), ("dt",), {}, snn.surrogate.atan())
    assert len(program.graph.nodes) > 100
    kept = plan(program, differentiate(program, ("dt",)))
    assert len(kept.saved) == 4


_LIBRARY = """
#include "scan_math.hpp"
#define MAP(name, f, S) \\
  extern "C" void name(const S* in, S* out, int64_t n) { for (int64_t i = 0; i < n; ++i) out[i] = f(in[i]); }
#define BOTH(f) MAP(f##float, snn::f, float) MAP(f##double, snn::f, double)
BOTH(exp_) BOTH(log_) BOTH(tanh_) BOTH(sigmoid_)
#define HALF(name, H) \\
  extern "C" void load_##name(const uint16_t* in, float* out, int64_t n) { \\
    for (int64_t i = 0; i < n; ++i) out[i] = snn::load(snn::H{in[i]}); \\
  } \\
  extern "C" void store_##name(const float* in, uint16_t* out, int64_t n) { \\
    snn::H* to = reinterpret_cast<snn::H*>(out); \\
    for (int64_t i = 0; i < n; ++i) snn::store(&to[i], in[i]); \\
  } \\
  extern "C" void signed_##name(const float* in, uint16_t* out, int64_t n) { \\
    snn::H* to = reinterpret_cast<snn::H*>(out); \\
    for (int64_t i = 0; i < n; ++i) snn::store_signed(&to[i], in[i]); \\
  }
HALF(float16, f16) HALF(bfloat16, bf16)
"""
Call = Callable[[str, np.ndarray, Any], np.ndarray]


@pytest.fixture(scope="module")
def call(tmp_path_factory: pytest.TempPathFactory) -> Call:
    """call(name, values, dtype): a function of the kernels' header, compiled as kernels are, over an array."""
    folder = tmp_path_factory.mktemp("scan_math")
    source = folder / "functions.cpp"
    source.write_text(_LIBRARY)
    compiler = cache.find_compiler()
    assert compiler is not None
    header = Path(cpu.__file__).parent / "native"
    target = str(folder / "functions.so")
    subprocess.run([compiler, *cpu.FLAGS, f"-I{header}", str(source), "-o", target], check=True)
    library = ctypes.CDLL(target)

    def over(name: str, values: np.ndarray, dtype: Any) -> np.ndarray:
        given = np.ascontiguousarray(values)
        out = np.empty(given.shape, dtype)
        getattr(library, name)(
            given.ctypes.data_as(ctypes.c_void_p), out.ctypes.data_as(ctypes.c_void_p), ctypes.c_int64(given.size)
        )
        return out

    return over


def _in_ulp(got: np.ndarray, exact: np.ndarray) -> float:
    """The largest error in units in the last place of the exact result's own type."""
    rounded = exact.astype(got.dtype)
    regular = np.isfinite(rounded)
    np.testing.assert_array_equal(got[~regular], rounded[~regular])
    unit = np.spacing(np.abs(rounded[regular])).astype(exact.dtype)
    return float(np.max(np.abs(got[regular].astype(exact.dtype) - exact[regular]) / unit))


FUNCTIONS: dict[str, tuple[Callable[..., Any], tuple[float, float], float]] = {
    "exp_": (np.exp, (-110.0, 95.0), 1.5),
    "log_": (np.log, (0.0, 1e6), 2.0),
    "tanh_": (np.tanh, (-12.0, 12.0), 2.5),
    "sigmoid_": (lambda v: 1 / (1 + np.exp(-v)), (-100.0, 60.0), 2.5),
}


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("kind", ["float", "double"])
def test_printed_function__over_its_range__is_right_to_about_two_ulp(call: Call, name: str, kind: str) -> None:
    exact, (low, high), ulp = FUNCTIONS[name]
    dtype, wide = (np.float32, np.float64) if kind == "float" else (np.float64, np.longdouble)
    rng = np.random.default_rng(0)
    scale = 1 if kind == "float" else 6
    values = [
        rng.uniform(low * (scale if name in ("exp_", "sigmoid_") else 1), high, 200_000),
        rng.uniform(-2, 2, 50_000),
        10.0 ** rng.uniform(-40, 2, 50_000) * rng.choice([-1, 1], 50_000),
    ]
    x = np.concatenate(values).astype(dtype)
    if name == "log_":
        x = np.concatenate([np.abs(x), np.array([np.finfo(dtype).tiny / 8, np.finfo(dtype).max], dtype)])
    with np.errstate(all="ignore"):
        assert _in_ulp(call(name + kind, x, dtype), exact(x.astype(wide))) <= ulp


@pytest.mark.parametrize("kind", ["float", "double"])
def test_printed_function__at_special_values__is_exact(call: Call, kind: str) -> None:
    dtype = np.float32 if kind == "float" else np.float64
    inf, nan = np.inf, np.nan
    table = {
        "exp_": ([0.0, -0.0, inf, -inf, nan, 1e5, -1e5], [1.0, 1.0, inf, 0.0, nan, inf, 0.0]),
        "log_": ([1.0, 0.0, -0.0, inf, -1.0, nan], [0.0, -inf, -inf, inf, nan, nan]),
        "tanh_": ([0.0, inf, -inf, nan, 1e5, -1e5], [0.0, 1.0, -1.0, nan, 1.0, -1.0]),
        "sigmoid_": ([0.0, inf, -inf, nan, 1e5, -1e5], [0.5, 1.0, 0.0, nan, 1.0, 0.0]),
    }
    for name, (given, want) in table.items():
        np.testing.assert_array_equal(call(name + kind, np.array(given, dtype), dtype), np.array(want, dtype), name)


@pytest.mark.parametrize("name", ["float16", "bfloat16"])
def test_conversion__every_16_bit_value__is_loaded_as_by_torch_and_survives_a_round_trip(call: Call, name: str) -> None:
    raw = np.arange(1 << 16, dtype=np.uint16)
    loaded = call(f"load_{name}", raw, np.float32)
    want = torch.from_numpy(raw.view(np.int16).copy()).view(getattr(torch, name)).float().numpy()
    number = ~np.isnan(want)
    assert number.sum() > 63_000
    np.testing.assert_array_equal(loaded[number].view(np.uint32), want[number].view(np.uint32))
    assert np.isnan(loaded[~number]).all()
    stored = call(f"store_{name}", loaded, np.uint16)
    np.testing.assert_array_equal(stored[number], raw[number])
    assert np.isnan(call(f"load_{name}", stored[~number], np.float32)).all()


@pytest.mark.parametrize("name", ["float16", "bfloat16"])
def test_conversion__any_float32__is_rounded_as_by_torch(call: Call, name: str) -> None:
    """Random bits; every point half way between two values and its neighbours; the edges of infinity and of zero."""
    finite = torch.arange(0x7C00 if name == "float16" else 0x7F80, dtype=torch.int16).view(getattr(torch, name)).float()
    half_way = (finite + torch.nextafter(finite, torch.tensor(torch.inf))) / 2
    middle = ((finite[:-1].double() + finite[1:].double()) / 2).float()
    bits = torch.randint(-(2**31), 2**31, (300_000,)).to(torch.int32).view(torch.float32)
    edges = torch.tensor(
        [65504.0, 65519.99, 65520.0, 3.3895e38, 3.4028e38, torch.inf, 2.0**-25, 2.0**-24, 2.0**-133, 0.0]
    )
    inf, zero = torch.tensor(torch.inf), torch.tensor(0.0)
    v = torch.cat([bits, half_way, middle, torch.nextafter(middle, inf), torch.nextafter(middle, zero), edges])
    v = torch.cat([v, -v])
    want = v.to(getattr(torch, name)).view(torch.int16).numpy().view(np.uint16)
    got = call(f"store_{name}", v.numpy(), np.uint16)
    number = ~np.isnan(v.numpy())
    np.testing.assert_array_equal(got[number], want[number])
    assert np.isnan(call(f"load_{name}", got[~number], np.float32)).all()


@pytest.mark.parametrize("name", ["float16", "bfloat16"])
def test_conversion__of_a_spike_argument__keeps_its_sign(call: Call, name: str) -> None:
    v = np.concatenate([10.0 ** np.linspace(-44, 38, 5000), [0.0]]).astype(np.float32)
    v = np.concatenate([v, -v])
    got = call(f"load_{name}", call(f"signed_{name}", v, np.uint16), np.float32)
    plain = call(f"load_{name}", call(f"store_{name}", v, np.uint16), np.float32)
    np.testing.assert_array_equal(np.sign(got), np.sign(v))
    np.testing.assert_array_equal(got[plain != 0], plain[plain != 0])


def test_trace__step_that_draws_random_numbers__is_refused() -> None:
    def noisy(x: Any, mem: Any) -> Any:
        mem = mem + x + torch.randn(())
        return snn.spike(mem - 1), mem

    with pytest.raises(TraceError, match="random numbers"):
        trace(noisy, ("mem",), (), {}, snn.surrogate.atan())


@pytest.mark.parametrize("bits", [lambda x: (x > 0) * 3 & 2, lambda x: ~((x > 0) * 1), lambda x: (x > 0) + 1 | (x > 1)])
def test_trace__bits_of_numbers__are_refused(bits: Any) -> None:
    def step(x: Any, mem: Any) -> Any:
        mem = mem + x + bits(x)
        return snn.spike(mem - 1), mem

    with pytest.raises(TraceError, match="bits of numbers"):
        trace(step, ("mem",), (), {}, snn.surrogate.atan())


def test_kernel__negative_view_and_foreign_default_device__equal_the_reference() -> None:
    x = torch.randn(5, 3, 4)
    expected = snn.Leaky(0.9, backend="reference").sequence(-x)[0]
    lif = snn.Leaky(0.9, backend="cpu")
    negated = torch._neg_view(x)
    torch.set_default_device("meta")
    try:
        spk = lif.sequence(negated)[0]
    finally:
        torch.set_default_device(None)
    assert torch.equal(spk, expected)
