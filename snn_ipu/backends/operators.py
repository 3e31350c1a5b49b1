"""The CPU kernels as registered operators: torch.compile and torch.export see a neuron as one node of their graph.

A graph holds a neuron's form by a name made from its content, so a graph cached by another process means the same.
"""

from __future__ import annotations

import functools
import math
from typing import Any, Callable, Mapping, NamedTuple, Sequence

import torch
from torch import Tensor

from .._compat import HAS_OPERATORS
from ..compiler.printing import Layout
from ..errors import BackendMissingError
from ..surrogate import SpikeGrad, Surrogate
from . import cache, cpu, select
from .call import Call, Flags, Result, frozen, state_dtype
from .layout import Frames


class Form(NamedTuple):
    """A neuron without its tensors."""

    fn: Callable[..., Any]
    states: tuple[str, ...]
    params: tuple[str, ...]
    flags: Flags
    surrogate: Surrogate


_forms: dict[str, Form] = {}


def register(
    fn: Callable[..., Any],
    states: tuple[str, ...],
    params: tuple[str, ...],
    flags: Mapping[str, Any],
    surrogate: SpikeGrad,
    backend: str,
) -> str:
    """The name of a neuron's form in graphs; empty where it runs on the reference, with the warning of `select`."""
    chosen = select.requested(backend)
    if chosen not in ("auto", cpu.NAME):
        return ""
    reason = cpu.status() or cpu.uncompilable(fn, states, params, flags, surrogate)
    if reason is not None:
        if chosen == "auto":
            select.warn_once(reason)
        return ""
    assert isinstance(surrogate, Surrogate)
    fixed = frozen(flags)
    kernel = cpu.Variant(fn, states, params, fixed, surrogate.form, Layout("float32", training=True), params).kernel()
    content = cache.content_key(kernel.source, repr(surrogate.params))
    name = f"{fn.__name__}-{content}"
    _forms[name] = Form(fn, states, params, fixed, surrogate)
    return name


def _form(name: str) -> Form:
    if name not in _forms:
        raise BackendMissingError(
            f"the operator snn_ipu::scan({name!r}) stands for a neuron that this process has not run; expected its "
            "network to exist. Build it and compile or export it here before the cached graph is used."
        )
    return _forms[name]


class _Node(NamedTuple):
    """The arguments of an operator that are no tensors, and what follows from them."""

    name: str
    num_steps: int
    single: bool
    static: bool
    traced: str
    training: bool
    learn: str

    def signature(self, x: Tensor, params: Sequence[Tensor]) -> cpu.Signature:
        form = _form(self.name)
        return cpu.Signature(
            form.fn,
            form.states,
            form.params,
            form.flags,
            form.surrogate.form,
            x.dtype,
            x.shape if self.static else x.shape[1:],
            x.stride() if self.static else x.stride()[1:],
            tuple(p.shape for p in params),
            tuple(self.traced.split()),
            self.static,
            self.training,
            tuple(self.learn.split()),
        )

    def empty(self, x: Tensor, params: Sequence[Tensor]) -> list[Tensor]:
        """Outputs of the right shape, strides and dtype without content, for tracing."""
        signature = self.signature(x, params)
        kernel = _kernel(cpu.variant(signature))
        shape = tuple(signature.frame)
        frames = Frames(shape, signature.strides, cpu.features(signature))
        dtype = state_dtype(x.dtype)

        def empty(kind: torch.dtype, time: bool) -> Tensor:
            if not time or self.single:
                return x.new_empty_strided(shape, frames.strides, dtype=kind)
            step = max(math.prod(shape), 1)
            return x.new_empty_strided((self.num_steps, *shape), (step, *frames.strides), dtype=kind)

        kept = x.dtype if x.dtype in (torch.bfloat16, torch.float16) else dtype
        return [
            empty(x.dtype, True),
            *(empty(dtype, False) for _ in signature.states),
            *(empty(dtype, True) for _ in signature.traced),
            *(empty(kept, True) for _ in kernel.saved),
        ]


@functools.lru_cache(maxsize=4096)
def _kernel(variant: cpu.Variant) -> Any:
    return variant.kernel()


if HAS_OPERATORS:

    @torch.library.custom_op("snn_ipu::scan", mutates_args=(), device_types="cpu")
    def _scan(
        x: Tensor,
        initial: Sequence[Tensor],
        params: Sequence[Tensor],
        name: str,
        num_steps: int,
        single: bool,
        static: bool,
        traced: str,
        training: bool,
        learn: str,
    ) -> list[Tensor]:
        """spk, final states, traces, then the values kept for backward; `params` as `Frames.spread` gives them."""
        node = _Node(name, num_steps, single, static, traced, training, learn)
        prepared = cpu.prepare(node.signature(x, params))
        spike_params = cpu.spike_params(_form(name).surrogate, state_dtype(x.dtype))
        outputs, available = prepared.forward(num_steps, single, spike_params, x, initial, params)
        end = len(available) - len(params)
        return [*outputs, *(t for t in available[end - len(prepared.kernel.saved) : end] if t is not None)]

    @_scan.register_fake
    def _scan_fake(
        x: Tensor,
        initial: Sequence[Tensor],
        params: Sequence[Tensor],
        name: str,
        num_steps: int,
        single: bool,
        static: bool,
        traced: str,
        training: bool,
        learn: str,
    ) -> list[Tensor]:
        return _Node(name, num_steps, single, static, traced, training, learn).empty(x, params)

    @torch.library.custom_op("snn_ipu::scan_backward", mutates_args=(), device_types="cpu")
    def _scan_backward(
        x: Tensor,
        initial: Sequence[Tensor],
        params: Sequence[Tensor],
        kept: Sequence[Tensor],
        grads: Sequence[Tensor],
        present: str,
        name: str,
        num_steps: int,
        single: bool,
        static: bool,
        traced: str,
        learn: str,
    ) -> list[Tensor]:
        """Gradients of x, the initial states and the learned parameters; `present` marks the gradients that came in."""
        node = _Node(name, num_steps, single, static, traced, True, learn)
        prepared = cpu.prepare(node.signature(x, params))
        available = (x, *initial, *kept, *params)
        given = iter(grads)
        incoming = [next(given) if mark == "1" else None for mark in present]
        spike_params = cpu.spike_params(_form(name).surrogate, state_dtype(x.dtype))
        wanted = [True] * (1 + len(initial))
        out = prepared.backward(num_steps, single, spike_params, available, incoming, wanted)
        return [g for g in out if g is not None]

    @_scan_backward.register_fake
    def _scan_backward_fake(
        x: Tensor,
        initial: Sequence[Tensor],
        params: Sequence[Tensor],
        kept: Sequence[Tensor],
        grads: Sequence[Tensor],
        present: str,
        name: str,
        num_steps: int,
        single: bool,
        static: bool,
        traced: str,
        learn: str,
    ) -> list[Tensor]:
        node = _Node(name, num_steps, single, static, traced, True, learn)
        states = node.empty(x, params)[1 : 1 + len(initial)]
        spikes = _Node(name, num_steps, single or static, static, traced, True, learn).empty(x, params)[0]
        learned = _kernel(cpu.variant(node.signature(x, params))).learned
        grad_params = [torch.empty_like(p) for n, p in zip(_form(name).params, params) if n in learned]
        return [spikes, *states, *grad_params]

    def _setup(ctx: Any, inputs: tuple[Any, ...], output: list[Tensor]) -> None:
        x, initial, params, *node = inputs
        ctx.node, ctx.strides = _Node(*node), x.stride()
        ctx.set_materialize_grads(False)
        ctx.counts = len(initial), len(params)
        first_kept = 1 + len(initial)
        ctx.save_for_backward(x, *initial, *params, *output[first_kept:])

    def _with_strides(t: Tensor, strides: Sequence[int]) -> Tensor:
        if all(size <= 1 or a == b for size, a, b in zip(t.shape, t.stride(), strides)):
            return t
        held = t
        for dim, step in enumerate(strides):
            held = held.narrow(dim, 0, 1) if step == 0 and t.shape[dim] > 1 else held
        return t.new_empty_strided(held.shape, strides).copy_(held).expand(t.shape)

    def _backward(ctx: Any, grads: Sequence[Tensor | None]) -> tuple[Any, ...]:
        node: _Node = ctx.node
        states, count = ctx.counts
        x, *rest = ctx.saved_tensors
        # Parameters lie in the order of x's dimensions in memory; a hook on saved tensors may have given it another.
        x = _with_strides(x, ctx.strides)
        initial, params, kept = rest[:states], rest[states : states + count], rest[states + count :]
        outputs = 1 + states + len(node.traced.split())
        present = "".join("0" if g is None else "1" for g in grads[:outputs])
        incoming = [g for g in grads[:outputs] if g is not None]
        grad_x, *others = torch.ops.snn_ipu.scan_backward(
            x,
            initial,
            params,
            kept,
            incoming,
            present,
            node.name,
            node.num_steps,
            node.single,
            node.static,
            node.traced,
            node.learn,
        )
        learned = _kernel(cpu.variant(node.signature(x, params))).learned
        found = dict(zip(learned, others[states:]))
        grad_params = [found.get(n) for n in _form(node.name).params]
        return (grad_x, others[:states], grad_params, *(None for _ in node))

    _scan.register_autograd(_backward, setup_context=_setup)


def run(call: Call, name: str) -> Result:
    """Run the call, as `cpu.run`, through the registered operator of the form `name`."""
    x, dtype = call.x, call.state_dtype
    shapes = [p.dim() for p in call.params.values() if p.numel() != 1]
    strides = x.stride() if call.static else x.stride()[1:]
    frames = Frames(tuple(call.frame), strides, max(shapes, default=0))
    initial = [torch.zeros_like(x if call.static else x[0], dtype=dtype) if s is None else s for s in call.initial]
    params = [frames.spread(p) for p in call.params.values()]
    learn = [n for n, p in call.params.items() if p.requires_grad]
    training = torch.is_grad_enabled() and (
        x.requires_grad or bool(learn) or any(s is not None and s.requires_grad for s in call.initial)
    )
    out = torch.ops.snn_ipu.scan(
        x,
        initial,
        params,
        name,
        call.steps,
        call.single,
        call.static,
        " ".join(call.traced),
        training,
        " ".join(learn) if training else "",
    )
    count = 1 + len(call.state_names)
    return Result(out[0], tuple(out[1:count]), dict(zip(call.traced, out[count:])))
