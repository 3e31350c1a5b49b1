"""The host model of Poplar, PopLibs and PopART as an SDK folder: NOT AN IPU, a test tool.

`install()` builds the model once into a cache and returns a folder laid out like an SDK: `include`, `lib`, `bin/popc`.
`compile_op()` builds a custom op against it. The `poptorch` module beside this one runs models on it.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import shlex
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Iterator, Sequence

ROOT = Path(__file__).resolve().parents[2]
CODELETS = Path(__file__).resolve().parent / "codelets.py"

LIBRARIES: dict[str, list[str]] = {
    "poplar": ["tensor", "graph", "engine"],
    "poputil": ["poputil"],
    "popops": ["popops"],
    "popart": ["popart", "session"],
}
NEEDS = {"poplar": [], "poputil": ["poplar"], "popops": ["poputil", "poplar"]}
NEEDS["popart"] = ["popops", "poputil", "poplar"]

RUNTIME_FLAGS = ["-std=c++17", "-O2", "-g1", "-fPIC", "-Wall", "-Wextra", "-Werror", "-DONNX_NAMESPACE=onnx"]

# What the documentation of PopART and of the public add-ons compile custom ops with.
OP_FLAGS = [
    "-std=c++17",
    "-O1",
    "-fPIC",
    "-Wall",
    "-Wextra",
    "-Werror",
    "-DONNX_NAMESPACE=onnx",
]
OP_LIBRARIES = ["-Wl,--no-undefined", "-lpopart", "-lpopops", "-lpoputil", "-lpoplar"]


class BuildFailed(RuntimeError):
    """The compiler refused the model, or an op."""


@dataclass(frozen=True)
class Sdk:
    """A folder laid out like a Poplar SDK, with the host model in it."""

    root: Path

    @property
    def lib(self) -> Path:
        return self.root / "lib"

    def environment(self) -> dict[str, str]:
        """What the `enable.sh` scripts of a real SDK set, and where `import poptorch` finds the model."""

        def prepend(name: str, path: Path) -> str:
            old = os.environ.get(name)
            return f"{path}{os.pathsep}{old}" if old else str(path)

        return {
            "POPLAR_SDK_ENABLED": str(self.root),
            "CPATH": prepend("CPATH", self.root / "include"),
            "LIBRARY_PATH": prepend("LIBRARY_PATH", self.lib),
            "LD_LIBRARY_PATH": prepend("LD_LIBRARY_PATH", self.lib),
            "PATH": prepend("PATH", self.root / "bin"),
            "PYTHONPATH": prepend("PYTHONPATH", ROOT / "python"),
        }


def cache_dir() -> Path:
    path = Path(os.environ.get("HOST_SDK_CACHE") or Path(tempfile.gettempdir()) / "host_sdk_cache")
    path.mkdir(parents=True, exist_ok=True)
    return path


def compiler() -> str:
    return os.environ.get("CXX", "g++")


@contextlib.contextmanager
def building(name: str) -> Iterator[None]:
    """One process builds, the others wait for it."""
    with open(cache_dir() / f"{name}.lock", "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def run(command: Sequence[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise BuildFailed(f"{shlex.join(command)}\n{done.stderr}")


def content_key(paths: Sequence[Path], flags: Sequence[str]) -> str:
    digest = hashlib.sha256(repr((compiler(), list(flags))).encode())
    for path in paths:
        digest.update(path.read_bytes())
    return digest.hexdigest()[:24]


def sources() -> list[Path]:
    found = [*ROOT.glob("src/*"), *ROOT.glob("include/**/*.hpp"), *ROOT.glob("codelet_include/**/*.hpp")]
    return sorted(p for p in found if p.is_file())


def install() -> Sdk:
    """Build the model, or find it in the cache (`HOST_SDK_CACHE`, else a temporary folder)."""
    # This file says how things are built, and the folder holds paths, so both belong to the key.
    paths = [str(CODELETS), sys.executable]
    root = cache_dir() / f"sdk_{content_key([*sources(), Path(__file__)], [*RUNTIME_FLAGS, *paths])}"
    with building(root.name):
        if not root.exists():
            build_sdk(root)
    return Sdk(root)


def build_sdk(root: Path) -> None:
    folder = Path(tempfile.mkdtemp(prefix="building_", dir=cache_dir()))
    (folder / "lib").mkdir()
    (folder / "bin").mkdir()
    (folder / "include").symlink_to(ROOT / "include")
    popc = folder / "bin" / "popc"
    popc.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} {shlex.quote(str(CODELETS))} popc "$@"\n')
    popc.chmod(0o755)
    include = [f"-I{ROOT / 'include'}", f"-I{ROOT / 'codelet_include'}"]
    units = [unit for names in LIBRARIES.values() for unit in names]
    jobs = [
        [
            compiler(),
            *RUNTIME_FLAGS,
            *include,
            "-c",
            str(ROOT / "src" / f"{unit}.cpp"),
            "-o",
            str(folder / f"{unit}.o"),
        ]
        for unit in units
    ]
    run_together(jobs)
    for name, parts in LIBRARIES.items():
        objects = [str(folder / f"{part}.o") for part in parts]
        needs = [f"-l{other}" for other in NEEDS[name]]
        run(
            [
                compiler(),
                "-shared",
                *objects,
                "-o",
                str(folder / "lib" / f"lib{name}.so"),
                f"-Wl,-soname,lib{name}.so",
                "-Wl,-rpath,$ORIGIN",
                "-Wl,--no-undefined",
                f"-L{folder / 'lib'}",
                *needs,
                "-ldl",
            ]
        )
    for unit in units:
        (folder / f"{unit}.o").unlink()
    os.rename(folder, root)


def run_together(commands: Sequence[list[str]]) -> None:
    limit = max(1, min(4, os.cpu_count() or 1))
    for start in range(0, len(commands), limit):
        batch = commands[start : start + limit]
        running = [
            (c, subprocess.Popen(c, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)) for c in batch
        ]
        for command, process in running:
            _, errors = process.communicate()
            if process.returncode != 0:
                raise BuildFailed(f"{shlex.join(command)}\n{errors}")


def compile_op(paths: Sequence[Path], flags: Sequence[str] = ()) -> Path:
    """Build custom-op sources into a shared library against the model, or find it in the cache."""
    sdk = install()
    # The model's headers take part: an op is built again when they change.
    key = content_key([*paths, *sources()], [*OP_FLAGS, *flags, *OP_LIBRARIES])
    library = cache_dir() / f"op_{paths[0].stem}_{key}.so"
    with building(library.stem):
        if library.exists():
            return library
        fd, unfinished = tempfile.mkstemp(suffix=".so", dir=cache_dir())
        os.close(fd)
        command = [compiler(), *OP_FLAGS, *flags, f"-I{sdk.root / 'include'}", *map(str, paths)]
        run([*command, "-shared", "-o", unfinished, f"-L{sdk.lib}", *OP_LIBRARIES])
        os.replace(unfinished, library)
    return library
