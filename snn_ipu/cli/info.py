"""`snn-ipu info`: what works on this machine and why the rest does not."""

from __future__ import annotations

import platform

import click
import numpy
import torch

import snn_ipu

from .. import buffers
from ..backends import cache, select


@click.command()
def command() -> None:
    """Show versions, the backends that work here, the kernel cache, the buffer pool and threads."""
    pool = buffers.stats()
    rows = [
        ("snn_ipu", snn_ipu.__version__),
        ("python", platform.python_version()),
        ("torch", torch.__version__),
        ("numpy", numpy.__version__),
        ("threads", str(torch.get_num_threads())),
        ("kernel cache", str(cache.cache_dir())),
        (
            "buffer pool",
            f"{_mib(pool.in_use)} in use, {_mib(pool.idle)} idle, at most {_mib(pool.limit)} idle",
        ),
    ]
    rows += [
        (f"backend {backend.name}", backend.reason if backend.available else f"not here: {backend.reason}")
        for backend in select.status()
    ]
    width = max(len(name) for name, _ in rows)
    for name, value in rows:
        click.echo(f"{name:<{width}}  {value}")


def _mib(count: int) -> str:
    return f"{count / 2**20:,.1f} MiB"
