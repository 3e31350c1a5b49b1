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


def constant_result(fn: F) -> F:
    """Let torch.compile run a method while it traces and keep the result."""
    # torch.compiler.assume_constant_result sets this mark as well, but imports all of torch._dynamo first.
    fn._dynamo_marked_constant = True  # type: ignore[attr-defined]
    return fn


def in_transform() -> bool:
    """Whether a transform of torch.func, such as vmap or grad, is active."""
    return bool(torch._C._are_functorch_transforms_active())
