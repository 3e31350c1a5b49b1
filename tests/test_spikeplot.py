"""snn_ipu.spikeplot draws what it is given, without a display and without changing matplotlib's settings."""

from __future__ import annotations

import ast
import importlib.util
import inspect
import subprocess
import sys
from pathlib import Path

import matplotlib
import pytest
import torch

matplotlib.use("Agg")
import matplotlib.pyplot as plt

from snn_ipu import spikeplot
from snn_ipu.errors import ShapeError


@pytest.fixture
def axes():
    fig, ax = plt.subplots()
    yield fig, ax
    plt.close("all")


def frames_of(animation):
    animation._draw_was_started = True  # reading frames is no rendering to matplotlib, which would warn
    return list(animation.new_saved_frame_seq())


SPIKES = torch.tensor([[1.0, 0, 0], [0, 0, 1], [1, 0, 0], [1, 0, 1]])


def test_raster__spikes_of_some_neurons__are_points_at_step_and_neuron(axes):
    points = spikeplot.raster(SPIKES.requires_grad_(), axes[1], s=3, c="black")
    assert sorted(points.get_offsets().tolist()) == [[0, 0], [1, 2], [2, 0], [3, 0], [3, 2]]
    assert points.get_sizes().tolist() == [3]


def test_raster__one_neuron_or_an_image__numbers_the_neurons_through(axes):
    assert spikeplot.raster(torch.tensor([0, 1, 1]), axes[1]).get_offsets().tolist() == [[1, 0], [2, 0]]
    image = torch.zeros(2, 3, 4, dtype=torch.bool)
    image[1, 2, 1] = True
    assert spikeplot.raster(image, axes[1], s=1.5).get_offsets().tolist() == [[1, 9]]


def test_animator__frames__are_shown_one_by_one_on_one_scale(axes):
    fig, ax = axes
    data = torch.arange(24.0, dtype=torch.float64).reshape(4, 2, 3)
    plt.figure()  # the axes given count, not the current ones
    frames = frames_of(spikeplot.animator(data, fig, ax, num_steps=3, cmap="gray"))
    assert len(frames) == 3
    for step, (image,) in enumerate(frames):
        assert image.get_array().tolist() == data[step].tolist()
        assert image.get_clim() == (0, 23) and image.axes is ax
    assert not ax.axison
    assert len(frames_of(spikeplot.animator(data, fig, ax))) == 4


def test_spike_count__one_picture__has_a_bar_per_label(axes):
    fig, ax = axes
    assert spikeplot.spike_count(SPIKES, fig, ax, ["a", "b", "c"], time_step=0.001) is None
    (dots,) = ax.get_lines()
    assert dots.get_xdata().tolist() == [3, 0, 2]
    assert [label.get_text() for label in ax.get_yticklabels()] == ["a", "b", "c"]
    assert ax.get_xlabel() == "Time [s]"
    assert ax.get_xticklabels()[-1].get_text() == "0.004"


def test_spike_count__num_steps__counts_only_those(axes):
    fig, ax = axes
    spikeplot.spike_count(SPIKES, fig, ax, ["a", "b", "c"], num_steps=2, gridshader=False)
    assert ax.get_lines()[0].get_xdata().tolist() == [1, 0, 1]
    assert ax.get_xlim() == (0, 2) and not ax.patches


def test_spike_count__animated__counts_the_step_under_the_time_bar(axes):
    fig, ax = axes
    frames = frames_of(spikeplot.spike_count(SPIKES, fig, ax, ["a", "b", "c"], animate=True, interpolate=2))
    assert len(frames) == 8
    counts = [dots.get_xdata().tolist() for _, dots, _ in frames]
    assert counts == [[1, 0, 0]] * 2 + [[1, 0, 1]] * 2 + [[2, 0, 1]] * 2 + [[3, 0, 2]] * 2
    assert [scanner.get_xdata()[0] for _, _, scanner in frames] == [i / 2 for i in range(8)]


def test_traces__fewer_neurons_than_panels__draws_each_with_its_spikes():
    plt.close("all")
    data = torch.arange(8.0).reshape(4, 2)
    spk = torch.tensor([[0.0, 1], [0, 0], [1, 0], [0, 0]])
    spikeplot.traces(data, spk, dim=(2, 2), spk_height=10, titles=["left"])
    panels = plt.gcf().axes
    assert [ax.get_lines()[0].get_ydata().tolist() for ax in panels] == [[0, 2, 14, 6], [11, 3, 5, 7]]
    assert [ax.get_title() for ax in panels] == ["left", ""]
    assert panels[0].get_ylim() == panels[1].get_ylim()
    plt.close("all")


def test_plots__malformed_data__raise(axes):
    fig, ax = axes
    with pytest.raises(ShapeError, match=r"\[T, H, W\]"):
        spikeplot.animator(torch.zeros(3, 4), fig, ax)
    with pytest.raises(ShapeError, match="2 labels"):
        spikeplot.spike_count(SPIKES, fig, ax, ["a", "b"])
    with pytest.raises(ShapeError, match=r"\[T, N\]"):
        spikeplot.traces(torch.zeros(3, 4), torch.zeros(3, 5))


def test_spike_count__drawn__leaves_the_global_settings_alone(axes):
    before = dict(plt.rcParams)
    spikeplot.spike_count(SPIKES, *axes, ["a", "b", "c"])
    assert dict(plt.rcParams) == before


def test_spikeplot__imported__does_not_import_matplotlib():
    code = "import sys, snn_ipu.spikeplot; sys.exit('matplotlib' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def test_spikeplot_api__every_function_of_snntorch__has_the_same_arguments():
    # read, not imported: snntorch.spikeplot needs pandas
    source = Path(importlib.util.find_spec("snntorch").origin).with_name("spikeplot.py").read_text()
    functions = [node for node in ast.parse(source).body if isinstance(node, ast.FunctionDef)]
    functions = [node for node in functions if not node.name.startswith("_")]
    assert len(functions) == 4
    for node in functions:
        ours = list(inspect.signature(getattr(spikeplot, node.name)).parameters.values())
        names = [argument.arg for argument in node.args.args] + ([node.args.kwarg.arg] if node.args.kwarg else [])
        assert [argument.name for argument in ours] == names
        defaults = [argument.default for argument in ours if argument.default is not argument.empty]
        assert defaults == [ast.literal_eval(default) for default in node.args.defaults]
