"""torch.compile, torch.export and torch.func on neurons and networks."""

from __future__ import annotations

import warnings

import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

import snn_ipu as snn
from snn_ipu._compat import HAS_OPERATORS
from snn_ipu.functional import quant

pytestmark = pytest.mark.skipif(not HAS_OPERATORS, reason="registered operators came with torch 2.4")

NEURONS = {
    "Leaky": lambda: snn.Leaky(torch.linspace(0.5, 0.95, 6), learn_beta=True, learn_threshold=True),
    "Synaptic": lambda: snn.Synaptic(0.8, 0.9, learn_alpha=True, reset_mechanism="zero"),
    "Alpha": lambda: snn.Alpha(0.9, 0.8),
    "Lapicque": lambda: snn.Lapicque(beta=0.9, learn_beta=True),
    "RLeaky": lambda: snn.RLeaky(0.9, all_to_all=False, V=0.5),
    "RLeaky linear": lambda: snn.RLeaky(0.9, linear_features=6),
    "RSynaptic": lambda: snn.RSynaptic(0.8, 0.9, all_to_all=False, V=torch.full((6,), 0.3)),
    "IF": snn.IF,
    "ParametricLeaky": snn.ParametricLeaky,
    "AdaptiveLeaky": lambda: snn.AdaptiveLeaky(learn=("rho",)),
    "QIF": snn.QIF,
    "EIF": snn.EIF,
    "Izhikevich": snn.Izhikevich,
}


def _run(call, neuron, x):
    x = x.clone().requires_grad_()
    neuron.zero_grad()
    spk, states = call(neuron, x)
    (spk.sum() + sum((s * s).mean() for s in states)).backward()
    grads = [p.grad.clone() for p in neuron.parameters() if p.grad is not None]
    return [spk.detach(), *(s.detach() for s in states), x.grad, *grads]


def _soft(u):
    return torch.sigmoid(4 * u)


NO_KERNEL = {
    "inhibition": lambda: snn.Leaky(0.9, inhibition=True, learn_beta=True),
    "state_quant": lambda: snn.Leaky(0.9, state_quant=quant.state_quant(4)),
    "plain callable": lambda: snn.Synaptic(0.8, 0.9, spike_grad=_soft),
    "snntorch surrogate": lambda: snn.Leaky(0.9, spike_grad=pytest.importorskip("snntorch.surrogate").fast_sigmoid()),
    "reference": lambda: snn.Alpha(0.9, 0.8, backend="reference"),
    "reference linear": lambda: snn.RLeaky(0.9, linear_features=6, backend="reference"),
}


@pytest.mark.parametrize("name", NO_KERNEL)
@pytest.mark.filterwarnings("ignore:.*one neuron per sample may spike")
def test_compile__neuron_without_a_kernel__is_traced_as_plain_torch_with_one_warning(name):
    torch._dynamo.reset()
    torch.manual_seed(0)
    neuron, x = NO_KERNEL[name](), 2 * torch.randn(4, 3, 6)
    compiled = torch.compile(lambda neuron, x: neuron.sequence(x), fullgraph=True, backend="aot_eager")
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always", snn.FallbackWarning)
        found = _run(compiled, neuron, x)
    assert len([w for w in seen if w.category is snn.FallbackWarning]) == (not name.startswith("reference"))
    neuron.backend = "reference"
    for a, b in zip(found, _run(lambda neuron, x: neuron.sequence(x), neuron, x)):
        torch.testing.assert_close(a, b)


@pytest.mark.parametrize("name", NEURONS)
@pytest.mark.parametrize("form", ["sequence", "step"])
def test_compile__fullgraph__equals_eager_without_graph_breaks(name, form):
    torch._dynamo.reset()
    torch.manual_seed(0)
    neuron = NEURONS[name]()
    x = 2 * torch.randn(4, 3, 6)

    def sequence(neuron, x):
        return neuron.sequence(x)

    def step(neuron, x):
        first, *states = neuron(x[0], *(None,) * len(neuron.state_names))
        if neuron.state_names[0] == "spk":
            states = [first, *states]
        spk, *states = neuron(x[1], *states)
        return spk, states

    eager = _run(sequence if form == "sequence" else step, neuron, x)
    neuron.reset_mem()
    compiled = torch.compile(sequence if form == "sequence" else step, fullgraph=True, backend="aot_eager")
    for got, expected in zip(_run(compiled, neuron, x), eager):
        torch.testing.assert_close(got, expected)


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_opcheck__forward_operator__passes(dtype):
    lif = snn.Leaky(torch.linspace(0.5, 0.9, 5), learn_beta=True)
    x = torch.randn(3, 2, 5).to(dtype).requires_grad_()
    state = torch.float64 if dtype == torch.float64 else torch.float32
    params = [p.detach().to(state).requires_grad_(p.requires_grad) for p in lif.params().values()]
    initial = [torch.zeros(2, 5, dtype=state)]
    torch.library.opcheck(
        torch.ops.snn_ipu.scan.default, (x, initial, params, lif.operator(), 3, False, False, "mem", True, "beta")
    )


def _floor(mem):
    return torch.where(mem > 0.5, torch.full_like(mem, 0.5), torch.zeros_like(mem))


def _ceil(mem):
    return torch.where(mem > 0.25, torch.full_like(mem, 1.5), torch.zeros_like(mem))


class _One(nn.Module):
    """Networks of one class share the code that torch.compile compiles."""

    def __init__(self, neuron):
        super().__init__()
        self.neuron = neuron

    def forward(self, x):
        return self.neuron.sequence(x)[0]


TWINS = {
    "reset": lambda: [snn.Leaky(0.9, reset_mechanism=r) for r in ("subtract", "zero", "none")],
    "delay": lambda: [snn.Leaky(0.9, reset_delay=d) for d in (True, False)],
    "state_quant": lambda: [snn.Leaky(0.9, state_quant=q) for q in (_floor, _ceil)],
    "solved": lambda: [snn.Lapicque(R=3.0, C=2.0), snn.Lapicque(beta=0.9, R=3.0)],
    "one to one": lambda: [snn.RLeaky(0.9, all_to_all=False, reset_mechanism=r) for r in ("subtract", "zero")],
    "gated": lambda: [snn.SLSTM(3, 3, threshold=0.02, reset_mechanism=r) for r in ("none", "zero", "subtract")],
    "surrogate": lambda: [snn.Leaky(0.9, surrogate_disable=d) for d in (False, True)],
    "class": lambda: [snn.Leaky(0.9), snn.Synaptic(0.5, 0.9), snn.QIF()],
}


@pytest.mark.parametrize("name", TWINS)
def test_compile__networks_of_one_class_with_other_neurons__are_told_apart(name):
    torch._dynamo.reset()
    torch.manual_seed(0)
    x = torch.rand(20, 2, 3)
    for neuron in TWINS[name]():
        net = _One(neuron)
        compiled = torch.compile(net, fullgraph=True, backend="aot_eager")
        seen = []
        for call in (compiled, net):
            current = x.clone().requires_grad_()
            spk = call(current)
            if spk.requires_grad:
                spk.sum().backward()
            seen.append((spk.detach(), current.grad))
        assert torch.equal(seen[0][0], seen[1][0])
        torch.testing.assert_close(seen[0][1], seen[1][1])


def test_compile__reset_mechanism_set_later__is_followed():
    torch._dynamo.reset()
    net, x = _One(snn.Leaky(0.9)), torch.rand(20, 2, 3)
    compiled = torch.compile(net, fullgraph=True, backend="aot_eager")
    sums = []
    for net.neuron.reset_mechanism in ("subtract", "zero", "none"):
        assert torch.equal(compiled(x), net(x))
        sums.append(compiled(x).sum().item())
    assert len(set(sums)) == 3


class _Calls(TorchDispatchMode):
    """The operators of this library that run, with what they are given."""

    def __init__(self):
        super().__init__()
        self.seen = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if func.namespace == "snn_ipu":
            self.seen.append((func, args))
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("name", [n for n in NEURONS if n != "RLeaky linear"])
@pytest.mark.parametrize("form", ["sequence", "static", "step"])
def test_opcheck__operators_as_a_neuron_calls_them__pass(name, form):
    torch.manual_seed(0)
    neuron, x = NEURONS[name](), torch.randn(3, 2, 6, requires_grad=True)
    with _Calls() as calls:
        if form == "step":
            spk, states = neuron.advance(x[0], [torch.zeros(2, 6) for _ in neuron.state_names])
        else:
            spk, states = neuron.sequence(x[0] if form == "static" else x, num_steps=4 if form == "static" else None)
        (spk.sum() + states[-1].square().sum()).backward()
    forward, backward = calls.seen
    assert forward[0] is torch.ops.snn_ipu.scan.default and backward[0] is torch.ops.snn_ipu.scan_backward.default
    torch.library.opcheck(*forward)
    # It has no derivative of its own, as kernels have none of the second order.
    torch.library.opcheck(*backward, test_utils=("test_schema", "test_faketensor"))


def test_compile__inductor_network__trains_as_eager():
    torch._dynamo.reset()
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(6, 8), snn.Leaky(0.9), nn.Linear(8, 4), snn.Leaky(0.9))
    x = torch.rand(5, 7, 6)

    def loss(net, x):
        return snn.unroll(net, x)[0].sum(0).square().mean()

    loss(net, x).backward()
    eager = [p.grad.clone() for p in net.parameters()]
    net.zero_grad()

    def by_hand(x):
        spk, _ = net[1].sequence(net[0](x))
        spk, _ = net[3].sequence(net[2](spk))
        return spk.sum(0).square().mean()

    torch.compile(by_hand, fullgraph=True)(x).backward()
    for p, expected in zip(net.parameters(), eager):
        torch.testing.assert_close(p.grad, expected)


def test_compile__new_batch_size__still_equals_eager():
    torch._dynamo.reset()
    lif = snn.Leaky(0.9)
    compiled = torch.compile(lambda x: lif.sequence(x)[0], fullgraph=True, backend="aot_eager")
    for batch in (3, 5, 8):
        x = 2 * torch.randn(4, batch, 6)
        assert torch.equal(compiled(x), lif.sequence(x)[0])


def test_export__inference_network__equals_eager():
    net = nn.Sequential(nn.Linear(6, 8), snn.Leaky(0.9, init_hidden=True)).eval()

    class Steps(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear, self.lif = net[0], net[1]

        def forward(self, x):
            return self.lif.sequence(self.linear(x))[0]

    x = torch.randn(5, 2, 6)
    exported = torch.export.export(Steps(), (x,))
    assert any("snn_ipu" in str(node.target) for node in exported.graph.nodes)
    assert torch.equal(exported.module()(x), Steps()(x))


def test_operator__form_of_no_module__is_an_error_that_says_so():
    with pytest.raises(snn.errors.BackendMissingError, match="Build it and compile"):
        torch.ops.snn_ipu.scan(torch.zeros(2, 3), [], [], "nobody-0", 2, False, False, "", False, "")


def test_functional_call__other_parameters__are_used():
    net = nn.Sequential(nn.Linear(4, 3), snn.Leaky(0.5, learn_beta=True))
    params = {name: p.detach().clone() for name, p in net.named_parameters()}
    params["1.beta"] = torch.tensor(0.9)
    x = torch.rand(6, 2, 4)
    replaced = torch.func.functional_call(net[1], {"beta": params["1.beta"]}, (net[0](x[0]),))
    expected = snn.Leaky(0.9)(net[0](x[0]))
    assert torch.equal(replaced[1], expected[1])


def test_vmap__over_models__equals_one_by_one_on_the_reference_backend():
    torch.manual_seed(0)
    betas = torch.tensor([0.5, 0.7, 0.9])
    lif = snn.Leaky(0.5, learn_beta=True, backend="reference")
    x = 2 * torch.randn(6, 4, 5)

    def loss(beta, x):
        spk, state = torch.func.functional_call(_Sequence(lif), {"neuron.beta": beta}, (x,))
        return spk.sum() + state[0].sum()

    grads = torch.func.vmap(torch.func.grad(loss), in_dims=(0, None))(betas, x)
    for beta, grad in zip(betas, grads):
        alone = snn.Leaky(beta.clone(), learn_beta=True)
        spk, state = alone.sequence(x)
        (spk.sum() + state[0].sum()).backward()
        torch.testing.assert_close(alone.beta.grad, grad)


class _Sequence(nn.Module):
    def __init__(self, neuron):
        super().__init__()
        self.neuron = neuron

    def forward(self, x):
        return self.neuron.sequence(x)


def test_vmap__cpu_backend_asked_for__is_refused_with_the_reason():
    lif = snn.Leaky(0.9, backend="cpu")
    with pytest.raises(snn.errors.UnsupportedError, match="vmap"):
        torch.func.vmap(lambda x: lif.sequence(x)[0])(torch.randn(3, 4, 2, 5))


def _input_grad(call, x):
    x = x.clone().requires_grad_()
    call(x)[0].sum().backward()
    return x.grad


def test_compile__surrogates_of_one_name_and_other_bodies__keep_their_own_gradients():
    torch._dynamo.reset()

    def make(scale):
        @snn.surrogate.define(width=0.5)
        def triangle(u, width):
            return scale * torch.relu(1 - u.abs() / width)

        return snn.Leaky(0.9, spike_grad=triangle())

    x = torch.randn(4, 3, 6)
    neurons = make(1.0), make(10.0)
    compiled = [torch.compile(n.sequence, backend="aot_eager") for n in neurons]
    for _ in range(2):
        for neuron, call in zip(neurons, compiled):
            torch.testing.assert_close(_input_grad(call, x), _input_grad(neuron.sequence, x))


@pytest.mark.parametrize(
    "make",
    [
        lambda grad: snn.Leaky(0.9, spike_grad=grad),
        lambda grad: snn.SLSTM(6, 6, spike_grad=grad),
        lambda grad: snn.SConv2dLSTM(3, 2, 3, spike_grad=grad),
        lambda grad: snn.StateLeaky(0.9, channels=6, spike_grad=grad),
    ],
    ids=["Leaky", "SLSTM", "SConv2dLSTM", "StateLeaky"],
)
def test_compile__surrogate_changed_afterwards__is_the_one_that_runs(make):
    torch._dynamo.reset()
    neuron = make(snn.surrogate.fast_sigmoid(slope=5))
    call = torch.compile(neuron.sequence, backend="aot_eager", fullgraph=True)
    x = torch.randn(4, 3, 3, 6, 6) if isinstance(neuron, snn.SConv2dLSTM) else torch.randn(4, 3, 6)
    found = []
    for spike_grad in (neuron.spike_grad, snn.surrogate.fast_sigmoid(slope=50), snn.surrogate.atan()):
        neuron.spike_grad = spike_grad
        found.append(_input_grad(call, x))
        torch.testing.assert_close(found[-1], _input_grad(neuron.sequence, x))
    assert not torch.allclose(found[0], found[1])
