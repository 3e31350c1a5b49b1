"""What the snnTorch neurons share: firing, reset mechanisms and their constructor arguments."""

from __future__ import annotations

import weakref
from typing import Any, Callable, ClassVar, MutableMapping, NamedTuple

import torch
from torch import Tensor
from torch.utils.weak import WeakTensorKeyDictionary

from .._compat import is_compiling, sees_plain_torch_only
from ..errors import warn
from ..surrogate import SpikeGrad, calls_back, disabled, spike
from .base import SpikingNeuron, Value

RESET_MECHANISMS = ("subtract", "zero", "none")
Quantiser = Callable[[Tensor], Tensor]
_PARTS_OF_SNNTORCH = frozenset(
    (
        "_base_state_function",
        "_base_state_reset_zero",
        "_base_state_reset_sub_function",
        "_base_sub",
        "_base_zero",
        "_base_int",
        "fire",
        "fire_inhibition",
        "mem_reset",
    )
)


class _Fired(NamedTuple):
    """What a callable of the user's made of a membrane, and of which content of which tensors."""

    spk: Tensor
    threshold: weakref.ref[Tensor]
    versions: tuple[int, ...]


# A callable may draw spikes at random: the reset of the next step is to follow the spikes that there were.
_fired: MutableMapping[Tensor, _Fired] = WeakTensorKeyDictionary()


def _versions(*tensors: Tensor) -> tuple[int, ...]:
    return tuple(0 if t.is_inference() else t._version for t in tensors)


def _may_be_drawn(mem: Tensor) -> bool:
    return isinstance(mem, Tensor) and calls_back() and not is_compiling() and not sees_plain_torch_only()


def has_fired(mem: Tensor, threshold: Tensor) -> Tensor:
    """1 where the last step ended above threshold: the reset that is still due, without gradient."""
    if _may_be_drawn(mem):
        fired = _fired.get(mem)
        if fired is not None and fired.threshold() is threshold and fired.versions == _versions(mem, threshold):
            return fired.spk
    return spike(mem - threshold).detach()


def fire(
    mem: Tensor,
    threshold: Tensor,
    graded_spikes_factor: Tensor | None = None,
    inhibition: bool = False,
    state_quant: Quantiser | None = None,
) -> Tensor:
    """spk = H(mem - threshold), scaled by the graded factor; with inhibition only the largest membrane may spike."""
    if inhibition:
        u = mem - threshold
        winner = torch.zeros_like(u).scatter(1, u.argmax(1, keepdim=True), 1.0)
        return spike(u) * winner
    spk = spike((mem if state_quant is None else state_quant(mem)) - threshold)
    if state_quant is None and _may_be_drawn(mem):
        _fired[mem] = _Fired(spk.detach(), weakref.ref(threshold), _versions(mem, threshold))
    return spk if graded_spikes_factor is None else spk * graded_spikes_factor


def reset_at_once(
    mem: Tensor,
    spk: Tensor,
    due: Tensor,
    threshold: Tensor,
    reset_mechanism: str,
    graded_spikes_factor: Tensor | None = None,
) -> Tensor:
    """The reset of `reset_delay=False`, in the step of the spike; `due` is what the delayed reset has done already."""
    fired = spk if graded_spikes_factor is None else spk / graded_spikes_factor
    now = fired - due
    if reset_mechanism == "subtract":
        return mem - now * threshold
    return mem - now * mem if reset_mechanism == "zero" else mem


class LIF(SpikingNeuron):
    """Base of the neurons with snnTorch's constructor arguments; parameters and buffers have snnTorch's names."""

    graded: ClassVar[bool] = False

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        unused = sorted(_PARTS_OF_SNNTORCH.intersection(vars(cls)))
        if unused:
            raise TypeError(
                f"class {cls.__name__} overrides {', '.join(unused)}, of which snnTorch's neurons are made and nothing "
                "here is: expected a step of its own. Write the dynamics as one function with snn_ipu.neuron, or as "
                "step = staticmethod(...)."
            )

    reset_delay: bool = True
    reset_mechanism_val: Tensor

    def __init__(
        self,
        threshold: Value = 1.0,
        spike_grad: SpikeGrad | None = None,
        surrogate_disable: bool = False,
        init_hidden: bool = False,
        inhibition: bool = False,
        learn_threshold: bool = False,
        reset_mechanism: str = "subtract",
        state_quant: bool | Quantiser = False,
        output: bool = False,
        graded_spikes_factor: Value = 1.0,
        learn_graded_spikes_factor: bool = False,
        backend: str = "auto",
    ) -> None:
        super().__init__(spike_grad, init_hidden=init_hidden, output=output, backend=backend)
        if state_quant and not callable(state_quant):
            raise TypeError(
                f"{type(self).__name__}(state_quant={state_quant!r}): expected a function of a state, or False. Pass "
                "snn_ipu.functional.quant.state_quant(num_bits=...)."
            )
        if surrogate_disable:
            self.spike_grad = disabled()
        self.surrogate_disable = surrogate_disable
        self.inhibition = inhibition
        self.state_quant = state_quant
        if inhibition:
            warn(f"{type(self).__name__}(inhibition=True) is meant for dense layers: one neuron per sample may spike.")
        self.add_param("threshold", threshold, learn_threshold)
        if self.graded:
            self.add_param("graded_spikes_factor", graded_spikes_factor, learn_graded_spikes_factor)
        else:
            self.register_buffer("graded_spikes_factor", torch.tensor(1.0))
        self.register_buffer("reset_mechanism_val", torch.tensor(0))
        self.reset_mechanism = reset_mechanism

    @property
    def reset_mechanism(self) -> str:
        """What a spike does to the membrane: "subtract" the threshold, set it to "zero", or "none"."""
        return self._reset_mechanism

    @reset_mechanism.setter
    def reset_mechanism(self, value: str) -> None:
        if value not in RESET_MECHANISMS:
            raise ValueError(
                f"{type(self).__name__}(reset_mechanism={value!r}): expected one of {', '.join(RESET_MECHANISMS)}."
            )
        self._reset_mechanism = value
        self.reset_mechanism_val.fill_(RESET_MECHANISMS.index(value))

    def _load_from_state_dict(self, state_dict: Any, prefix: str, *args: Any) -> None:
        super()._load_from_state_dict(state_dict, prefix, *args)
        loaded = int(self.reset_mechanism_val)
        if loaded in range(len(RESET_MECHANISMS)):
            self._reset_mechanism = RESET_MECHANISMS[loaded]
            return
        self.reset_mechanism = self._reset_mechanism
        error_msgs: list[str] = args[-1]
        error_msgs.append(
            f"{prefix}reset_mechanism_val is {loaded}; expected 0 to {len(RESET_MECHANISMS) - 1}, for "
            f"{', '.join(RESET_MECHANISMS)}. Load the state of a neuron."
        )

    def flags(self) -> dict[str, Any]:
        flags: dict[str, Any] = {"reset_mechanism": self._reset_mechanism}
        if not self.reset_delay:
            flags["reset_delay"] = False
        if self.inhibition:
            flags["inhibition"] = True
        if self.state_quant:
            flags["state_quant"] = self.state_quant
        return flags
