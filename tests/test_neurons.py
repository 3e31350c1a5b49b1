"""How neuron modules behave: hidden state, what a call returns, copies and state dicts, a user's own step."""

from __future__ import annotations

import copy
import io
import math
import pickle
import warnings
from typing import Any, Callable

import pytest
import torch
from torch import Tensor, nn

import snn_ipu as snn
from snn_ipu.errors import ShapeError, TraceError

WIDTH = 4
SPIKY = snn.surrogate.fast_sigmoid(slope=2)
# Every built-in neuron, with parameters that are not the defaults where there is a choice.
BUILDERS: dict[str, Callable[..., snn.SpikingNeuron]] = {
    "Leaky": lambda **kw: snn.Leaky(0.75, learn_beta=True, graded_spikes_factor=0.5, **kw),
    "Synaptic": lambda **kw: snn.Synaptic(0.5, 0.75, learn_alpha=True, reset_delay=False, **kw),
    "Alpha": lambda **kw: snn.Alpha(0.75, 0.5, threshold=0.25, learn_beta=True, **kw),
    "Lapicque": lambda **kw: snn.Lapicque(R=2.0, C=0.5, time_step=0.5, reset_mechanism="zero", **kw),
    "RLeaky": lambda **kw: snn.RLeaky(0.75, linear_features=WIDTH, **kw),
    "RSynaptic": lambda **kw: snn.RSynaptic(0.5, 0.75, all_to_all=False, V=torch.rand(WIDTH), **kw),
    "IF": lambda **kw: snn.IF(threshold=0.5, **kw),
    "ParametricLeaky": lambda **kw: snn.ParametricLeaky(w=1.0, **kw),
    "AdaptiveLeaky": lambda **kw: snn.AdaptiveLeaky(beta=0.75, learn=("beta", "rho"), **kw),
    "QIF": lambda **kw: snn.QIF(threshold=0.5, **kw),
    "EIF": lambda **kw: snn.EIF(threshold=0.5, **kw),
    "Izhikevich": lambda **kw: snn.Izhikevich(**kw),
}
FIRST_ORDER = ("Leaky", "RLeaky", "Izhikevich")


def build(name: str, **kwargs: Any) -> snn.SpikingNeuron:
    """Recurrent weights are random but the same every time; the reference needs no compiler."""
    torch.manual_seed(5)
    return BUILDERS[name](**{"spike_grad": SPIKY, "backend": "reference", **kwargs})


def drive(name: str, steps: int = 6, batch: int = 3) -> Tensor:
    """An input current that makes the neuron spike."""
    x = torch.randn(steps, batch, WIDTH, generator=torch.Generator().manual_seed(2))
    return 60 + 80 * x if name == "Izhikevich" else 0.75 + x


@pytest.fixture(params=BUILDERS)
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def shown(neuron: snn.SpikingNeuron) -> list[str]:
    return [n for n in neuron.state_names if n != "spk"]


# Calls


def test_sequence__equals_the_loop_over_explicit_states(name: str) -> None:
    neuron, x = build(name), drive(name)
    spk, final, *traces = neuron.sequence(x, trace=shown(neuron))
    states: tuple[Tensor, ...] = ()
    stepper = build(name)
    for t, x_t in enumerate(x):
        spk_t, *new = stepper(x_t, *states)
        assert torch.equal(spk_t, spk[t])
        for trace, value in zip(traces, new):
            assert torch.equal(trace[t], value)
        states = (spk_t, *new) if "spk" in neuron.state_names and name.startswith("R") else tuple(new)
    assert spk.any() and len(final) == len(neuron.state_names)
    for state, value in zip(final[-len(new) :], new):
        assert torch.equal(state, value)


def test_sequence__in_two_parts__equals_one_run(name: str) -> None:
    neuron, x = build(name), drive(name)
    whole, final = neuron.sequence(x)
    first, state = neuron.sequence(x[:2])
    second, last = neuron.sequence(x[2:], state)
    assert torch.equal(torch.cat([first, second]), whole)
    for a, b in zip(last, final):
        assert torch.equal(a, b)


def test_sequence__static_frame__equals_the_frame_repeated(name: str) -> None:
    neuron, frame = build(name), drive(name)[1]
    spk, final, trace = neuron.sequence(frame, num_steps=5, trace="mem")
    repeated, last, expected = neuron.sequence(frame.expand(5, *frame.shape), trace=("mem",))
    assert torch.equal(spk, repeated) and torch.equal(trace, expected)
    for a, b in zip(final, last):
        assert torch.equal(a, b)


def test_sequence__leaves_the_module_as_it_was(name: str) -> None:
    neuron, x = build(name), drive(name)
    neuron(x[0])
    before = [getattr(neuron, n).clone() for n in neuron.state_names]
    parameters = {k: v.clone() for k, v in neuron.state_dict().items()}
    neuron.sequence(x)
    for n, value in zip(neuron.state_names, before):
        assert torch.equal(getattr(neuron, n), value)
    for k, value in neuron.state_dict().items():
        assert torch.equal(value, parameters[k])


@pytest.mark.parametrize("backend", ["reference", "cpu"])
@pytest.mark.parametrize("name", FIRST_ORDER)
def test_sequence__no_steps__returns_the_state_it_was_given(name: str, backend: str) -> None:
    neuron = build(name, backend=backend)
    _, state = neuron.sequence(drive(name))
    spk, same, trace = neuron.sequence(drive(name)[:0], state, trace="mem")
    assert spk.shape == trace.shape == (0, 3, WIDTH)
    for a, b in zip(same, state):
        assert torch.equal(a, b)


@pytest.mark.parametrize("backend", ["reference", "cpu"])
@pytest.mark.parametrize("name", FIRST_ORDER)
def test_sequence__empty_batch__returns_empty_frames_and_a_zero_gradient(name: str, backend: str) -> None:
    neuron = build(name, backend=backend)
    x = drive(name)[:, :0].requires_grad_()
    spk, state = neuron.sequence(x)
    assert spk.shape == (6, 0, WIDTH) and all(s.shape == (0, WIDTH) for s in state)
    spk.sum().backward()
    assert x.grad is not None and x.grad.shape == x.shape


@pytest.mark.parametrize("backend", ["reference", "cpu"])
@pytest.mark.parametrize("name", FIRST_ORDER)
def test_sequence__transposed_input__equals_its_contiguous_copy(name: str, backend: str) -> None:
    neuron = build(name, backend=backend)
    x = drive(name).permute(1, 0, 2).contiguous().permute(1, 0, 2)
    assert not x.is_contiguous()
    assert torch.equal(neuron.sequence(x)[0], neuron.sequence(x.contiguous())[0])


def test_sequence__trace__gives_the_states_in_the_order_asked_for() -> None:
    neuron, x = build("Synaptic"), drive("Synaptic")
    _, _, mem, syn = neuron.sequence(x, trace=("mem", "syn"))
    _, _, syn_alone = neuron.sequence(x, trace="syn")
    assert torch.equal(syn, syn_alone) and not torch.equal(syn, mem)


def test_sequence__trace_of_spk__is_the_recurrent_spikes() -> None:
    neuron, x = build("RLeaky"), drive("RLeaky")
    spk, _, recorded = neuron.sequence(x, trace="spk")
    assert torch.equal(spk, recorded)


@pytest.mark.parametrize("frame", [(), (1,), (2, 1, 3, 2)], ids=str)
def test_step__frames_of_any_rank__keep_their_shape(frame: tuple[int, ...]) -> None:
    x = torch.full(frame, 1.5)
    for backend in ("reference", "cpu"):
        spk, mem = snn.Leaky(0.5, backend=backend)(x)
        assert spk.shape == mem.shape == frame and spk.eq(1).all() and mem.eq(1.5).all()


# Hidden state


def test_hidden_state__a_loop_without_states__equals_the_sequence(name: str) -> None:
    neuron, x = build(name, init_hidden=True), drive(name)
    spk = torch.stack([neuron(x_t) for x_t in x])
    expected, final = build(name).sequence(x)
    assert torch.equal(spk, expected)
    for n, state in zip(neuron.state_names, final):
        assert torch.equal(getattr(neuron, n), state)


def test_hidden_state__reset_mem__starts_anew_with_another_batch_size(name: str) -> None:
    neuron, x = build(name, init_hidden=True), drive(name)
    first = neuron(x[0])
    neuron(x[1])
    empty = neuron.reset_mem()
    assert all(s.shape == (0,) for s in (empty if isinstance(empty, tuple) else (empty,)))
    assert torch.equal(neuron(x[0, :2]), first[:2])


def test_hidden_state__detach_mem__keeps_the_values_and_cuts_the_graph(name: str) -> None:
    neuron, x = build(name), drive(name).requires_grad_()
    neuron(x[0])
    before = neuron.mem
    neuron.detach_mem()
    assert torch.equal(neuron.mem, before) and before.requires_grad
    neuron(x[1])
    out = neuron(x[2])
    sum(values.square().sum() for values in out).backward()
    assert not x.grad[0].any() and x.grad[1].any()


def test_hidden_state__carries_the_gradient_through_time() -> None:
    neuron, x = build("Leaky"), drive("Leaky").requires_grad_()
    for x_t in x:
        _, mem = neuron(x_t)
    mem.sum().backward()
    assert x.grad[0].any()


def test_hidden_state__empty_state_given__starts_anew() -> None:
    neuron = build("Leaky")
    empty = neuron.init_leaky()
    x = drive("Leaky")
    first, _ = neuron(x[0], empty)
    neuron(x[1])
    again, _ = neuron(x[0], empty)
    assert torch.equal(first, again)


def test_hidden_state__after_a_failed_call__is_unchanged() -> None:
    neuron, x = build("Leaky"), drive("Leaky")
    neuron(x[0])
    before = neuron.mem.clone()
    with pytest.raises(ShapeError):
        neuron(x[0, :2])
    assert torch.equal(neuron.mem, before)


def test_hidden_state__follows_the_module_to_another_dtype_and_device(name: str) -> None:
    neuron = build(name)
    neuron(drive(name)[0])
    neuron.double()
    assert all(getattr(neuron, n).dtype == torch.float64 for n in neuron.state_names)
    neuron.to("meta")
    assert all(getattr(neuron, n).device.type == "meta" for n in neuron.state_names)


def test_start_values__of_states_that_do_not_start_at_zero__are_used_in_every_kind_of_call() -> None:
    x = torch.zeros(1, 2, WIDTH)
    for neuron in (build("Izhikevich"), build("Izhikevich", backend="cpu")):
        _, mem, recovery = neuron(x[0])
        _, (same_mem, same_recovery) = neuron.sequence(x)
        _, (half, _) = neuron.sequence(x, (torch.full((2, WIDTH), -60.0), None))
        assert torch.equal(mem, same_mem) and torch.equal(recovery, same_recovery)
        # one Euler step from (-65, -13): dt (0.04 v^2 + 5 v + 140 - u) = 0.5 (169 - 325 + 140 + 13) = -1.5
        assert mem.allclose(torch.tensor(-66.5)) and half.gt(-66.5).all()


@pytest.mark.parametrize(
    ("kwargs", "returns_states"),
    [
        ({}, True),
        ({"output": True}, True),
        ({"init_hidden": True}, False),
        ({"init_hidden": True, "output": True}, True),
    ],
    ids=str,
)
def test_step__what_it_returns__follows_init_hidden_and_output(
    name: str, kwargs: dict[str, bool], returns_states: bool
) -> None:
    neuron = build(name, **kwargs)
    out = neuron(drive(name)[0])
    if not returns_states:
        assert isinstance(out, Tensor) and out.shape == (3, WIDTH)
        return
    spk, *states = out
    assert spk.shape == (3, WIDTH) and len(states) == len(shown(neuron))
    for n, state in zip(shown(neuron), states):
        assert state is getattr(neuron, n)


@pytest.mark.parametrize(
    ("name", "init"),
    [
        ("Leaky", "init_leaky"),
        ("Synaptic", "init_synaptic"),
        ("Alpha", "init_alpha"),
        ("Lapicque", "init_lapicque"),
        ("RLeaky", "init_rleaky"),
        ("RSynaptic", "init_rsynaptic"),
    ],
)
def test_old_names_of_reset_mem__give_states_that_a_loop_can_start_from(name: str, init: str) -> None:
    neuron, x = build(name), drive(name)
    states = getattr(neuron, init)()
    out = neuron(x[0], *(states if isinstance(states, tuple) else (states,)))
    assert torch.equal(out[0], neuron.sequence(x[:1])[0][0])


# Copies, pickles, state dicts


def test_state_dict__holds_parameters_and_no_states(name: str) -> None:
    neuron = build(name)
    before = set(neuron.state_dict())
    neuron(drive(name)[0])
    assert set(neuron.state_dict()) == before
    assert not before & set(neuron.state_names)
    assert set(neuron.params()) <= before


def test_copies__in_the_middle_of_a_run__go_on_alike(name: str) -> None:
    neuron, x = build(name), drive(name).requires_grad_()
    neuron(x[0])
    file = io.BytesIO()
    torch.save(neuron, file)
    file.seek(0)
    copies = [copy.deepcopy(neuron), pickle.loads(pickle.dumps(neuron)), torch.load(file, weights_only=False)]
    expected = neuron(x[1])
    for twin in copies:
        assert not twin.mem.requires_grad, "a copy holds values, not the graph"
        for a, b in zip(twin(x[1]), expected):
            assert torch.equal(a, b)
        assert [n for n, _ in twin.named_parameters()] == [n for n, _ in neuron.named_parameters()]
        assert twin.spike_grad == neuron.spike_grad and repr(twin) == repr(neuron)
    assert neuron.mem.requires_grad, "copying leaves the original in its graph"


def test_copy__one_to_one_feedback__still_shares_its_weight() -> None:
    twin = copy.deepcopy(build("RSynaptic"))
    assert twin.V is twin.recurrent.V
    with torch.no_grad():
        twin.recurrent.V.zero_()
    spk, _ = twin.sequence(drive("RSynaptic"))
    assert torch.equal(spk, snn.RSynaptic(0.5, 0.75, all_to_all=False, V=0.0).sequence(drive("RSynaptic"))[0])


def test_load_state_dict__reset_mechanism_that_does_not_exist__is_an_error() -> None:
    neuron = build("Leaky")
    wrong = {**neuron.state_dict(), "reset_mechanism_val": torch.tensor(7)}
    with pytest.raises(RuntimeError, match="reset_mechanism_val"):
        neuron.load_state_dict(wrong)
    assert neuron.reset_mechanism == "subtract"


# Printing


def test_repr__shows_parameters_surrogate_flags_and_backend() -> None:
    neuron = snn.Leaky(torch.rand(3), threshold=0.5, learn_threshold=True, spike_grad=SPIKY, reset_mechanism="zero")
    text = repr(neuron)
    for part in ("beta=tensor[3]", "threshold=0.5 (learned)", "fast_sigmoid(slope=2)", "'zero'", "backend='auto'"):
        assert part in text
    assert repr(snn.IF(spike_grad=torch.sigmoid)).startswith("IF(threshold=1, spike_grad=sigmoid")
    assert "threshold=1, spike_grad=Sigmoid" in repr(snn.IF(spike_grad=torch.nn.Sigmoid()))


# Parameters


def test_parameters__what_is_learned__is_what_was_asked_for() -> None:
    assert [n for n, _ in snn.Leaky(0.5).named_parameters()] == []
    assert [n for n, _ in snn.RLeaky(0.5, all_to_all=False).named_parameters()] == ["V"]
    assert [n for n, _ in snn.ParametricLeaky().named_parameters()] == ["w"]
    assert [n for n, _ in snn.ParametricLeaky(learn=()).named_parameters()] == []
    assert [n for n, _ in snn.AdaptiveLeaky(learn=("rho", "beta")).named_parameters()] == ["beta", "rho"]
    frozen = snn.RLeaky(0.5, linear_features=WIDTH, learn_recurrent=False)
    assert not any(p.requires_grad for p in frozen.parameters())


@pytest.mark.parametrize("backend", ["reference", "cpu"])
def test_parameters__a_tensor_made_by_another_layer__passes_the_gradient_on(backend: str) -> None:
    source = torch.zeros(WIDTH, requires_grad=True)
    neuron = snn.Leaky(torch.sigmoid(source), backend=backend)
    neuron.sequence(drive("Leaky"), trace="mem")[2].sum().backward()
    assert source.grad is not None and source.grad.any()


@pytest.mark.parametrize("backend", ["reference", "cpu"])
def test_parameters__one_value_in_any_shape__equals_the_number(backend: str) -> None:
    x = drive("Leaky")
    expected = snn.Leaky(0.5, threshold=0.75, backend=backend).sequence(x)
    for shape in ((1,), (1, 1), (1, 1, 1, 1)):
        neuron = snn.Leaky(torch.full(shape, 0.5), threshold=torch.full(shape, 0.75), learn_beta=True, backend=backend)
        spk, (mem,) = neuron.sequence(x)
        assert torch.equal(spk, expected[0]) and torch.equal(mem, expected[1][0])
        mem.sum().backward()
        assert neuron.beta.grad.shape == shape


# Recurrent neurons


@pytest.mark.parametrize("kind", ["RLeaky", "RSynaptic"])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64], ids=str)
def test_recurrent_matrix__input_of_another_dtype_than_the_weights__runs_and_trains(
    kind: str, dtype: torch.dtype
) -> None:
    build_kind = {"RLeaky": (0.75,), "RSynaptic": (0.5, 0.75)}[kind]
    neuron = getattr(snn, kind)(*build_kind, linear_features=WIDTH, backend="reference")
    x = drive("RLeaky").to(dtype).requires_grad_()
    spk, _ = neuron.sequence(x)
    spk.sum().backward()
    assert spk.dtype == x.grad.dtype == dtype and neuron.recurrent.weight.grad.any()


def test_recurrent_convolution__equals_a_matrix_where_the_image_is_one_pixel() -> None:
    torch.manual_seed(0)
    conv = snn.RLeaky(0.75, conv2d_channels=WIDTH, kernel_size=1, backend="reference")
    matrix = snn.RLeaky(0.75, linear_features=WIDTH, backend="reference")
    with torch.no_grad():
        matrix.recurrent.weight.copy_(conv.recurrent.weight[:, :, 0, 0])
        matrix.recurrent.bias.copy_(conv.recurrent.bias)
    x = drive("RLeaky")
    spk, (_, mem) = conv.sequence(x[..., None, None])
    expected, (_, expected_mem) = matrix.sequence(x)
    assert torch.equal(spk[..., 0, 0], expected)
    torch.testing.assert_close(mem[..., 0, 0], expected_mem)


def test_recurrent__initial_spikes__feed_back_in_the_first_step() -> None:
    for kwargs in ({"linear_features": WIDTH}, {"all_to_all": False, "V": 2.0}):
        neuron = snn.RLeaky(0.5, **kwargs, backend="reference")
        x, zero = torch.zeros(1, 3, WIDTH), torch.zeros(3, WIDTH)
        silent = neuron.sequence(x, (zero, zero))[1][1]
        fed = neuron.sequence(x, (torch.ones(3, WIDTH), zero))[1][1]
        torch.testing.assert_close(fed - silent, neuron.recurrent(torch.ones(3, WIDTH)) - neuron.recurrent(zero))


# A user's own neuron


@snn.neuron(states=("mem", "adapt"), learn="beta")
def adaptive(
    x: Tensor, mem: Tensor, adapt: Tensor, *, beta: Any = 0.9, gain: Any = 0.2, threshold: Any = 1.0
) -> tuple[Tensor, Tensor, Tensor]:
    """Adaptive: the threshold rises by gain with every spike."""
    mem = beta * mem + x
    spk = snn.spike(mem - threshold - gain * adapt)
    return spk, mem - spk.detach() * threshold, 0.9 * adapt + spk


def test_decorated_step__is_a_module_class_under_its_own_name() -> None:
    neuron = adaptive(gain=0.5)
    assert isinstance(neuron, snn.SpikingNeuron) and isinstance(adaptive, type)
    assert adaptive.__name__ == "adaptive" and adaptive.__module__ == __name__ and "rises" in adaptive.__doc__
    assert list(neuron.params()) == ["beta", "gain", "threshold"]
    assert [n for n, _ in neuron.named_parameters()] == ["beta"]
    assert neuron.gain.item() == 0.5 and repr(neuron).startswith("adaptive(beta=0.9 (learned), gain=0.5")


@pytest.mark.parametrize("backend", ["reference", "cpu"])
def test_decorated_step__equals_the_function_called_by_hand(backend: str) -> None:
    x = drive("Leaky")
    gain = torch.linspace(0, 1, WIDTH)
    neuron = adaptive(gain=gain, beta=0.5, learn=("gain", "threshold"), backend=backend)
    spk, (mem, adapt) = neuron.sequence(x)
    by_hand_mem = by_hand_adapt = torch.zeros(3, WIDTH)
    for x_t, spk_t in zip(x, spk):
        expected, by_hand_mem, by_hand_adapt = adaptive.step(x_t, by_hand_mem, by_hand_adapt, beta=0.5, gain=gain)
        assert torch.equal(spk_t, expected)
    assert torch.equal(mem, by_hand_mem) and torch.equal(adapt, by_hand_adapt)
    adapt.sum().backward()
    assert neuron.gain.grad.shape == (WIDTH,) and neuron.gain.grad.any() and not neuron.beta.requires_grad


def test_decorated_step__pickles_by_its_name() -> None:
    twin = pickle.loads(pickle.dumps(adaptive(gain=0.5)))
    assert type(twin) is adaptive and twin.gain.item() == 0.5


def test_decorated_step__states_as_a_mapping__start_there() -> None:
    @snn.neuron(states={"mem": 0.0, "w": 2.0})
    def counter(x: Tensor, mem: Tensor, w: Tensor, *, rise: float = 1.0) -> tuple[Tensor, Tensor, Tensor]:
        return snn.spike(w - 4), mem + x, w + rise

    for backend in ("reference", "cpu"):
        spk, (mem, w) = counter(backend=backend).sequence(torch.ones(3, 1, 2))
        assert w.eq(5).all() and mem.eq(3).all() and spk[:, 0, 0].tolist() == [0, 0, 0]


def test_decorated_step__one_state_as_a_string__is_one_state() -> None:
    @snn.neuron(states="mem")
    def integrator(x: Tensor, mem: Tensor, *, beta: float = 1.0) -> tuple[Tensor, Tensor]:
        return snn.spike(mem - 1), beta * mem + x

    assert integrator.state_names == ("mem",)


@pytest.mark.parametrize("taken", ["step", "output", "spike_grad", "forward", "training", "learn"])
def test_decorated_step__a_name_that_modules_use_themselves__is_refused(taken: str) -> None:
    namespace: dict[str, Any] = {}
    exec(f"def step_of(x, mem, *, {taken}=1.0):\n    return mem, mem\n", namespace)
    with pytest.raises(TypeError, match=rf"{taken}.*Choose another name"):
        snn.neuron(states=("mem",))(namespace["step_of"])
    exec(f"def step_of(x, {taken}, *, beta=1.0):\n    return x, x\n", namespace)
    with pytest.raises(TypeError, match=rf"{taken}.*Choose another name"):
        snn.neuron(states=(taken,))(namespace["step_of"])


def untraceable(x: Tensor, mem: Tensor, *, beta: float = 0.5) -> tuple[Tensor, Tensor]:
    mem = beta * mem + x.sort(-1).values
    return snn.spike(mem - 1), mem


def test_untraceable_step__on_the_reference__runs_and_asked_for_a_kernel__says_why() -> None:
    neuron = snn.neuron(states=("mem",))(untraceable)
    x = drive("Leaky")
    spk, _ = neuron(backend="reference").sequence(x)
    assert spk.any()
    with pytest.raises(snn.errors.UnsupportedError, match=r"sort.*Allowed: .*reference"):
        neuron(backend="cpu").sequence(x)


def test_untraceable_step__on_auto__warns_once_and_runs() -> None:
    neuron = snn.neuron(states=("mem",))(untraceable)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        spk, _ = neuron().sequence(drive("Leaky"))
        neuron().sequence(drive("Leaky"))
    assert torch.equal(spk, neuron(backend="reference").sequence(drive("Leaky"))[0])
    assert len(caught) <= 1 and all(issubclass(w.category, snn.FallbackWarning) for w in caught)


def test_surrogate_inside_a_step__of_its_own__is_refused_in_kernels() -> None:
    @snn.neuron(states=("mem",))
    def own(x: Tensor, mem: Tensor, *, beta: float = 0.5) -> tuple[Tensor, Tensor]:
        mem = beta * mem + x
        return snn.spike(mem - 1, SPIKY), mem

    with pytest.raises((TraceError, snn.errors.UnsupportedError), match="spike_grad"):
        own(backend="cpu").sequence(drive("Leaky"))


FUNCTIONS: dict[str, tuple[Callable[[Tensor], Tensor], float, float]] = {
    "exp": (torch.exp, -87.0, 88.0),
    "log": (torch.log, 1e-3, 3.0),
    "log_of_any_size": (lambda u: torch.log(torch.exp(u)), -80.0, 80.0),
    "sigmoid": (torch.sigmoid, -80.0, 30.0),
    "tanh": (torch.tanh, -12.0, 12.0),
}


@pytest.mark.parametrize("function", FUNCTIONS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_kernel_functions__over_their_range__are_within_a_few_ulp(function: str, dtype: torch.dtype) -> None:
    fn, low, high = FUNCTIONS[function]

    def step(x: Tensor, mem: Tensor, *, scale: float = 1.0) -> tuple[Tensor, Tensor]:
        value = fn(scale * x)
        return snn.spike(value - 1), value + 0 * mem

    x = torch.linspace(low, high, 4001, dtype=dtype).reshape(1, 1, -1)
    _, (value,) = snn.neuron(states=("mem",))(step)(backend="cpu").sequence(x)
    exact = fn(x[0].double())
    error = ((value.double() - exact) / exact).abs()
    # near a root of log the result is as small as the rounding of its argument
    roots = exact.abs() > (1e-3 if function.startswith("log") else 0)
    limit = 4 * torch.finfo(dtype).eps * (30 if function == "log_of_any_size" else 1)
    assert error[roots].max().item() < limit


def test_kernel_log__of_zero_negative_infinite_and_nan__is_torchs() -> None:
    @snn.neuron(states=("mem",))
    def logarithm(x: Tensor, mem: Tensor, *, scale: float = 1.0) -> tuple[Tensor, Tensor]:
        value = torch.log(scale * x)
        return snn.spike(mem), value

    x = torch.tensor([[[0.0, -1.0, math.inf, math.nan, 1e-42, 1.0]]])
    _, (value,) = logarithm(backend="cpu").sequence(x)
    torch.testing.assert_close(value, torch.log(x[0]), equal_nan=True)


def test_modules_hold_neurons_like_any_layer() -> None:
    net = nn.ModuleList([build("Leaky"), build("RLeaky")])
    assert {"0.beta", "1.recurrent.weight"} <= set(dict(net.named_parameters()))
