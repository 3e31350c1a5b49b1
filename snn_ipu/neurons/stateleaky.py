"""Leaky neuron without reset, computed for a whole sequence at once."""

from __future__ import annotations

import warnings
from typing import Any, Callable, Sequence

import torch
from torch import Tensor, nn

from .._compat import constant_result, is_recording
from ..backends.call import Result, state_dtype
from ..errors import ShapeError, UnsupportedError
from ..scan import check, register, scan
from ..surrogate import SpikeGrad, disabled, spike
from .base import State, Value, seen
from .lif import LIF, Quantiser, fire


def stateleaky(
    x: Tensor, mem: Tensor, *, decay: Tensor, threshold: Tensor, graded_spikes_factor: Tensor
) -> tuple[Tensor, Tensor]:
    """One step: mem = decay * mem + x; spk = mem > threshold."""
    mem = decay * mem + x
    return spike(mem - threshold) * graded_spikes_factor, mem


def integrate(x: Tensor, mem: Tensor, *, decay: Tensor) -> tuple[Tensor, Tensor]:
    """One step without spikes: mem = decay * mem + x."""
    mem = decay * mem + x
    return mem, mem


def accumulate(x: Tensor, total: Tensor, weight: Tensor, *, decay: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """One step of a sum whose later terms count less: total = total + weight * x; weight = decay * weight."""
    total = total + weight * x
    return total, total, decay * weight


def emit(
    x: Tensor, *, threshold: Tensor, graded_spikes_factor: Tensor, state_quant: Quantiser | None = None
) -> tuple[Tensor]:
    """Spikes of membranes x: spk = x > threshold."""
    return (fire(x, threshold, graded_spikes_factor, state_quant=state_quant),)


# what runs beside the layer's own step, by name: the step, its states and its parameters
_HELPERS: dict[str, tuple[Callable[..., Any], tuple[str, ...], tuple[str, ...]]] = {
    "integrate": (integrate, ("mem",), ("decay",)),
    "accumulate": (accumulate, ("total", "weight"), ("decay",)),
    "emit": (emit, (), ("threshold", "graded_spikes_factor")),
}
_NO_SPIKES = disabled()


class StateLeaky(LIF):
    """Leaky neuron without reset over a whole sequence: mem[t] = sum over k of exp(-k / tau) * x[t-k].

    tau = 1 / (1 - beta), so the decay per step is exp(beta - 1): 0.905 for beta = 0.9. The sum is the recurrence
    mem[t] = exp(-1 / tau) * mem[t-1] + x[t], run as one fused scan in time proportional to T; with a window of K terms
    in as much.

    Args:
        beta: sets tau; one value or one per channel.
        channels: size of the last dimension of x.
        learn_beta: make tau a parameter. threshold, spike_grad, surrogate_disable, learn_threshold, state_quant,
            graded_spikes_factor, learn_graded_spikes_factor as in `Leaky`.
        output: return spikes and membranes; False returns the membranes alone.
        kernel_truncation_steps: K, how many of the latest inputs the membrane holds; None for all.

    Shape: x [T, B, ..., channels]; spk and mem as x. Units: dimensionless.

    Raises: ValueError for a beta or a window that does not fit; ShapeError for another number of channels.

    Source: snnTorch 1.0 `StateLeaky`.
    """

    step = staticmethod(stateleaky)
    state_names = ("mem",)
    graded = True
    mem: Tensor
    tau: Tensor

    def __init__(
        self,
        beta: Value,
        channels: int,
        threshold: Value = 1.0,
        spike_grad: SpikeGrad | None = None,
        surrogate_disable: bool = False,
        learn_beta: bool = False,
        learn_threshold: bool = False,
        state_quant: bool | Quantiser = False,
        output: bool = True,
        graded_spikes_factor: Value = 1.0,
        learn_graded_spikes_factor: bool = False,
        kernel_truncation_steps: int | None = None,
        *,
        backend: str = "auto",
    ) -> None:
        super().__init__(
            threshold,
            spike_grad,
            surrogate_disable,
            learn_threshold=learn_threshold,
            reset_mechanism="none",
            state_quant=state_quant,
            output=output,
            graded_spikes_factor=graded_spikes_factor,
            learn_graded_spikes_factor=learn_graded_spikes_factor,
            backend=backend,
        )
        given = torch.as_tensor(beta)
        if given.shape not in ((), (1,), (channels,)):
            raise ValueError(
                f"{type(self).__name__}(beta of shape {tuple(given.shape)}): expected one value or one per channel, "
                f"[{channels}]. Pass a number or a tensor of that shape."
            )
        if kernel_truncation_steps is not None and kernel_truncation_steps < 1:
            raise ValueError(
                f"{type(self).__name__}(kernel_truncation_steps={kernel_truncation_steps}): expected at least 1, or "
                "None to keep every input."
            )
        factor = torch.as_tensor(graded_spikes_factor)
        if not output and (spike_grad or surrogate_disable or learn_threshold or bool((factor != 1).any())):
            warnings.warn(
                f"{type(self).__name__}(output=False) emits no spikes, so its threshold, surrogate and graded factor "
                "have no effect.",
                stacklevel=2,
            )
        self.channels: int | None = channels
        self.kernel_truncation_steps = kernel_truncation_steps
        tau = 1 / (1 - given.detach() + 1e-12)
        if learn_beta:
            self.tau = nn.Parameter(tau)
        else:
            self.register_buffer("tau", tau)
        self._param_names = ("decay", *self._param_names)

    @property
    def beta(self) -> Tensor:
        """(tau - 1) / tau."""
        return (self.tau - 1) / self.tau

    @property
    def decay(self) -> Tensor:
        """Of the membrane per step, exp(-1 / tau)."""
        return torch.exp(-1 / self.tau)

    def flags(self) -> dict[str, Any]:
        # Neither the reset nor the quantised membrane feeds back into the recurrence.
        return {}

    def forward(self, input_: Tensor) -> Any:  # type: ignore[override]
        """A whole sequence, from no state.

        Args:
            input_: currents [T, B, ..., channels].

        Returns: `(spk, mem)`, both as the input; mem alone with `output=False`.

        Raises: ShapeError for another number of channels.
        """
        if not self.output:
            return self._membranes(self._currents(input_), None, None)[0]
        spk, _, traces = self.run_sequence(input_, None, None, ("mem",))
        return spk, traces["mem"]

    def advance(self, x: Tensor, state: Sequence[Tensor | None]) -> tuple[Tensor, State]:
        spk, states, _ = self.run_sequence(x, state, 1, ())
        return spk[0], states

    def run_sequence(
        self,
        x: Tensor,
        state: Sequence[Tensor | None] | None,
        num_steps: int | None,
        traced: tuple[str, ...],
    ) -> tuple[Tensor, State, dict[str, Tensor]]:
        x = self._currents(x)
        if not self.state_quant and self.kernel_truncation_steps is None:
            return super().run_sequence(x, state, num_steps, traced)
        mem, final = self._membranes(x, state, num_steps)
        spk = self._helper("emit", mem, (), single=True).spk
        return spk.to(x.dtype), final, dict.fromkeys(traced, mem)

    def _currents(self, x: Tensor) -> Tensor:
        """The input of the recurrence, [..., channels]."""
        if x.dim() < 1 or self.channels not in (None, x.shape[-1]):
            raise ShapeError(
                f"{type(self).__name__}(x of shape {tuple(x.shape)}): expected [T, B, {self.channels}], channels last. "
                "Transpose the input."
            )
        return x

    def _membranes(
        self, x: Tensor, state: Sequence[Tensor | None] | None, num_steps: int | None
    ) -> tuple[Tensor, State]:
        """The membranes of all steps, quantised where asked for, and the final state."""
        window = self.kernel_truncation_steps
        if window is not None:
            if state is not None and any(s is not None and s.shape != (0,) for s in state):
                raise UnsupportedError(
                    f"{type(self).__name__}(kernel_truncation_steps={window}) from a state: the membrane alone does "
                    "not say which inputs leave the window. Give the whole sequence in one call."
                )
            check(type(self).__name__, self.state_names, x, None, num_steps=num_steps)
            x = x if num_steps is None else x.expand(num_steps, *x.shape)
            num_steps = None
        x = x.to(state_dtype(x.dtype))
        if window is None or window >= x.shape[0]:
            mem, final = self._integrate(x, state, num_steps)
        else:
            mem = self._windowed(x, window)
            final = (mem[-1],)
        return (self.state_quant(mem) if callable(self.state_quant) else mem), final

    def _integrate(
        self, x: Tensor, state: Sequence[Tensor | None] | None, num_steps: int | None
    ) -> tuple[Tensor, State]:
        result = self._helper("integrate", x, state, num_steps=num_steps)
        return result.spk, result.states

    def _windowed(self, x: Tensor, window: int) -> Tensor:
        """mem[t] = sum over k < window of exp(-k / tau) * x[t-k], by blocks of as many steps.

        A window ends in one block and starts in the one before: a scan inside the block, plus what is left of the
        earlier block, which is a sum from its end. No term is subtracted again, so nothing of an input remains.
        """
        num_steps, frame = x.shape[0], x.shape[1:]
        blocks = -(-num_steps // window)
        padded = torch.cat((x, x.new_zeros(blocks * window - num_steps, *frame)))
        by_block = padded.reshape(blocks, window, *frame).transpose(0, 1).contiguous()  # [window, blocks, B, ...]
        inside, _ = self._integrate(by_block, None, None)
        backwards = by_block[1:, :-1].flip(0)
        start = (torch.zeros_like(by_block[0, :-1]), torch.ones_like(by_block[0, :-1]))
        left = self._helper("accumulate", backwards, start).spk.flip(0)
        ages = torch.arange(1, window, device=x.device, dtype=x.dtype)
        aged = left * torch.exp(-ages.reshape(-1, *[1] * len(frame), 1) / self.tau.to(x.dtype))
        before = torch.cat((aged.new_zeros(window - 1, 1, *frame), aged), 1)
        mem = torch.cat((inside[:-1] + before, inside[-1:]))
        return mem.transpose(0, 1).flatten(0, 1)[:num_steps]

    def _helper(self, name: str, x: Tensor, state: Sequence[Tensor | None] | None, **how: Any) -> Result:
        """`scan` with one of the steps beside the layer's own."""
        step, states, params = _HELPERS[name]
        flags, spike_grad = self._helper_flags(name)
        return scan(
            type(self).__name__,
            step,
            states,
            x,
            state,
            {p: getattr(self, p) for p in params},
            flags,
            spike_grad,
            backend=self.backend,
            operator=self._helper_operator(name, *seen(spike_grad, flags)) if is_recording() else "",
            **how,
        )

    def _helper_flags(self, name: str) -> tuple[dict[str, Any], SpikeGrad]:
        if name != "emit":
            return {}, _NO_SPIKES
        return ({"state_quant": self.state_quant} if self.state_quant else {}), self.spike_grad

    @constant_result
    def _helper_operator(self, name: str, *values: Any) -> str:
        flags, spike_grad = self._helper_flags(name)
        return register(*_HELPERS[name], flags, spike_grad, self.backend)

    def _save_to_state_dict(self, destination: Any, prefix: str, keep_vars: bool) -> None:
        super()._save_to_state_dict(destination, prefix, keep_vars)
        destination[prefix + "beta"] = self.beta.detach()

    def _load_from_state_dict(self, state_dict: Any, prefix: str, *args: Any, **kwargs: Any) -> None:
        # snnTorch stores beta as well; tau alone decides.
        state_dict.pop(prefix + "beta", None)
        super()._load_from_state_dict(state_dict, prefix, *args, **kwargs)
