"""Tracing a model once into a list of operations, and running that list on host tensors.

While tracing, tensors have a shape and a type but no values, and say that they are on `ipu:0`; each operation below
autograd is recorded. Running the list computes ordinary operations with torch, under torch's autograd, and custom ops
with the C++ host model, whose gradient is that of their own gradient ops.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import os
from dataclasses import dataclass, field
from typing import Any, Callable, Iterator

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten, tree_map

from ._native import Error, Session

logger = logging.getLogger("poptorch::python")
aten = torch.ops.aten

# Operations whose result depends on values, which a trace does not have.
VALUE_OPS = {
    "aten::_local_scalar_dense",
    "aten::item",
    "aten::is_nonzero",
    "aten::equal",
    "aten::nonzero",
    "aten::masked_select",
    "aten::_unique2",
    "aten::allclose",
}
LOSSES = (
    "binary_cross_entropy",
    "binary_cross_entropy_with_logits",
    "cosine_embedding_loss",
    "cross_entropy",
    "ctc_loss",
    "hinge_embedding_loss",
    "huber_loss",
    "kl_div",
    "l1_loss",
    "margin_ranking_loss",
    "mse_loss",
    "multi_margin_loss",
    "multilabel_margin_loss",
    "nll_loss",
    "poisson_nll_loss",
    "smooth_l1_loss",
    "soft_margin_loss",
    "triplet_margin_loss",
)
FACTORIES = (
    "arange",
    "empty",
    "full",
    "full_like",
    "linspace",
    "logspace",
    "ones",
    "rand",
    "randint",
    "randn",
    "randperm",
    "tensor",
    "zeros",
    "zeros_like",
)
# These make their result in the type asked for, or only look at memory in another way.
KEEPS_HALF = {"aten::_to_copy", "aten::detach", "aten::clone", "aten::copy_", "aten::alias", "aten::lift_fresh"}


def strict() -> bool:
    """Whether what PopTorch does silently wrong is an error instead (`HOST_SDK_STRICT=1`)."""
    return os.environ.get("HOST_SDK_STRICT", "0") not in ("", "0")


@dataclass(frozen=True)
class Ref:
    """A tensor of the trace, by number."""

    number: int


@dataclass
class Node:
    kind: str  # "aten" or "custom"
    target: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    outputs: list[int | None]
    grad_enabled: bool = True
    # Tensors that the operation writes to, besides its outputs.
    mutates: list[int] = field(default_factory=list)


@dataclass
class CustomOp:
    domain: str
    name: str
    version: int
    attributes: dict[str, Any]
    output_infos: list[tuple[torch.dtype, tuple[int, ...]]]
    index: int = -1
    gradients: list[int] = field(default_factory=list)
    on_loss_path: list[bool] = field(default_factory=list)
    input_names: list[str] = field(default_factory=list)
    output_names: list[str] = field(default_factory=list)


class IpuTensor(torch.Tensor):
    """A tensor while a model is traced."""

    _meta: torch.Tensor
    _number: int
    _tape: Tape

    @staticmethod
    def __new__(cls, meta: torch.Tensor, number: int, tape: Tape, requires_grad: bool = False) -> IpuTensor:
        made = torch.Tensor._make_wrapper_subclass(
            cls,
            meta.size(),
            strides=meta.stride(),
            storage_offset=meta.storage_offset(),
            dtype=meta.dtype,
            layout=meta.layout,
            device="meta",
            requires_grad=requires_grad,
        )
        made._meta = meta
        made._number = number
        made._tape = tape
        return made  # type: ignore[no-any-return]

    def __repr__(self, **_: Any) -> str:  # type: ignore[override]
        return f"tensor(<unavailable>, size={tuple(self.shape)}, dtype={self.dtype}, device='ipu:0')"

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        tape = next(t._tape for t in tree_flatten((args, kwargs))[0] if isinstance(t, cls))
        if not tape.recording:
            raise Error(
                f"{func} on a tensor that was made while a model was traced. Its values exist on the IPU only: return "
                "it from the model instead of keeping it as an attribute."
            )
        return tape.record(func, args, kwargs or {})


IpuTensor.device = property(lambda self: torch.device("ipu:0"))  # type: ignore[assignment]


class _TraceMode(TorchDispatchMode):
    def __init__(self, tape: Tape) -> None:
        super().__init__()
        self.tape = tape

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return self.tape.record(func, args, kwargs or {})


class _FunctionContext:
    """What a torch.autograd.Function sees as `ctx` while it is traced; its backward never runs."""

    def __init__(self, args: tuple[Any, ...]) -> None:
        self.needs_input_grad = tuple(isinstance(a, torch.Tensor) and a.requires_grad for a in args)
        self.saved_tensors: tuple[Any, ...] = ()

    def save_for_backward(self, *tensors: Any) -> None:
        self.saved_tensors = tensors

    def mark_non_differentiable(self, *_: Any) -> None:
        pass

    def mark_dirty(self, *_: Any) -> None:
        pass

    def set_materialize_grads(self, _: bool) -> None:
        pass


def _traced_apply(cls: Any, *args: Any, **kwargs: Any) -> Any:
    if strict():
        raise Error(
            f"{cls.__name__}.apply in a model: PopTorch traces its forward and never calls its backward, so the "
            "gradient is that of the forward. Branch on poptorch.isRunningOnIpu() and use poptorch.custom_op."
        )
    context = _FunctionContext(args)
    separate = getattr(cls, "setup_context", None)
    base = getattr(torch.autograd.Function, "setup_context", None)
    if separate is not None and separate is not base:
        output = cls.forward(*args, **kwargs)
        cls.setup_context(context, args, output)
        return output
    return cls.forward(context, *args, **kwargs)


class Tape:
    """The operations of one model."""

    def __init__(self, training: bool) -> None:
        self.training = training
        self.nodes: list[Node] = []
        self.recording = False
        self.losses: list[int] = []
        self.constants: dict[int, torch.Tensor] = {}
        self.known: dict[int, IpuTensor] = {}
        self._count = 0
        self._aliases: dict[int, int] = {}
        self.dtypes: dict[int, torch.dtype] = {}
        self.shapes: dict[int, tuple[int, ...]] = {}

    def placeholder(self, like: torch.Tensor, requires_grad: bool = False) -> IpuTensor:
        meta = torch.empty_like(like, device="meta", memory_format=torch.contiguous_format)
        return self._wrap(meta.detach(), requires_grad)

    def parameter(self, like: torch.Tensor) -> IpuTensor:
        made = self.placeholder(like, like.requires_grad)
        if isinstance(like, torch.nn.Parameter):
            made._is_param = True  # type: ignore[attr-defined]
        self.known[id(like)] = made
        return made

    def _wrap(self, meta: torch.Tensor, requires_grad: bool = False) -> IpuTensor:
        number = self._count
        self._count += 1
        self.dtypes[number] = meta.dtype
        self.shapes[number] = tuple(meta.shape)
        return IpuTensor(meta, number, self, requires_grad)

    def root(self, number: int) -> int:
        """One number for all views of one tensor."""
        while number in self._aliases:
            number = self._aliases[number]
        return number

    def _alias(self, view: int, base: int) -> None:
        view, base = self.root(view), self.root(base)
        if view != base:
            self._aliases[view] = base

    @contextlib.contextmanager
    def trace(self) -> Iterator[None]:
        saved: list[tuple[Any, str, Any]] = []

        def patch(owner: Any, name: str, value: Any) -> None:
            saved.append((owner, name, owner.__dict__.get(name)))
            setattr(owner, name, value)

        for name in FACTORIES:
            patch(torch, name, _on_ipu(getattr(torch, name)))
        for name in LOSSES:
            patch(torch.nn.functional, name, self._marking(getattr(torch.nn.functional, name)))
        patch(torch.autograd.Function, "apply", classmethod(_traced_apply))
        patch(torch.Tensor, "to", _indexed(torch.Tensor.to))
        self.recording = True
        try:
            with _TraceMode(self):
                yield
        finally:
            self.recording = False
            for owner, name, value in reversed(saved):
                if value is None:
                    delattr(owner, name)
                else:
                    setattr(owner, name, value)

    def _marking(self, loss: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(loss)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            result = loss(*args, **kwargs)
            if isinstance(result, IpuTensor):
                self.losses.append(result._number)
            return result

        return wrapper

    def mark_loss(self, tensor: IpuTensor) -> None:
        self.losses.append(tensor._number)

    def record(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        flat = tree_flatten((args, kwargs))[0]
        device = kwargs.get("device")
        tensors = [t for t in flat if isinstance(t, torch.Tensor)]
        # torch 2.0 names the device that it holds a model's tensor on where ones_like and the like are given none.
        inherited = device == torch.device("meta") and any(isinstance(t, IpuTensor) for t in tensors)
        to_ipu = inherited or (device is not None and torch.device(device).type == "ipu")
        if not to_ipu and not any(isinstance(t, IpuTensor) or id(t) in self.known for t in tensors):
            return func(*args, **kwargs)
        name = func._schema.name
        masked = name == "aten::index" and any(t.dtype == torch.bool for t in tensors[1:])
        if name in VALUE_OPS or masked:
            raise Error(
                f"Could not run '{name}' with arguments from the 'Meta' backend: a tensor has no value while a model "
                "is traced. item(), int(tensor), `if tensor:` and results whose shape depends on values are not "
                "possible in a model for the IPU."
            )
        if device is not None and not to_ipu and any(isinstance(t, IpuTensor) for t in tensors):
            raise Error(f"{name} to {device} in a model: tensors of a model stay on the IPU")
        mine = tree_map(lambda x: self._own(x, name, to_ipu), (args, kwargs))
        # The result first, so that a shape error of the model surfaces as torch's own.
        metas = tree_map(lambda x: x._meta if isinstance(x, IpuTensor) else x, mine)
        if to_ipu:
            metas[1]["device"] = "meta"
        result = func(*metas[0], **metas[1])
        by_meta = {id(t._meta): t for t in tree_flatten(mine)[0] if isinstance(t, IpuTensor)}
        wrapped = tree_map(
            lambda x: by_meta.get(id(x)) if id(x) in by_meta else self._wrap(x) if isinstance(x, torch.Tensor) else x,
            result,
        )
        self._add("aten", func, mine, wrapped, self._mutated(func, mine[0], mine[1], wrapped))
        return wrapped

    def _own(self, value: Any, name: str, to_ipu: bool) -> Any:
        if not isinstance(value, torch.Tensor):
            return value
        if isinstance(value, IpuTensor):
            if value._tape is not self:
                raise Error(
                    f"{name} on a tensor of an earlier trace: a tensor kept as a Python attribute does not live on"
                )
            return value
        if id(value) in self.known:
            return self.known[id(value)]
        if to_ipu or value.dim() == 0:
            made = self.placeholder(value)
            self.constants[made._number] = value.detach().clone()
            return made
        raise Error(
            f"Expected an IPU tensor but got tensor(device={value.device}, shape={list(value.shape)}, "
            f'dtype={value.dtype}). Constant tensors should be moved explicitly to the IPU, via tensor.to("ipu").'
        )

    def _mutated(self, func: Any, args: Any, kwargs: Any, wrapped: Any) -> list[int]:
        """Arguments that are written to; views are tied to what they view."""
        outputs = [t for t in tree_flatten(wrapped)[0] if isinstance(t, IpuTensor)]
        mutated: list[int] = []
        for i, argument in enumerate(func._schema.arguments):
            if argument.alias_info is None:
                continue
            value = args[i] if i < len(args) else kwargs.get(argument.name)
            for tensor in tree_flatten(value)[0]:
                if not isinstance(tensor, IpuTensor):
                    continue
                if argument.alias_info.is_write:
                    mutated.append(tensor._number)
                for output in outputs:
                    self._alias(output._number, tensor._number)
        return mutated

    def _add(self, kind: str, target: Any, call: Any, result: Any, mutates: list[int]) -> None:
        args, kwargs = tree_map(lambda x: Ref(x._number) if isinstance(x, IpuTensor) else x, call)
        if "device" in kwargs:
            kwargs = {**kwargs, "device": "cpu"}
        outputs = [t._number if isinstance(t, IpuTensor) else None for t in tree_flatten(result)[0]]
        self.nodes.append(Node(kind, target, tuple(args), dict(kwargs), outputs, torch.is_grad_enabled(), mutates))

    def custom_op(self, op: CustomOp, inputs: list[IpuTensor], examples: list[torch.Tensor]) -> list[IpuTensor]:
        """Record a custom op; a gradient may flow wherever one may flow into it."""
        needs_grad = torch.is_grad_enabled() and any(t.requires_grad for t in inputs)
        outputs = []
        for example in examples:
            meta = torch.empty(example.shape, dtype=example.dtype, device="meta")
            outputs.append(self._wrap(meta, needs_grad and example.dtype.is_floating_point))
        self._add("custom", op, ((list(inputs),), {}), outputs, [])
        return outputs

    def inputs_of(self, node: Node) -> list[int]:
        return [r.number for r in tree_flatten((node.args, node.kwargs))[0] if isinstance(r, Ref)]

    def final_loss(self) -> int:
        """The one loss that no other loss is made from."""
        if not self.losses:
            raise Error("Couldn't find a loss in graph!")
        independent = [
            loss
            for loss in self.losses
            if not any(other != loss and self.root(other) in self.reached_from({loss}) for other in self.losses)
        ]
        if len(set(independent)) != 1:
            raise Error(
                "Multiple independent losses found in graph. Graph must have one final loss. Wrap final graph loss in "
                "poptorch.identity_loss."
            )
        return independent[0]

    def reached_from(self, numbers: set[int]) -> set[int]:
        reached = {self.root(n) for n in numbers}
        for node in self.nodes:
            if any(self.root(n) in reached for n in self.inputs_of(node)):
                reached |= {self.root(n) for n in [*node.outputs, *node.mutates] if n is not None}
        return reached

    def leading_to(self, number: int) -> set[int]:
        """Everything that the tensor is computed from."""
        leading = {self.root(number)}
        for node in reversed(self.nodes):
            if any(self.root(n) in leading for n in [*node.outputs, *node.mutates] if n is not None):
                leading |= {self.root(n) for n in self.inputs_of(node)}
        return leading

    def prune(self, wanted: set[int]) -> None:
        """Drop operations without effect, as PopART does."""
        needed = {self.root(n) for n in wanted}
        kept = []
        for node in reversed(self.nodes):
            produces = [self.root(n) for n in [*node.outputs, *node.mutates] if n is not None]
            if any(n in needed for n in produces):
                kept.append(node)
                needed |= {self.root(n) for n in self.inputs_of(node)}
        self.nodes = kept[::-1]

    def run(self, values: dict[int, torch.Tensor], session: Session | None) -> dict[int, torch.Tensor]:
        """Compute all tensors from those of the inputs, parameters and buffers."""
        values = {**self.constants, **values}
        for node in self.nodes:
            args, kwargs = tree_map(lambda x: values[x.number] if isinstance(x, Ref) else x, (node.args, node.kwargs))
            with torch.set_grad_enabled(torch.is_grad_enabled() and node.grad_enabled):
                if node.kind == "custom":
                    assert session is not None
                    result: Any = _RunCustomOp.apply(session, node.target, *args[0])
                else:
                    result = self._run_aten(node, args, kwargs)
            for number, tensor in zip(node.outputs, tree_flatten(result)[0]):
                if number is not None:
                    values[number] = tensor
        return values

    def _run_aten(self, node: Node, args: Any, kwargs: Any) -> Any:
        flat = tree_flatten((args, kwargs))[0]
        half = any(isinstance(t, torch.Tensor) and t.dtype == torch.float16 for t in flat)
        schema = node.target._schema
        aliases = any(a.alias_info is not None for a in schema.arguments)
        if not half or aliases or schema.name in KEEPS_HALF:
            return node.target(*args, **kwargs)
        # In float, rounded afterwards: not every processor has every operation in half, and an IPU adds in float.
        args, kwargs = tree_map(
            lambda x: x.float() if isinstance(x, torch.Tensor) and x.dtype == torch.float16 else x, (args, kwargs)
        )
        result = node.target(*args, **kwargs)
        numbers = iter(node.outputs)

        def rounded(x: Any) -> Any:
            number = next(numbers)
            return x.to(self.dtypes[number]) if number is not None else x

        return tree_map(rounded, result)


def _indexed(to: Callable[..., Any]) -> Callable[..., Any]:
    """`tensor.to("ipu")`: torch asks a backend, which is not there, for the index of the device."""

    @functools.wraps(to)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        def index(value: Any) -> Any:
            if isinstance(value, (str, torch.device)) and torch.device(value).type == "ipu":
                return torch.device("ipu:0")
            return value

        return to(*[index(a) for a in args], **{k: index(v) for k, v in kwargs.items()})

    return wrapper


def _on_ipu(factory: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(factory)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        if "device" not in kwargs:
            logger.warning("No device set in torch.%s(): forcing to IPU", factory.__name__)
            kwargs["device"] = "ipu"
        if factory.__name__ == "tensor":
            # torch.tensor reads Python values, which exist while tracing.
            kwargs.pop("device")
            with torch.utils._python_dispatch._disable_current_modes():
                made = factory(*args, **kwargs)
            return made.to("ipu")
        return factory(*args, **kwargs)

    return wrapper


def _plain(tensor: torch.Tensor) -> torch.Tensor:
    """As the op sees it: in order in memory, and an IPU has no 64-bit integers."""
    tensor = tensor.detach().contiguous()
    return tensor.to(torch.int32) if tensor.dtype == torch.int64 else tensor


class _RunCustomOp(torch.autograd.Function):
    """Forward by the C++ op, backward by its gradient ops and nothing else."""

    @staticmethod
    def forward(ctx: Any, session: Session, op: CustomOp, *inputs: torch.Tensor) -> Any:
        plain = [_plain(t) for t in inputs]
        outputs = session.run(op.index, dict(zip(op.input_names, plain)))
        ctx.session, ctx.op = session, op
        ctx.set_materialize_grads(False)
        ctx.mark_non_differentiable(*[t for t in outputs if not t.dtype.is_floating_point])
        if ctx.op.gradients:
            ctx.save_for_backward(*plain, *outputs)
        return tuple(outputs)

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor | None) -> Any:
        op: CustomOp = ctx.op
        nothing = (None, None, *[None for _ in op.input_names])
        # PopART gives up on an op when the gradient of an output on the path to the loss could not be had.
        if not op.gradients or any(on and g is None for on, g in zip(op.on_loss_path, grads)):
            return nothing
        known = dict(zip([*op.input_names, *op.output_names], ctx.saved_tensors))
        for name, grad in zip(op.output_names, grads):
            if grad is not None:
                known[f"Gradient___{name}"] = grad.detach().contiguous()
        result: list[torch.Tensor | None] = list(nothing)
        for index in op.gradients:
            in_ports, out_ports = ctx.session.ports(index)
            outputs = ctx.session.run(index, {p.tensor: known[p.tensor] for p in in_ports})
            for port, value in zip(out_ports, outputs):
                at = 2 + int(port.forward_input or 0)
                before = result[at]
                result[at] = value if before is None else before + value
        return tuple(result)
