"""Fused kernels for the CPU: printed as C++, built with the machine's compiler, called through ctypes."""

from __future__ import annotations

import ctypes
import functools
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Callable, Mapping, Sequence

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from .. import buffers
from ..compiler.adjoint import differentiate
from ..compiler.plan import plan
from ..compiler.print_cpp import BLOCK, TYPES, print_kernel
from ..compiler.printing import Kernel, Layout
from ..compiler.trace import trace
from ..errors import BuildError, TraceError
from ..surrogate import Surrogate
from . import cache, openmp
from .call import Call, Result
from .layout import Strides, arrange, arrange_over_time, dense_strides

NAME = "cpu"
FLAGS = (
    "-std=c++17",
    "-O3",
    "-march=native",
    "-fPIC",
    "-shared",
    "-fno-math-errno",
    "-fno-trapping-math",
    # Spikes are decided by comparisons, so every product is rounded as torch rounds it.
    "-ffp-contract=off",
)
_NATIVE = Path(__file__).parent / "native"
_PARALLEL_FROM = 1 << 15


@dataclass(frozen=True)
class Variant:
    """Everything that decides a kernel's source."""

    fn: Callable[..., Any]
    states: tuple[str, ...]
    params: tuple[str, ...]
    flags: tuple[tuple[str, Any], ...]
    surrogate: Surrogate
    layout: Layout
    learn: tuple[str, ...] = ()

    def kernel(self) -> Kernel:
        """Trace, differentiate, plan and print."""
        program = trace(self.fn, self.states, self.params, dict(self.flags), self.surrogate)
        if not self.layout.training:
            return print_kernel(program, self.layout)
        adjoint = differentiate(program, self.learn)
        kept = plan(program, adjoint, self.layout.traced, self.layout.narrow)
        return print_kernel(program, self.layout, adjoint, kept)


@dataclass(frozen=True)
class Built:
    """A loaded kernel."""

    kernel: Kernel
    library: ctypes.CDLL

    def launch(self, name: str, sizes: Sequence[int], given: Mapping[str, Tensor | None]) -> None:
        order = self.kernel.forward if name == "forward" else self.kernel.backward
        pointers = [None if (t := given.get(b)) is None else t.data_ptr() for b in order]
        steps, neurons = sizes[:2]
        threads = torch.get_num_threads() if steps * neurons >= _PARALLEL_FROM else 1
        getattr(self.library, name)(
            (ctypes.c_int64 * len(sizes))(*sizes),
            (ctypes.c_void_p * len(pointers))(*pointers),
            threads,
            openmp.parallel() if threads > 1 else None,
        )


@functools.lru_cache(maxsize=None)
def _scan_math() -> str:
    return (_NATIVE / "scan_math.hpp").read_text()


@functools.lru_cache(maxsize=4096)
def _attempt(variant: Variant) -> Built | BuildError:
    """A failed build is remembered too, so that a training loop does not try it at every step."""
    try:
        return _build(variant)
    except BuildError as error:
        return error


def build(variant: Variant) -> Built:
    """The kernel of a variant, from the cache where it has been built before.

    Raises: BuildError when there is no compiler, it fails, or the cache cannot be written; TraceError.
    """
    built = _attempt(variant)
    if isinstance(built, BuildError):
        raise built
    return built


def _build(variant: Variant) -> Built:
    kernel = variant.kernel()
    compiler = cache.find_compiler()
    if compiler is None:
        raise BuildError("no C++ compiler was found. Install g++ or set CXX to one.")
    source = kernel.source.replace('#include "scan_math.hpp"', _scan_math().replace("#pragma once", ""))
    command = [compiler, *FLAGS, "{source}", "-o", "{output}"]
    key = cache.content_key(source, " ".join(command), cache.compiler_version(compiler), cache.machine())
    library = cache.load_library(cache.build_library(key, source, command))
    for function in (library.forward, *([library.backward] if kernel.backward else [])):
        function.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_void_p]
        function.restype = None
    return Built(kernel, library)


def status() -> str | None:
    """Why this backend does not work here, or None."""
    if cache.find_compiler() is None:
        return "no C++ compiler was found; install g++ or set CXX"
    return None


@functools.lru_cache(maxsize=4096)
def _untraceable(
    fn: Callable[..., Any],
    states: tuple[str, ...],
    params: tuple[str, ...],
    flags: tuple[tuple[str, Any], ...],
    surrogate: Surrogate,
) -> str | None:
    try:
        trace(fn, states, params, dict(flags), surrogate)
    except TraceError as error:
        return str(error)
    return None


def _shape_of(surrogate: Surrogate) -> Surrogate:
    """The surrogate without its parameter values, which are run-time arguments of a kernel."""
    return Surrogate(surrogate.factory, tuple((n, 0.0) for n, _ in surrogate.params), surrogate.smooth)


def obstacle(call: Call) -> str | None:
    """Why this backend cannot run the call, or None."""
    if call.x.device.type != "cpu":
        return f"x is on {call.x.device}, not on the CPU"
    if str(call.x.dtype)[6:] not in TYPES:
        return f"x is {call.x.dtype}; kernels take {', '.join(TYPES)}"
    if not isinstance(call.spike_grad, Surrogate):
        name = getattr(call.spike_grad, "__name__", type(call.spike_grad).__name__)
        return f"spike_grad {name} is a plain callable; write it with snn_ipu.surrogate.define to have it compiled"
    reason = status()
    if reason is not None:
        return reason
    flags = tuple(sorted(call.flags.items()))
    return _untraceable(call.fn, call.state_names, tuple(call.params), flags, _shape_of(call.spike_grad))


class _Frames:
    """How one call's frames lie in memory, and which parameters have a value per feature."""

    def __init__(self, call: Call):
        self.shape = tuple(call.frame)
        spans = [p.dim() for p in call.params.values() if p.numel() != 1]
        self.features = max(spans, default=0)
        strides = call.x.stride() if call.static else call.x.stride()[1:]
        self.strides: Strides = dense_strides(self.shape, strides, self.features)
        self.neurons = call.frame.numel()
        inner = self.shape[len(self.shape) - self.features :]
        self.count = torch.Size(inner).numel()
        self._inner, self._inner_strides = inner, self.strides[len(self.shape) - self.features :]

    def spread(self, param: Tensor) -> Tensor:
        """A parameter as a kernel reads it: one value, or one per feature in the order of the frame's memory."""
        if param.numel() == 1:
            return param.reshape(())
        full = param.expand(self._inner)
        order = sorted(range(len(self._inner)), key=lambda d: -self._inner_strides[d])
        return full.permute(order).contiguous()

    def empty(self, dtype: torch.dtype, steps: int | None = None) -> Tensor:
        if steps is None:
            return buffers.empty(self.shape, self.strides, dtype)
        return buffers.empty((steps, *self.shape), (max(self.neurons, 1), *self.strides), dtype)


@functools.lru_cache(maxsize=256)
def _spike_params(surrogate: Surrogate, dtype: torch.dtype) -> dict[str, Tensor]:
    return {f"spike_param:{name}": torch.tensor(value, dtype=dtype) for name, value in surrogate.params}


@dataclass(frozen=True)
class _Job:
    """What the autograd function needs besides tensors."""

    call: Call
    frames: _Frames
    built: Built
    learn: tuple[str, ...]

    @property
    def over_time(self) -> int | None:
        return None if self.call.single else self.call.steps

    def named(self, kind: str, tensors: Sequence[Tensor | None]) -> dict[str, Tensor | None]:
        """Tensors of the states (or of the traced states) under the names of their buffers."""
        names = self.call.traced if kind.endswith("trace") else self.call.state_names
        return {f"{kind}:{name}": t for name, t in zip(names, tensors)}


class _Scan(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, job: _Job, x: Tensor, *tensors: Tensor | None) -> tuple[Tensor, ...]:
        call, frames, kernel = job.call, job.frames, job.built.kernel
        dtype, count = call.state_dtype, len(call.state_names)
        x, x_step = (arrange(x, frames.strides), 0) if call.static else arrange_over_time(x, frames.strides)
        spk = frames.empty(x.dtype, job.over_time)
        finals = [frames.empty(dtype) for _ in call.state_names]
        traces = [frames.empty(dtype, job.over_time) for _ in call.traced]
        kept_dtype = x.dtype if kernel.narrow else dtype
        given: dict[str, Tensor | None] = {
            "x": x,
            "spk": spk,
            **job.named("state", [None if s is None else arrange(s, frames.strides) for s in tensors[:count]]),
            **job.named("final", finals),
            **job.named("trace", traces),
            **{name: frames.empty(kept_dtype, job.over_time) for name in kernel.saved},
            **dict(zip((f"param:{p}" for p in call.params), tensors[count:])),
            **_spike_params(call.spike_grad, dtype),  # type: ignore[arg-type]
        }
        job.built.launch("forward", (call.steps, frames.neurons, frames.count, x_step), given)
        ctx.set_materialize_grads(False)
        ctx.job, ctx.x_step, ctx.x_dtype = job, x_step, x.dtype
        ctx.kept = kernel.kept
        ctx.save_for_backward(*(given[name] for name in kernel.kept))
        return (spk, *finals, *traces)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_spk: Tensor | None, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
        job: _Job = ctx.job
        call, frames = job.call, job.frames
        dtype, count = call.state_dtype, len(call.state_names)
        want_x, *want_states = ctx.needs_input_grad[1 : 2 + count]

        def incoming(grad: Tensor | None) -> tuple[Tensor | None, int]:
            if grad is None:
                return None, 0
            return (arrange(grad, frames.strides), 0) if call.single else arrange_over_time(grad, frames.strides)

        given: dict[str, Tensor | None] = dict(zip(ctx.kept, ctx.saved_tensors))
        given.update(_spike_params(call.spike_grad, dtype))  # type: ignore[arg-type]
        given["grad_spk"], grad_spk_step = incoming(grad_spk)
        given.update(
            job.named("grad_final", [None if g is None else arrange(g, frames.strides) for g in grads[:count]])
        )
        over_time = [incoming(g) for g in grads[count:]]
        given.update(job.named("grad_trace", [g for g, _ in over_time]))
        if want_x:
            given["grad_x"] = frames.empty(ctx.x_dtype, None if call.static else call.steps)
        given.update(job.named("grad_state", [frames.empty(dtype) if w else None for w in want_states]))
        blocks = -(-frames.neurons // BLOCK)
        for name in job.learn:
            param = given[f"param:{name}"]
            assert param is not None
            size, kind = (blocks, torch.float64) if param.dim() == 0 else (frames.neurons, dtype)
            given[f"partial:{name}"] = torch.empty(size, dtype=kind)
            given[f"grad_param:{name}"] = torch.zeros_like(param)
        sizes = (
            call.steps,
            frames.neurons,
            frames.count,
            ctx.x_step,
            grad_spk_step,
            *(s for _, s in over_time),
        )
        job.built.launch("backward", sizes, given)
        return (
            None,
            given.get("grad_x"),
            *(given[f"grad_state:{s}"] for s in call.state_names),
            *(given.get(f"grad_param:{p}") for p in call.params),
        )


def run(call: Call) -> Result:
    """Run the call as one kernel, with one kernel as its backward pass.

    Raises: BuildError when the kernel cannot be built; TraceError when the step cannot become one.
    """
    assert isinstance(call.spike_grad, Surrogate)
    frames = _Frames(call)
    params = {name: frames.spread(p) for name, p in call.params.items()}
    tensors = (*call.initial, *params.values())
    training = torch.is_grad_enabled() and any(t is not None and t.requires_grad for t in (call.x, *tensors))
    layout = Layout(
        dtype=str(call.x.dtype)[6:],
        features=frozenset(name for name, p in params.items() if p.dim() > 0),
        traced=call.traced,
        static=call.static,
        training=training,
    )
    learn = tuple(name for name, p in params.items() if p.requires_grad) if training else ()
    flags = tuple(sorted(call.flags.items()))
    surrogate = _shape_of(call.spike_grad)
    variant = Variant(call.fn, call.state_names, tuple(params), flags, surrogate, layout, learn)
    job = _Job(call, frames, build(variant), learn)
    out = _Scan.apply(job, call.x, *tensors)  # type: ignore[no-untyped-call]
    count = 1 + len(call.state_names)
    return Result(out[0], tuple(out[1:count]), dict(zip(call.traced, out[count:])))
