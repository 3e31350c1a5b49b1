"""Measures one point in a process of its own: `python -m snn_ipu.experiments.measure` reads a request and answers.

A request is one JSON object on standard input, {"point", "repeats", "seconds", "shares", "ipu_clock_ghz"}; the answer
is the last line of standard output. A process of its own starts cold, and can be ended where it hangs.
"""

from __future__ import annotations

import contextlib
import json
import statistics
import sys
import time
from typing import Any, Callable, Iterator, Sequence

import torch
from torch import Tensor, nn

from .. import functional, ipu, training_model, unroll
from .._compat import HAS_FUSED_OPTIMIZERS
from ..backends import ipu as backend
from ..data import load, to_unit_range
from . import flops
from .networks import build, is_neuron, pieces
from .points import Point

Step = Callable[[Tensor, Tensor], Any]

DATA = "fashion-mnist-mini"
LR = 3e-4
WARMUPS = 2
LEAST_REPEATS = 3
OUT_OF_MEMORY = ("out of memory", "can't allocate memory", "not enough memory", "std::bad_alloc")


def measure(request: dict[str, Any]) -> dict[str, Any]:
    """The answer to a request: status "ok" with seconds per minibatch, or "out of memory" or "failed" with a reason."""
    point = Point.from_json(request["point"])
    try:
        return {"status": "ok", "reason": None, **_measured(point, request)}
    except Exception as error:  # whatever a point fails with is its result, and the sweep goes on
        reason = f"{type(error).__name__}: {error}"
        memory = isinstance(error, MemoryError) or any(text in str(error).lower() for text in OUT_OF_MEMORY)
        return {"status": "out of memory" if memory else "failed", "reason": reason}


def _measured(point: Point, request: dict[str, Any]) -> dict[str, Any]:
    torch.set_num_threads(point.threads)
    torch.manual_seed(0)
    data = load(DATA)
    chosen = torch.arange(point.batch) % len(data.train_images)
    dtype = getattr(torch, point.precision)
    x, y = to_unit_range(data.train_images[chosen]), data.train_labels[chosen]
    if not point.device.startswith("snntorch"):
        x = x.to(dtype)
    net = build(point, data.image_shape, data.num_classes)
    counted = flops.count(build(_own(point), data.image_shape, data.num_classes), x[:1].float(), _steps(point))
    place(net, point, dtype)
    step = make_step(net, point)
    if point.device.endswith("cuda"):
        x, y = x.cuda(), y.cuda()

    first = _seconds(lambda: step(x, y), point)
    rate = _firing_rate(step(x, y)) if point.spiking else None
    for _ in range(WARMUPS - 1):
        step(x, y)
    seconds = _repeat(lambda: step(x, y), point, request["repeats"], request["seconds"])
    median, per_batch = statistics.median(seconds), counted * point.batch
    quartiles = statistics.quantiles(seconds, n=4, method="inclusive")
    answer = {
        "seconds": seconds,
        "first_call_seconds": first,
        "images_per_second": point.batch / median,
        "images_per_second_low": point.batch / quartiles[2],
        "images_per_second_high": point.batch / quartiles[0],
        "firing_rate": rate,
        "flops": vars(per_batch),
        "tflops": per_batch.synapses / median / 1e12,
        "shares": None,
        "device_only_images_per_second": None,
    }
    if point.device == "ipu" and ipu.hardware():
        answer["device_only_images_per_second"] = _device_only(point, x, y, request["ipu_clock_ghz"])
    if request["shares"] and point.device != "ipu":
        answer["shares"] = shares(net, x, point, median, request["repeats"], request["seconds"])
    return answer


def _own(point: Point) -> Point:
    """The same network in this package, whose neurons can be counted."""
    return Point.from_json({**point.to_json(), "device": "cpu"})


def _steps(point: Point) -> int:
    return point.num_steps if point.spiking else 1


def place(net: nn.Sequential, point: Point, dtype: torch.dtype) -> None:
    """Put the weights into the point's precision; a decay rounded to 16 bits would be another neuron.

    snnTorch's spikes are float32, which 16-bit weights refuse, so its networks stay float32 and run under autocast.
    """
    if point.device.startswith("snntorch"):
        return
    for layer in net:
        if not is_neuron(layer):
            layer.to(dtype)
        else:
            for synapses in layer.modules():
                if isinstance(synapses, (nn.Linear, nn.Conv2d)):
                    synapses.to(dtype)


def make_step(net: nn.Sequential, point: Point, **ipu_options: Any) -> Step:
    """Forward, backward and update on one minibatch, `step(x, y)`, with AdamW and the loss of counted spikes."""
    optimizer = torch.optim.AdamW(net.parameters(), lr=LR, fused=HAS_FUSED_OPTIMIZERS)
    if point.device.startswith("snntorch"):
        if point.device.endswith("cuda"):
            net.cuda()
        return _snntorch_step(net, optimizer, point)
    if not point.spiking:
        return _twin_step(net, optimizer, point.device, **ipu_options)
    loss_fn = functional.mse_count_loss()
    options = ipu.options(**ipu_options) if ipu_options else None
    return training_model(net, loss_fn, optimizer, num_steps=point.num_steps, device=point.device, options=options)


def _autocast(point: Point) -> Any:
    kind = "cuda" if point.device.endswith("cuda") else "cpu"
    return torch.autocast(kind, getattr(torch, point.precision), enabled=point.precision != "float32")


def _snntorch_step(net: nn.Sequential, optimizer: torch.optim.Optimizer, point: Point) -> Step:
    """The loop that snnTorch's tutorials write."""
    from snntorch import functional as peer_functional
    from snntorch import utils

    loss_fn = peer_functional.mse_count_loss()

    def step(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        utils.reset(net)
        with _autocast(point):
            out = torch.stack([net(x) for _ in range(point.num_steps)])
            loss = loss_fn(out, y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return out, loss

    return step


def _twin_step(net: nn.Sequential, optimizer: torch.optim.Optimizer, device: str, **ipu_options: Any) -> Step:
    loss_fn = nn.CrossEntropyLoss()
    if device == "ipu":
        return _IpuTwinStep(net, loss_fn, optimizer, ipu.options(**ipu_options))
    net.to("cuda" if device == "cuda" else "cpu")

    def step(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        out = net(x)
        loss = loss_fn(out.float(), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return out, loss

    return step


class _IpuTwin(nn.Module):
    """What PopTorch traces of a network that does not spike."""

    def __init__(self, net: nn.Module, loss_fn: nn.Module) -> None:
        super().__init__()
        self.net, self.loss_fn = net, loss_fn

    def forward(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        out = self.net(x)
        return out, backend.mark_loss(self.loss_fn(out.float(), y))


class _IpuTwinStep:
    """Training of a network that does not spike on an IPU, as `training_model` does it for one that does."""

    def __init__(
        self, net: nn.Module, loss_fn: nn.Module, optimizer: torch.optim.Optimizer, options: ipu.Options
    ) -> None:
        converted = backend.poptorch_optimizer(optimizer, options)
        self._executor = backend.training_executor(_IpuTwin(net, loss_fn), options, converted)

    def __call__(self, x: Tensor, y: Tensor) -> Any:
        return self._executor(x, y)

    def cycle_count(self) -> int:
        return int(self._executor.cycleCount())


def _firing_rate(result: Any) -> float:
    return float(result[0].detach().float().mean())


def _seconds(run: Callable[[], Any], point: Point) -> float:
    if point.device.endswith("cuda"):
        torch.cuda.synchronize()
    began = time.perf_counter()
    run()
    if point.device.endswith("cuda"):
        torch.cuda.synchronize()
    return time.perf_counter() - began


def _repeat(run: Callable[[], Any], point: Point, repeats: int, limit: float) -> list[float]:
    """Times of calls: so many, or as many as fit into `limit` seconds, and three at least."""
    times: list[float] = []
    while len(times) < repeats and (len(times) < LEAST_REPEATS or sum(times) < limit):
        times.append(_seconds(run, point))
    return times


def _device_only(point: Point, x: Tensor, y: Tensor, clock_ghz: float) -> float:
    """Images per second by the cycles that the device counts, on data that never leave it."""
    data = load(DATA)
    net = build(point, data.image_shape, data.num_classes)
    place(net, point, x.dtype)
    step: Any = make_step(net, point, synthetic_data=True, cycle_count=True)
    for _ in range(WARMUPS):
        step(x, y)
    cycles: int = step.cycle_count()
    return point.batch * clock_ghz * 1e9 / cycles


def shares(
    net: nn.Sequential, x: Tensor, point: Point, step_seconds: float, repeats: int, limit: float
) -> dict[str, float]:
    """Seconds of a minibatch in neurons, in synapses, and the rest: loss, optimizer and what lies between.

    Each piece of the network runs by itself on what it gets in the network, forward and backward; a piece that gets the
    static image runs as often as the library runs it. The rest is what the whole step takes beyond the pieces.
    """
    found = {"neurons": 0.0, "synapses": 0.0}
    runner = _peer_pieces(net, x, point) if point.device.startswith("snntorch") else _own_pieces(net, x, point)
    for kind, run in runner:
        run()
        found[kind] += statistics.median(_repeat(run, point, repeats, limit / 4))
    return {**found, "rest": step_seconds - sum(found.values())}


def _forward_backward(call: Callable[[Tensor], Tensor], x: Tensor, wants_grad: bool) -> Callable[[], Any]:
    x = x.detach()
    with torch.no_grad():
        grad = torch.ones_like(call(x))
    needs = wants_grad and x.is_floating_point()

    def run() -> None:
        own = x.detach().requires_grad_(needs)
        out = call(own)
        if out.requires_grad:
            out.backward(grad)  # type: ignore[no-untyped-call]

    return run


def _own_pieces(net: nn.Sequential, x: Tensor, point: Point) -> Iterator[tuple[str, Callable[[], Any]]]:
    """The pieces as `unroll` runs them: all steps at once, and once for all steps where the input is static."""
    steps, varies = point.num_steps, False
    for kind, piece in pieces(net):
        if kind == "neurons" and point.spiking:
            given = None if varies else steps

            def call(own: Tensor, piece: nn.Module = piece, given: int | None = given) -> Tensor:
                out: Tensor = unroll(piece, own, given)[0]
                return out

            piece_input = x
        else:
            call = piece
            piece_input = x.flatten(0, 1) if varies else x
            if piece_input.dim() == 4 and x.device.type == "cpu":
                piece_input = piece_input.contiguous(memory_format=torch.channels_last)
        yield kind, _forward_backward(call, piece_input, wants_grad=_has_before(net, piece))
        with torch.no_grad():
            out = call(piece_input)
        if kind == "neurons" and point.spiking:
            x, varies = out, True
        else:
            x = out.reshape(steps, -1, *out.shape[1:]) if varies else out


def _has_before(net: nn.Sequential, piece: nn.Sequential) -> bool:
    """Whether a piece comes after others, so that its input has a gradient."""
    return piece[0] is not net[0]


def _peer_pieces(net: nn.Sequential, x: Tensor, point: Point) -> Iterator[tuple[str, Callable[[], Any]]]:
    """The pieces as snnTorch's loop runs them, one step after the other."""
    frames = [x] * point.num_steps
    for kind, piece in pieces(net):
        with torch.no_grad():
            after = _stepped(kind, piece, frames)
        yield kind, _peer_run(kind, piece, frames, [torch.ones_like(frame) for frame in after], _has_before(net, piece))
        frames = after


def _stepped(kind: str, piece: nn.Module, frames: Sequence[Tensor]) -> list[Tensor]:
    from snntorch import utils

    if kind == "neurons":
        utils.reset(piece)
    return [piece(frame) for frame in frames]


def _peer_run(
    kind: str, piece: nn.Module, frames: Sequence[Tensor], grads: Sequence[Tensor], wants_grad: bool
) -> Callable[[], Any]:
    def run() -> None:
        out = _stepped(kind, piece, [frame.detach().requires_grad_(wants_grad) for frame in frames])
        if out[0].requires_grad:
            torch.autograd.backward(out, grads)

    return run


def main() -> None:
    request = json.load(sys.stdin)
    # what libraries print goes to standard error, and the answer stands alone
    with contextlib.redirect_stdout(sys.stderr):
        answer = measure(request)
    print(json.dumps(answer, allow_nan=False))


if __name__ == "__main__":
    main()
