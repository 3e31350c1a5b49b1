"""from_snntorch: the converted network gives snnTorch's spikes and keeps everything else."""

from __future__ import annotations

import copy
import pickle
import warnings
from typing import Any, Callable

import pytest
import snntorch
import torch
from snntorch import surrogate as their_surrogate
from snntorch import utils as their_utils
from snntorch._neurons.leakykernel import LeakyKernel
from snntorch.functional.quant import state_quant
from torch import Tensor, nn

import snn_ipu as snn
from snn_ipu import surrogate
from snn_ipu.convert import conversion_report, convert_surrogate
from snn_ipu.errors import UnsupportedError

BATCH, WIDTH = 3, 5
PER_NEURON = torch.linspace(0.3, 0.9, WIDTH)


def spike_grad() -> Callable[[Tensor], Tensor]:
    return their_surrogate.fast_sigmoid(slope=5)


STEPWISE: dict[str, Callable[[], nn.Module]] = {
    "leaky": lambda: snntorch.Leaky(0.9, spike_grad=spike_grad()),
    "leaky_all": lambda: snntorch.Leaky(
        PER_NEURON.clone(),
        threshold=0.7,
        learn_beta=True,
        learn_threshold=True,
        reset_mechanism="zero",
        graded_spikes_factor=torch.linspace(0.5, 2, WIDTH),
        learn_graded_spikes_factor=True,
        reset_delay=False,
    ),
    "leaky_integers": lambda: snntorch.Leaky(1, threshold=1, reset_mechanism="none"),
    "leaky_hidden": lambda: snntorch.Leaky(0.9, init_hidden=True),
    "leaky_output": lambda: snntorch.Leaky(0.9, init_hidden=True, output=True, surrogate_disable=True),
    "leaky_inhibition": lambda: snntorch.Leaky(0.9, inhibition=True),
    "leaky_quantised": lambda: snntorch.Leaky(0.9, state_quant=state_quant(num_bits=4)),
    "synaptic": lambda: snntorch.Synaptic(0.5, PER_NEURON.clone(), learn_alpha=True, reset_delay=False),
    "alpha": lambda: snntorch.Alpha(0.9, 0.5, threshold=0.2, learn_beta=True),
    "lapicque_beta": lambda: snntorch.Lapicque(0.8),
    "lapicque_learned": lambda: snntorch.Lapicque(0.8, learn_beta=True),
    "lapicque_circuit": lambda: snntorch.Lapicque(R=4.0, C=0.5, time_step=0.5, reset_mechanism="zero"),
    "rleaky_linear": lambda: snntorch.RLeaky(0.9, linear_features=WIDTH, reset_mechanism="zero"),
    "rleaky_one": lambda: snntorch.RLeaky(0.9, all_to_all=False, V=PER_NEURON.clone()),
    "rleaky_fixed": lambda: snntorch.RLeaky(0.9, all_to_all=False, V=0.5, learn_recurrent=False),
    "rsynaptic_linear": lambda: snntorch.RSynaptic(0.5, 0.9, linear_features=WIDTH, learn_alpha=True),
    "slstm": lambda: snntorch.SLSTM(WIDTH, WIDTH, threshold=0.05, reset_mechanism="subtract"),
    "delta": lambda: snntorch.DeltaLeaky(0.5, beta=1.1, learn_beta=True),
}
SEQUENCES: dict[str, Callable[[], nn.Module]] = {
    "stateleaky": lambda: snntorch.StateLeaky(PER_NEURON.clone(), WIDTH, learn_beta=True, kernel_truncation_steps=4),
    "stateleaky_one": lambda: snntorch.StateLeaky(0.8, WIDTH, output=False),
    "linearleaky": lambda: snntorch.LinearLeaky(0.8, WIDTH, 4, bias=False),
    "parallel": lambda: snntorch.LeakyParallel(WIDTH, 4, beta=0.7, learn_beta=True, threshold=0.2),
    "parallel_random": lambda: snntorch.LeakyParallel(WIDTH, 4, threshold=0.2),
    "parallel_ignored": lambda: snntorch.LeakyParallel(WIDTH, 4, beta=torch.rand(4), bias=False, threshold=0.2),
    "parallel_full": lambda: snntorch.LeakyParallel(WIDTH, 4, threshold=0.2, weight_hh_enable=True),
    "associative": lambda: snntorch.AssociativeLeaky(WIDTH, 2, 3, 6),
}
IMAGES: dict[str, Callable[[], nn.Module]] = {
    "rleaky_conv": lambda: snntorch.RLeaky(0.9, conv2d_channels=2, kernel_size=3),
    "rsynaptic_conv": lambda: snntorch.RSynaptic(0.5, 0.9, conv2d_channels=2, kernel_size=(3, 1)),
    "sconv2dlstm": lambda: snntorch.SConv2dLSTM(2, 2, 3, threshold=0.05, max_pool=2),
}


def make(factory: Callable[[], nn.Module]) -> nn.Module:
    torch.manual_seed(1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        module = factory()
    if isinstance(module, snntorch.DeltaLeaky):
        snntorch.SpikingNeuron.instances.remove(module)  # it breaks Leaky.reset_hidden of the whole process
    return module


def use_reference(module: nn.Module) -> nn.Module:
    for part in module.modules():
        if isinstance(part, snn.SpikingNeuron):
            part.backend = "reference"
    return module


def flat(out: Any) -> list[Tensor]:
    return [out] if isinstance(out, Tensor) else [t for part in out for t in flat(part)]


def drive(neuron: nn.Module, x: Tensor, state: Any = ()) -> tuple[list[list[Tensor]], Any]:
    record = []
    for x_t in x:
        out = neuron(x_t, *state)
        record.append(flat(out))
        if not getattr(neuron, "init_hidden", False):
            recurrent = type(neuron).__name__ in ("RLeaky", "RSynaptic")
            state = out if recurrent else out[1:]
    return record, state


def assert_equal_records(ours: list[list[Tensor]], theirs: list[list[Tensor]]) -> None:
    spikes = torch.stack([step[0] for step in theirs])
    assert 0 < (spikes != 0).float().mean() < 1, "the case tests nothing"
    for mine, other in zip(ours, theirs):
        assert torch.equal(mine[0], other[0])
        for a, b in zip(mine, other):
            torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-5)


def assert_same_tensors(ours: nn.Module, theirs: nn.Module) -> None:
    mine, other = ours.state_dict(), theirs.state_dict()
    assert mine.keys() == other.keys()
    for name, value in other.items():
        if not name.endswith("reset_mechanism_val"):
            torch.testing.assert_close(mine[name], value.to(mine[name].dtype))
    learned = {n: p.requires_grad for n, p in theirs.named_parameters()}
    if "StateLeaky" in type(theirs).__name__ or "LinearLeaky" in type(theirs).__name__:
        learned.pop("beta", None)
    assert {n: p.requires_grad for n, p in ours.named_parameters()} == learned


@pytest.mark.parametrize("name", [*STEPWISE, *IMAGES])
def test_from_snntorch__neuron_in_the_middle_of_a_sequence__goes_on_with_the_same_spikes(name: str) -> None:
    theirs = make({**STEPWISE, **IMAGES}[name])
    shape = (2, 4, 6) if name in IMAGES else (WIDTH,)
    x = torch.randn(20, BATCH, *shape, generator=torch.Generator().manual_seed(2)) * 2
    start = ((None, None),) if name == "delta" else ()
    _, state = drive(theirs, x[:5], start)
    ours = use_reference(snn.from_snntorch(theirs))
    assert type(ours).__module__.startswith("snn_ipu") and type(ours).__name__ == type(theirs).__name__
    assert_same_tensors(ours, theirs)
    before = copy.deepcopy(theirs.state_dict())
    # without states handed over, the module goes on from its own
    own_state = () if name != "delta" else (state if state else ())
    assert_equal_records(drive(ours, x[5:], own_state)[0], drive(theirs, x[5:], own_state)[0])
    assert all(torch.equal(v, before[k]) for k, v in theirs.state_dict().items())


@pytest.mark.parametrize("name", SEQUENCES)
def test_from_snntorch__sequence_layer__gives_the_same_spikes(name: str) -> None:
    theirs = make(SEQUENCES[name])
    ours = snn.from_snntorch(theirs)
    if name == "associative":
        for net in (ours, theirs):
            net.threshold.fill_(0.1)
    assert_same_tensors(ours, theirs)
    x = torch.randn(6, BATCH, WIDTH, generator=torch.Generator().manual_seed(2)) * 2
    for a, b in zip(flat(ours(x)), flat(theirs(x))):
        assert b.any()
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-5)


class Residual(nn.Module):
    """A network as users write them: nested, tied, with modules in a list and hooks."""

    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(WIDTH, WIDTH)
        self.lif = snntorch.Leaky(0.8, init_hidden=True)
        self.same = self.lif
        block = nn.Sequential(nn.Linear(WIDTH, WIDTH), snntorch.Synaptic(0.5, 0.8, init_hidden=True))
        self.blocks = nn.ModuleList([block, block])
        self.not_registered = [snntorch.Leaky(0.7, init_hidden=True)]
        self.norm = nn.BatchNorm1d(WIDTH)
        self.spk_rec: list[Tensor] = []
        self.step = self.half_step

    def half_step(self, x: Tensor) -> Tensor:
        return self.lif(self.fc(x))

    def forward(self, x: Tensor) -> Tensor:
        y = self.step(x)
        for block in self.blocks:
            y = y + block(y)
        spk = self.norm(y)
        self.spk_rec.append(spk)
        return spk


def run(net: nn.Module, steps: int = 6) -> Tensor:
    generator = torch.Generator().manual_seed(4)
    return torch.stack([net(torch.rand(BATCH, WIDTH, generator=generator) * 3) for _ in range(steps)])


def test_from_snntorch__nested_and_tied_modules__same_outputs_and_ties() -> None:
    theirs = make(Residual)
    ours = snn.from_snntorch(theirs)
    assert ours.same is ours.lif and ours.blocks[0] is ours.blocks[1]
    assert ours.step.__self__ is ours
    assert {type(m).__module__.split(".")[0] for m in ours.modules()} == {"snn_ipu", "torch", __name__}
    assert_same_tensors(ours, theirs)
    assert torch.equal(run(ours), run(theirs)) and run(ours).any()


def test_from_snntorch__neurons_in_plain_lists_and_dicts__are_converted_too() -> None:
    theirs = make(Residual)
    theirs.more = {"own": (snntorch.Leaky(0.6), theirs.lif), "other": 3}
    assert conversion_report(theirs).converted == ("lif", "blocks.0.1", "not_registered[0]", "more['own'][0]")
    ours = snn.from_snntorch(theirs)
    assert type(ours.not_registered[0]) is snn.Leaky and ours.not_registered[0].beta == 0.7
    assert type(ours.more["own"][0]) is snn.Leaky and ours.more["own"][1] is ours.lif and ours.more["other"] == 3
    shared = snn.from_snntorch(theirs, copy=False)
    assert shared.not_registered[0].beta is theirs.not_registered[0].beta
    assert type(theirs.not_registered[0]) is snntorch.Leaky


def test_from_snntorch__trained_network__converts_its_states_without_their_graph() -> None:
    theirs = make(Residual)
    run(theirs).sum().backward()
    ours = snn.from_snntorch(theirs)
    assert torch.equal(ours.lif.mem, theirs.lif.mem) and ours.lif.mem.grad_fn is None
    assert len(ours.spk_rec) == len(theirs.spk_rec) and ours.spk_rec[0].grad_fn is None
    assert theirs.lif.mem.grad_fn is not None


def test_from_snntorch__copy__shares_nothing() -> None:
    theirs = make(Residual)
    ours = snn.from_snntorch(theirs)
    pointers = {t.data_ptr() for t in (*theirs.parameters(), *theirs.buffers()) if t.numel()}
    assert not pointers & {t.data_ptr() for t in (*ours.parameters(), *ours.buffers()) if t.numel()}


def test_from_snntorch__no_copy__shares_every_parameter_and_buffer() -> None:
    theirs = make(Residual)
    ours = snn.from_snntorch(theirs, copy=False)
    mine = {**dict(ours.named_parameters()), **dict(ours.named_buffers())}
    for name, tensor in {**dict(theirs.named_parameters()), **dict(theirs.named_buffers())}.items():
        if not name.endswith("reset_mechanism_val"):
            assert mine[name] is tensor, name
    assert ours.lif is not theirs.lif and isinstance(theirs.lif, snntorch.Leaky)
    optimizer = torch.optim.SGD(theirs.parameters(), 0.1)
    run(ours).sum().backward()
    before = theirs.fc.weight.clone()
    optimizer.step()
    assert not torch.equal(ours.fc.weight, before)


def test_from_snntorch__hooks_and_training_mode__are_kept() -> None:
    theirs = nn.Sequential(nn.Linear(WIDTH, WIDTH), make(lambda: snntorch.Leaky(0.9, init_hidden=True)))
    seen: list[str] = []
    theirs[1].register_forward_hook(lambda m, i, o: seen.append(type(m).__module__))
    theirs[1].register_forward_pre_hook(lambda m, i: seen.append("before"))
    theirs[1].register_full_backward_hook(lambda m, gi, go: seen.append("backward"))
    theirs.eval()
    theirs[0].train()
    theirs[0].weight.requires_grad_(False)
    ours = snn.from_snntorch(theirs)
    assert not ours.training and ours[0].training and not ours[1].training
    assert not ours[0].weight.requires_grad
    ours(torch.ones(2, WIDTH)).sum().backward()
    assert seen == ["before", "snn_ipu.neurons.leaky", "backward"]


def test_from_snntorch__shared_parameter__stays_shared() -> None:
    beta = nn.Parameter(torch.tensor(0.8))
    theirs = nn.Sequential(snntorch.Leaky(0.9, learn_beta=True), snntorch.Synaptic(0.5, 0.9, learn_beta=True))
    theirs[0].beta = theirs[1].beta = beta
    ours = snn.from_snntorch(theirs)
    assert ours[0].beta is ours[1].beta and ours[0].beta is not beta
    one = snn.from_snntorch(snntorch.RLeaky(0.9, all_to_all=False, V=0.5))
    assert one.V is one.recurrent.V


def test_from_snntorch__random_state__is_not_touched() -> None:
    theirs = make(lambda: nn.Sequential(snntorch.SLSTM(3, 3), snntorch.RLeaky(0.9, linear_features=3)))
    before = torch.get_rng_state()
    snn.from_snntorch(theirs)
    assert torch.equal(torch.get_rng_state(), before)


def test_from_snntorch__attribute_of_the_users__is_kept() -> None:
    theirs = make(lambda: snntorch.Leaky(0.9))
    theirs.label = {"layer": 3}
    ours = snn.from_snntorch(theirs)
    assert ours.label == {"layer": 3} and ours.label is not theirs.label


class OwnForward(snntorch.Leaky):
    def forward(self, x: Tensor, mem: Tensor | None = None) -> Any:
        return super().forward(2 * x, mem)


class OwnInit(snntorch.Leaky):
    def __init__(self) -> None:
        super().__init__(0.7)


class OwnNeuron(snntorch.SpikingNeuron):
    pass


def test_from_snntorch__what_it_cannot_convert__raises_with_path_and_reason() -> None:
    patched = snntorch.Leaky(0.9)
    patched.fire = lambda mem: mem
    theirs = nn.ModuleDict(
        {"good": OwnInit(), "own": OwnForward(0.9), "new": OwnNeuron(), "kernel": LeakyKernel(3, 3), "patched": patched}
    )
    with pytest.raises(UnsupportedError) as error:
        snn.from_snntorch(theirs)
    for text in ("own: OwnForward has a forward", "new: OwnNeuron", "kernel: LeakyKernel", "patched: Leaky has a fire"):
        assert text in str(error.value)
    with pytest.warns(UserWarning, match="own: OwnForward"):
        ours = snn.from_snntorch(theirs, strict=False)
    assert isinstance(ours.good, snn.Leaky) and type(ours.own) is OwnForward and ours.own is not theirs.own
    report = conversion_report(theirs)
    assert report.converted == ("good",) and len(report.kept) == 4
    assert str(report).startswith("1 converted, 4 kept\n  good converted\n")
    assert "own kept: OwnForward" in str(report)


def test_from_snntorch__nothing_to_convert__says_so() -> None:
    with pytest.warns(UserWarning, match=r"from_snntorch\(Linear\) found no snnTorch neuron") as seen:
        snn.from_snntorch(nn.Linear(2, 2))
    assert [w.filename for w in seen] == [__file__]
    with pytest.raises(TypeError, match=r"from_snntorch\('net'\): expected a torch\.nn\.Module"):
        snn.from_snntorch("net")


def test_conversion_report__differences_on_purpose__are_noted() -> None:
    after = snntorch.Leaky(0.9)
    after.reset_mechanism = "zero"
    with pytest.warns(UserWarning):
        inhibited = snntorch.SLSTM(3, 3, inhibition=True)
    theirs = nn.ModuleDict(
        {
            "lstm": snntorch.SLSTM(3, 4),
            "state": snntorch.StateLeaky(0.9, 3, graded_spikes_factor=0.5),
            "callable": snntorch.Leaky(0.9, spike_grad=lambda u: (u > 0).float()),
            "after": after,
            "inhibited": inhibited,
            "plain": snntorch.Leaky(0.9),
        }
    )
    notes = dict(conversion_report(theirs).notes)
    assert set(notes) == {"lstm", "state", "callable", "after", "inhibited"}
    assert "twice" in notes["state"] and "'subtract' although it says 'zero'" in notes["after"]
    assert snn.from_snntorch(theirs).after.reset_mechanism == "subtract"


SURROGATES = [
    ("fast_sigmoid", {"slope": 3}),
    ("atan", {"alpha": 1.5}),
    ("sigmoid", {"slope": 2}),
    ("straight_through_estimator", {}),
    ("triangular", {"threshold": 0.5}),
    ("heaviside", {}),
    ("spike_rate_escape", {"beta": 2, "slope": 3}),
    ("SFS", {"slope": 2, "B": 0.1}),
    ("SSO", {"mean": 0.1, "variance": 0.3}),
    ("LSO", {"slope": 0.2}),
]


@pytest.mark.parametrize("name, params", SURROGATES, ids=[n for n, _ in SURROGATES])
def test_convert_surrogate__factory_of_snntorch__is_recovered_with_its_parameters(name: str, params: Any) -> None:
    theirs = getattr(their_surrogate, name)(**params)
    ours = convert_surrogate(theirs)
    assert ours == getattr(surrogate, name)(**params)
    if name in ("SSO", "LSO"):
        return  # random gradients; a TypeError in snnTorch
    gradients = []
    for fn in (ours, theirs):
        u = torch.linspace(-1.5, 1.5, 31, requires_grad=True)
        fn(u).sum().backward()
        gradients.append(u.grad)
    torch.testing.assert_close(*gradients)


def half_of_the_spikes(u: Tensor, grad: Tensor, spk: Tensor) -> Tensor:
    return 0.5 * grad * spk / (1 + u.abs())


def test_convert_surrogate__custom_surrogate__keeps_the_function_and_its_gradient() -> None:
    theirs = their_surrogate.custom_surrogate(half_of_the_spikes)
    ours = convert_surrogate(theirs)
    assert ours == surrogate.custom_surrogate(half_of_the_spikes)
    assert pickle.loads(pickle.dumps(ours)) == ours
    gradients = []
    for fn in (ours, theirs):
        u = torch.linspace(-1.5, 1.5, 31, requires_grad=True)
        fn(u).sum().backward()
        gradients.append(u.grad)
    assert torch.equal(*gradients)


def test_convert_surrogate__apply_of_an_autograd_function__is_recovered() -> None:
    assert convert_surrogate(their_surrogate.StraightThroughEstimator.apply) == surrogate.straight_through_estimator()
    assert convert_surrogate(their_surrogate.Heaviside.apply) == surrogate.heaviside()


def test_from_snntorch__graded_spikes__keeps_its_weights() -> None:
    theirs = make(lambda: snntorch.GradedSpikes(WIDTH, None))
    ours = snn.from_snntorch(theirs)
    assert_same_tensors(ours, theirs)
    assert torch.equal(ours(torch.ones(WIDTH, 2)), theirs(torch.ones(WIDTH, 2)))


def test_convert_surrogate__callable_of_the_users__is_kept() -> None:
    def inner(u: Tensor) -> Tensor:
        return (u > 0).float()

    assert convert_surrogate(inner) is inner
    learned = their_surrogate.fast_sigmoid(slope=nn.Parameter(torch.tensor(3.0)))
    assert convert_surrogate(learned) is learned
    own = surrogate.atan()
    assert convert_surrogate(own) is own


def test_from_snntorch__converted_network__unrolls_and_trains() -> None:
    theirs = make(
        lambda: nn.Sequential(
            nn.Linear(WIDTH, 8),
            snntorch.Leaky(0.9, init_hidden=True),
            nn.Linear(8, 4),
            snntorch.Leaky(0.9, init_hidden=True),
        )
    )
    x = torch.rand(7, BATCH, WIDTH) * 4
    expected = torch.stack([theirs(x_t) for x_t in x])
    ours = snn.from_snntorch(theirs)
    snn.utils.reset(ours)
    spk, _ = snn.unroll(ours, x)
    assert torch.equal(spk, torch.stack([ours(x_t) for x_t in x])) and spk.any()
    their_utils.reset(theirs)
    expected = torch.stack([theirs(x_t) for x_t in x])
    torch.testing.assert_close(spk, expected)
    grads = [torch.autograd.grad(out.sum(), list(net.parameters())) for out, net in ((spk, ours), (expected, theirs))]
    for a, b in zip(*grads):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)
