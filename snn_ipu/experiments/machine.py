"""What a measurement was made on: the machine and the versions of everything that counts."""

from __future__ import annotations

import os
import platform
from importlib import metadata
from pathlib import Path
from typing import Any

import torch

from .. import __version__, ipu
from ..backends import ipu as backend


def processor() -> str:
    """The name of the processor."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), platform.machine())


def describe() -> dict[str, Any]:
    """Processor, cores, memory, GPU, IPU and system of this machine."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {
        "cpu": processor(),
        "cores": os.cpu_count(),
        "memory_gib": round(memory / 2**30, 1),
        "gpu": torch.cuda.get_device_name() if torch.cuda.is_available() else None,
        "ipu": backend.details() if ipu.hardware() else None,
        "system": f"{platform.system()} {platform.machine()}",
    }


def versions() -> dict[str, str | None]:
    """Versions of this package, Python, torch, numpy and, None where it is missing, snnTorch."""
    return {
        "snn_ipu": __version__,
        "python": platform.python_version(),
        "torch": str(torch.__version__),
        "numpy": metadata.version("numpy"),
        "snntorch": installed("snntorch"),
    }


def installed(package: str) -> str | None:
    """The version of a package, None where it is not installed."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None
