"""Whole networks through `training_model(device="ipu")` on the host model, against the CPU. Not run on an IPU."""

from __future__ import annotations

import copy
import io
from typing import Any, Iterator

import pytest
import torch
from ipu_host import host_sdk
from torch import Tensor, nn

import snn_ipu as snn
import snn_ipu.functional as SF
from snn_ipu.backends import ipu, select
from snn_ipu.backends.tile_memory import ScanSizes, scan_bytes, spread
from snn_ipu.data import load
from snn_ipu.errors import BackendMissingError, ShapeError, UnsupportedError

STEPS = 6


@pytest.fixture(scope="module", autouse=True)
def poptorch() -> Iterator[Any]:
    with host_sdk() as module:
        yield module


@pytest.fixture(scope="module")
def images() -> tuple[Tensor, Tensor]:
    data = load("fashion-mnist-mini", None)
    x = torch.as_tensor(data.train_images[:24]).float() / 255
    return x.reshape(24, 1, 28, 28), torch.as_tensor(data.train_labels[:24]).long()


NETS = {
    "dsnn": lambda: snn.models.DSNN(hidden=(40,), population=5),
    "csnn": lambda: snn.models.CSNN(channels=(4, 8), population=5),
}
loss_fn = SF.ce_rate_loss(population_code=True, num_classes=10)


def lively(net: nn.Module) -> nn.Module:
    """Weights large enough that every layer spikes."""
    with torch.no_grad():
        for p in net.parameters():
            p.mul_(2)
    return net


@pytest.mark.parametrize("name", NETS)
def test_training__population_outputs_and_adamw__losses_are_those_of_the_cpu(name: str, images: Any) -> None:
    x, y = images
    net = lively(NETS[name]())
    seen: dict[str, Any] = {}
    for device in ("cpu", "ipu"):
        copied = copy.deepcopy(net)
        step = snn.training_model(
            copied, loss_fn, torch.optim.AdamW(copied.parameters(), lr=5e-3), num_steps=STEPS, device=device
        )
        out = [step(x[8 * i : 8 * i + 8], y[8 * i : 8 * i + 8]) for i in range(3)]
        seen[device] = out
    for (cpu_spk, cpu_loss), (ipu_spk, ipu_loss) in zip(seen["cpu"], seen["ipu"]):
        assert ipu_spk.shape == cpu_spk.shape == (STEPS, 8, 50)
        assert torch.allclose(ipu_loss, cpu_loss, rtol=1e-5)
        assert torch.equal(ipu_spk, cpu_spk)
    assert 0.02 < seen["cpu"][0][0].mean() < 0.5
    assert seen["cpu"][0][1] != seen["cpu"][2][1]


@pytest.mark.skipif(not hasattr(torch, "compiler"), reason="torch 2.0 has no half products on the CPU to compare with")
@pytest.mark.parametrize("name", NETS)
def test_training__half_with_loss_scaling__losses_are_those_of_the_cpu(name: str, images: Any) -> None:
    x, y = images
    x = x.half()
    net = lively(NETS[name]()).half()
    scale = 128.0

    def loss_in_float(spk: Tensor, y: Tensor) -> Tensor:
        return loss_fn(spk.float(), y)

    on_ipu = copy.deepcopy(net)
    optimizer = torch.optim.AdamW(on_ipu.parameters(), lr=5e-3)
    options = snn.ipu.options(loss_scaling=scale)
    step = snn.training_model(on_ipu, loss_in_float, optimizer, num_steps=STEPS, device="ipu", options=options)
    got = [step(x[8 * i : 8 * i + 8], y[8 * i : 8 * i + 8])[1].item() for i in range(3)]

    # PopART keeps moments in float32 and weights in float16: the same with float32 copies, rounded after every update.
    masters = [nn.Parameter(p.detach().float()) for p in net.parameters()]
    cpu_optimizer = torch.optim.AdamW(masters, lr=5e-3)
    want = []
    for i in range(3):
        spk, _ = snn.unroll(net, x[8 * i : 8 * i + 8], STEPS)
        loss = loss_in_float(spk, y[8 * i : 8 * i + 8])
        want.append(loss.item())
        net.zero_grad()
        (loss * scale).backward()
        for p, master in zip(net.parameters(), masters):
            master.grad = p.grad.float() / scale
        cpu_optimizer.step()
        with torch.no_grad():
            for p, master in zip(net.parameters(), masters):
                p.copy_(master)
                master.copy_(p)
    assert got[0] == pytest.approx(want[0], rel=1e-5)
    assert got == pytest.approx(want, rel=2e-2)


def small(**learned: bool) -> nn.Sequential:
    return nn.Sequential(nn.Linear(12, 9), snn.Leaky(0.8, **learned), nn.Linear(9, 4), snn.Leaky(0.9))


def mse(spk: Tensor, y: Tensor) -> Tensor:
    return ((spk.mean(0) - y) ** 2).mean()


def batch(size: int = 6) -> tuple[Tensor, Tensor]:
    return 2 * torch.randn(size, 12), torch.rand(size, 4)


def trained(net: nn.Module, optimizer: Any, x: Tensor, y: Tensor, steps: int = 3, **how: Any) -> list[Tensor]:
    step = snn.training_model(net, mse, optimizer, num_steps=5, **how)
    for _ in range(steps):
        step(x, y)
    if how.get("device") == "ipu":
        step.sync()
    return [p.detach().clone() for p in net.parameters()]


@pytest.mark.parametrize(
    ("kind", "settings"),
    [
        (torch.optim.SGD, {"lr": 0.1, "momentum": 0.9, "weight_decay": 0.01}),
        (torch.optim.Adam, {"lr": 0.01, "betas": (0.8, 0.95)}),
        (torch.optim.AdamW, {"lr": 0.01, "weight_decay": 0.1}),
        (torch.optim.RMSprop, {"lr": 0.01, "alpha": 0.9}),
    ],
    ids=lambda v: v.__name__ if isinstance(v, type) else "",
)
def test_training__torch_optimizers_and_learned_parameters__weights_are_those_of_the_cpu(
    kind: Any, settings: Any
) -> None:
    x, y = batch()
    net = small(learn_beta=True, learn_threshold=True)
    copied = copy.deepcopy(net)
    want = trained(net, kind(net.parameters(), **settings), x, y, device="cpu")
    got = trained(copied, kind(copied.parameters(), **settings), x, y, device="ipu")
    assert len(got) == 6
    for g, w in zip(got, want):
        assert torch.allclose(g, w, rtol=1e-4, atol=1e-6)
    beta, threshold = copied[1].beta, copied[1].threshold
    assert beta != 0.8 and threshold != 1.0


LAYERS = {
    "matrix feedback": lambda: [nn.Linear(12, 8), snn.RLeaky(0.9, linear_features=8)],
    "two states and matrix feedback": lambda: [nn.Linear(12, 8), snn.RSynaptic(0.9, 0.8, linear_features=8)],
    "hidden states": lambda: [nn.Linear(12, 8), snn.Leaky(0.9, init_hidden=True)],
    "DeltaLeaky": lambda: [nn.Linear(12, 8), snn.DeltaLeaky(0.3, beta=0.9)],
    "LeakyParallel": lambda: [snn.LeakyParallel(12, 8)],
    "LinearLeaky": lambda: [snn.LinearLeaky(0.9, 12, 8)],
    "StateLeaky": lambda: [nn.Linear(12, 8), snn.StateLeaky(0.9, 8)],
    "SLSTM": lambda: [snn.SLSTM(12, 8)],
    "BatchNorm": lambda: [nn.Linear(12, 8), nn.BatchNorm1d(8), snn.Leaky(0.9)],
}


@pytest.mark.parametrize("kind", LAYERS)
def test_training__every_kind_of_layer__losses_are_those_of_the_cpu(kind: str) -> None:
    net = lively(nn.Sequential(*LAYERS[kind](), nn.Linear(8, 4), snn.Leaky(0.9)))
    x, y = 2 * torch.randn(5, 6, 12), torch.rand(6, 4)
    losses = []
    for device in ("cpu", "ipu"):
        copied = copy.deepcopy(net)
        step = snn.training_model(copied, mse, torch.optim.SGD(copied.parameters(), lr=0.3), device=device)
        losses.append([step(x, y)[1].item() for _ in range(3)])
    assert losses[1] == pytest.approx(losses[0], rel=1e-5)


# The scheduler looks for a step of torch's optimizer; on an IPU the update is PopART's.
@pytest.mark.filterwarnings("ignore:Detected call of `lr_scheduler.step")
def test_training__learning_rate_changed_by_a_scheduler__reaches_the_ipu() -> None:
    x, y = batch()
    net = small()
    copied = copy.deepcopy(net)
    results = []
    for model, device in ((net, "cpu"), (copied, "ipu")):
        optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
        schedule = torch.optim.lr_scheduler.StepLR(optimizer, step_size=1, gamma=0.1)
        step = snn.training_model(model, mse, optimizer, num_steps=5, device=device)
        for _ in range(3):
            step(x, y)
            schedule.step()
        if device == "ipu":
            step.sync()
        results.append([p.detach().clone() for p in model.parameters()])
    for w, g in zip(*results):
        assert torch.allclose(g, w, rtol=1e-4, atol=1e-6)


def test_training__gradient_accumulation__equals_one_large_batch() -> None:
    x, y = batch(8)
    net = small()
    copied = copy.deepcopy(net)
    want = trained(net, torch.optim.SGD(net.parameters(), lr=0.5), x, y, device="cpu")
    options = snn.ipu.options(gradient_accumulation=4)
    got = trained(copied, torch.optim.SGD(copied.parameters(), lr=0.5), x, y, device="ipu", options=options)
    for g, w in zip(got, want):
        assert torch.allclose(g, w, rtol=1e-4, atol=1e-6)


def test_training__sequence_input__time_is_not_split_into_batches() -> None:
    x, y = 2 * torch.randn(5, 8, 12), torch.rand(8, 4)
    net = small()
    copied = copy.deepcopy(net)
    step = snn.training_model(net, mse, torch.optim.SGD(net.parameters(), lr=0.5), device="cpu")
    want = step(x, y)[1]
    options = snn.ipu.options(gradient_accumulation=2)
    model = snn.training_model(copied, mse, torch.optim.SGD(copied.parameters(), lr=0.5), device="ipu", options=options)
    out, _ = model(x, y)
    model.sync()
    assert out.shape[0] == 5
    for g, w in zip(copied.parameters(), net.parameters()):
        assert torch.allclose(g, w, rtol=1e-4, atol=1e-6)
    assert want > 0


def test_optimizer__moments_on_the_device__travel_in_torchs_state_dict() -> None:
    x, y = batch()
    net = small()
    optimizer = torch.optim.AdamW(net.parameters(), lr=0.01)
    step = snn.training_model(net, mse, optimizer, num_steps=5, device="ipu")
    step(x, y)
    # The host model keeps no moments where PopTorch reads them; these stand in.
    moments = {"ipu_state": {"Accl1___0": torch.ones(3)}, "ipu_param": {"lr": torch.tensor(0.01)}}
    step._ipu_optimizer._state_dict = dict(moments)
    step.sync()
    file = io.BytesIO()
    torch.save(optimizer.state_dict(), file)
    file.seek(0)
    later = torch.optim.AdamW(net.parameters(), lr=0.01)
    later.load_state_dict(torch.load(file, weights_only=True))
    resumed = snn.training_model(net, mse, later, num_steps=5, device="ipu")
    assert resumed._ipu_optimizer.has_state()
    assert torch.equal(resumed._ipu_optimizer.state_dict()["ipu_state"]["Accl1___0"], torch.ones(3))


def test_inference__after_training__has_the_new_weights_and_keeps_nothing() -> None:
    x, y = batch()
    net = small()
    step = snn.training_model(net, mse, torch.optim.SGD(net.parameters(), lr=1.0), num_steps=5, device="ipu")
    run = snn.inference_model(net, num_steps=5, device="ipu")
    before = run(x)
    for _ in range(3):
        step(x, y)
    after = run(x)
    assert not torch.equal(before, after)
    assert torch.equal(after, snn.inference_model(copy.deepcopy(net), num_steps=5, device="cpu")(x))
    scans = [op for op in run.executor.hostReport()["ops"] if "Scan" in op["op"]]
    assert len(scans) == 2 and not any(op["gradient"] for op in scans)


class Mode(nn.Module):
    """Adds 1 to its input in training."""

    def forward(self, x: Tensor) -> Tensor:
        return x + 1 if self.training else x


def test_mode__both_models_made_first__each_is_traced_in_its_own() -> None:
    x, y = batch()
    net = nn.Sequential(Mode(), small())
    step = snn.training_model(net, mse, torch.optim.SGD(net.parameters(), lr=0.0), num_steps=5, device="ipu")
    run = snn.inference_model(net, num_steps=5, device="ipu")
    plain = snn.inference_model(copy.deepcopy(net[1]), num_steps=5, device="cpu")
    assert torch.equal(step(x, y)[0], plain(x + 1))
    assert torch.equal(run(x), plain(x))


def test_neuron__name_that_is_not_ascii__runs() -> None:
    @snn.neuron(states=("mem",))
    def größe(x, mem, *, beta=0.5):
        mem = beta * mem + x
        return snn.spike(mem - 1), mem

    net = nn.Sequential(nn.Linear(12, 4), größe())
    copied = copy.deepcopy(net)
    x, _ = batch()
    out = snn.inference_model(net, num_steps=3, device="ipu")(x)
    assert torch.equal(out, snn.inference_model(copied, num_steps=3, device="cpu")(x))


def test_weights__changed_on_the_host__are_used_after_send_weights() -> None:
    x, y = batch()
    net = small()
    step = snn.training_model(net, mse, torch.optim.SGD(net.parameters(), lr=0.0), num_steps=5, device="ipu")
    run = snn.inference_model(net, num_steps=5, device="ipu")
    first = step(x, y)[1]
    before = run(x)
    with torch.no_grad():
        net[0].weight.mul_(-3)
    step.send_weights()
    assert step(x, y)[1] != first
    assert not torch.equal(run(x), before)


def test_training__optimizer_that_popart_does_not_have__is_refused() -> None:
    net = small()
    with pytest.raises(UnsupportedError, match="optimizer Adagrad on an IPU: expected one of"):
        snn.training_model(net, mse, torch.optim.Adagrad(net.parameters()), num_steps=5, device="ipu")
    with pytest.raises(UnsupportedError, match=r"Adam\(amsgrad=True\) on an IPU"):
        snn.training_model(net, mse, torch.optim.Adam(net.parameters(), amsgrad=True), num_steps=5, device="ipu")


def test_training__loss_with_several_values__is_refused() -> None:
    net = small()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    step = snn.training_model(net, lambda spk, y: spk.mean(0), optimizer, num_steps=5, device="ipu")
    with pytest.raises(ShapeError, match="expected a tensor with one value"):
        step(*batch())


def test_training__plain_surrogate__is_refused_with_remedy() -> None:
    net = nn.Sequential(nn.Linear(12, 4), snn.Leaky(0.9, spike_grad=torch.sigmoid, backend="ipu"))
    step = snn.training_model(net, mse, torch.optim.SGD(net.parameters(), lr=0.1), num_steps=5, device="ipu")
    with pytest.raises(UnsupportedError, match=r"write it with snn_ipu\.surrogate\.define"):
        step(*batch())


def test_backend_ipu__outside_a_model__is_refused_with_remedy() -> None:
    with pytest.raises(UnsupportedError, match=r"training_model\(net, \.\.\., device='ipu'\)"):
        snn.Leaky(0.9, backend="ipu").sequence(torch.randn(3, 2, 2))


def test_options__every_setting__reaches_poptorch(tmp_path: Any) -> None:
    settings = snn.ipu.options(
        device_iterations=2,
        gradient_accumulation=3,
        replication=4,
        available_memory=0.3,
        partials="float16",
        stochastic_rounding=True,
        executable_cache=str(tmp_path),
        cycle_count=True,
        ipu_model=True,
        synthetic_data=True,
        io_tiles=32,
        seed=7,
    )
    opts = ipu.poptorch_options(settings, True)
    shown = opts.toDict()
    assert (opts.device_iterations, opts.replication_factor, opts.Training.gradient_accumulation) == (2, 4, 3)
    assert shown["random_seed"] == 7 and shown["use_model"] is True
    assert ipu.poptorch_options(settings, False).Training.gradient_accumulation == 1


@pytest.mark.parametrize(
    ("setting", "error"),
    [
        ({"replication": 0}, ValueError),
        ({"partials": "int8"}, ValueError),
        ({"loss_scaling": -1.0}, ValueError),
        ({"available_memory": 2}, ValueError),
        ({"tiles": 3}, TypeError),
    ],
    ids=lambda v: next(iter(v)) if isinstance(v, dict) else "",
)
def test_options__wrong_value__is_refused(setting: Any, error: Any) -> None:
    with pytest.raises(error, match=rf"options\({next(iter(setting))}="):
        snn.ipu.options(**setting)


def test_options__on_another_device__are_refused() -> None:
    net = small()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    with pytest.raises(TypeError, match="expected device='ipu'"):
        snn.training_model(net, mse, optimizer, num_steps=5, device="cpu", options=snn.ipu.options())


def test_data_loader__asynchronous__gives_batches_for_one_call() -> None:
    data = torch.utils.data.TensorDataset(torch.arange(24.0).reshape(24, 1), torch.arange(24))
    options = snn.ipu.options(device_iterations=2, gradient_accumulation=3)
    loader = snn.ipu.data_loader(data, 2, options)
    assert [tuple(x.shape) for x, _ in loader] == [(12, 1), (12, 1)]


@pytest.fixture
def four_tiles(poptorch: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """PopTorch's small IPU model."""
    monkeypatch.setenv("POPTORCH_SMALL_IPU_MODEL", "1")
    native = poptorch._native
    native.configure(tiles=4)
    yield
    native.configure(tiles=1472)


def test_memory__states_do_not_fit__are_checkpointed_with_the_same_gradients(four_tiles: None) -> None:
    net = nn.Sequential(nn.Linear(3, 60), snn.Synaptic(0.5, 0.6))
    x, y = torch.randn(4, 3), torch.rand(4, 60)
    copied = copy.deepcopy(net)
    snn.training_model(net, mse, torch.optim.SGD(net.parameters(), lr=0.1), num_steps=1050, device="cpu")(x, y)
    optimizer = torch.optim.SGD(copied.parameters(), lr=0.1)
    step = snn.training_model(copied, mse, optimizer, num_steps=1050, device="ipu")
    step(x, y)
    traced = [node.target for node in step.executor._tape.nodes if node.kind == "custom"]
    assert [op.attributes["checkpoint"] for op in traced] == [33]
    step.sync()
    for g, w in zip(copied.parameters(), net.parameters()):
        assert torch.allclose(g, w, rtol=1e-3, atol=1e-5)


def test_memory__layer_does_not_fit_at_all__is_refused_with_bytes_and_remedy(four_tiles: None) -> None:
    net = nn.Sequential(nn.Linear(3, 60), snn.Leaky(0.9))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    step = snn.training_model(net, mse, optimizer, num_steps=4000, device="ipu")
    message = (
        r"layer '1': leaky over T=4000, 4 x 60 neurons needs [\d,]+ bytes on a tile.*Use fewer steps, a smaller batch"
    )
    with pytest.raises(UnsupportedError, match=message):
        step(torch.randn(4, 3), torch.rand(4, 60))


@pytest.mark.parametrize("half", [False, True], ids=["float32", "float16"])
def test_memory__estimate__is_what_the_host_model_counts(half: bool) -> None:
    steps, size, width, item = 6, 64, 1000, 2 if half else 4
    net = nn.Sequential(nn.Linear(5, width), snn.Leaky(0.9, learn_beta=True))
    x = torch.randn(steps, size, 5)
    net, x = (net.half(), x.half()) if half else (net, x)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    step = snn.training_model(net, lambda spk, y: mse(spk.float(), y), optimizer, device="ipu")
    step(x, torch.rand(size, width))
    forward, backward = step.executor.hostReport()["ops"]
    sizes = ScanSizes(steps, size, width, item, False, 1, 0, 1, item, 0, 0, 1, False, 0, True)
    need = scan_bytes(sizes)
    # Besides data there is the state of one vertex, and constants.
    assert need.forward <= forward["max_tile_bytes"] <= need.forward + 120
    assert need.backward <= backward["max_tile_bytes"] <= need.backward + 120
    assert forward["vertices"] == len(spread(size * width, 1472, 4 if half else 2)) == forward["tiles_used"]


def test_status__with_an_sdk__shows_version_and_library() -> None:
    status = {s.name: s for s in select.status()}["ipu"]
    assert status.available
    assert status.reason.startswith("works; no IPU found; SDK POPLAR version 3.4.0")
    assert status.reason.endswith(f"ops in {ipu.build()}")


def test_training__no_sdk__is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    net = small()
    missing = BackendMissingError("poptorch is not installed; install the wheel of the Poplar SDK")
    monkeypatch.setattr(ipu, "_imported", lambda: missing)
    ipu.library.cache_clear()
    with pytest.raises(BackendMissingError, match="device='ipu': poptorch is not installed"):
        snn.training_model(net, mse, torch.optim.SGD(net.parameters(), lr=0.1), num_steps=5, device="ipu")
