"""The explicit loop of a snnTorch script, spk, mem = lif(x[t], mem): forward and backward of the neuron steps alone.

Every spike tensor and the last membrane have a gradient of their own, so that neither a stack nor a sum is timed.
"""

from __future__ import annotations

from typing import Any, Callable, Iterator

import torch
from torch import Tensor

import snn_ipu as snn

from . import peers
from .timing import Contender, Result, interleave, seconds

BATCH, WIDTH, STEPS, BETA = 128, 1000, 25, 0.9


def _loop(lif: Any, frames: list[Tensor]) -> list[Tensor]:
    mem = lif.reset_mem()
    spikes = []
    for x in frames:
        spk, mem = lif(x, mem)
        spikes.append(spk)
    return [*spikes, mem]


def _gradients(lif: Any, frames: list[Tensor], grads: list[Tensor]) -> tuple[list[Tensor], tuple[Tensor, ...]]:
    out = _loop(lif, frames)
    return out, torch.autograd.grad(out, frames, grads)


def check(name: str, lif: Any, expected: Any, frames: list[Tensor], grads: list[Tensor]) -> float:
    """Compare spikes and gradients of a neuron with ours; returns the firing rate.

    Raises: SystemExit where they differ; a benchmark of different results would mean nothing.
    """
    out, back = map(list, _gradients(lif, frames, grads))
    expected_out, expected_back = map(list, _gradients(expected, frames, grads))
    same = torch.stack([a == b for a, b in zip(out[:-1], expected_out)]).all(0)
    close = all(torch.isclose(a, b, rtol=1e-3, atol=1e-4)[same].all() for a, b in zip(back, expected_back))
    if same.float().mean() < 0.99 or not close:
        raise SystemExit(f"{name}: {same.float().mean():.2%} of the neurons spike alike, gradients close: {close}")
    return torch.stack(out[:-1]).detach().mean().item()


def _round(steps: int, repeats: int) -> Result:
    generator = torch.Generator().manual_seed(0)
    shape = (BATCH, WIDTH)
    # On a grid of 2^-8 a comparison with the threshold is rarely a matter of rounding.
    frames = [(torch.randint(0, 128, shape, generator=generator) / 256).requires_grad_() for _ in range(steps)]
    grads = [torch.rand(shape, generator=generator) for _ in range(steps + 1)]
    ours = snn.Leaky(BETA, spike_grad=snn.surrogate.fast_sigmoid(peers.SLOPE), backend="cpu")
    found, left_out = {"snn_ipu Leaky": ours}, []
    if (reason := peers.snntorch_missing()) is None:
        found["snnTorch Leaky"] = peers.snntorch_leaky(BETA)
    else:
        left_out.append(reason)

    def timed(lif: Any) -> Callable[[], None]:
        def run() -> None:
            _gradients(lif, frames, grads)

        return run

    reference = snn.Leaky(BETA, spike_grad=snn.surrogate.fast_sigmoid(peers.SLOPE), backend="reference")
    entries = []
    for name, lif in found.items():
        run = timed(lif)
        first_call = seconds(run)
        entries.append(Contender(name, run, first_call, check(name, lif, reference, frames, grads), None))
    interleave(entries, repeats)
    title = f"explicit loop over {steps} time steps of {BATCH} x {WIDTH}, forward + backward"
    return Result(title, entries, left_out)


def results(repeats: int, counts: tuple[int, ...] = (1, STEPS)) -> Iterator[Result]:
    """One step by itself, and a loop, in which the tensors of all steps are alive until its backward pass."""
    for steps in counts:
        yield _round(steps, repeats)
