"""Checkpoints: everything that decides the rest of a run, in one file that is replaced whole."""

from __future__ import annotations

import hashlib
import io
import pickle
from dataclasses import asdict, dataclass, fields
from typing import Any

import torch
from torch import nn

from ..data import Dataset
from ..errors import CheckpointError
from .run_folder import write_whole

_FORMAT = 1


@dataclass
class Position:
    """Where a run stands: `step` minibatches of `epoch` are done, with these sums over them."""

    epoch: int = 0
    step: int = 0
    loss_sum: float = 0.0
    correct: int = 0
    seen: int = 0


def save(
    path: str,
    net: nn.Module,
    optimizer: torch.optim.Optimizer,
    position: Position,
    *,
    config: str,
    data: str,
    metrics_bytes: int,
) -> None:
    """Write a checkpoint.

    Args: config, the run's configuration as JSON; data, its data's `digest`; metrics_bytes, the length of the
    metrics file that goes with it.
    """
    on_cuda = any(parameter.is_cuda for parameter in net.parameters())
    state = {
        "format": _FORMAT,
        "model": net.state_dict(),
        "optimizer": optimizer.state_dict(),
        "position": asdict(position),
        "rng": {
            "cpu": torch.get_rng_state(),
            "cuda": torch.cuda.get_rng_state_all() if on_cuda else [],
        },
        "config": config,
        "data": data,
        "metrics_bytes": metrics_bytes,
    }
    buffer = io.BytesIO()
    torch.save(state, buffer)
    write_whole(path, buffer.getvalue())


def load(path: str) -> dict[str, Any]:
    """Read a checkpoint's content; only tensors, numbers and text are built from the file.

    Raises: CheckpointError when the file is unreadable or no checkpoint of a run.
    """
    remedy = "Restore it from a copy or start a new run."
    try:
        state = torch.load(path, map_location="cpu", weights_only=True)
    except (OSError, RuntimeError, EOFError, pickle.UnpicklingError, ValueError, KeyError) as e:
        raise CheckpointError(f"{path} is unreadable or damaged ({_first_line(e)}). {remedy}") from e
    expected = {"format", "model", "optimizer", "position", "rng", "config", "data", "metrics_bytes"}
    if not isinstance(state, dict) or set(state) != expected or state["format"] != _FORMAT:
        raise CheckpointError(f"{path} is not a checkpoint of a run of this version. {remedy}")
    return state


def restore(state: dict[str, Any], path: str, net: nn.Module, optimizer: torch.optim.Optimizer, data: str) -> Position:
    """Put a checkpoint's content into a net and an optimizer of the same build and set the random generators.

    Raises: CheckpointError when net, optimizer or data are others than those of the checkpoint.
    """
    if state["data"] != data:
        raise CheckpointError(
            f"{path} belongs to other data: the images or labels have changed. Give the data of the run."
        )
    try:
        net.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
    except (RuntimeError, ValueError, KeyError) as e:
        raise CheckpointError(
            f"{path} belongs to another model or optimizer: {_first_line(e)}. Start a new run."
        ) from e
    torch.set_rng_state(state["rng"]["cpu"])
    if state["rng"]["cuda"] and len(state["rng"]["cuda"]) == torch.cuda.device_count():
        torch.cuda.set_rng_state_all(state["rng"]["cuda"])
    return Position(**{field.name: state["position"][field.name] for field in fields(Position)})


def digest(data: Dataset) -> str:
    """A fingerprint of a data set's images and labels."""
    total = hashlib.blake2b(digest_size=16)
    for tensor in (data.train_images, data.train_labels, data.test_images, data.test_labels):
        total.update(str(tensor.shape).encode())
        total.update(tensor.contiguous().numpy().data)
    return total.hexdigest()


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]
