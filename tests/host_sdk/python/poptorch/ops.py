"""Operations and annotations that a model uses."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any, Callable, Iterable, Union

import torch

from . import _impl, enums
from ._native import Error
from ._trace import CustomOp, IpuTensor, strict

AttributeValue = Union[float, int, str, list, tuple]


def _check_attributes(attributes: dict[str, AttributeValue]) -> None:
    for key, value in attributes.items():
        if not isinstance(key, str):
            raise ValueError("All attribute keys must be strings.")
        if not isinstance(value, (float, int, str, list, tuple)):
            raise ValueError(
                "Attribute values must be floats, ints, strings or a list/tuple of float, ints of strings."
            )
        if isinstance(value, (list, tuple)):
            # An empty list is an IndexError here, as it is in PopTorch when it looks for the type of element 0.
            first = value[0]
            if any(not isinstance(element, type(first)) for element in value):
                raise ValueError("The types in a list/tuple attribute must all be the same.")
    for text in [*attributes, *attributes.values()]:
        for word in text if isinstance(text, (list, tuple)) else [text]:
            if isinstance(word, str) and not word.isascii():
                raise ValueError(f"{word} contains non-ASCII characters.")


def custom_op(
    inputs: tuple[torch.Tensor],
    name: str,
    domain: str,
    domain_version: int,
    example_outputs: tuple[torch.Tensor],
    attributes: dict[str, AttributeValue] | None = None,
) -> list[torch.Tensor]:
    """Apply a PopART custom op; outside of a model it returns zeros without a gradient, as PopTorch does."""
    examples = [
        torch.zeros_like(output, requires_grad=output.requires_grad, device=output.device) for output in example_outputs
    ]
    if attributes is not None:
        _check_attributes(attributes)
    tape = _impl.current_tape()
    if tape is None:
        if strict():
            raise Error(f"custom_op({name!r}) outside of a model returns zeros; branch on poptorch.isRunningOnIpu()")
        return [torch.zeros_like(example) for example in examples]
    for tensor in inputs:
        if not isinstance(tensor, IpuTensor) and id(tensor) not in tape.known:
            raise Error(f"custom_op({name!r}): Expected an IPU tensor but got an input on {tensor.device}")
    for example in examples:
        if not isinstance(example, IpuTensor):
            raise Error(
                f"custom_op({name!r}): Expected an IPU tensor but got an example output on {example.device}; make it "
                "with device=x.device"
            )
    traced = [t if isinstance(t, IpuTensor) else tape.known[id(t)] for t in inputs]
    # PopTorch gives a single output the type of the first input.
    if len(examples) == 1 and traced and traced[0].dtype == torch.float16 and examples[0].dtype == torch.float32:
        raise Error(
            f"custom_op({name!r}): one float output after a half first input: PopTorch may type it half. Put a float "
            "input first, or return two outputs."
        )
    infos = [(example.dtype, tuple(example.shape)) for example in examples]
    op = CustomOp(domain, name, domain_version, dict(attributes or {}), infos)
    return list(tape.custom_op(op, traced, examples))


def identity_loss(x: torch.Tensor, reduction: str) -> torch.Tensor:
    """Mark a tensor as a loss."""
    if reduction == "sum":
        result = x.sum()
    elif reduction == "mean":
        result = x.mean()
    else:
        assert reduction == "none", "Unsupported reduction type!"
        result = x.clone()
    tape = _impl.current_tape()
    if tape is not None and isinstance(result, IpuTensor):
        tape.mark_loss(result)
    return result


def for_loop(
    count: int, body: Callable[[list[torch.Tensor]], list[torch.Tensor]], inputs: list[torch.Tensor]
) -> list[torch.Tensor]:
    """A loop on the device; in a model for inference only."""
    if not isinstance(inputs, list):
        raise ValueError(
            "poptorch.for_loop expects input tensors (inputs) to be a list of tensors. (Object is not list)"
        )
    for i, tensor in enumerate(inputs):
        if not isinstance(tensor, torch.Tensor):
            raise ValueError(
                "poptorch.for_loop expects input tensors (inputs) to be a list of tensors. (Object contained in list "
                f"at index {i} is not torch.tensor)"
            )
    tape = _impl.current_tape()
    if tape is not None and tape.training:
        raise Error("poptorch.for_loop() is only supported in inference.", "poptorch_cpp_error")
    values: Any = [t.clone() for t in inputs]
    for _ in range(count):
        values = body(*values)
        if not isinstance(values, (list, tuple)):
            values = [values]
        if len(values) != len(inputs):
            raise Error("poptorch.for_loop: the body must return as many tensors as it takes")
    return list(values)


def nop(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.clone()


def ipu_print_tensor(
    tensor: torch.Tensor,
    title: str = "",
    print_gradient: bool = True,
    summarise_threshold: int = 1000,
    edge_items: int = 3,
    max_line_width: int = 80,
    digits: int = 4,
    float_format: str = "auto",
    separator: str = ", ",
    open_bracket: str = "(",
    close_bracket: str = ")",
) -> torch.Tensor:
    """Prints nothing here."""
    return tensor.clone()


def recomputationCheckpoint(*tensors: torch.Tensor) -> torch.Tensor | tuple[torch.Tensor, ...]:
    return tensors[0] if len(tensors) == 1 else tensors


def set_available_memory(tensor: torch.Tensor, available_memory_proportion: float) -> torch.Tensor:
    """Identity here; checks its arguments."""
    if not isinstance(tensor, torch.Tensor):
        raise _impl.createPoptorchError(
            f"You may only set available memory for torch.tensor values. {type(tensor)} is not supported."
        )
    if not 0 <= available_memory_proportion <= 1:
        raise _impl.createPoptorchError("available memory proportion must be between 0 and 1")
    return tensor


class Block(torch.nn.Module):
    """Assigns operations to an IPU; the model has one."""

    def __init__(self, user_id: str | None = None, ipu_id: int | None = None) -> None:
        super().__init__()
        for name, value, kind in (("user_id", user_id, str), ("ipu_id", ipu_id, int)):
            assert value is None or isinstance(value, kind), f"Block {name} must be {kind} or None"
        self._user_id, self._ipu_id = user_id, ipu_id

    @staticmethod
    def useAutoId() -> None:
        pass

    @staticmethod
    def start(user_id: str | None = None, ipu_id: int | None = None) -> None:
        Block(user_id, ipu_id)

    def __enter__(self) -> None:
        pass

    def __exit__(self, type: Any, value: Any, traceback: Any) -> None:
        pass


class _BlockHook:
    def __init__(self, user_id: str | None, ipu_id: int | None) -> None:
        self.user_id, self.ipu_id = user_id, ipu_id

    def __call__(self, module: torch.nn.Module, input: Any) -> None:
        pass


def BeginBlock(
    layer_to_call: torch.nn.Module, user_id: str | None = None, ipu_id: int | None = None
) -> torch.nn.Module:
    if not isinstance(layer_to_call, torch.nn.Module):
        raise _impl.createPoptorchError("module is not an instance of torch.nn.Module or function.")
    if any(isinstance(hook, _BlockHook) for hook in layer_to_call._forward_pre_hooks.values()):
        raise _impl.createPoptorchError("module has already been assigned to a block.")
    layer_to_call.register_forward_pre_hook(_BlockHook(user_id, ipu_id))
    return layer_to_call


def removeBlocks(module: torch.nn.Module) -> None:
    for m in module.modules():
        kept = [(k, hook) for k, hook in m._forward_pre_hooks.items() if not isinstance(hook, _BlockHook)]
        m._forward_pre_hooks = OrderedDict(kept)


def BlockFunction(user_id: str | None = None, ipu_id: int | None = None) -> Callable[..., Any]:
    def decorator(function: Callable[..., Any]) -> Callable[..., Any]:
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            with Block(user_id, ipu_id):
                return function(*args, **kwargs)

        return wrapper

    return decorator


class NameScope:
    def __init__(self, name: str) -> None:
        assert isinstance(name, str), "Name must be a string."
        self.name = name

    def __enter__(self) -> None:
        pass

    def __exit__(self, type: Any, value: Any, traceback: Any) -> None:
        pass


def _overlap(tensors: Iterable[Any], mode: enums.OverlapMode) -> Any:
    assert isinstance(mode, enums.OverlapMode)
    return tensors


def set_overlap_for_input(input_tensors: Any, mode: enums.OverlapMode) -> Any:
    return _overlap(input_tensors, mode)


def set_overlap_for_output(output_tensors: Any, mode: enums.OverlapMode) -> Any:
    return _overlap(output_tensors, mode)
