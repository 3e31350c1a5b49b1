"""How a run shows itself: a bar with loss and images per second on a terminal, plain lines elsewhere."""

from __future__ import annotations

import time

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn, TimeRemainingColumn

_SECONDS_BETWEEN_LINES = 10.0


class Rate:
    """Images per second over the pieces given to `add`, less the first, in which kernels are built."""

    def __init__(self) -> None:
        self._warm = False
        self.restart()

    def restart(self) -> None:
        self.images, self.seconds = 0, 0.0

    def add(self, images: int, seconds: float) -> None:
        if self._warm:
            self.images += images
            self.seconds += seconds
        self._warm = True

    def per_second(self) -> float | None:
        return self.images / self.seconds if self.seconds else None


def rate_text(per_second: float | None) -> str:
    return "-" if per_second is None else f"{per_second:,.0f}"


class RunProgress:
    """Shows a run of `epochs` epochs of `steps` minibatches; `done` minibatches of it were done before."""

    def __init__(self, console: Console, epochs: int, steps: int, done: int) -> None:
        self._console = console
        self._epochs, self._steps = epochs, steps
        self._bar: Progress | None = None
        self._task = TaskID(0)
        self._last_line = time.monotonic()
        if console.is_terminal:
            self._bar = Progress(
                TextColumn("{task.description}"),
                BarColumn(),
                TextColumn("{task.completed}/{task.total}"),
                TextColumn("loss {task.fields[loss]}"),
                TextColumn("{task.fields[rate]} images/s"),
                TimeRemainingColumn(),
                console=console,
            )
            self._task = self._bar.add_task(
                f"epoch {min(done // steps + 1, epochs)}/{epochs}",
                total=epochs * steps,
                completed=done,
                loss="-",
                rate="-",
            )

    def __enter__(self) -> RunProgress:
        if self._bar is not None:
            self._bar.start()
        return self

    def __exit__(self, *error: object) -> None:
        if self._bar is not None:
            self._bar.stop()

    def step(self, epoch: int, step: int, loss: float, rate: Rate) -> None:
        """Minibatch number `step` (from 1) of epoch number `epoch` (from 1) is done."""
        if self._bar is not None:
            self._bar.update(
                self._task,
                completed=(epoch - 1) * self._steps + step,
                description=f"epoch {epoch}/{self._epochs}",
                loss=f"{loss:.4f}",
                rate=rate_text(rate.per_second()),
            )
        elif time.monotonic() - self._last_line > _SECONDS_BETWEEN_LINES:
            self.line(
                f"epoch {epoch}/{self._epochs}  step {step}/{self._steps}  loss {loss:.4f}  "
                f"{rate_text(rate.per_second())} images/s"
            )

    def line(self, text: str) -> None:
        self._last_line = time.monotonic()
        self._console.print(text, markup=False, highlight=False, soft_wrap=True)


class SweepProgress:
    """Shows a sweep of `total` points of work: a bar with time left on a terminal, a line for each everywhere."""

    def __init__(self, console: Console, total: float) -> None:
        self._console = console
        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            TimeElapsedColumn(),
            TextColumn("left:"),
            TimeRemainingColumn(),
            console=console,
            disable=not console.is_terminal,
        )
        self._task = self._bar.add_task("", total=total)

    def __enter__(self) -> SweepProgress:
        self._bar.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._bar.stop()

    def skip(self, amount: float) -> None:
        """So much was done in an earlier run and tells nothing about the time left."""
        task = self._bar.tasks[0]
        self._bar.update(self._task, total=(task.total or 0) - amount)

    def begin(self, text: str) -> None:
        self._bar.update(self._task, description=text)

    def done(self, text: str, amount: float = 1) -> None:
        self._bar.update(self._task, advance=amount)
        self._console.print(text, markup=False, highlight=False, soft_wrap=True)
