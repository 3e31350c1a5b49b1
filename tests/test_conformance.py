"""The CPU kernels equal the plain-torch reference: every neuron, dtype, layout and use of the outputs."""

from __future__ import annotations

import concurrent.futures
import dataclasses
import functools
from typing import Any, Callable

import pytest
import torch
from helpers import (
    ANY_DELAY,
    CASES,
    NEURONS,
    SURROGATES,
    TOLERANCE,
    Case,
    Neuron,
    Observed,
    assert_near,
    assert_same,
    drawn,
    from_module,
)
from torch import Tensor

import snn_ipu as snn
from snn_ipu import buffers
from snn_ipu.backends.layout import arrange_over_time
from snn_ipu.errors import UnsupportedError

ATAN = snn.surrogate.atan()
STE = snn.surrogate.straight_through_estimator()


@pytest.mark.parametrize("case", CASES, ids=str)
def test_kernel__any_neuron_mode_dtype_surrogate_and_form__equals_the_reference(case: Case) -> None:
    setup = drawn(case.neuron, case.mode, case.dtype, case.form)
    rate = assert_same(setup, case.surrogate)
    assert case.form == "single" or 0.02 < rate < 0.8, "the comparison needs spikes and silence"


def test_cases__all_pairs_that_matter__are_covered() -> None:
    def pairs(*names: str) -> int:
        return len({tuple(str(getattr(case, n)) for n in names) for case in CASES if case.neuron in NEURONS})

    assert pairs("neuron", "mode", "dtype") == sum(len(n.modes) for n in NEURONS) * len(TOLERANCE)
    assert pairs("neuron", "surrogate") == len(NEURONS) * len(SURROGATES)
    assert pairs("dtype", "surrogate") == len(TOLERANCE) * len(SURROGATES)
    assert pairs("dtype", "form") == len(TOLERANCE) * 6


# Over 12 steps products and sums of these stay on a grid that fits in 24 bits, in whatever order they are taken.
_WITH_RESETS = {
    "Leaky": functools.partial(snn.Leaky, 0.5, graded_spikes_factor=0.5),
    "Synaptic": functools.partial(snn.Synaptic, 0.5, 0.25),
    "RLeaky": functools.partial(snn.RLeaky, 0.5, -0.5, False),
    "RSynaptic": functools.partial(snn.RSynaptic, 0.5, 0.25, -0.5, False),
}
DYADIC = (
    *((f"{n}-{i}", functools.partial(f, **m)) for n, f in _WITH_RESETS.items() for i, m in enumerate(ANY_DELAY)),
    ("Lapicque", functools.partial(snn.Lapicque, R=1.0, C=2.0)),
    ("IF", snn.IF),
    ("AdaptiveLeaky", functools.partial(snn.AdaptiveLeaky, beta=0.5, rho=0.5, gain=0.5)),
    ("ParametricLeaky", snn.ParametricLeaky),
)


@pytest.mark.parametrize("place", range(len(DYADIC)), ids=lambda i: DYADIC[i][0])
def test_kernel__on_a_dyadic_grid__equals_the_reference_to_the_last_bit(place: int) -> None:
    name, make = DYADIC[place]
    dtype = tuple(TOLERANCE)[place % len(TOLERANCE)]
    module = make()
    x = (torch.randint(-24, 41, (12, 5, 41)) / 16).to(dtype)
    setup = from_module(module, x, traced=module.state_names)
    setup.initial = tuple((s * 4).round() / 4 for s in setup.initial if s is not None)
    results = []
    for backend in ("cpu", "reference"):
        call = setup.leaves()
        outputs = call.run(backend, STE)
        torch.manual_seed(1)
        weights = {n: (torch.randint(-8, 9, t.shape) / 8).to(t.dtype) for n, t in outputs.items()}
        results.append((outputs, call.gradients(outputs, weights)))
    (got, got_grads), (want, want_grads) = results
    assert 0.05 < want["spk"].ne(0).double().mean() < 0.8
    for key, t in want.items():
        assert torch.equal(got[key], t), key
    # A reset at once multiplies gradients by membranes, and a threshold that was passed exactly is met exactly.
    if getattr(module, "reset_delay", True) and name != "ParametricLeaky":
        for key in ("x", *(f"initial:{s}" for s in setup.states)):
            assert torch.equal(got_grads[key], want_grads[key]), key


@pytest.mark.parametrize("name", ["Alpha", "Lapicque", "ParametricLeaky", "EIF", "QIF", "Izhikevich"])
def test_kernel__one_step_from_many_states_of_the_reference__flips_spikes_rarely_and_without_bias(name: str) -> None:
    neuron = next(n for n in NEURONS if n.name == name)
    module = neuron.make(**neuron.modes[-1])
    mean, spread = neuron.drive
    x = mean + spread * torch.randn(20, 40, 130)
    run = from_module(module, x, traced=module.state_names).run("reference", STE)
    before = tuple(run[f"trace:{s}"][:-1].flatten(0, 1) for s in module.state_names)
    step = from_module(module, x[1:].flatten(0, 1), single=True)
    step.initial = before
    got, observed = step.run("cpu", STE), Observed(STE)
    want = step.run("reference", observed)
    flips = got["spk"] - want["spk"]
    near = observed.seen[-1].abs() <= 16 * 2**-24 * max(1.0, float(observed.seen[-1].abs().max()))
    assert bool((flips == 0)[~near].all())
    assert flips.abs().sum() <= 3
    assert abs(float(flips.sum())) <= 2
    for state in module.state_names:
        assert_near(state, got[f"final:{state}"] * (flips == 0), want[f"final:{state}"] * (flips == 0), 32 * 2**-24)


@pytest.mark.parametrize("name", ["Leaky", "RSynaptic", "AdaptiveLeaky", "EIF"])
def test_gradient__of_100_steps_in_float32__points_where_the_double_one_does(name: str) -> None:
    neuron = next(n for n in NEURONS if n.name == name)
    module = neuron.make(**neuron.modes[0])
    mean, spread = neuron.drive
    setup = from_module(module, mean + spread * torch.randn(100, 4, 130))
    double = dataclasses.replace(
        setup,
        x=setup.x.double(),
        initial=tuple(s.double() for s in setup.initial if s is not None),
        params={n: p.double() for n, p in setup.params.items()},
    )
    kernel, reference = setup.leaves(), double.leaves()
    got, want = kernel.run("cpu", snn.surrogate.atan()), reference.run("reference", snn.surrogate.atan())
    same = (got["spk"] == want["spk"]).all(0)
    assert same.double().mean() > 0.98
    weight = torch.randn(want["spk"].shape, dtype=torch.float64) * same
    got_grads = kernel.gradients(got, {"spk": weight.float()})
    for key, expected in reference.gradients(want, {"spk": weight}).items():
        grad = got_grads[key].double()
        norm = expected.norm()
        assert (grad - expected).norm() <= 1e-4 * norm, key


def run_leaky(backend: str, x: Tensor, loss: Callable[..., Tensor], **options: Any) -> dict[str, Tensor]:
    """Outputs and gradients of a Leaky layer with a beta per feature or channel and a learned threshold."""
    leaf = x.detach().requires_grad_(options.pop("want_x", True))
    static = "num_steps" in options
    frame = x.shape if static else x.shape[1:]
    width = frame[1] if len(frame) > 2 else frame[-1]
    beta = torch.linspace(0.5, 0.95, width).reshape((width, 1, 1) if len(frame) > 2 else (width,))
    neuron = snn.Leaky(beta, threshold=0.6, learn_beta=True, learn_threshold=True, spike_grad=ATAN, backend=backend)
    torch.manual_seed(2)
    start = torch.randn(frame, requires_grad=True)
    spk, (mem,), trace = neuron.sequence(leaf, (start,), trace="mem", **options)
    loss(spk, mem, trace).backward()
    inputs = {"x": leaf, "start": start, "beta": neuron.beta, "threshold": neuron.threshold}
    wanted = {f"grad of {n}": t for n, t in inputs.items() if t.requires_grad}
    grads = {n: torch.zeros_like(t) if t.grad is None else t.grad for n, t in wanted.items()}
    return {"spk": spk, "mem": mem, "trace": trace, **grads}


def weighted(spk: Tensor, mem: Tensor, trace: Tensor) -> Tensor:
    torch.manual_seed(3)
    return sum(((t.double() * torch.randn(t.shape)).sum() for t in (spk, mem, trace)), torch.zeros(()))


def assert_backends_agree(x: Tensor, loss: Callable[..., Tensor] = weighted, **options: Any) -> dict[str, Tensor]:
    got, want = run_leaky("cpu", x, loss, **options), run_leaky("reference", x, loss, **options)
    assert got.keys() == want.keys()
    for name, t in want.items():
        torch.testing.assert_close(got[name], t, rtol=2e-5, atol=2e-5, msg=lambda text, name=name: f"{name}: {text}")
    return got


# T, B, N: the least; odd; over a block; over several blocks; nothing in each place.
SIZES = [(1, 1, 1), (5, 1, 7), (5, 3, 130), (1, 1, 1025), (5, 1, 3000), (0, 2, 7), (5, 0, 7), (5, 2, 0), (0, 0, 0)]


@pytest.mark.parametrize("size", SIZES, ids="T{0[0]}-B{0[1]}-N{0[2]}".format)
def test_kernel__any_size__equals_the_reference(size: tuple[int, int, int]) -> None:
    got = assert_backends_agree(torch.randn(size))
    assert got["spk"].shape == size


@pytest.mark.parametrize("size", [(1, 1), (3, 7), (2, 1025), (0, 7)], ids="B{0[0]}-N{0[1]}".format)
def test_kernel__static_input_of_any_size__equals_the_reference(size: tuple[int, int]) -> None:
    got = assert_backends_agree(torch.randn(size), num_steps=6)
    assert got["spk"].shape == (6, *size)


def test_static_input__gradient__is_the_sum_over_its_copies() -> None:
    x = torch.randn(3, 7)
    still, moving = (
        run_leaky("cpu", x, weighted, num_steps=6),
        run_leaky("cpu", x.expand(6, 3, 7).clone(), weighted),
    )
    for name in ("spk", "mem", "trace", "grad of start", "grad of beta", "grad of threshold"):
        assert torch.equal(still[name], moving[name]), name
    torch.testing.assert_close(still["grad of x"], moving["grad of x"].sum(0))


LAYOUTS: dict[str, Callable[[], Tensor]] = {
    "time last": lambda: torch.randn(3, 10, 6).permute(2, 0, 1),
    "batch last": lambda: torch.randn(6, 10, 3).transpose(1, 2),
    "every other step": lambda: torch.randn(12, 3, 10)[::2],
    "every other sample": lambda: torch.randn(6, 6, 10)[:, ::2],
    "every other feature": lambda: torch.randn(6, 3, 20)[..., ::2],
    "one sample for all": lambda: torch.randn(6, 1, 10).expand(6, 3, 10),
    "one value for all features": lambda: torch.randn(6, 3, 1).expand(6, 3, 10),
    "one frame for all steps": lambda: torch.randn(1, 3, 10).expand(6, 3, 10),
    "one value for all": lambda: torch.tensor(0.4).expand(6, 3, 10),
    "from the middle of memory": lambda: torch.randn(6 * 3 * 10 + 3)[3:].view(6, 3, 10),
    "images": lambda: torch.randn(6, 2, 3, 4, 5),
    "images, channels last": lambda: channels_last(torch.randn(6, 2, 3, 4, 5)),
    "images, transposed": lambda: torch.randn(6, 2, 3, 5, 4).transpose(3, 4),
    "images of one pixel, channels last": lambda: channels_last(torch.randn(6, 2, 3, 1, 1)),
    "images of one channel, channels last": lambda: channels_last(torch.randn(6, 2, 1, 4, 5)),
}


def channels_last(x: Tensor) -> Tensor:
    return x.flatten(0, 1).to(memory_format=torch.channels_last).unflatten(0, x.shape[:2])


@pytest.mark.parametrize("name", LAYOUTS)
def test_kernel__any_memory_layout__equals_the_reference(name: str) -> None:
    assert_backends_agree(LAYOUTS[name]())


@pytest.mark.parametrize("name", ["images, channels last", "batch last", "one frame for all steps"])
def test_kernel__sum_of_an_output__takes_a_gradient_without_strides(name: str) -> None:
    for loss in (lambda s, m, t: s.sum(), lambda s, m, t: t.sum() + m.sum(), lambda s, m, t: (2 * s.mean(0)).sum()):
        assert_backends_agree(LAYOUTS[name](), loss)


def test_kernel__channels_last_input__gives_channels_last_outputs_and_gradient() -> None:
    x = channels_last(torch.randn(6, 2, 3, 4, 5))
    got = run_leaky("cpu", x, weighted)
    for name in ("spk", "trace", "grad of x"):
        assert got[name][0].is_contiguous(memory_format=torch.channels_last), name


def test_layout__of_an_axis_without_stride__is_not_copied_over_time() -> None:
    frame = torch.randn(3, 7)
    kept, step = arrange_over_time(frame.expand(50, 3, 7), (7, 1))
    assert step == 0
    assert kept.data_ptr() == frame.data_ptr()
    ones, step = arrange_over_time(torch.ones(()).expand(50, 3, 7), (7, 1))
    assert step == 0
    assert ones.untyped_storage().nbytes() < 1000
    sliced = torch.randn(100, 3, 7)[::2]
    kept, step = arrange_over_time(sliced, (7, 1))
    assert (kept.data_ptr(), step) == (sliced.data_ptr(), 42)


USES: dict[str, Callable[..., Tensor]] = {
    "spikes": lambda s, m, t: (s * W).sum(),
    "final state": lambda s, m, t: (m * W[0]).sum(),
    "trace": lambda s, m, t: (t * W).sum(),
    "one step of the trace": lambda s, m, t: (t[3] * W[0]).sum(),
    "spikes and final state": lambda s, m, t: (s * W).sum() + m.square().sum(),
}
W = torch.linspace(-1, 1, 5 * 3 * 7).reshape(5, 3, 7)


@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize("want_x", [True, False], ids=["x wanted", "x not wanted"])
def test_gradient__when_only_some_outputs_are_used__equals_the_reference(use: str, want_x: bool) -> None:
    got = assert_backends_agree(torch.randn(5, 3, 7), USES[use], want_x=want_x)
    assert ("grad of x" in got) == want_x


@pytest.mark.parametrize("shape", [(1,), (1, 1), (1, 7), (3, 1), (3, 7)], ids=str)
def test_parameter__of_any_shape_that_broadcasts__gets_its_gradient(shape: tuple[int, ...]) -> None:
    for x in (torch.randn(5, 3, 7), torch.randn(5, 7, 3).transpose(1, 2)):
        grads = []
        for backend in ("cpu", "reference"):
            torch.manual_seed(6)
            beta = torch.rand(shape)
            neuron = snn.Leaky(torch.nn.Parameter(beta), learn_beta=True, spike_grad=ATAN, backend=backend)
            (neuron.sequence(x)[0] * W).sum().backward()
            grads.append(neuron.beta.grad)
        torch.testing.assert_close(*grads)
        assert grads[0].shape == shape


@pytest.mark.parametrize("wanted", ["x", "start", "beta"])
def test_gradient__wanted_for_one_input_alone__equals_the_reference(wanted: str) -> None:
    grads = []
    for backend in ("cpu", "reference"):
        torch.manual_seed(4)
        tensors = {"x": torch.randn(5, 3, 7), "start": torch.randn(3, 7), "beta": torch.full((7,), 0.8)}
        tensors[wanted].requires_grad_()
        neuron = snn.Leaky(tensors["beta"], reset_mechanism="zero", backend=backend)
        spk, (mem,) = neuron.sequence(tensors["x"], (tensors["start"],))
        grads.append(torch.autograd.grad((spk * W).sum() + mem.sum(), tensors[wanted])[0])
    torch.testing.assert_close(*grads)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_layer__converted_to_16_bits__has_parameters_and_gradients_of_that_type(dtype: torch.dtype) -> None:
    results = []
    for backend in ("cpu", "reference"):
        torch.manual_seed(5)
        neuron = snn.Synaptic(0.75, torch.full((7,), 0.5), learn_alpha=True, learn_beta=True, backend=backend).to(dtype)
        x = torch.randn(5, 3, 7).to(dtype).requires_grad_()
        spk, (syn, mem) = neuron.sequence(x, (None, torch.randn(3, 7).to(dtype)))
        (spk * W.to(dtype)).sum().backward()
        results.append((spk, syn, mem, x.grad, neuron.alpha.grad, neuron.beta.grad))
    assert [t.dtype for t in results[0]] == [dtype, torch.float32, torch.float32, dtype, dtype, dtype]
    for got, want in zip(*results):
        torch.testing.assert_close(got, want, rtol=0.05, atol=0.02)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_gradient__with_u_kept_in_16_bits__is_within_the_derived_bound(dtype: torch.dtype) -> None:
    """grad x[t] = sum over k of beta^k g(u[t+k]) w[t+k], and u is kept with a relative error of `unit`.

    So each term is off by at most unit * sup |u g'(u)| * beta^k |w|, and the sum is rounded once more.
    """
    unit = torch.finfo(dtype).eps / 2
    beta = 0.875
    u = torch.linspace(-4, 4, 400_001, dtype=torch.float64).requires_grad_()
    for surrogate in (ATAN, snn.surrogate.fast_sigmoid(), snn.surrogate.sigmoid(), snn.surrogate.erf()):
        (slope,) = torch.autograd.grad(surrogate.grad(u).sum(), u)
        steepest = float((u * slope).detach().abs().max())
        x = (torch.randn(20, 4, 50) * 0.6).to(dtype)
        weight = torch.randn(20, 4, 50).to(dtype)
        grads = []
        for backend in ("cpu", "reference"):
            leaf = x.clone().requires_grad_()
            spk, _ = snn.Leaky(beta, spike_grad=surrogate, backend=backend).sequence(leaf)
            grads.append(torch.autograd.grad(spk, leaf, weight)[0].double())
        terms, bounds = torch.zeros(4, 50).double(), []
        for w in weight.double().flip(0):
            terms = beta * terms + w.abs()
            bounds.append(terms)
        kept = 1.01 * unit * steepest * torch.stack(bounds).flip(0)
        bound = kept + 2 * unit * grads[1].abs() + torch.finfo(dtype).smallest_normal
        error = (grads[0] - grads[1]).abs()
        assert bool((error <= bound).all()), repr(surrogate)
        assert error.max() > 0


def test_gradient__of_u_below_the_smallest_16_bit_number__still_knows_its_sign() -> None:
    x = torch.zeros(8, 1, 2, dtype=torch.float16)
    x[0] = torch.tensor([2.0**-24, -(2.0**-24)])
    grads = []
    for backend in ("cpu", "reference"):
        leaf = x.clone().requires_grad_()
        neuron = snn.Leaky(0.5, 0.0, snn.surrogate.heaviside(), reset_mechanism="none", backend=backend)
        grads.append(torch.autograd.grad(neuron.sequence(leaf)[0].sum(), leaf)[0])
    assert torch.equal(*grads)
    assert (grads[1][..., 0] > 0).all()
    assert (grads[1][..., 1] == 0).all()


def test_gradient__16_bits_with_a_trace__needs_no_rounded_values() -> None:
    """The trace is kept in float32 anyway, so only the result is rounded."""
    x = torch.randn(12, 3, 7).bfloat16()
    grads = []
    for backend in ("cpu", "reference"):
        start = torch.zeros(3, 7, requires_grad=True)
        spk, _, trace = snn.Leaky(0.9, spike_grad=ATAN, backend=backend).sequence(x, (start,), trace="mem")
        grads.append(torch.autograd.grad(spk.float().sum() + trace.square().sum(), start)[0])
    torch.testing.assert_close(*grads, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("form", ["scalar", "features"])
def test_gradient_of_parameters__any_number_of_threads__has_the_same_bits(form: str) -> None:
    x = torch.randn(9, 50, 130)
    beta = torch.tensor(0.9) if form == "scalar" else torch.linspace(0.5, 0.95, 130)
    threads = torch.get_num_threads()
    results = []
    try:
        for count in (1, 2, 3, 2):
            torch.set_num_threads(count)
            neuron = snn.Leaky(beta, learn_beta=True, learn_threshold=True, spike_grad=ATAN, backend="cpu")
            leaf = x.clone().requires_grad_()
            spk, (mem,) = neuron.sequence(leaf)
            ((spk * x).sum() + mem.sum()).backward()
            results.append([spk, mem, leaf.grad, neuron.beta.grad, neuron.threshold.grad])
    finally:
        torch.set_num_threads(threads)
    for other in results[1:]:
        for first, second in zip(results[0], other):
            assert torch.equal(first, second)


def test_kernel__called_from_several_threads_at_once__gives_every_thread_its_own_result() -> None:
    inputs = [torch.randn(20, 8, 300) for _ in range(8)]

    def run(x: Tensor) -> tuple[Tensor, Tensor]:
        leaf = x.clone().requires_grad_()
        spk, (mem,) = snn.Leaky(0.9, spike_grad=ATAN, backend="cpu").sequence(leaf)
        (spk.sum() + mem.sum()).backward()
        assert leaf.grad is not None
        return spk.detach(), leaf.grad

    alone = [run(x) for x in inputs]
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        together = list(pool.map(run, inputs * 4))
    for got, want in zip(together, alone * 4):
        assert torch.equal(got[0], want[0])
        assert torch.equal(got[1], want[1])


def kept_per_neuron_and_step(neuron: snn.SpikingNeuron, x: Tensor) -> float:
    """Bytes that autograd keeps of tensors as long as x, per element of x."""
    sizes: dict[int, int] = {}

    def pack(t: Tensor) -> Tensor:
        if t.numel() >= x.numel():
            sizes[t.data_ptr()] = t.numel() * t.element_size()
        return t

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t):
        neuron.sequence(x)
    return sum(sizes.values()) / x.numel()


@pytest.mark.parametrize(
    ("dtype", "size"), [(torch.float32, 4), (torch.float64, 8), (torch.bfloat16, 2), (torch.float16, 2)], ids=str
)
def test_backward__of_a_leaky_layer__keeps_one_value_per_neuron_and_step(dtype: torch.dtype, size: int) -> None:
    x = torch.randn(16, 4, 64).to(dtype).requires_grad_()
    for mode in ({}, {"reset_mechanism": "zero"}, {"learn_beta": True, "learn_threshold": True}):
        assert kept_per_neuron_and_step(snn.Leaky(0.9, spike_grad=ATAN, backend="cpu", **mode), x) == size


@pytest.mark.parametrize("neuron", NEURONS, ids=lambda n: n.name)
def test_backward__of_any_neuron_as_it_comes__keeps_four_bytes_per_neuron_and_step(neuron: Neuron) -> None:
    module = neuron.make(**neuron.modes[0])
    module.requires_grad_(False)
    assert kept_per_neuron_and_step(module, torch.randn(16, 4, 64, requires_grad=True)) == 4


def test_inference__keeps_nothing_per_step(monkeypatch: pytest.MonkeyPatch) -> None:
    taken: list[tuple[int, ...]] = []
    empty = buffers.empty

    def counted(shape: Any, *args: Any) -> Tensor:
        taken.append(tuple(shape))
        return empty(shape, *args)

    monkeypatch.setattr(buffers, "empty", counted)
    x = torch.randn(16, 4, 64)
    neuron = snn.Leaky(0.9, learn_beta=True, backend="cpu")
    with torch.no_grad():
        neuron.sequence(x)
    assert sorted(taken) == [(4, 64), (16, 4, 64)], "a final state and the spikes"
    neuron.beta.requires_grad_(False)
    taken.clear()
    spk, _ = neuron.sequence(x)
    assert sorted(taken) == [(4, 64), (16, 4, 64)]
    assert not spk.requires_grad


DERIVATIVES: dict[str, Callable[[Callable[[Tensor], Tensor], Tensor], Any]] = {
    "square": lambda f, x: torch.autograd.grad(first_derivative(f(x).square().sum(), x).sum(), x),
    "sum": lambda f, x: torch.autograd.grad(first_derivative(f(x).sum(), x).sum(), x),
    "penalty": lambda f, x: first_derivative(f(x).sum(), x).square().sum().backward(),
    "hessian": lambda f, x: torch.autograd.functional.hessian(lambda x: f(x).sum(), x),
    "hvp": lambda f, x: torch.autograd.functional.hvp(lambda x: f(x).sum(), x, torch.ones_like(x)),
    "jvp": lambda f, x: torch.autograd.functional.jvp(f, x, torch.ones_like(x)),
}


def first_derivative(loss: Tensor, x: Tensor) -> Tensor:
    (grad,) = torch.autograd.grad(loss, x, create_graph=True)
    return grad


@pytest.mark.parametrize("name", DERIVATIVES)
def test_derivative_of_a_gradient__is_refused_and_never_zero(name: str) -> None:
    x = torch.randn(5, 3, 7, requires_grad=True)
    neuron = snn.Leaky(0.9, backend="cpu")
    with pytest.raises(UnsupportedError, match=r"through leaky with create_graph=True.*backend='reference'"):
        DERIVATIVES[name](lambda x: neuron.sequence(x)[1][0], x)


def test_batch_of_gradients__is_refused_one_at_a_time_is_not() -> None:
    x = torch.randn(4, 2, 3)
    neurons = {backend: snn.Leaky(0.9, backend=backend) for backend in ("cpu", "reference")}

    def jacobian(backend: str, **how: Any) -> Tensor:
        found: Tensor = torch.autograd.functional.jacobian(lambda x: neurons[backend].sequence(x)[1][0], x, **how)
        return found

    with pytest.raises(UnsupportedError, match=r"through leaky for a batch of gradients.*one at a time"):
        jacobian("cpu", vectorize=True)
    torch.testing.assert_close(jacobian("cpu"), jacobian("reference", vectorize=True))


def test_backward__after_the_input_it_needs_was_changed__is_refused() -> None:
    x = torch.randn(5, 3, 7)
    neuron = snn.Lapicque(R=2.0, C=1.5, backend="cpu")
    neuron.R.requires_grad_()
    spk, _ = neuron.sequence(x)
    x.zero_()
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        spk.sum().backward()


def test_conftest__memory_from_the_pool__is_poisoned() -> None:
    for size in (3, 100_000):
        assert bool(buffers.empty((size,), (1,), torch.float32).isnan().all())


@pytest.mark.parametrize("kind", ["sequence", "static", "step"])
def test_saved_tensors__given_back_in_another_layout__give_the_same_gradients(kind: str) -> None:
    shape = (4, 3, 2, 5) if kind == "sequence" else (3, 2, 5)
    x = torch.randn(shape, generator=torch.Generator().manual_seed(0)).transpose(-1, -2).requires_grad_()
    mem = torch.randn(shape[-3:]).transpose(-1, -2).requires_grad_()
    neuron = snn.Leaky(0.9, learn_beta=True, backend="cpu")

    def gradients() -> tuple[Tensor, ...]:
        spk, (last,) = (
            neuron.advance(x, [mem])
            if kind == "step"
            else neuron.sequence(x, [mem], num_steps=2 if kind == "static" else None)
        )
        weights = torch.arange(spk.numel()).reshape(spk.shape)
        return torch.autograd.grad((weights * spk).sum() + last.square().sum(), (x, mem, neuron.beta))

    def relaid(t: Tensor) -> Tensor:
        order = tuple(reversed(range(t.dim())))
        return t.permute(order).contiguous().permute(order)

    expected = gradients()
    with torch.autograd.graph.saved_tensors_hooks(relaid, lambda t: t):
        found = gradients()
    assert all(torch.equal(a, b) for a, b in zip(found, expected))


@pytest.mark.parametrize("width", [(), (3,)])
def test_parameter__with_a_negative_bit__has_its_value(width: tuple[int, ...]) -> None:
    negative = torch.view_as_complex(torch.full((*width, 2), -0.5)).conj().imag
    assert negative.is_neg()
    neuron = snn.Leaky(0.9, backend="cpu")
    _, mem = torch.func.functional_call(neuron, {"beta": negative}, (torch.zeros(2, 3), torch.ones(2, 3)))
    assert torch.equal(mem, torch.full((2, 3), 0.5))


@pytest.mark.parametrize(
    ("shape", "base"), [((50, 4), (1,)), ((50, 3, 4), (4,)), ((50, 3, 1), (3, 1)), ((1, 3, 4), (4,))]
)
def test_input_expanded_over_time__kernel_that_reads_it_again__same_gradients(
    shape: tuple[int, ...], base: tuple[int, ...]
) -> None:
    grads = []
    for backend in ("cpu", "reference"):
        torch.manual_seed(0)
        x, neuron = torch.randn(base).requires_grad_(), snn.Lapicque(0.9, C=2.0, learn_beta=True, backend=backend)
        spk, (mem,) = neuron.sequence(x.expand(shape))
        grads.append(torch.autograd.grad(spk.sum() + mem.square().sum(), (x, neuron.beta)))
    for a, b in zip(*grads):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-4)
