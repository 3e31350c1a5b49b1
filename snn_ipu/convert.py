"""snnTorch networks to snn_ipu networks, with the same parameters, buffers, hooks and state."""

from __future__ import annotations

import copy as copying
import types
import warnings
from dataclasses import dataclass
from typing import Any, Callable, Dict, Iterator, Mapping

import torch
from torch import Tensor, nn

from . import layers, neurons, surrogate
from .errors import UnsupportedError, warn
from .surrogate import SpikeGrad

Memo = Dict[int, Any]
Arguments = Dict[str, Any]


@dataclass(frozen=True)
class Conversion:
    """What `from_snntorch` does with a network: paths of modules, with a reason or a remark.

    Attributes:
        converted: modules that are replaced. kept: modules that stay snnTorch's, and why.
        notes: where the converted module differs on purpose, or runs more slowly than it could.
    """

    converted: tuple[str, ...]
    kept: tuple[tuple[str, str], ...]
    notes: tuple[tuple[str, str], ...]

    def __str__(self) -> str:
        said = [(path, "converted") for path in self.converted]
        said += [(path, f"kept: {reason}") for path, reason in self.kept]
        said += [(path, f"note: {note}") for path, note in self.notes]
        lines = [f"{len(self.converted)} converted, {len(self.kept)} kept"]
        return "\n".join([*lines, *(f"  {path or '(root)'} {text}" for path, text in said)])


def from_snntorch(module: nn.Module, *, copy: bool = True, strict: bool = True) -> nn.Module:
    """Replace every snnTorch neuron and layer of a network by its counterpart here.

    The result has the same module paths, parameters, buffers, hidden states, hooks, training mode and keys of the
    `state_dict`; modules that occur twice, and tensors that are shared, stay so. The given network is not changed.

    Args:
        module: a network that contains snnTorch neurons, or a neuron.
        copy: give the result parameters and buffers of its own; False shares them with the given network.
        strict: raise where a neuron cannot be converted; False keeps it, with one warning.

    Returns: the converted network.

    Raises: UnsupportedError that names the path of every neuron that cannot be converted, and why; TypeError for what
        is no module.
    """
    if not isinstance(module, nn.Module):
        raise TypeError(
            f"from_snntorch({module!r}): expected a torch.nn.Module, such as a network of snnTorch neurons."
        )
    found = conversion_report(module)
    if not found.converted and not found.kept:
        warn(
            f"from_snntorch({type(module).__name__}) found no snnTorch neuron among its modules, nor in its lists "
            "and dicts. Pass the network that holds them."
        )
    return converted(module, found, copy=copy, strict=strict)


def converted(module: nn.Module, found: Conversion, *, copy: bool = True, strict: bool = True) -> nn.Module:
    """`from_snntorch` for a network that may hold no neuron of snnTorch; `found` is its report."""
    if found.kept:
        reasons = "; ".join(f"{path or 'the module itself'}: {reason}" for path, reason in found.kept)
        message = f"from_snntorch({type(module).__name__}) cannot convert {reasons}."
        if strict:
            raise UnsupportedError(f"{message} Change these modules, or pass strict=False to keep them as they are.")
        warn(message)
    memo: Memo = {}
    parts = dict(_parts(module))
    for part in parts.values():
        if not copy:
            memo.update((id(t), t) for t in (*part.parameters(), *part.buffers()))
        _cut_graphs(part.__dict__, memo)
    pairs = [(parts[path], _counterpart(parts[path])) for path in found.converted]
    memo.update((id(theirs), ours) for theirs, ours in pairs)
    for theirs, ours in pairs:
        _fill(ours, theirs, memo)
    return copying.deepcopy(module, memo)


def conversion_report(module: nn.Module) -> Conversion:
    """What `from_snntorch` would convert, what it would keep, and where the result differs on purpose."""
    converted, kept, notes = [], [], []
    for path, part in _parts(module):
        theirs = _snntorch_class(part)
        if theirs is None:
            continue
        obstacle = _obstacle(part, theirs)
        if obstacle is not None:
            kept.append((path, obstacle))
            continue
        converted.append(path)
        notes += [(path, note) for note in _notes(part)]
    return Conversion(tuple(converted), tuple(kept), tuple(notes))


def _parts(module: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    """Every module with its path; also those in plain lists and dicts, which torch does not see, as `name[0]`."""
    seen: set[int] = set()
    waiting: list[tuple[str, Any]] = [("", module)]
    while waiting:
        root, value = waiting.pop(0)
        if isinstance(value, nn.Module):
            for path, part in value.named_modules(prefix=root):
                if id(part) not in seen:
                    seen.add(id(part))
                    yield path, part
                    own = ((f"{path}.{n}".lstrip("."), v) for n, v in vars(part).items() if not n.startswith("_"))
                    waiting += [(name, held) for name, held in own if isinstance(held, (list, tuple, dict))]
        elif isinstance(value, dict):
            waiting += [(f"{root}[{key!r}]", held) for key, held in value.items()]
        elif isinstance(value, (list, tuple)):
            waiting += [(f"{root}[{i}]", held) for i, held in enumerate(value)]


def convert_surrogate(spike_grad: Callable[[Tensor], Tensor]) -> SpikeGrad:
    """The surrogate that one of snnTorch's stands for, or the callable itself where it is of the user's own.

    snnTorch's factories return a function called `inner`; its qualified name is the factory's, its closure holds the
    parameters.
    """
    owner = getattr(spike_grad, "__self__", None)
    if isinstance(owner, type) and owner.__module__.split(".")[0] == "snntorch":
        return _FUNCTIONS[owner.__qualname__]() if owner.__qualname__ in _FUNCTIONS else spike_grad
    factory, _, rest = getattr(spike_grad, "__qualname__", "").partition(".")
    ours = getattr(surrogate, factory, None)
    if not isinstance(spike_grad, types.FunctionType) or rest != "<locals>.inner" or ours is None:
        return spike_grad
    if spike_grad.__module__ != "snntorch.surrogate":
        return spike_grad
    values = (cell.cell_contents for cell in spike_grad.__closure__ or ())
    params = dict(zip(spike_grad.__code__.co_freevars, values))
    if factory == "custom_surrogate":
        own: SpikeGrad = ours(params["func"])
        return own
    if any(isinstance(value, bool) or not isinstance(value, (int, float)) for value in params.values()):
        return spike_grad
    fixed: SpikeGrad = ours(**params)
    return fixed


# autograd functions whose `apply` takes the membrane alone
_FUNCTIONS: dict[str, Callable[[], SpikeGrad]] = {
    "StraightThroughEstimator": surrogate.straight_through_estimator,
    "Heaviside": surrogate.heaviside,
    "LeakyParallel.ATan": surrogate.atan,
}


def _common(m: Any) -> Arguments:
    return {
        "threshold": m.threshold.detach(),
        "learn_threshold": isinstance(m.threshold, nn.Parameter),
        "spike_grad": None if m.surrogate_disable else convert_surrogate(m.spike_grad),
        "surrogate_disable": m.surrogate_disable,
    }


def _graded(m: Any) -> Arguments:
    return {
        "graded_spikes_factor": m.graded_spikes_factor.detach(),
        "learn_graded_spikes_factor": isinstance(m.graded_spikes_factor, nn.Parameter),
    }


def _stepwise(m: Any) -> Arguments:
    return {
        **_common(m),
        "init_hidden": m.init_hidden,
        "output": m.output,
        "inhibition": m.inhibition,
        "state_quant": m.state_quant,
        "reset_mechanism": _reset_in_effect(m),
    }


def _decays(m: Any, *names: str) -> Arguments:
    values: Arguments = {}
    for name in names:
        value = getattr(m, name)
        values[name] = value.detach()
        values[f"learn_{name}"] = isinstance(value, nn.Parameter)
    return values


def _leaky(m: Any) -> Arguments:
    return {**_stepwise(m), **_graded(m), **_decays(m, "beta"), "reset_delay": m.reset_delay}


def _synaptic(m: Any) -> Arguments:
    return {**_stepwise(m), **_decays(m, "alpha", "beta"), "reset_delay": m.reset_delay}


def _lapicque(m: Any) -> Arguments:
    return {
        **_stepwise(m),
        **_decays(m, "beta"),
        "R": m.R.detach(),
        "C": False if isinstance(m.beta, nn.Parameter) else m.C.detach(),
        "time_step": m.time_step.detach(),
    }


def _feedback(m: Any) -> Arguments:
    names = ("all_to_all", "linear_features", "kernel_size", "learn_recurrent", "reset_delay")
    given = {name: getattr(m, name) for name in names}
    conv = isinstance(m.recurrent, nn.Conv2d)
    given["conv2d_channels"] = m.recurrent.in_channels if conv else None
    given["V"] = 1.0 if m.all_to_all else m.V.detach()
    return given


def _without_inhibition(m: Any) -> Arguments:
    return {**_stepwise(m), "inhibition": False}


def _slstm(m: Any) -> Arguments:
    return {**_without_inhibition(m), "input_size": m.input_size, "hidden_size": m.hidden_size, "bias": m.bias}


def _sconv2dlstm(m: Any) -> Arguments:
    names = ("in_channels", "out_channels", "kernel_size", "bias", "max_pool", "avg_pool")
    return {**_without_inhibition(m), **{name: getattr(m, name) for name in names}}


def _stateleaky(m: Any) -> Arguments:
    beta = m.beta.detach()
    return {
        **_common(m),
        **_graded(m),
        "beta": beta,
        "channels": beta.numel(),
        "learn_beta": isinstance(m.tau, nn.Parameter),
        "state_quant": m.state_quant,
        "output": m.output,
        "kernel_truncation_steps": m.kernel_truncation_steps,
    }


def _linearleaky(m: Any) -> Arguments:
    arguments = _stateleaky(m)
    del arguments["channels"]
    sizes = {"in_features": m.linear.in_features, "out_features": m.linear.out_features}
    return {**arguments, **sizes, "bias": m.linear.bias is not None}


def _leakyparallel(m: Any) -> Arguments:
    weight = m.rnn.weight_hh_l0.detach()
    return {
        **_common(m),
        **_graded(m),
        "input_size": m.rnn.input_size,
        "hidden_size": m.rnn.hidden_size,
        "bias": m.rnn.bias,
        "beta": m.beta,
        "learn_beta": m.rnn.weight_hh_l0.requires_grad,
        "weight_hh_enable": bool((weight - weight.diagonal().diag()).any()),
    }


def _deltaleaky(m: Any) -> Arguments:
    names = ("spike_grad", "surrogate_disable")
    common = {name: value for name, value in _common(m).items() if name in names}
    rest = {"init_hidden": m.init_hidden, "output": m.output, "state_quant": m.state_quant}
    return {**common, **_graded(m), **_decays(m, "beta"), **rest, "delta_threshold": m.delta_threshold}


def _associative(m: Any) -> Arguments:
    names = ("d_value", "d_key", "use_q_projection")
    sizes = {name: getattr(m, name) for name in names}
    return {**sizes, "in_dim": m.to_v.in_features, "num_spiking_neurons": m.num_spiking_neurons}


# how each of snnTorch's classes is built anew; the tensors are moved over afterwards
_CLASSES: dict[str, tuple[Callable[..., nn.Module], Callable[[Any], Arguments]]] = {
    "Leaky": (neurons.Leaky, _leaky),
    "Synaptic": (neurons.Synaptic, _synaptic),
    "Alpha": (neurons.Alpha, lambda m: {**_stepwise(m), **_decays(m, "alpha", "beta")}),
    "Lapicque": (neurons.Lapicque, _lapicque),
    "RLeaky": (neurons.RLeaky, lambda m: {**_stepwise(m), **_decays(m, "beta"), **_feedback(m)}),
    "RSynaptic": (neurons.RSynaptic, lambda m: {**_stepwise(m), **_decays(m, "alpha", "beta"), **_feedback(m)}),
    "SLSTM": (neurons.SLSTM, _slstm),
    "SConv2dLSTM": (neurons.SConv2dLSTM, _sconv2dlstm),
    "StateLeaky": (neurons.StateLeaky, _stateleaky),
    "LinearLeaky": (neurons.LinearLeaky, _linearleaky),
    "LeakyParallel": (neurons.LeakyParallel, _leakyparallel),
    "DeltaLeaky": (neurons.DeltaLeaky, _deltaleaky),
    "AssociativeLeaky": (neurons.AssociativeLeaky, _associative),
    "GradedSpikes": (layers.GradedSpikes, lambda m: {"size": m.size, "constant_factor": 1.0}),
}
_RESETS = {"_base_sub": "subtract", "_base_zero": "zero", "_base_int": "none"}
_OVERRIDES = ("forward", "fire", "fire_inhibition", "mem_reset", "reset_mem")


def _snntorch_class(module: nn.Module) -> type | None:
    """The snnTorch class that a module is of or derives from."""
    if type(module).__name__ == "RecurrentOneToOne":
        return None
    return next((c for c in type(module).__mro__ if c.__module__.split(".")[0] == "snntorch"), None)


def _obstacle(module: nn.Module, theirs: type) -> str | None:
    """Why a module cannot be converted, or None."""
    import snntorch

    name = theirs.__name__
    if getattr(snntorch, name, None) is not theirs or name not in _CLASSES:
        return f"{type(module).__name__} is no neuron of snnTorch's public classes"
    own = [c for c in type(module).__mro__ if c is not theirs and issubclass(c, theirs)]
    changed = [n for c in own for n in vars(c) if not n.startswith("__") or n == "__call__"]
    changed += [n for n in _OVERRIDES if n in module.__dict__]
    if changed:
        return f"{type(module).__name__} has a {changed[0]} of its own; write its step with snn_ipu.neuron"
    return None


def _reset_in_effect(m: Any) -> str:
    """The reset that the neuron runs; its `reset_mechanism` can say another one after a change or a load."""
    function = getattr(m, "state_function", None)
    return _RESETS.get(getattr(function, "__name__", ""), str(m.reset_mechanism))


def _notes(m: Any) -> list[str]:
    name = type(m).__name__
    notes = []
    spike_grad = getattr(m, "spike_grad", None)
    compiled = spike_grad is None or isinstance(convert_surrogate(spike_grad), surrogate.Surrogate)
    if not compiled and not m.surrogate_disable:
        notes.append("its surrogate stays a plain callable, which runs on the reference backend")
    if getattr(m, "state_quant", False):
        notes.append("its state_quant stays as it is and runs on the reference backend")
    if hasattr(m, "state_function") and _reset_in_effect(m) != m.reset_mechanism:
        notes.append(f"it runs reset_mechanism={_reset_in_effect(m)!r} although it says {m.reset_mechanism!r}")
    if name in ("SLSTM", "SConv2dLSTM") and m.inhibition:
        notes.append("inhibition has no effect in snnTorch and is dropped")
    if name == "SLSTM" and m.input_size != m.hidden_size:
        notes.append("snnTorch loses the state at every step where input and hidden size differ; here it is kept")
    factor = getattr(m, "graded_spikes_factor", None)
    if name in ("StateLeaky", "LinearLeaky", "DeltaLeaky") and factor is not None and bool((factor != 1).any()):
        times = "not at all" if name == "DeltaLeaky" else "twice"
        notes.append(f"snnTorch applies graded_spikes_factor {times}; here it is applied once")
    if name == "AssociativeLeaky":
        notes.append("over long sequences snnTorch's state underflows to 0; here it follows its recurrence")
    return notes


def _counterpart(module: nn.Module) -> nn.Module:
    """A new module of ours with the other's settings and, so far, values of its own."""
    theirs = _snntorch_class(module)
    assert theirs is not None
    build, arguments = _CLASSES[theirs.__name__]
    with torch.random.fork_rng(devices=[]), warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        ours = build(**arguments(module))
    if theirs.__name__ == "StateLeaky" and isinstance(ours, neurons.StateLeaky) and ours.tau.numel() == 1:
        # snnTorch does not keep the number
        ours.channels = None
    if isinstance(ours, neurons.AssociativeLeaky):
        ours.spike_grad = convert_surrogate(getattr(module, "spike_grad"))  # noqa: B009
    return ours


def _fill(ours: nn.Module, theirs: nn.Module, memo: Memo) -> None:
    """Move tensors, inner modules, hooks and attributes of the user's over."""
    for name, child in theirs._modules.items():
        mine = ours._modules.get(name)
        if child is None or mine is None:
            continue
        if type(mine) is type(child):
            ours._modules[name] = copying.deepcopy(child, memo)
        else:
            _move_tensors(mine, child, memo)
    _move_tensors(ours, theirs, memo)
    if isinstance(ours, (neurons.RLeaky, neurons.RSynaptic)) and not ours.all_to_all:
        ours.recurrent.V = ours.V
    own = nn.Module()
    for name in vars(own):
        if "hook" in name:
            ours.__dict__[name] = copying.deepcopy(theirs.__dict__.get(name, vars(own)[name]), memo)
    for name, value in theirs.__dict__.items():
        if name not in vars(own) and name not in _WORKING and not hasattr(ours, name):
            ours.__dict__[name] = copying.deepcopy(value, memo)
    ours.training = theirs.training


# what snnTorch's neurons keep for themselves
_WORKING = frozenset(("state_function", "reset", "spk", "_reset_mechanism", "rnn", "hidden_size", "eps", "tau"))


def _move_tensors(ours: nn.Module, theirs: nn.Module, memo: Memo) -> None:
    tensors: tuple[tuple[dict[str, Any], Mapping[str, Tensor | None]], ...] = (
        (ours._parameters, theirs._parameters),
        (ours._buffers, theirs._buffers),
    )
    for mine, other in tensors:
        for name in list(mine):
            value = other.get(name)
            if name == "reset_mechanism_val" and value is not None:
                mine[name] = mine[name].to(value.device)
            # numbers given as integers are computed with as floats here
            elif value is not None and value.is_floating_point():
                mine[name] = copying.deepcopy(value, memo)


def _cut_graphs(values: Any, memo: Memo) -> None:
    """Enter a detached copy of every tensor that has a history, since those have no deep copy of their own."""
    if isinstance(values, Tensor):
        if values.grad_fn is not None and id(values) not in memo:
            memo[id(values)] = values.detach().clone()
    elif isinstance(values, Mapping):
        for value in values.values():
            _cut_graphs(value, memo)
    elif isinstance(values, (list, tuple)):
        for value in values:
            _cut_graphs(value, memo)


__all__ = ["Conversion", "conversion_report", "convert_surrogate", "from_snntorch"]
