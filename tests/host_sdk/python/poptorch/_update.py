"""The weight update of each optimiser, as PopART computes it on the device."""

from __future__ import annotations

import logging
import math
from typing import Any

import torch

from . import optim

logger = logging.getLogger("poptorch::python")

SUPPORTED = "SGD, Adam, AdamW, RMSprop, LAMB"


def kind_of(optimizer: torch.optim.Optimizer) -> str:
    own = (torch.optim.Optimizer, optim.Optimizer, optim._AdamLike)
    known = (torch.optim.SGD, torch.optim.Adam, torch.optim.AdamW, torch.optim.RMSprop, optim.LAMB)
    if not any(base in own for base in type(optimizer).__bases__) and type(optimizer) not in known:
        logger.warning(
            "Optimizer `%s` subclassed from classes in poptorch.optim or torch.optim are unlikely to behave as "
            "intended. Poptorch does not run Python optimizer code directly; but instead uses IPU native optimisers "
            "implemented in PopART.",
            type(optimizer).__name__,
        )
    # AdamW comes first: newer torch derives it from Adam.
    for name, classes in (
        ("SGD", (torch.optim.SGD,)),
        ("AdamW", (torch.optim.AdamW,)),
        ("Adam", (torch.optim.Adam,)),
        ("RMSprop", (torch.optim.RMSprop,)),
        ("LAMB", (optim.LAMB,)),
    ):
        if isinstance(optimizer, classes):
            return name
    raise AssertionError(f"Unsupported optimizer type. Types supported {SUPPORTED}")


class Updater:
    """An optimiser's settings as they were when it was set, and its state on the device."""

    def __init__(self, optimizer: torch.optim.Optimizer, names: dict[int, str]) -> None:
        self.kind = kind_of(optimizer)
        self.state: dict[str, dict[str, Any]] = {}
        self.read(optimizer, names)

    def read(self, optimizer: torch.optim.Optimizer, names: dict[int, str]) -> None:
        """Take over hyperparameters; later changes of the Python object have no effect until this is called."""
        self.loss_scaling = float(getattr(optimizer, "loss_scaling", 1.0))
        self.accum_type = getattr(optimizer, "accum_type", torch.float32)
        self.first_type = getattr(optimizer, "first_order_momentum_accum_type", torch.float32)
        self.second_type = getattr(optimizer, "second_order_momentum_accum_type", torch.float32)
        self.velocity_type = getattr(optimizer, "velocity_accum_type", torch.float32)
        self.max_grad_norm = float(getattr(optimizer, "max_grad_norm", float("inf")))
        self.bias_correction = bool(getattr(optimizer, "bias_correction", True))
        self.use_tf_variant = bool(getattr(optimizer, "use_tf_variant", False))
        self.groups: list[tuple[dict[str, Any], list[str]]] = []
        for group in optimizer.param_groups:
            if group.get("amsgrad"):
                raise ValueError("Only non-amsgrad Adam/AdamW optimizers are supported.")
            settings = {k: v for k, v in group.items() if k != "params"}
            self.groups.append((settings, [names[id(p)] for p in group["params"] if id(p) in names]))

    def step(self, weights: dict[str, torch.Tensor], grads: dict[str, torch.Tensor]) -> None:
        """Update weights in place from gradients that are reduced but still scaled."""
        unscaled = {name: g.float() / self.loss_scaling for name, g in grads.items()}
        if math.isfinite(self.max_grad_norm):
            norm = torch.sqrt(sum((g.square().sum() for g in unscaled.values()), torch.zeros(())))
            factor = (self.max_grad_norm / norm.clamp(min=1e-12)).clamp(max=1.0)
            unscaled = {name: g * factor for name, g in unscaled.items()}
        for group, names in self.groups:
            for name in names:
                if name not in unscaled:
                    continue
                weight = weights[name]
                state = self.state.setdefault(name, {"step": 0})
                state["step"] += 1
                updated = getattr(self, f"_{self.kind.lower()}")(weight.float(), unscaled[name], group, state)
                weight.copy_(updated.to(weight.dtype))

    @staticmethod
    def _moment(state: dict[str, Any], key: str, like: torch.Tensor) -> torch.Tensor:
        found = state.get(key)
        return torch.zeros_like(like) if found is None else found.float()

    def _sgd(self, w: torch.Tensor, g: torch.Tensor, group: dict[str, Any], state: dict[str, Any]) -> torch.Tensor:
        g = g + group["weight_decay"] * w
        if group["momentum"]:
            damping = 1 - group["dampening"] if state["step"] > 1 else 1.0
            v = group["momentum"] * self._moment(state, "velocity", w) + damping * g
            state["velocity"] = v.to(self.velocity_type)
            g = g + group["momentum"] * v if group.get("nesterov") else v
        return w - group["lr"] * g

    def _moments(self, g: torch.Tensor, group: dict[str, Any], state: dict[str, Any], correct: bool) -> torch.Tensor:
        b1, b2 = group["betas"]
        m = b1 * self._moment(state, "first", g) + (1 - b1) * g
        v = b2 * self._moment(state, "second", g) + (1 - b2) * g * g
        state["first"], state["second"] = m.to(self.first_type), v.to(self.second_type)
        c1 = 1 - b1 ** state["step"] if correct else 1.0
        c2 = 1 - b2 ** state["step"] if correct else 1.0
        return (m / c1) / (v.sqrt() / math.sqrt(c2) + group["eps"])

    def _adam(self, w: torch.Tensor, g: torch.Tensor, group: dict[str, Any], state: dict[str, Any]) -> torch.Tensor:
        return w - group["lr"] * self._moments(g + group["weight_decay"] * w, group, state, True)

    def _adamw(self, w: torch.Tensor, g: torch.Tensor, group: dict[str, Any], state: dict[str, Any]) -> torch.Tensor:
        decayed = w * (1 - group["lr"] * group["weight_decay"])
        return decayed - group["lr"] * self._moments(g, group, state, self.bias_correction)

    def _rmsprop(self, w: torch.Tensor, g: torch.Tensor, group: dict[str, Any], state: dict[str, Any]) -> torch.Tensor:
        g = g + group["weight_decay"] * w
        first_time = "second" not in state
        square = self._moment(state, "second", w)
        if first_time and self.use_tf_variant:
            square = torch.ones_like(square)
        square = group["alpha"] * square + (1 - group["alpha"]) * g * g
        state["second"] = square.to(self.second_type)
        if group["centered"]:
            mean = group["alpha"] * self._moment(state, "first", w) + (1 - group["alpha"]) * g
            state["first"] = mean.to(self.first_type)
            square = square - mean * mean
        inner = self.use_tf_variant
        denominator = (square + group["eps"]).sqrt() if inner else square.sqrt() + group["eps"]
        update = g / denominator
        if group["momentum"]:
            scale = group["lr"] if inner else 1.0
            velocity = group["momentum"] * self._moment(state, "velocity", w) + scale * update
            state["velocity"] = velocity
            return w - velocity if inner else w - group["lr"] * velocity
        return w - group["lr"] * update

    def _lamb(self, w: torch.Tensor, g: torch.Tensor, group: dict[str, Any], state: dict[str, Any]) -> torch.Tensor:
        update = self._moments(g, group, state, self.bias_correction) + group["weight_decay"] * w
        weight_norm = float(w.norm().clamp(max=group["max_weight_norm"]))
        update_norm = float(update.norm())
        trust = weight_norm / update_norm if weight_norm and update_norm else 1.0
        return w - group["lr"] * trust * update
