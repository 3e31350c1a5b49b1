"""What differs between torch 2.0.1 and today, in one place."""

from __future__ import annotations

from typing import Any, Callable, TypeVar

import torch

F = TypeVar("F", bound=Callable[..., Any])

HAS_OPERATORS = hasattr(torch.library, "custom_op")


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
