"""Brings the host model's `poptorch` into a test process, where no other test sees it, and its test ops."""

from __future__ import annotations

import ctypes
import functools
import importlib
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent


@functools.lru_cache(maxsize=None)
def load_poptorch() -> Any:
    """The module; `import poptorch` elsewhere in the process still finds none."""
    before = {name: sys.modules.pop(name) for name in list(sys.modules) if name.split(".")[0] == "poptorch"}
    sys.path.insert(0, str(ROOT / "python"))
    try:
        return importlib.import_module("poptorch")
    finally:
        sys.path.remove(str(ROOT / "python"))
        for name in [n for n in sys.modules if n.split(".")[0] == "poptorch"]:
            del sys.modules[name]
        sys.modules.update(before)


@functools.lru_cache(maxsize=None)
def load_op(name: str) -> ctypes.CDLL:
    """One of the model's own op libraries, by source, such as "ops/scaled_cube"."""
    load_poptorch()
    build = sys.modules["poplar_host"]
    return ctypes.CDLL(str(build.compile_op([ROOT / f"{name}.cpp"])))
