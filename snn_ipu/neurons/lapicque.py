"""Lapicque's neuron: an RC circuit integrated with Euler steps."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ..surrogate import SpikeGrad
from .base import Value
from .lif import LIF, Quantiser, fire, has_fired


def lapicque(
    x: Tensor,
    mem: Tensor,
    *,
    beta: Tensor,
    R: Tensor,
    C: Tensor,
    time_step: Tensor,
    threshold: Tensor,
    reset_mechanism: str = "subtract",
    solve_for: str | None = None,
    inhibition: bool = False,
    state_quant: Quantiser | None = None,
) -> tuple[Tensor, Tensor]:
    """One step: mem = x * R * (1 / (R * C)) * dt + (1 - dt / (R * C)) * mem, less the reset of the spike before."""
    if solve_for == "C":
        C = time_step / (R * torch.log(1 / beta))
    elif solve_for == "R":
        R = time_step / (C * torch.log(1 / beta))
    due = has_fired(mem, threshold)
    mem = x * R * (1 / (R * C)) * time_step + (1 - time_step / (R * C)) * mem
    if reset_mechanism == "subtract":
        mem = mem - due * threshold
    elif reset_mechanism == "zero":
        mem = mem - due * mem
    if state_quant is not None:
        mem = state_quant(mem)
    return fire(mem, threshold, None, inhibition, state_quant), mem


class Lapicque(LIF):
    """RC neuron: mem[t] = x[t] * dt / C + (1 - dt / (R * C)) * mem[t-1] - reset[t-1] * threshold.

    With `reset_mechanism="zero"` the new membrane is multiplied by 1 - reset[t-1].

    Args:
        beta: decay exp(-dt / (R * C)); give it, or R and C, or it with one of them. A learned beta decides C (or R,
            where C is given) anew at every call.
        R, C: resistance and capacitance. time_step: dt.
        All other arguments as in `Leaky`; the reset is always delayed.

    Shape: x [B, ...]; spk and mem as x. Units: those of R, C and time_step.

    Raises: ValueError when neither beta nor both R and C are given, or beta is not between 0 and 1.

    Source: Lapicque 1907; snnTorch 1.0 `Lapicque`.
    """

    step = staticmethod(lapicque)
    state_names = ("mem",)
    mem: Tensor

    def __init__(
        self,
        beta: bool | Value = False,
        R: bool | Value = False,
        C: bool | Value = False,
        time_step: Value = 1,
        threshold: Value = 1.0,
        spike_grad: SpikeGrad | None = None,
        surrogate_disable: bool = False,
        init_hidden: bool = False,
        inhibition: bool = False,
        learn_beta: bool = False,
        learn_threshold: bool = False,
        reset_mechanism: str = "subtract",
        state_quant: bool | Quantiser = False,
        output: bool = False,
        *,
        backend: str = "auto",
    ) -> None:
        super().__init__(
            threshold,
            spike_grad,
            surrogate_disable,
            init_hidden,
            inhibition,
            learn_threshold,
            reset_mechanism,
            state_quant,
            output,
            backend=backend,
        )
        given = {"beta": beta is not False, "R": R is not False, "C": C is not False}
        if not given["beta"] and not (given["R"] and given["C"]):
            raise ValueError(
                f"Lapicque(beta={beta}, R={R}, C={C}): expected beta, or R and C, or beta with one of them. "
                "Pass the missing value."
            )
        dt = torch.as_tensor(time_step, dtype=torch.get_default_dtype())
        known = {n: torch.as_tensor(v, dtype=dt.dtype) for n, v in (("beta", beta), ("R", R), ("C", C)) if given[n]}
        if given["beta"] and not bool(((known["beta"] > 0) & (known["beta"] < 1)).all()):
            raise ValueError(
                f"Lapicque(beta={beta}): expected values between 0 and 1, exp(-dt / (R * C)) of a circuit. "
                "Use Leaky or IF for a neuron that forgets at once or never."
            )
        if not given["beta"]:
            known["beta"] = torch.exp(torch.ones(1) * (-dt / (known["R"] * known["C"])))
        elif given["C"]:
            known["R"] = dt / (known["C"] * torch.log(1 / known["beta"]))
        else:
            known.setdefault("R", torch.ones(()))
            known["C"] = dt / (known["R"] * torch.log(1 / known["beta"]))
        self.add_param("beta", beta if isinstance(beta, torch.nn.Parameter) else known["beta"], learn_beta)
        self.add_param("time_step", dt)
        for name in ("R", "C"):
            self.add_param(name, known[name].detach())
        self._solve_for = ("R" if given["C"] else "C") if learn_beta else None

    def flags(self) -> dict[str, Any]:
        return super().flags() if self._solve_for is None else {**super().flags(), "solve_for": self._solve_for}

    init_lapicque = LIF.reset_mem
