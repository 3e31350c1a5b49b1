"""Bad input gets an error that shows the call, what was expected, and what to do."""

from __future__ import annotations

import warnings
from typing import Any, Callable

import pytest
import torch
from torch import Tensor, nn

import snn_ipu as snn
from snn_ipu.errors import BackendMissingError, ShapeError, UnsupportedError
from snn_ipu.functional import quant

FRAME = torch.ones(3, 4)
SEQUENCE = torch.ones(5, 3, 4)


def leaky(**kwargs: Any) -> snn.SpikingNeuron:
    return snn.Leaky(0.5, backend="reference", **kwargs)


def recurrent(**kwargs: Any) -> snn.SpikingNeuron:
    return snn.RLeaky(0.5, linear_features=4, backend="reference", **kwargs)


def convolutional() -> snn.SpikingNeuron:
    return snn.RLeaky(0.5, conv2d_channels=2, kernel_size=3, backend="reference")


def used(neuron: snn.SpikingNeuron) -> snn.SpikingNeuron:
    """A neuron that holds a state of a batch of 3."""
    neuron(FRAME)
    return neuron


def net() -> nn.Sequential:
    return nn.Sequential(nn.Linear(4, 2), leaky())


# Each row: what is called, the exception, and parts of its message: the call, what was expected, the remedy.
CALLS: dict[str, tuple[Callable[[], Any], type[Exception], tuple[str, ...]]] = {
    # input
    "complex_input": (lambda: leaky()(FRAME.cfloat()), ShapeError, ("Leaky(x of dtype torch.complex64)", "x.real")),
    "complex_sequence": (lambda: leaky().sequence(SEQUENCE.cfloat()), ShapeError, ("torch.complex64", "x.real")),
    "complex_input_to_a_matrix": (lambda: recurrent()(FRAME.cfloat()), ShapeError, ("RLeaky(x of dtype", "x.real")),
    "list_input": (lambda: leaky()([1.0, 2.0]), ShapeError, ("Leaky(list)", "expected a tensor", "torch.as_tensor")),
    "list_sequence": (lambda: leaky().sequence([[1.0]]), ShapeError, ("Leaky(list)", "torch.as_tensor")),
    "sequence_without_batch": (
        lambda: leaky().sequence(torch.ones(5)),
        ShapeError,
        ("Leaky.sequence(x of shape (5,))", "time first, [T, batch, ...]", "num_steps="),
    ),
    "sequence_without_batch_to_a_matrix": (
        lambda: recurrent().sequence(torch.ones(4)),
        ShapeError,
        ("RLeaky.sequence(x of shape (4,))", "num_steps="),
    ),
    "other_device": (
        lambda: leaky().to("meta")(FRAME),
        ShapeError,
        ("Leaky(threshold on meta, x on cpu)", "one device", ".to('cpu')"),
    ),
    "state_on_other_device": (
        lambda: leaky()(FRAME, FRAME.to("meta")),
        ShapeError,
        ("Leaky(mem on meta, x on cpu)", "one device"),
    ),
    "width_of_the_feedback": (
        lambda: recurrent().sequence(torch.ones(5, 3, 6)),
        ShapeError,
        ("RLeaky(frames of shape (3, 6))", "[B, 4]", "the width of the layer before it"),
    ),
    "channels_of_the_feedback": (
        lambda: convolutional()(torch.ones(1, 3, 5, 5)),
        ShapeError,
        ("RLeaky(frames of shape (1, 3, 5, 5))", "[B, 2, height, width]"),
    ),
    # states
    "state_of_another_rank": (
        lambda: leaky()(FRAME, torch.ones(4)),
        ShapeError,
        ("Leaky(mem of shape (4,), frames of shape (3, 4))", "equal shapes", "reset_mem()"),
    ),
    "state_of_another_width": (
        lambda: leaky().sequence(SEQUENCE, (torch.ones(3, 5),)),
        ShapeError,
        ("mem of shape (3, 5)", "frames of shape (3, 4)"),
    ),
    "state_is_a_number": (
        lambda: leaky()(FRAME, 0.0),
        ShapeError,
        ("Leaky(mem of type float)", "a tensor of shape (3, 4)", "torch.zeros_like"),
    ),
    "batch_changed": (
        lambda: used(leaky(init_hidden=True))(FRAME[:2]),
        ShapeError,
        ("mem of shape (3, 4), frames of shape (2, 4)", "batch size", "snn_ipu.utils.reset(net)"),
    ),
    "batch_changed_to_one_with_a_matrix": (
        lambda: used(recurrent(init_hidden=True))(FRAME[:1]),
        ShapeError,
        ("spk of shape (3, 4), frames of shape (1, 4)", "reset_mem()"),
    ),
    "too_many_states": (
        lambda: leaky()(FRAME, FRAME, FRAME),
        TypeError,
        ("Leaky(x, 2 states)", "at most mem", "what the step before returned"),
    ),
    "unknown_state": (lambda: leaky()(FRAME, syn=FRAME), TypeError, ("Leaky(x, 0 states, syn=...)", "at most mem")),
    "state_given_twice": (lambda: leaky()(FRAME, FRAME, mem=FRAME), TypeError, ("each once",)),
    "states_with_init_hidden": (
        lambda: leaky(init_hidden=True)(FRAME, FRAME),
        TypeError,
        ("Leaky(init_hidden=True) called with states", "the input alone", "init_hidden=False"),
    ),
    "states_by_name_with_init_hidden": (
        lambda: leaky(init_hidden=True)(FRAME, mem=FRAME),
        TypeError,
        ("init_hidden=False",),
    ),
    "sequence_state_is_a_tensor": (
        lambda: leaky().sequence(SEQUENCE, FRAME),
        ShapeError,
        ("Leaky(state of one tensor)", "a tuple of 1: mem", "final state"),
    ),
    "sequence_states_too_many": (
        lambda: leaky().sequence(SEQUENCE, (FRAME, FRAME)),
        ShapeError,
        ("Leaky(state of 2 states)", "a tuple of 1: mem"),
    ),
    "sequence_states_too_few": (
        lambda: snn.Izhikevich().sequence(SEQUENCE, (FRAME,)),
        ShapeError,
        ("Izhikevich(state of 1 states)", "a tuple of 2: mem, recovery"),
    ),
    "sequence_states_too_few_with_a_matrix": (
        lambda: recurrent().sequence(SEQUENCE, ()),
        ShapeError,
        ("RLeaky(state of 0 states)", "a tuple of 2: spk, mem"),
    ),
    # number of steps and traces
    **{
        f"num_steps_{value!r}": (
            lambda value=value: leaky().sequence(FRAME, num_steps=value),
            ValueError,
            (f"Leaky.sequence(num_steps={value!r})", "positive int"),
        )
        for value in (0, -1, 2.0, True, "3")
    },
    "num_steps_with_a_matrix": (
        lambda: recurrent().sequence(FRAME, num_steps="3"),
        ValueError,
        ("RLeaky.sequence(num_steps='3')",),
    ),
    "unknown_trace": (
        lambda: leaky().sequence(SEQUENCE, trace="syn"),
        ValueError,
        ("Leaky.sequence(trace='syn')", "expected one of mem"),
    ),
    "unknown_trace_with_a_matrix": (
        lambda: recurrent().sequence(SEQUENCE, trace=("mem", "syn")),
        ValueError,
        ("RLeaky.sequence(trace='syn')", "expected one of spk, mem"),
    ),
    # parameters
    "beta_that_fits_nothing": (
        lambda: snn.Leaky(torch.rand(3))(FRAME),
        ShapeError,
        ("Leaky(beta of shape (3,))", "frames of shape (3, 4)", "such as [4]", "[channels, 1, 1]"),
    ),
    "beta_per_channel_without_its_image": (
        lambda: snn.Leaky(torch.rand(2)).sequence(torch.ones(5, 1, 2, 4, 4)),
        ShapeError,
        ("Leaky(beta of shape (2,))", "[channels, 1, 1]"),
    ),
    "beta_with_too_many_dimensions": (lambda: snn.Leaky(torch.rand(2, 3, 4))(FRAME), ShapeError, ("(2, 3, 4)",)),
    "beta_missing": (lambda: snn.Leaky(None), TypeError, ("Leaky(beta=None)", "a number, or a tensor", "Pass a float")),
    "beta_a_word": (lambda: snn.Leaky("fast"), TypeError, ("Leaky(beta='fast')", "Pass a float")),
    "lapicque_beta_of_no_circuit": (
        lambda: snn.Lapicque(beta=1.0),
        ValueError,
        ("Lapicque(beta=1.0)", "between 0 and 1", "Use Leaky or IF"),
    ),
    "lapicque_too_little_given": (lambda: snn.Lapicque(R=1.0), ValueError, ("Lapicque(beta=False, R=1.0", "R and C")),
    "alpha_below_beta": (lambda: snn.Alpha(0.5, 0.75), ValueError, ("Alpha(alpha=0.5, beta=0.75)", "alpha > beta")),
    "unknown_reset_mechanism": (
        lambda: leaky(reset_mechanism="soft"),
        ValueError,
        ("Leaky(reset_mechanism='soft')", "subtract, zero, none"),
    ),
    "unknown_reset_mechanism_later": (
        lambda: setattr(leaky(), "reset_mechanism", "soft"),
        ValueError,
        ("reset_mechanism='soft'", "subtract, zero, none"),
    ),
    "state_quant_without_a_function": (
        lambda: leaky(state_quant=True),
        TypeError,
        ("Leaky(state_quant=True)", "a function", "snn_ipu.functional.quant.state_quant"),
    ),
    "unknown_parameter": (lambda: snn.IF(beta=0.5), TypeError, ("IF(beta=...)", "parameters among threshold")),
    "learn_of_an_unknown_parameter": (
        lambda: snn.IF(learn=("beta",)),
        TypeError,
        ("IF(beta=...)", "parameters among threshold", "keyword-only"),
    ),
    "learn_of_an_unknown_parameter_in_the_decorator": (
        lambda: snn.neuron(states="mem", learn="tau")(lambda x, mem, *, beta=0.5: (x, mem)),
        TypeError,
        ("(tau=...)", "parameters among beta"),
    ),
    "step_with_other_states": (
        lambda: snn.neuron(states=("mem", "syn"))(lambda x, mem, *, beta=0.5: (x, mem)),
        TypeError,
        ("neuron(states=('mem', 'syn'))", "x, mem, syn, then keyword-only"),
    ),
    "step_with_a_parameter_without_default": (
        lambda: snn.neuron(states="mem")(lambda x, mem, *, beta: (x, mem)),
        TypeError,
        ("beta has none", "beta=0.9"),
    ),
    "surrogate_by_name": (
        lambda: leaky(spike_grad="atan"),
        TypeError,
        ("Leaky(spike_grad='atan')", "snn_ipu.surrogate.fast_sigmoid()"),
    ),
    "surrogate_not_called": (
        lambda: leaky(spike_grad=snn.surrogate.atan),
        TypeError,
        ("Leaky(spike_grad=atan)", "expected a surrogate", "spike_grad=atan()"),
    ),
    # feedback
    **{
        f"feedback_{kwargs}": (
            lambda kwargs=kwargs: snn.RSynaptic(0.5, 0.5, **kwargs),
            TypeError,
            ("RSynaptic(all_to_all=", "linear_features, or conv2d_channels and kernel_size, or", "Give one"),
        )
        for kwargs in (
            {},
            {"conv2d_channels": 2},
            {"kernel_size": 3},
            {"linear_features": 4, "conv2d_channels": 2},
            {"linear_features": 4, "conv2d_channels": 2, "kernel_size": 3},
            {"all_to_all": False, "linear_features": 4},
        )
    },
    "feedback_that_changes_the_image": (
        lambda: snn.RLeaky(0.5, conv2d_channels=2, kernel_size=(3, 2)),
        ValueError,
        ("RLeaky(kernel_size=(3, 2))", "odd"),
    ),
    # backends
    "unknown_backend": (
        lambda: snn.Leaky(0.5, backend="gpu"),
        ValueError,
        ("backend='gpu'", "expected one of auto, reference, cpu, cuda"),
    ),
    # unroll
    "unroll_static_without_num_steps": (
        lambda: snn.unroll(net(), FRAME),
        ShapeError,
        ("unroll(x of shape (3, 4))", "Expected x [T, B, ...]", "Pass num_steps="),
    ),
    "unroll_integer_images": (
        lambda: snn.unroll(net(), FRAME.byte(), num_steps=2),
        ShapeError,
        ("unroll(x of shape (3, 4), num_steps=2)", "'0' fails on frames [3, 4] of torch.uint8", "x.float() / 255"),
    ),
    "unroll_layer_of_another_width": (
        lambda: snn.unroll(nn.Sequential(net(), nn.Linear(3, 2)), SEQUENCE),
        RuntimeError,
        ("unroll(x of shape (5, 3, 4))", "'1' fails on frames [15, 2] of torch.float32", "the layer before it"),
    ),
    "unroll_images_without_num_steps": (
        lambda: snn.unroll(snn.models.CSNN(), torch.ones(6, 1, 28, 28)),
        ShapeError,
        ("unroll(x of shape (6, 1, 28, 28))", "Pass num_steps="),
    ),
    **{
        f"unroll_num_steps_{value!r}": (
            lambda value=value: snn.unroll(net(), FRAME, value),
            ValueError,
            (f"unroll(num_steps={value!r})", "positive int"),
        )
        for value in (0, 2.0, True, "3")
    },
    "unroll_without_batch": (
        lambda: snn.unroll(net(), torch.ones(4)),
        ShapeError,
        ("unroll(x of shape (4,), num_steps=None)", "[T, B, ...]", "num_steps="),
    ),
    "unroll_list": (lambda: snn.unroll(net(), [1.0]), ShapeError, ("unroll(net, list)", "torch.as_tensor")),
    "unroll_function": (lambda: snn.unroll(torch.relu, SEQUENCE), TypeError, ("expected a torch.nn.Module",)),
    "unroll_state_of_no_neuron": (
        lambda: snn.unroll(net(), SEQUENCE, state={"0": (FRAME,)}),
        ValueError,
        ("unroll(state={'0': ...})", "expected paths among ['1']"),
    ),
    "unroll_state_of_another_batch": (
        lambda: snn.unroll(net(), SEQUENCE, state={"1": (torch.ones(2, 2),)}),
        ShapeError,
        ("Leaky(mem of shape (2, 2), frames of shape (3, 2))",),
    ),
}


@pytest.mark.parametrize("case", CALLS)
def test_bad_call__error__shows_the_call_the_expectation_and_the_remedy(case: str) -> None:
    call, exception, parts = CALLS[case]
    with pytest.raises(exception) as caught:
        call()
    assert type(caught.value) is exception
    for part in parts:
        assert part in str(caught.value)


def test_unknown_backend__set_later__is_an_error_at_the_call() -> None:
    neuron = leaky()
    neuron.backend = "gpu"
    with pytest.raises(ValueError, match="backend='gpu': expected one of auto"):
        neuron(FRAME)


def test_unknown_backend__in_the_environment__is_an_error_at_the_call(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SNN_IPU_BACKEND", "gpu")
    with pytest.raises(ValueError, match="backend='gpu': expected one of auto"):
        snn.Leaky(0.5)(FRAME)


def test_backend_asked_for__that_does_not_work_here__is_an_error_with_its_reason() -> None:
    with pytest.raises(BackendMissingError, match="backend='cuda': "):
        snn.Leaky(0.5, backend="cuda")(FRAME)


def test_backend_asked_for__that_cannot_run_the_call__is_an_error_with_its_reason() -> None:
    neuron = snn.Leaky(0.5, spike_grad=torch.sigmoid, backend="cpu")
    with pytest.raises(UnsupportedError, match=r"backend='cpu' cannot run leaky: .*sigmoid.*surrogate\.define"):
        neuron(FRAME)


def test_auto__that_takes_the_reference__warns_once_with_the_reason() -> None:
    def surrogate_of_this_test(u: Tensor) -> Tensor:
        return torch.sigmoid(u)

    neuron = snn.Leaky(0.5, spike_grad=surrogate_of_this_test)
    with pytest.warns(
        snn.FallbackWarning, match=r"slow reference.*surrogate_of_this_test.*backend='reference'"
    ) as seen:
        for _ in range(2):
            neuron(FRAME)
            neuron.sequence(SEQUENCE)
    assert [w.filename for w in seen] == [__file__], "one warning, at the user's line"


def misspelt(u: Tensor) -> Tensor:
    return torch.sqqrt(u)


@pytest.mark.parametrize(
    ("step", "error"),
    [
        (lambda x, mem: (snn.spike(mem + x), misspelt(mem)), AttributeError),
        (lambda x, mem: (snn.spike(mem + x), {}["mem"]), KeyError),
        (lambda x, mem: (snn.spike(mem + x), mem + torch.ones(7)), RuntimeError),
        (lambda x, mem: (snn.spike(mem + x), mem, x), UnsupportedError),
    ],
)
def test_auto__step_that_fails_everywhere__raises_and_warns_of_nothing(
    step: Callable[..., Any], error: type[Exception]
) -> None:
    neuron = snn.neuron(states=("mem",))(step)()
    with warnings.catch_warnings(record=True) as seen, pytest.raises(error):
        warnings.simplefilter("always")
        neuron(FRAME)
    assert not seen


def test_misspelt_function_of_torch__error__names_the_line_of_the_step() -> None:
    neuron = snn.neuron(states=("mem",))(lambda x, mem: (snn.spike(mem + x), misspelt(mem)))(backend="cpu")
    with pytest.raises(UnsupportedError, match=r"test_errors\.py:\d+: return torch\.sqqrt"):
        neuron(FRAME)


@pytest.mark.parametrize(
    ("options", "asked"),
    [
        ({"inhibition": True}, r"step leaky with inhibition=True at .*argmax"),
        ({"state_quant": quant.state_quant(4)}, r"step leaky with state_quant=state_quant\("),
    ],
)
@pytest.mark.filterwarnings("ignore:.*one neuron per sample may spike")
def test_option_without_a_kernel__warning__names_the_option(options: dict[str, Any], asked: str) -> None:
    with pytest.warns(snn.FallbackWarning, match=asked):
        snn.Leaky(0.5, **options)(FRAME)


def test_surrogate_of_snntorch__warning__says_where_to_take_it_from() -> None:
    surrogate = pytest.importorskip("snntorch.surrogate")
    with pytest.warns(snn.FallbackWarning, match=r"is snnTorch's; take it from snn_ipu\.surrogate"):
        snn.Leaky(0.5, spike_grad=surrogate.fast_sigmoid())(FRAME)


@pytest.mark.parametrize("threshold", [torch.ones(7), torch.ones(3, 4)])
def test_unroll__neuron_of_another_width__error_names_the_layer(threshold: Tensor) -> None:
    inner = nn.Sequential(nn.Linear(4, 2), snn.Leaky(0.5, threshold=threshold))
    with pytest.raises(ShapeError, match=r"^layer '1\.1': Leaky\(threshold of shape") as error:
        snn.unroll(nn.Sequential(nn.Linear(4, 4), inner), SEQUENCE)
    assert isinstance(error.value.__cause__, ShapeError)


def test_inhibition__is_announced_with_a_warning_at_the_users_line() -> None:
    with pytest.warns(UserWarning, match="one neuron per sample may spike") as seen:
        snn.Leaky(0.5, inhibition=True)
        snn.RLeaky(0.5, all_to_all=False, inhibition=True)
    assert [w.filename for w in seen] == [__file__, __file__]


def test_training_without_num_steps__as_many_labels_as_steps__asks_for_num_steps() -> None:
    model = nn.Sequential(nn.Flatten(), nn.Linear(4, 3), leaky())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    step = snn.training_model(model, lambda spk, y: spk.mean(), optimizer)
    images, labels = torch.ones(6, 1, 2, 2), torch.zeros(6, dtype=torch.long)
    with pytest.raises(ShapeError, match=r"x of shape \(6, 1, 2, 2\) and y of shape \(6,\).*Pass num_steps="):
        step(images, labels)
    assert step(images, labels[:1])[0].shape == (6, 1, 3)
