"""PopTorch's optimisers: torch's, with loss scaling and the types of their state; updated by `_update.py`."""

from __future__ import annotations

import logging
from typing import Any, Callable, Iterable

import torch

logger = logging.getLogger("poptorch::python")


class VariableAttributes:
    """Which attributes may change after the model is compiled."""

    def __init__(self, variable_attributes: list[str], allowed_attributes: list[str]) -> None:
        self._variable_attributes = variable_attributes
        self._allowed_attributes = allowed_attributes

    def isConstant(self, attr: str) -> bool:
        return attr not in self._variable_attributes

    def _check(self, attr: str) -> None:
        assert attr in self._allowed_attributes, f"Unknown attribute {attr}, allowed values: {self._allowed_attributes}"

    def markAsConstant(self, attr: str) -> None:
        self._check(attr)
        self._variable_attributes = [a for a in self._variable_attributes if a != attr]

    def markAsVariable(self, attr: str) -> None:
        self._check(attr)
        self._variable_attributes.append(attr)


def _split(values: dict[str, Any], own: tuple[str, ...]) -> tuple[dict[str, Any], list[str]]:
    """Arguments for torch's class, and the names of all that were given."""
    given = {k: v for k, v in values.items() if v is not None and k not in ("self", "__class__")}
    return {k: v for k, v in given.items() if k not in own}, list(given)


def _accum(dtype: torch.dtype | None) -> torch.dtype:
    if dtype is None:
        return torch.float32
    assert dtype in (torch.float16, torch.float32), "Accumulation types must be either torch.float32 or torch.float16"
    return dtype


class Optimizer:
    _child_vars = ("loss_scaling",)
    loss_scaling: float
    accum_type: torch.dtype

    def __init__(self) -> None:
        self._state_dict: dict[str, Any] = {"ipu_state": None, "ipu_param": None}
        self.ipu_state_is_dirty = False
        self.host_state_is_dirty = False

    def state_dict(self) -> dict[str, Any]:
        return self.get_state_dict()

    def get_state_dict(self) -> dict[str, Any]:
        return {**self._state_dict, **torch.optim.Optimizer.state_dict(self)}  # type: ignore[arg-type]

    def load_state_dict(self, state: dict[str, Any]) -> None:
        torch.optim.Optimizer.load_state_dict(self, state)  # type: ignore[arg-type]
        self.set_state_dict(state)

    def set_state_dict(self, state: dict[str, Any]) -> None:
        if not state:
            raise RuntimeError("Cannot load optimizer state dictionary because it is empty.")
        if "ipu_state" not in state or "ipu_param" not in state:
            raise RuntimeError("Only IPU optimizer states can be loaded onto the IPU.")
        self._state_dict = {"ipu_state": state["ipu_state"], "ipu_param": state["ipu_param"]}
        self.ipu_state_is_dirty = True
        self.host_state_is_dirty = False

    def has_state(self) -> bool:
        return self._state_dict.get("ipu_state") is not None and self._state_dict.get("ipu_param") is not None


class SGD(Optimizer, torch.optim.SGD):
    _child_only = (
        *Optimizer._child_vars,
        "velocity_scaling",
        "use_combined_accum",
        "accum_type",
        "velocity_accum_type",
        "max_grad_norm",
    )
    _group_vars = (
        "lr",
        "momentum",
        "dampening",
        "weight_decay",
        "nesterov",
        "velocity_scaling",
    )

    def __init__(
        self,
        params: Iterable,
        lr: float,
        momentum: float | None = None,
        dampening: float | None = None,
        weight_decay: float | None = None,
        nesterov: bool | None = None,
        maximize: bool | None = None,
        foreach: bool | None = None,
        differentiable: bool | None = None,
        loss_scaling: float | None = None,
        velocity_scaling: float | None = None,
        use_combined_accum: bool | None = None,
        accum_type: torch.dtype | None = None,
        velocity_accum_type: torch.dtype | None = None,
        max_grad_norm: float | None = None,
    ) -> None:
        parent, variables = _split(locals(), SGD._child_only)
        Optimizer.__init__(self)
        torch.optim.SGD.__init__(self, **parent)
        self.loss_scaling = 1.0 if loss_scaling is None else loss_scaling
        self.use_combined_accum = bool(use_combined_accum)
        self.accum_type = _accum(accum_type)
        self.velocity_accum_type = _accum(velocity_accum_type)
        self.max_grad_norm = float("inf") if max_grad_norm is None else max_grad_norm
        if velocity_scaling is not None and not self.use_combined_accum:
            logger.warning("velocity_scaling value ignored when using the separate variant (use_combined_accum=False)")
        self.variable_attrs = VariableAttributes(variables, [*self.defaults, *SGD._child_vars])


class _AdamLike(Optimizer):
    def _own(
        self,
        loss_scaling: float | None,
        accum_type: torch.dtype | None,
        first: torch.dtype | None,
        second: torch.dtype | None,
        max_grad_norm: float | None,
    ) -> None:
        self.loss_scaling = 1.0 if loss_scaling is None else loss_scaling
        self.accum_type = _accum(accum_type)
        self.first_order_momentum_accum_type = _accum(first)
        self.second_order_momentum_accum_type = _accum(second)
        self.max_grad_norm = float("inf") if max_grad_norm is None else max_grad_norm


class Adam(_AdamLike, torch.optim.Adam):
    _child_only = (
        *Optimizer._child_vars,
        "accum_type",
        "first_order_momentum_accum_type",
        "second_order_momentum_accum_type",
        "max_grad_norm",
    )
    _group_vars = (
        "lr",
        "betas",
        "eps",
        "weight_decay",
        "amsgrad",
    )

    def __init__(
        self,
        params: Iterable,
        lr: float | None = None,
        betas: tuple[float, float] | None = None,
        eps: float | None = None,
        weight_decay: float | None = None,
        amsgrad: bool | None = None,
        foreach: bool | None = None,
        maximize: bool | None = None,
        capturable: bool | None = None,
        differentiable: bool | None = None,
        fused: bool | None = None,
        loss_scaling: float | None = None,
        accum_type: torch.dtype | None = None,
        first_order_momentum_accum_type: torch.dtype | None = None,
        second_order_momentum_accum_type: torch.dtype | None = None,
        max_grad_norm: float | None = None,
    ) -> None:
        parent, variables = _split(locals(), Adam._child_only)
        Optimizer.__init__(self)
        torch.optim.Adam.__init__(self, **parent)
        self._own(
            loss_scaling,
            accum_type,
            first_order_momentum_accum_type,
            second_order_momentum_accum_type,
            max_grad_norm,
        )
        self.variable_attrs = VariableAttributes(variables, [*self.defaults, *Adam._child_vars])


class AdamW(_AdamLike, torch.optim.AdamW):
    _child_only = (
        *Optimizer._child_vars,
        "bias_correction",
        "accum_type",
        "first_order_momentum_accum_type",
        "second_order_momentum_accum_type",
        "max_grad_norm",
    )
    _group_vars = (
        "lr",
        "betas",
        "weight_decay",
        "eps",
        "amsgrad",
    )

    def __init__(
        self,
        params: Iterable,
        lr: float | None = None,
        betas: tuple[float, float] | None = None,
        eps: float | None = None,
        weight_decay: float | None = None,
        amsgrad: bool | None = None,
        maximize: bool | None = None,
        foreach: bool | None = None,
        capturable: bool | None = None,
        differentiable: bool | None = None,
        fused: bool | None = None,
        loss_scaling: float | None = None,
        bias_correction: bool | None = None,
        accum_type: torch.dtype | None = None,
        first_order_momentum_accum_type: torch.dtype | None = None,
        second_order_momentum_accum_type: torch.dtype | None = None,
        max_grad_norm: float | None = None,
    ) -> None:
        parent, variables = _split(locals(), AdamW._child_only)
        Optimizer.__init__(self)
        torch.optim.AdamW.__init__(self, **parent)
        self._own(
            loss_scaling,
            accum_type,
            first_order_momentum_accum_type,
            second_order_momentum_accum_type,
            max_grad_norm,
        )
        self.bias_correction = bias_correction is None or bias_correction
        self.variable_attrs = VariableAttributes(variables, [*self.defaults, *AdamW._child_vars])


class RMSprop(_AdamLike, torch.optim.RMSprop):
    _child_only = (
        *Optimizer._child_vars,
        "accum_type",
        "first_order_momentum_accum_type",
        "second_order_momentum_accum_type",
        "use_tf_variant",
    )
    _group_vars = (
        "lr",
        "momentum",
        "weight_decay",
        "alpha",
        "eps",
        "centered",
    )

    def __init__(
        self,
        params: Iterable,
        lr: float | None = None,
        alpha: float | None = None,
        eps: float | None = None,
        weight_decay: float | None = None,
        momentum: float | None = None,
        centered: bool | None = None,
        foreach: bool | None = None,
        maximize: bool | None = None,
        differentiable: bool | None = None,
        loss_scaling: float | None = None,
        accum_type: torch.dtype | None = None,
        first_order_momentum_accum_type: torch.dtype | None = None,
        second_order_momentum_accum_type: torch.dtype | None = None,
        use_tf_variant: bool | None = None,
    ) -> None:
        parent, variables = _split(locals(), RMSprop._child_only)
        Optimizer.__init__(self)
        torch.optim.RMSprop.__init__(self, **parent)
        self._own(loss_scaling, accum_type, first_order_momentum_accum_type, second_order_momentum_accum_type, None)
        self.use_tf_variant = bool(use_tf_variant)
        self.variable_attrs = VariableAttributes(variables, [*self.defaults, *RMSprop._child_vars])


class LAMB(_AdamLike, torch.optim.Optimizer):
    _child_only = (
        *Optimizer._child_vars,
        "bias_correction",
        "accum_type",
        "first_order_momentum_accum_type",
        "second_order_momentum_accum_type",
    )
    _group_vars = (
        "lr",
        "weight_decay",
        "betas",
        "eps",
        "max_weight_norm",
    )

    def __init__(
        self,
        params: Iterable,
        lr: float | None = None,
        betas: tuple[float, float] | None = None,
        eps: float | None = None,
        weight_decay: float | None = None,
        bias_correction: bool | None = None,
        loss_scaling: float | None = None,
        max_weight_norm: float | None = None,
        accum_type: torch.dtype | None = None,
        first_order_momentum_accum_type: torch.dtype | None = None,
        second_order_momentum_accum_type: torch.dtype | None = None,
    ) -> None:
        _, variables = _split(locals(), ())
        defaults = {
            "lr": 1e-3 if lr is None else lr,
            "betas": (0.9, 0.999) if betas is None else betas,
            "eps": 1e-8 if eps is None else eps,
            "weight_decay": 1e-2 if weight_decay is None else weight_decay,
            "max_weight_norm": 65500.0 if max_weight_norm is None else max_weight_norm,
        }
        Optimizer.__init__(self)
        torch.optim.Optimizer.__init__(self, params, defaults)
        self._own(loss_scaling, accum_type, first_order_momentum_accum_type, second_order_momentum_accum_type, None)
        self.bias_correction = bias_correction is None or bias_correction
        self.max_weight_norm = defaults["max_weight_norm"]
        self.variable_attrs = VariableAttributes(variables, [*self.defaults, *LAMB._child_vars])

    def step(self, closure: Callable | None = None) -> float | None:  # type: ignore[override]
        raise RuntimeError("LAMB of the host model steps inside a training model only")
