"""Fused kernels for the CPU: printed as C++, built with the machine's compiler, called through ctypes."""

from __future__ import annotations

import ctypes
import functools
import struct
from dataclasses import dataclass
from pathlib import Path
from types import BuiltinFunctionType, FunctionType
from typing import Any, Callable, Mapping, NamedTuple, Sequence

import torch
from torch import Tensor

from .. import buffers
from .._compat import follows_operations, is_batch_of_gradients, sees_plain_torch_only
from ..compiler.adjoint import differentiate
from ..compiler.plan import plan
from ..compiler.print_cpp import BLOCK, TYPES, print_kernel
from ..compiler.printing import Kernel, Layout
from ..compiler.trace import trace
from ..errors import BuildError, TraceError, UnsupportedError
from ..surrogate import SpikeGrad, Surrogate
from . import cache, openmp
from .call import Call, Flags, Result, Runner, frozen, state_dtype, thawed
from .layout import Frames, Strides, arrange, arrange_over_time

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
_FIXED = (bool, int, float, str, type(None), FunctionType, BuiltinFunctionType)
_DTYPES = {getattr(torch, name): name for name in TYPES}


@dataclass(frozen=True)
class Variant:
    """Everything that decides a kernel's source."""

    fn: Callable[..., Any]
    states: tuple[str, ...]
    params: tuple[str, ...]
    flags: Flags
    surrogate: Surrogate
    layout: Layout
    learn: tuple[str, ...] = ()

    def kernel(self) -> Kernel:
        """Trace, differentiate, plan and print."""
        program = trace(self.fn, self.states, self.params, thawed(self.flags), self.surrogate)
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

    def launch(self, function: Any, sizes: Sequence[int], tensors: Sequence[Tensor | None]) -> None:
        """Call `forward` or `backward` of the library; tensors in the kernel's order, None for a null pointer."""
        threads = torch.get_num_threads() if sizes[0] * sizes[1] >= _PARALLEL_FROM else 1
        function(
            struct.pack(f"{len(sizes)}q", *sizes),
            struct.pack(f"{len(tensors)}P", *[0 if t is None else t.data_ptr() for t in tensors]),
            threads,
            openmp.runtime() if threads > 1 else 0,
        )


@functools.lru_cache(maxsize=None)
def _scan_math() -> str:
    return (_NATIVE / "scan_math.hpp").read_text()


@functools.lru_cache(maxsize=4096)
def _attempt(variant: Variant) -> Built | str:
    """What a failed build says is remembered too, so that a training loop does not try it at every step."""
    try:
        return _build(variant)
    except BuildError as error:
        return str(error)


def build(variant: Variant) -> Built:
    """The kernel of a variant, from the cache where it has been built before.

    Raises: BuildError when there is no compiler, it fails, or the cache cannot be written; TraceError.
    """
    built = _attempt(variant)
    if isinstance(built, str):
        raise BuildError(built)
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
    flags: Flags,
    surrogate: Surrogate,
) -> str | None:
    try:
        trace(fn, states, params, thawed(flags), surrogate)
    except TraceError as error:
        return str(error).rstrip(".")
    return None


def _changeable(flags: Mapping[str, Any]) -> str | None:
    """Why a kernel cannot hold the flags: one is an object whose values may change, or None."""
    for name, value in flags.items():
        dataclass_params = getattr(type(value), "__dataclass_params__", None)
        if not getattr(dataclass_params, "frozen", False) and not isinstance(value, _FIXED):
            return (
                f"{name}={value!r} is an object whose values may change, and a kernel would keep those of its first "
                "call; write it as a function"
            )
    return None


def uncompilable(
    fn: Callable[..., Any],
    states: tuple[str, ...],
    params: tuple[str, ...],
    flags: Mapping[str, Any],
    spike_grad: SpikeGrad,
) -> str | None:
    """Why a neuron, whatever its tensors are, cannot become a kernel, or None."""
    if not isinstance(spike_grad, Surrogate):
        name = getattr(spike_grad, "__name__", type(spike_grad).__name__)
        if getattr(spike_grad, "__module__", "").split(".")[0] == "snntorch":
            return f"spike_grad {name} is snnTorch's; take it from snn_ipu.surrogate, which has the same names"
        return f"spike_grad {name} is a plain callable; write it with snn_ipu.surrogate.define to have it compiled"
    return _changeable(flags) or _untraceable(fn, states, params, frozen(flags), spike_grad.form)


def obstacle(call: Call) -> str | None:
    """Why this backend cannot run the call, or None."""
    if call.x.device.type != "cpu":
        return f"x is on {call.x.device}, not on the CPU"
    if call.x.dtype not in _DTYPES:
        return f"x is {call.x.dtype}; kernels take {', '.join(TYPES)}"
    if sees_plain_torch_only():
        return "torch.func transforms such as vmap and grad, and torch.jit.trace, see through plain torch only"
    for tensor in (call.x, *call.initial, *call.params.values()):
        if tensor is not None and follows_operations(tensor):
            return f"a {type(tensor).__name__} follows each operation of plain torch"
    return uncompilable(call.fn, call.state_names, tuple(call.params), call.flags, call.spike_grad)


@functools.lru_cache(maxsize=256)
def spike_params(surrogate: Surrogate, dtype: torch.dtype) -> tuple[Tensor, ...]:
    return tuple(torch.tensor(value, dtype=dtype, device="cpu") for _, value in surrogate.params)


class Signature(NamedTuple):
    """All of a call but the values of its tensors: calls of one signature share a kernel and a memory layout."""

    fn: Callable[..., Any]
    states: tuple[str, ...]
    params: tuple[str, ...]
    flags: Flags
    surrogate: Surrogate
    dtype: torch.dtype
    frame: torch.Size
    strides: Strides
    param_shapes: tuple[torch.Size, ...]
    traced: tuple[str, ...]
    static: bool
    training: bool
    learn: tuple[str, ...]


def per_feature(signature: Signature) -> tuple[str, ...]:
    """Parameters with a value per feature."""
    return tuple(n for n, shape in zip(signature.params, signature.param_shapes) if shape.numel() != 1)


def features(signature: Signature) -> int:
    """How many trailing dimensions of a frame the parameters span."""
    return max((len(shape) for shape in signature.param_shapes if shape.numel() != 1), default=0)


def variant(signature: Signature) -> Variant:
    """What decides the source of a signature's kernel."""
    layout = Layout(
        dtype=_DTYPES[signature.dtype],
        features=frozenset(per_feature(signature)),
        traced=signature.traced,
        static=signature.static,
        training=signature.training,
    )
    return Variant(
        signature.fn,
        signature.states,
        signature.params,
        signature.flags,
        signature.surrogate,
        layout,
        signature.learn,
    )


class Prepared:
    """The kernel and the memory layout of a signature."""

    def __init__(self, signature: Signature):
        self.signature = signature
        self.frames = Frames(tuple(signature.frame), signature.strides, features(signature))
        self.built = build(variant(signature))
        self.kernel = self.built.kernel
        dtype = state_dtype(signature.dtype)
        self.kept_dtype = signature.dtype if signature.dtype in (torch.bfloat16, torch.float16) else dtype
        blocks = -(-self.frames.neurons // BLOCK)
        spread = per_feature(signature)
        self.partials = [
            (self.frames.neurons, dtype) if name in spread else (blocks, torch.float64) for name in self.kernel.learned
        ]
        self.learned = [signature.params.index(name) for name in self.kernel.learned]
        self.layouts, self.single_layouts = self._layouts(single=False), self._layouts(single=True)

    def _layouts(self, single: bool) -> list[Strides]:
        """Strides of what a backward pass may read: x, initial states, traces, what the kernel keeps, parameters."""
        signature, frame = self.signature, self.frames.strides
        over_time = frame if single else (max(self.frames.neurons, 1), *frame)
        return [
            frame if signature.static else over_time,
            *[frame] * len(signature.states),
            *[over_time] * (len(signature.traced) + len(self.kernel.saved)),
            *(() if shape.numel() == 1 else self.frames.param_strides for shape in signature.param_shapes),
        ]

    def forward(
        self,
        steps: int,
        single: bool,
        spike_params: Sequence[Tensor],
        x: Tensor,
        initial: Sequence[Tensor | None],
        params: Sequence[Tensor],
    ) -> tuple[list[Tensor], tuple[Tensor | None, ...]]:
        """All steps: spk, final states and traces; then what a backward pass may read, in the kernel's order."""
        signature, frames, kernel = self.signature, self.frames, self.kernel
        dtype, over_time = state_dtype(x.dtype), None if single else steps
        x, x_step = (arrange(x, frames.strides), 0) if signature.static else arrange_over_time(x, frames.strides)
        initial = [None if s is None else arrange(s, frames.strides) for s in initial]
        spk = frames.empty(x.dtype, over_time)
        finals = [frames.empty(dtype) for _ in signature.states]
        traces = [frames.empty(dtype, over_time) for _ in signature.traced]
        saved = [frames.empty(self.kept_dtype, over_time) for _ in kernel.saved]
        self.built.launch(
            self.built.library.forward,
            (steps, frames.neurons, frames.features, x_step),
            (x, spk, *initial, *finals, *traces, *saved, *params, *spike_params),
        )
        return [spk, *finals, *traces], (x, *initial, *traces, *saved, *params)

    def restored(self, kept: Sequence[Tensor | None], single: bool) -> Sequence[Tensor | None]:
        """What `forward` made available in the layout it had; hooks on saved tensors may have given it another."""
        layouts = self.single_layouts if single else self.layouts
        if all(t is None or (t.stride() == strides and not t.is_neg()) for t, strides in zip(kept, layouts)):
            return kept
        x, *rest = (None if t is None else t.resolve_neg() for t in kept)
        if x is not None and not (single or self.signature.static):
            x = arrange_over_time(x, self.frames.strides)[0]
        elif x is not None:
            x = arrange(x, layouts[0])
        return [x, *(None if t is None else arrange(t, strides) for t, strides in zip(rest, layouts[1:]))]

    def backward(
        self,
        steps: int,
        single: bool,
        spike_params: Sequence[Tensor],
        kept: Sequence[Tensor | None],
        grads: Sequence[Tensor | None],
        wanted: Sequence[bool],
    ) -> tuple[Tensor | None, ...]:
        """Gradients of x, the initial states and the parameters, from those of spk, the final states and the traces.

        Args:
            kept: what `forward` made available; only the entries that `kernel.kept` marks are read.
            wanted: whether x and each initial state need a gradient.
        """
        signature, frames = self.signature, self.frames
        dtype, count = state_dtype(signature.dtype), len(signature.states)
        kept = self.restored(kept, single)

        def incoming(grad: Tensor | None) -> tuple[Tensor | None, int]:
            if grad is None:
                return None, 0
            return (arrange(grad, frames.strides), 0) if single else arrange_over_time(grad, frames.strides)

        grad_spk, grad_spk_step = incoming(grads[0])
        grad_finals = [None if g is None else arrange(g, frames.strides) for g in grads[1 : 1 + count]]
        over_time = [incoming(g) for g in grads[1 + count :]]
        x = kept[0]
        x_step = 0 if signature.static or x is None else x.stride(0)
        grad_x = frames.empty(signature.dtype, None if signature.static else steps) if wanted[0] else None
        grad_states = [frames.empty(dtype) if w else None for w in wanted[1:]]
        params = kept[len(kept) - len(signature.params) :]
        grad_params = [
            torch.zeros_like(p) if i in self.learned and p is not None else None for i, p in enumerate(params)
        ]
        self.built.launch(
            self.built.library.backward,
            (steps, frames.neurons, frames.features, x_step, grad_spk_step, *(step for _, step in over_time)),
            (
                *kept,
                *spike_params,
                grad_spk,
                *grad_finals,
                *(g for g, _ in over_time),
                grad_x,
                *grad_states,
                *(buffers.empty((size,), (1,), kind) for size, kind in self.partials),
                *(grad_params[position] for position in self.learned),
            ),
        )
        return (grad_x, *grad_states, *grad_params)


prepare = functools.lru_cache(maxsize=4096)(Prepared)


class _Scan(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        prepared: Prepared,
        steps: int,
        single: bool,
        spike_params: tuple[Tensor, ...],
        x: Tensor,
        *tensors: Any,
    ) -> tuple[Tensor, ...]:
        count = len(prepared.signature.states)
        outputs, available = prepared.forward(steps, single, spike_params, x, tensors[:count], tensors[count:])
        if prepared.signature.training:
            ctx.set_materialize_grads(False)
            ctx.prepared, ctx.steps, ctx.single, ctx.spike_params = prepared, steps, single, spike_params
            ctx.save_for_backward(*(t if kept else None for t, kept in zip(available, prepared.kernel.kept)))
        return tuple(outputs)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
        prepared: Prepared = ctx.prepared
        name = prepared.signature.fn.__name__
        # torch's once_differentiable would give 0 for a second derivative where no gradient that comes in has a graph.
        if torch.is_grad_enabled():
            raise UnsupportedError(
                f"a backward pass through {name} with create_graph=True, as hessian, hvp and jvp of "
                "torch.autograd.functional ask for: expected create_graph=False, since a kernel has first derivatives "
                "only. Leave it out, or build the neuron with backend='reference'."
            )
        for grad in grads:
            if grad is not None and is_batch_of_gradients(grad):
                raise UnsupportedError(
                    f"a backward pass through {name} for a batch of gradients, as is_grads_batched=True and "
                    "jacobian(vectorize=True) ask for: expected one at a time, which is what a kernel computes. "
                    "Leave it out, or build the neuron with backend='reference'."
                )
        wanted = ctx.needs_input_grad[4 : 5 + len(prepared.signature.states)]
        found = prepared.backward(ctx.steps, ctx.single, ctx.spike_params, ctx.saved_tensors, grads, wanted)
        return (None, None, None, None, *found)


def settle(call: Call) -> Runner:
    """What runs calls like this one: one kernel, with one kernel as its backward pass.

    Raises: BuildError when the kernel cannot be built; TraceError when the step cannot become one.
    """
    assert isinstance(call.spike_grad, Surrogate)
    x, params = call.x, call.params
    learn: tuple[str, ...] = ()
    training = torch.is_grad_enabled()
    if training:
        learn = tuple(name for name, p in params.items() if p.requires_grad)
        training = x.requires_grad or bool(learn) or any(s is not None and s.requires_grad for s in call.initial)
    prepared = prepare(
        Signature(
            call.fn,
            call.state_names,
            tuple(params),
            call.flags_key,
            call.spike_grad.form,
            x.dtype,
            call.frame,
            x.stride() if call.static else x.stride()[1:],
            tuple(p.shape for p in params.values()),
            call.traced,
            call.static,
            training,
            learn,
        )
    )
    values = spike_params(call.spike_grad, call.state_dtype)
    steps, single, traced, count = call.steps, call.single, call.traced, 1 + len(call.state_names)
    spread = prepared.frames.spread

    def run(call: Call) -> Result:
        out = _Scan.apply(  # type: ignore[no-untyped-call]
            prepared, steps, single, values, call.x, *call.initial, *map(spread, call.params.values())
        )
        return Result(out[0], out[1:count], dict(zip(traced, out[count:])))

    return run
