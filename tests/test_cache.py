from __future__ import annotations

import contextlib
import ctypes
import gc
import multiprocessing
import os
import resource
import signal
import stat
import subprocess
import sys
import time
import warnings
import weakref
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Callable, Iterator

import pytest
import torch

import snn_ipu as snn
from snn_ipu import scan
from snn_ipu.backends import cache, cpu, select
from snn_ipu.errors import BackendMissingError, BuildError, FallbackWarning

ANSWER = 'extern "C" int answer() { return 42; }\n'
COMPILE = ["g++", "-shared", "-fPIC", "{source}", "-o", "{output}"]
FORK = multiprocessing.get_context("fork")
RUN_LEAKY = """
import torch, snn_ipu as snn
spk, (mem,) = snn.Leaky(0.5, backend="cpu").sequence(torch.full((3, 2, 5), 0.75))
print(spk.sum().item(), mem[0, 0].item())
"""


def forget() -> None:
    """Make this process forget every kernel and every warning."""
    for module in (cpu, cache):
        for value in vars(module).values():
            if hasattr(value, "cache_clear"):
                value.cache_clear()
    select._warned.clear()
    scan._runners.clear()


@pytest.fixture()
def fresh(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Path]:
    """An empty cache of its own, and nothing remembered."""
    forget()
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setenv("SNN_IPU_CACHE_DIR", str(tmp_path / "cache"))
    yield tmp_path / "cache"
    forget()


@pytest.fixture()
def script(tmp_path: Path) -> Callable[[str], str]:
    """Write a stand-in for the compiler."""

    def write(body: str) -> str:
        path = tmp_path / f"compiler-{len(list(tmp_path.iterdir()))}"
        path.write_text(f"#!/bin/sh\n{body}\n")
        path.chmod(path.stat().st_mode | stat.S_IXUSR)
        return str(path)

    return write


def run_leaky(backend: str = "cpu") -> Any:
    x = torch.full((3, 2, 5), 0.75)
    spk, (mem,) = snn.Leaky(0.5, backend=backend).sequence(x)
    # 0.75, 1.125 (spike), 0.5625 + 0.75 - 1 = 0.3125
    assert spk.sum().item() == 10 and torch.equal(mem, torch.full((2, 5), 0.3125))
    return spk


def build(compiler: str = "g++") -> ctypes.CDLL:
    return cache.load_library(cache.build_library("k" * 32, ANSWER, [compiler, *COMPILE[1:]]))


def build_in_child(compiler: str, meet: Any = None) -> Any:
    """Start `build` in another process; its exit code is the answer."""

    def target() -> None:
        if meet is not None:
            meet.wait()
        sys.exit(build(compiler).answer())

    child = FORK.Process(target=target)
    child.start()
    return child


def names(folder: Path) -> list[str]:
    return sorted(p.name for p in folder.iterdir())


def python(code: str, *arguments: str, **env: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", code, *arguments],
        env={**os.environ, **env},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def one_warning(function: Callable[[], Any]) -> str:
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        function()
        function()
    assert [w.category for w in seen] == [FallbackWarning]
    return str(seen[0].message)


def wait_for(path: Path) -> None:
    end = time.monotonic() + 60
    while not (path.exists() and path.read_text().strip()):
        assert time.monotonic() < end, f"{path} did not appear"
        time.sleep(0.02)


def test_build__first_and_second_use__compiles_once(fresh: Path, script: Callable[[str], str], tmp_path: Path) -> None:
    compiler = script(f'echo build >> {tmp_path}/log\nexec g++ "$@"')
    assert build(compiler).answer() == 42
    assert build(compiler).answer() == 42
    assert (tmp_path / "log").read_text() == "build\n"
    assert names(fresh) == ["k" * 32 + ".cpp", "k" * 32 + ".so"]
    assert (fresh / ("k" * 32 + ".cpp")).read_text() == ANSWER


def test_build__two_processes_at_once__one_compiles_and_both_succeed(
    fresh: Path, script: Callable[[str], str], tmp_path: Path
) -> None:
    compiler = script(f'echo build >> {tmp_path}/log\nsleep 0.5\nexec g++ "$@"')
    meet = FORK.Barrier(2)
    both = [build_in_child(compiler, meet) for _ in range(2)]
    for child in both:
        child.join(60)
    assert [child.exitcode for child in both] == [42, 42]
    assert (tmp_path / "log").read_text() == "build\n"
    assert [n for n in names(fresh) if not n.endswith(".cpp")] == ["k" * 32 + ".so"]


def test_build__several_threads_at_once__one_compiles(
    fresh: Path, script: Callable[[str], str], tmp_path: Path
) -> None:
    compiler = script(f'echo build >> {tmp_path}/log\nsleep 0.2\nexec g++ "$@"')
    with ThreadPoolExecutor(4) as workers:
        answers = list(workers.map(lambda _: build(compiler).answer(), range(4)))
    assert answers == [42] * 4
    assert (tmp_path / "log").read_text() == "build\n"


def test_build__killed_while_compiling__leaves_nothing_that_counts(
    fresh: Path, script: Callable[[str], str], tmp_path: Path
) -> None:
    pid = tmp_path / "pid"
    compiler = script(f"echo $$ > {pid}\nexec sleep 300")
    victim = build_in_child(compiler)
    wait_for(pid)
    victim.kill()
    victim.join(60)
    assert not list(fresh.glob("*.so")) and len(list(fresh.glob("*-*"))) == 1
    try:
        assert build().answer() == 42
        assert names(fresh) == ["k" * 32 + ".cpp", "k" * 32 + ".so"]
    finally:
        os.kill(int(pid.read_text()), signal.SIGKILL)


def test_build__orphan_of_a_killed_build_ends_late__does_not_touch_the_library(
    fresh: Path, script: Callable[[str], str], tmp_path: Path
) -> None:
    pid, go, done = tmp_path / "pid", tmp_path / "go", tmp_path / "done"
    late = (
        f"exec > {tmp_path}/said 2>&1\necho $$ > {pid}\nuntil [ -e {go} ]; do sleep 0.05; done\nfor last; do :; done\n"
    )
    late += 'echo rubbish > "$last"\n'
    victim = build_in_child(script(late + f"echo done > {done}"))
    wait_for(pid)
    victim.kill()
    victim.join(60)
    build()
    go.touch()
    wait_for(done)
    assert cache._intact(fresh / ("k" * 32 + ".so")) and build().answer() == 42


def test_build__leftovers_of_other_kernels__removed_after_a_day(fresh: Path) -> None:
    old, young, foreign = fresh / ("a" * 32 + "-1"), fresh / ("b" * 32 + "-2"), fresh / "my-notes"
    for folder in (old, young, foreign):
        folder.mkdir(parents=True)
        (folder / "kernel.cpp").write_text("x")
    for folder in (old, foreign):
        os.utime(folder, (time.time() - 2 * 86400,) * 2)
    build()
    assert not old.exists() and young.exists() and foreign.exists()


@pytest.mark.parametrize("damage", ["empty", "half", "one byte", "longer"])
def test_build__damaged_library__is_rebuilt_in_the_same_call(fresh: Path, damage: str) -> None:
    fresh.mkdir()
    library = cache.build_library("k" * 32, ANSWER, COMPILE)
    content = library.read_bytes()
    middle = len(content) // 2
    library.write_bytes(
        {
            "empty": b"",
            "half": content[:middle],
            "one byte": content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :],
            "longer": content + b"\0",
        }[damage]
    )
    assert cache.build_library("k" * 32, ANSWER, COMPILE) == library
    assert cache._intact(library) and cache.load_library(library).answer() == 42


def test_kernel__damaged_library__next_process_runs_on_the_kernel(fresh: Path) -> None:
    run_leaky()
    (library,) = fresh.glob("*.so")
    library.unlink()  # this process has the file mapped, so the damaged one is a new file
    library.write_bytes(b"\x7fELF rubbish")
    out, err = python(RUN_LEAKY).communicate(timeout=120)
    assert out == "10.0 0.3125\n", err
    assert cache._intact(library)


def test_build__compiler_fails__shows_its_output(fresh: Path, script: Callable[[str], str]) -> None:
    with pytest.raises(BuildError, match=r"g\+\+ .* ended with 1:\n(.|\n)*kernel.cpp:1:1: error") as caught:
        cache.build_library("k" * 32, "nonsense", COMPILE)
    assert "nonsense" in str(caught.value)
    assert names(fresh) == ["k" * 32 + ".lock"]


def test_build__compiler_speaks_no_utf8__is_shown_all_the_same(fresh: Path, script: Callable[[str], str]) -> None:
    with pytest.raises(BuildError, match=r"ended with 3:\nbroken .quotes"):
        build(script("printf 'broken \\221quotes'; exit 3"))


def test_build__compiler_is_killed__says_so(fresh: Path, script: Callable[[str], str]) -> None:
    with pytest.raises(BuildError, match="ended with -9"):
        build(script("kill -9 $$"))


def test_kernel__compiler_fails__auto_runs_the_reference_with_one_warning_that_shows_the_output(
    fresh: Path, monkeypatch: pytest.MonkeyPatch, script: Callable[[str], str], tmp_path: Path
) -> None:
    body = f'[ "$1" = --version ] && exec echo fake 1.0\necho build >> {tmp_path}/log\necho out of luck >&2; exit 7'
    monkeypatch.setenv("CXX", script(body))
    assert "ended with 7:\nout of luck" in one_warning(lambda: run_leaky("auto"))
    with pytest.raises(BuildError, match="out of luck"):
        run_leaky("cpu")
    assert (tmp_path / "log").read_text() == "build\n", "a failed build must not be tried at every step"


def test_kernel__compiler_fails__no_call_is_held_by_its_error(
    fresh: Path, monkeypatch: pytest.MonkeyPatch, script: Callable[[str], str]
) -> None:
    monkeypatch.setenv("CXX", script("exit 7"))
    neuron, inputs = snn.Leaky(0.5, learn_beta=True), []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", snn.FallbackWarning)
        for width in range(3, 8):
            x = torch.rand(2, 3, width, dtype=torch.float64)
            neuron.sequence(x)
            inputs.append(weakref.ref(x))
    del x
    gc.collect()
    assert [held() for held in inputs] == [None] * 5


def test_kernel__compiler_writes_no_library__is_an_error_that_names_the_file(
    fresh: Path, script: Callable[[str], str]
) -> None:
    with pytest.raises(BuildError, match=r"k+\.so could not be loaded: .*(invalid ELF|file too short)"):
        build(script('for last; do :; done\necho "not a library" > "$last"'))


def test_kernel__no_compiler__auto_runs_the_reference_with_one_warning(
    fresh: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "")
    assert "no C++ compiler was found" in one_warning(lambda: run_leaky("auto"))
    assert not fresh.exists()


def test_kernel__no_compiler__cpu_backend_raises_with_remedy(fresh: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    with pytest.raises(BackendMissingError, match=r"backend='cpu': no C\+\+ compiler was found; install g\+\+"):
        run_leaky("cpu")
    assert [s.reason for s in select.status() if s.name == "cpu"] == [
        "no C++ compiler was found; install g++ or set CXX"
    ]


def test_key__other_flags_or_compiler__builds_another_library(
    fresh: Path, monkeypatch: pytest.MonkeyPatch, script: Callable[[str], str]
) -> None:
    run_leaky()
    assert len(list(fresh.glob("*.so"))) == 1
    forget()
    run_leaky()
    assert len(list(fresh.glob("*.so"))) == 1
    forget()
    monkeypatch.setattr(cpu, "FLAGS", (*cpu.FLAGS, "-DANOTHER"))
    run_leaky()
    assert len(list(fresh.glob("*.so"))) == 2
    compiler = script('[ "$1" = --version ] && exec echo 99.0\nexec g++ "$@"')
    monkeypatch.setenv("CXX", compiler)
    forget()
    run_leaky()
    assert len(list(fresh.glob("*.so"))) == 3
    Path(compiler).write_text(Path(compiler).read_text().replace("99.0", "99.1"))
    forget()
    run_leaky()
    assert len(list(fresh.glob("*.so"))) == 4


def test_key__parts_that_join_alike__differ() -> None:
    assert cache.content_key("ab", "c") != cache.content_key("a", "bc")


@pytest.fixture()
def read_only_home(monkeypatch: pytest.MonkeyPatch, fresh: Path, tmp_path: Path) -> Path:
    """A home that not even root can write: below a regular file. Temporary files go to a folder of the test."""
    (tmp_path / "file").write_text("")
    (tmp_path / "tmp").mkdir()
    monkeypatch.delenv("SNN_IPU_CACHE_DIR")
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "file" / "home"))
    monkeypatch.setattr(cache.tempfile, "tempdir", str(tmp_path / "tmp"))
    return tmp_path / "tmp" / f"snn_ipu-{os.getuid()}"


def test_home__read_only__kernels_go_to_a_private_temporary_folder(read_only_home: Path) -> None:
    run_leaky()
    assert len(list(read_only_home.glob("*.so"))) == 1
    assert stat.S_IMODE(read_only_home.stat().st_mode) == 0o700
    forget()
    run_leaky()
    assert len(list(read_only_home.glob("*.so"))) == 1


def test_home__user_without_home__kernels_go_to_a_private_temporary_folder(
    read_only_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_home() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(cache.Path, "home", staticmethod(no_home))
    run_leaky()
    assert len(list(read_only_home.glob("*.so"))) == 1


def test_home__read_only_and_temporary_folder_of_another_user__is_refused(
    read_only_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read_only_home.mkdir()
    owner = read_only_home.stat().st_uid
    monkeypatch.setattr(cache.os, "getuid", lambda: owner + 1)
    read_only_home.rename(read_only_home.parent / f"snn_ipu-{owner + 1}")
    with pytest.raises(BuildError, match=r"belongs to another user\. Set SNN_IPU_CACHE_DIR"):
        run_leaky()


def test_home__read_only_and_no_temporary_folder__auto_runs_the_reference(
    read_only_home: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(cache.tempfile, "tempdir", str(tmp_path / "file"))
    assert "no folder for kernels can be written" in one_warning(lambda: run_leaky("auto"))


def test_home__read_only_with_the_library_in_it__uses_it(
    read_only_home: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    run_leaky()
    monkeypatch.setattr(cache, "_writable", lambda folder: False)
    monkeypatch.setattr(cache, "_run", refuse_to_compile)
    forget()
    run_leaky()
    assert not list(read_only_home.glob("*.so"))


def refuse_to_compile(command: Any) -> str:
    assert command[1:] == ["--version"], "the library is there: nothing is to be compiled"
    return subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout


def test_cache_dir__below_a_regular_file__is_an_error_that_names_the_variable(
    fresh: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("SNN_IPU_CACHE_DIR", str(tmp_path / "file" / "kernels"))
    with pytest.raises(BuildError, match=r"SNN_IPU_CACHE_DIR=.*file/kernels: expected a folder that can be written"):
        run_leaky()


def test_cache_dir__cannot_be_written_and_lacks_the_library__is_an_error_that_says_what_to_do(
    fresh: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # /proc/self is a folder where not even root can make a file.
    monkeypatch.setenv("SNN_IPU_CACHE_DIR", "/proc/self")
    with pytest.raises(BuildError, match=r"the kernel cache /proc/self cannot be written: .*set SNN_IPU_CACHE_DIR"):
        run_leaky()


def test_cache_dir__cannot_be_written_but_holds_the_library__works(
    fresh: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_leaky()
    before = names(fresh)
    fresh.chmod(0o500)
    monkeypatch.setattr(cache, "_writable", lambda folder: False)
    monkeypatch.setattr(cache, "_locked", cannot_lock)
    forget()
    run_leaky()
    fresh.chmod(0o700)
    assert names(fresh) == before


@contextlib.contextmanager
def cannot_lock(path: Path) -> Iterator[None]:
    raise PermissionError(f"{path}: read-only")
    yield


FULL_DISK = """
import os, resource, warnings
from pathlib import Path
import torch, snn_ipu as snn
from snn_ipu.backends import cpu
folder, allowed = Path(os.environ["SNN_IPU_CACHE_DIR"]), int(os.environ["ALLOWED"])
hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
resource.setrlimit(resource.RLIMIT_FSIZE, (allowed, hard))
x = torch.full((3, 2, 5), 0.75)
with warnings.catch_warnings(record=True) as seen:
    warnings.simplefilter("always")
    for _ in range(2):
        spk, _ = snn.Leaky(0.5).sequence(x)
        assert spk.sum().item() == 10
assert [w.category for w in seen] == [snn.FallbackWarning], seen
assert not list(folder.glob("*.so")) and not list(folder.glob("*-*")), list(folder.iterdir())
print(seen[0].message)
resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
for value in vars(cpu).values():
    getattr(value, 'cache_clear', int)()
assert snn.Leaky(0.5, backend="cpu").sequence(x)[0].sum().item() == 10
print(len(list(folder.glob("*.so"))))
"""


# The limit on the size of a file stands for a full disk: the first stops our source, the second the linker.
@pytest.mark.parametrize(("allowed", "message"), [("1000", "cannot be written: "), ("12000", " ended with ")])
def test_disk__full__auto_runs_the_reference_and_later_builds(fresh: Path, allowed: str, message: str) -> None:
    out, err = python(FULL_DISK, ALLOWED=allowed).communicate(timeout=120)
    assert message in out and out.endswith("\n1\n"), (out, err)


def test_disk__full_in_this_process__temporary_folder_is_removed(fresh: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    fresh.mkdir()
    resource.setrlimit(resource.RLIMIT_FSIZE, (10, hard))
    try:
        with pytest.raises(BuildError, match=r"cannot be written: .*Free space or set SNN_IPU_CACHE_DIR"):
            build()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert names(fresh) == ["k" * 32 + ".lock"]
    assert build().answer() == 42


def test_lock__forked_child_outlives_the_build__does_not_hold_others_up(fresh: Path, tmp_path: Path) -> None:
    fresh.mkdir()
    read, write = os.pipe()
    with cache._locked(fresh / "lock"):
        child = os.fork()
        if child == 0:
            os.close(write)
            os.read(read, 1)  # until the parent is done
            os._exit(0)
    os.close(read)
    waiting = subprocess.run(["flock", "--nonblock", str(fresh / "lock"), "true"], check=False)
    os.close(write)
    os.waitpid(child, 0)
    assert waiting.returncode == 0
