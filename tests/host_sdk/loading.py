"""Brings the host model's `poptorch` into a test process, where no other test sees it, and its test ops."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import importlib
import os
import sys
from pathlib import Path
from typing import Any, Iterator
from unittest import mock

ROOT = Path(__file__).resolve().parent
_loaded: dict[str, Any] = {}


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
            _loaded[name] = sys.modules.pop(name)
        sys.modules.update(before)


@contextlib.contextmanager
def enabled_sdk() -> Iterator[Any]:
    """As after a real SDK's enable script: its variables are set and `import poptorch` works; taken back afterwards."""
    module = load_poptorch()
    environment = sys.modules["poplar_host"].install().environment()
    hidden = {name: m for name, m in _loaded.items() if name not in sys.modules}
    with mock.patch.dict(os.environ, environment), mock.patch.dict(sys.modules, hidden):
        yield module


@functools.lru_cache(maxsize=None)
def load_op(name: str) -> ctypes.CDLL:
    """One of the model's own op libraries, by source, such as "ops/scaled_cube"."""
    load_poptorch()
    build = sys.modules["poplar_host"]
    return ctypes.CDLL(str(build.compile_op([ROOT / f"{name}.cpp"])))
