"""The charts of a report as PNG bytes."""

from __future__ import annotations

import math
import textwrap
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Sequence

from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, MaxNLocator, NullLocator

from ...figures import BLUE, COLOURS, GREY, ORANGE, png, quiet
from . import paper
from .population import Study
from .throughput import (
    NUMERIC,
    Line,
    Point,
    Throughput,
    View,
    geometric_mean,
    relative,
    share_points,
    value_text,
    views,
)

VARIABLE = {
    "batch": "minibatch size (images)",
    "width": "neurons of a hidden layer",
    "depth": "channels of the convolutions",
    "steps": "time steps per image",
    "neuron": "neuron",
    "precision": "precision",
    "twin": "SNN or non-spiking twin",
}
_DENSE_DEPTH = "neurons of the hidden layers"

# narrow and fine: readable on a telephone, sharp on a screen
_WIDTH, _DPI = 5.4, 195
_MARKERS = "osD^vP*X"
_STYLES = ("-", "--", "-.", ":")
_HATCHES = ("", "///", "...", "\\\\\\", "xxx", "---", "ooo", "+++")
_ROW = 0.24
_WHITE = {"boxstyle": "square,pad=0.1", "facecolor": "white", "edgecolor": "none"}


@dataclass(frozen=True)
class Picture:
    """A chart: its file's name, PNG bytes, what it shows in words (for those who do not see it), and its title."""

    name: str
    png: bytes
    alt: str
    title: str


@dataclass(frozen=True)
class _Bar:
    """One bar of a group: length, text at its end, distances to its quartiles."""

    length: float
    text: str
    error: tuple[float, float] = (0.0, 0.0)


@dataclass(frozen=True)
class _Look:
    colour: str
    hatch: str
    marker: str


def number(value: float) -> str:
    """Three significant digits or, from 1000 on, all before the point; never with an exponent."""
    return f"{value:,.0f}" if abs(value) >= 1000 else format(Decimal(f"{value:.3g}"), "f")


def variable(view: View) -> str:
    """The name of a view's variable with its unit."""
    return _DENSE_DEPTH if view.sweep == "depth" and view.network == "dsnn" else VARIABLE[view.sweep]


def sweep_pictures(data: Throughput) -> dict[tuple[str, str], list[Picture]]:
    """Charts of each sweep and network that has a successful point."""
    found = {}
    for view in views(data):
        lines = [line for line in view.lines if any(point.ok for point in line.points.values())]
        if lines:
            shown = View(view.sweep, view.network, view.values, lines)
            pictures = [_throughput(shown, data) if view.sweep in NUMERIC else _bars(shown, data)]
            if view.sweep == "twin":
                pictures.append(_tflops(shown))
            found[view.sweep, view.network] = pictures
    return found


def _look(line: Line, data: Throughput) -> dict[str, Any]:
    place = data.series.index(line.series)
    return {
        "color": COLOURS[place % len(COLOURS)],
        "marker": _MARKERS[(place + 3 * line.variant) % len(_MARKERS)],
        "linestyle": _STYLES[(place + line.variant) % len(_STYLES)],
    }


def _throughput(view: View, data: Throughput) -> Picture:
    figure = Figure(figsize=(_WIDTH, 4.2 + 0.2 * (len(view.lines) // 2)), dpi=_DPI, layout="constrained")
    axes = figure.subplots()
    ordinal = view.sweep == "depth"
    place = {value: i if ordinal else value for i, value in enumerate(view.values)}
    marks = 0.03
    for line in view.lines:
        look = _look(line, data)
        done = [(value, line.points[value]) for value in view.values if value in line.points]
        ok = [(place[value], point) for value, point in done if point.ok]
        axes.errorbar(
            [x for x, _ in ok],
            [point.speed for _, point in ok],
            yerr=list(zip(*(_quartiles(point) for _, point in ok))),
            label=line.label,
            capsize=3,
            linewidth=1.6,
            markersize=6,
            **look,
        )
        lost = [place[value] for value, point in done if not point.ok]
        if lost:
            axes.plot(
                lost,
                [marks] * len(lost),
                transform=axes.get_xaxis_transform(),
                marker="x",
                markersize=7,
                markeredgewidth=2,
                linestyle="none",
                color=look["color"],
            )
            marks += 0.05
    points = [point for line in view.lines for point in line.points.values()]
    failed = any(not point.ok for point in points)
    _speed_axis(axes, [point for point in points if point.ok], marks if failed else 0.0)
    numeric = [float(place[value]) for value in view.values]
    if not ordinal and len(numeric) > 1 and max(numeric) >= 8 * min(numeric):
        axes.set_xscale("log", base=2)
    axes.xaxis.set_major_locator(FixedLocator(numeric))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set_xticklabels([value_text(view.sweep, value) for value in view.values])
    axes.set(xlabel=variable(view), ylabel="training throughput (images/s)")
    title = f"{view.network}: throughput by {variable(view)}"
    handles, labels = axes.get_legend_handles_labels()
    if failed:
        handles.append(Line2D([], [], color=GREY, marker="x", markeredgewidth=2, linestyle="none"))
        labels.append("point that failed (see table)")
    _legend(axes, handles, labels, -0.16)
    quiet(axes)
    return Picture(f"{view.sweep}-{view.network}.png", png(figure), f"{title}. {_range_text(view)}", title)


def _speed_axis(axes: Axes, points: Sequence[Point], below: float) -> None:
    """Logarithmic where speeds differ much; `below` is the part of the axis kept free under the lowest point."""
    speeds = [point.speed for point in points]
    if max(speeds) > 8 * min(speeds):
        axes.set_yscale("log")
        narrow = max(speeds) < 300 * min(speeds)
        axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5) if narrow else (1,)))
        axes.yaxis.set_minor_locator(NullLocator())
        low, high = axes.get_ylim()
        axes.set_ylim(high * (low / high) ** (1 / (1 - below)), high)
    else:
        axes.set_ylim(0, 1.1 * max(float(point.record["images_per_second_high"]) for point in points))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda y, _: number(y)))


def _quartiles(point: Point) -> tuple[float, float]:
    low, high = float(point.record["images_per_second_low"]), float(point.record["images_per_second_high"])
    return max(point.speed - low, 0.0), max(high - point.speed, 0.0)


def _range_text(view: View) -> str:
    texts = []
    for line in view.lines:
        speeds = [point.speed for point in line.points.values() if point.ok]
        texts.append(f"{line.label}: {number(min(speeds))} to {number(max(speeds))} images/s")
    return "; ".join(texts) + "."


def _legend(axes: Axes, handles: Sequence[Any], labels: Sequence[str], below: float) -> None:
    columns = 1 if max(map(len, labels)) > 32 else 2
    axes.legend(
        handles, labels, frameon=False, loc="upper center", bbox_to_anchor=(0.5, below), ncol=columns, fontsize=9
    )


def _wrapped(labels: Sequence[str]) -> list[str]:
    return [textwrap.fill(label, 24) for label in labels]


def _bars(view: View, data: Throughput) -> Picture:
    groups = [value_text(view.sweep, value) for value in view.values]
    bars = []
    for line in view.lines:
        row: list[_Bar | None] = []
        for value in view.values:
            point = line.points.get(value)
            if point is None:
                row.append(None)
            elif point.ok:
                row.append(_Bar(point.speed, number(point.speed), _quartiles(point)))
            else:
                row.append(_Bar(0.0, point.record["status"]))
        bars.append(row)
    looks = [_bar_look(data.series.index(line.series), line.variant) for line in view.lines]
    figure = _grouped(groups, [line.label for line in view.lines], bars, looks, "training throughput (images/s)")
    title = f"{view.network}: throughput by {variable(view)}"
    return Picture(f"{view.sweep}-{view.network}.png", figure, f"{title}. {_range_text(view)}", title)


def _bar_look(place: int, variant: int) -> _Look:
    other = place + 3 * variant
    return _Look(COLOURS[place % len(COLOURS)], _HATCHES[other % len(_HATCHES)], _MARKERS[other % len(_MARKERS)])


def _tflops(view: View) -> Picture:
    bars = []
    for value in view.values:
        row: list[_Bar | None] = []
        for line in view.lines:
            point = line.points.get(value)
            if point is None:
                row.append(None)
            elif point.ok:
                row.append(_Bar(point.record["tflops"], number(point.record["tflops"])))
            else:
                row.append(_Bar(0.0, point.record["status"]))
        bars.append(row)
    kinds = [value_text("twin", value) for value in view.values]
    looks = [_Look(BLUE, "", "o"), _Look(ORANGE, "///", "s")]
    labels = [line.label for line in view.lines]
    figure = _grouped(labels, kinds, bars, looks, "synapse TFLOPS, forward and backward")
    title = f"{view.network}: TFLOPS of the SNN and its non-spiking twin"
    numbers = "; ".join(
        f"{label}: {', '.join(f'{kind} {bar.text}' for kind, bar in zip(kinds, column) if bar)}"
        for label, column in zip(labels, zip(*bars))
    )
    return Picture(f"tflops-{view.network}.png", figure, f"{title}. {numbers}.", title)


def _grouped(
    groups: Sequence[str],
    labels: Sequence[str],
    bars: Sequence[Sequence[_Bar | None]],
    looks: Sequence[_Look],
    unit: str,
) -> bytes:
    """Bars in groups; markers on a logarithmic axis where the shortest bars could not be seen."""
    count = len(labels)
    legend_height = 0.2 * math.ceil(count / 2)
    height = max(_ROW * (count + 0.8) * len(groups), 1.0)
    figure = Figure(figsize=(_WIDTH, height + 0.9 + legend_height), dpi=_DPI, layout="constrained")
    axes = figure.subplots()
    lengths = [bar.length for row in bars for bar in row if bar and bar.length > 0]
    low, high = min(lengths), max(bar.length + bar.error[1] for row in bars for bar in row if bar)
    wide = high > 30 * low
    start = low / (high / low) ** 0.05 if wide else 0.0
    axes.set_xlim(start, high * (high / low) ** 0.2 if wide else 1.16 * high)
    if wide:
        axes.set_xscale("log")
        axes.xaxis.set_major_locator(LogLocator(subs=(1,), numticks=6))
        axes.xaxis.set_minor_locator(NullLocator())
    else:
        axes.xaxis.set_major_locator(MaxNLocator(5))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda x, _: number(x)))
    handles: list[Any] = []
    for row, (look, members) in enumerate(zip(looks, bars)):
        for group, bar in enumerate(members):
            if bar is not None:
                at = group * (count + 0.8) + row
                _bar(axes, at, bar, look, wide)
                end = max(bar.length + bar.error[1], start)
                axes.annotate(
                    bar.text,
                    (end, at),
                    (6, 0),
                    textcoords="offset points",
                    va="center",
                    fontsize=8.5,
                    color="black" if bar.length > 0 else look.colour,
                )
        if wide:
            handles.append(Line2D([], [], color=look.colour, marker=look.marker, markersize=7, linestyle="none"))
        else:
            handles.append(Patch(facecolor=look.colour, hatch=look.hatch, edgecolor="white", linewidth=0))
    for group in range(1, len(groups)):
        axes.axhline(group * (count + 0.8) - 0.9, color="#dddddd", linewidth=0.5)
    axes.set_yticks([group * (count + 0.8) + (count - 1) / 2 for group in range(len(groups))])
    axes.set_yticklabels(_wrapped(groups))
    axes.set_ylim(len(groups) * (count + 0.8) - 0.8 - 0.4, -0.6)
    axes.set_xlabel(unit)
    quiet(axes)
    axes.grid(False, axis="y")
    axes.tick_params(axis="y", length=0)
    _legend(axes, handles, labels, -0.55 / height)
    return png(figure)


def _bar(axes: Axes, at: float, bar: _Bar, look: _Look, wide: bool) -> None:
    error = [[bar.error[0]], [bar.error[1]]] if any(bar.error) else None
    if not wide:
        axes.barh(
            at,
            bar.length,
            height=0.9,
            xerr=error,
            facecolor=look.colour,
            hatch=look.hatch,
            edgecolor="white",
            linewidth=0,
            capsize=2,
        )
    elif bar.length > 0:
        axes.hlines(at, axes.get_xlim()[0], bar.length, color=look.colour, linewidth=1, alpha=0.4)
        axes.errorbar(bar.length, at, xerr=error, color=look.colour, marker=look.marker, markersize=7, capsize=2)


def relative_picture(data: Throughput) -> Picture | None:
    """Speed of every series relative to the baseline, with the paper's ratios of other devices as lines."""
    networks = [network for network in data.networks if relative(data, network)]
    if not networks:
        return None
    rows = {network: relative(data, network) for network in networks}
    heights = [0.32 * len(rows[network]) + 0.35 for network in networks]
    below = 0.3 * len(paper.SPEED_RATIOS) + 0.2
    figure = Figure(figsize=(_WIDTH, sum(heights) + below + 1.0), dpi=_DPI, layout="constrained")
    panels = figure.subplots(len(networks) + 1, 1, sharex=True, gridspec_kw={"height_ratios": [*heights, below]})
    for axes, network in zip(panels, networks):
        for row, (series, ratios) in enumerate(rows[network].items()):
            place = data.series.index(series)
            colour, marker = COLOURS[place % len(COLOURS)], _MARKERS[place % len(_MARKERS)]
            mean = geometric_mean(ratios)
            axes.plot(ratios, [row] * len(ratios), "|", color=colour, markersize=11, alpha=0.7)
            axes.plot([mean], [row], marker, color=colour, markersize=8, markeredgecolor="white")
            axes.annotate(
                f"{number(mean)}×",
                (max(ratios), row),
                (7, 0),
                textcoords="offset points",
                va="center",
                fontsize=9,
                bbox=_WHITE,
            )
        axes.set_yticks(range(len(rows[network])))
        axes.set_yticklabels(_wrapped(list(rows[network])))
        axes.set_ylim(len(rows[network]) - 0.4, -0.6)
        axes.set_title(network, fontsize=10, loc="left")
    reference = panels[-1]
    for row, published in enumerate(paper.SPEED_RATIOS):
        reference.annotate(
            published.label,
            (published.ratio, row),
            (5, 0),
            textcoords="offset points",
            va="center",
            fontsize=9,
            bbox=_WHITE,
        )
        for axes in panels:
            axes.axvline(published.ratio, color=GREY, linestyle=_STYLES[1 + row % 3], linewidth=1)
    reference.set_ylim(len(paper.SPEED_RATIOS) - 0.4, -0.6)
    reference.set_yticks([])
    reference.set_title("published, other devices, not measured here", fontsize=10, loc="left")
    shown = [ratio for network in networks for ratios in rows[network].values() for ratio in ratios]
    edges = [*shown, 1.0, *(published.ratio for published in paper.SPEED_RATIOS)]
    reference.set_xscale("log")
    # room on the right for the labels
    span = max(max(edges) / min(edges), 10)
    reference.set_xlim(min(edges) / span**0.06, min(edges) * span**1.5)
    reference.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5) if span < 300 else (1,), numticks=6))
    reference.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{number(x)}×"))
    reference.xaxis.set_minor_locator(NullLocator())
    reference.set_xlabel(f"speed relative to {data.baseline} at equal settings")
    for axes in panels:
        quiet(axes)
        axes.grid(False, axis="y")
        axes.tick_params(axis="y", length=0)
        axes.axvline(1, color="black", linewidth=1)
    numbers = "; ".join(
        f"{network}, {series}: geometric mean {number(geometric_mean(ratios))}"
        for network in networks
        for series, ratios in rows[network].items()
    )
    title = f"Speed relative to {data.baseline}"
    published_text = ", ".join(published.label for published in paper.SPEED_RATIOS)
    return Picture(
        "relative-speed.png", png(figure), f"{title}. {numbers}. Lines for reference: {published_text}.", title
    )


def shares_picture(data: Throughput) -> Picture | None:
    """Where the time of a minibatch goes: neurons, synapses and the rest."""
    points = share_points(data)
    if not points:
        return None
    figure = Figure(figsize=(_WIDTH, 0.42 * len(points) + 1.3), dpi=_DPI, layout="constrained")
    axes = figure.subplots()
    texts, end = [], 100.0
    for row, (label, point) in enumerate(points):
        shares = point.record["shares"]
        # parts that take longer alone than together leave a rest below zero: no bar, and the others pass 100 %
        whole = sum(shares.values())
        left = 0.0
        for name, (colour, ink, hatch) in _PARTS.items():
            percent = 100 * max(shares[name], 0.0) / whole
            axes.barh(row, percent, left=left, height=0.72, color=colour, hatch=hatch, edgecolor="white", linewidth=0)
            if percent > 7:
                text = f"{percent:.0f} %"
                axes.text(
                    left + percent / 2,
                    row,
                    f"{text}, {seconds_text(shares[name])}" if percent > 24 else text,
                    ha="center",
                    va="center",
                    fontsize=8,
                    color=ink,
                    bbox={"boxstyle": "square,pad=0.15", "facecolor": colour, "edgecolor": "none"},
                )
            left += percent
        end = max(end, left)
        parts = ", ".join(f"{name} {100 * shares[name] / whole:.0f} %" for name in _PARTS)
        texts.append(f"{label}: {parts}")
    axes.set_yticks(range(len(points)))
    axes.set_yticklabels(_wrapped([label for label, _ in points]))
    axes.set_ylim(len(points) - 0.4, -0.6)
    axes.set(xlim=(0, end), xlabel="share of the time of a minibatch (%)")
    handles = [
        Patch(facecolor=colour, hatch=hatch, edgecolor="white", linewidth=0) for colour, _, hatch in _PARTS.values()
    ]
    axes.legend(handles, list(_PARTS), frameon=False, loc="lower center", bbox_to_anchor=(0.5, 1.0), ncol=3, fontsize=9)
    quiet(axes)
    axes.grid(False, axis="y")
    axes.tick_params(axis="y", length=0)
    title = "Time of a minibatch in neurons, synapses and the rest"
    return Picture("shares.png", png(figure), f"{title}. {'; '.join(texts)}.", title)


_PARTS = {
    "neurons": (ORANGE, "black", "///"),
    "synapses": (BLUE, "white", ""),
    "rest": ("#cccccc", "black", "..."),
}


def seconds_text(seconds: float) -> str:
    """Seconds, or milliseconds where that reads better."""
    return f"{number(1000 * seconds)} ms" if abs(seconds) < 1 else f"{number(seconds)} s"


def population_pictures(study: Study, suffix: str) -> list[Picture]:
    """Accuracy against time per epoch, and accuracy against time steps; none without a training that ended well."""
    pictures = []
    if any(cell.seconds for cell in study.done):
        pictures.append(_accuracy_by_time(study, suffix))
    if study.done:
        pictures.append(_accuracy_by_steps(study, suffix))
    return pictures


def _colours(study: Study) -> dict[int, Any]:
    populations = sorted({cell.population for cell in study.done})
    # the bright end of the map is too pale on white
    return {p: colormaps["viridis"](0.88 * i / max(len(populations) - 1, 1)) for i, p in enumerate(populations)}


def _error_text(study: Study) -> str:
    return f"error bars: standard deviation over {len(study.seeds)} seeds" if len(study.seeds) > 1 else "one seed"


def _accuracy_by_time(study: Study, suffix: str) -> Picture:
    cells = [cell for cell in study.done if cell.seconds]
    colours, populations = _colours(study), sorted({cell.population for cell in cells})
    steps = sorted({cell.num_steps for cell in cells})
    figure = Figure(figsize=(_WIDTH, 5.8), dpi=_DPI, layout="constrained")
    axes = figure.subplots()
    for population in populations:
        mine = [cell for cell in cells if cell.population == population]
        axes.plot(
            [cell.time for cell in mine],
            [100 * cell.accuracy for cell in mine],
            color=colours[population],
            linewidth=0.8,
            alpha=0.5,
        )
    for cell in cells:
        axes.errorbar(
            cell.time,
            100 * cell.accuracy,
            xerr=_known(cell.time_deviation),
            yerr=_known(100 * cell.accuracy_deviation),
            color=colours[cell.population],
            marker=_MARKERS[steps.index(cell.num_steps) % len(_MARKERS)],
            markersize=9,
            markeredgecolor="white",
            markeredgewidth=0.4,
            capsize=2,
            linestyle="none",
        )
    times = [cell.time for cell in cells]
    if max(times) > 8 * min(times):
        axes.set_xscale("log")
        narrow = max(times) < 300 * min(times)
        axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5) if narrow else (1,)))
        axes.xaxis.set_minor_locator(NullLocator())
    else:
        axes.set_xlim(left=0)
    axes.xaxis.set_major_formatter(FuncFormatter(lambda x, _: number(x)))
    axes.set(xlabel="training time per epoch (s)", ylabel="test accuracy (%)")
    axes.margins(0.08)
    colour_keys = [Line2D([], [], color=colours[p], marker="s", linestyle="none", markersize=8) for p in populations]
    step_keys = [
        Line2D([], [], color="black", marker=_MARKERS[i % len(_MARKERS)], linestyle="none", markersize=7)
        for i in range(len(steps))
    ]
    for keys, labels, name, below in (
        (colour_keys, [f"{p:,}" for p in populations], "neurons per class", -0.14),
        (step_keys, list(map(str, steps)), "time steps", -0.29),
    ):
        legend = axes.legend(
            keys,
            labels,
            title=name,
            frameon=False,
            loc="upper center",
            bbox_to_anchor=(0.5, below),
            ncol=min(len(labels), 7),
            fontsize=9,
            title_fontsize=9,
        )
        # a second legend replaces the first unless that is an artist of its own, which would be clipped
        axes.add_artist(legend)
        legend.set_clip_on(False)
    axes.set_title(_error_text(study), fontsize=9, loc="left")
    quiet(axes)
    title = f"{study.title}: accuracy against time per epoch"
    texts = "; ".join(f"{cell.name}: {100 * cell.accuracy:.1f} %, {number(cell.time)} s" for cell in cells)
    return Picture(f"accuracy-time{suffix}.png", png(figure), f"{title}. {texts}.", title)


def _accuracy_by_steps(study: Study, suffix: str) -> Picture:
    cells, colours = study.done, _colours(study)
    populations, steps = list(colours), sorted({cell.num_steps for cell in cells})
    figure = Figure(figsize=(_WIDTH, 4.4), dpi=_DPI, layout="constrained")
    axes = figure.subplots()
    for i, population in enumerate(populations):
        mine = [cell for cell in cells if cell.population == population]
        axes.errorbar(
            [cell.num_steps for cell in mine],
            [100 * cell.accuracy for cell in mine],
            yerr=[_known(100 * cell.accuracy_deviation) or 0.0 for cell in mine],
            color=colours[population],
            marker=_MARKERS[i % len(_MARKERS)],
            linestyle=_STYLES[i % len(_STYLES)],
            label=f"{population:,}",
            capsize=3,
            linewidth=1.6,
        )
    if max(steps) >= 8 * min(steps):
        axes.set_xscale("log", base=2)
    axes.xaxis.set_major_locator(FixedLocator(steps))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:g}"))
    axes.set(xlabel="time steps per image", ylabel="test accuracy (%)")
    axes.set_title(_error_text(study), fontsize=9, loc="left")
    axes.legend(
        title="neurons per class",
        frameon=False,
        loc="upper center",
        bbox_to_anchor=(0.5, -0.16),
        ncol=min(len(populations), 5),
        fontsize=9,
        title_fontsize=9,
    )
    quiet(axes)
    title = f"{study.title}: accuracy by number of time steps"
    texts = "; ".join(
        f"population {p:,}: "
        + ", ".join(f"{100 * cell.accuracy:.1f} % at T = {cell.num_steps}" for cell in cells if cell.population == p)
        for p in populations
    )
    return Picture(f"accuracy-steps{suffix}.png", png(figure), f"{title}. {texts}.", title)


def _known(value: float) -> float | None:
    return None if math.isnan(value) else value
