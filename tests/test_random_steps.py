"""Random user-defined steps, from every allowed operation, run the same as kernels and as plain torch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Callable

import hypothesis.strategies as st
import pytest
import torch
from helpers import Setup, assert_near
from hypothesis import assume, given, settings
from torch import Tensor

import snn_ipu as snn
from snn_ipu.compiler.printing import Layout

STEPS, BATCH, WIDTH = 4, 2, 3
STATES = ("a", "b")
PARAMS = ("p", "q")

# Arguments are kept where every operation is smooth enough to compare, and comparisons clear of ties by an odd offset.
UNARY: dict[str, Callable[[Tensor], Tensor]] = {
    "neg": lambda a: -a,
    "pos": lambda a: +a,
    "abs": torch.abs,
    "abs method": lambda a: a.abs(),
    "sign": lambda a: torch.sign(a - 0.0173),
    "sqrt": lambda a: torch.sqrt(a.abs() + 0.25),
    "exp": lambda a: torch.exp(a.clamp(max=2.5)),
    "log": lambda a: torch.log(a.abs() + 0.5),
    "tanh": torch.tanh,
    "sigmoid": lambda a: a.sigmoid(),
    "erf": torch.erf,
    "atan": torch.atan,
    "relu": torch.relu,
    "relu function": torch.nn.functional.relu,
    "square": torch.square,
    "reciprocal": lambda a: (a.abs() + 0.5).reciprocal(),
    "power 2": lambda a: a**2,
    "power 3": lambda a: torch.pow(a, 3),
    "power 0.5": lambda a: (a.abs() + 0.3) ** 0.5,
    "power -1": lambda a: (a.abs() + 0.7) ** -1,
    "power -2": lambda a: (a.abs() + 0.7) ** -2,
    "power 1.5": lambda a: (a.abs() + 0.3).pow(1.5),
    "power of 2": lambda a: 2 ** a.tanh(),
    "clamp": lambda a: a.clamp(-0.8, 0.9),
    "clamp below": lambda a: torch.clamp(a, min=-0.3),
    "clamp above": lambda a: a.clamp_max(0.4),
    "clip": lambda a: torch.clip(a, -1.1, 0.7),
    "detach": lambda a: a.detach(),
    "spike": snn.spike,
    "cast": lambda a: (a > 0.1234).to(a.dtype),
    "float": lambda a: (a <= 0.1234).double(),
    "not": lambda a: torch.where(~(a < 0.321), 0.5, a),
    "add": lambda a: a + 0.25,
    "reflected sub": lambda a: 0.75 - a,
    "scale": lambda a: 0.6 * a,
    "reflected div": lambda a: 0.4 / (a.abs() + 0.6),
    "alpha": lambda a: torch.add(a, a.tanh(), alpha=0.5),
    "zeros_like": torch.zeros_like,
    "ones_like": torch.ones_like,
    "full_like": lambda a: torch.full_like(a, 0.375),
    "clone": lambda a: a.clone(),
}
BINARY: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "rsub": lambda a, b: torch.rsub(a, b),
    "mul": lambda a, b: a * b,
    "div": lambda a, b: a / (b.abs() + 0.5),
    "pow": lambda a, b: (a.abs() + 0.5) ** b.tanh(),
    "minimum": torch.minimum,
    "maximum": lambda a, b: a.maximum(b),
    "where": lambda a, b: torch.where(a > b + 0.0177, a, b),
    "where number": lambda a, b: torch.where(a >= b - 0.0119, 0.3, b),
    "where either": lambda a, b: torch.where((a > 0.0313) | (b < 0.0717), a, b * 0.5),
    "where both": lambda a, b: torch.where((a > 0.0313) & ~(b < -0.0717), b, a * 0.5),
    "clamp": lambda a, b: torch.clamp(a, b - 0.31, b + 0.57),
    "mask": lambda a, b: (a != b) * a,
    "reset": lambda a, b: a - snn.spike(a - 0.5).detach() * b,
    "reset to": lambda a, b: (1 - snn.spike(b)) * a,
}


@dataclass(frozen=True)
class Step:
    """A step as data: instructions that append to the list [x, *states, *params], and what the step returns."""

    code: tuple[tuple[str, int, int], ...]
    spk: tuple[str, int]
    new_states: tuple[tuple[str, int], ...]

    def function(self) -> Callable[..., tuple[Tensor, ...]]:
        def step(x: Tensor, *states: Tensor, **params: Tensor) -> tuple[Tensor, ...]:
            values = [x, *states, *params.values()]
            for name, a, b in self.code:
                first, second = values[a % len(values)], values[b % len(values)]
                values.append(UNARY[name[1:]](first) if name[0] == "1" else BINARY[name[1:]](first, second))
            return tuple(
                OUTPUT[how](values[index % len(values)], s)
                for (how, index), s in zip((self.spk, *self.new_states), (x, *states))
            )

        return step


# Membranes stay bounded, so that no example runs away; or they are an earlier value as it is: a delay, a swap, a hold.
OUTPUT: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "spike": lambda v, old: snn.spike(v - 0.3),
    "scaled": lambda v, old: snn.spike(v - 0.2) * v.tanh(),
    "leak": lambda v, old: 0.7 * old + 0.5 * v.tanh(),
    "bounded": lambda v, old: v.clamp(-2.5, 2.5),
    "reset": lambda v, old: v.tanh() - snn.spike(v.tanh() - 0.3).detach() * 0.5,
    "as it is": lambda v, old: v,
    "held": lambda v, old: old,
}
_index = st.integers(0, 20)
_name = st.sampled_from([f"1{n}" for n in UNARY] + [f"2{n}" for n in BINARY] * 2)
steps = st.builds(
    Step,
    code=st.lists(st.tuples(_name, _index, _index), min_size=1, max_size=7).map(tuple),
    spk=st.tuples(st.sampled_from(["spike", "spike", "scaled", "bounded"]), _index),
    new_states=st.tuples(*(st.tuples(st.sampled_from([n for n in OUTPUT if n != "scaled"]), _index) for _ in STATES)),
)


@dataclass(frozen=True)
class Call:
    """How a step is called: static input or not, and by name the traced states, per-feature parameters, inputs that
    want a gradient, and outputs in the loss besides the spikes."""

    seed: int
    static: bool
    traced: frozenset[str]
    features: frozenset[str]
    wanted: frozenset[str]
    used: frozenset[str]

    def setup(self, step: Step) -> Setup:
        torch.manual_seed(self.seed)
        x = torch.randn(BATCH, WIDTH) if self.static else torch.randn(STEPS, BATCH, WIDTH)
        return Setup(
            owner="Random",
            fn=step.function(),
            states=STATES,
            flags={},
            x=x.double(),
            initial=tuple(0.7 * torch.randn(BATCH, WIDTH, dtype=torch.float64) for _ in STATES),
            params={n: 0.6 * torch.randn((WIDTH,) * (n in self.features), dtype=torch.float64) for n in PARAMS},
            options={"traced": tuple(sorted(self.traced)), **({"num_steps": STEPS} if self.static else {})},
        )


def _some(*names: str) -> Any:
    return st.frozensets(st.sampled_from(names))


calls = st.builds(
    Call,
    seed=st.integers(0, 999),
    static=st.booleans(),
    traced=_some(*STATES),
    features=_some(*PARAMS),
    wanted=_some("x", *(f"initial:{s}" for s in STATES), *(f"param:{p}" for p in PARAMS)).map(lambda s: s or {"x"}),
    used=_some(*(f"{kind}:{s}" for kind in ("final", "trace") for s in STATES)),
)


def check(step: Step, how: Call) -> None:
    arguments = 1 + len(STATES) + len(PARAMS)
    values = arguments + len(step.code)
    assume(all(output != "as it is" or index % values < arguments for output, index in step.new_states))
    surrogate = snn.surrogate.fast_sigmoid(slope=4.0)
    setup = how.setup(step)
    results = []
    for backend in ("reference", "cpu"):
        call = setup.leaves()
        for name, t in call.inputs().items():
            t.requires_grad_(name in how.wanted)
        outputs = call.run(backend, surrogate)
        generator = torch.Generator().manual_seed(3)
        weights = {n: torch.randn(t.shape, generator=generator, dtype=t.dtype) for n, t in outputs.items()}
        weights = {n: w for n, w in weights.items() if n == "spk" or n in how.used}
        results.append((outputs, call.gradients(outputs, weights)))
        if backend == "reference":
            assume(all(bool((t.abs() < 1e4).all()) for part in results[0] for t in part.values()))
    (outputs, grads), (kernel_outputs, kernel_grads) = results
    for name, t in outputs.items():
        assert_near(name, kernel_outputs[name], t, 1e-11, t.abs().max().clamp(min=1.0).double())
    for name, t in grads.items():
        assert_near(f"grad of {name}", kernel_grads[name], t, 1e-9, t.abs().max().clamp(min=1.0).double())


@settings(max_examples=40)
@given(steps, calls)
def test_random_step__any_operations__equals_the_reference(step: Step, how: Call) -> None:
    check(step, how)


@settings(max_examples=25)
@given(steps, calls)
def test_random_step__planned_for_16_bits_in_float64__equals_the_reference(
    monkeypatch: pytest.MonkeyPatch, step: Step, how: Call
) -> None:
    monkeypatch.setattr(Layout, "narrow", True)
    check(step, how)
