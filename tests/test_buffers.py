from __future__ import annotations

import copy
import gc
import io
import multiprocessing
import os
import pickle
import queue
import random
import signal
import subprocess
import sys
import threading
from typing import Any, Callable, Iterator

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

import snn_ipu as snn
from snn_ipu import buffers
from snn_ipu.buffers import Pool, _size_class

MIB = 1 << 20


@pytest.fixture()
def pool(monkeypatch: pytest.MonkeyPatch) -> Iterator[Pool]:
    """A pool of its own for the library to draw from."""
    gc.collect()
    own = Pool(64 * MIB)
    monkeypatch.setattr(buffers, "_pool", own)
    yield own


def tensor(size: int = MIB, value: float = 7.0) -> Tensor:
    return buffers.empty((size // 4,), (1,), torch.float32).fill_(value)


def overwrite() -> None:
    """Take and give back every size that a test uses, so that memory given back too early would show."""
    held = [tensor(size, -1.0) for size in (MIB, MIB, 2 * MIB, 4 * MIB) for _ in range(2)]
    assert len(held) == 8


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
def test_empty__any_dtype_and_strides__is_an_ordinary_aligned_tensor(pool: Pool, dtype: torch.dtype) -> None:
    t = buffers.empty((300, 7, 100), (700, 1, 7), dtype)
    assert t.dtype == dtype and t.shape == (300, 7, 100) and t.stride() == (700, 1, 7)
    assert t.data_ptr() % 64 == 0
    assert t.untyped_storage().nbytes() == t.numel() * t.element_size()
    assert t.fill_(1.5).double().sum().item() == 1.5 * t.numel()
    assert pool.stats().in_use == _size_class(t.numel() * t.element_size())


@pytest.mark.parametrize("shape", [(0,), (5, 0, 3), (), (17, 3)])
def test_empty__small_or_without_elements__comes_from_torch(pool: Pool, shape: tuple[int, ...]) -> None:
    strides = torch.empty(shape).stride()
    assert buffers.empty(shape, strides, torch.float32).shape == shape
    assert pool.stats() == (0, 0, 64 * MIB)


def test_block__tensor_is_gone__serves_the_next_one(pool: Pool) -> None:
    t = tensor()
    where = t.data_ptr()
    assert pool.stats() == (0, MIB, 64 * MIB)
    del t
    assert pool.stats() == (MIB, 0, 64 * MIB)
    # A batch that is one neuron smaller shares the block.
    assert tensor(MIB - 4).data_ptr() == where


KEEPERS: dict[str, Callable[[Tensor], Any]] = {
    "the tensor": lambda t: t,
    "view": lambda t: t.view(64, -1),
    "slice": lambda t: t[10:20],
    "transposed": lambda t: t.view(64, -1).t(),
    "detached": lambda t: t.detach(),
    "leaf": lambda t: t.detach().requires_grad_(),
    "numpy": lambda t: t.numpy(),
    "numpy slice": lambda t: t.numpy()[5:7],
    "memoryview": lambda t: memoryview(t.numpy()),
    "dlpack": lambda t: np.from_dlpack(t),
    "storage": lambda t: t.untyped_storage(),
    "graph": lambda t: (torch.ones_like(t, requires_grad=True) * t).sum(),
    "data": lambda t: t.data,
    "parameter": lambda t: torch.nn.Parameter(t),
    "cycle": lambda t: (lambda loop: loop.append(loop) or loop)([t]),
}


def content(kept: Any) -> set[float]:
    if isinstance(kept, torch.UntypedStorage):
        kept = torch.empty(0).set_(kept)
    if isinstance(kept, list):
        kept = kept[0]
    if isinstance(kept, Tensor) and kept.dim() == 0:
        kept.backward()
        (node,) = (f for f, _ in kept.grad_fn.next_functions)
        kept = next(f for f, _ in node.next_functions if f is not None).variable.grad
    return set(np.asarray(kept.detach() if isinstance(kept, Tensor) else kept).ravel().tolist())


@pytest.mark.parametrize("keep", KEEPERS.values(), ids=KEEPERS)
def test_block__something_of_the_tensor_lives_on__keeps_its_content(pool: Pool, keep: Callable[[Tensor], Any]) -> None:
    kept = keep(tensor())
    gc.collect()
    assert pool.stats().in_use == MIB
    overwrite()
    assert content(kept) == {7.0}
    del kept
    gc.collect()
    assert pool.stats().in_use == 0


COPIES: dict[str, Callable[[Tensor], Tensor]] = {
    "pickle": lambda t: pickle.loads(pickle.dumps(t)),
    "torch.save": lambda t: torch.load(saved(t), weights_only=True),
    "deepcopy": copy.deepcopy,
    "copy of a view": lambda t: copy.deepcopy(t[3:100]),
    "clone": torch.clone,
}


def saved(t: Tensor) -> io.BytesIO:
    file = io.BytesIO()
    torch.save(t, file)
    file.seek(0)
    return file


@pytest.mark.parametrize("make", COPIES.values(), ids=COPIES)
def test_copy__original_is_gone__owns_its_memory(pool: Pool, make: Callable[[Tensor], Tensor]) -> None:
    copied = make(tensor())
    assert pool.stats().in_use == 0
    overwrite()
    assert torch.equal(copied, torch.full_like(copied, 7.0)) and copied.numel() in (MIB // 4, 97)
    copied.add_(1)
    assert (tensor() == 7).all() and (copied == 8).all()


def test_share_memory__other_process_writes__both_see_it_and_the_block_is_free(pool: Pool, one_thread: None) -> None:
    shared = tensor()
    shared.share_memory_()
    assert shared.is_shared() and (shared == 7).all()
    assert pool.stats().in_use == 0
    child = multiprocessing.get_context("fork").Process(target=shared.fill_, args=(3.0,))
    child.start()
    child.join(60)
    assert child.exitcode == 0
    overwrite()
    assert (shared == 3).all()


def test_resize__to_more_elements__is_refused_and_a_clone_can_grow(pool: Pool) -> None:
    t = tensor()
    with pytest.raises(RuntimeError, match="not resizable"):
        t.detach().resize_(MIB)
    assert (t == 7).all()
    assert t.clone().resize_(MIB).numel() == MIB
    assert t.resize_(10).tolist() == [7.0] * 10


@given(st.integers(1 << 16, 1 << 40))
def test_size_class__any_size__wastes_less_than_an_eighth(nbytes: int) -> None:
    size = _size_class(nbytes)
    assert nbytes <= size < nbytes * 1.125 + 64 and size % 64 == 0
    assert _size_class(size) == size


def test_size_class__one_octave__has_eight_sizes() -> None:
    sizes = {_size_class(n) for n in range((1 << 20) + 1, (1 << 21) + 1, 64)}
    assert sorted(sizes) == [MIB + k * MIB // 8 for k in range(1, 9)]


class _Ledger:
    """What a pool must hold, kept by hand beside it."""

    def __init__(self, pool: Pool):
        self.pool = pool
        self.live: dict[int, Tensor] = {}

    def check(self) -> None:
        stats = self.pool.stats()
        assert 0 <= stats.idle <= stats.limit
        assert stats.in_use == sum(_size_class(t.numel() * 4) for t in self.live.values())
        spans = sorted((t.data_ptr(), t.numel() * 4) for t in self.live.values())
        assert all(a + n <= b for (a, n), (b, _) in zip(spans, spans[1:])), "two living tensors share memory"
        assert all((t == key).all() for key, t in self.live.items())


@settings(max_examples=40)
@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("take"), st.sampled_from([1 << 16, 70_000, 1 << 17, 200_000])),
            st.tuples(st.just("drop"), st.integers(0, 30)),
            st.tuples(st.just("limit"), st.sampled_from([1, 1 << 17, 1 << 18, MIB])),
            st.tuples(st.just("empty"), st.just(0)),
        ),
        max_size=30,
    )
)
def test_pool__any_course_of_events__is_bounded_and_adds_up(events: list[tuple[str, int]]) -> None:
    own, before = Pool(1 << 18), buffers._pool
    buffers._pool = own
    try:
        ledger = _Ledger(own)
        for number, (event, value) in enumerate(events):
            if event == "take":
                ledger.live[number] = tensor(value // 4 * 4, float(number))
            elif event == "drop" and ledger.live:
                del ledger.live[sorted(ledger.live)[value % len(ledger.live)]]
            elif event == "limit":
                buffers.set_limit(value)
                assert buffers.stats().limit == value
            elif event == "empty":
                buffers.empty_cache()
                assert buffers.stats().idle == 0
            ledger.check()
        ledger.live.clear()
        ledger.check()
    finally:
        buffers._pool = before


def test_limit__reached__frees_the_class_that_came_back_first(pool: Pool) -> None:
    buffers.set_limit(3 * MIB)
    first, second, third = tensor(MIB), tensor(2 * MIB), tensor(MIB // 2)
    del first
    del second
    assert pool.stats().idle == 3 * MIB
    del third
    assert pool.stats().idle == 2 * MIB + MIB // 2
    assert MIB not in pool._free


def test_limit__block_larger_than_it__is_freed_and_evicts_nothing(pool: Pool) -> None:
    buffers.set_limit(2 * MIB)
    small, large = tensor(MIB), tensor(4 * MIB)
    del small
    del large
    assert pool.stats() == (MIB, 0, 2 * MIB)


def test_limit__zero__switches_the_pool_off(pool: Pool) -> None:
    before = tensor()
    kept = tensor(2 * MIB)
    del before
    buffers.set_limit(0)
    assert pool.stats() == (0, 2 * MIB, 0)
    t = tensor()
    assert t.resize_(2 * t.numel()).numel() == MIB // 2, "only memory of torch's own grows in place"
    assert pool.stats() == (0, 2 * MIB, 0)
    del kept
    assert pool.stats() == (0, 0, 0)
    spk, _ = snn.Leaky(0.5).sequence(torch.ones(4, 3, 40_000))
    assert spk.detach().resize_(2 * spk.numel()).numel() == 2 * spk.numel() and pool.stats() == (0, 0, 0)


@pytest.mark.parametrize("limit", [-1, 1.5, True, "1", None])
def test_limit__no_number_of_bytes__raises(pool: Pool, limit: Any) -> None:
    with pytest.raises(ValueError, match=r"set_limit\(.*expected a number of bytes"):
        buffers.set_limit(limit)
    assert pool.stats().limit == 64 * MIB


def test_default_limit__from_the_environment__is_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SNN_IPU_POOL_BYTES", "12345")
    assert buffers._default_limit() == 12345
    for wrong in ("-1", "1e9", "2 GB", "²"):
        monkeypatch.setenv("SNN_IPU_POOL_BYTES", wrong)
        with pytest.raises(ValueError, match=r"SNN_IPU_POOL_BYTES=.*expected a number of bytes; 0 switches"):
            buffers._default_limit()
    monkeypatch.delenv("SNN_IPU_POOL_BYTES")
    assert 0 < buffers._default_limit() <= os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 4


def test_default_limit__container_with_less_memory__is_a_quarter_of_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    (tmp_path / "memory.max").write_text("1000000\n")
    monkeypatch.delenv("SNN_IPU_POOL_BYTES", raising=False)
    monkeypatch.setattr(buffers, "Path", lambda path: tmp_path / path.rsplit("/", 1)[1])
    assert buffers._default_limit() == 250_000
    (tmp_path / "memory.max").write_text("max\n")
    assert buffers._default_limit() > 250_000


def resident() -> int:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def test_empty_cache__large_idle_block__returns_its_pages_to_the_system(pool: Pool) -> None:
    buffers.set_limit(256 * MIB)
    del_me = tensor(128 * MIB)
    del del_me
    held = resident()
    assert pool.stats().idle == 128 * MIB
    buffers.empty_cache()
    assert pool.stats().idle == 0
    assert held - resident() > 100 * MIB


def test_take__out_of_memory__frees_what_is_idle_and_tries_again(pool: Pool, monkeypatch: pytest.MonkeyPatch) -> None:
    idle = tensor()
    del idle
    real = np.empty

    def short(size: int, dtype: Any) -> Any:
        if pool._idle:
            raise MemoryError
        return real(size, dtype)

    monkeypatch.setattr(buffers.np, "empty", short)
    t = tensor(4 * MIB)
    assert (t == 7).all() and pool.stats() == (0, 4 * MIB, 64 * MIB)


def test_cycle__collected_while_the_lock_is_held__does_not_wait(pool: Pool) -> None:
    loop: list[Any] = [tensor()]
    loop.append(loop)
    del loop
    done = threading.Event()

    def collect() -> None:
        with pool._lock:
            gc.collect()
            assert pool._loans, "the block waits until the lock is free"
        done.set()

    worker = threading.Thread(target=collect, daemon=True)
    worker.start()
    assert done.wait(30), "a finalizer waits for the lock that its own thread holds"
    assert pool.stats() == (MIB, 0, 64 * MIB)


def test_threads__pass_tensors_to_each_other__no_block_is_shared_or_lost(pool: Pool) -> None:
    buffers.set_limit(2 * MIB)
    passed: queue.Queue[Tensor] = queue.Queue(8)
    faults: list[str] = []

    def work(seed: int) -> None:
        chance, held = random.Random(seed), []
        for step in range(300):
            value = float(seed * 1000 + step)
            t = tensor(chance.choice([1 << 16, 1 << 17, 100_000]), value)
            held.append((value, t))
            if chance.random() < 0.3:
                try:
                    passed.put_nowait(t)
                    passed.get_nowait()
                except (queue.Full, queue.Empty):
                    pass
            if len(held) > 4:
                value, t = held.pop(chance.randrange(len(held)))
                if not (t[:64] == value).all() or t[-1] != value:
                    faults.append(f"{seed}.{step}")
            if pool.stats().idle > 2 * MIB:
                faults.append(f"idle at {seed}.{step}")

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
    finally:
        sys.setswitchinterval(interval)
    assert not any(thread.is_alive() for thread in threads) and faults == []
    while not passed.empty():
        passed.get()
    assert pool.stats().in_use == 0 and 0 < pool.stats().idle <= 2 * MIB


@pytest.fixture()
def one_thread() -> Iterator[None]:
    """torch's own operations hang in a forked child that uses more than one thread."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def forked(check: Callable[[], bool]) -> bool:
    """Whether `check` holds in a forked child, within a minute."""
    child = os.fork()
    if child == 0:
        signal.alarm(60)
        try:
            os._exit(0 if check() else 1)
        finally:
            os._exit(2)
    return os.waitpid(child, 0)[1] == 0


def test_fork__both_sides_go_on__neither_sees_the_other(pool: Pool, one_thread: None) -> None:
    kept, idle = tensor(), tensor(2 * MIB)
    del idle

    def child() -> bool:
        mine = tensor(2 * MIB, 1.0)
        overwrite()
        kept.mul_(2)
        fine = bool((mine == 1).all() and (kept == 14).all())
        return fine and buffers.stats().in_use == 3 * MIB and buffers.stats().idle <= buffers.stats().limit

    assert forked(child)
    overwrite()
    assert (kept == 7).all()


def test_fork__another_thread_holds_the_lock__child_can_allocate_and_adds_up(pool: Pool, one_thread: None) -> None:
    idle = tensor()
    del idle
    pool.stats()

    def child() -> bool:
        # A fork calls the hook of the pool that the library was imported with; this one is called by hand.
        pool.after_fork()
        return pool.stats().idle == MIB and bool((tensor() == 7).all())

    with pool._lock:
        pool._idle -= MIB  # the other thread is about to take the block
        assert forked(child)
        pool._idle += MIB


def test_fork__library_pool_is_locked__child_does_not_wait() -> None:
    own = buffers._pool
    with own._lock:
        assert forked(lambda: own.stats().idle >= 0)


class _Spikes(Dataset):  # type: ignore[type-arg]
    def __init__(self) -> None:
        self.lif = snn.Leaky(0.5)

    def __len__(self) -> int:
        return 6

    def __getitem__(self, index: int) -> Tensor:
        x = torch.full((4, 1, 20_000), 0.3 * index)
        spk, _ = self.lif.sequence(x)
        return spk  # type: ignore[no-any-return]


def test_data_loader__workers_run_neurons__batches_are_right_and_stay_so(pool: Pool) -> None:
    data = _Spikes()
    expected = [data[i] for i in range(len(data))]
    loader = DataLoader(data, batch_size=2, num_workers=2, multiprocessing_context="fork", timeout=60)
    seen = list(loader)
    overwrite()
    assert len(seen) == 3
    for i, batch in enumerate(seen):
        assert torch.equal(batch, torch.stack(expected[2 * i : 2 * i + 2]))
    assert torch.equal(torch.stack([data[i] for i in range(6)]), torch.stack(expected))


def sequence(x: Tensor, backend: str = "cpu", **arguments: Any) -> Any:
    lif = snn.Leaky(0.8, spike_grad=snn.surrogate.fast_sigmoid(5), backend=backend)
    return lif.sequence(x, **arguments)


def currents() -> Tensor:
    return torch.rand(5, 3, 11_000, generator=torch.Generator().manual_seed(1)).requires_grad_()


def reference_grad(loss: Callable[[Tensor], Tensor]) -> Tensor:
    x = currents()
    loss(sequence(x, "reference")[0]).backward()
    assert x.grad is not None and x.grad.abs().sum() > 0
    return x.grad


def test_backward__output_is_gone__saved_values_are_still_there(pool: Pool) -> None:
    x = currents()
    weight = torch.linspace(-1, 1, x.numel()).view_as(x)
    loss = (sequence(x)[0] * weight).sum()
    gc.collect()
    in_use = pool.stats().in_use
    assert in_use >= x.numel() * 4, "the membranes are kept for backward"
    overwrite()
    junk = [torch.full_like(x, float("nan")) for _ in range(3)] + [sequence(torch.rand_like(x))[0] for _ in range(3)]
    loss.backward()
    assert len(junk) == 6
    assert x.grad is not None
    torch.testing.assert_close(x.grad, reference_grad(lambda spk: (spk * weight).sum()))
    del loss, junk
    gc.collect()
    # What is left is the gradient itself.
    assert pool.stats().in_use == _size_class(x.numel() * 4)


def test_backward__twice_through_a_retained_graph__gives_the_same(pool: Pool) -> None:
    x = currents()
    spk, _ = sequence(x)
    (first,) = torch.autograd.grad(spk.sum(), x, retain_graph=True)
    overwrite()
    (second,) = torch.autograd.grad(spk.sum(), x)
    assert torch.equal(first, second) and first.abs().sum() > 0


def test_output__changed_in_place__gradient_follows(pool: Pool) -> None:
    x = currents()
    spk, (mem,) = sequence(x)
    spk.mul_(2)
    mem.zero_()
    spk.sum().backward()
    assert x.grad is not None
    torch.testing.assert_close(x.grad, reference_grad(lambda s: (2 * s).sum()))


def test_trace__kept_for_backward_and_changed_in_place__is_an_error(pool: Pool) -> None:
    spk, _, mem = sequence(currents(), trace="mem")
    mem.mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        spk.sum().backward()


def test_output__as_a_leaf__collects_its_own_gradient(pool: Pool) -> None:
    with torch.no_grad():
        spk, _ = sequence(currents())
    leaf = spk.requires_grad_()
    overwrite()
    assert leaf.is_leaf
    (sequence(leaf * 1.5)[0].sum() + leaf.sum()).backward()
    assert leaf.grad is not None and leaf.grad.shape == leaf.shape and (leaf.grad >= 1).all()


def test_output__inference_mode__is_right_and_returns_its_block(pool: Pool) -> None:
    x = currents()
    with torch.inference_mode():
        spk = sequence(x)[0]
        assert torch.equal(spk, sequence(x, "reference")[0])
    assert pool.stats().in_use >= x.numel() * 4
    del spk
    assert pool.stats().in_use == 0


def test_training_loop__ten_steps__takes_no_fresh_memory_after_the_first_two(
    pool: Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    fresh: list[int] = []
    real = Pool._allocate
    monkeypatch.setattr(Pool, "_allocate", lambda self, size: fresh.append(size) or real(self, size))
    x = currents()
    taken = []
    for _ in range(10):
        sequence(x)[0].sum().backward()
        x.grad = None
        taken.append(len(fresh))
    assert taken[0] > 0 and taken[1:] == [taken[1]] * 9


EXIT = """
import torch, snn_ipu as snn
lif = snn.Leaky(0.5)
x = torch.ones(4, 3, 40_000, requires_grad=True)
spk, mem = lif.sequence(x)
loop = [spk.numpy(force=True)]
loop.append(loop)
print("end")
"""


def test_exit__tensors_a_graph_and_a_cycle_alive__ends_quietly() -> None:
    done = subprocess.run([sys.executable, "-c", EXIT], capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "end\n", "")
