"""Importing the library is cheap: nothing heavy is loaded, nothing is compiled, nothing is printed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

HEAVY = ("triton", "poptorch", "matplotlib", "rich", "click", "snntorch", "nir", "tonic", "torch._dynamo", "scipy")

PROBE = """
import json, sys
import torch
before = set(sys.modules)
import snn_ipu
print(json.dumps(sorted(set(sys.modules) - before)))
"""


def run(code: str, cache: Path) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "SNN_IPU_CACHE_DIR": str(cache), "PYTHONWARNINGS": "error::UserWarning:snn_ipu"}
    return subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=120)


def test_import__loads_no_heavy_module_compiles_nothing_and_says_nothing(tmp_path: Path) -> None:
    done = run(PROBE, tmp_path / "cache")
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    lines = done.stdout.splitlines()
    assert len(lines) == 1, lines
    loaded = json.loads(lines[0])
    assert "snn_ipu" in loaded
    assert not [m for m in loaded if m in HEAVY or m.startswith(tuple(f"{h}." for h in HEAVY))]
    assert not (tmp_path / "cache").exists(), "importing makes no cache"


def test_import__without_a_compiler__works_and_the_reference_runs(tmp_path: Path) -> None:
    code = (
        "import os; os.environ['PATH'] = ''; os.environ['CXX'] = '/nonexistent'\n"
        "import torch, snn_ipu as snn\n"
        "print(snn.Leaky(0.5, backend='reference')(torch.full((1, 1), 1.5))[0].item())"
    )
    done = run(code, tmp_path / "cache")
    assert (done.returncode, done.stdout.strip()) == (0, "1.0"), done.stderr
