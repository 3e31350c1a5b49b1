"""The pictures of a run, drawn without a display: training curves and a spike raster."""

from __future__ import annotations

from typing import Sequence

import numpy as np
import numpy.typing as npt
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from ..figures import BLUE, DPI, GREY, ORANGE, png, quiet
from .metrics import Record

_SMOOTHING = 25


def curves(records: Sequence[Record], title: str) -> bytes:
    """PNG of loss by training step and of accuracy by epoch, from the records of a metrics file."""
    steps = [record for record in records if record["kind"] == "step"]
    epochs = [record for record in records if record["kind"] == "epoch"]
    loss = np.array([record["loss"] for record in steps], float)
    # the last epoch may still run: the longest one tells how many steps an epoch has
    length = max((int(record["step"] or 0) for record in steps), default=1)
    at = np.array([int(record["epoch"] or 0) - 1 + int(record["step"] or 0) / length for record in steps])

    figure = Figure(figsize=(10, 4), dpi=DPI, layout="constrained")
    left, right = figure.subplots(1, 2)
    left.plot(at, loss, color=GREY, linewidth=0.8, label="minibatch")
    width = min(_SMOOTHING, len(loss))
    if width > 1:
        mean = np.convolve(loss, np.ones(width) / width, mode="valid")
        first = width // 2
        left.plot(
            at[first : first + len(mean)],
            mean,
            color=BLUE,
            linewidth=1.8,
            label=f"mean of {width} minibatches",
        )
    left.set(xlabel="epoch", ylabel="training loss", title="Loss")
    left.legend(frameon=False)

    number = [record["epoch"] for record in epochs]
    for name, text, colour, style in (
        ("train_accuracy", "training, mean over the epoch", ORANGE, "s--"),
        ("test_accuracy", "test, after the epoch", BLUE, "o-"),
    ):
        values = [100 * float(record[name] or 0) for record in epochs]
        right.plot(number, values, style, color=colour, label=text)
    if epochs:
        last = 100 * float(epochs[-1]["test_accuracy"] or 0)
        place = (float(number[-1] or 0), last)
        right.annotate(f"{last:.1f} %", place, (9, 0), textcoords="offset points", va="center", color=BLUE)
    right.set(xlabel="epoch", ylabel="accuracy (%)", title="Accuracy")
    right.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
    right.set_xlim(0.5, 1.2 * max(len(epochs), 1) + 0.5)
    right.margins(y=0.15)
    right.legend(frameon=False, loc="upper center", bbox_to_anchor=(0.5, -0.13), ncol=2)
    for axes in (left, right):
        quiet(axes)
    figure.suptitle(title, fontsize=10)
    return png(figure)


def raster(
    image: npt.NDArray[np.float32],
    layers: Sequence[tuple[str, npt.NDArray[np.bool_]]],
    class_names: Sequence[str],
    label: int,
    title: str,
) -> bytes:
    """PNG of one image and the spikes of every layer in answer to it.

    Args: image [C, H, W] in [0, 1]; layers, name and spikes [T, N] of each, the output last, its N neurons in
    equal blocks, one for each class; label, the image's class.
    """
    num_steps, outputs = layers[-1][1].shape
    block = outputs // len(class_names)
    counts = layers[-1][1].sum(0).reshape(len(class_names), block).sum(1)
    answer = int(counts.argmax())

    figure = Figure(figsize=(11, 2.4 + 1.9 * len(layers)), dpi=DPI, layout="constrained")
    left, right = np.asarray(figure.subfigures(1, 2, width_ratios=(1, 2.4)))
    picture, bars = left.subplots(2, 1)
    picture.imshow(image.transpose(1, 2, 0).squeeze(), cmap="gray", vmin=0, vmax=1)
    picture.set_axis_off()
    picture.set_title(f"class: {class_names[label]}\nanswer: {class_names[answer]}", fontsize=10)
    classes = np.arange(len(class_names))
    bars.barh(classes, counts, color=[ORANGE if c == answer else GREY for c in classes])
    bars.set(xlabel=f"output spikes in {num_steps} steps", yticks=classes, yticklabels=class_names)
    bars.invert_yaxis()
    bars.xaxis.get_major_locator().set_params(integer=True)
    bars.tick_params(axis="y", labelsize=8)
    quiet(bars)

    panels = np.atleast_1d(right.subplots(len(layers), 1, sharex=True))
    for axes, (name, spk) in zip(panels, layers):
        step, neuron = np.nonzero(spk)
        size = float(np.clip(3000 / max(spk.shape[1], 1), 1, 30))
        axes.scatter(step, neuron, s=size, color=BLUE, marker="|" if size > 4 else ".", linewidths=1)
        axes.set(ylabel="neuron", xlim=(-0.5, num_steps - 0.5), ylim=(-0.5, spk.shape[1] - 0.5))
        axes.set_title(f"{name}: {spk.shape[1]:,} neurons, {spk.mean():.1%} of them spike in a step", fontsize=10)
        axes.invert_yaxis()
        quiet(axes)
    output = panels[-1]
    output.set(xlabel="time step", yticks=(classes + 0.5) * block - 0.5, yticklabels=class_names)
    output.set_ylabel("class")
    output.tick_params(axis="y", labelsize=8)
    output.xaxis.get_major_locator().set_params(integer=True)
    for edge in classes[1:] * block - 0.5 if block > 1 else ():
        output.axhline(edge, color=GREY, linewidth=0.5)
    figure.suptitle(title, fontsize=10)
    return png(figure)
