"""One layer of leaky neurons over time: forward and backward, inference, and the bytes kept for backward.

Every contender has its own copy of the input and of the gradient that comes in; a timed call makes its outputs and its
input gradient and lets go of them, so allocation is included.
"""

from __future__ import annotations

from typing import Any, Callable, Iterator

import torch
from torch import Tensor

import snn_ipu as snn

from . import peers
from .timing import Contender, Result, bytes_kept, interleave, seconds

BETA = 0.9
SIZES = ((32, 1 << 18), (128, 1 << 16))
OURS = "snn_ipu Leaky.sequence"

Sequence = Callable[[Tensor], Tensor]


def _sequence(lif: Any) -> Sequence:
    return lambda x: lif.sequence(x)[0]  # type: ignore[no-any-return]


def _leaky() -> Sequence:
    return _sequence(snn.Leaky(BETA, spike_grad=snn.surrogate.fast_sigmoid(peers.SLOPE), backend="cpu"))


def _soft_reset() -> Sequence:
    return _sequence(peers.soft_reset(beta=BETA, spike_grad=peers.soft_sign(), backend="cpu"))  # type: ignore[call-arg]


def _by_hand(x: Tensor) -> Tensor:
    return peers.leaky_loop(x, BETA)


def contenders() -> tuple[dict[str, tuple[Sequence, Sequence]], list[str]]:
    """Each contender with what it must agree with, ours with the loop by hand; and why others are left out."""
    ours = _leaky()
    found: dict[str, tuple[Sequence, Sequence]] = {OURS: (ours, _by_hand)}
    left_out = []
    if (reason := peers.spikingjelly_missing()) is None:
        found["SpikingJelly 2 LIFNode, multi-step"] = peers.spikingjelly_sequence(BETA), _soft_reset()
    else:
        left_out.append(reason)
    found["unbind loop, torch.compile"] = peers.compiled_loop(BETA), ours
    if (reason := peers.snntorch_missing()) is None:
        found["snnTorch Leaky, unbind loop"] = peers.snntorch_sequence(BETA), ours
    else:
        left_out.append(reason)
    return found, left_out


def _current(steps: int, neurons: int) -> Tensor:
    # On a grid of 2^-8 a comparison with the threshold is rarely a matter of rounding; about 15 % of the steps spike.
    generator = torch.Generator().manual_seed(0)
    return torch.randint(0, 128, (steps, neurons), generator=generator) / 256


def _with_grad(sequence: Sequence, x: Tensor, grad: Tensor) -> tuple[Tensor, Tensor]:
    x = x.clone().requires_grad_()
    spk = sequence(x)
    spk.backward(grad)  # type: ignore[no-untyped-call]
    assert x.grad is not None
    return spk.detach(), x.grad


def check(name: str, sequence: Sequence, expected: Sequence, steps: int, neurons: int) -> float:
    """Compare spikes and input gradients of a contender with ours in its own semantics.

    Returns: the contender's firing rate.

    Raises: SystemExit where they differ; a benchmark of different results would mean nothing.
    """
    x = _current(steps, neurons)
    grad = torch.rand(x.shape, generator=torch.Generator().manual_seed(1))
    spk, x_grad = _with_grad(sequence, x, grad)
    expected_spk, expected_grad = _with_grad(expected, x, grad)
    # A membrane within rounding of the threshold may fall on either side; what follows it in that neuron differs too.
    same = (spk == expected_spk).all(0)
    close = torch.isclose(x_grad, expected_grad, rtol=1e-3, atol=1e-4)[:, same].all()
    if same.float().mean() < 0.99 or not close:
        raise SystemExit(
            f"{name}: {same.float().mean():.2%} of the neurons spike alike, gradients close: {bool(close)}"
        )
    return spk.mean().item()


def _training(sequence: Sequence, x: Tensor, grad: Tensor) -> Callable[[], None]:
    own, own_grad = x.clone().requires_grad_(), grad.clone()

    def run() -> None:
        sequence(own).backward(own_grad)  # type: ignore[no-untyped-call]
        own.grad = None

    return run


def _inference(sequence: Sequence, x: Tensor) -> Callable[[], None]:
    own = x.clone()

    def run() -> None:
        with torch.no_grad():
            sequence(own)

    return run


def _kept(sequence: Sequence, x: Tensor) -> float:
    own = x.clone().requires_grad_()
    return bytes_kept(lambda: sequence(own)) / x.numel()


def _round(kind: str, steps: int, neurons: int, repeats: int) -> Result:
    found, left_out = contenders()
    x = _current(steps, neurons)
    grad = torch.rand(x.shape, generator=torch.Generator().manual_seed(1))
    entries = []
    for name, (sequence, expected) in found.items():
        run = _inference(sequence, x) if kind == "inference" else _training(sequence, x, grad)
        first_call = seconds(run)
        rate = check(name, sequence, expected, steps, neurons)
        kept = None if kind == "inference" else _kept(sequence, x)
        entries.append(Contender(name, run, first_call, rate, kept))
    interleave(entries, repeats)
    return Result(f"{kind}, T={steps}, N={neurons}, float32", entries, left_out)


def _narrow(steps: int, neurons: int, repeats: int) -> Result:
    """Our own layer in each input type."""
    ours, entries = _leaky(), []
    for dtype in (torch.float32, torch.bfloat16, torch.float16):
        x = _current(steps, neurons).to(dtype)
        grad = torch.rand(x.shape, generator=torch.Generator().manual_seed(1)).to(dtype)
        rate = ours(x).float().mean().item()
        run = _training(ours, x, grad)
        entries.append(Contender(f"{OURS}, {str(dtype)[6:]}", run, seconds(run), rate, _kept(ours, x)))
    interleave(entries, repeats)
    return Result(f"forward + backward by input type, T={steps}, N={neurons}", entries, [])


def results(repeats: int, sizes: tuple[tuple[int, int], ...] = SIZES) -> Iterator[Result]:
    """Every benchmark of this file, one after the other."""
    for steps, neurons in sizes:
        yield _round("forward + backward", steps, neurons, repeats)
        yield _round("inference", steps, neurons, repeats)
    yield _narrow(*sizes[0], repeats)
