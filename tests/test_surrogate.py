"""Surrogates: each expression is a value, the derivative of its primitive, and the same printed as C++."""

from __future__ import annotations

import copy
import math
import pickle

import pytest
import torch
from helpers import SURROGATES
from torch import Tensor

import snn_ipu as snn
from snn_ipu import surrogate as s
from snn_ipu.surrogate import BUILTIN, Surrogate

# Values at u = -0.2, 0, 0.2, 1.2, by the formulas of snnTorch 1.0 and of the papers that the docstrings name.
VALUES = [
    (s.fast_sigmoid(), (1 / 36, 1.0, 1 / 36, 1 / 961)),
    (s.atan(), tuple(1 / (1 + (math.pi * u) ** 2) for u in (-0.2, 0.0, 0.2, 1.2))),
    (s.sigmoid(slope=4.0), tuple(4 * math.exp(-4 * u) / (1 + math.exp(-4 * u)) ** 2 for u in (-0.2, 0.0, 0.2, 1.2))),
    (s.straight_through_estimator(), (1.0, 1.0, 1.0, 1.0)),
    (s.triangular(threshold=0.5), (0.5, -0.5, -0.5, -0.5)),
    (s.spike_rate_escape(), tuple(25 * math.exp(-abs(u - 1)) for u in (-0.2, 0.0, 0.2, 1.2))),
    (s.LSO(), (0.1, 0.1, 1.0, 1.0)),
    (s.SFS(), (0.0, 0.0, 0.0, 1 / 961)),
    (s.heaviside(), (0.0, 0.0, 1.0, 1.0)),
    (s.boxcar(width=0.5), (2.0, 2.0, 2.0, 0.0)),
    (s.piecewise_quadratic(alpha=2.0), (1.2, 2.0, 1.2, 0.0)),
    (s.erf(), tuple(2 / math.sqrt(math.pi) * math.exp(-4 * u * u) for u in (-0.2, 0.0, 0.2, 1.2))),
    (s.superspike(), (1 / 9, 1.0, 1 / 9, 1 / 169)),
]


@snn.surrogate.define(width=0.5, primitive=lambda u, width: -torch.relu(-u) / width)
def ramp(u: Tensor, width: float) -> Tensor:
    """A user's own surrogate: 1 / width below threshold."""
    return torch.where(u < 0, 1 / width, torch.zeros_like(u))


@snn.neuron(states=())
def pulse(x: Tensor) -> tuple[Tensor]:
    """A neuron that is nothing but a spike, so that the gradient of x is the surrogate."""
    return (snn.spike(x),)


def name_of(surrogate: Surrogate) -> str:
    return surrogate.factory.__name__


@pytest.mark.parametrize(("surrogate", "values"), VALUES, ids=[name_of(v[0]) for v in VALUES])
def test_surrogate__at_known_points__has_the_published_value(surrogate: Surrogate, values: tuple[float, ...]) -> None:
    u = torch.tensor([-0.2, 0.0, 0.2, 1.2], dtype=torch.float64)
    torch.testing.assert_close(surrogate.grad(u), torch.tensor(values, dtype=torch.float64), rtol=1e-12, atol=1e-15)


def test_values__of_every_surrogate_that_is_not_random__are_listed() -> None:
    assert {name_of(v[0]) for v in VALUES} == {f.__name__ for f in BUILTIN} - {"SSO"}


@pytest.mark.parametrize("surrogate", [*SURROGATES, ramp()], ids=name_of)
def test_surrogate__anywhere__is_the_numeric_derivative_of_its_primitive(surrogate: Surrogate) -> None:
    # An irrational step keeps the points off the kinks at 0, +-0.5 and +-1.
    u = torch.arange(-400, 400, dtype=torch.float64) * (math.sqrt(2) / 200) + 1e-3
    h = 1e-6
    slope = (surrogate.primitive(u + h) - surrogate.primitive(u - h)) / (2 * h)
    torch.testing.assert_close(surrogate.grad(u), slope, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("surrogate", [*SURROGATES, s.sigmoid(), s.spike_rate_escape(), ramp()], ids=repr)
@pytest.mark.parametrize("dtype", [torch.float16, torch.float32], ids=str)
def test_surrogate__far_from_threshold__is_finite(surrogate: Surrogate, dtype: torch.dtype) -> None:
    u = torch.tensor([-1e4, -100.0, -1e-4, 0.0, 1e-4, 100.0, 1e4], dtype=dtype, requires_grad=True)
    spk = surrogate(u)
    spk.sum().backward()
    assert u.grad is not None
    assert torch.equal(spk.detach(), (u > 0).to(dtype))
    assert spk.dtype == u.grad.dtype == dtype
    assert bool(u.grad.isfinite().all())


@pytest.mark.parametrize("surrogate", [*SURROGATES, ramp()], ids=name_of)
def test_surrogate__printed_as_a_kernel__equals_its_expression(surrogate: Surrogate) -> None:
    near = torch.linspace(-3, 3, 2001, dtype=torch.float64)
    u = torch.cat([near, 10.0 ** torch.linspace(-4, 4, 50), -(10.0 ** torch.linspace(-4, 4, 50))])
    for dtype in (torch.float32, torch.float16):
        x = u.to(dtype).reshape(1, 1, -1).requires_grad_()
        spk, _ = pulse(spike_grad=surrogate, backend="cpu").sequence(x)
        (grad,) = torch.autograd.grad(spk.sum(), x)
        exact = surrogate.grad(x.detach().double())
        # Half a unit of the result's type, and in float32 about four roundings of the expression itself.
        relative = 2.0**-11 if dtype == torch.float16 else 8 * 2.0**-24
        # The argument of exp is rounded relative to its size, so far out, below 1e-7, relative errors grow.
        torch.testing.assert_close(grad.double(), exact, rtol=1.05 * relative, atol=1e-7)
        assert torch.equal(spk.detach(), (x.detach() > 0).to(dtype))


def test_spike__alone__uses_the_surrogate_given_or_the_default() -> None:
    u = torch.tensor([-0.5, 0.0, 0.5], requires_grad=True)
    (given,) = torch.autograd.grad(snn.spike(u, s.triangular()).sum(), u)
    (default,) = torch.autograd.grad(snn.spike(u).sum(), u)
    assert given.tolist() == [1.0, -1.0, -1.0]
    assert torch.equal(default, s.atan().grad(u.detach()))


@pytest.mark.parametrize("surrogate", [f() for f in BUILTIN] + [ramp(), s.atan(alpha=3).smoothed()], ids=repr)
def test_surrogate__copied_or_pickled__is_equal_and_hashes_alike(surrogate: Surrogate) -> None:
    for twin in (pickle.loads(pickle.dumps(surrogate)), copy.deepcopy(surrogate)):
        assert twin == surrogate
        assert hash(twin) == hash(surrogate)
        assert repr(twin) == repr(surrogate)


def test_surrogate__other_value_or_function__is_not_equal() -> None:
    assert s.fast_sigmoid(25) == s.fast_sigmoid(slope=25.0)
    assert len({s.fast_sigmoid(), s.fast_sigmoid(10), s.superspike(25), s.atan(), s.atan().smoothed()}) == 5


def test_surrogate__printed__shows_the_call_that_makes_it() -> None:
    assert repr(s.fast_sigmoid(slope=10)) == "fast_sigmoid(slope=10)"
    assert repr(s.SFS()) == "SFS(slope=25, B=1)"
    assert repr(s.straight_through_estimator()) == "straight_through_estimator()"
    assert repr(s.atan().smoothed()) == "atan(alpha=2).smoothed()"
    assert repr(ramp) == "<surrogate ramp(width=0.5)>"


@pytest.mark.parametrize("value", [float("nan"), float("inf"), True, "2", torch.ones(())], ids=repr)
def test_factory__parameter_that_is_no_finite_number__is_refused(value: object) -> None:
    with pytest.raises(ValueError, match=r"atan\(alpha=.*expected a finite number"):
        s.atan(alpha=value)  # type: ignore[arg-type]


def test_factory__unknown_parameter__is_refused() -> None:
    with pytest.raises(TypeError, match="slope"):
        s.atan(slope=1.0)


def test_define__arguments_that_do_not_match__are_refused_with_both_lists() -> None:
    with pytest.raises(TypeError, match=r"define\(width\) on wrong\(u, gain\)"):

        @s.define(width=1.0)
        def wrong(u: Tensor, gain: float) -> Tensor:
            return u * gain


def test_smoothed__without_a_primitive__is_refused() -> None:
    with pytest.raises(ValueError, match=r"SSO\(mean=0, variance=0.2\) has no primitive"):
        s.SSO().smoothed()


def test_smoothed__in_a_kernel__returns_the_primitive() -> None:
    x = torch.linspace(-2, 2, 15, dtype=torch.float64).reshape(1, 3, 5)
    for surrogate in (s.atan(), s.fast_sigmoid(), s.erf()):
        spk, _ = pulse(spike_grad=surrogate.smoothed(), backend="cpu").sequence(x)
        torch.testing.assert_close(spk, surrogate.primitive(x), rtol=1e-14, atol=1e-15)


def test_sso__above_and_below_threshold__is_one_and_random() -> None:
    u = torch.linspace(-1, 1, 1001, requires_grad=True)
    draws = [torch.autograd.grad(s.SSO(mean=0.5, variance=0.2)(u).sum(), u)[0] for _ in range(2)]
    for grad in draws:
        assert bool((grad[u.detach() > 0] == 1).all())
        below = grad[u.detach() <= 0]
        assert 0 <= below.min() < 0.02 and 0.18 < below.max() <= 0.2
    assert not torch.equal(*draws)


def test_sso__in_a_neuron__runs_on_the_reference_with_one_warning() -> None:
    neuron = snn.Leaky(0.9, spike_grad=s.SSO())
    x = torch.randn(3, 2, 5)
    with pytest.warns(snn.FallbackWarning, match="rand_like") as caught:
        neuron.sequence(x)
        spk, _ = neuron.sequence(x)
    assert len(caught) == 1
    assert torch.equal(spk, snn.Leaky(0.9, backend="cpu").sequence(x)[0])


def test_surrogate__parameter_changed__is_used_without_a_new_build() -> None:
    x = torch.randn(4, 3, 7, requires_grad=True)
    grads = []
    for slope in (1.0, 25.0):
        spk, _ = snn.Leaky(0.9, spike_grad=s.fast_sigmoid(slope), backend="cpu").sequence(x)
        grads.append(torch.autograd.grad(spk.sum(), x)[0])
        reference, _ = snn.Leaky(0.9, spike_grad=s.fast_sigmoid(slope), backend="reference").sequence(x)
        torch.testing.assert_close(grads[-1], torch.autograd.grad(reference.sum(), x)[0])
    assert not torch.allclose(*grads)
