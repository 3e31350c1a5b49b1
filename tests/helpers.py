"""What the tests of the core share: neurons under test, one call on any backend, and the one table of tolerances."""

from __future__ import annotations

import functools
import itertools
from dataclasses import dataclass, replace
from typing import Any, Callable, Mapping

import torch
from torch import Tensor

import snn_ipu as snn
from snn_ipu.backends.call import state_dtype
from snn_ipu.neurons.associative import associative
from snn_ipu.neurons.leakyparallel import leakyparallel
from snn_ipu.neurons.slstm import lstm
from snn_ipu.neurons.stateleaky import stateleaky
from snn_ipu.scan import scan
from snn_ipu.surrogate import BUILTIN, SSO, Surrogate

STEPS = 9


@dataclass(frozen=True)
class Tolerance:
    """How far a kernel may be from the reference.

    Attributes:
        value: of outputs, states and traces, relative to the largest magnitude of the tensor.
        grad: of gradients, likewise; for a parameter relative to the magnitudes of the terms that are added up.
        band: a spike may differ only where |mem - threshold| is at most this fraction of the largest membrane, or where
            the same neuron has differed before.
    """

    value: float
    grad: float
    band: float


# A step rounds about 20 times, functions are good to 2 ulp, and errors of one step are carried to the next.
_VALUE = 20 * STEPS
# A membrane near 1 carries its rounding into u, and a slope of 25 turns it into as many ulp of the surrogate.
_GRAD = (20 + 25) * STEPS
# A backward step has at most two factors that were kept in 16 bits, next to the surrogate, which `Observed` compares at
# the rounded u; a parameter's gradient multiplies by one more, and the result is rounded once more.
_KEPT = 2 * STEPS + 2


def _tolerance(unit: float, kept: float = 0.0) -> Tolerance:
    return Tolerance(value=_VALUE * unit, grad=_GRAD * unit + _KEPT * kept, band=_VALUE * unit)


# Three tiers. Exact: on dyadic grids every float32 sum and product of a step is exact, so results are equal to the last
# bit and no number is needed. Spikes: equal, but within `band` of the threshold. Whole runs: `value` and `grad`, from
# the unit roundoff 2^-24 of float32 and 2^-53 of float64. States are float32 for 16-bit input, so are the values; what
# is kept for the backward pass has a unit roundoff of 2^-8 (bfloat16) or 2^-11 (float16).
TOLERANCE = {
    torch.float64: _tolerance(2**-53),
    torch.float32: _tolerance(2**-24),
    torch.bfloat16: _tolerance(2**-24, kept=2**-8),
    torch.float16: _tolerance(2**-24, kept=2**-11),
}


@dataclass(frozen=True)
class Neuron:
    """A neuron under test.

    Attributes:
        make: builds the module, given one of `modes`.
        drive: mean and spread of an input that makes it spike often.
    """

    name: str
    make: Callable[..., snn.SpikingNeuron]
    modes: tuple[Mapping[str, Any], ...]
    drive: tuple[float, float]


RESETS = ("subtract", "zero", "none")
DELAYED = tuple({"reset_mechanism": r} for r in RESETS)
ANY_DELAY = tuple({"reset_mechanism": r, "reset_delay": d} for r in RESETS for d in (True, False))
NEURONS = (
    Neuron("Leaky", functools.partial(snn.Leaky, 0.9, graded_spikes_factor=0.8), ANY_DELAY, (0.2, 0.6)),
    Neuron("Synaptic", functools.partial(snn.Synaptic, 0.7, 0.8), ANY_DELAY, (0.1, 0.4)),
    Neuron("Alpha", functools.partial(snn.Alpha, 0.9, 0.8), DELAYED, (0.4, 0.9)),
    Neuron(
        "Lapicque",
        snn.Lapicque,
        (
            *({"R": 2.0, "C": 1.5, **m} for m in DELAYED),
            {"beta": 0.8, "learn_beta": True},
            {"beta": 0.8, "C": 1.5, "learn_beta": True},
        ),
        (0.8, 2.0),
    ),
    Neuron("RLeaky", functools.partial(snn.RLeaky, 0.9, V=-0.3, all_to_all=False), ANY_DELAY, (0.2, 0.6)),
    Neuron("RSynaptic", functools.partial(snn.RSynaptic, 0.7, 0.8, V=-0.3, all_to_all=False), ANY_DELAY, (0.1, 0.4)),
    Neuron("IF", snn.IF, ({},), (0.2, 0.6)),
    Neuron("ParametricLeaky", snn.ParametricLeaky, ({},), (0.8, 1.5)),
    Neuron("AdaptiveLeaky", snn.AdaptiveLeaky, ({},), (0.3, 0.8)),
    Neuron("QIF", snn.QIF, ({},), (0.6, 1.2)),
    Neuron("EIF", snn.EIF, ({},), (0.4, 1.0)),
    Neuron("Izhikevich", snn.Izhikevich, ({},), (60.0, 80.0)),
)


def _layer(step: Callable[..., Any], states: tuple[str, ...], **values: Any) -> snn.SpikingNeuron:
    """A module of a step that other layers run inside; strings are flags, numbers are parameters."""
    flags = {n: v for n, v in values.items() if isinstance(v, str)}
    members = {"step": staticmethod(step), "state_names": states, "flags": lambda self: flags}
    module = type(step.__name__, (snn.SpikingNeuron,), members)()
    for name, value in values.items():
        if name not in flags:
            module.add_param(name, value)
    return module


# Steps inside layers that have tests of their own: every mode with every dtype.
INNER = (
    Neuron("DeltaLeaky", functools.partial(snn.DeltaLeaky, 0.7, 0.9), ({},), (0.0, 1.0)),
    Neuron(
        "LSTM",
        functools.partial(_layer, lstm, ("syn", "mem"), i=0.5, f=1.0, o=1.5, threshold=0.3),
        DELAYED,
        (0.5, 1.0),
    ),
    Neuron(
        "StateLeaky",
        functools.partial(_layer, stateleaky, ("mem",), decay=0.9, threshold=1.0, graded_spikes_factor=0.8),
        ({},),
        (0.1, 0.6),
    ),
    Neuron(
        "LeakyParallel",
        functools.partial(_layer, leakyparallel, ("mem",), decay=0.8, threshold=1.0, graded_spikes_factor=0.8),
        ({},),
        (0.2, 0.6),
    ),
    Neuron(
        "AssociativeLeaky",
        functools.partial(_layer, associative, ("mem",), decay=0.9, threshold=1.0),
        ({},),
        (0.1, 0.6),
    ),
)
# Peaks near 1, so that gradients neither explode nor vanish over STEPS; a stochastic surrogate has no kernel.
_MILD = {"sigmoid": {"slope": 4.0}, "spike_rate_escape": {"slope": 1.0}}
SURROGATES = tuple(f(**_MILD.get(f.__name__, {})) for f in BUILTIN if f is not SSO)


@dataclass
class Setup:
    """One call of `scan`: the step, its tensors, its options, and the names of parameters that are not learned."""

    owner: str
    fn: Callable[..., Any]
    states: tuple[str, ...]
    flags: Mapping[str, Any]
    x: Tensor
    initial: tuple[Tensor | None, ...]
    params: dict[str, Tensor]
    options: dict[str, Any]
    fixed: tuple[str, ...] = ()

    @property
    def frame(self) -> torch.Size:
        static = self.options.get("single") or self.options.get("num_steps")
        return self.x.shape if static else self.x.shape[1:]

    def leaves(self) -> Setup:
        """A copy whose tensors are leaves that require gradients, with the strides they have here."""

        def leaf(t: Tensor | None) -> Tensor | None:
            return None if t is None else t.detach().requires_grad_()

        return replace(
            self,
            x=self.x.detach().requires_grad_(),
            initial=tuple(map(leaf, self.initial)),
            params={n: p.detach().requires_grad_(n not in self.fixed) for n, p in self.params.items()},
        )

    def spread(self) -> Setup:
        """A copy with one value of every parameter per neuron, so that the terms of its gradient can be seen."""
        return replace(self, params={n: p.detach().expand(self.frame).clone() for n, p in self.params.items()})

    def run(self, backend: str, spike_grad: Any) -> dict[str, Tensor]:
        """Outputs by name: spk, final:<state>, trace:<state>."""
        result = scan(
            self.owner,
            self.fn,
            self.states,
            self.x,
            self.initial,
            self.params,
            self.flags,
            spike_grad,
            backend=backend,
            **self.options,
        )
        return {
            "spk": result.spk,
            **{f"final:{n}": s for n, s in zip(self.states, result.states)},
            **{f"trace:{n}": s for n, s in result.traces.items()},
        }

    def inputs(self) -> dict[str, Tensor]:
        named = {f"initial:{n}": s for n, s in zip(self.states, self.initial) if s is not None}
        return {"x": self.x, **named, **{f"param:{n}": p for n, p in self.params.items()}}

    def gradients(self, outputs: Mapping[str, Tensor], weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Gradients of sum(output * weight) by the name of the input, zeros where nothing flows."""
        used = [n for n in weights if outputs[n].requires_grad]
        inputs = {n: t for n, t in self.inputs().items() if t.requires_grad}
        if not used:
            return {n: torch.zeros_like(t) for n, t in inputs.items()}
        grads = torch.autograd.grad(
            [outputs[n] for n in used], list(inputs.values()), [weights[n] for n in used], allow_unused=True
        )
        return {n: torch.zeros_like(t) if g is None else g for (n, t), g in zip(inputs.items(), grads)}


def from_module(module: snn.SpikingNeuron, x: Tensor, **options: Any) -> Setup:
    """The call that `module.sequence(x)` makes, started from a random state near the module's own."""
    frame = x.shape if options.get("single") or options.get("num_steps") else x.shape[1:]
    dtype = state_dtype(x.dtype)
    initial = []
    for name in module.state_names:
        start = float(module.initial.get(name, 0.0))
        initial.append(start + 0.4 * max(1.0, abs(start) / 20) * torch.randn(frame, dtype=dtype))
    return Setup(
        owner=type(module).__name__,
        fn=type(module).step,
        states=module.state_names,
        flags=module.flags(),
        x=x,
        initial=tuple(initial),
        params={n: p.detach().to(dtype) for n, p in module.params().items()},
        options=options,
        fixed=("time_step",) if "solve_for" in module.flags() else (),
    )


def drawn(neuron: Neuron, mode: Mapping[str, Any], dtype: torch.dtype, form: str) -> Setup:
    """A call of `neuron` with random input; `form` is a key of FORMS."""
    shape, feature_shape, options = FORMS[form]
    module = neuron.make(**mode)
    mean, spread = neuron.drive
    x = (mean + spread * torch.randn(shape)).to(dtype)
    if options.get("traced"):
        options = {**options, "traced": module.state_names if state_dtype(dtype) == dtype else ()}
    setup = from_module(module, x, **options)
    if feature_shape is not None:
        for position, (name, p) in enumerate(setup.params.items()):
            if form != "mixed" or position % 2:
                setup.params[name] = p + 0.03 * (p.abs() + 0.2) * torch.randn(feature_shape, dtype=p.dtype).clamp(-1, 1)
    return setup


# What a call looks like: the shape of x, the shape of the parameters, the options of `scan`. 9 x 130 neurons end within
# the second block of a kernel and 130 features do not divide a block.
FORMS: dict[str, tuple[tuple[int, ...], tuple[int, ...] | None, dict[str, Any]]] = {
    "scalar": ((STEPS, 3, 7), None, {}),
    "features": ((STEPS, 9, 130), (130,), {}),
    "image": ((STEPS, 2, 3, 4, 5), (3, 1, 1), {"traced": True}),
    "static": ((3, 7), (7,), {"num_steps": STEPS}),
    "single": ((3, 7), None, {"single": True}),
    "mixed": ((STEPS, 3, 7), (7,), {"traced": True}),
}


class _Kept(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, u: Tensor, surrogate: Surrogate, dtype: torch.dtype | None) -> Tensor:
        kept = u
        if dtype is not None:
            smallest = torch.finfo(dtype).smallest_normal * torch.finfo(dtype).eps
            rounded = u.to(dtype).to(u.dtype)
            kept = torch.where((rounded == 0) & (u != 0), u.sign() * smallest, rounded)
        ctx.save_for_backward(kept)
        ctx.surrogate = surrogate
        return (u > 0).to(u.dtype)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        return grad * ctx.surrogate.grad(ctx.saved_tensors[0]), None, None


class Observed:
    """A surrogate for the reference: records every u, and differentiates at u rounded to a 16-bit type and its sign.

    That is what a kernel that keeps u in 16 bits does, so what is left between the two is not due to that rounding.
    """

    def __init__(self, surrogate: Surrogate, dtype: torch.dtype | None = None):
        self.surrogate, self.dtype = surrogate, dtype
        self.seen: list[Tensor] = []

    def __call__(self, u: Tensor) -> Tensor:
        self.seen.append(u.detach())
        return _Kept.apply(u, self.surrogate, self.dtype)

    def last(self, steps: int) -> list[Tensor]:
        """The last u of each step, which decides its spike; the first step may ask for one u more than the others."""
        return self.seen[:: -(len(self.seen) // steps)][:steps][::-1]


def assert_near(name: str, got: Tensor, want: Tensor, bound: float, scale: Tensor | None = None) -> None:
    """|got - want| <= bound * scale everywhere; the scale is the largest |want| where none is given."""
    assert got.shape == want.shape, f"{name}: shape {tuple(got.shape)}, expected {tuple(want.shape)}"
    assert got.dtype == want.dtype, f"{name}: dtype {got.dtype}, expected {want.dtype}"
    if want.numel() == 0:
        return
    wanted, gotten = want.double(), got.double()
    if scale is None:
        scale = wanted.abs().max()
    error = (gotten - wanted).abs()
    bad = ~(error <= bound * scale + torch.finfo(want.dtype).smallest_normal)
    if bool(bad.any()):
        first = tuple(bad.nonzero()[0].tolist())
        raise AssertionError(
            f"{name}: {int(bad.sum())} of {bad.numel()} differ; at {list(first)} {gotten[first].item():.9g}, "
            f"expected {wanted[first].item():.9g}; worst relative error {(error / scale).max().item():.3g}, "
            f"allowed {bound:.3g}"
        )


def never_flipped(got: Tensor, want: Tensor, u: Tensor, band: float, scale: float, over_time: bool) -> Tensor:
    """Where a neuron's spikes agree at every step, [*frame].

    Raises: AssertionError for a first difference that is not within `band * scale` of the threshold.
    """
    if not over_time:
        got, want, u = got[None], want[None], u[None]
    differs = (got != want).int()
    first = (differs.cumsum(0) == 1) & (differs == 1)
    far = first & ~(u.abs() <= band * scale)
    assert not bool(far.any()), f"{int(far.sum())} spikes differ off the threshold, |u| up to {u[far].abs().max():.3g}"
    return differs.sum(0) == 0


def assert_same(setup: Setup, surrogate: Surrogate, backend: str = "cpu") -> float:
    """Outputs and gradients of `backend` equal the reference's, within TOLERANCE; returns the rate of spikes."""
    dtype = setup.x.dtype
    tolerance = TOLERANCE[dtype]
    kernel, reference = setup.leaves(), setup.spread().leaves()
    got = kernel.run(backend, surrogate)
    observed = Observed(surrogate, dtype if state_dtype(dtype) != dtype else None)
    want = reference.run("reference", observed)
    assert got.keys() == want.keys()

    over_time = not setup.options.get("single")
    steps = want["spk"].shape[0] if over_time else 1
    last = observed.last(steps)
    u = torch.stack(last) if over_time else last[0]
    size = max([1.0, *(float(t.detach().abs().max()) for n, t in want.items() if n != "spk")])
    same = never_flipped(got["spk"], want["spk"], u, tolerance.band, size, over_time)
    assert same.double().mean() > 0.99, "more than 1 % of the neurons differ in some spike"
    for name, t in want.items():
        assert_near(name, got[name] * same, t * same, tolerance.value)

    generator = torch.Generator().manual_seed(7)
    weights = {n: (torch.randn(t.shape, generator=generator) * same).to(t.dtype) for n, t in want.items()}
    got_grads = kernel.gradients(got, weights)
    want_grads = reference.gradients(want, weights)
    for name, grad in got_grads.items():
        expected = want_grads[name]
        if name.startswith("param:"):
            terms = expected.double()
            total = terms.sum_to_size(grad.shape).to(grad.dtype)
            assert_near(f"grad of {name}", grad, total, tolerance.grad, terms.abs().sum_to_size(grad.shape))
        else:
            assert_near(f"grad of {name}", grad, expected, tolerance.grad)
    return float(want["spk"].detach().ne(0).double().mean())


@dataclass(frozen=True)
class Case:
    """One row of the conformance table."""

    neuron: Neuron
    mode: Mapping[str, Any]
    dtype: torch.dtype
    surrogate: Surrogate
    form: str

    def __str__(self) -> str:
        mode = "-".join(str(v) for v in self.mode.values())
        surrogate = self.surrogate.factory.__name__
        return "-".join(filter(None, (self.neuron.name, mode, str(self.dtype)[6:], surrogate, self.form)))


def _cases() -> list[Case]:
    """Every neuron and mode with every dtype, every neuron with every surrogate and form; pairs, not cross products."""
    rows: list[Case] = []
    dtypes = tuple(TOLERANCE)
    for offset, neuron in enumerate((*NEURONS, *INNER)):
        pairs = list(itertools.product(neuron.modes, dtypes))
        count = max(len(pairs), len(SURROGATES)) if neuron in NEURONS else len(pairs)
        for row in range(count):
            mode, dtype = pairs[row % len(pairs)]
            turn = row // len(pairs)
            surrogate = SURROGATES[(row + offset) % len(SURROGATES)]
            form = tuple(FORMS)[(row + row // len(FORMS) + turn + offset) % len(FORMS)]
            rows.append(Case(neuron, mode, dtype, surrogate, form))
    return rows


CASES = _cases()
