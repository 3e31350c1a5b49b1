"""The host model of PopTorch: models run as on an IPU where they can, and are refused where PopTorch refuses them."""

from __future__ import annotations

import copy
import importlib.util
import inspect
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, Callable, Iterator, Sequence

import pytest
import torch
from host_sdk.loading import ROOT, enabled_sdk, load_op, load_poptorch
from torch import Tensor, nn

poptorch = load_poptorch()
load_op("ops/scaled_cube")
CODELETS = str(ROOT / "ops" / "scaled_cube_codelet.cpp")


@pytest.fixture(autouse=True)
def _settings() -> Iterator[None]:
    poptorch.configure(checks="full")
    yield
    poptorch.configure(
        checks="first", half="saturate", tiles=1472, tile_bytes=624 * 1024, memory_margin=0.1, target="ipu_model"
    )


def cube(x: Tensor, scale: float = 2.0, codelets: str = CODELETS) -> list[Tensor]:
    """y = scale x³ and z = 3 scale x²."""
    attributes = {"scale": scale, "codelets": codelets}
    out: list[Tensor] = poptorch.custom_op([x], "ScaledCube", "host.example", 1, [x, x], attributes)
    return out


class Weighted(nn.Module):
    """The inputs of an op as parameters, and a loss that weighs its outputs: SGD with lr 1 leaves the gradient."""

    def __init__(self, op: Callable[..., Sequence[Tensor]], *inputs: Tensor) -> None:
        super().__init__()
        self.op = op
        self.values = nn.ParameterList([nn.Parameter(x.clone()) for x in inputs])

    def forward(self, *weights: Tensor) -> Any:
        outputs = self.op(*self.values)
        terms = [(o * w).sum() for o, w in zip(outputs, weights)]
        return (*outputs, poptorch.identity_loss(sum(terms[1:], terms[0]), "sum"))


def gradients(op: Callable[..., Sequence[Tensor]], inputs: Sequence[Tensor], weights: Sequence[Tensor]) -> list[Tensor]:
    model = Weighted(op, *inputs)
    step = poptorch.trainingModel(model, optimizer=poptorch.optim.SGD(model.parameters(), lr=1.0))
    step(*weights)
    return [before - after.detach() for before, after in zip(inputs, model.values)]


class Call(nn.Module):
    """A function as a model."""

    def __init__(self, function: Callable[..., Any], **attributes: Any) -> None:
        super().__init__()
        self.function = function
        for name, value in attributes.items():
            setattr(self, name, value)

    def forward(self, *args: Any) -> Any:
        return self.function(self, *args)


def inference(function: Callable[..., Any], *args: Any, **attributes: Any) -> Any:
    return poptorch.inferenceModel(Call(function, **attributes))(*args)


TYPES = pytest.mark.parametrize("dtype", [torch.float32, torch.float16], ids=str)
TOLERANCE = {torch.float32: {"rtol": 1e-5, "atol": 1e-6}, torch.float16: {"rtol": 2e-3, "atol": 2e-3}}

# An odd row, one that leaves the last tile partly filled, and one that fills several tiles.
SHAPES = pytest.mark.parametrize("shape", [(1,), (3, 7), (5, 333)], ids=str)


@TYPES
@SHAPES
def test_custom_op__in_inference__gives_what_the_codelet_computes(dtype: torch.dtype, shape: tuple[int, ...]) -> None:
    x = torch.randn(shape).to(dtype)

    y, z = inference(lambda _, x: cube(x), x)

    exact = x.float()
    torch.testing.assert_close(y, (2 * exact**3).to(dtype), **TOLERANCE[dtype])
    torch.testing.assert_close(z, (6 * exact**2).to(dtype), **TOLERANCE[dtype])


@TYPES
@pytest.mark.parametrize("used", [(0, 1), (0,), (1,)], ids=["both", "first", "second"])
def test_custom_op__in_training__has_the_gradient_of_its_gradient_op(dtype: torch.dtype, used: tuple[int, ...]) -> None:
    x = (torch.randn(5, 33) / 2).to(dtype)
    weights = [torch.randn(5, 33).to(dtype) for _ in used]

    [dx] = gradients(lambda x: [cube(x)[i] for i in used], [x], weights)

    exact = x.float().requires_grad_()
    outputs = [2 * exact**3, 6 * exact**2]
    sum((outputs[i] * w.float()).sum() for i, w in zip(used, weights)).backward()
    # A half parameter is rounded once more by the subtraction that reads the gradient.
    torch.testing.assert_close(dx.float(), exact.grad, rtol=1e-2 if dtype == torch.float16 else 1e-4, atol=2e-2)


def test_report__of_a_large_input__names_tiles_vertices_and_bytes() -> None:
    run = poptorch.inferenceModel(Call(lambda _, x: cube(x)))

    run(torch.randn(4, 1000))

    [op] = run.hostReport()["ops"]
    assert op["vertices"] == op["tiles_used"] == 125  # 32 floats, 128 bytes, a tile
    # Three tensors of 128 bytes, and a vertex of three pointers and two numbers.
    assert op["max_tile_bytes"] == 3 * 128 + 24
    assert op["exchanged_bytes"] == 0


@pytest.mark.parametrize("target", ["cpu", "ipu_model"])
def test_custom_op__on_one_worker_and_six__gives_the_same(target: str) -> None:
    poptorch.configure(target=target)
    x = torch.randn(77)

    y, _ = inference(lambda _, x: cube(x), x)

    torch.testing.assert_close(y, 2 * x**3)


@pytest.mark.parametrize("mode, expected", [("saturate", 65504.0), ("inf", float("inf"))])
def test_half__beyond_its_range__saturates_or_overflows_as_asked(mode: str, expected: float) -> None:
    poptorch.configure(half=mode)

    y, _ = inference(lambda _, x: cube(x), torch.tensor([100.0, -100.0]).half())

    assert y.tolist() == [expected, -expected]


def test_half__on_store__rounds_to_nearest_even() -> None:
    poptorch.configure(half="inf")
    # Every seventh bit pattern but NaNs: zeros, subnormals, infinities and results of all of these kinds.
    x = torch.arange(-32768, 32768, 7, dtype=torch.int32).to(torch.int16).view(torch.half)
    x = x[~x.isnan()]

    y, _ = inference(lambda _, x: cube(x, 1.0), x)

    assert torch.equal(y, (x.float() * x.float() * x.float()).half())


def small_net() -> nn.Sequential:
    torch.manual_seed(3)
    return nn.Sequential(nn.Conv2d(1, 3, 3, bias=False), nn.BatchNorm2d(3), nn.ReLU(), nn.Flatten(), nn.Linear(108, 5))


class WithLoss(nn.Module):
    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.net = net

    def forward(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        out = self.net(x)
        return out, nn.functional.cross_entropy(out, y)


OPTIMIZERS: dict[str, tuple[Callable[..., Any], dict[str, Any]]] = {
    "SGD": (torch.optim.SGD, {"lr": 0.1, "momentum": 0.9, "weight_decay": 0.01}),
    "Adam": (torch.optim.Adam, {"lr": 0.01, "weight_decay": 0.01}),
    "AdamW": (torch.optim.AdamW, {"lr": 0.01}),
    "RMSprop": (torch.optim.RMSprop, {"lr": 0.01, "momentum": 0.5, "centered": True}),
}


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_training_model__of_torch_layers__takes_the_steps_that_torch_takes(name: str) -> None:
    torch_class, settings = OPTIMIZERS[name]
    mine, theirs = WithLoss(small_net()), WithLoss(small_net())
    x, y = torch.randn(4, 1, 8, 8), torch.randint(5, (4,))
    step = poptorch.trainingModel(mine, optimizer=getattr(poptorch.optim, name)(mine.parameters(), **settings))
    optimizer = torch_class(theirs.parameters(), **settings)

    for _ in range(4):
        _, loss = step(x, y)
        optimizer.zero_grad()
        _, expected = theirs(x, y)
        expected.backward()
        optimizer.step()
        torch.testing.assert_close(loss, expected.detach(), rtol=1e-4, atol=1e-5)

    for ours, other in zip(mine.state_dict().values(), theirs.state_dict().values()):
        torch.testing.assert_close(ours.to(other.dtype), other, rtol=1e-3, atol=1e-4)


def test_lamb__over_some_steps__lowers_the_loss() -> None:
    model = WithLoss(small_net())
    x, y = torch.randn(4, 1, 8, 8), torch.randint(5, (4,))
    step = poptorch.trainingModel(model, optimizer=poptorch.optim.LAMB(model.parameters(), lr=0.05))

    losses = [float(step(x, y)[1]) for _ in range(5)]

    assert losses[-1] < losses[0]


def test_training_model__half_with_loss_scaling__takes_the_same_steps_as_float() -> None:
    x, y = torch.randn(4, 1, 8, 8), torch.randint(5, (4,))
    losses = []
    for half in (False, True):
        model = WithLoss(nn.Sequential(nn.Flatten(), nn.Linear(64, 5)))
        torch.manual_seed(1)
        nn.init.normal_(model.net[1].weight, std=0.1)
        nn.init.zeros_(model.net[1].bias)
        if half:
            model.half()
        types = {"accum_type": torch.float16} if half else {}
        optimizer = poptorch.optim.AdamW(model.parameters(), lr=0.01, loss_scaling=1024.0 if half else 1.0, **types)
        step = poptorch.trainingModel(model, optimizer=optimizer)
        losses.append([float(step(x.half() if half else x, y)[1]) for _ in range(4)])

    assert losses[1] == pytest.approx(losses[0], rel=5e-3)


def test_training_model__gradients_below_half__need_loss_scaling() -> None:
    def change(scaling: float) -> float:
        model = Call(
            lambda m, x: poptorch.identity_loss((m.w * x).sum() * 1e-6, "sum"), w=nn.Parameter(torch.ones(2).half())
        )
        optimizer = poptorch.optim.SGD(model.parameters(), lr=1e5, loss_scaling=scaling)
        step = poptorch.trainingModel(model, optimizer=optimizer)
        step(torch.full((2,), 1e-2).half())
        return float(1 - model.w.detach()[0])

    assert change(1.0) == 0.0
    assert change(4096.0) == pytest.approx(1e-3, rel=0.1)


@pytest.mark.parametrize("accumulation, iterations, replicas", [(3, 1, 1), (1, 2, 1), (2, 1, 2)])
def test_training_model__large_batch_in_parts__takes_the_steps_of_its_parts(
    accumulation: int, iterations: int, replicas: int
) -> None:
    def make() -> nn.Module:
        torch.manual_seed(5)
        return WithLoss(nn.Sequential(nn.Flatten(), nn.Linear(6, 3)))

    mine, theirs = make(), make()
    options = poptorch.Options().deviceIterations(iterations).replicationFactor(replicas)
    options.Training.gradientAccumulation(accumulation)
    options.outputMode(poptorch.OutputMode.All)
    step = poptorch.trainingModel(mine, options, poptorch.optim.SGD(mine.parameters(), lr=0.5))
    parts = accumulation * iterations * replicas
    x, y = torch.randn(2 * parts, 6), torch.randint(3, (2 * parts,))

    out, loss = step(x, y)

    optimizer = torch.optim.SGD(theirs.parameters(), lr=0.5)
    size = 2 * parts // iterations
    for i in range(iterations):
        optimizer.zero_grad()
        theirs(x[i * size : (i + 1) * size], y[i * size : (i + 1) * size])[1].backward()
        optimizer.step()
    torch.testing.assert_close(mine.net[1].weight, theirs.net[1].weight)
    assert out.shape == (2 * parts, 3) and loss.shape == (parts,)


@pytest.mark.parametrize(
    "mode, expected",
    [("Final", [2.0]), ("All", [0.0, 1.0, 2.0]), ("Sum", [3.0]), ("EveryN", [1.0])],
)
def test_output_mode__of_three_device_iterations__picks_what_it_says(mode: str, expected: list[float]) -> None:
    options = poptorch.Options().deviceIterations(3)
    options.outputMode(getattr(poptorch.OutputMode, mode), 2 if mode == "EveryN" else None)

    out = poptorch.inferenceModel(Call(lambda _, x: x + 0), options)(torch.arange(3.0))

    assert out.tolist() == expected


@pytest.mark.parametrize(
    "given, seen, returned",
    [
        (torch.int64, torch.int64, torch.int32),
        (torch.float64, torch.float32, torch.float32),
        (torch.bfloat16, torch.float32, torch.float32),
        (torch.float16, torch.float16, torch.float16),
        (torch.uint8, torch.uint8, torch.uint8),
        (torch.bool, torch.bool, torch.bool),
    ],
)
def test_dtypes__in_and_out__are_those_of_the_device(
    given: torch.dtype, seen: torch.dtype, returned: torch.dtype
) -> None:
    noted = []

    def note(_: nn.Module, x: Tensor) -> Tensor:
        noted.append(x.dtype)
        return x.clone()

    assert inference(note, torch.ones(3).to(given)).dtype == returned
    assert noted == [seen]


def test_forward__over_several_calls__is_traced_once() -> None:
    calls = []

    def count(_: nn.Module, x: Tensor) -> Tensor:
        calls.append(poptorch.isRunningOnIpu())
        return x + 1

    run = poptorch.inferenceModel(Call(count))
    results = [run(torch.full((2,), float(i))).tolist() for i in range(3)]

    assert calls == [True]
    assert results == [[1.0, 1.0], [2.0, 2.0], [3.0, 3.0]]
    assert not poptorch.isRunningOnIpu()


def test_structures__of_arguments_and_results__are_kept() -> None:
    def swap(_: nn.Module, pair: Any, named: Any) -> Any:
        return {"sum": pair[0] + named["b"], "rest": (pair[1] * 2, 7)}

    out = inference(swap, [torch.ones(2), torch.ones(3)], {"b": torch.ones(2)})

    assert out["sum"].tolist() == [2.0, 2.0]
    assert out["rest"][0].tolist() == [2.0, 2.0, 2.0] and out["rest"][1] == 7


def test_buffer__updated_in_place__carries_from_call_to_call() -> None:
    model = Call(lambda m, x: m.total.add_(x.sum()) * 1)
    model.register_buffer("total", torch.zeros(()))
    run = poptorch.inferenceModel(model)

    results = [float(run(torch.ones(2))) for _ in range(3)]
    run.copyWeightsToHost()

    assert results == [2.0, 4.0, 6.0]
    assert float(model.total) == 6.0


def test_state_as_attribute__between_calls__is_frozen_and_refused_when_strict(monkeypatch: pytest.MonkeyPatch) -> None:
    def keep(m: nn.Module, x: Tensor) -> Tensor:
        m.mem = x if m.mem is None else m.mem + x
        return m.mem * 1

    run = poptorch.inferenceModel(Call(keep, mem=None))
    assert [float(run(torch.ones(1))) for _ in range(3)] == [1.0, 1.0, 1.0]

    monkeypatch.setenv("HOST_SDK_STRICT", "1")
    with pytest.raises(poptorch.Error, match=r"attribute mem .* frozen"):
        inference(keep, torch.ones(1), mem=None)


def test_tensor_of_a_trace__used_after_it__is_refused() -> None:
    kept = []
    inference(lambda _, x: kept.append(x * 2) or x * 1, torch.ones(2))

    with pytest.raises(poptorch.Error, match="values exist on the IPU only"):
        kept[0] + 1


class Clipped(torch.autograd.Function):
    """A straight-through clamp: its own gradient is 1 everywhere, that of its forward is 0 outside of [0, 1]."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return x.clamp(0, 1)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:  # type: ignore[override]
        raise AssertionError("PopTorch never calls this")


def test_autograd_function__in_training__is_differentiated_through_its_forward() -> None:
    [dx] = gradients(lambda x: [Clipped.apply(x)], [torch.tensor([-1.0, 0.5, 2.0])], [torch.ones(3)])

    assert dx.tolist() == [0.0, 1.0, 0.0]


def test_autograd_function__when_strict__is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOST_SDK_STRICT", "1")

    with pytest.raises(poptorch.Error, match="never calls its backward"):
        inference(lambda _, x: Clipped.apply(x), torch.ones(2))


def test_cast_from_bool__in_training__has_no_gradient_and_no_error() -> None:
    [dx] = gradients(lambda x: [(x > 0).float(), x], [torch.randn(4)], [torch.ones(4), torch.zeros(4)])

    assert dx.tolist() == [0.0] * 4


def test_no_grad__in_a_model__cuts_the_gradient() -> None:
    def partly(x: Tensor) -> list[Tensor]:
        with torch.no_grad():
            cut = x * 5
        return [cut + x]

    [dx] = gradients(partly, [torch.ones(2)], [torch.ones(2)])

    assert dx.tolist() == [1.0, 1.0]


def test_custom_op__outside_of_a_model__gives_zeros_without_gradient(monkeypatch: pytest.MonkeyPatch) -> None:
    x = torch.ones(3, requires_grad=True)

    y, z = cube(x)

    assert y.tolist() == z.tolist() == [0.0] * 3 and y.grad_fn is None
    monkeypatch.setenv("HOST_SDK_STRICT", "1")
    with pytest.raises(poptorch.Error, match="outside of a model"):
        cube(x)


@pytest.mark.parametrize(
    "use",
    [
        lambda _, x: x * x.sum().item(),
        lambda _, x: x * int(x.sum()),
        lambda _, x: x if x.sum() > 0 else -x,
        lambda _, x: x[x > 0],
    ],
    ids=["item", "int", "if", "mask"],
)
def test_value_of_a_tensor__in_a_model__is_refused(use: Callable[..., Any]) -> None:
    with pytest.raises((poptorch.Error, NotImplementedError), match="Meta"):
        inference(use, torch.ones(3))


def test_input_that_requires_grad__is_refused() -> None:
    with pytest.raises(poptorch.Error, match="can not have requires_grad"):
        inference(lambda _, x: x + 1, torch.ones(2, requires_grad=True))


def test_cpu_tensor__in_a_model__is_refused_until_it_is_moved() -> None:
    outside = torch.arange(3.0)

    with pytest.raises(poptorch.Error, match="Expected an IPU tensor"):
        inference(lambda _, x: x + outside, torch.ones(3))
    assert inference(lambda _, x: x + outside.to("ipu"), torch.ones(3)).tolist() == [1.0, 2.0, 3.0]
    assert inference(lambda _, x: x + outside[1], torch.ones(3)).tolist() == [2.0, 2.0, 2.0]


def test_factory_without_device__in_a_model__is_forced_to_the_ipu_with_a_warning(
    caplog: pytest.LogCaptureFixture,
) -> None:
    out = inference(lambda _, x: x + torch.full((3,), 2.0) + torch.tensor([1.0, 2.0, 3.0]), torch.ones(3))

    assert out.tolist() == [4.0, 5.0, 6.0]
    assert "No device set in torch.full(): forcing to IPU" in caplog.text


def test_example_output_on_the_cpu__is_refused() -> None:
    outside = torch.ones(3)

    with pytest.raises(poptorch.Error, match="Expected an IPU tensor but got an example output on cpu"):
        inference(
            lambda _, x: poptorch.custom_op([x], "ScaledCube", "host.example", 1, [outside, outside]), torch.ones(3)
        )


def test_example_outputs__that_setup_contradicts__are_refused() -> None:
    def wrong(_: nn.Module, x: Tensor) -> Any:
        return poptorch.custom_op([x], "ScaledCube", "host.example", 1, [x.half(), x], {"codelets": CODELETS})

    with pytest.raises(poptorch.Error, match=r"example output 0 is torch.float16 .* makes it torch.float32"):
        inference(wrong, torch.ones(3))


def test_single_float_output_after_half_input__is_refused() -> None:
    def trap(_: nn.Module, x: Tensor) -> Any:
        return poptorch.custom_op([x], "ScaledCube", "host.example", 1, [x.float()], {"codelets": CODELETS})

    with pytest.raises(poptorch.Error, match="PopTorch may type it half"):
        inference(trap, torch.ones(3).half())


def test_attribute__int_where_a_float_is_read__is_silently_zero() -> None:
    y, _ = inference(lambda _, x: cube(x, 2), torch.ones(3))  # type: ignore[arg-type]

    assert y.tolist() == [0.0] * 3


@pytest.mark.parametrize(
    "attributes, error, text",
    [
        ({"codelets": ""}, poptorch.Error, "no attribute key codelets"),
        ({"scale": torch.tensor(1.0)}, ValueError, "must be floats, ints, strings"),
        ({3: 1}, ValueError, "keys must be strings"),
        ({"scale": [1, 2.0]}, ValueError, "must all be the same"),
        ({"scale": []}, IndexError, "range"),
        ({"scale": "é"}, ValueError, "non-ASCII"),
        ({"scale": 1e300, "codelets": CODELETS}, poptorch.Error, "does not fit float32"),
    ],
    ids=["empty string", "tensor", "key", "mixed list", "empty list", "non-ascii", "range"],
)
def test_attribute__that_cannot_be_passed__is_an_error(attributes: Any, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        inference(
            lambda _, x: poptorch.custom_op([x], "ScaledCube", "host.example", 1, [x, x], attributes), torch.ones(3)
        )


def test_for_loop__in_inference__repeats_and_in_training__is_refused() -> None:
    def loop(_: nn.Module, x: Tensor) -> Tensor:
        out: Tensor = poptorch.for_loop(3, lambda v: [v * 2], [x])[0]
        return out

    assert inference(loop, torch.ones(2)).tolist() == [8.0, 8.0]
    model = Call(lambda m, x: poptorch.identity_loss(loop(m, x * m.w), "sum"), w=nn.Parameter(torch.ones(2)))
    with pytest.raises(poptorch.Error, match="only supported in inference"):
        poptorch.trainingModel(model)(torch.ones(2))


@pytest.mark.parametrize(
    "losses, text",
    [
        (lambda x: x.sum(), "Couldn't find a loss"),
        (lambda x: (poptorch.identity_loss(x, "sum"), poptorch.identity_loss(x, "mean")), "one final loss"),
    ],
    ids=["none", "two"],
)
def test_training_model__without_one_final_loss__is_refused(losses: Callable[..., Any], text: str) -> None:
    model = Call(lambda m, x: losses(m.w * x), w=nn.Parameter(torch.ones(2)))

    with pytest.raises(poptorch.Error, match=text):
        poptorch.trainingModel(model)(torch.ones(2))


def test_losses__joined_into_one__are_accepted() -> None:
    def joined(m: nn.Module, x: Tensor) -> Tensor:
        parts = [nn.functional.mse_loss(m.w * x, x), poptorch.identity_loss(m.w, "mean")]
        out: Tensor = poptorch.identity_loss(sum(parts), "none")
        return out

    model = Call(joined, w=nn.Parameter(torch.full((2,), 2.0)))

    assert float(poptorch.trainingModel(model)(torch.ones(2))) == 3.0


def test_options__given_to_a_model__are_frozen_and_a_copy_is_not() -> None:
    options = poptorch.Options()
    poptorch.inferenceModel(Call(lambda _, x: x), options)

    for change in (
        lambda o: o.deviceIterations(2),
        lambda o: o.Training.gradientAccumulation(2),
        lambda o: o._Popart.set("enableOutlining", False),
        lambda o: o.Precision.setPartialsType(torch.half),
    ):
        with pytest.raises(AttributeError, match="frozen"):
            change(options)
        change(copy.deepcopy(options))


@pytest.mark.parametrize("change", [lambda o: o.deviceIterations(1.5), lambda o: o.set(device_iteration=1)])
def test_options__of_a_wrong_type_or_name__are_refused(change: Callable[..., Any]) -> None:
    with pytest.raises(AssertionError, match=r"Unexpected type|Invalid option"):
        change(poptorch.Options())


def test_inference_model__with_gradient_accumulation__is_refused() -> None:
    options = poptorch.Options()
    options.Training.gradientAccumulation(2)

    with pytest.raises(poptorch.Error, match=r"gradientAccumulation to 1"):
        poptorch.inferenceModel(Call(lambda _, x: x), options)


def test_batch__that_does_not_divide__is_refused() -> None:
    run = poptorch.inferenceModel(Call(lambda _, x: x + 1), poptorch.Options().deviceIterations(2))

    with pytest.raises(AssertionError, match=r"must be a multiple of Options.deviceIterations\(2\)"):
        run(torch.ones(3))


def test_input__of_another_shape_type_or_value_than_compiled__is_refused() -> None:
    run = poptorch.inferenceModel(Call(lambda _, x, n: x * n))
    run(torch.ones(3), 2)

    for args, text in (
        ((torch.ones(4), 2), "Shape mismatch"),
        ((torch.ones(3).half(), 2), "Data type mismatch"),
        ((torch.ones(3), 3), "Value mismatch"),
    ):
        with pytest.raises(poptorch.Error, match=text):
            run(*args)


def test_buffer__rebound_in_forward__is_refused() -> None:
    def rebind(m: nn.Module, x: Tensor) -> Tensor:
        m.total = m.total + x.sum()
        return m.total

    model = Call(rebind)
    model.register_buffer("total", torch.zeros(()))

    with pytest.raises(poptorch.Error, match="Buffer total is reassigned"):
        poptorch.inferenceModel(model)(torch.ones(2))
    assert float(model.total) == 0.0


def test_weights__changed_on_the_host__reach_the_device_only_when_copied() -> None:
    model = Call(lambda m, x: m.w * x, w=nn.Parameter(torch.ones(1)))
    run = poptorch.inferenceModel(model)
    run(torch.ones(1))

    with torch.no_grad():
        model.w.fill_(5.0)
    before = float(run(torch.ones(1)))
    run.copyWeightsToDevice()

    assert (before, float(run(torch.ones(1)))) == (1.0, 5.0)


def test_inference_model__beside_a_training_model__follows_its_weights() -> None:
    model = WithLoss(nn.Sequential(nn.Flatten(), nn.Linear(4, 2)))
    train = poptorch.trainingModel(model, optimizer=poptorch.optim.SGD(model.parameters(), lr=1.0))
    run = poptorch.inferenceModel(model.net)
    x, y = torch.randn(3, 4), torch.tensor([0, 1, 0])
    run(x)
    train(x, y)

    run.copyWeightsToDevice()

    torch.testing.assert_close(run(x), model.net(x))


def test_learning_rate__changed_in_python__holds_from_set_optimizer_on() -> None:
    model = Call(lambda m, x: poptorch.identity_loss(m.w * x, "sum"), w=nn.Parameter(torch.zeros(1)))
    optimizer = poptorch.optim.SGD(model.parameters(), lr=1.0)
    step = poptorch.trainingModel(model, optimizer=optimizer)
    weights = []
    step(torch.ones(1))
    optimizer.param_groups[0]["lr"] = 0.25
    step(torch.ones(1))
    weights.append(float(model.w.detach()))
    step.setOptimizer(optimizer)
    step(torch.ones(1))
    weights.append(float(model.w.detach()))

    assert weights == [-2.0, -2.25]


def test_optimizer__that_popart_lacks__is_refused() -> None:
    model = Call(lambda m, x: poptorch.identity_loss(m.w * x, "sum"), w=nn.Parameter(torch.zeros(1)))

    with pytest.raises(AssertionError, match="Unsupported optimizer type"):
        poptorch.trainingModel(model, optimizer=torch.optim.Adagrad(model.parameters()))


def test_amsgrad__is_refused() -> None:
    model = Call(lambda m, x: poptorch.identity_loss(m.w * x, "sum"), w=nn.Parameter(torch.zeros(1)))

    with pytest.raises(ValueError, match="non-amsgrad"):
        poptorch.trainingModel(model, optimizer=poptorch.optim.Adam(model.parameters(), lr=0.1, amsgrad=True))


def test_training_model__wrapped_twice__is_refused_until_destroyed() -> None:
    model = WithLoss(nn.Sequential(nn.Flatten(), nn.Linear(4, 2)))
    poptorch.trainingModel(model)

    with pytest.raises(RuntimeError, match="already been wrapped"):
        poptorch.trainingModel(model)
    model.destroy()
    poptorch.trainingModel(model).destroy()
    assert type(model) is WithLoss


def test_backward__of_an_output__is_refused() -> None:
    with pytest.raises(poptorch.Error, match="cannot be called explicitly"):
        inference(lambda _, x: x * 2, torch.ones(2)).backward()


def test_synthetic_data__gives_the_host_nothing() -> None:
    options = poptorch.Options().enableSyntheticData(True)

    assert poptorch.inferenceModel(Call(lambda _, x: x + 1), options)(torch.ones(3)).tolist() == [0.0] * 3


def test_cycle_count__without_hardware__is_an_error() -> None:
    run = poptorch.inferenceModel(Call(lambda _, x: x + 1), poptorch.Options().logCycleCount(True))
    run(torch.ones(2))

    with pytest.raises(poptorch.Error, match="host model"):
        run.cycleCount()


def test_hardware__is_never_claimed() -> None:
    assert not poptorch.ipuHardwareIsAvailable()
    with pytest.raises(AssertionError, match="No IPU hardware"):
        poptorch.ipuHardwareVersion()


def test_every_use__says_that_it_is_not_an_ipu(capfd: pytest.CaptureFixture[str]) -> None:
    inference(lambda _, x: x + 1, torch.ones(2))

    assert "NOT AN IPU" in capfd.readouterr().err


def test_executable_cache__with_an_edited_codelet__is_stale_unless_an_attribute_says_so(tmp_path: Path) -> None:
    copied = tmp_path / "codelet.cpp"
    copied.write_text(Path(CODELETS).read_text())

    def run() -> None:
        options = poptorch.Options().enableExecutableCaching(str(tmp_path / "cache"))
        poptorch.inferenceModel(Call(lambda _, x: cube(x, 2.0, str(copied))), options)(torch.ones(3))

    run()
    run()
    copied.write_text(copied.read_text().replace("3.0f * scale * value * value)", "3.5f * scale * value * value)"))
    with pytest.raises(poptorch.Error, match="stale executable"):
        run()


@pytest.mark.parametrize("mode", ["Sync", "Async", "AsyncRebatched"])
def test_data_loader__in_every_mode__gives_combined_batches(mode: str) -> None:
    options = poptorch.Options().deviceIterations(2)
    options.Training.gradientAccumulation(3)
    data = torch.utils.data.TensorDataset(torch.arange(26.0), torch.arange(26))

    loader = poptorch.DataLoader(options, data, batch_size=2, mode=getattr(poptorch.DataLoaderMode, mode))
    batches = [(x.clone(), y.clone()) for x, y in loader]

    assert loader.combinedBatchSize == 12 and len(loader) == 2
    assert [x.tolist() for x, _ in batches] == [list(range(12)), list(range(12, 24))]
    with pytest.raises(AttributeError, match="frozen"):
        options.deviceIterations(1)


def test_async_data_loader__batches_kept_without_a_copy__are_overwritten() -> None:
    data = torch.utils.data.TensorDataset(torch.arange(5.0))
    loader = poptorch.DataLoader(poptorch.Options(), data, mode=poptorch.DataLoaderMode.Async)

    kept = [x for (x,) in loader]

    # Three buffers: the fourth and fifth batch took the place of the first and second.
    assert [float(x) for x in kept] == [3.0, 4.0, 2.0, 3.0, 4.0]


def test_rebatched_loader__with_leftovers__gives_them_last() -> None:
    data = torch.utils.data.TensorDataset(torch.arange(7.0))
    loader = poptorch.DataLoader(
        poptorch.Options(),
        data,
        batch_size=3,
        drop_last=False,
        mode=poptorch.DataLoaderMode.AsyncRebatched,
        rebatched_worker_size=2,
    )

    assert [x.tolist() for (x,) in loader] == [[0.0, 1.0, 2.0], [3.0, 4.0, 5.0], [6.0]] and len(loader) == 3


# Names and order of PopTorch 3.4's parameters.
SIGNATURES = {
    "custom_op": "inputs name domain domain_version example_outputs attributes",
    "trainingModel": "model options optimizer",
    "inferenceModel": "model options",
    "identity_loss": "x reduction",
    "for_loop": "count body inputs",
    "isRunningOnIpu": "",
    "ipuHardwareIsAvailable": "num_ipus",
    "ipuHardwareVersion": "",
    "set_available_memory": "tensor available_memory_proportion",
    "BeginBlock": "layer_to_call user_id ipu_id",
    "DataLoader.__init__": (
        "self options dataset batch_size shuffle num_workers drop_last persistent_workers "
        "auto_distributed_partitioning mode async_options rebatched_worker_size batch_sampler kwargs"
    ),
    "optim.SGD.__init__": (
        "self params lr momentum dampening weight_decay nesterov maximize foreach differentiable loss_scaling "
        "velocity_scaling use_combined_accum accum_type velocity_accum_type max_grad_norm"
    ),
    "optim.Adam.__init__": (
        "self params lr betas eps weight_decay amsgrad foreach maximize capturable differentiable fused loss_scaling "
        "accum_type first_order_momentum_accum_type second_order_momentum_accum_type max_grad_norm"
    ),
    "optim.AdamW.__init__": (
        "self params lr betas eps weight_decay amsgrad maximize foreach capturable differentiable fused loss_scaling "
        "bias_correction accum_type first_order_momentum_accum_type second_order_momentum_accum_type max_grad_norm"
    ),
    "optim.RMSprop.__init__": (
        "self params lr alpha eps weight_decay momentum centered foreach maximize differentiable loss_scaling "
        "accum_type first_order_momentum_accum_type second_order_momentum_accum_type use_tf_variant"
    ),
    "optim.LAMB.__init__": (
        "self params lr betas eps weight_decay bias_correction loss_scaling max_weight_norm accum_type "
        "first_order_momentum_accum_type second_order_momentum_accum_type"
    ),
    "Options.outputMode": "self output_mode output_return_period",
    "Options.setAvailableMemoryProportion": "self available_memory_proportion",
    "Options.enableExecutableCaching": "self path",
    "PoplarExecutor.load_state_dict": "self state_dict strict",
    "PoplarExecutor.setOptimizer": "self optimizer",
}


@pytest.mark.parametrize("name", SIGNATURES)
def test_signature__of_a_public_name__is_that_of_poptorch(name: str) -> None:
    found: Any = poptorch
    for part in name.split("."):
        found = getattr(found, part)

    assert " ".join(inspect.signature(found).parameters) == SIGNATURES[name]


def test_enabled_sdk__for_a_block__is_found_inside_and_gone_after() -> None:
    def found() -> tuple[bool, bool]:
        return importlib.util.find_spec("poptorch") is not None, "POPLAR_SDK_ENABLED" in os.environ

    before = found()
    with enabled_sdk() as module:
        assert importlib.import_module("poptorch") is module is poptorch
        assert found() == (True, True)
    assert found() == before


def test_import__in_a_process_of_its_own__needs_only_the_environment_of_the_sdk() -> None:
    build = sys.modules["poplar_host"]
    script = "import poptorch; print(poptorch.__version__, poptorch.isRunningOnIpu())"

    done = subprocess.run(
        [sys.executable, "-c", script],
        env={**os.environ, **build.install().environment()},
        capture_output=True,
        text=True,
        check=True,
    )

    assert done.stdout.split() == ["3.4.0+host.model", "False"]
    assert "NOT AN IPU" in done.stderr
