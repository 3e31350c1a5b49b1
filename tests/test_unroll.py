"""`unroll` against the loop over time that a user would write over the same modules."""

from __future__ import annotations

import copy
import gc
import weakref
from typing import Any, Callable, NamedTuple

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import snn_ipu as snn
from snn_ipu.errors import ShapeError, TraceError

STEPS, BATCH = 5, 3
SPIKY = snn.surrogate.fast_sigmoid(slope=2)


def lif(kind: str = "Leaky", *args: Any, **kwargs: Any) -> snn.SpikingNeuron:
    return getattr(snn, kind)(*(args or (0.75,)), spike_grad=SPIKY, backend="reference", **kwargs)


def hidden(kind: str = "Leaky", *args: Any, **kwargs: Any) -> snn.SpikingNeuron:
    """A neuron for the hand-written loop over nn.Sequential."""
    return lif(kind, *args, init_hidden=True, **kwargs)


class Net(nn.Module):
    """A forward given as a function of the module and the frame, over named layers."""

    def __init__(self, run: Callable[[Any, Tensor], Any], **layers: nn.Module):
        super().__init__()
        self.run = run
        for name, layer in layers.items():
            self.add_module(name, layer)

    def forward(self, x: Tensor) -> Any:
        return self.run(self, x)


def loop(net: nn.Module, x: Tensor, num_steps: int | None = None) -> Any:
    """Every step by hand, from no state."""
    snn.utils.reset(net)
    frames = x if num_steps is None else [x] * num_steps
    outputs = [net(frame) for frame in frames]

    def stack(values: list[Any]) -> Any:
        if isinstance(values[0], dict):
            return {k: stack([v[k] for v in values]) for k in values[0]}
        if isinstance(values[0], tuple) and hasattr(values[0], "_fields"):
            return type(values[0])(*map(stack, zip(*values)))
        if isinstance(values[0], (tuple, list)):
            return type(values[0])(stack(list(v)) for v in zip(*values))
        return torch.stack(values)

    return stack(outputs)


def flat(out: Any) -> list[Tensor]:
    if isinstance(out, Tensor):
        return [out]
    return [t for v in (out.values() if isinstance(out, dict) else out) for t in flat(v)]


def assert_equals_the_loop(net: nn.Module, x: Tensor, num_steps: int | None = None, spikes: bool = True) -> None:
    """Outputs, final states, and gradients of the input and of every parameter."""
    by_hand = copy.deepcopy(net)
    x_unrolled, x_by_hand = (x.clone().requires_grad_() for _ in range(2))
    out, state = snn.unroll(net, x_unrolled, num_steps)
    expected = loop(by_hand, x_by_hand, num_steps)
    assert type(out) is type(expected)
    pairs = list(zip(flat(out), flat(expected)))
    assert len(flat(out)) == len(flat(expected)) > 0
    if spikes:
        assert 0.05 < flat(expected)[0].mean() < 0.95, "the output hardly spikes: the case tests nothing"
    for a, b in pairs:
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-6)
    for path, module in by_hand.named_modules():
        if isinstance(module, snn.SpikingNeuron):
            for name, final in zip(module.state_names, state[path]):
                torch.testing.assert_close(final, getattr(module, name), rtol=1e-5, atol=1e-6)
    weights = [torch.randn(a.shape, generator=torch.Generator().manual_seed(i)) for i, (a, _) in enumerate(pairs)]
    sum((a * w).sum() for (a, _), w in zip(pairs, weights)).backward()
    sum((b * w).sum() for (_, b), w in zip(pairs, weights)).backward()
    torch.testing.assert_close(x_unrolled.grad, x_by_hand.grad, rtol=1e-4, atol=1e-5)
    assert x_unrolled.grad.any()
    for (name, p), q in zip(net.named_parameters(), by_hand.parameters()):
        assert (p.grad is None) == (q.grad is None), name
        if p.grad is not None:
            torch.testing.assert_close(p.grad, q.grad, rtol=1e-4, atol=1e-5, msg=lambda m, n=name: f"{n}: {m}")


def dense(*, first: int = 6, last: int = 4) -> nn.Sequential:
    return nn.Sequential(
        nn.Flatten(), nn.Linear(first, 8), hidden(learn_beta=True), nn.Linear(8, last), hidden("Synaptic", 0.5, 0.75)
    )


def image_net() -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(2, 4, 3, padding=1),
        nn.BatchNorm2d(4),
        nn.MaxPool2d(2),
        hidden(),
        nn.Conv2d(4, 3, 3),
        nn.AvgPool2d(2),
        hidden("Leaky", torch.full((3, 1, 1), 0.5)),
        nn.Flatten(),
        nn.Linear(3, 4),
        hidden("Leaky", 0.9, reset_mechanism="zero"),
    )


def residual(self: Any, x: Tensor) -> Tensor:
    first = self.lif1(self.fc1(x))
    return self.lif2(self.fc2(first) + first + x)


def unpacked(self: Any, x: Tensor) -> tuple[Tensor, Tensor]:
    spk, _ = self.lif1(self.fc1(x))
    spk, mem = self.lif2(self.fc2(spk))
    return spk, mem


def functional(self: Any, x: Tensor) -> Tensor:
    x = F.relu(self.fc1(x.view(x.size(0), -1)))
    x = torch.cat([x, 2 * x[:, :2]], dim=1)
    spk = self.lif1(x)
    spk = torch.flatten(spk.unsqueeze(1), 1)
    return self.lif2(self.fc2(spk * 0.5 + torch.sigmoid(spk)))


def shaped(self: Any, x: Tensor) -> Tensor:
    batch = x.shape[0]
    spk = self.lif1(self.fc1(x.reshape(batch, -1)))
    first, second = (spk + spk.new_zeros(batch, 1)).view(batch * 2 // 2, -1).chunk(2, dim=1)
    return self.lif2(self.fc2(torch.cat((second, first), -1)))


def nested(self: Any, x: Tensor) -> Tensor:
    return self.head(self.blocks[1](self.blocks[0](x)) + self.blocks[0].fc(x))


class Block(nn.Module):
    def __init__(self, width: int = 6):
        super().__init__()
        self.fc = nn.Linear(width, width)
        self.lif = hidden()

    def forward(self, x: Tensor) -> Tensor:
        return self.lif(self.fc(x))


class Both(NamedTuple):
    spk: Tensor
    cur: Tensor


def several_outputs(self: Any, x: Tensor) -> dict[str, Any]:
    cur = self.fc1(x)
    spk, mem = self.lif1(cur)
    return {"out": (spk, mem), "pair": Both(self.lif2(self.fc2(spk)), cur), "all": [cur.relu(), spk.mean(1)]}


FC = {"fc1": (6, 8), "fc2": (8, 8)}


def build(name: str) -> tuple[nn.Module, tuple[int, ...]]:
    """A network and the shape of its frames."""
    torch.manual_seed(4)
    fc = {n: nn.Linear(*sizes) for n, sizes in FC.items()}
    nets: dict[str, Callable[[], tuple[nn.Module, tuple[int, ...]]]] = {
        "dense": lambda: (dense(), (2, 3)),
        "images": lambda: (image_net().eval(), (2, 8, 8)),
        "residual": lambda: (
            Net(residual, fc1=nn.Linear(6, 6), fc2=nn.Linear(6, 6), lif1=hidden(), lif2=hidden()),
            (6,),
        ),
        "unpacked": lambda: (Net(unpacked, **fc, lif1=lif(), lif2=lif("Leaky", 0.5, learn_threshold=True)), (6,)),
        "functional": lambda: (
            Net(functional, fc1=nn.Linear(6, 8), fc2=nn.Linear(10, 4), lif1=hidden(), lif2=hidden()),
            (2, 3),
        ),
        "shaped": lambda: (Net(shaped, **fc, lif1=hidden(), lif2=hidden()), (2, 3)),
        "nested": lambda: (
            Net(nested, blocks=nn.ModuleList([Block(), Block()]), head=nn.Sequential(nn.Linear(6, 4), Block(4))),
            (6,),
        ),
        "recurrent": lambda: (
            nn.Sequential(
                nn.Linear(6, 8),
                hidden("RLeaky", 0.75, linear_features=8),
                nn.Linear(8, 4),
                hidden("RSynaptic", 0.5, 0.75, all_to_all=False, V=0.5),
            ),
            (6,),
        ),
        "recurrent_image": lambda: (
            nn.Sequential(nn.Conv2d(1, 2, 3), hidden("RLeaky", 0.75, conv2d_channels=2, kernel_size=3)),
            (1, 5, 6),
        ),
        "several_outputs": lambda: (Net(several_outputs, **fc, lif1=lif(), lif2=hidden()), (6,)),
        "one_neuron": lambda: (hidden(), (6,)),
    }
    net, frame = nets[name]()
    with torch.no_grad():
        for module in net.modules():
            if isinstance(module, (nn.Linear, nn.Conv2d)):
                module.weight.mul_(3)
    return net, frame


NAMES = (
    "dense",
    "images",
    "residual",
    "unpacked",
    "functional",
    "shaped",
    "nested",
    "recurrent",
    "recurrent_image",
    "several_outputs",
    "one_neuron",
)


def inputs(*shape: int, seed: int = 1) -> Tensor:
    return 0.5 + 2 * torch.randn(shape, generator=torch.Generator().manual_seed(seed))


# Equal to the loop


@pytest.mark.parametrize("name", NAMES)
def test_unroll__input_over_time__equals_the_loop(name: str) -> None:
    net, frame = build(name)
    assert_equals_the_loop(net, inputs(STEPS, BATCH, *frame))


@pytest.mark.parametrize("name", NAMES)
def test_unroll__static_input__equals_the_loop(name: str) -> None:
    net, frame = build(name)
    assert_equals_the_loop(net, inputs(BATCH, *frame), STEPS)


def test_unroll__on_the_compiled_backend__equals_the_loop() -> None:
    net, frame = build("dense")
    for module in net.modules():
        if isinstance(module, snn.SpikingNeuron):
            module.backend = "cpu"
    assert_equals_the_loop(net, inputs(STEPS, BATCH, *frame))


def test_unroll__one_sample_and_one_step__keeps_both_axes() -> None:
    net, frame = build("dense")
    for x, num_steps in ((inputs(1, 1, *frame), None), (inputs(1, *frame), 1)):
        assert snn.unroll(net, x, num_steps)[0].shape == (1, 1, 4)


@pytest.mark.parametrize("shape", [(STEPS, 0), (0, BATCH)], ids=["no_samples", "no_steps"])
def test_unroll__empty__returns_empty_outputs_and_states(shape: tuple[int, int]) -> None:
    net, frame = build("dense")
    out, state = snn.unroll(net, torch.zeros(*shape, *frame))
    assert out.shape == (*shape, 4)
    assert [s.shape for s in state["4"]] == [(shape[1], 4)] * 2 and not state["4"][1].any()


def test_unroll__static_input_of_no_samples__returns_empty_outputs() -> None:
    net, frame = build("dense")
    assert snn.unroll(net, torch.zeros(0, *frame), STEPS)[0].shape == (STEPS, 0, 4)


def test_unroll__in_two_parts_with_the_state__equals_one_run() -> None:
    net, frame = build("recurrent")
    x = inputs(STEPS, BATCH, *frame)
    whole, final = snn.unroll(net, x)
    first, state = snn.unroll(net, x[:2])
    second, last = snn.unroll(net, x[2:], state=state)
    assert whole.any() and torch.equal(torch.cat([first, second]), whole)
    assert last.keys() == final.keys() == {"1", "3"}
    for path in final:
        for a, b in zip(last[path], final[path]):
            torch.testing.assert_close(a, b)


def test_unroll__state_of_some_neurons__starts_the_others_anew() -> None:
    net, frame = build("dense")
    x = inputs(STEPS, BATCH, *frame)
    _, state = snn.unroll(net, x)
    out, _ = snn.unroll(net, x, state={"2": state["2"]})
    assert not torch.equal(out, snn.unroll(net, x)[0])


def test_unroll__state__carries_the_gradient_and_can_be_detached() -> None:
    net, frame = build("one_neuron")
    x = inputs(STEPS, BATCH, *frame).requires_grad_()
    _, state = snn.unroll(net, x[:2])
    snn.unroll(net, x[2:], state={p: tuple(s.detach() for s in v) for p, v in state.items()})[1][""][0].sum().backward()
    assert not x.grad[:2].any() and x.grad[2:].any()
    snn.unroll(net, x[2:], state=state)[1][""][0].sum().backward()
    assert x.grad[:2].any()


def test_unroll__hidden_state_of_the_modules__is_neither_read_nor_changed() -> None:
    net, frame = build("dense")
    x = inputs(STEPS, BATCH, *frame)
    expected, _ = snn.unroll(net, x)
    net(10 * x[0])
    before = net[2].mem.clone()
    out, _ = snn.unroll(net, x)
    assert torch.equal(out, expected) and torch.equal(net[2].mem, before)


def test_unroll__neuron_that_is_not_unpacked__stands_for_its_spikes() -> None:
    torch.manual_seed(4)
    plain = nn.Sequential(nn.Linear(6, 8), lif(), nn.Linear(8, 4), lif())
    twin = nn.Sequential(nn.Linear(6, 8), hidden(), nn.Linear(8, 4), hidden())
    twin.load_state_dict(plain.state_dict())
    x = inputs(STEPS, BATCH, 6)
    out, _ = snn.unroll(plain, x)
    assert isinstance(out, Tensor) and torch.equal(out, loop(twin, x))


@pytest.mark.parametrize(
    "run",
    [
        lambda self, x: self.lif(self.fc(x))[-1],
        lambda self, x: self.lif(self.fc(x))[1:],
        lambda self, x: (lambda out: (out[0], out))(self.lif(self.fc(x))),
        lambda self, x: {"mem": self.lif(self.fc(x))[2]},
    ],
    ids=["last", "slice", "whole", "third"],
)
def test_unroll__states_picked_in_other_ways__equal_the_loop(run: Callable[[Any, Tensor], Any]) -> None:
    torch.manual_seed(4)
    net = Net(run, fc=nn.Linear(6, 4), lif=lif("Synaptic", 0.5, 0.75))
    assert_equals_the_loop(net, inputs(STEPS, BATCH, 6), spikes=False)


def test_unroll__neuron_with_init_hidden_and_output__is_unpacked() -> None:
    torch.manual_seed(4)
    net = Net(unpacked, fc1=nn.Linear(6, 8), fc2=nn.Linear(8, 8), lif1=hidden(output=True), lif2=hidden(output=True))
    assert_equals_the_loop(net, 2 * inputs(STEPS, BATCH, 6))


@pytest.mark.parametrize("backend", ["reference", "cpu"])
def test_unroll__layers_that_work_in_place__equal_the_loop(backend: str) -> None:
    torch.manual_seed(0)
    net = nn.Sequential(
        nn.Linear(6, 8), hidden(), nn.ReLU(inplace=True), nn.Dropout(0.0, inplace=True), nn.Linear(8, 4), hidden()
    )
    net[1].backend = net[5].backend = backend
    with torch.no_grad():
        net[4].weight.mul_(5)
    assert_equals_the_loop(net, 4 * inputs(STEPS, BATCH, 6))


def test_unroll__network_that_has_been_run__is_freed() -> None:
    net, frame = build("dense")
    snn.unroll(net, inputs(STEPS, BATCH, *frame))
    gone = weakref.ref(net)
    del net
    gc.collect()
    assert gone() is None


# What is computed how often


def counted(module: nn.Module) -> list[tuple[int, ...]]:
    """Shapes of the inputs that a module is called with, filled by a hook."""
    shapes: list[tuple[int, ...]] = []
    module.register_forward_hook(lambda _, args, out: shapes.append(tuple(args[0].shape)))
    return shapes


def test_unroll__what_a_static_input_alone_feeds__is_computed_once() -> None:
    net, frame = build("dense")
    first, second = counted(net[1]), counted(net[3])
    snn.unroll(net, inputs(BATCH, *frame), STEPS)
    assert first == [(BATCH, 6)] and second == [(STEPS * BATCH, 8)]


def test_unroll__input_over_time__calls_every_layer_once_with_all_frames() -> None:
    net, frame = build("dense")
    first, second = counted(net[1]), counted(net[3])
    snn.unroll(net, inputs(STEPS, BATCH, *frame))
    assert first == [(STEPS * BATCH, 6)] and second == [(STEPS * BATCH, 8)]


def test_unroll__neurons__are_not_called_step_by_step(monkeypatch: pytest.MonkeyPatch) -> None:
    net, frame = build("dense")
    monkeypatch.setattr(snn.SpikingNeuron, "forward", lambda *a: pytest.fail("a neuron was called for one step"))
    assert snn.unroll(net, inputs(STEPS, BATCH, *frame))[0].any()


def test_unroll__second_call__does_not_trace_again_unless_the_network_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    from torch import fx

    traces: list[nn.Module] = []
    original = fx.Tracer.trace
    monkeypatch.setattr(fx.Tracer, "trace", lambda self, root, *a: (traces.append(root), original(self, root, *a))[1])
    net, frame = build("dense")
    x = inputs(STEPS, BATCH, *frame)
    snn.unroll(net, x)
    snn.unroll(net, 2 * x)
    assert len(traces) == 1
    net[3] = nn.Linear(8, 5)
    assert snn.unroll(net, x)[0].shape[-1] == 5 and len(traces) == 2


def test_unroll__plain_attribute_changed__is_seen() -> None:
    net = Net(lambda self, x: self.lif(self.fc(x)) * self.gain, fc=nn.Linear(6, 4), lif=hidden())
    net.gain = 1.0
    x = inputs(STEPS, BATCH, 6)
    one = snn.unroll(net, x)[0]
    net.gain = 3.0
    assert one.any() and torch.equal(snn.unroll(net, x)[0], 3 * one)


def test_unroll__forward_that_depends_on_training__follows_the_mode() -> None:
    net = Net(lambda self, x: self.lif(self.fc(x)) if self.training else self.fc(x) + self.lif(x), fc=nn.Linear(6, 6))
    net.lif = hidden()
    x = inputs(STEPS, BATCH, 6)
    for mode in (True, False, True):
        net.train(mode)
        torch.testing.assert_close(snn.unroll(net, x)[0], loop(net, x))


def test_unroll__weights_changed_between_calls__are_used() -> None:
    net, frame = build("dense")
    x = inputs(STEPS, BATCH, *frame)
    before = snn.unroll(net, x)[0]
    with torch.no_grad():
        net[1].weight.mul_(-1)
    assert not torch.equal(snn.unroll(net, x)[0], before)


# Weights and buffers used by hand


@pytest.mark.parametrize("num_steps", [None, STEPS], ids=["over_time", "static"])
def test_unroll__parameter_whose_size_equals_the_batch__is_no_frame(num_steps: int | None) -> None:
    net = Net(lambda self, x: self.lif(F.linear(x, self.weight * self.scale) + self.bias), lif=hidden())
    torch.manual_seed(0)
    net.weight, net.bias = nn.Parameter(torch.randn(BATCH, 6)), nn.Parameter(torch.zeros(BATCH))
    net.register_buffer("scale", torch.rand(BATCH, 1))
    x = inputs(BATCH, 6) if num_steps else inputs(STEPS, BATCH, 6)
    assert_equals_the_loop(net, x, num_steps)
    with torch.no_grad():
        net.scale.zero_()
    assert not snn.unroll(net, x, num_steps)[0].any(), "a buffer is read when the network runs"


@pytest.mark.parametrize("num_steps", [None, STEPS], ids=["over_time", "static"])
def test_unroll__tensor_sized_after_the_input__is_added_to_every_step(num_steps: int | None) -> None:
    net = Net(lambda self, x: self.lif(self.lif0(x) + x.new_ones(x.size(0), 6) + 0.25 * x), lif0=hidden(), lif=hidden())
    assert_equals_the_loop(net, inputs(BATCH, 6) if num_steps else inputs(STEPS, BATCH, 6), num_steps)


def test_unroll__output_that_does_not_vary__is_repeated_for_every_step() -> None:
    net = Net(lambda self, x: (self.lif(x), self.fc(x)), fc=nn.Linear(6, 2), lif=hidden())
    x = inputs(BATCH, 6)
    (_, current), _ = snn.unroll(net, x, STEPS)
    assert current.shape == (STEPS, BATCH, 2) and torch.equal(current[0], current[-1])
    assert torch.equal(current[0], net.fc(x))


class Branching(nn.Module):
    """A layer that torch.fx cannot trace."""

    def forward(self, x: Tensor) -> Tensor:
        return x if x.numel() and float(x.detach().sum()) == 0.5 else x * 2


def test_unroll__module_without_neurons__may_have_any_forward() -> None:
    net = nn.Sequential(nn.Linear(6, 4), Branching(), hidden())
    assert_equals_the_loop(net, inputs(STEPS, BATCH, 6))


# BatchNorm and Dropout


def test_unroll__batch_norm_in_training__takes_all_frames_as_one_batch() -> None:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(6, 4), nn.BatchNorm1d(4), hidden())
    twin = copy.deepcopy(net)
    x = inputs(STEPS, BATCH, 6)
    out, _ = snn.unroll(net, x)
    currents = twin[1](twin[0](x.flatten(0, 1))).unflatten(0, (STEPS, BATCH))
    assert out.any() and torch.equal(out, snn.unroll(twin[2], currents)[0])
    assert torch.equal(net[1].running_mean, twin[1].running_mean) and net[1].num_batches_tracked == 1


def test_unroll__dropout__draws_a_mask_for_every_frame_and_none_in_eval() -> None:
    torch.manual_seed(0)
    net = nn.Sequential(snn.IF(threshold=0.5, backend="reference"), nn.Dropout(0.5))
    x = torch.full((STEPS, 2, 200), 2.0)  # every neuron spikes at every step
    out, _ = snn.unroll(net, x)
    assert set(out.unique().tolist()) == {0.0, 2.0}
    assert not torch.equal(out[0], out[1]) and not torch.equal(out[0, 0], out[0, 1])
    assert snn.unroll(net.eval(), x)[0].eq(1).all()


# What is refused, with a remedy


def test_unroll__neuron_called_twice__is_an_error() -> None:
    net = Net(lambda self, x: self.lif(self.lif(x)), lif=hidden())
    with pytest.raises(TraceError, match=r"'lif' is called twice.*Use two neurons"):
        snn.unroll(net, inputs(STEPS, BATCH, 6))
    shared = hidden()
    with pytest.raises(TraceError, match="called twice"):
        snn.unroll(nn.Sequential(shared, nn.Linear(6, 6), shared), inputs(STEPS, BATCH, 6))


def test_unroll__loop_over_time_inside_forward__is_an_error() -> None:
    def whole_loop(self: Any, x: Tensor) -> Tensor:
        mem = self.lif.init_leaky()
        for _ in range(3):
            spk, mem = self.lif(x, mem)
        return spk

    with pytest.raises(TraceError, match=r"called twice|hands states"):
        snn.unroll(Net(whole_loop, lif=lif()), inputs(STEPS, BATCH, 6))


def test_unroll__one_step_forward_with_init_leaky__is_the_sequence_from_no_state() -> None:
    net = Net(lambda self, x: self.lif(x, self.lif.init_leaky())[0], lif=lif())
    x = inputs(STEPS, BATCH, 6)
    assert torch.equal(snn.unroll(net, x)[0], net.lif.sequence(x)[0])
    assert not hasattr(net, "_tensor_constant0"), "tracing adds nothing to the network"


@pytest.mark.parametrize(
    ("run", "message"),
    [
        (lambda self, x: self.lif(x, torch.zeros_like(x))[0], "hands states to the neuron 'lif'.*state="),
        (lambda self, x: self.lif(x, mem=x)[0], "hands states to the neuron 'lif'.*state="),
        (lambda self, x: self.lif(x)[0] + self.lif.mem, r"reads lif.mem.*spk, mem = lif\(x\)"),
        (lambda self, x: self.lif(x + torch.randn(6))[0], r"shape \(6,\) is made inside forward.*register_buffer"),
        (lambda self, x: self.lif(x)[0] if x.sum() > 0 else x, "cannot be traced.*control flow"),
        (lambda self, x: self.lif(x)[0] * len(x), "cannot be traced"),
        (lambda self, x: self.lif(x)[0].sum(0), r"sum turns frames .* into shape \(6,\).*by itself"),
        (lambda self, x: self.lif(x)[0] / x.abs().max(), r"max turns frames .* into shape \(\)"),
        (lambda self, x: self.lif(x)[0][0], "getitem turns frames"),
        (lambda self, x: torch.cat([self.lif(x)[0], x], dim=0), r"cat turns frames .* into shape \(30, 6\)"),
    ],
    ids=[
        "states_by_position",
        "states_by_name",
        "module_state",
        "own_tensor",
        "branch",
        "len",
        "batch_sum",
        "batch_max",
        "one_sample",
        "batch_cat",
    ],
)
def test_unroll__forward_that_is_not_frame_by_frame__is_an_error(run: Callable[..., Any], message: str) -> None:
    with pytest.raises(TraceError, match=f"(?s){message}"):
        snn.unroll(Net(run, lif=lif()), inputs(STEPS, BATCH, 6))


def test_unroll__forward_with_a_second_input__is_an_error_unless_it_has_a_default() -> None:
    class Two(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.lif = hidden()

        def forward(self, x: Tensor, gain: Tensor) -> Tensor:
            return self.lif(x) * gain

    with pytest.raises(TraceError, match="gain"):
        snn.unroll(Two(), inputs(STEPS, BATCH, 6))

    class Optional(Two):
        def forward(self, x: Tensor, gain: Tensor | None = None, scale: float = 2.0) -> Tensor:
            return self.lif(x) * (scale if gain is None else gain)

    net, x = Optional(), inputs(STEPS, BATCH, 6)
    assert torch.equal(snn.unroll(net, x)[0], 2 * snn.unroll(net.lif, x)[0])


def test_unroll__network_without_neurons__is_an_error() -> None:
    with pytest.raises(TraceError, match=r"no spiking neuron.*Call it directly"):
        snn.unroll(nn.Sequential(nn.Linear(6, 4), nn.ReLU()), inputs(STEPS, BATCH, 6))


def test_unroll__neuron_fed_by_weights_alone__asks_for_num_steps() -> None:
    net = Net(lambda self, x: self.lif(self.bias), lif=hidden())
    net.bias = nn.Parameter(torch.ones(BATCH, 6))
    with pytest.raises(ShapeError, match=r"'lif'.*num_steps"):
        snn.unroll(net, inputs(STEPS, BATCH, 6))
    assert snn.unroll(net, inputs(BATCH, 6), 3)[0].shape == (3, BATCH, 6)


def test_unroll__forward_that_decides_by_random_numbers__is_refused() -> None:
    class Random(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.lif = snn.Leaky(0.9)

        def forward(self, x: Tensor) -> Any:
            return self.lif(x * 2 if torch.rand(()).item() < 2 else x)[0]

    with pytest.raises(TraceError, match="random numbers"):
        snn.unroll(Random(), torch.rand(3, 2, 4))


def test_unroll__attribute_in_a_tuple_changed__is_used() -> None:
    class Scaled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.scale = (1.0, 2.0)
            self.lif = snn.Leaky(0.9)

        def forward(self, x: Tensor) -> Any:
            return self.lif(x * self.scale[0])[1]

    net, x = Scaled(), torch.rand(3, 2, 4) / 8
    first = snn.unroll(net, x)[0]
    net.scale = (3.0, 2.0)
    torch.testing.assert_close(snn.unroll(net, x)[0], 3 * first)


def test_unroll__hook_on_a_neuron__is_refused() -> None:
    net = nn.Sequential(nn.Linear(4, 3), snn.Leaky(0.9))
    net[1].register_forward_hook(lambda m, i, o: o)
    with pytest.raises(TraceError, match="forward hooks"):
        snn.unroll(net, torch.rand(3, 2, 4))


class _Viewing(nn.Module):
    """Written by hand, with view, which asks for one memory layout."""

    def forward(self, x):
        return x.view(x.size(0), -1)


@pytest.mark.parametrize("flatten", [_Viewing(), nn.Flatten(), nn.Sequential(nn.Identity(), _Viewing())])
@pytest.mark.parametrize("static", [False, True])
@pytest.mark.parametrize("channels", [1, 3])
def test_the_layout_that_convolutions_run_in_does_not_show(flatten, static, channels):
    torch.manual_seed(0)
    net = nn.Sequential(
        nn.Conv2d(channels, 4, 3),
        snn.Leaky(0.9, threshold=0.2),
        nn.Conv2d(4, 5, 3),
        snn.Leaky(0.9, threshold=0.2),
        flatten,
        nn.Linear(20, 3),
    ).double()
    convolved = net[:4]
    x = 4 * torch.rand(3, 2, channels, 6, 6, dtype=torch.float64)
    x = x[0] if static else x
    num_steps = 3 if static else None
    frames = [x] * 3 if static else list(x)

    def loop():
        mem1, mem2 = net[1].reset_mem(), net[3].reset_mem()
        for frame in frames:
            spk, mem1 = net[1](net[0](frame), mem1)
            spk, mem2 = net[3](net[2](spk), mem2)
            yield spk

    expected = torch.stack(list(loop()))
    assert 0 < expected.mean() < 1
    spk, state = snn.unroll(convolved, x, num_steps)
    assert torch.equal(spk, expected)
    assert spk.is_contiguous() and state["3"][0].shape == expected.shape[1:]

    out, _ = snn.unroll(net, x, num_steps)
    torch.testing.assert_close(out, torch.stack([net[5](s.flatten(1)) for s in expected]))
    ours = torch.autograd.grad(out.square().sum(), list(net.parameters()))
    by_hand = torch.stack([net[5](s.flatten(1)) for s in loop()])
    for ours_grad, grad in zip(ours, torch.autograd.grad(by_hand.square().sum(), list(net.parameters()))):
        torch.testing.assert_close(ours_grad, grad)


class _InPlace(nn.Module):
    """A residual sum in place, and other ways to write to or look at the memory of an image."""

    def __init__(self, kind: str):
        super().__init__()
        self.conv, self.skip = nn.Conv2d(2, 4, 3, padding=1), nn.Conv2d(2, 4, 1)
        self.lif, self.kind = snn.Leaky(0.9, threshold=0.3), kind

    def forward(self, x):
        z = self.conv(x)
        if self.kind == "add_":
            z.add_(self.skip(x))
        elif self.kind == "flat view":
            torch.flatten(z, 1).add_(0.1)
        return self.lif(z)


@pytest.mark.parametrize("kind", ["add_", "flat view", "plain", "hook", "own forward"])
def test_the_layout_does_not_show_to_code_that_writes_in_place_or_asks_for_one(kind):
    torch.manual_seed(0)
    net = _InPlace(kind)
    if kind == "hook":
        net.conv.register_forward_hook(lambda m, args, out: out.view(-1).reshape(out.shape) + 0.1)
    if kind == "own forward":
        inner = net.conv.forward
        net.conv.forward = lambda x: inner(x).view(len(x), -1).view(-1, 4, 5, 5)
    x = torch.rand(3, 2, 2, 5, 5)
    mem, expected = net.lif.reset_mem(), []
    for frame in x:
        z = net.conv(frame)
        if kind == "add_":
            z = z + net.skip(frame)
        elif kind == "flat view":
            z = z + 0.1
        spk, mem = net.lif(z, mem)
        expected.append(spk)
    spk, state = snn.unroll(net, x)
    assert 0 < spk.mean() < 1
    assert (spk != torch.stack(expected)).float().mean() < 0.01
    assert spk.is_contiguous() and state["lif"][0].is_contiguous()
