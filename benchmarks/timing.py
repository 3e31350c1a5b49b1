"""Time contenders side by side: one call of each in turn, so that a busy machine slows all of them alike."""

from __future__ import annotations

import os
import platform
import statistics
import subprocess
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Callable, Sequence

import torch
from torch import Tensor

from snn_ipu.experiments.machine import processor

WARMUPS = 3


@dataclass
class Contender:
    """Something to time: `run` does one whole call and lets go of everything it made.

    Attributes:
        name: as the table shows it.
        run: what is timed.
        first_call: seconds of its very first call, compilation included.
        firing_rate: mean of its spikes, so that nobody is fast by being silent.
        kept: bytes kept for backward per neuron and step, None where that was not asked.
        times: seconds of each call.
    """

    name: str
    run: Callable[[], None]
    first_call: float
    firing_rate: float
    kept: float | None = None
    times: list[float] = field(default_factory=list)

    @property
    def median(self) -> float:
        return statistics.median(self.times)


@dataclass(frozen=True)
class Result:
    """One benchmark: its contenders, ours first, and the peers that it had to leave out."""

    title: str
    contenders: Sequence[Contender]
    left_out: Sequence[str]


def seconds(run: Callable[[], None]) -> float:
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def interleave(contenders: Sequence[Contender], repeats: int) -> None:
    """Warm every contender up, then time one call of each in turn, `repeats` times."""
    for contender in contenders:
        for _ in range(WARMUPS):
            contender.run()
    for _ in range(repeats):
        for contender in contenders:
            contender.times.append(seconds(contender.run))


def bytes_kept(forward: Callable[[], Tensor]) -> int:
    """Bytes that autograd keeps for the backward pass, each tensor counted once."""
    kept: dict[tuple[int, torch.Size, torch.dtype], Tensor] = {}

    def pack(t: Tensor) -> Tensor:
        kept[t.data_ptr(), t.shape, t.dtype] = t
        return t

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t):
        out = forward()
    total = sum(t.numel() * t.element_size() for t in kept.values())
    del out
    return total


def _commit() -> str:
    root = Path(__file__).parent
    command = ["git", "-C", str(root), "describe", "--always", "--dirty"]
    try:
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=False)
    except OSError:
        return ""
    return done.stdout.strip()


def machine() -> str:
    """The machine and the software, in one line."""
    parts = [
        f"{processor()}, {os.cpu_count()} cores",
        f"{torch.get_num_threads()} threads",
        f"load {os.getloadavg()[0]:.2f}",
        f"{platform.system()} {platform.machine()}",
        f"Python {platform.python_version()}",
        f"torch {torch.__version__}",
        f"commit {_commit() or 'unknown'}",
    ]
    return "; ".join(parts)
