"""CUDA. Its kernels are still to come, so `auto` runs CUDA tensors on the reference backend and says so once."""

from __future__ import annotations

from ..errors import BackendMissingError
from .call import Call, Runner

NAME = "cuda"


def status() -> str | None:
    """Why this backend does not work here."""
    return "it has no kernels yet; CUDA tensors run on the reference backend"


def obstacle(call: Call) -> str | None:
    """Why this backend cannot run the call."""
    return status()


def settle(call: Call) -> Runner:
    """Always raises BackendMissingError."""
    raise BackendMissingError(f"backend='cuda': {status()}.")
