"""NIR: networks come back with their dynamics, graphs of other programs run as NIR defines them."""

from __future__ import annotations

import sys
import warnings
from typing import Any, Callable

import nir
import numpy as np
import pytest
import snntorch
import torch
from snntorch import export_nir as their_export
from snntorch import import_nir as their_import
from torch import Tensor, nn

import snn_ipu as snn
from snn_ipu.errors import UnsupportedError
from snn_ipu.export_nir import export_to_nir
from snn_ipu.import_nir import import_from_nir

WIDTH, STEPS, DT = 5, 40, 1e-4
PER_NEURON = torch.tensor([0.0, 0.05, 0.37, 0.9, 1.0])
LIMITS = torch.tensor([0.4, 1.3, 1.0, 0.7, 2.1])
RESETS = [(reset, delay) for reset in ("subtract", "zero", "none") for delay in (True, False)]


def one_to_one(**kwargs: Any) -> nn.Module:
    return snn.RLeaky(0.8, all_to_all=False, **kwargs)


NEURONS: dict[str, Callable[[], nn.Module]] = {
    **{f"leaky_{r}_{d}": lambda r=r, d=d: snn.Leaky(0.87, reset_mechanism=r, reset_delay=d) for r, d in RESETS},
    **{
        f"synaptic_{r}_{d}": lambda r=r, d=d: snn.Synaptic(0.33, 0.7, reset_mechanism=r, reset_delay=d)
        for r, d in RESETS
    },
    "leaky_per_neuron": lambda: snn.Leaky(PER_NEURON, threshold=LIMITS),
    "leaky_without_leak": lambda: snn.Leaky(1.0, threshold=LIMITS, reset_mechanism="zero"),
    "leaky_graded": lambda: snn.Leaky(0.8, graded_spikes_factor=LIMITS, reset_mechanism="zero", reset_delay=False),
    "leaky_graded_none": lambda: snn.Leaky(0.8, graded_spikes_factor=0.5, reset_mechanism="none"),
    "leaky_beyond_one": lambda: snn.Leaky(torch.tensor(1.5)),
    "synaptic_per_neuron": lambda: snn.Synaptic(1 - PER_NEURON, PER_NEURON, threshold=LIMITS),
    "lapicque": lambda: snn.Lapicque(R=4.0, C=0.5, time_step=0.5, threshold=2.0),
    "lapicque_none": lambda: snn.Lapicque(0.8, reset_mechanism="none"),
    "lapicque_zero": lambda: snn.Lapicque(R=4.0, C=0.5, time_step=0.5, threshold=0.7, reset_mechanism="zero"),
    "lapicque_zero_per_neuron": lambda: snn.Lapicque((LIMITS + 2) / 5, threshold=LIMITS, reset_mechanism="zero"),
    "rleaky": lambda: snn.RLeaky(0.8, linear_features=WIDTH),
    "rleaky_zero": lambda: snn.RLeaky(0.8, linear_features=WIDTH, reset_mechanism="zero", reset_delay=False),
    "rleaky_none": lambda: snn.RLeaky(0.5, linear_features=WIDTH, reset_mechanism="none", threshold=2.0),
    "rleaky_one": lambda: one_to_one(V=0.5),
    "rleaky_one_each": lambda: one_to_one(V=LIMITS - 1, learn_recurrent=False),
    "rsynaptic": lambda: snn.RSynaptic(0.4, 0.8, linear_features=WIDTH, threshold=LIMITS),
    "rsynaptic_one": lambda: snn.RSynaptic(0.4, 0.8, all_to_all=False, V=-0.5),
    "if": lambda: snn.IF(threshold=0.9),
    "parametric": lambda: snn.ParametricLeaky(w=0.3, v_reset=-0.25, threshold=0.4),
}
IMAGES: dict[str, Callable[[], nn.Module]] = {
    "leaky_per_channel": lambda: snn.Leaky(torch.tensor([0.3, 0.8]).reshape(2, 1, 1)),
    "rleaky_conv": lambda: snn.RLeaky(0.8, conv2d_channels=2, kernel_size=3),
    "rleaky_one": lambda: one_to_one(V=torch.tensor([0.3, -0.8]).reshape(2, 1, 1)),
    "rsynaptic_conv": lambda: snn.RSynaptic(0.4, 0.8, conv2d_channels=2, kernel_size=3, reset_mechanism="zero"),
}


def write(net: nn.Module, sample: Tensor, path: Any = None, **kwargs: Any) -> Any:
    """The graph of a network, through a file where a path is given."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".*do not reset as NIR defines")
        graph = export_to_nir(net, sample, **kwargs)
    if path is None:
        return graph
    nir.write(path / "net.nir", graph)
    return nir.read(path / "net.nir")


def over_time(net: nn.Module, x: Tensor) -> Tensor:
    out, _ = snn.unroll(net, x)
    return out[0] if isinstance(out, tuple) else out


def frames(*shape: int, scale: float = 2.0) -> Tensor:
    return torch.randn(STEPS, 3, *shape, generator=torch.Generator().manual_seed(1)) * scale


@pytest.mark.parametrize("name", NEURONS)
def test_round_trip__every_neuron_through_a_file__same_spikes_over_many_steps(name: str, tmp_path: Any) -> None:
    torch.manual_seed(2)
    net = nn.Sequential(nn.Linear(4, WIDTH), NEURONS[name]())
    x = frames(4, scale=3.0)
    again = import_from_nir(write(net, x[0], tmp_path))
    expected = over_time(net, x)
    assert torch.equal(over_time(again, x), expected) and expected.std() > 0
    assert torch.equal(torch.stack([again(x_t)[0] for x_t in x]), expected)


@pytest.mark.parametrize("name", IMAGES)
def test_round_trip__neurons_of_images__same_spikes_over_many_steps(name: str, tmp_path: Any) -> None:
    torch.manual_seed(2)
    net = nn.Sequential(nn.Conv2d(1, 2, 3, padding=1), IMAGES[name](), nn.Flatten(), nn.Linear(40, 3))
    x = frames(1, 4, 5)
    expected = over_time(net, x)
    assert torch.equal(over_time(import_from_nir(write(net, x[0], tmp_path)), x), expected) and expected.std() > 0


class Layers(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(2, 4, 3, stride=(2, 1), padding=(1, 0), dilation=(1, 2), groups=2, bias=False),
            nn.BatchNorm2d(4),
            snn.Leaky(0.8, init_hidden=True),
            nn.Dropout2d(0.3),
            nn.Conv2d(4, 4, 3, padding="same"),
            snn.Synaptic(0.5, 0.8),
        )
        self.pool = nn.AvgPool2d(2, stride=1, padding=1)
        self.fc = nn.Linear(4 * 6 * 6, 6)
        self.norm = nn.BatchNorm1d(6)
        self.lif = snn.Leaky(0.9, threshold=0.3)

    def forward(self, x: Tensor, mem: Tensor | None = None) -> tuple[Tensor, Tensor]:
        for layer in self.features[:-1]:
            x = layer(x)
        spk, _, _ = self.features[-1](x)
        y = self.norm(self.fc(torch.flatten(self.pool(x + spk), 1)))
        return self.lif(y, mem)


def test_round_trip__layers_of_every_kind__same_outputs(tmp_path: Any) -> None:
    torch.manual_seed(2)
    net = Layers()
    x = frames(2, 9, 9)
    for batch in x[:4]:
        net(batch)
    net.eval()
    snn.utils.reset(net)
    again = import_from_nir(write(net, x[0], tmp_path))
    expected = over_time(net, x)
    out = over_time(again, x)
    # batch normalisation is folded, so sums round in another order
    assert (out != expected).float().mean() < 1e-3 and expected.any()
    assert {"features.0.weight", "fc.bias"} <= set(again.state_dict())


def test_round_trip__one_dimensional_convolution__same_outputs(tmp_path: Any) -> None:
    net = nn.Sequential(nn.Conv1d(2, 4, 3, stride=2, padding=1), nn.BatchNorm1d(4), snn.Leaky(0.8))
    net[0](frames(2, 9)[0])
    net.eval()
    x = frames(2, 9)
    out = over_time(import_from_nir(write(net, x[0], tmp_path)), x)
    assert (out != over_time(net, x)).float().mean() < 1e-3 and out.any()


def test_round_trip__graph_of_another_program__exports_to_the_same_numbers() -> None:
    first = graph_of(nir.CubaLIF(**cuba(tau_mem=7e-4, r=3.0, v_leak=0.2, v_reset=-0.1, v_threshold=0.5)))
    second = write(import_from_nir(first), torch.zeros(2, 3))
    (node,) = (n for n in second.nodes.values() if isinstance(n, nir.CubaLIF))
    expected = first.nodes["neuron"]
    for key in ("tau_mem", "tau_syn", "r", "w_in", "v_leak", "v_reset", "v_threshold"):
        np.testing.assert_allclose(getattr(node, key), getattr(expected, key), rtol=1e-5)


def test_export__leaky__writes_time_constants_and_shapes() -> None:
    net = nn.Sequential(nn.Linear(4, 5), snn.Leaky(0.9, threshold=1.5, reset_mechanism="zero"))
    graph = export_to_nir(net, torch.zeros(7, 4), dt=1e-3)
    node = graph.nodes["1"]
    assert isinstance(node, nir.LIF) and node.tau.shape == (5,)
    np.testing.assert_allclose(node.tau, 1e-2, rtol=1e-6)
    np.testing.assert_allclose(node.r, 10, rtol=1e-6)
    assert (node.v_threshold == 1.5).all() and not node.v_reset.any() and not node.v_leak.any()
    assert list(graph.nodes["input"].input_type["input"]) == [4]
    assert list(graph.nodes["output"].output_type["output"]) == [5]
    assert sorted(graph.edges) == [("0", "1"), ("1", "output"), ("input", "0")]


def test_export__reset_that_nir_lacks__warns_once_and_names_the_neurons() -> None:
    net = nn.Sequential(
        snn.Leaky(0.9), nn.Linear(4, 4), snn.RLeaky(0.9, all_to_all=False), snn.Leaky(0.9, reset_mechanism="zero")
    )
    with pytest.warns(UserWarning, match="do not reset as NIR") as caught:
        export_to_nir(net, torch.zeros(2, 4))
    assert len(caught) == 1 and "0, 2 do not" in str(caught[0].message)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        export_to_nir(nn.Sequential(snn.Leaky(0.9, reset_mechanism="none")), torch.zeros(2, 4))


def test_export__single_layer__is_named_after_the_model() -> None:
    graph = export_to_nir(snn.Leaky(0.9, reset_mechanism="zero"), torch.zeros(2, 4), model_name="cell")
    assert set(graph.nodes) == {"input", "cell", "output"}


def test_export__ignored_dimensions__are_those_the_graph_lacks() -> None:
    net = nn.Sequential(nn.Conv2d(1, 2, 3), snn.Leaky(0.9, reset_mechanism="zero"))
    graph = export_to_nir(net, torch.zeros(1, 1, 5, 6), ignore_dims=[0])
    assert list(graph.nodes["input"].input_type["input"]) == [1, 5, 6]


def test_export__network_in_use__is_not_changed() -> None:
    net = nn.Sequential(nn.Linear(4, 5), snn.Leaky(0.9, init_hidden=True), nn.BatchNorm1d(5).eval())
    net(torch.ones(2, 4)).sum().backward()
    before = {name: buffer.clone() for name, buffer in net.named_buffers()}
    graph = write(net, torch.zeros(9, 4))
    assert all(torch.equal(v, before[k]) for k, v in net.named_buffers()) and net.training
    assert len(graph.nodes) == 5


def test_import__metadata_of_a_changed_graph__does_not_override_it() -> None:
    graph = write(snn.Leaky(0.9), torch.zeros(2, 3))
    graph.nodes["snntorch"].tau *= 2
    neuron = next(m for m in import_from_nir(graph).modules() if isinstance(m, snn.SpikingNeuron))
    torch.testing.assert_close(neuron.beta, torch.tensor(0.95))


def lif(**values: float) -> dict[str, Any]:
    given = {"tau": 1e-3, "r": 10.0, "v_leak": 0.0, "v_threshold": 1.0, "v_reset": 0.0, **values}
    return {key: np.linspace(1, 1.5, 3) * value for key, value in given.items()}


def cuba(**values: float) -> dict[str, Any]:
    given = lif(**{"tau_syn": 3e-4, "tau_mem": 1e-3, "w_in": 3.0, **values})
    del given["tau"]
    return given


def graph_of(*nodes: Any) -> Any:
    names = [*(f"n{i}" for i in range(len(nodes) - 1)), "neuron"]
    shape = nodes[0].input_type["input"]
    graph = {"in": nir.Input(input_type={"input": shape}), **dict(zip(names, nodes))}
    graph["out"] = nir.Output(output_type={"output": nodes[-1].output_type["output"]})
    order = ["in", *names, "out"]
    return nir.NIRGraph(graph, list(zip(order, order[1:])), type_check=False)


def euler(node: Any, x: Any, dt: float) -> Any:
    """NIR's equations in float64, one Euler step each; the current of a step acts in the same step."""
    syn = mem = np.zeros_like(x[0])
    out = []
    for x_t in x:
        drive = x_t
        if hasattr(node, "tau_syn"):
            syn = syn + dt / node.tau_syn * (node.w_in * x_t - syn)
            drive = syn
        if isinstance(node, (nir.IF, nir.I)):
            mem = mem + node.r * drive * (1 if (node.r == 1).all() else dt)
        else:
            tau = getattr(node, "tau_mem", getattr(node, "tau", None))
            mem = mem + dt / tau * (node.v_leak - mem + node.r * drive)
        if not hasattr(node, "v_threshold"):
            out.append(mem)
            continue
        spk = mem > node.v_threshold
        mem = np.where(spk, node.v_reset, mem)
        out.append(spk.astype(float))
    return np.stack(out)


ELSEWHERE = {"v_leak": 0.2, "v_reset": -0.3}
FOREIGN: dict[str, tuple[Any, float]] = {
    "lif": (nir.LIF(**lif()), DT),
    "lif_gain": (nir.LIF(**lif(tau=2.5e-3, r=1.0, v_threshold=0.1)), DT),
    "lif_at_rest_elsewhere": (nir.LIF(**lif(**ELSEWHERE)), DT),
    "lif_negative_gain": (nir.LIF(**lif(r=-5.0, v_threshold=0.3)), DT),
    "lif_other_dt": (nir.LIF(**lif(tau=5e-3, r=5.0)), 1e-3),
    "cuba": (nir.CubaLIF(**cuba()), DT),
    "cuba_at_rest_elsewhere": (nir.CubaLIF(**cuba(**ELSEWHERE, r=4.0)), DT),
    "if": (nir.IF(r=np.ones(3), v_threshold=np.array([1.0, 2.0, 3.0])), DT),
    "if_seconds": (nir.IF(r=np.full(3, 5e3), v_threshold=np.ones(3), v_reset=np.full(3, 0.25)), DT),
    "li": (nir.LI(tau=np.full(3, 1e-3), r=np.full(3, 4.0), v_leak=np.array([0.0, 0.5, -0.5])), DT),
    "i": (nir.I(r=np.full(3, 100.0)), DT),
    "cuba_li": (
        nir.CubaLI(
            tau_syn=np.full(3, 2e-4), tau_mem=np.full(3, 1e-3), r=np.full(3, 2.0), v_leak=np.full(3, 0.1), w_in=1.5
        ),
        DT,
    ),
}


@pytest.mark.parametrize("name", FOREIGN)
def test_import__node_of_another_program__follows_nirs_equations(name: str) -> None:
    node, dt = FOREIGN[name]
    net = import_from_nir(graph_of(node), dt=dt)
    x = frames(3)
    out, expected = over_time(net, x).detach(), euler(node, x.double().numpy(), dt)
    if hasattr(node, "v_threshold"):
        assert 0.02 < expected.mean() < 0.98
        assert (out.numpy() != expected).mean() < 2e-3
    else:
        np.testing.assert_allclose(out.numpy(), expected, rtol=1e-4, atol=1e-5)


def test_import__integrator_and_threshold__are_a_neuron_without_reset() -> None:
    nodes = (nir.LI(tau=np.full(3, 1e-3), r=np.full(3, 10.0), v_leak=np.zeros(3)), nir.Threshold(threshold=np.ones(3)))
    net = import_from_nir(graph_of(*nodes, nir.Scale(scale=np.array([1.0, 2.0, 3.0]))))
    x = frames(3)
    expected = over_time(nn.Sequential(snn.Leaky(0.9, reset_mechanism="none")), x) * torch.tensor([1.0, 2.0, 3.0])
    out = over_time(net, x)
    assert (out != expected).float().mean() < 1e-3 and out.any()
    x = x.requires_grad_()
    assert torch.autograd.grad(over_time(net, x).sum(), x)[0].any()


def recurrent_graph(weights: Any) -> Any:
    """The braille network of NIR's publication in small."""
    node = {key: np.full(4, value[0]) for key, value in cuba(r=10.0, w_in=3.0).items()}
    nodes = {
        "input": nir.Input(input_type={"input": np.array([2])}),
        "fc1": nir.Affine(weight=np.random.default_rng(0).normal(size=(4, 2)) * 2, bias=np.zeros(4)),
        "lif1.lif": nir.CubaLIF(**node),
        "lif1.w_rec": weights,
        "output": nir.Output(output_type={"output": np.array([4])}),
    }
    edges = [
        ("lif1.w_rec", "lif1.lif"),
        ("lif1.lif", "output"),
        ("input", "fc1"),
        ("lif1.lif", "lif1.w_rec"),
        ("fc1", "lif1.lif"),
    ]
    return nir.NIRGraph(nodes, edges, type_check=False)


W_REC = np.random.default_rng(1).normal(size=(4, 4))


@pytest.mark.parametrize("kind", ["affine", "linear", "diagonal", "scale", "sub_graph"])
def test_import__spiking_node_with_feedback__is_a_recurrent_neuron(kind: str) -> None:
    made = {
        "affine": nir.Affine(weight=W_REC, bias=np.array([0.1, -0.1, 0.2, 0.0])),
        "linear": nir.Linear(weight=W_REC),
        "diagonal": nir.Linear(weight=np.diag(W_REC[0])),
        "scale": nir.Scale(scale=W_REC[0]),
        "sub_graph": nir.Linear(weight=W_REC),
    }
    graph = recurrent_graph(made[kind])
    node = graph.nodes["lif1.lif"]
    if kind == "sub_graph":
        inner = {"lif": node, "w_rec": made[kind], "a": nir.Input({"input": [4]}), "b": nir.Output({"output": [4]})}
        edges = [("a", "lif"), ("lif", "w_rec"), ("w_rec", "lif"), ("lif", "b")]
        nodes = {name: graph.nodes[name] for name in ("input", "fc1", "output")}
        nodes["lif1"] = nir.NIRGraph(inner, edges, type_check=False)
        graph = nir.NIRGraph(nodes, [("input", "fc1"), ("fc1", "lif1"), ("lif1", "output")], type_check=False)
    net = import_from_nir(graph)
    assert isinstance(net.lif1, snn.RSynaptic)
    x = frames(2)
    weight = np.diag(W_REC[0]) if kind in ("diagonal", "scale") else W_REC
    syn = mem = spk = np.zeros((3, 4))
    expected = []
    for x_t in x.double().numpy():
        drive = x_t @ graph.nodes["fc1"].weight.T + spk @ weight.T + getattr(made[kind], "bias", 0)
        syn = syn + DT / node.tau_syn * (node.w_in * drive - syn)
        mem = mem + DT / node.tau_mem * (node.r * syn - mem)
        spk = (mem > 1).astype(float)
        mem = np.where(spk > 0, 0, mem)
        expected.append(spk)
    out = over_time(net, x)
    assert 0.02 < np.mean(expected) < 0.98 and torch.equal(torch.stack([net(x_t)[0] for x_t in x]), out)
    # one spike that rounding decides changes all that follow
    assert (out.detach().numpy() != np.stack(expected)).mean() < 5e-2


def test_import__branches__are_summed() -> None:
    nodes = {
        "in": nir.Input(input_type={"input": np.array([3])}),
        "a": nir.Linear(weight=np.eye(3)),
        "b": nir.Scale(scale=np.full(3, 2.0)),
        "out": nir.Output(output_type={"output": np.array([3])}),
        "lif": nir.LIF(**lif()),
    }
    edges = [("a", "lif"), ("lif", "out"), ("b", "lif"), ("in", "lif"), ("in", "b"), ("in", "a")]
    net = import_from_nir(nir.NIRGraph(nodes, edges, type_check=False))
    x = frames(3)
    expected = import_from_nir(graph_of(nir.Scale(scale=np.full(3, 4.0)), nir.LIF(**lif())))
    assert torch.equal(over_time(net, x), over_time(expected, x))


def their_network(**kwargs: Any) -> nn.Module:
    torch.manual_seed(3)
    kwargs["init_hidden"] = True

    def full(size: int, value: float) -> Tensor:
        return torch.full((size,), value)  # snnTorch's export fails on single values

    return nn.Sequential(
        nn.Linear(4, 5),
        snntorch.Leaky(full(5, 0.8), threshold=full(5, 0.5), **kwargs),
        nn.Linear(5, 3),
        snntorch.Synaptic(full(3, 0.5), full(3, 0.8), threshold=full(3, 0.5), **kwargs),
    )


def test_import__graph_of_snntorch__gives_the_spikes_of_snntorchs_neurons() -> None:
    theirs = their_network(reset_mechanism="zero", reset_delay=False)
    x = frames(4, scale=3.0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        graph = their_export.export_to_nir(theirs, x[0], ignore_dims=[0])
    expected = torch.stack([theirs(x_t) for x_t in x])
    out = over_time(import_from_nir(graph), x)
    assert (out != expected).float().mean() < 5e-3 and expected.any()


def test_export__network_of_snntorch__is_converted_first() -> None:
    theirs = their_network()
    x = frames(4, scale=3.0)
    expected = torch.stack([theirs(x_t) for x_t in x])
    assert expected.any()
    torch.testing.assert_close(over_time(import_from_nir(write(theirs, x[0])), x), expected)


def test_export__into_snntorch__gives_the_same_spikes() -> None:
    ours = snn.from_snntorch(their_network(reset_mechanism="zero", reset_delay=False))
    snn.utils.reset(ours)
    x = frames(4, scale=3.0)
    graph = export_to_nir(ours, x[0])
    theirs = their_import.import_from_nir(graph)
    state, out = None, []
    for x_t in x:
        spk, state = theirs(x_t, state)
        out.append(spk)
    expected = over_time(ours, x)
    assert (torch.stack(out) != expected).float().mean() < 5e-3 and expected.any()


def delayed() -> Any:
    return graph_of(nir.Delay(delay=np.full(3, DT)), nir.LIF(**lif()))


def cycle() -> Any:
    graph = graph_of(nir.LIF(**lif()), nir.LIF(**lif()))
    graph.edges.append(("neuron", "n0"))
    return graph


def shared_feedback() -> Any:
    graph = recurrent_graph(nir.Linear(weight=W_REC))
    shifted = {**vars(graph.nodes["lif1.lif"]), "v_reset": np.full(4, 0.5)}
    for key, value in shifted.items():
        setattr(graph.nodes["lif1.lif"], key, value)
    return graph


def two_outputs() -> Any:
    graph = graph_of(nir.LIF(**lif()))
    graph.nodes["more"] = nir.Output(output_type={"output": np.array([3])})
    graph.edges.append(("neuron", "more"))
    return graph


def unfed() -> Any:
    graph = graph_of(nir.LIF(**lif()))
    graph.nodes["alone"] = nir.LIF(**lif())
    return graph


BAD_GRAPHS: dict[str, tuple[Callable[[], Any], str]] = {
    "delay": (delayed, "'n0' is a Delay"),
    "cycle": (cycle, r"\['n0', 'neuron', 'out'\] lie on a cycle"),
    "recurrent node at rest elsewhere": (shared_feedback, "'lif1' has v_leak or v_reset"),
    "two outputs": (two_outputs, r"Output nodes \['out', 'more'\]"),
    "unfed": (unfed, "'alone' has no input"),
    "fast neuron": (lambda: graph_of(nir.LIF(**lif(tau=1e-5))), "smaller dt="),
}


@pytest.mark.parametrize("case", BAD_GRAPHS)
def test_import__graph_that_cannot_be_run__raises_and_names_the_node(case: str) -> None:
    make, message = BAD_GRAPHS[case]
    with pytest.raises(UnsupportedError, match=message):
        import_from_nir(make())


class Times(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x * 2


class Loop(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lif = snn.Leaky(0.9)

    def forward(self, x: Tensor) -> Tensor:
        return x if x.sum() > 0 else self.lif(x)[0]


class TwoResults(nn.Module):
    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return x, x


def inhibited() -> nn.Module:
    with pytest.warns(UserWarning):
        return snn.Leaky(0.9, inhibition=True, backend="reference")


BAD_NETWORKS: dict[str, tuple[Callable[[], nn.Module], str]] = {
    "fast lapicque": (lambda: snn.Lapicque(0.3), r"R \* C below its time_step"),
    "max pooling": (lambda: nn.MaxPool2d(2), "'0' is MaxPool2d"),
    "training batch norm": (lambda: nn.BatchNorm2d(1), r"net.eval\(\)"),
    "reflected padding": (lambda: nn.Conv2d(1, 1, 3, padding=1, padding_mode="reflect"), "'0' is Conv2d"),
    "alpha neuron": (lambda: snn.Alpha(0.9, 0.5), "'0' is a Alpha"),
    "delta neuron": (lambda: snn.DeltaLeaky(0.5, beta=0.9, init_hidden=True), "DeltaLeaky"),
    "quantised": (lambda: snn.Leaky(0.9, state_quant=lambda x: x, backend="reference"), "state_quant"),
    "inhibition": (inhibited, "inhibition=True"),
    "arithmetic": (Times, "calls mul"),
    "flat kernel": (lambda: nn.Conv2d(1, 1, (1, 3)), "square kernel"),
    "control flow": (Loop, "cannot be traced"),
    "two results": (TwoResults, "something else than one result"),
}


@pytest.mark.parametrize("case", BAD_NETWORKS)
def test_export__what_nir_cannot_express__raises_and_names_it(case: str) -> None:
    make, message = BAD_NETWORKS[case]
    with pytest.raises(UnsupportedError, match=message):
        export_to_nir(nn.Sequential(make()), torch.zeros(2, 1, 4, 4))


@pytest.mark.parametrize("dt", [0, -1e-4, float("nan"), float("inf"), "1 ms"])
def test_nir__dt_that_is_no_time__is_refused(dt: Any) -> None:
    with pytest.raises(ValueError, match="seconds of a time step"):
        export_to_nir(snn.Leaky(0.9), torch.zeros(2, 3), dt=dt)
    with pytest.raises(ValueError, match="seconds of a time step"):
        import_from_nir(write(snn.Leaky(0.9), torch.zeros(2, 3)), dt=dt)


def test_nir__not_installed__says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "nir", None)
    with pytest.raises(ImportError, match=r"pip install snn_ipu\[nir\]"):
        export_to_nir(snn.Leaky(0.9), torch.zeros(2, 3))
