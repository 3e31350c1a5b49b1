from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import threading
import warnings
from pathlib import Path
from typing import Any, Callable, Iterator

import pytest
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

import snn_ipu as snn
from snn_ipu.backends import cpu, openmp

# T * M is past the size from which kernels use threads, and M is no multiple of a block.
T, M = 5, 20_011


@pytest.fixture(autouse=True)
def _poisoned_buffers() -> None:
    """Not here: filling memory uses threads of torch's own, which hang in a forked child."""


@pytest.fixture(autouse=True)
def _two_threads() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


def layer() -> snn.Leaky:
    beta = torch.linspace(0.5, 0.99, M)
    return snn.Leaky(beta, learn_beta=True, spike_grad=snn.surrogate.fast_sigmoid(5), backend="cpu")


def results(lif: snn.Leaky) -> list[Tensor]:
    x = torch.rand(T, 1, M, generator=torch.Generator().manual_seed(3)).requires_grad_()
    spk, (mem,) = lif.sequence(x)
    (spk.sum() + mem.sum()).backward()
    beta = lif.beta
    assert isinstance(beta, Tensor) and beta.grad is not None and x.grad is not None and spk.sum() > 0
    return [spk.detach(), mem.detach(), x.grad, beta.grad]


ONE_RUNTIME = """
import torch, snn_ipu as snn
x = torch.rand(8, 4, 20_000, requires_grad=True)
snn.Leaky(0.9, backend="cpu").sequence(x)[0].sum().backward()
x.detach().matmul(x.detach().mT)
mapped = {line.split()[-1] for line in open("/proc/self/maps") if "/" in line}
print(*(p for p in mapped if any(n in p.rsplit("/", 1)[1] for n in ("gomp", "iomp", "libomp"))), sep="\\n")
"""


def test_runtime__after_parallel_kernels__is_torchs_own_and_the_only_one() -> None:
    done = subprocess.run([sys.executable, "-c", ONE_RUNTIME], capture_output=True, text=True, timeout=120, check=True)
    (runtime,) = done.stdout.split()
    library = Path(torch.__file__).parent / "lib" / "libtorch_cpu.so"
    linked = subprocess.run(["ldd", str(library)], capture_output=True, text=True, check=True).stdout
    assert Path(runtime).resolve() in [Path(w).resolve() for w in linked.split() if w.startswith("/")]


Work = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
Parallel = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint, ctypes.c_uint)


@pytest.fixture()
def asked(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """How many threads each parallel launch asks for; the work is done by one."""
    seen: list[int] = []

    @Parallel
    def runtime(function: int, data: int, threads: int, flags: int) -> None:
        seen.append(threads)
        Work(function)(data)

    one = ctypes.CFUNCTYPE(ctypes.c_int)(lambda: 0)
    pair = openmp.Runtime(*(ctypes.cast(f, ctypes.c_void_p) for f in (runtime, one)))
    monkeypatch.setattr(openmp, "runtime", lambda: ctypes.addressof(pair))
    yield seen


@pytest.mark.parametrize("threads", [2, 3, 7])
def test_threads__number_of_torch_is_changed__kernels_follow(asked: list[int], threads: int) -> None:
    torch.set_num_threads(threads)
    results(layer())
    assert asked == [threads, threads], "one launch forward, one backward"


def test_threads__more_than_blocks_of_neurons__asks_for_no_more_than_there_is_work(asked: list[int]) -> None:
    torch.set_num_threads(64)
    results(layer())
    assert asked == [-(-M // cpu.BLOCK)] * 2


def test_threads__one_or_little_work__starts_none(asked: list[int]) -> None:
    torch.set_num_threads(1)
    results(layer())
    torch.set_num_threads(2)
    snn.Leaky(0.5, backend="cpu").sequence(torch.ones(2, 3, 100))
    assert asked == []


@pytest.mark.parametrize("number", [0, 1, 6])
@pytest.mark.parametrize("started", [1, 3, 7])
def test_shares__fewer_threads_than_asked_for_or_any_number__all_blocks_are_done_once(
    monkeypatch: pytest.MonkeyPatch, number: int, started: int
) -> None:
    expected = results(layer())

    @Parallel
    def parallel(function: int, data: int, threads: int, flags: int) -> None:
        for _ in range(started):
            Work(function)(data)

    thread_number = ctypes.CFUNCTYPE(ctypes.c_int)(lambda: number)
    runtime = openmp.Runtime(*(ctypes.cast(f, ctypes.c_void_p) for f in (parallel, thread_number)))
    monkeypatch.setattr(openmp, "runtime", lambda: ctypes.addressof(runtime))
    torch.set_num_threads(7)
    assert all(torch.equal(a, b) for a, b in zip(results(layer()), expected))


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_threads__any_number__same_bits(threads: int) -> None:
    expected = results(layer())
    torch.set_num_threads(threads)
    assert all(torch.equal(a, b) for a, b in zip(results(layer()), expected))


def test_python_threads__several_at_once__each_gets_its_own_right_result() -> None:
    expected = results(layer())
    equal: list[bool] = []

    def work() -> None:
        lif = layer()
        for _ in range(8):
            lif.zero_grad()
            equal.append(all(torch.equal(a, b) for a, b in zip(results(lif), expected)))

    workers = [threading.Thread(target=work) for _ in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(120)
    assert not any(worker.is_alive() for worker in workers)
    assert equal == [True] * 32


def in_child(check: Callable[[], bool]) -> int:
    """The exit status of a forked child, 0 where `check` holds; one that hangs is killed after a minute."""
    child = os.fork()
    if child == 0:
        signal.alarm(60)
        try:
            os._exit(0 if check() else 1)
        finally:
            os._exit(2)
    return os.waitpid(child, 0)[1]


def bytes_of(t: Tensor) -> bytes:
    # torch's own comparison would start threads, which hangs in a forked child.
    return t.detach().numpy().tobytes()


def test_fork__after_a_parallel_kernel__child_runs_kernels_on_one_thread_and_says_so_once() -> None:
    x = torch.rand(T, 1, M)
    lif = layer()
    spk, _ = lif.sequence(x)
    with torch.no_grad():
        lif.sequence(x)
    expected = bytes_of(spk)

    def check() -> bool:
        with torch.no_grad(), warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            same = [bytes_of(lif.sequence(x)[0]) == expected for _ in range(2)]
        told = [str(w.message) for w in seen]
        return all(same) and len(told) == 1 and "one thread: this process was forked" in told[0]

    assert in_child(check) == 0
    assert bytes_of(lif.sequence(x)[0]) == expected


def test_fork__parent__goes_on_with_all_threads(asked: list[int]) -> None:
    assert in_child(lambda: openmp._forked) == 0
    assert not openmp._forked
    results(layer())
    assert asked == [2, 2]


class _Spikes(Dataset):  # type: ignore[type-arg]
    def __init__(self) -> None:
        self.lif = snn.Leaky(0.5, backend="cpu")

    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            return self.lif.sequence(torch.full((T, 1, M), 0.3 * index))[0], torch.get_num_threads()


def test_data_loader__after_parallel_kernels__workers_neither_hang_nor_warn() -> None:
    data = _Spikes()
    expected = [data[i][0] for i in range(len(data))]
    loader = DataLoader(data, batch_size=None, num_workers=2, multiprocessing_context="fork", timeout=60)
    for (spk, threads), own in zip(loader, expected):
        assert threads == 1 and torch.equal(spk, own)


def test_runtime__torch_has_none__kernels_run_on_one_thread_with_one_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    expected = results(layer())
    monkeypatch.setattr(openmp, "_torchs", lambda: None)
    openmp._warn.cache_clear()
    with pytest.warns(UserWarning, match="one thread: torch uses no OpenMP runtime") as seen:
        again = results(layer())
    assert len(seen) == 1
    assert all(torch.equal(a, b) for a, b in zip(again, expected))


def test_runtime__no_map_of_the_process__finds_none(monkeypatch: pytest.MonkeyPatch) -> None:
    class Nowhere:
        def __init__(self, path: str):
            self.path = path

        def read_text(self) -> Any:
            raise FileNotFoundError(self.path)

    assert openmp._torchs() is not None
    monkeypatch.setattr(openmp, "Path", Nowhere)
    assert openmp._torchs.__wrapped__() is None
