"""Surrogate gradients: each is one expression for d spk / d u, where u = mem - threshold.

A spike is H(u) = 1 if u > 0 else 0. Its derivative is replaced in the backward pass by the expression below; every
backend prints its kernel from that same expression. `primitive` is a smooth function with the expression as its
derivative; it stands in for the step where gradients are checked numerically.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import itertools
import math
import threading
from dataclasses import dataclass, field
from typing import Any, Callable, Iterator, Union

import torch
from torch import Tensor, fx

from ._compat import in_transform
from .errors import TraceError

Expression = Callable[..., Tensor]


_serials = itertools.count()


class SurrogateFactory:
    """Makes `Surrogate` values; what `define` leaves in place of the decorated expression."""

    def __init__(self, expression: Expression, primitive: Expression | None, defaults: dict[str, float]):
        self.expression = expression
        self.primitive = primitive
        self.defaults = defaults
        # Tells surrogates of one name apart; text, because torch.compile guards text by its value.
        self.serial = f"{expression.__qualname__} {next(_serials)}"
        self.__name__ = expression.__name__
        self.__qualname__ = expression.__qualname__
        self.__module__ = expression.__module__
        self.__doc__ = expression.__doc__
        parameters = [
            inspect.Parameter(n, inspect.Parameter.POSITIONAL_OR_KEYWORD, default=v) for n, v in defaults.items()
        ]
        self.__signature__ = inspect.Signature(parameters)

    def __call__(self, *args: float, **kwargs: float) -> Surrogate:
        bound = self.__signature__.bind(*args, **kwargs)
        bound.apply_defaults()
        for name, value in bound.arguments.items():
            if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
                raise ValueError(
                    f"{self.__name__}({name}={value!r}): expected a finite number. Pass {name} as a Python float."
                )
        return Surrogate(self, tuple((n, float(v)) for n, v in bound.arguments.items()))

    def __reduce__(self) -> str:
        return self.__qualname__

    def __repr__(self) -> str:
        return f"<surrogate {self.__name__}{self.__signature__}>"


@dataclass(frozen=True)
class Surrogate:
    """A surrogate with its parameters fixed: hashable, comparable, picklable, printable and callable.

    Calling it on u gives H(u) in the forward pass and the surrogate gradient in the backward pass.
    """

    factory: SurrogateFactory
    params: tuple[tuple[str, float], ...]
    smooth: bool = field(default=False, repr=False)

    def __call__(self, u: Tensor) -> Tensor:
        return spike(u, self)

    def grad(self, u: Tensor) -> Tensor:
        """d spk / d u at u, same shape as u."""
        return self.factory.expression(u, **dict(self.params))

    def _primitive(self) -> Expression:
        if self.factory.primitive is None:
            raise ValueError(
                f"{self!r} has no primitive, so it has no smooth mode. "
                f"Give one: define(..., primitive=lambda u, ...: ...)."
            )
        return self.factory.primitive

    def primitive(self, u: Tensor) -> Tensor:
        """The smooth function whose derivative is `grad`; raises ValueError where none was given."""
        return self._primitive()(u, **dict(self.params))

    @functools.cached_property
    def form(self) -> Surrogate:
        """The surrogate without the values of its parameters: what a kernel is compiled for."""
        return Surrogate(self.factory, tuple((n, 0.0) for n, _ in self.params), self.smooth)

    def smoothed(self) -> Surrogate:
        """The same surrogate in smooth mode: spikes are `primitive(u)` and `detach` does nothing in kernels."""
        self._primitive()
        return Surrogate(self.factory, self.params, smooth=True)

    def __repr__(self) -> str:
        inner = ", ".join(f"{n}={v:g}" for n, v in self.params)
        return f"{self.factory.__name__}({inner})" + (".smoothed()" if self.smooth else "")


SpikeGrad = Union[Surrogate, Callable[[Tensor], Tensor]]


def _step(u: Tensor, surrogate: Surrogate) -> Tensor:
    return surrogate.primitive(u) if surrogate.smooth else (u > 0).to(u.dtype)


class _Spike(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, u: Tensor, surrogate: Surrogate) -> Tensor:
        ctx.surrogate = surrogate
        ctx.save_for_backward(u)
        return _step(u, surrogate)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        (u,) = ctx.saved_tensors
        return grad * ctx.surrogate.grad(u), None


class _SpikeInTransform(torch.autograd.Function):
    """The form that torch.func needs, which torch takes longer to call than a small layer to run."""

    generate_vmap_rule = True
    forward = staticmethod(_step)
    backward = _Spike.backward

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Surrogate], output: Tensor) -> None:
        u, ctx.surrogate = inputs
        ctx.save_for_backward(u)


class _Current(threading.local):
    spike_grad: SpikeGrad | None = None


_current = _Current()

# Device types with an operation of their own for spikes, because they do not run autograd functions.
on_device: dict[str, Callable[[Tensor, SpikeGrad], Tensor]] = {}


@contextlib.contextmanager
def using(spike_grad: SpikeGrad) -> Iterator[None]:
    """Make `spike_grad` the surrogate of every `spike(u)` inside the block, in this thread."""
    previous, _current.spike_grad = _current.spike_grad, spike_grad
    try:
        yield
    finally:
        _current.spike_grad = previous


def calls_back() -> bool:
    """Whether spikes inside the current block come from a callable of the user's."""
    chosen = _current.spike_grad
    return chosen is not None and not isinstance(chosen, Surrogate)


def spike(u: Tensor, spike_grad: SpikeGrad | None = None) -> Tensor:
    """Heaviside step with a surrogate gradient: spk = 1 where u > 0, else 0 (strict, as snnTorch).

    Args:
        u: membrane minus threshold, any shape.
        spike_grad: the surrogate; inside a neuron step that neuron's own, elsewhere `atan()` by default.

    Returns: spikes in u's dtype and shape.
    """
    if isinstance(u, fx.Proxy):
        if spike_grad is not None:
            raise TraceError(
                "spike(u, spike_grad=...) inside a neuron step: a step has one surrogate, given to the module. "
                "Write spike(u) and pass spike_grad=... when the neuron is made."
            )
        return u.tracer.create_proxy("call_function", spike, (u,), {})
    chosen = spike_grad or _current.spike_grad or atan()
    if u.device.type in on_device:
        return on_device[u.device.type](u, chosen)
    if isinstance(chosen, Surrogate):
        function = _SpikeInTransform if in_transform() else _Spike
        return function.apply(u, chosen)  # type: ignore[no-any-return, no-untyped-call]
    return chosen(u)


def define(primitive: Expression | None = None, **defaults: float) -> Callable[[Expression], SurrogateFactory]:
    """Turn one expression of plain torch into a surrogate that every backend compiles.

        @snn.surrogate.define(width=0.5)
        def triangle(u, width):
            return torch.relu(1 - u.abs() / width) / width

    Args:
        primitive: a smooth function of (u, **parameters) with the expression as derivative, for gradient checks.
        defaults: the expression's parameters and their default values.

    Returns: a factory; `triangle()` or `triangle(width=1.0)` makes a value for `spike_grad=`.

    Raises: TypeError when the expression's arguments are not u followed by the named parameters.
    """

    def decorate(expression: Expression) -> SurrogateFactory:
        names = list(inspect.signature(expression).parameters)
        if names[1:] != list(defaults):
            raise TypeError(
                f"define({', '.join(defaults)}) on {expression.__name__}({', '.join(names)}): expected the arguments "
                f"u, {', '.join(defaults)}. Give every parameter after u a default in define, in the same order."
            )
        return SurrogateFactory(expression, primitive, dict(defaults))

    return decorate


@define(alpha=2.0, primitive=lambda u, alpha: torch.atan(math.pi / 2 * alpha * u) / math.pi + 0.5)
def atan(u: Tensor, alpha: float) -> Tensor:
    """Arctangent: (alpha / 2) / (1 + (pi / 2 * alpha * u)^2); peak alpha / 2. The library's default.

    Source: Fang et al., ICCV 2021 (arXiv:2007.05785), with snnTorch's scale.
    """
    return alpha / 2 / (1 + (math.pi / 2 * alpha * u) ** 2)


@define(slope=25.0, primitive=lambda u, slope: u / (1 + slope * u.abs()))
def fast_sigmoid(u: Tensor, slope: float) -> Tensor:
    """Fast sigmoid: 1 / (1 + slope * |u|)^2; peak 1. Source: Zenke and Ganguli, 2018 (arXiv:1705.11146)."""
    return 1 / (1 + slope * u.abs()) ** 2


@define(slope=25.0, primitive=lambda u, slope: torch.sigmoid(slope * u))
def sigmoid(u: Tensor, slope: float) -> Tensor:
    """Derivative of the logistic function: slope * e / (1 + e)^2 with e = exp(-slope * |u|); peak slope / 4."""
    e = torch.exp(-slope * u.abs())
    return slope * e / (1 + e) ** 2


@define(primitive=lambda u: u)
def straight_through_estimator(u: Tensor) -> Tensor:
    """Straight-through estimator: 1 everywhere. Source: Bengio et al., 2013 (arXiv:1308.3432)."""
    return torch.ones_like(u)


@define(threshold=1.0, primitive=lambda u, threshold: -threshold * u.abs())
def triangular(u: Tensor, threshold: float) -> Tensor:
    """snnTorch's triangular: +threshold where u < 0, -threshold where u >= 0."""
    return torch.where(u < 0, threshold * torch.ones_like(u), -threshold)


@define(
    beta=1.0,
    slope=25.0,
    primitive=lambda u, beta, slope: torch.sign(u - 1) * slope / beta * (1 - torch.exp(-beta * (u - 1).abs())),
)
def spike_rate_escape(u: Tensor, beta: float, slope: float) -> Tensor:
    """Boltzmann escape rate: slope * exp(-beta * |u - 1|); peak slope at u = 1. Source: Gerstner and Kistler, 2002."""
    return slope * torch.exp(-beta * (u - 1).abs())


@define(slope=0.1, primitive=lambda u, slope: torch.where(u > 0, u, slope * u))
def LSO(u: Tensor, slope: float) -> Tensor:
    """Leaky spike operator: 1 where u > 0, else slope."""
    return torch.where(u > 0, torch.ones_like(u), slope)


@define(mean=0.0, variance=0.2)
def SSO(u: Tensor, mean: float, variance: float) -> Tensor:
    """Stochastic spike operator: 1 where u > 0, else (U[0, 1) - 0.5 + mean) * variance, drawn at every backward pass.

    Random numbers have no kernel, so a neuron with this surrogate runs on the reference backend.
    """
    return torch.where(u > 0, torch.ones_like(u), (torch.rand_like(u) - 0.5 + mean) * variance)


@define(
    slope=25.0,
    B=1.0,
    primitive=lambda u, slope, B: torch.where(
        u > B, u / (1 + slope * u.abs()) - B / (1 + slope * B), torch.zeros_like(u)
    ),
)
def SFS(u: Tensor, slope: float, B: float) -> Tensor:
    """Sparse fast sigmoid: 1 / (1 + slope * |u|)^2 where u > B, else 0. Source: Perez-Nieves and Goodman, 2021."""
    return torch.where(u > B, 1 / (1 + slope * u.abs()) ** 2, 0.0)


@define(primitive=lambda u: torch.relu(u))
def heaviside(u: Tensor) -> Tensor:
    """The step itself as its own gradient: 1 where u > 0, else 0."""
    return torch.where(u > 0, 1.0, torch.zeros_like(u))


@define(width=1.0, primitive=lambda u, width: torch.clamp(u / width, -0.5, 0.5))
def boxcar(u: Tensor, width: float) -> Tensor:
    """Boxcar: 1 / width where |u| < width / 2, else 0; integral 1. Source: Wu et al., 2018 (arXiv:1706.02609)."""
    return torch.where(u.abs() < width / 2, 1 / width, torch.zeros_like(u))


@define(
    alpha=1.0,
    primitive=lambda u, alpha: torch.where(
        u.abs() < 1 / alpha, alpha * u - alpha * alpha * u.abs() * u / 2, 0.5 * torch.sign(u)
    ),
)
def piecewise_quadratic(u: Tensor, alpha: float) -> Tensor:
    """Triangle-shaped derivative of a piecewise quadratic: relu(alpha - alpha^2 * |u|); peak alpha, integral 1.

    Source: Bellec et al., 2018 (arXiv:1803.09574), with SpikingJelly's scale.
    """
    return torch.relu(alpha - alpha * alpha * u.abs())


@define(alpha=2.0, primitive=lambda u, alpha: 0.5 * torch.erf(alpha * u))
def erf(u: Tensor, alpha: float) -> Tensor:
    """Gaussian: alpha / sqrt(pi) * exp(-(alpha * u)^2); integral 1. Source: Yin et al., 2021 (arXiv:2105.12040)."""
    return alpha / math.sqrt(math.pi) * torch.exp(-((alpha * u) ** 2))


@define(beta=10.0, primitive=lambda u, beta: u / (1 + beta * u.abs()))
def superspike(u: Tensor, beta: float) -> Tensor:
    """SuperSpike: 1 / (1 + beta * |u|)^2 with its paper's steepness. Source: Zenke and Ganguli, 2018."""
    return 1 / (1 + beta * u.abs()) ** 2


@define()
def disabled(u: Tensor) -> Tensor:
    """No gradient through spikes: what `surrogate_disable=True` stands for."""
    return torch.zeros_like(u)


class _CustomSpike(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, u: Tensor, function: Callable[[Tensor, Tensor, Tensor], Tensor]) -> Tensor:
        spk = (u > 0).to(u.dtype)
        ctx.save_for_backward(u, spk)
        ctx.function = function
        return spk

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        u, spk = ctx.saved_tensors
        return ctx.function(u, grad.clone(), spk), None


@dataclass(frozen=True)
class CustomSurrogate:
    """Made by `custom_surrogate`; a plain callable to the backends, so it runs on the reference backend."""

    function: Callable[[Tensor, Tensor, Tensor], Tensor]

    @property
    def __name__(self) -> str:
        return f"custom_surrogate({getattr(self.function, '__name__', repr(self.function))})"

    def __call__(self, u: Tensor) -> Tensor:
        return _CustomSpike.apply(u, self.function)  # type: ignore[no-any-return, no-untyped-call]


def custom_surrogate(custom_surrogate_function: Callable[[Tensor, Tensor, Tensor], Tensor]) -> CustomSurrogate:
    """A surrogate from a function that maps the gradient of the spikes to that of the membrane, as snnTorch's.

    Args:
        custom_surrogate_function: `f(u, grad, spk)` of u = mem - threshold, the incoming gradient and the spikes, of
            one shape; returns d loss / d u.

    Returns: a value for `spike_grad=`. It runs on the reference backend; `define` makes one that is compiled.

    Source: snnTorch 1.0.
    """
    return CustomSurrogate(custom_surrogate_function)


BUILTIN: tuple[SurrogateFactory, ...] = (
    atan,
    fast_sigmoid,
    sigmoid,
    straight_through_estimator,
    triangular,
    spike_rate_escape,
    LSO,
    SSO,
    SFS,
    heaviside,
    boxcar,
    piecewise_quadratic,
    erf,
    superspike,
)
