"""Reports on runs whose records are written here, so that every number of the report is known."""

from __future__ import annotations

import base64
import csv
import io
import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from PIL import Image

from snn_ipu.cli.app import app
from snn_ipu.errors import DataError, RunError
from snn_ipu.experiments.report import write_report
from snn_ipu.experiments.report.paper import SPEED_RATIOS

CONFIG = {
    "network": "dsnn",
    "device": "cpu",
    "batch": 128,
    "num_steps": 25,
    "hidden": [1000],
    "channels": None,
    "neuron": "leaky",
    "precision": "float32",
    "spiking": True,
    "threads": 2,
}
CONV = {"network": "csnn", "hidden": None, "channels": [12, 64]}


def point(sweeps: list[str], speed: float, **config: Any) -> dict[str, Any]:
    return {
        "config": {**CONFIG, **config},
        "sweeps": sweeps,
        "status": "ok",
        "reason": None,
        "seconds": [0.9 / speed, 1 / speed, 1.1 / speed],
        "first_call_seconds": 3 / speed,
        "images_per_second": speed,
        "images_per_second_low": 0.9 * speed,
        "images_per_second_high": 1.1 * speed,
        "flops": {
            "synapses_forward": 4,
            "synapses_backward": 8,
            "neurons_forward": 1,
            "neurons_backward": 2,
        },
        "tflops": speed / 1000,
        "shares": None,
        "device_only_images_per_second": None,
        "firing_rate": 0.125,
    }


def failed(sweeps: list[str], status: str, reason: str, **config: Any) -> dict[str, Any]:
    return {"config": {**CONFIG, **config}, "sweeps": sweeps, "status": status, "reason": reason}


def training(population: int, num_steps: int, seed: int, accuracy: float, seconds: float) -> dict[str, Any]:
    return {
        "population": population,
        "num_steps": num_steps,
        "seed": seed,
        "data": "fashion-mnist",
        "model": "dsnn",
        "classes": 10,
        "train_images": 600,
        "test_images": 100,
        "status": "ok",
        "reason": None,
        "test_accuracy": [0.1, accuracy],
        "seconds_per_epoch": [9 * seconds, seconds, seconds],
    }


def write_run(folder: Path, kind: str, records: list[dict[str, Any]], tail: str = "", **info: Any) -> str:
    folder.mkdir(parents=True)
    run = {
        "kind": kind,
        "command": f"snn-ipu {kind} --repeats 3",
        "started": "2026-11-30T20:00:00+00:00",
        "machine": {"cpu": "A <fast> & old CPU", "cores": 2, "memory_gib": 23.4, "gpu": None, "system": "Linux"},
        "versions": {"snn_ipu": "0.1.0", "torch": "2.13.0", "snntorch": None},
        "options": {"repeats": 3},
        "notes": [],
        **info,
    }
    (folder / "run.json").write_text(json.dumps(run))
    (folder / "results.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records) + tail)
    return str(folder)


THROUGHPUT = [
    point(["batch", "steps", "neuron", "precision", "twin", "width"], 300.0),
    point(["batch", "steps", "neuron", "precision", "twin", "width"], 100.0, device="snntorch-cpu"),
    point(["batch"], 80.0, batch=8),
    point(["batch"], 20.0, batch=8, device="snntorch-cpu"),
    point(["width"], 900.0, hidden=[250]),
    failed(["width"], "timeout", "no answer in 600 s", hidden=[4000]),
    point(["steps"], 6000.0, num_steps=1),
    failed(["steps"], "out of memory", "std::bad_alloc at T=50", num_steps=50, device="snntorch-cpu"),
    point(["neuron"], 200.0, neuron="synaptic"),
    failed(["precision"], "failed", "TypeError: <half> & more", precision="float16"),
    point(["precision"], 150.0, precision="bfloat16"),
    point(["twin"], 250.0, spiking=False),
    failed(["batch", "twin"], "unavailable", "no CUDA device here", device="cuda"),
    {**point(["shares", "depth"], 40.0, **CONV), "shares": {"neurons": 0.3, "synapses": 0.6, "rest": 0.1}},
    point(["shares", "depth"], 10.0, **CONV, device="snntorch-cpu"),
    point(["depth"], 70.0, **{**CONV, "channels": [6, 32]}),
]


def rows_of(path: str) -> list[dict[str, str]]:
    with open(path, newline="") as file:
        return list(csv.DictReader(file))


def report(runs: list[str], out: Path, baseline: str | None = None) -> tuple[list[dict[str, str]], str]:
    write_report(runs, str(out), baseline)
    return rows_of(str(out / "results.csv")), (out / "report.html").read_text()


def text_of(page: str) -> str:
    """What a reader sees, white space made single."""
    parts: list[str] = []

    class Reader(HTMLParser):
        def handle_data(self, data: str) -> None:
            parts.append(data)

    Reader().feed(page.split("</style>")[1])
    return " ".join(" ".join(parts).split())


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The report on a run of each kind."""
    folder = tmp_path_factory.mktemp("whole")
    one = write_run(folder / "speeds", "throughput", THROUGHPUT, notes=["Times of the <model> mean nothing."])
    trainings = [training(p, t, s, 0.8, 1.0 * t) for p in (1, 10) for t in (5, 25) for s in (0, 1)]
    two = write_run(folder / "populations", "population", trainings)
    write_report([one, two], str(folder / "out"), None)
    return folder / "out"


def test_csv__has_every_record_and_ratios_at_equal_settings(whole: Path) -> None:
    rows = rows_of(str(whole / "results.csv"))
    assert [row["kind"] for row in rows] == ["throughput"] * len(THROUGHPUT) + ["population"] * 8
    first, peer, small, *_ = rows
    assert (first["run"], first["series"], first["baseline"]) == ("speeds", "cpu", "snntorch-cpu")
    assert float(first["ratio_to_baseline"]) == 3 and float(peer["ratio_to_baseline"]) == 1
    assert float(small["ratio_to_baseline"]) == 4
    # no point of the baseline has these settings
    assert rows[4]["hidden"] == "250" and rows[4]["ratio_to_baseline"] == ""
    assert first["images_per_second_low"] == "270.0" and len(first["seconds"].split()) == 3
    assert (first["flops_synapses_backward"], first["spiking"], first["sweeps"].split()[0]) == ("8", "true", "batch")
    conv = rows[13]
    assert (conv["channels"], conv["hidden"], conv["shares_synapses"]) == ("12 64", "", "0.6")
    assert rows[5]["status"] == "timeout" and rows[5]["images_per_second"] == ""
    assert (rows[-1]["population"], rows[-1]["test_accuracy"], rows[-1]["series"]) == ("10", "0.1 0.8", "")


def test_page__lists_every_point_that_failed_with_its_reason(whole: Path) -> None:
    text = text_of((whole / "report.html").read_text())
    failures = text[text.rindex("Points that failed") :]
    for status, reason, what in (
        ("timeout", "no answer in 600 s", "dsnn 4000 on cpu, batch 128, T = 25, leaky, float32"),
        ("out of memory", "std::bad_alloc at T=50", "on snntorch-cpu, batch 128, T = 50"),
        ("failed", "TypeError: <half> & more", "leaky, float16"),
        ("unavailable", "no CUDA device here", "on cuda"),
    ):
        assert re.search(f"{re.escape(what)}[^:]* {status} {re.escape(reason)}", failures), (status, failures)
    assert "24 points, 20 measured, 4 not" in text


def test_page__loads_nothing_from_outside_and_shows_every_chart(whole: Path) -> None:
    page = (whole / "report.html").read_text()
    sources: list[tuple[str, str]] = []
    alts: list[str] = []
    tags: set[str] = set()

    class Finder(HTMLParser):
        def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
            tags.add(tag)
            sources.extend((name, value or "") for name, value in attrs if name in ("src", "href", "srcset"))
            if tag == "img":
                alts.append(dict(attrs)["alt"] or "")

    Finder().feed(page)
    assert not tags & {"script", "link", "iframe", "object"}
    assert "url(" not in page and "@import" not in page
    images = [value for name, value in sources if name == "src"]
    assert all(value.startswith("#") for name, value in sources if name != "src")
    assert all(value.startswith("data:image/png;base64,") for value in images)
    shown = {base64.b64decode(value.split(",")[1]) for value in images}
    assert shown == {path.read_bytes() for path in whole.glob("*.png")}
    assert len(alts) == len(images) and all(len(alt) > 30 for alt in alts)


def test_charts__are_named_by_what_they_show_and_are_not_empty(whole: Path) -> None:
    expected = {"relative-speed", "shares", "tflops-dsnn", "depth-csnn", "accuracy-time", "accuracy-steps"}
    expected |= {f"{sweep}-dsnn" for sweep in ("batch", "width", "steps", "neuron", "precision", "twin")}
    assert {path.stem for path in whole.glob("*.png")} == expected
    for path in whole.glob("*.png"):
        pixels = np.asarray(Image.open(path).convert("RGB"))
        coloured = np.ptp(pixels.astype(int), axis=2) > 60
        assert pixels.shape[1] > 800 and coloured.sum() > 150, path


def test_page__shows_notes_machine_and_the_paper_by_name(whole: Path) -> None:
    page = (whole / "report.html").read_text()
    text = text_of(page)
    assert text.index("Times of the <model> mean nothing.") < text.index("What was run")
    assert "A <fast> & old CPU" in text and "<fast>" not in page
    assert "snn-ipu throughput --repeats 3" in text and "snntorch: None" not in text
    for published in SPEED_RATIOS:
        assert f"IPU (Mk2) / {published.other} {published.ratio:g}× {published.quantity}" in text
    assert "none of them is measured here" in text
    # from the records: 300 against 250, 150 against 300, 0.3 s against 0.6 s
    assert "dsnn SNN slightly higher on an IPU cpu: +20 %" in text
    assert "cpu, bfloat16: 0.5×" in text
    assert "equal on an IPU (CSNN) csnn, cpu: 0.5" in text
    assert "csnn SNN about 57 % lower on an IPU not measured" in text


def test_page__relative_speed_is_a_geometric_mean(whole: Path) -> None:
    text = text_of((whole / "report.html").read_text())
    # 3 and 4: the square root of 12
    assert "dsnn cpu 2 3× 3.46× 4×" in text
    assert "csnn cpu 1 4× 4× 4×" in text


def test_report__same_device_in_two_runs__is_told_apart_by_folder(tmp_path: Path) -> None:
    one = write_run(tmp_path / "a" / "home", "throughput", [point(["batch"], 100.0)])
    records = [point(["batch"], 50.0), point(["batch"], 800.0, device="cuda")]
    two = write_run(tmp_path / "office", "throughput", records)
    rows, page = report([one, two], tmp_path / "out", "cpu (office)")
    assert [row["series"] for row in rows] == ["cpu (home)", "cpu (office)", "cuda"]
    assert [float(row["ratio_to_baseline"]) for row in rows] == [2, 1, 16]
    assert "the baseline is cpu (office)" in text_of(page)
    rows, _ = report([one, two], tmp_path / "out", "cuda")
    assert float(rows[0]["ratio_to_baseline"]) == 0.125
    rows, _ = report([one, two], tmp_path / "out")
    assert {row["baseline"] for row in rows} == {"cpu (home)"}
    with pytest.raises(RunError, match=r"--baseline cpu: several.*cpu \(home\), cpu \(office\)"):
        write_report([one, two], str(tmp_path / "out"), "cpu")


def test_report__two_folders_of_one_name__are_told_apart_by_path(tmp_path: Path) -> None:
    runs = [write_run(tmp_path / place / "run", "throughput", [point(["batch"], 100.0)]) for place in "ab"]
    rows, _ = report(runs, tmp_path / "out")
    assert [row["run"] for row in rows] == ["a/run", "b/run"]
    assert [row["series"] for row in rows] == ["cpu (a/run)", "cpu (b/run)"]
    with pytest.raises(RunError, match="given twice"):
        write_report([runs[0], f"{runs[0]}/"], str(tmp_path / "out"), None)


def test_report__series_differ_in_other_settings__lines_are_labelled_and_not_mixed(tmp_path: Path) -> None:
    records = [point(["batch"], 100.0 * b, batch=b, threads=t) for b in (8, 16) for t in (1, 2)]
    _, page = report([write_run(tmp_path / "run", "throughput", records)], tmp_path / "out")
    text = text_of(page)
    assert "8 cpu, threads 1 800" in text and "16 cpu, threads 2 1,600" in text


def test_report__last_line_cut_short__is_left_out(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", "throughput", [point(["batch"], 100.0)], tail='{"config": {"netw')
    rows, _ = report([run], tmp_path / "out")
    assert len(rows) == 1


def test_report__point_measured_again__last_record_counts_and_the_csv_has_both(tmp_path: Path) -> None:
    records = [failed(["batch"], "timeout", "too slow"), point(["steps"], 70.0)]
    rows, page = report([write_run(tmp_path / "run", "throughput", records)], tmp_path / "out")
    assert [(row["superseded"], row["series"]) for row in rows] == [("true", ""), ("false", "cpu")]
    assert "1 record with a later record of the same point" in text_of(page)
    assert "too slow" not in page
    # it stays in the sweep that only the first record names
    assert (tmp_path / "out" / "batch-dsnn.png").exists() and (tmp_path / "out" / "steps-dsnn.png").exists()


def test_report__into_the_run_folder__works_again_and_again(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", "throughput", [point(["batch"], 100.0)])
    paths = write_report([run], run, None)
    first = [Path(path).read_bytes() for path in paths]
    assert [Path(path).name for path in paths] == ["report.html", "results.csv", "batch-dsnn.png"]
    assert [Path(path).read_bytes() for path in write_report([run], run, None)] == first


SEEDS = (0, 1, 2)


def cell(population: int, num_steps: int, accuracies: list[float], seconds: float) -> list[dict[str, Any]]:
    return [training(population, num_steps, seed, a, seconds) for seed, a in zip(SEEDS, accuracies)]


BASE = cell(1, 25, [0.84, 0.85, 0.86], 40.0)


def claim_text(tmp_path: Path, records: list[dict[str, Any]]) -> str:
    _, page = report([write_run(tmp_path / "run", "population", records)], tmp_path / "out")
    return text_of(page)


def test_claim__larger_population_as_accurate_in_less_time__holds_with_numbers(tmp_path: Path) -> None:
    records = [
        *BASE,
        *cell(1, 5, [0.70, 0.71, 0.72], 10.0),
        *cell(100, 5, [0.85, 0.86, 0.87], 16.0),
        # below the mean by 0.005, within the standard error of the difference, 0.0082
        *cell(10, 5, [0.835, 0.845, 0.855], 12.5),
        # below by 0.01, outside
        *cell(20, 5, [0.83, 0.84, 0.85], 5.0),
        # accurate and slow
        *cell(500, 5, [0.9, 0.9, 0.9], 41.0),
        # as many time steps
        *cell(100, 25, [0.9, 0.9, 0.9], 10.0),
    ]
    text = claim_text(tmp_path, records)
    assert "The claim holds in this run: population 10 with T = 5 is 3.20 times faster per epoch than" in text
    assert "population 1 with T = 25, test accuracy 85.00 ± 1.00 % (3 seeds), 40 s per epoch" in text
    assert "2 of 4 cells with a larger population and fewer time steps" in text
    assert "in 1 of them the mean itself is no lower" in text
    assert "-0.50 percentage points (standard error 0.82), 3.20 times the speed" in text
    assert "Also: population 100 with T = 5" in text and "+1.00 percentage points" in text
    assert "Fewer time steps alone" not in text and "Cells without all seeds" not in text
    assert "10 5 3 of 3 84.50 % ± 1.00 12.5 s ± 0 -0.50 points 0.82 3.2× yes" in text
    assert "20 5 3 of 3 84.00 % ± 1.00 5 s ± 0 -1.00 points 0.82 8× no" in text


def test_claim__no_such_cell__does_not_hold_and_names_the_best(tmp_path: Path) -> None:
    records = [*BASE, *cell(10, 5, [0.80, 0.81, 0.82], 8.0), *cell(100, 5, [0.9, 0.9, 0.9], 50.0)]
    text = claim_text(tmp_path, records)
    assert "The claim does not hold in this run" in text and "The claim holds" not in text
    assert "0 of 2 cells" in text
    assert "Most accurate of them: population 100 with T = 5, test accuracy 90.00 ± 0.00 %" in text


def test_claim__only_fewer_steps_are_enough__is_not_credited_to_the_population(tmp_path: Path) -> None:
    records = [*BASE, *cell(1, 5, [0.85, 0.86, 0.87], 10.0), *cell(10, 5, [0.7, 0.7, 0.7], 10.0)]
    text = claim_text(tmp_path, records)
    assert "The claim does not hold in this run" in text
    assert "Fewer time steps alone are enough, without a larger population: population 1 with T = 5" in text


def test_claim__baseline_cell_or_rivals_missing__cannot_be_judged(tmp_path: Path) -> None:
    broken = [{**record, "status": "failed", "reason": "killed", "test_accuracy": []} for record in BASE]
    text = claim_text(tmp_path / "a", [*broken, *cell(10, 5, [0.8, 0.8, 0.8], 8.0)])
    assert "cannot be judged in this run: no training of population 1 with T = 25 ended well" in text
    assert "cannot be judged in this run: it has no cell" in claim_text(tmp_path / "b", BASE)


def test_claim__baseline_cell_near_chance_or_not_timed__cannot_be_judged(tmp_path: Path) -> None:
    text = claim_text(tmp_path / "a", [*cell(1, 25, [0.1, 0.1, 0.1], 40.0), *cell(10, 5, [0.1, 0.1, 0.1], 8.0)])
    assert "population 1 with T = 25 learned too little, less than twice the accuracy of guessing (10 %)" in text
    assert "The claim holds" not in text
    untimed = [{**record, "seconds_per_epoch": []} for record in BASE]
    text = claim_text(tmp_path / "b", [*untimed, *cell(10, 5, [0.9, 0.9, 0.9], 8.0)])
    assert "no epoch of population 1 with T = 25 was timed" in text
    text = claim_text(tmp_path / "c", [*BASE, *({**r, "seconds_per_epoch": []} for r in cell(10, 5, [0.9] * 3, 8.0))])
    assert "The claim does not hold" in text and "10 5 3 of 3 90.00 % ± 0.00 not timed" in text
    assert "nan" not in text


def test_population__cells_without_all_seeds__are_named(tmp_path: Path) -> None:
    records = [*BASE, *cell(10, 5, [0.8, 0.8, 0.8], 8.0)]
    records[-1] = {**records[-1], "status": "failed", "reason": "killed by a user"}
    text = claim_text(tmp_path, [*records, training(20, 5, 1, 0.85, 8.0)])
    assert "population 10 with T = 5: no result for seed 2" in text
    assert "population 20 with T = 5: no result for seed 0, 2" in text
    assert "population 10, T = 5, seed 2 failed killed by a user" in text
    assert "A cell with one seed has no standard error" in text


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        (lambda run: (run / "run.json").unlink(), RunError, r"run: no run\.json there\. Give"),
        (lambda run: (run / "results.jsonl").unlink(), RunError, r"no results\.jsonl there"),
        (lambda run: (run / "run.json").write_text("{"), DataError, r"run\.json: not valid JSON"),
        (lambda run: (run / "run.json").write_text('{"kind": "sums"}'), DataError, "kind is 'sums', expected one of"),
        (lambda run: (run / "run.json").write_text('{"kind": "population"}'), DataError, "no command, started"),
        (lambda run: append(run, "{]"), DataError, r"results\.jsonl, line 2: not valid JSON"),
        (lambda run: append(run, "3"), DataError, "line 2: expected a JSON object, got int"),
        (lambda run: append(run, '{"status": "ok"}'), DataError, "line 2: no config, sweeps"),
        (lambda run: append(run, point(["bach"], 1.0)), DataError, "line 2: sweeps has 'bach', expected names among"),
        (lambda run: append(run, failed([], "lost", "")), DataError, "line 2: status is 'lost', expected one of ok"),
        (
            lambda run: append(run, {**point([], 1.0), "tflops": None}),
            DataError,
            "line 2: tflops is None and status ok, expected a number",
        ),
        (
            lambda run: append(run, {**point([], 1.0), "seconds": []}),
            DataError,
            r"line 2: seconds is \[\] and status ok, expected a list of numbers",
        ),
        (lambda run: (run / "results.jsonl").write_text(""), RunError, "no results there yet"),
        (
            lambda run: (run / "results.jsonl").write_text(json.dumps(failed([], "timeout", "600 s passed")) + "\n"),
            RunError,
            "none of the 1 points was measured.*timeout, 600 s passed",
        ),
    ],
)
def test_report__damaged_run__says_where_and_writes_nothing(
    tmp_path: Path, change: Any, error: type[Exception], message: str
) -> None:
    run = tmp_path / "run"
    write_run(run, "throughput", [point(["batch"], 100.0)])
    change(run)
    with pytest.raises(error, match=message):
        write_report([str(run)], str(tmp_path / "out"), None)
    assert not (tmp_path / "out").exists()


def append(run: Path, record: Any) -> None:
    with open(run / "results.jsonl", "a") as file:
        file.write((record if isinstance(record, str) else json.dumps(record)) + "\n")


def test_report__unknown_baseline__lists_the_known_ones(tmp_path: Path) -> None:
    records = [point(["batch"], 100.0), failed(["batch"], "unavailable", "none here", device="cuda")]
    run = write_run(tmp_path / "run", "throughput", records)
    for name in ("tpu", "cuda"):
        with pytest.raises(RunError, match=f"--baseline {name}: .*Known here: cpu\\."):
            write_report([run], str(tmp_path / "out"), name)
    study = write_run(tmp_path / "study", "population", BASE)
    with pytest.raises(RunError, match="No device of these runs"):
        write_report([study], str(tmp_path / "out"), "cpu")


def test_command__writes_beside_the_run_and_wants_a_folder_for_several(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", "throughput", [point(["batch"], 100.0)])
    other = write_run(tmp_path / "other", "throughput", [point(["batch"], 300.0)])
    runner = CliRunner()
    result = runner.invoke(app, ["report", run])
    assert result.exit_code == 0 and f"{run}/report.html" in result.output
    assert (tmp_path / "run" / "report.html").exists()
    result = runner.invoke(app, ["report", run, other])
    assert result.exit_code == 2 and "needs --out" in result.output
    both = str(tmp_path / "both")
    result = runner.invoke(app, ["report", run, other, "--baseline", "cpu (run)", "--out", both])
    assert result.exit_code == 0 and float(rows_of(f"{both}/results.csv")[1]["ratio_to_baseline"]) == 3
    result = runner.invoke(app, ["report", run, "--baseline", "tpu"])
    assert result.exit_code == 2 and "Known here: cpu" in result.output and "Traceback" not in result.output


def test_charts__wide_range_in_groups__still_shows_the_smallest(tmp_path: Path) -> None:
    records = [point(["neuron"], 1.0 if n == "leaky" else 1e5, neuron=n) for n in ("leaky", "synaptic")]
    write_report([write_run(tmp_path / "run", "throughput", records)], str(tmp_path / "out"), None)
    pixels = np.asarray(Image.open(io.BytesIO((tmp_path / "out" / "neuron-dsnn.png").read_bytes())).convert("RGB"))
    upper = pixels[: pixels.shape[0] // 4].astype(int)
    blue = np.array((0x00, 0x72, 0xB2))
    assert (np.abs(upper - blue).sum(2) < 30).sum() > 60
