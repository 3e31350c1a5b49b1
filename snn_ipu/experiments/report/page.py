"""The page of a report: one HTML file that loads nothing."""

from __future__ import annotations

import base64
from html import escape
from typing import Any, Iterable, Sequence

from . import paper
from .load import Run
from .plots import Picture, number, seconds_text, variable
from .population import Study, base_cell, claim, margin
from .throughput import (
    Point,
    Throughput,
    View,
    geometric_mean,
    pairs,
    relative,
    settings,
    share_points,
    value_text,
    views,
)

_STYLE = """
:root { color-scheme: light; }
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 1rem clamp(0.75rem, 3vw, 2rem) 4rem; max-width: 68rem; background: #fff; color: #1a1a1a;
  font: 16px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, "Noto Sans", "DejaVu Sans", sans-serif; }
h1 { font-size: 1.7rem; line-height: 1.25; margin: 1rem 0; overflow-wrap: anywhere; }
h2 { font-size: 1.35rem; margin: 2.5rem 0 0.75rem; padding-top: 0.75rem; border-top: 1px solid #ccc;
  overflow-wrap: anywhere; }
h3 { font-size: 1.1rem; margin: 2rem 0 0.5rem; overflow-wrap: anywhere; }
p, li { max-width: 48rem; overflow-wrap: anywhere; }
nav { display: flex; flex-wrap: wrap; gap: 0.25rem 1.25rem; }
a { color: #005a9c; }
code { font: 0.9em/1.4 ui-monospace, "DejaVu Sans Mono", monospace; overflow-wrap: anywhere; }
aside { margin: 1rem 0; padding: 0.25rem 1rem; border-left: 5px solid #d55e00; background: #fff4ec; }
aside.verdict { border-color: #0072b2; background: #eef6fc; }
dl { display: grid; grid-template-columns: minmax(6rem, max-content) 1fr; gap: 0.25rem 1.25rem; }
dt { color: #555; }
dd { margin: 0; min-width: 0; overflow-wrap: anywhere; }
figure { margin: 1rem 0; }
img { display: block; width: 46rem; max-width: 100%; height: auto; }
figcaption { color: #555; font-size: 0.9rem; }
.table { overflow-x: auto; width: fit-content; max-width: 100%; margin: 0.75rem 0; border: 1px solid #ddd; }
table { border-collapse: collapse; font-size: 0.9rem; font-variant-numeric: tabular-nums; }
th, td { padding: 0.3rem 0.6rem; text-align: left; vertical-align: top; white-space: nowrap; }
td.wide { white-space: pre-line; min-width: 9.5rem; overflow-wrap: anywhere; }
th { white-space: normal; vertical-align: bottom; background: #f3f3f3; font-weight: 600; }
tr + tr td { border-top: 1px solid #eee; }
.number { text-align: right; }
summary { cursor: pointer; color: #005a9c; }
"""


def page(
    runs: Sequence[Run],
    data: Throughput,
    found: Sequence[Study],
    pictures: dict[tuple[str, str], list[Picture]],
    files: Sequence[str],
) -> str:
    """The whole page.

    Args: runs; data, points of the throughput runs; found, studies of the population runs; pictures, by sweep and
    network, ("relative", "") and ("shares", "") and ("population", number of the study); files, written beside it.
    """
    names = ", ".join(run.name for run in runs)
    sections: list[tuple[str, str, str]] = [("runs", "What was run", _runs(runs))]
    if data.points:
        sections.append(("throughput", "Throughput", _throughput(data, pictures)))
        sections.append(("paper", "The paper's ratios", _paper(data)))
    for place, study in enumerate(found):
        title = f"Population coding: {study.title}" + (f" ({study.run.name})" if len(found) > 1 else "")
        sections.append(
            (f"population-{place}", title, _population(study, pictures.get(("population", str(place)), [])))
        )
    sections.append(("failures", "Points that failed", _failures(runs)))
    sections.append(
        ("files", "Files", f"<p>Beside this page: {', '.join(f'<code>{escape(f)}</code>' for f in files)}.</p>")
    )
    links = "\n".join(f'<a href="#{key}">{escape(title)}</a>' for key, title, _ in sections)
    body = "\n".join(
        f'<section id="{key}">\n<h2>{escape(title)}</h2>\n{text}\n</section>' for key, title, text in sections
    )
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>snn_ipu report: {escape(names)}</title>
<style>{_STYLE}</style>
</head>
<body>
<h1>snn_ipu report: {escape(names)}</h1>
{_summary(runs, data, found)}
<nav>
{links}
</nav>
{body}
</body>
</html>
"""


def _summary(runs: Sequence[Run], data: Throughput, found: Sequence[Study]) -> str:
    parts = []
    notes = list(dict.fromkeys((run.name, str(note)) for run in runs for note in run.info["notes"]))
    if notes:
        several = len(runs) > 1
        items = "".join(
            f"<p><strong>{escape(name)}:</strong> {escape(note)}</p>" if several else f"<p>{escape(note)}</p>"
            for name, note in notes
        )
        parts.append(f"<aside><p><strong>Notes of the run{'s' if several else ''}</strong></p>{items}</aside>")
    lines = []
    total = sum(len(run.records) - len(run.superseded) for run in runs)
    failed = len(_failed(runs))
    lines.append(
        f"{total} {_plural('point', total)}, {total - failed} measured, {failed} not"
        + (" (see Points that failed)." if failed else ".")
    )
    for network in data.networks:
        ratios = {series: geometric_mean(values) for series, values in relative(data, network).items()}
        if ratios:
            text = ", ".join(f"{series} {number(ratio)}×" for series, ratio in ratios.items())
            lines.append(f"{network}, speed relative to {data.baseline}, geometric mean over equal settings: {text}.")
    parts.append("<ul>" + "".join(f"<li>{escape(line)}</li>" for line in lines) + "</ul>")
    for study in found:
        where = f"{study.title} ({study.run.name}): " if len(found) > 1 else ""
        parts.append(f'<aside class="verdict"><p><strong>{escape(where + claim(study).verdict)}</strong></p></aside>')
    return "\n".join(parts)


def _plural(word: str, count: int) -> str:
    return word if count == 1 else f"{word}s"


def _runs(runs: Sequence[Run]) -> str:
    parts = []
    for run in runs:
        info = run.info
        machine = info["machine"]
        rows = [
            ("folder", f"<code>{escape(run.name)}</code>"),
            ("kind", escape(run.kind)),
            ("command", f"<code>{escape(str(info['command']))}</code>"),
            ("started", escape(str(info["started"]))),
            ("machine", escape(_facts(machine))),
            ("versions", escape(_facts(info["versions"]))),
            ("options", escape(_facts(info["options"]))),
            *(("note", f"<strong>{escape(str(note))}</strong>") for note in info["notes"]),
        ]
        if run.superseded:
            rows.append(
                (
                    "repeated",
                    f"{len(run.superseded)} {_plural('record', len(run.superseded))} with a later record of the same "
                    "point; the last one counts, all are in results.csv",
                )
            )
        if len(runs) > 1:
            parts.append(f"<h3>{escape(run.name)}</h3>")
        parts.append("<dl>" + "".join(f"<dt>{name}</dt><dd>{text}</dd>" for name, text in rows) + "</dl>")
    return "\n".join(parts)


def _facts(facts: dict[str, Any]) -> str:
    return "; ".join(f"{_FACTS.get(name, name)}: {_fact(value)}" for name, value in facts.items() if value is not None)


_FACTS = {"memory_gib": "memory (GiB)"}


def _fact(value: Any) -> str:
    if isinstance(value, list):
        return " ".join(map(_fact, value))
    if isinstance(value, bool):
        return "yes" if value else "no"
    return str(value)


def _table(
    headers: Sequence[str], rows: Iterable[Sequence[str]], numbers: Sequence[str] = (), wide: Sequence[str] = ()
) -> str:
    """A table in a box that scrolls; columns named in `numbers` stand right, those in `wide` break lines."""
    kinds = [' class="number"' if name in numbers else ' class="wide"' if name in wide else "" for name in headers]
    head = "".join(f"<th{kind}>{escape(name)}</th>" for name, kind in zip(headers, kinds))
    body = "\n".join(
        "<tr>" + "".join(f"<td{kind}>{escape(text)}</td>" for text, kind in zip(row, kinds)) + "</tr>" for row in rows
    )
    return f'<div class="table" tabindex="0"><table>\n<tr>{head}</tr>\n{body}\n</table></div>'


def _figure(picture: Picture, caption: str = "") -> str:
    content = base64.b64encode(picture.png).decode()
    below = f"<figcaption>{escape(caption)}</figcaption>" if caption else ""
    return f'<figure><img src="data:image/png;base64,{content}" alt="{escape(picture.alt)}">{below}</figure>'


def _throughput(data: Throughput, pictures: dict[tuple[str, str], list[Picture]]) -> str:
    parts = [
        "<p>Throughput is training throughput: images per second through forward pass, backward pass and update, the "
        "median over timed minibatches. Error bars and spread are the quartiles. Ratios are medians over medians at "
        "settings that differ in nothing but the device; the baseline is "
        f"<strong>{escape(str(data.baseline))}</strong>. TFLOPS count the synapses' operations, a fused "
        "multiply-add as one.</p>"
    ]
    if pictures.get(("relative", "")):
        parts.append(f"<h3>{escape(pictures['relative', ''][0].title)}</h3>")
        parts.append(
            _figure(
                pictures["relative", ""][0],
                "A tick is one configuration, the marker and the number are the geometric mean. The labelled lines are "
                "the paper's ratios between other devices; they are not measured here.",
            )
        )
        ratio_rows = [
            (
                network,
                series,
                str(len(ratios)),
                _ratio(min(ratios)),
                _ratio(geometric_mean(ratios)),
                _ratio(max(ratios)),
            )
            for network in data.networks
            for series, ratios in relative(data, network).items()
        ]
        headers = ("network", "series", "configurations", "lowest", "geometric mean", "highest")
        parts.append(_table(headers, ratio_rows, headers[2:]))
    alone = [point for point in data.points if point.ok and point.ratio is None]
    if alone:
        parts.append(
            f"<p>{len(alone)} measured {_plural('point', len(alone))} "
            f"{'has' if len(alone) == 1 else 'have'} no ratio: the baseline has no measured point with the same "
            "settings (threads count as a setting).</p>"
        )
    for view in views(data):
        parts.append(f"<h3>{escape(f'{view.network}: {variable(view)}')}</h3>")
        parts += [_figure(picture, picture.title) for picture in pictures.get((view.sweep, view.network), [])]
        parts.append(_view_table(view, data))
    labelled = share_points(data)
    if any("shares" in point.sweeps for point in data.points):
        parts.append("<h3>Time in neurons, synapses and the rest</h3>")
        parts += [_figure(picture, picture.title) for picture in pictures.get(("shares", ""), [])]
        parts.append(_shares_table(labelled))
        without = [
            f"{point.config['network']}, {point.series}"
            for point in data.points
            if "shares" in point.sweeps and point.ok and not point.record.get("shares")
        ]
        if without:
            parts.append(f"<p>Measured as a whole, without shares: {escape('; '.join(without))}.</p>")
    other = [point for point in data.points if not point.sweeps and point.ok]
    if other:
        parts.append("<h3>Points of no sweep</h3>")
        parts.append(
            _table(
                ("settings", "series", *_MEASURED),
                [(settings(p.config), p.series, *_measured(p)) for p in other],
                _MEASURED,
                ("settings",),
            )
        )
    return "\n".join(parts)


_MEASURED = ("images/s", "quartiles", "ratio to baseline", "TFLOPS", "repeats", "first call")


def _measured(point: Point) -> tuple[str, ...]:
    if not point.ok:
        return (str(point.record["status"]), *[""] * (len(_MEASURED) - 1))
    record = point.record
    first = record.get("first_call_seconds")
    return (
        number(point.speed),
        f"{number(record['images_per_second_low'])} to {number(record['images_per_second_high'])}",
        "–" if point.ratio is None else _ratio(point.ratio),
        number(record["tflops"]),
        str(len(record["seconds"])),
        "" if first is None else seconds_text(first),
    )


_OPTIONAL = {"device only, images/s": "device_only_images_per_second", "firing rate": "firing_rate"}


def _view_table(view: View, data: Throughput) -> str:
    rows = [
        (value_text(view.sweep, value), line.label, line.points[value])
        for value in view.values
        for line in view.lines
        if value in line.points
    ]
    extra = {name: key for name, key in _OPTIONAL.items() if any(p.record.get(key) is not None for _, _, p in rows)}
    headers = (variable(view), "series", *_MEASURED, *extra)
    cells = [
        (value, label, *_measured(point), *(_optional(point.record.get(key)) for key in extra.values()))
        for value, label, point in rows
    ]
    return _fold(f"Numbers, {len(rows)} {_plural('point', len(rows))}", _table(headers, cells, (*_MEASURED, *extra)))


def _fold(summary: str, text: str) -> str:
    return f"<details open><summary>{escape(summary)}</summary>{text}</details>"


def _optional(value: float | None) -> str:
    return "" if value is None else number(value)


def _ratio(value: float) -> str:
    return f"{number(value)}×"


def _shares_table(labelled: Sequence[tuple[str, Point]]) -> str:
    headers = ("network and series", "neurons", "synapses", "rest", "neurons / synapses")
    rows = []
    for label, point in labelled:
        shares = point.record["shares"]
        whole = sum(shares.values())
        rows.append(
            (
                label,
                *(f"{seconds_text(shares[name])} ({100 * shares[name] / whole:.0f} %)" for name in headers[1:4]),
                number(shares["neurons"] / shares["synapses"]) if shares["synapses"] else "–",
            )
        )
    below = (
        "<p>A rest below zero: the parts took longer alone than in the whole minibatch.</p>"
        if any(point.record["shares"]["rest"] < 0 for _, point in labelled)
        else ""
    )
    return _table(headers, rows, headers[1:]) + below


def _paper(data: Throughput) -> str:
    speed = [
        (f"IPU (Mk2) / {published.other}", f"{published.ratio:g}×", published.quantity)
        for published in paper.SPEED_RATIOS
    ]
    rows = [("neuron time / synapse time, csnn", paper.NEURONS_TO_SYNAPSES, _neurons_to_synapses(data))]
    for network, text in paper.TWIN.items():
        rows.append((f"TFLOPS of the SNN against its non-spiking twin, {network}", text, _twin(data, network)))
    for network in data.networks:
        rows.append((f"speed in 16 bits against float32, {network}", paper.HALF_PRECISION, _half(data, network)))
    return "\n".join(
        (
            f"<p>Published in <em>{escape(paper.TITLE)}</em>. <strong>These ratios compare that paper's devices with "
            "each other; none of them is measured here.</strong> The paper's layer sizes and absolute numbers are not "
            "known, so only ratios are shown.</p>",
            _table(("devices", "paper's ratio", "of"), speed, ("paper's ratio",)),
            "<p>What the paper says of one device, beside this report's own points:</p>",
            _table(("quantity", "paper", "this report"), rows, wide=("quantity", "paper", "this report")),
        )
    )


def _neurons_to_synapses(data: Throughput) -> str:
    found = [
        f"{label}: {number(point.record['shares']['neurons'] / point.record['shares']['synapses'])}"
        for label, point in share_points(data)
        if point.config["network"] == "csnn" and point.record["shares"]["synapses"]
    ]
    return _listed(found)


def _twin(data: Throughput, network: str) -> str:
    found = pairs(data, "twin", network, True, False)
    return _listed(
        [f"{label}: {100 * (snn.record['tflops'] / twin.record['tflops'] - 1):+.0f} %" for label, snn, twin in found]
    )


def _half(data: Throughput, network: str) -> str:
    return _listed(
        [
            f"{label}, {half}: {_ratio(short.speed / full.speed)}"
            for half in ("float16", "bfloat16")
            for label, short, full in pairs(data, "precision", network, half, "float32")
        ]
    )


def _listed(texts: Sequence[str]) -> str:
    return "\n".join(texts) or "not measured"


def _population(study: Study, pictures: Sequence[Picture]) -> str:
    tested = claim(study)
    task = study.task
    epochs = " or ".join(map(str, study.epochs))
    parts = [
        f"<p>{escape(study.title)}, {task['classes']} classes, {task['train_images']:,} training and "
        f"{task['test_images']:,} test images, {epochs or 'no'} epochs, seeds "
        f"{', '.join(map(str, study.seeds))}. Accuracy is that of the test images after a training's last epoch; time "
        "is the median over a training's epochs. Over the seeds, accuracy is their mean and time their median, ± the "
        "standard deviation.</p>",
        "<p>Claim under test: with a larger output population fewer time steps reach the same accuracy, in less "
        "time.</p>",
        f'<aside class="verdict"><p><strong>{escape(tested.verdict)}</strong></p>'
        + "".join(f"<p>{escape(text)}</p>" for text in tested.text)
        + "</aside>",
    ]
    if len(study.epochs) > 1:
        parts.append("<p><strong>The trainings differ in their number of epochs.</strong></p>")
    incomplete = [cell for cell in study.cells if cell.missing]
    if incomplete:
        items = "".join(
            f"<li>{escape(cell.name)}: no result for seed {', '.join(map(str, cell.missing))}</li>"
            for cell in incomplete
        )
        parts.append(f"<p>Cells without all seeds:</p><ul>{items}</ul>")
    parts += [_figure(picture, picture.title) for picture in pictures]
    headers = (
        "neurons per class",
        "time steps",
        "seeds",
        "test accuracy",
        "time per epoch",
        "accuracy gained",
        "standard error",
        "speed",
        "supports the claim",
    )
    base = base_cell(study)
    rows = []
    for cell in study.cells:
        place = (f"{cell.population:,}", str(cell.num_steps), f"{len(cell.seeds)} of {len(study.seeds)}")
        if not cell.seeds:
            rows.append((*place, "none", "none", "", "", "", ""))
            continue
        several = len(cell.seeds) > 1
        accuracy = f"{100 * cell.accuracy:.2f} %" + (f" ± {100 * cell.accuracy_deviation:.2f}" if several else "")
        time = f"{number(cell.time)} s" if cell.seconds else "not timed"
        if len(cell.seconds) > 1:
            time += f" ± {number(cell.time_deviation)}"
        if cell is base:
            rows.append((*place, accuracy, time, "baseline cell", "", "", ""))
        elif not base.seeds:
            rows.append((*place, accuracy, time, "", "", "", ""))
        else:
            rows.append(
                (
                    *place,
                    accuracy,
                    time,
                    f"{100 * (cell.accuracy - base.accuracy):+.2f} points",
                    f"{100 * margin(cell, base):.2f}",
                    _ratio(base.time / cell.time) if base.seconds and cell.seconds else "",
                    "yes" if cell in tested.cells else "no",
                )
            )
    parts.append(_table(headers, rows, headers[:8]))
    parts.append(
        f"<p>Accuracy gained, its standard error and speed are relative to the baseline cell, {escape(base.name)}.</p>"
    )
    return "\n".join(parts)


def _failed(runs: Sequence[Run]) -> list[tuple[Run, dict[str, Any]]]:
    return [
        (run, record)
        for run in runs
        for place, record in enumerate(run.records)
        if place not in run.superseded and record["status"] != "ok"
    ]


def _failures(runs: Sequence[Run]) -> str:
    failed = _failed(runs)
    if not failed:
        return "<p>None: every point was measured.</p>"
    reasons: dict[tuple[str, str], int] = {}
    for _, record in failed:
        key = (str(record["status"]), str(record.get("reason") or "no reason given"))
        reasons[key] = reasons.get(key, 0) + 1
    parts = [
        _table(
            ("points", "status", "reason"),
            [(str(count), status, reason) for (status, reason), count in reasons.items()],
            ("points",),
            ("reason",),
        )
    ]
    rows = [
        (run.name, _what(run, record), str(record["status"]), str(record.get("reason") or "no reason given"))
        for run, record in failed
    ]
    parts.append(
        _fold(
            f"Each of the {len(failed)} {_plural('point', len(failed))}",
            _table(("run", "point", "status", "reason"), rows, wide=("point", "reason")),
        )
    )
    return "\n".join(parts)


def _what(run: Run, record: dict[str, Any]) -> str:
    if run.kind == "population":
        return (
            f"{record['model']} on {record['data']}, population {record['population']:,}, T = {record['num_steps']}, "
            f"seed {record['seed']}"
        )
    config = record["config"]
    sizes = "-".join(map(str, config["channels"] or config["hidden"]))
    return (
        f"{config['network']} {sizes} on {config['device']}, batch {config['batch']}, T = {config['num_steps']}, "
        f"{config['neuron'] if config['spiking'] else 'non-spiking twin'}, {config['precision']}"
    )
