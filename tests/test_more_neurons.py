"""Gated, stateless and delta neurons against snnTorch 1.0 where it is right, and against their equations elsewhere."""

from __future__ import annotations

import copy
import math
import pickle
from typing import Any, Callable

import pytest
import snntorch
import torch
from snntorch.functional.quant import state_quant
from torch import Tensor, nn

import snn_ipu as snn
from snn_ipu.errors import ShapeError, UnsupportedError

STEPS, BATCH = 40, 3
SLOPE = 2.0  # wide enough that every membrane has a gradient
QUANT = state_quant(num_bits=4, threshold=0.2)


def build(library: Any, kind: str, kwargs: dict[str, Any], grad: bool = True) -> nn.Module:
    torch.manual_seed(3)
    if grad:
        kwargs = {**kwargs, "spike_grad": library.surrogate.fast_sigmoid(slope=SLOPE)}
    return getattr(library, kind)(**copy.deepcopy(kwargs))


def pair(kind: str, kwargs: dict[str, Any], grad: bool = True, **more: Any) -> tuple[nn.Module, nn.Module]:
    """The same neuron of both libraries, with the same weights from the same seed and the same keys."""
    theirs, ours = build(snntorch, kind, kwargs, grad), build(snn, kind, {**kwargs, **more}, grad)
    assert theirs.state_dict().keys() == ours.state_dict().keys()
    for name, value in dict(ours.named_parameters()).items():
        assert torch.equal(value, dict(theirs.named_parameters())[name]), name
    return theirs, ours


def by_steps(neuron: nn.Module, x: Tensor) -> tuple[Tensor, list[Tensor]]:
    """The loop over time as snnTorch users write it: spikes, and every state [T, ...]."""
    spikes, states = [], []
    state = neuron.reset_mem()
    for x_t in x:
        out = neuron(x_t) if neuron.init_hidden else neuron(x_t, *state)
        spikes.append(out if isinstance(out, Tensor) else out[0])
        state = () if isinstance(out, Tensor) else out[1:]
        states.append(state)
    return torch.stack(spikes), [torch.stack(s) for s in zip(*states)]


def assert_same(ours: tuple[Tensor, ...], theirs: tuple[Tensor, ...], x: Tensor, nets: tuple[nn.Module, ...]) -> None:
    """Spikes first, then states; and the gradients of a random loss in x and in every parameter."""
    rate = (theirs[0] != 0).float().mean().item()
    assert 0.02 < rate < 0.98, f"{rate:.0%} of the steps spike: the case tests nothing"
    assert torch.equal(ours[0], theirs[0])
    for a, b in zip(ours[1:], theirs[1:]):
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-5)
    gradients = []
    for out, net in zip((ours, theirs), nets):
        generator = torch.Generator().manual_seed(1)
        loss = sum((o * torch.randn(o.shape, generator=generator)).sum() for o in out)
        named = {n: p for n, p in net.named_parameters() if p.requires_grad and n != "beta"}
        gradients.append(
            dict(
                zip(
                    ["x", *named], torch.autograd.grad(loss, [x, *named.values()], allow_unused=True, retain_graph=True)
                )
            )
        )
    assert gradients[0].keys() == gradients[1].keys()
    for name, expected in gradients[1].items():
        scale = expected.abs().max().item() + 1
        torch.testing.assert_close(
            gradients[0][name], expected, rtol=1e-4, atol=1e-5 * scale, msg=f"gradient of {name}"
        )


def inputs(*shape: int, scale: float = 1.0, steps: int = STEPS) -> Tensor:
    generator = torch.Generator().manual_seed(5)
    return (torch.randn(steps, BATCH, *shape, generator=generator) * scale).requires_grad_()


LSTM = {"threshold": 0.05, "learn_threshold": True}
IMAGE = (2, 6, 4)
GATED = [
    *(
        ("SLSTM", {"input_size": 5, "hidden_size": 5, "reset_mechanism": r, **LSTM})
        for r in ("none", "subtract", "zero")
    ),
    ("SLSTM", {"input_size": 5, "hidden_size": 5, "bias": False, **LSTM}),
    ("SLSTM", {"input_size": 5, "hidden_size": 5, "init_hidden": True, **LSTM}),
    ("SLSTM", {"input_size": 5, "hidden_size": 5, "init_hidden": True, "output": True, **LSTM}),
    *(
        ("SConv2dLSTM", {"in_channels": 2, "out_channels": 3, "kernel_size": k, "reset_mechanism": r, **pool, **LSTM})
        for k, r, pool in (
            (3, "none", {}),
            ((1, 3), "subtract", {"max_pool": 2}),
            (3, "zero", {"avg_pool": 2}),
            (3, "subtract", {"bias": False}),
        )
    ),
    (
        "SConv2dLSTM",
        {"in_channels": 2, "out_channels": 3, "kernel_size": 3, "max_pool": 2, "init_hidden": True, **LSTM},
    ),
]


@pytest.mark.parametrize(
    "kind, kwargs", GATED, ids=lambda v: v if isinstance(v, str) else "-".join(map(str, v.values()))
)
def test_gated_neuron__every_mode_of_snntorch__same_spikes_states_and_gradients(
    kind: str, kwargs: dict[str, Any]
) -> None:
    theirs, ours = pair(kind, kwargs)
    x = inputs(*(IMAGE if "Conv" in kind else (5,)), scale=2.0)
    (expected, states), (spk, mine) = by_steps(theirs, x), by_steps(ours, x)
    assert_same((spk, *mine), (expected, *states), x, (ours, theirs))
    if not kwargs.get("init_hidden"):
        spk, final, *traces = ours.sequence(x, trace=("syn", "mem"))
        assert_same((spk, *traces), (expected, *states), x, (ours, theirs))
        assert all(torch.equal(a, b[-1]) for a, b in zip(final, traces))


@pytest.mark.parametrize("kind", ["SLSTM", "SConv2dLSTM"])
def test_gated_neuron__quantised_states__same_as_snntorch(kind: str) -> None:
    sizes = {
        "SLSTM": {"input_size": 5, "hidden_size": 5},
        "SConv2dLSTM": {"in_channels": 2, "out_channels": 3, "kernel_size": 3},
    }
    kwargs = {**sizes[kind], "threshold": 0.1, "state_quant": QUANT}
    theirs, ours = pair(kind, kwargs, backend="reference")
    x = inputs(*((5,) if kind == "SLSTM" else IMAGE), scale=2.0, steps=10)
    for a, b in zip(by_steps(ours, x)[1], by_steps(theirs, x)[1]):
        torch.testing.assert_close(a, b)


def test_slstm__other_input_than_hidden_size__keeps_its_state_as_an_lstm_does() -> None:
    ours = snn.SLSTM(7, 5, threshold=0.1)
    lstm = nn.LSTM(7, 5)
    for name, parameter in ours.lstm_cell.named_parameters():
        getattr(lstm, f"{name}_l0").data.copy_(parameter.data)
    x = inputs(7)
    expected, (h, c) = lstm(x)
    spk, (syn, mem), membranes = ours.sequence(x, trace="mem")
    torch.testing.assert_close(membranes, expected, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close((mem, syn), (h[0], c[0]), rtol=1e-4, atol=1e-5)
    assert torch.equal(spk, (membranes > 0.1).float()) and spk.any()


def test_slstm__static_input_and_start_state__equals_the_loop() -> None:
    ours = snn.SLSTM(4, 3, threshold=0.05, reset_mechanism="subtract")
    x = inputs(4)[0]
    state = (torch.rand(BATCH, 3), torch.rand(BATCH, 3))
    spk, final = ours.sequence(x, state, num_steps=6)
    loop = []
    for _ in range(6):
        s, *state = ours(x, *state)
        loop.append(s)
    assert torch.equal(spk, torch.stack(loop)) and spk.any()
    assert all(torch.equal(a, b) for a, b in zip(final, state))


def test_slstm__inhibition__lets_the_largest_membrane_alone_spike() -> None:
    with pytest.warns(UserWarning, match="dense"):
        ours = snn.SLSTM(4, 6, threshold=0.0, inhibition=True, backend="reference")
    spk, _, mem = ours.sequence(inputs(4), trace="mem")
    assert spk.sum(-1).max() == 1
    assert torch.equal(spk.argmax(-1)[spk.sum(-1) == 1], mem.argmax(-1)[spk.sum(-1) == 1])


BETAS = {"one": 0.9, "per_channel": torch.tensor([0.1, 0.5, 0.8, 0.95])}


@pytest.mark.parametrize("window", [None, 1, 7, STEPS - 1, STEPS, 2 * STEPS], ids=str)
@pytest.mark.parametrize("beta", BETAS)
def test_state_leaky__every_window__same_spikes_membranes_and_gradients(beta: str, window: int | None) -> None:
    kwargs = {"beta": BETAS[beta], "channels": 4, "learn_threshold": True, "kernel_truncation_steps": window}
    theirs, ours = pair("StateLeaky", kwargs)
    x = inputs(4)
    assert_same(ours(x), theirs(x), x, (ours, theirs))


@pytest.mark.parametrize("window", [None, 5], ids=str)
def test_state_leaky__learned_tau__same_gradient_and_no_parameter_without_one(window: int | None) -> None:
    kwargs = {"beta": BETAS["per_channel"], "channels": 4, "learn_beta": True, "kernel_truncation_steps": window}
    theirs, ours = build(snntorch, "StateLeaky", kwargs), build(snn, "StateLeaky", kwargs)
    assert set(dict(ours.named_parameters())) == {"tau"}
    ours.load_state_dict(theirs.state_dict())
    assert ours.state_dict().keys() == theirs.state_dict().keys()
    torch.testing.assert_close(ours.beta, theirs.beta)
    x = inputs(4)
    gradients = []
    for net in (ours, theirs):
        spk, mem = net(x)
        gradients.append(torch.autograd.grad((spk.sin() + mem * mem).sum(), net.tau)[0])
    torch.testing.assert_close(*gradients, rtol=1e-4, atol=1e-4)


def test_state_leaky__window__forgets_a_huge_input_entirely() -> None:
    ours = snn.StateLeaky(0.9, 1, kernel_truncation_steps=4)
    x = torch.zeros(12, 1, 1)
    x[1], x[7] = 1e8, 1.0
    _, mem = ours(x)
    expected = torch.exp(-torch.arange(4) / ours.tau)
    torch.testing.assert_close(mem[7:11, 0, 0], expected)
    assert not mem[5:7].any() and not mem[11:].any()


def test_state_leaky__graded_spikes__are_scaled_once() -> None:
    ours = snn.StateLeaky(0.9, 3, graded_spikes_factor=0.5, learn_graded_spikes_factor=True)
    windowed = snn.StateLeaky(0.9, 3, graded_spikes_factor=0.5, kernel_truncation_steps=5)
    x = inputs(3)
    for net in (ours, windowed):
        spk, mem = net(x)
        assert torch.equal(spk, 0.5 * (mem > 1).float()) and spk.any()
    assert torch.autograd.grad(ours(x)[0].sum(), ours.graded_spikes_factor)[0] == (ours(x)[1] > 1).sum()


@pytest.mark.parametrize("window", [None, 6], ids=str)
def test_state_leaky__output_and_quantisation__as_snntorch(window: int | None) -> None:
    x = inputs(4)
    theirs, ours = pair(
        "StateLeaky", {"beta": 0.8, "channels": 4, "output": False, "kernel_truncation_steps": window}, False
    )
    torch.testing.assert_close(ours(x), theirs(x), rtol=1e-5, atol=1e-5)
    kwargs = {"beta": 0.8, "channels": 4, "state_quant": state_quant(num_bits=3), "kernel_truncation_steps": window}
    theirs, ours = pair("StateLeaky", kwargs, backend="reference")
    for a, b in zip(ours(x), theirs(x)):
        torch.testing.assert_close(a, b)


def test_state_leaky__sequence_in_parts__goes_on_from_the_state() -> None:
    ours = snn.StateLeaky(0.9, 4)
    x = inputs(4)
    whole, _ = ours(x)
    first, state = ours.sequence(x[:15])
    second, state = ours.sequence(x[15:], state)
    assert torch.equal(torch.cat((first, second)), whole)
    spk, _ = ours.advance(x[0], state)
    assert spk.shape == (BATCH, 4)
    with pytest.raises(UnsupportedError, match="window"):
        snn.StateLeaky(0.9, 4, kernel_truncation_steps=3).sequence(x, state)


def test_state_leaky__output_false_with_spike_settings__warns() -> None:
    with pytest.warns(UserWarning, match="no effect"):
        snn.StateLeaky(0.9, 4, output=False, graded_spikes_factor=torch.tensor([1.0, 2.0, 1.0, 1.0]))


@pytest.mark.parametrize("window", [None, 6], ids=str)
def test_linear_leaky__random_sequence__same_as_snntorch(window: int | None) -> None:
    kwargs = {
        "beta": 0.8,
        "in_features": 6,
        "out_features": 4,
        "learn_threshold": True,
        "kernel_truncation_steps": window,
    }
    theirs, ours = pair("LinearLeaky", kwargs)
    x = inputs(6, scale=3.0)
    assert_same(ours(x), theirs(x), x, (ours, theirs))
    without_bias = snn.LinearLeaky(0.8, 6, 4, bias=False, dtype=torch.float64)
    assert without_bias(x.double())[1].dtype == torch.float64


@pytest.mark.parametrize("beta", [None, 0.6, 1.5, torch.tensor([0.5])], ids=str)
@pytest.mark.parametrize("full", [False, True])
def test_leaky_parallel__every_mode_of_snntorch__same_spikes_and_gradients(full: bool, beta: Any) -> None:
    kwargs = {"input_size": 6, "hidden_size": 4, "beta": beta, "learn_beta": True, "learn_threshold": True}
    more = {"threshold": 0.4, "weight_hh_enable": full, "graded_spikes_factor": 0.5, "learn_graded_spikes_factor": True}
    theirs, ours = pair("LeakyParallel", {**kwargs, **more})
    x = inputs(6, scale=0.5 if full and beta is not None and beta > 1 else 2.0, steps=12)
    assert_same((ours(x),), (theirs(x),), x, (ours, theirs))
    assert torch.equal(ours(x[:, 0]), theirs(x[:, 0]))


def test_leaky_parallel__beta_per_neuron__decays_each_neuron_by_its_own() -> None:
    beta = torch.tensor([0.0, 0.5, 0.9])
    ours = snn.LeakyParallel(3, 3, beta=beta, bias=False)
    ours.rnn.weight_ih_l0.data = torch.eye(3)
    x = torch.zeros(3, 1, 3)
    x[0] = 1.0
    _, _, mem = ours.sequence(x, trace="mem")
    torch.testing.assert_close(mem[:, 0], torch.stack((torch.ones(3), beta, beta * beta)))
    assert not ours.rnn.weight_hh_l0.requires_grad
    full = snn.LeakyParallel(3, 3, beta=beta, weight_hh_enable=True)
    assert torch.equal(full.rnn.weight_hh_l0, beta.reshape(3, 1).expand(3, 3))


def test_leaky_parallel__one_neuron__starts_from_a_state() -> None:
    for full in (False, True):
        ours = snn.LeakyParallel(6, 4, beta=0.8, weight_hh_enable=full)
        x = inputs(6)
        whole = ours(x)
        first, state = ours.sequence(x[:7])
        assert torch.equal(torch.cat((first, ours.sequence(x[7:], state)[0])), whole) and whole.any()


@pytest.mark.parametrize("use_q_projection", [True, False])
def test_associative_leaky__short_sequence__same_as_snntorch(use_q_projection: bool) -> None:
    kwargs = {"in_dim": 5, "d_value": 3, "d_key": 2, "num_spiking_neurons": 6, "use_q_projection": use_q_projection}
    theirs, ours = pair("AssociativeLeaky", kwargs, grad=False)
    for net in (theirs, ours):
        net.threshold.fill_(0.1)
    x = inputs(5, steps=6)
    assert_same((ours(x),), (theirs(x),), x, (ours, theirs))


def test_associative_leaky__long_sequence__follows_the_recurrence() -> None:
    ours = snn.AssociativeLeaky.from_num_spiking_neurons(5, 9, use_q_projection=False)
    x = inputs(5, steps=200, scale=4.0)
    y, (mem,), trace = ours.sequence(x, trace="mem")
    expected = torch.zeros(BATCH, 3, 3)
    for x_t, y_t, mem_t in zip(x, y, trace):
        write = torch.einsum("bv,bk->bvk", ours.to_v(x_t), ours.to_k(x_t))
        expected = expected * torch.sigmoid(ours.to_alpha(x_t))[:, None] + write
        torch.testing.assert_close(mem_t, expected)
        assert torch.equal(y_t, (mem_t > 1).float().flatten(1))
    assert y[-20:].any() and torch.equal(mem, trace[-1])
    assert torch.equal(ours.sequence(x[100:], ours.sequence(x[:100])[1])[0], y[100:])


def test_delta_leaky__random_sequence__same_as_snntorch() -> None:
    kwargs = {"delta_threshold": 0.5, "beta": 1.1, "learn_beta": True}
    theirs, ours = build(snntorch, "DeltaLeaky", kwargs), build(snn, "DeltaLeaky", kwargs)
    assert theirs.state_dict().keys() == ours.state_dict().keys() and isinstance(ours, snn.Leaky)
    snntorch.SpikingNeuron.instances.remove(theirs)  # a DeltaLeaky breaks Leaky.reset_hidden of the whole process
    x = inputs(4, steps=8)
    recordings = []
    for net in (ours, theirs):
        mem, record = (None, None), []
        for x_t in x:
            spk, mem = net(x_t, mem)
            record.append((spk, *mem))
        recordings.append([torch.stack(r) for r in zip(*record)])
    assert_same(*(tuple(r) for r in recordings), x, (nn.Module(), nn.Module()))
    loss = sum((r * r).sum() for r in recordings[1])
    expected = torch.autograd.grad(loss, theirs.beta)[0]
    torch.testing.assert_close(torch.autograd.grad(sum((r * r).sum() for r in recordings[0]), ours.beta)[0], expected)
    spk, (mem, previous) = ours.sequence(x)
    assert torch.equal(spk, recordings[0][0]) and torch.equal(previous, recordings[0][1][-2])


def test_delta_leaky__hidden_state__is_reset_like_any_other() -> None:
    ours, other = snn.DeltaLeaky(0.5, beta=0.9, init_hidden=True), snn.Leaky(0.9, init_hidden=True)
    net = nn.ModuleList([ours, other])
    x = inputs(4)
    first = ours(x[0])
    other(x[0])
    ours(x[1])
    snn.utils.reset(net)
    again = ours(x[0])
    assert torch.equal(first[0], again[0]) and torch.equal(first[1][0], again[1][0]) and not again[1][1].any()


def test_graded_spikes__width_of_the_layer__scales_each_neuron() -> None:
    ours = snn.GradedSpikes(4, 2.0)
    theirs = snntorch.GradedSpikes(4, 2.0)
    assert ours.state_dict().keys() == theirs.state_dict().keys()
    ours.weights.data = theirs.weights.data = torch.arange(1.0, 5).reshape(4, 1)
    for shape in ((4,), (4, 4), (3, 4), (2, 3, 4)):
        assert torch.equal(ours(torch.ones(shape)), torch.arange(1.0, 5).expand(shape))
    assert torch.equal(ours(torch.ones(4, 3)), theirs(torch.ones(4, 3)))
    torch.manual_seed(0)
    for dtype in (torch.float16, torch.bfloat16, torch.float64):
        assert ours(torch.ones(3, 4, dtype=dtype)).dtype == dtype
    drawn = snn.GradedSpikes(4, None).weights
    torch.manual_seed(0)
    assert torch.equal(drawn, snntorch.GradedSpikes(4, None).weights)
    with pytest.raises(ShapeError, match=r"GradedSpikes\(4\).*\(2, 3\)"):
        ours(torch.ones(2, 3))


@pytest.mark.parametrize("name, shape", [("BatchNormTT1d", (6, 3)), ("BatchNormTT2d", (6, 3, 4, 5))])
def test_batch_norm_through_time__one_layer_per_step__equals_snntorch(name: str, shape: tuple[int, ...]) -> None:
    theirs, ours = (getattr(library, name)(3, 4, eps=1e-3, momentum=0.2) for library in (snntorch, snn))
    assert theirs.state_dict().keys() == ours.state_dict().keys() and len(ours) == 4
    x = torch.randn(4, *shape)
    for a, b, x_t in zip(theirs, ours, x):
        assert torch.equal(a(x_t), b(x_t)) and b.bias is None
    assert not list(getattr(snn, name)(3, 2, affine=False).parameters())


WHOLE: dict[str, Callable[[], nn.Module]] = {
    "StateLeaky": lambda: snn.StateLeaky(0.9, 4),
    "StateLeaky_window": lambda: snn.StateLeaky(0.9, 4, kernel_truncation_steps=3),
    "LinearLeaky": lambda: snn.LinearLeaky(0.9, 4, 4),
    "LeakyParallel": lambda: snn.LeakyParallel(4, 4, 0.9),
    "LeakyParallel_full": lambda: snn.LeakyParallel(4, 4, 0.9, weight_hh_enable=True),
    "AssociativeLeaky": lambda: snn.AssociativeLeaky(4, 2, 2, 4),
    "SLSTM": lambda: snn.SLSTM(4, 4, threshold=0.1, reset_mechanism="subtract"),
    "DeltaLeaky": lambda: snn.DeltaLeaky(0.5, beta=0.9),
}


@pytest.mark.parametrize("name", WHOLE)
def test_sequence_neuron__inside_a_network__unrolls_as_called(name: str) -> None:
    neuron = WHOLE[name]()
    net = nn.Sequential(nn.Linear(6, 4), neuron)
    x = inputs(6, scale=4.0)
    out, state = snn.unroll(net, x)
    assert torch.equal(out, neuron.sequence(net[0](x))[0]) and out.any()
    assert out.shape == (STEPS, BATCH, 4) and list(state) == ["1"]


@pytest.mark.parametrize("name", WHOLE)
def test_sequence_neuron__odd_inputs__are_taken(name: str) -> None:
    neuron = WHOLE[name]()
    x = inputs(4).detach()
    strided = torch.empty(4, BATCH, STEPS).permute(2, 1, 0).copy_(x)
    assert torch.equal(neuron.sequence(strided)[0], neuron.sequence(x)[0])
    assert neuron.sequence(torch.zeros(5, 0, 4))[0].shape == (5, 0, 4)
    assert neuron.sequence(torch.zeros(0, 3, 4))[0].shape == (0, 3, 4)
    static, repeated = neuron.sequence(x[0], num_steps=3)[0], neuron.sequence(x[:1].expand(3, -1, -1))[0]
    torch.testing.assert_close(static, repeated)
    with pytest.raises(ValueError, match="num_steps=0"):
        neuron.sequence(torch.zeros(3, 4), num_steps=0)
    again = pickle.loads(pickle.dumps(copy.deepcopy(neuron)))
    assert torch.equal(again.sequence(x)[0], neuron.sequence(x)[0])


@pytest.mark.parametrize("name", WHOLE)
def test_sequence_neuron__other_dtype__spikes_follow_the_input(name: str) -> None:
    neuron = WHOLE[name]()
    for dtype in (torch.float64, torch.bfloat16):
        spk, states = neuron.to(dtype).sequence(inputs(4).detach().to(dtype))
        assert spk.dtype == dtype
        if name != "AssociativeLeaky":
            assert states[0].dtype == (torch.float64 if dtype == torch.float64 else torch.float32)


@pytest.mark.parametrize("name", WHOLE)
def test_sequence_neuron__torch_compile__needs_no_graph_break(name: str) -> None:
    neuron = WHOLE[name]()
    x = inputs(4, steps=5)

    def run(x: Tensor) -> Tensor:
        return neuron.sequence(x)[0]

    assert torch.equal(torch.compile(run, backend="eager", fullgraph=True)(x), run(x))


BAD: dict[str, tuple[Callable[[], Any], type[Exception], str]] = {
    "both poolings": (lambda: snn.SConv2dLSTM(1, 2, 3, max_pool=2, avg_pool=2), ValueError, "one of the two"),
    "even kernel": (lambda: snn.SConv2dLSTM(1, 2, (3, 4)), ValueError, "odd"),
    "inhibition of images": (lambda: snn.SConv2dLSTM(1, 2, 3, inhibition=True), ValueError, "SLSTM"),
    "lstm width": (lambda: snn.SLSTM(3, 4)(torch.zeros(2, 5)), ShapeError, r"\[B, 3\]"),
    "lstm without time": (lambda: snn.SLSTM(3, 4).sequence(torch.zeros(2, 3)), ShapeError, r"\[T, B, 3\]"),
    "lstm state": (
        lambda: snn.SLSTM(3, 4)(torch.zeros(2, 3), torch.zeros(2, 4), torch.zeros(5, 4)),
        ShapeError,
        r"\(2, 4\)",
    ),
    "image channels": (lambda: snn.SConv2dLSTM(1, 2, 3)(torch.zeros(2, 3, 4, 4)), ShapeError, r"\[B, 1, H, W\]"),
    "beta of channels": (lambda: snn.StateLeaky(torch.zeros(3), 4), ValueError, r"\[4\]"),
    "empty window": (lambda: snn.StateLeaky(0.9, 4, kernel_truncation_steps=0), ValueError, "at least 1"),
    "channels": (lambda: snn.StateLeaky(0.9, 4)(torch.zeros(5, 2, 3)), ShapeError, r"\[T, B, 4\]"),
    "features": (lambda: snn.LinearLeaky(0.9, 4, 2)(torch.zeros(5, 2, 3)), ShapeError, r"\[T, B, 4\]"),
    "beta of neurons": (lambda: snn.LeakyParallel(3, 4, beta=torch.zeros(3)), ValueError, r"\[4\]"),
    "dropout": (lambda: snn.LeakyParallel(3, 4, dropout=0.5), ValueError, "nn.Dropout"),
    "input size": (lambda: snn.LeakyParallel(3, 4)(torch.zeros(5, 2, 4)), ShapeError, "3]"),
    "full matrix": (
        lambda: snn.LeakyParallel(3, 4).load_state_dict(snn.LeakyParallel(3, 4, weight_hh_enable=True).state_dict()),
        ValueError,
        "weight_hh_enable",
    ),
    "memory sizes": (lambda: snn.AssociativeLeaky(3, 2, 2, 5), ValueError, "= 4"),
    "no square": (lambda: snn.AssociativeLeaky.from_num_spiking_neurons(3, 5), ValueError, "4 or 9"),
    "no memory": (lambda: snn.AssociativeLeaky(3, 0, 2, None), ValueError, "positive"),
    "memory input": (lambda: snn.AssociativeLeaky(3, 2, 2, None)(torch.zeros(2, 3)), ShapeError, r"\[T, B, 3\]"),
    "delta threshold": (lambda: snn.DeltaLeaky(0.5, beta=0.9, threshold=2.0), ValueError, "threshold=..."),
    "delta reset": (lambda: snn.DeltaLeaky(0.5, 0.9, reset_mechanism="zero"), ValueError, "reset_mechanism=..."),
}


@pytest.mark.parametrize("case", BAD)
def test_neuron__arguments_that_do_not_fit__raise_and_say_what_fits(case: str) -> None:
    call, error, message = BAD[case]
    with pytest.raises(error, match=message):
        call()


def test_state_leaky__decay__is_the_one_of_its_documentation() -> None:
    assert math.isclose(snn.StateLeaky(0.9, 1).decay.item(), math.exp(-0.1), rel_tol=1e-6)
