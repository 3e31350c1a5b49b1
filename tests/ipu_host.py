"""What the IPU tests share: the host model in place of an SDK, and gradients read out of a training model."""

from __future__ import annotations

import contextlib
import importlib
import sys
from pathlib import Path
from typing import Any, Callable, Iterator, Mapping, Sequence

import pytest
import torch
from helpers import TOLERANCE, Observed, Setup, assert_near, never_flipped
from torch import Tensor, nn

from snn_ipu.backends import ipu
from snn_ipu.backends.call import state_dtype
from snn_ipu.ipu import without_empty_states
from snn_ipu.surrogate import Surrogate

HOST_SDK = Path(__file__).resolve().parent / "host_sdk"


def forget() -> None:
    """What the backend remembers of the SDK."""
    for function in (ipu._imported, ipu.library, ipu._sdk_version):
        function.cache_clear()


@contextlib.contextmanager
def host_sdk() -> Iterator[Any]:
    """The host model as the enabled SDK of this process; gives its poptorch."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(HOST_SDK))
        poptorch = importlib.import_module("loading").load_poptorch()
        environment = sys.modules["poplar_host"].install().environment()
        for name in ("POPLAR_SDK_ENABLED", "CPATH", "LIBRARY_PATH", "PATH"):
            patch.setenv(name, environment[name])
        patch.setitem(sys.modules, "poptorch", poptorch)
        forget()
        try:
            yield poptorch
        finally:
            forget()


class Graded(nn.Module):
    """A function of tensors whose gradients a training model gives away: SGD with rate 1 leaves them, negated, in
    parameters that start at 0 and are added to the tensors."""

    def __init__(
        self,
        run: Callable[[Mapping[str, Tensor]], Mapping[str, Tensor]],
        inputs: Mapping[str, Tensor],
        weights: Mapping[str, Tensor],
        fixed: Sequence[str] = (),
        layer: nn.Module | None = None,
    ):
        super().__init__()
        self.run, self.layer = run, layer
        self.names, self.used = list(inputs), list(weights)
        self.dtypes = {n: t.dtype for n, t in inputs.items()}
        for i, t in enumerate(inputs.values()):
            self.register_buffer(f"base{i}", t.detach().float())
            self.register_parameter(
                f"delta{i}", nn.Parameter(torch.zeros(t.shape), self.names[i].split(":")[-1] not in fixed)
            )
        for i, t in enumerate(weights.values()):
            self.register_buffer(f"weight{i}", t.detach().float())

    def forward(self, scale: Tensor) -> Any:
        inputs = {}
        for i, name in enumerate(self.names):
            inputs[name] = (getattr(self, f"base{i}") + getattr(self, f"delta{i}")).to(self.dtypes[name])
        out = self.run(inputs)
        loss = sum((out[n].float() * getattr(self, f"weight{i}")).sum() for i, n in enumerate(self.used))
        return tuple(out.values()), ipu.mark_loss(loss * scale.sum())

    def gradients(self) -> dict[str, Tensor]:
        return {
            n: -getattr(self, f"delta{i}").detach().clone()
            for i, n in enumerate(self.names)
            if getattr(self, f"delta{i}").requires_grad
        }


def on_ipu(module: Graded, options: Any = None) -> tuple[list[Tensor], dict[str, Tensor]]:
    """Outputs and gradients of a module, from one step of training on the host model."""
    settings = options or ipu.Options()
    poptorch = ipu.poptorch()
    optimizer = poptorch.optim.SGD(module.parameters(), lr=1.0, loss_scaling=settings.loss_scaling)
    model = poptorch.trainingModel(module, options=ipu.poptorch_options(settings, True), optimizer=optimizer)
    with ipu.recording(True, settings), without_empty_states(module):
        out, _ = model(torch.ones(1))
        model.copyWeightsToHost()
    return list(out), module.gradients()


def assert_same_on_ipu(
    setup: Setup, surrogate: Surrogate, options: Any = None, used: Sequence[str] | None = None
) -> None:
    """Outputs and gradients of `setup` on the host model equal the reference's; `used` outputs are in the loss."""
    dtype = setup.x.dtype
    tolerance = TOLERANCE[dtype]
    checkpoint = options is not None and options.checkpoint > 0
    narrow = state_dtype(dtype) != dtype and not checkpoint
    reference = setup.spread().leaves()
    observed = Observed(surrogate, dtype if narrow else None)
    want = reference.run("reference", observed)
    steps = want["spk"].shape[0]
    u = torch.stack(observed.last(steps))
    generator = torch.Generator().manual_seed(7)
    weights = {n: torch.randn(t.shape, generator=generator).to(t.dtype) for n, t in want.items()}
    weights = {n: w for n, w in weights.items() if used is None or n in used}

    def run(inputs: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
        given = {n: inputs.get(f"initial:{n}") for n in setup.states}
        params = {n: inputs[f"param:{n}"] for n in setup.params}
        traced = Setup(
            setup.owner, setup.fn, setup.states, setup.flags, inputs["x"], tuple(given.values()), params, setup.options
        )
        return traced.run("ipu", surrogate)

    out, grads = on_ipu(Graded(run, setup.inputs(), weights, setup.fixed), options)
    got = dict(zip(want, out))
    size = max([1.0, *(float(t.detach().abs().max()) for n, t in want.items() if n != "spk")])
    same = never_flipped(got["spk"], want["spk"], u, tolerance.band, size, True)
    assert bool(same.all()), "a spike differs: choose inputs that are not at the threshold"
    for name, t in want.items():
        assert_near(name, got[name], t, tolerance.value)
    expected = reference.gradients(want, weights)
    for name, grad in grads.items():
        terms = expected[name].double()
        if name.startswith("param:"):
            total = terms.sum_to_size(grad.shape).to(grad.dtype)
            assert_near(f"grad of {name}", grad, total, tolerance.grad, terms.abs().sum_to_size(grad.shape))
        else:
            assert_near(f"grad of {name}", grad, terms.to(grad.dtype), tolerance.grad)


__all__ = ["Graded", "assert_same_on_ipu", "host_sdk", "on_ipu"]
