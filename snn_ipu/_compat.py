"""What differs between torch 2.0.1 and today, in one place."""

from __future__ import annotations

import ctypes
import pickle
import random
from typing import Any, Callable, TypeVar

import numpy as np
import torch

F = TypeVar("F", bound=Callable[..., Any])

HAS_OPERATORS = hasattr(torch.library, "custom_op")
# Adam, AdamW and SGD as one kernel on the CPU came in torch 2.4, as registered operators did.
HAS_FUSED_OPTIMIZERS = HAS_OPERATORS


def random_state() -> tuple[Any, ...]:
    """The state of every generator that a function may draw from; equal before and after where it draws nothing."""
    state, drawn = torch.random.get_rng_state(), np.random.get_state(legacy=False)
    # Read by address: an operation on the tensor would be recorded where torch.compile traces.
    return ctypes.string_at(state.data_ptr(), state.numel()), random.getstate(), pickle.dumps(drawn)


def is_compiling() -> bool:
    """Whether torch.compile or torch.export is tracing, in a version that has registered operators."""
    return HAS_OPERATORS and torch.compiler.is_compiling()


def is_recording() -> bool:
    """Whether torch.compile, torch.export or a dispatch mode, as of make_fx, sees neurons as registered operators."""
    return is_compiling() or (HAS_OPERATORS and _in_dispatch_mode() and not sees_plain_torch_only())


def constant_result(fn: F) -> F:
    """Let torch.compile run a method while it traces and keep the result."""
    # torch.compiler.assume_constant_result sets this mark as well, but imports all of torch._dynamo first.
    fn._dynamo_marked_constant = True  # type: ignore[attr-defined]
    return fn


def _in_dispatch_mode() -> bool:
    return torch._C._len_torch_dispatch_stack() > 0


def in_transform() -> bool:
    """Whether a transform of torch.func, such as vmap or grad, is active."""
    return bool(torch._C._are_functorch_transforms_active())


def sees_plain_torch_only() -> bool:
    """Whether torch.jit.trace or a transform of torch.func, such as vmap or grad, follows each operation.

    So does a dispatch mode in a version without registered operators.
    """
    if in_transform():
        return True
    # torch.compile cannot trace the other questions.
    return not is_compiling() and (torch._C._is_tracing() or (not HAS_OPERATORS and _in_dispatch_mode()))


def follows_operations(tensor: torch.Tensor) -> bool:
    """Whether a tensor's class, such as FakeTensor, handles each operation itself and may have no memory of its own."""
    return type(tensor).__torch_dispatch__ is not torch.Tensor.__torch_dispatch__


def is_batch_of_gradients(grad: torch.Tensor) -> bool:
    """Whether a vectorised backward pass of torch has put several gradients into one tensor, without memory to read."""
    return not torch._C._has_storage(grad)
