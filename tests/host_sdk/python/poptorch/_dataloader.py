"""`poptorch.DataLoader`: combined batches, and views of a ring of buffers in the asynchronous modes."""

from __future__ import annotations

import logging
from typing import Any, Iterable, Iterator, Sequence

import torch

from ._executor import flatten, rebuild
from ._impl import createPoptorchError
from .enums import DataLoaderMode, SharingStrategy
from .options import Options

logger = logging.getLogger("poptorch::python")


class DataLoader(torch.utils.data.DataLoader):
    """torch's loader with the batch size that one call of a model takes."""

    def __init__(
        self,
        options: Options,
        dataset: torch.utils.data.Dataset,
        batch_size: int = 1,
        shuffle: bool | None = None,
        num_workers: int = 0,
        drop_last: bool = True,
        persistent_workers: bool | None = None,
        auto_distributed_partitioning: bool = True,
        mode: DataLoaderMode = DataLoaderMode.Sync,
        async_options: dict[str, Any] | None = None,
        rebatched_worker_size: int | None = None,
        batch_sampler: torch.utils.data.Sampler | Iterable[Sequence] | None = None,
        **kwargs: Any,
    ) -> None:
        assert isinstance(options, Options)
        if batch_sampler is not None:
            raise createPoptorchError("the host model has no batch_sampler")
        options._freeze()
        self._combined_batch_size: int | None = None
        if batch_size is not None:
            groups = options.replication_factor // options.input_group_size
            self._combined_batch_size = (
                batch_size * options.device_iterations * groups * options.Training.gradient_accumulation
            )
        self._poptorch_options = options
        worker_size = self._combined_batch_size
        self._rebatched: int | None = None
        self._rebatched_drop_last = drop_last
        if mode == DataLoaderMode.AsyncRebatched:
            self._rebatched = self._combined_batch_size
            # The leftovers are put together again here, not dropped by each worker.
            drop_last = False
            if rebatched_worker_size is not None:
                assert rebatched_worker_size <= (self._combined_batch_size or 0), (
                    f"The rebatched_worker_size ({rebatched_worker_size}) must be <= to the combined batch size "
                    f"({self._combined_batch_size})"
                )
                worker_size = rebatched_worker_size
        if not drop_last and self._rebatched is None and hasattr(dataset, "__len__") and worker_size:
            rest = len(dataset) % worker_size
            if rest and mode != DataLoaderMode.Sync:
                raise AssertionError(
                    "The 'drop_last=False' option from the DataLoader only works if 'rebatched_size' is specified too."
                )
            if rest:
                logger.warning(
                    "The number of elements in the dataset (%d) is not divisible by the number of elements processed "
                    "per step (%d) and drop_last=False. The last tensor will have a batch size of %d.",
                    len(dataset),
                    worker_size,
                    rest,
                )
        super().__init__(
            dataset,
            batch_size=worker_size,
            shuffle=bool(shuffle),
            num_workers=num_workers,
            drop_last=drop_last,
            persistent_workers=num_workers > 0 if persistent_workers is None else persistent_workers,
            **kwargs,
        )
        self._accessor: AsynchronousDataAccessor | None = None
        if mode != DataLoaderMode.Sync:
            options_given = dict(async_options or {})
            assert "rebatched_size" not in options_given, (
                "You cannot use DataLoaderMode.AsyncRebatched and manually specify the rebatched_size in async_options"
            )
            self._accessor = AsynchronousDataAccessor(self, **options_given, rebatched_size=self._rebatched)

    @property
    def combinedBatchSize(self) -> int | None:
        return self._combined_batch_size

    @property
    def options(self) -> Options:
        return self._poptorch_options

    def terminate(self) -> None:
        pass

    def __len__(self) -> int:
        if self._rebatched:
            whole, rest = divmod(len(self.dataset), self._rebatched)  # type: ignore[arg-type]
            return whole + (1 if rest and not self._rebatched_drop_last else 0)
        return super().__len__()

    def batches(self) -> Iterator[Any]:
        """Batches of the combined size, put together from what the workers load."""
        loaded = super().__iter__()
        if not self._rebatched:
            yield from loaded
            return
        waiting: list[list[torch.Tensor]] = []
        structure: Any = None
        for structure in loaded:
            waiting.append(flatten(structure))
            joined = [torch.cat(parts) for parts in zip(*waiting)]
            while joined[0].shape[0] >= self._rebatched:
                yield rebuild(structure, iter([t[: self._rebatched] for t in joined]))
                joined = [t[self._rebatched :] for t in joined]
            waiting = [joined] if joined[0].shape[0] else []
        if waiting and not self._rebatched_drop_last:
            yield rebuild(structure, iter([torch.cat(parts) for parts in zip(*waiting)]))

    def __iter__(self) -> Any:
        return iter(self._accessor) if self._accessor is not None else self.batches()


class AsynchronousDataAccessor:
    """Batches in a ring of buffers that are used again: clone what you keep. Loads in the caller's thread here."""

    def __init__(
        self,
        dataset: Any,
        buffer_size: int = 3,
        miss_sleep_time_in_ms: float = 0.1,
        load_indefinitely: bool = True,
        early_preload: bool = False,
        sharing_strategy: SharingStrategy = SharingStrategy.ForkServer,
        rebatched_size: int | None = None,
    ) -> None:
        assert buffer_size > 0
        assert rebatched_size is None or rebatched_size > 1, "rebatched_size must be None or greater than 1"
        self._dataset = dataset
        self._buffer_size = buffer_size
        self.rebatched_size = rebatched_size
        self._ring: list[list[torch.Tensor]] = []

    def terminate(self) -> None:
        pass

    def __len__(self) -> int:
        return len(self._dataset)

    def __iter__(self) -> Iterator[Any]:
        batches = self._dataset.batches() if isinstance(self._dataset, DataLoader) else iter(self._dataset)
        for i, batch in enumerate(batches):
            tensors = flatten(batch)
            slot = i % self._buffer_size
            fits = slot < len(self._ring) and all(
                a.shape == b.shape and a.dtype == b.dtype for a, b in zip(self._ring[slot], tensors)
            )
            if fits:
                for buffer, tensor in zip(self._ring[slot], tensors):
                    buffer.copy_(tensor)
                yield rebuild(batch, iter(self._ring[slot]))
                continue
            copies = [t.clone() for t in tensors]
            if slot < len(self._ring):
                self._ring[slot] = copies
            else:
                self._ring.append(copies)
            yield rebuild(batch, iter(copies))
