"""Building and finding the IPU's ops: with and without an SDK, broken ones included. Each case is its own process."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any, Iterator

import pytest
from ipu_host import host_sdk

from snn_ipu.backends import ipu
from snn_ipu.backends.tile_memory import spread

ROOT = Path(__file__).resolve().parent.parent
TRAIN = """
import torch
import snn_ipu as snn
net = torch.nn.Sequential(torch.nn.Linear(3, 2), snn.Leaky(0.9))
step = snn.training_model(
    net, lambda spk, y: (spk.mean(0) - y).square().mean(), torch.optim.SGD(net.parameters(), lr=0.1),
    num_steps=4, device=DEVICE,
)
print("loss", float(step(torch.ones(2, 3), torch.ones(2, 2))[1]))
"""
# The same on an IPU, in the same process.
REFUSED = """
try:
    snn.training_model(net, torch.nn.functional.mse_loss, torch.optim.SGD(net.parameters(), lr=0.1), device="ipu")
except snn.errors.BackendMissingError as error:
    print("refused", error)
"""


@pytest.fixture(scope="module")
def sdk() -> Iterator[dict[str, str]]:
    """Environment of a shell with the host model as its SDK, and the path of the op library built for it."""
    with host_sdk():
        environment = sys.modules["poplar_host"].install().environment()
        path = os.pathsep.join((str(ROOT), environment["PYTHONPATH"]))
        yield {**os.environ, **environment, "LIBRARY": str(ipu.build()), "PYTHONPATH": path}


def python(code: str, environment: dict[str, str], warnings: str = "default") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-W", warnings, "-c", code], env=environment, capture_output=True, text=True, check=False
    )


def wrapped(folder: Path, environment: dict[str, str], for_ops: str) -> dict[str, str]:
    """The environment with a g++ of its own, which does `for_ops` where it is to compile the ops."""
    script = folder / "bin" / "g++"
    script.parent.mkdir()
    script.write_text(
        f'#!/bin/sh\ncase "$*" in *scan_op.cpp*)\n{for_ops}\n;; *) exec {shutil.which("g++")} "$@" ;; esac\n'
    )
    script.chmod(0o755)
    without = {k: v for k, v in environment.items() if k != "CXX"}
    path = f"{script.parent}{os.pathsep}{environment['PATH']}"
    return {**without, "PATH": path, "SNN_IPU_CACHE_DIR": str(folder / "cache")}


@pytest.fixture
def compiler(sdk: dict[str, str], tmp_path: Path) -> dict[str, str]:
    """An empty cache, and a compiler that counts its runs and takes its time over a copy of the real result."""
    copy = 'sleep 0.3; while [ "$1" != -o ]; do shift; done; cp "$LIBRARY" "$2"'
    return {**wrapped(tmp_path, sdk, f"echo run >> {tmp_path}/runs; {copy}"), "RUNS": str(tmp_path / "runs")}


def runs(environment: dict[str, str]) -> int:
    path = Path(environment["RUNS"])
    return len(path.read_text().splitlines()) if path.exists() else 0


def test_import__with_an_sdk__builds_once(compiler: dict[str, str]) -> None:
    for _ in range(2):
        done = python("import snn_ipu", compiler, warnings="error")
        assert done.returncode == 0, done.stderr
        assert runs(compiler) == 1


def test_import__many_processes_at_once__build_once_and_all_work(compiler: dict[str, str]) -> None:
    code = "import snn_ipu; from snn_ipu.backends import ipu; ipu.library(); print('loaded')"
    started = [
        subprocess.Popen([sys.executable, "-c", code], env=compiler, stdout=subprocess.PIPE, text=True)
        for _ in range(3)
    ]
    outputs = [process.communicate()[0] for process in started]
    assert all("loaded" in out for out in outputs)
    assert runs(compiler) == 1
    left = sorted(p.suffix for p in Path(compiler["SNN_IPU_CACHE_DIR"]).iterdir())
    assert left == [".cpp", ".so"]


def test_import__half_written_library_in_the_cache__is_built_again(compiler: dict[str, str]) -> None:
    assert python("import snn_ipu", compiler).returncode == 0
    (library,) = Path(compiler["SNN_IPU_CACHE_DIR"]).glob("*.so")
    library.write_bytes(library.read_bytes()[:1000])
    done = python("import snn_ipu; from snn_ipu.backends import ipu; ipu.library(); print('loaded')", compiler)
    assert "loaded" in done.stdout, done.stderr
    assert runs(compiler) == 2


def test_import__skipped_by_the_user__builds_nothing_and_says_how(compiler: dict[str, str]) -> None:
    code = "from snn_ipu.backends import ipu\nprint(ipu.status())"
    done = python(code, {**compiler, "SNN_IPU_BUILD": "0"}, warnings="error")
    assert "SNN_IPU_BUILD=0 forbids it. Run `snn-ipu build`" in done.stdout
    assert runs(compiler) == 0
    built = subprocess.run(
        [sys.executable, "-c", "from snn_ipu.cli import main; main()", "build"],
        env={**compiler, "SNN_IPU_BUILD": "0"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert built.stdout.startswith("IPU ops: ") and runs(compiler) == 1
    assert python(code, {**compiler, "SNN_IPU_BUILD": "0"}).stdout.strip() == "None"


def test_import__broken_compiler__warns_with_its_output_and_the_cpu_works(sdk: Any, tmp_path: Path) -> None:
    broken = wrapped(tmp_path, sdk, "echo no space left on moon >&2; exit 3")
    done = python("DEVICE = 'cpu'" + TRAIN + REFUSED, broken)
    assert done.returncode == 0 and "loss" in done.stdout, done.stderr
    assert "the IPU ops could not be built" in done.stderr and "no space left on moon" in done.stderr
    refused = done.stdout[done.stdout.index("refused") :]
    assert refused.startswith("refused device='ipu'") and "no space left on moon" in refused


def test_import__poptorch_asserts_on_the_torch_version__cpu_works_and_ipu_says_why(tmp_path: Path) -> None:
    package = tmp_path / "poptorch"
    package.mkdir()
    (package / "__init__.py").write_text("assert False, 'PopTorch was built for torch 2.0.1'\n")
    environment = {**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{tmp_path}"}
    done = python("DEVICE = 'auto'" + TRAIN + REFUSED, environment, warnings="error")
    assert done.returncode == 0 and "loss" in done.stdout, done.stderr
    reason = "poptorch cannot be imported: AssertionError: PopTorch was built for torch 2.0.1"
    assert f"refused device='ipu': {reason}" in done.stdout


def test_import__poptorch_without_an_enabled_sdk__ipu_says_why(sdk: dict[str, str]) -> None:
    environment = {k: v for k, v in sdk.items() if k != "POPLAR_SDK_ENABLED"}
    done = python("DEVICE = 'reference'" + TRAIN + REFUSED, environment)
    assert "refused device='ipu': no Poplar SDK is enabled in this shell; source its enable script" in done.stdout


def test_import__no_sdk__is_quiet_and_the_cpu_works() -> None:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    statuses = "print('status', {s.name: s.reason for s in snn.backends.select.status()}['ipu'])\n"
    done = python("DEVICE = 'auto'" + TRAIN + REFUSED + statuses, environment, warnings="error")
    assert done.returncode == 0 and done.stderr == "" and "loss" in done.stdout, done.stderr
    assert "refused device='ipu': poptorch is not installed" in done.stdout
    assert "status poptorch is not installed" in done.stdout


def test_cache__cannot_be_written__prebuilt_ops_run_new_codelets_too(sdk: dict[str, str], tmp_path: Path) -> None:
    folder = tmp_path / "prebuilt"
    folder.mkdir()
    library = Path(sdk["LIBRARY"])
    for name in (library.name, *(p.name for p in library.parent.glob("*.so"))):
        (folder / name).write_bytes((library.parent / name).read_bytes())
    code = (
        "from pathlib import Path\nfrom snn_ipu.backends import ipu\n"
        # Whoever runs the tests as root may write anywhere: the refusal is put in place.
        "def refuse(path, text, write=ipu._write):\n"
        f"    if path.parent == Path({str(folder)!r}): raise PermissionError(path)\n"
        "    write(path, text)\n"
        "ipu._write = refuse\nDEVICE = 'ipu'" + TRAIN
    )
    done = python(code, {**sdk, "SNN_IPU_CACHE_DIR": str(folder)})
    assert "loss" in done.stdout, done.stderr
    # Sources of CPU kernels, with longer names, may lie here as well.
    assert not [p for p in folder.iterdir() if p.suffix == ".cpp" and len(p.stem) == 16]


def test_custom_ops__of_the_package__are_those_of_the_repository() -> None:
    assert (ROOT / "snn_ipu" / "custom_ops").resolve() == ROOT / "custom_ops"
    assert {f"{name}.cpp" for name in ipu.SOURCES} == {p.name for p in (ROOT / "custom_ops").glob("*.cpp")}


# One neuron; fewer than two a worker; uneven over many tiles; more tiles than grains; Mk2 with a dense layer.
@pytest.mark.parametrize(
    ("neurons", "tiles", "grain"), [(1, 1472, 4), (13, 1472, 2), (1001, 7, 4), (30, 1472, 2), (128_000, 1472, 4)]
)
def test_spread__any_size__covers_all_neurons_once_and_evenly(neurons: int, tiles: int, grain: int) -> None:
    shares = spread(neurons, tiles, grain)
    assert [s.begin for s in shares] == [0, *(s.end for s in shares[:-1])]
    assert shares[-1].end == neurons
    assert len({s.tile for s in shares}) == len(shares) <= tiles
    assert all(s.padded % grain == 0 and 0 <= s.padded - (s.end - s.begin) < grain for s in shares)
    sizes = [s.padded for s in shares]
    assert max(sizes) - min(sizes) <= grain
    # Twelve neurons keep six workers busy, two at a time.
    assert len(shares) == 1 or min(sizes) >= 12


def test_spread__no_neurons__uses_no_tile() -> None:
    assert spread(0, 4, 2) == []
