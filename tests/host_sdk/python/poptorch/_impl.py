"""State that PopTorch keeps beside its models."""

from __future__ import annotations

from typing import Any

from ._native import Error
from ._trace import Tape

_tape: Tape | None = None


def createPoptorchError(msg: str) -> Error:
    return Error(msg)


def isRunningOnIpu() -> bool:
    """True while a model is traced, False in its `__init__` and in eager use."""
    return _tape is not None


def current_tape() -> Tape | None:
    return _tape


def set_tape(tape: Tape | None) -> None:
    global _tape
    _tape = tape


def isWrapped(obj: Any) -> bool:
    return hasattr(type(obj), "_host_wrapped_class")


def unwrap(obj: Any) -> None:
    if isWrapped(obj):
        obj.__class__ = type(obj)._host_wrapped_class
