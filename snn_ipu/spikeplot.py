"""Pictures of spikes with matplotlib (the `train` extra), which is imported when the first one is drawn."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Sequence

import numpy as np
import torch
from torch import Tensor

from .errors import ShapeError

if TYPE_CHECKING:
    from matplotlib.animation import ArtistAnimation
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.collections import PathCollection
    from matplotlib.figure import Figure

_BAR, _SCANNER, _TEXT = "#007ACC", "tab:orange", "#333F4B"


def animator(
    data: Tensor, fig: Figure, ax: Axes, num_steps: int = False, interval: int = 40, cmap: str = "plasma"
) -> ArtistAnimation:
    """Shows one sample frame by frame.

    Args:
        data: frames over time [T, H, W].
        fig, ax: where to draw.
        num_steps: number of frames; all if left out.
        interval: milliseconds per frame.
        cmap: matplotlib colour map.

    Returns: a matplotlib animation; keep it until it is saved or shown.
    Raises: ShapeError.
    Source: snnTorch.
    """
    if data.dim() != 3 or not data.numel():
        raise ShapeError(
            f"animator(data of shape {tuple(data.shape)}, ...) expects one sample over time, [T, H, W]."
            " Pick it from a batch with data[:, 0, 0]."
        )
    frames = data.detach().cpu().float().numpy()
    low, high = float(frames.min()), float(frames.max())
    ax.axis("off")
    shown = frames[: num_steps or None]
    images: list[list[Artist]] = [[ax.imshow(frame, cmap=cmap, vmin=low, vmax=high)] for frame in shown]
    return _animation(fig, images, interval)


def raster(data: Tensor, ax: Axes, **kwargs: Any) -> PathCollection:
    """Draws a point for every spike: its step to the right, its neuron upwards.

    Args:
        data: spikes of one sample [T], [T, N] or [T, ...], where neurons are numbered through.
        ax: where to draw.
        kwargs: passed to matplotlib's scatter, such as s and c.

    Returns: the points.
    Source: snnTorch.
    """
    step, neuron = torch.where(data.detach().cpu().reshape(data.shape[0], -1) != 0)
    return ax.scatter(step.numpy(), neuron.numpy(), **kwargs)


def spike_count(
    data: Tensor,
    fig: Figure,
    ax: Axes,
    labels: Sequence[str],
    num_steps: int = False,
    animate: bool = False,
    interpolate: int = 1,
    gridshader: bool = True,
    interval: int = 25,
    time_step: float = False,
) -> ArtistAnimation | None:
    """Draws a bar per output with its number of spikes.

    Args:
        data: spikes of one sample [T, N].
        fig, ax: where to draw.
        labels: names of the N outputs.
        num_steps: number of steps shown; all if left out.
        animate: count step by step under a moving time bar; a frame shows the spikes up to and including its step.
        interpolate: frames per step.
        gridshader: shade every other column of the background.
        interval: milliseconds per frame.
        time_step: seconds per step, for an axis in seconds.

    Returns: a matplotlib animation with animate, else None.
    Raises: ShapeError.
    Source: snnTorch.
    """
    if data.dim() != 2 or len(labels) != data.shape[1]:
        raise ShapeError(
            f"spike_count(data of shape {tuple(data.shape)}, ..., {len(labels)} labels) expects one sample [T, N]"
            " and a label for each of the N outputs."
        )
    num_steps = num_steps or data.shape[0]
    counts = data.detach().cpu().float().cumsum(0).numpy()  # [T, N]
    _style(ax, labels, num_steps, time_step)
    if gridshader:
        _shade(ax)
    if not animate:
        _bars(ax, counts[:num_steps][-1])
        return None
    frames = []
    for i in range(num_steps * interpolate):
        step = min(i // interpolate, data.shape[0] - 1)
        scanner = ax.axvline(i / interpolate, color=_SCANNER, linewidth=3)
        frames.append([*_bars(ax, counts[step]), scanner])
    return _animation(fig, frames, interval)


def traces(
    data: Tensor,
    spk: Tensor | None = None,
    dim: tuple[int, int] = (3, 3),
    spk_height: float = 5,
    titles: Sequence[str] | None = None,
) -> None:
    """Draws the traces of single neurons, such as membranes, in a grid on the current figure.

    Args:
        data: traces of one sample [T, N]; the first dim[0] · dim[1] neurons are drawn.
        spk: their spikes [T, N], drawn as peaks on the traces.
        dim: rows and columns of the grid.
        spk_height: height of the peaks.
        titles: titles of the panels.

    Raises: ShapeError.
    Source: snnTorch, after F. Zenke.
    """
    import matplotlib.pyplot as plt

    if data.dim() != 2 or (spk is not None and spk.shape != data.shape):
        raise ShapeError(
            f"traces(data of shape {tuple(data.shape)}, spk of shape {None if spk is None else tuple(spk.shape)})"
            " expects traces [T, N] of one sample, and spikes of the same shape."
        )
    values = (data if spk is None else data + spk_height * spk).detach().cpu().float().numpy()
    shared = None
    for i in range(min(math.prod(dim), data.shape[1])):
        ax = plt.subplot(*dim, i + 1, sharey=shared)
        shared = shared or ax
        if titles is not None and i < len(titles):
            ax.set_title(titles[i])
        ax.plot(values[:, i])
        ax.axis("off")


def _animation(fig: Figure, frames: Sequence[Sequence[Artist]], interval: int) -> ArtistAnimation:
    from matplotlib.animation import ArtistAnimation

    return ArtistAnimation(fig, frames, interval=interval)


def _bars(ax: Axes, counts: np.ndarray[Any, Any]) -> list[Artist]:
    rows = range(1, len(counts) + 1)
    bars = ax.hlines(rows, 0, counts, color=_BAR, alpha=0.5, linewidth=8)
    return [bars, *ax.plot(counts, rows, "o", markersize=8, color=_BAR, alpha=0.6)]


def _style(ax: Axes, labels: Sequence[str], num_steps: int, time_step: float) -> None:
    font: dict[str, Any] = {"fontsize": 15, "fontweight": "black", "color": _TEXT}
    ax.set_xlim(0, num_steps)
    ax.set_xlabel("Time [s]" if time_step else "Time Step", **font)
    ax.set_ylabel("Labels", **font)
    ax.set_yticks(range(1, len(labels) + 1), labels)
    ax.tick_params(labelsize=12, colors=_TEXT)
    if time_step:
        ticks = [tick for tick in ax.get_xticks() if 0 <= tick <= num_steps]
        ax.set_xticks(ticks, [f"{tick * time_step:g}" for tick in ticks])
    for side in ("top", "right"):
        ax.spines[side].set_visible(False)
    for side in ("bottom", "left"):
        ax.spines[side].set_color(_TEXT)
        ax.spines[side].set_linewidth(0.8)
    ax.spines["bottom"].set_position(("axes", -0.04))


def _shade(ax: Axes) -> None:
    low, high = ax.get_xlim()
    edges = [low, *(tick for tick in ax.get_xticks() if low < tick < high), high]
    for start, end in zip(edges[1::2], edges[2::2]):
        ax.axvspan(start, end, zorder=0, facecolor="lightgrey", alpha=0.7)
