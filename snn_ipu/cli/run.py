"""One training run in its folder: epochs, metrics, checkpoints, and going on after an interruption."""

from __future__ import annotations

import math
import os
import signal
import statistics
import time
from dataclasses import dataclass
from types import FrameType
from typing import Any, Mapping

import numpy as np
import numpy.typing as npt
import torch
from rich.console import Console
from torch import Tensor, nn

from ..data import Batches, load, to_unit_range
from ..errors import RunError
from ..functional import accuracy_rate
from ..ipu import IpuTrainingModel
from ..neurons import SpikingNeuron
from ..training import inference_model, training_model
from ..unroll import unroll
from . import checkpoint, plots
from .checkpoint import Position
from .config import DTYPES, TrainConfig, build_loss, build_net, build_optimizer, population_options
from .metrics import MetricsLog, Record, read_metrics
from .progress import Rate, RunProgress, rate_text
from .run_folder import RunFolder, write_whole


@dataclass(frozen=True)
class Result:
    """What a run ends with; `images_per_second` is the median over epochs, None when none was long enough."""

    test_accuracy: float
    images_per_second: float | None
    epochs: int


class LossError(RunError):
    """The loss of a run is no finite number."""


class Interrupted(Exception):
    """A signal stopped the run at a checkpoint."""

    def __init__(self, number: int, out: str) -> None:
        self.signal = signal.Signals(number).name
        super().__init__(f"stopped by {self.signal}; continue with: snn-ipu train --out {out} --resume")
        self.number = number


def start(config: TrainConfig, out: str, console: Console, *, checkpoint_every: float = 60.0) -> Result:
    """Train from the beginning in folder `out`, with a checkpoint every so many seconds and after each epoch.

    Raises: RunError, DataError, UnsupportedError, BackendMissingError; Interrupted on SIGINT and SIGTERM.
    """
    with RunFolder(out, resume=False) as folder:
        return Run(config, folder, console, checkpoint_every).run(None)


def resume(out: str, changes: Mapping[str, Any], console: Console, *, checkpoint_every: float = 60.0) -> Result:
    """Go on with the run in folder `out`; `changes` as in `TrainConfig.continued_with`.

    Raises: CheckpointError when the checkpoint is unreadable or `changes` belong to another run; as `start`.
    """
    with RunFolder(out, resume=True) as folder:
        state = checkpoint.load(folder.checkpoint) if os.path.exists(folder.checkpoint) else None
        if state is None:
            with open(folder.config, encoding="utf-8") as file:
                saved = TrainConfig.from_json(file.read(), folder.config)
        else:
            saved = TrainConfig.from_json(state["config"], folder.checkpoint)
        config = saved.continued_with(changes)
        for name in ("device", "threads"):
            if getattr(config, name) != getattr(saved, name):
                console.print(f"{name} differs from the run so far: it goes on, but not to the same bits")
        return Run(config, folder, console, checkpoint_every).run(state)


class Run:
    """The objects of one run and its position."""

    def __init__(self, config: TrainConfig, folder: RunFolder, console: Console, checkpoint_every: float) -> None:
        self.config, self.folder, self.console = config, folder, console
        self.checkpoint_every = checkpoint_every
        torch.set_num_threads(config.threads)
        torch.backends.cudnn.deterministic = True
        self.data = load(config.data, config.data_root).first(config.limit)
        self.digest = checkpoint.digest(self.data)
        torch.manual_seed(config.seed)
        self.net = build_net(config, self.data)
        self.optimizer = build_optimizer(config, self.net)
        self.pooling = population_options(config, self.data)
        self.position = Position()
        self.rate = Rate()
        self.saved_at = time.monotonic()

    def run(self, state: dict[str, Any] | None) -> Result:
        keep = 0
        if state is not None:
            path = self.folder.checkpoint
            self.position = checkpoint.restore(state, path, self.net, self.optimizer, self.digest)
            keep = state["metrics_bytes"]
            self._write_config()
        num_steps, device = self.config.num_steps, self.config.device
        loss_fn = build_loss(self.config, self.data)
        self.train_step = training_model(self.net, loss_fn, self.optimizer, num_steps=num_steps, device=device)
        self.inference = inference_model(self.net, num_steps=num_steps, device=device)
        self.batches = self._batches()
        done = self.position.epoch * len(self.batches) + self.position.step
        with MetricsLog(self.folder.metrics, keep) as self.metrics, Signals() as self.signals, RunProgress(
            self.console, self.config.epochs, len(self.batches), done
        ) as self.progress:
            while self.position.epoch < self.config.epochs:
                self._train_epoch()
                self._end_epoch()
        return self._finish()

    def _batches(self) -> Batches:
        # an IPU program has one batch size: a partial batch is left out in training and filled up in testing
        self.fixed_batch = isinstance(self.train_step, IpuTrainingModel)
        images, size = self.data.train_images, self.config.batch_size
        batches = Batches(images, self.data.train_labels, size, seed=self.config.seed, drop_last=self.fixed_batch)
        if len(batches) == 0:
            raise RunError(
                f"--batch-size {size} on an IPU: expected at most the {len(images)} training images in one minibatch. "
                "Make it smaller."
            )
        return batches

    def _write_config(self) -> None:
        write_whole(self.folder.config, self.config.to_json().encode())

    def _train_epoch(self) -> None:
        at = self.position
        batches = self.batches.epoch(at.epoch, at.step)
        self.rate.restart()
        while at.step < len(self.batches):
            began = time.perf_counter()
            x, y = next(batches)
            out, loss = self.train_step(x.to(DTYPES[self.config.dtype]), y)
            value = float(loss)
            if not math.isfinite(value):
                raise LossError(
                    f"the loss became {value} in epoch {at.epoch + 1}, step {at.step + 1}. Start again with "
                    "a smaller --lr."
                )
            self.rate.add(len(y), time.perf_counter() - began)
            at.step += 1
            at.loss_sum += value * len(y)
            at.correct += self._correct(out, y)
            at.seen += len(y)
            self.metrics.write({"kind": "step", "epoch": at.epoch + 1, "step": at.step, "loss": value})
            self.progress.step(at.epoch + 1, at.step, value, self.rate)
            if not self.folder.holds_run():
                # not before: a run that fails in its first step leaves nothing behind to be continued
                self._write_config()
            if self.signals.received is not None:
                self._save()
                raise Interrupted(self.signals.received, self.folder.path)
            if time.monotonic() - self.saved_at >= self.checkpoint_every:
                self._save()

    def _end_epoch(self) -> None:
        at = self.position
        test_accuracy = self._test_accuracy()
        record: Record = {
            "kind": "epoch",
            "epoch": at.epoch + 1,
            "train_loss": at.loss_sum / at.seen,
            "train_accuracy": at.correct / at.seen,
            "test_accuracy": test_accuracy,
            "seconds": round(self.rate.seconds, 3),
            "images_per_second": self.rate.per_second(),
        }
        self.metrics.write(record)
        self.progress.line(
            f"epoch {at.epoch + 1}/{self.config.epochs}  loss {record['train_loss']:.4f}  training accuracy "
            f"{record['train_accuracy']:.2%}  test accuracy {test_accuracy:.2%}  "
            f"{rate_text(self.rate.per_second())} images/s"
        )
        self.position = Position(epoch=at.epoch + 1)
        self._save()

    def _test_accuracy(self) -> float:
        images, labels = self.data.test_images, self.data.test_labels
        correct = 0
        for x, y in Batches(images, labels, self.config.batch_size, shuffle=False):
            missing = self.config.batch_size - len(y) if self.fixed_batch else 0
            whole = torch.cat([x, x.new_zeros(missing, *x.shape[1:])]).to(DTYPES[self.config.dtype])
            correct += self._correct(self.inference(whole)[:, : len(y)], y)
        return correct / len(labels)

    def _correct(self, spk: Tensor, y: Tensor) -> int:
        return round(float(accuracy_rate(spk, y.to(spk.device), **self.pooling)) * len(y))

    def _save(self) -> None:
        self.train_step.sync()
        checkpoint.save(
            self.folder.checkpoint,
            self.net,
            self.optimizer,
            self.position,
            config=self.config.to_json(),
            data=self.digest,
            metrics_bytes=self.metrics.sync(),
        )
        self.saved_at = time.monotonic()

    def _finish(self) -> Result:
        records = read_metrics(self.folder.metrics)
        epochs = [record for record in records if record["kind"] == "epoch"]
        rates = [float(rate) for rate in (record["images_per_second"] for record in epochs) if rate is not None]
        title = self._title()
        write_whole(self.folder.curves, plots.curves(records, title))
        write_whole(self.folder.raster, self._raster(title))
        return Result(
            test_accuracy=float(epochs[-1]["test_accuracy"] or 0),
            images_per_second=statistics.median(rates) if rates else None,
            epochs=len(epochs),
        )

    def _title(self) -> str:
        config = self.config
        sizes = "-".join(str(size) for size in config.hidden or config.channels or ())
        return (
            f"{config.model} {sizes} on {config.data}, {config.num_steps} time steps, "
            f"batch {config.batch_size}, {config.optimizer}, seed {config.seed}"
        )

    def _raster(self, title: str) -> bytes:
        x = to_unit_range(self.data.test_images[:1])
        weight = next(self.net.parameters())
        layers = record_spikes(self.net, x.to(weight), self.config.num_steps)
        return plots.raster(x[0].numpy(), layers, self.data.class_names, int(self.data.test_labels[0]), title)


def record_spikes(net: nn.Sequential, x: Tensor, num_steps: int) -> list[tuple[str, npt.NDArray[np.bool_]]]:
    """Name and spikes [T, N] of each layer of neurons in answer to one image [1, C, H, W]."""
    ends = [number for number, layer in enumerate(net, 1) if isinstance(layer, SpikingNeuron)]
    names = [*(f"hidden layer {number}" for number in range(1, len(ends))), "output"]
    layers = []
    for name, end in zip(names, ends):
        with torch.no_grad():
            spk, _ = unroll(net[:end], x, num_steps)
        layers.append((name, spk.flatten(1).bool().cpu().numpy()))
    return layers


class Signals:
    """Notes the first SIGINT or SIGTERM, so that the run stops between two steps; the second acts at once."""

    def __enter__(self) -> Signals:
        self.received: int | None = None
        self._before = {number: signal.signal(number, self._note) for number in (signal.SIGINT, signal.SIGTERM)}
        return self

    def _note(self, number: int, frame: FrameType | None) -> None:
        self.received = number
        for each, handler in self._before.items():
            signal.signal(each, handler)

    def __exit__(self, *error: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
