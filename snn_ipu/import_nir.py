"""Networks from the Neuromorphic Intermediate Representation (NIR), as snntorch.import_nir."""

from __future__ import annotations

import numbers
import operator
from typing import TYPE_CHECKING, Any, Callable, Sequence

import numpy as np
import torch
from torch import Tensor, fx, nn
from torch.nn import functional as F

from .errors import UnsupportedError
from .neurons import Lapicque, Leaky, RLeaky, RSynaptic, SpikingNeuron, Synaptic, neuron
from .neurons.base import Value
from .surrogate import spike

if TYPE_CHECKING:
    import nir

DT = 1e-4
METADATA = "snn_ipu"
_CLOSE = 1e-5
# 1 - beta below which a float32 beta is 1
_SLOWEST = 1e-9


@neuron(states=("mem",))
def NIRLIF(
    x: Tensor,
    mem: Tensor,
    *,
    beta: Value = 0.9,
    gain: Value = 1.0,
    v_leak: Value = 0.0,
    threshold: Value = 1.0,
    v_reset: Value = 0.0,
) -> tuple[Tensor, Tensor]:
    """NIR's LIF with any values at rest and reset: mem = v_leak + beta * (mem - v_leak) + gain * x, spike: v_reset.

    Args:
        beta: 1 - dt / tau. gain: r * dt / tau. v_leak: value at rest. threshold: a membrane strictly above it spikes.
        v_reset: membrane after a spike, in the same step.

    Shape: x [B, ...]; spk and mem as x. Units: those of the graph. Source: NIR's `LIF` and `IF`, in Euler steps.
    """
    mem = v_leak + beta * (mem - v_leak) + gain * x
    spk = spike(mem - threshold)
    fired = spk.detach()
    return spk, (1 - fired) * mem + fired * v_reset


@neuron(states=("syn", "mem"))
def NIRCubaLIF(
    x: Tensor,
    syn: Tensor,
    mem: Tensor,
    *,
    alpha: Value = 0.5,
    beta: Value = 0.9,
    syn_gain: Value = 1.0,
    gain: Value = 1.0,
    v_leak: Value = 0.0,
    threshold: Value = 1.0,
    v_reset: Value = 0.0,
) -> tuple[Tensor, Tensor, Tensor]:
    """NIR's CubaLIF with any values at rest and reset: syn = alpha * syn + syn_gain * x drives a `NIRLIF`.

    Args:
        alpha: 1 - dt / tau_syn. syn_gain: w_in * dt / tau_syn. gain: r * dt / tau_mem. All others as in `NIRLIF`.

    Shape: x [B, ...]; spk, syn and mem as x. Units: those of the graph. Source: NIR's `CubaLIF`, in Euler steps.
    """
    syn = alpha * syn + syn_gain * x
    mem = v_leak + beta * (mem - v_leak) + gain * syn
    spk = spike(mem - threshold)
    fired = spk.detach()
    return spk, syn, (1 - fired) * mem + fired * v_reset


@neuron(states=("mem",))
def NIRLI(
    x: Tensor, mem: Tensor, *, beta: Value = 0.9, gain: Value = 1.0, v_leak: Value = 0.0
) -> tuple[Tensor, Tensor]:
    """NIR's leaky integrator: gives out the membrane mem = v_leak + beta * (mem - v_leak) + gain * x.

    Args:
        beta: 1 - dt / tau; 1 for NIR's `I`. gain: r * dt / tau. v_leak: value at rest.

    Shape: x [B, ...]; output and mem as x. Units: those of the graph. Source: NIR's `LI` and `I`, in Euler steps.
    """
    mem = v_leak + beta * (mem - v_leak) + gain * x
    return mem, mem


@neuron(states=("syn", "mem"))
def NIRCubaLI(
    x: Tensor,
    syn: Tensor,
    mem: Tensor,
    *,
    alpha: Value = 0.5,
    beta: Value = 0.9,
    syn_gain: Value = 1.0,
    gain: Value = 1.0,
    v_leak: Value = 0.0,
) -> tuple[Tensor, Tensor, Tensor]:
    """NIR's current-based leaky integrator: syn = alpha * syn + syn_gain * x drives a `NIRLI`.

    Args: as in `NIRCubaLIF`.

    Shape: x [B, ...]; output, syn and mem as x. Units: those of the graph. Source: NIR's `CubaLI`, in Euler steps.
    """
    syn = alpha * syn + syn_gain * x
    mem = v_leak + beta * (mem - v_leak) + gain * syn
    return mem, syn, mem


class Scale(nn.Module):
    """y = scale * x, NIR's `Scale`."""

    scale: Tensor

    def __init__(self, scale: Tensor) -> None:
        super().__init__()
        self.register_buffer("scale", scale)

    def forward(self, x: Tensor) -> Tensor:
        return x * self.scale


class Threshold(nn.Module):
    """y = 1 where x > threshold, else 0, NIR's `Threshold`, with a surrogate gradient."""

    threshold: Tensor

    def __init__(self, threshold: Tensor) -> None:
        super().__init__()
        self.register_buffer("threshold", threshold)

    def forward(self, x: Tensor) -> Tensor:
        return spike(x - self.threshold)


class SumPool2d(nn.Module):
    """Sum over windows of an image, NIR's `SumPool2d`."""

    def __init__(self, kernel_size: tuple[int, int], stride: tuple[int, int], padding: tuple[int, int]) -> None:
        super().__init__()
        self.kernel_size, self.stride, self.padding = kernel_size, stride, padding

    def forward(self, x: Tensor) -> Tensor:
        return F.avg_pool2d(x, self.kernel_size, self.stride, self.padding, divisor_override=1)


def import_from_nir(graph: nir.NIRGraph, *, dt: float | None = None) -> nn.Module:
    """A network from a NIR graph; its neurons take one Euler step of `dt` seconds per time step.

    `LIF`, `IF` and `CubaLIF` become `Leaky`, `Leaky(beta=1)` and `Synaptic` with a reset to zero in the step of the
    spike, which is what NIR defines, or `NIRLIF` and `NIRCubaLIF` where v_leak or v_reset is not 0. Such a neuron and
    weights that lead back to it alone become `RLeaky` or `RSynaptic`. Nodes that `export_to_nir` has written get back
    the settings of the neuron that they came from. An `IF` with r = 1 adds its input, with another r it adds r * dt
    times its input. The synaptic current of a step acts on the membrane in the same step.

    Args:
        graph: a NIR graph with one input and one output.
        dt: seconds per step, where the graph does not say; 1e-4, snnTorch's, by default.

    Returns: a module of one time step. `net(x, state=None)` gives `(y, state)`, as snnTorch's does; the neurons keep
        their states themselves, so `state` is passed through. `snn_ipu.unroll` runs it over time,
        `snn_ipu.utils.reset` starts it anew.

    Raises: UnsupportedError that names a node which cannot be run; ValueError for a dt that is not a time; ImportError
        without the package nir.
    """
    nir = nir_package()
    if dt is not None:
        check_dt("import_from_nir", dt)
    nodes, edges = _flat(nir, graph)
    _merge_recurrent(nir, nodes, edges)
    ends = {kind: [n for n, v in nodes.items() if isinstance(v, kind)] for kind in (nir.Input, nir.Output)}
    for kind, found in ends.items():
        if len(found) != 1:
            raise UnsupportedError(
                f"import_from_nir(graph with {kind.__name__} nodes {found}): expected one. Import a part of the graph."
            )
    modules: dict[str, nn.Module] = {}
    values: dict[str, fx.Node] = {}
    built = fx.Graph()
    x, state = built.placeholder("x"), built.placeholder("state", default_value=None)
    paths = _paths(nodes)
    for name in _in_order(nodes, edges):
        node = nodes[name]
        if isinstance(node, nir.Input):
            values[name] = x
            continue
        sources = [values[a] for a, b in edges if b == name]
        if not sources:
            raise UnsupportedError(f"import_from_nir: node {name!r} has no input; expected an edge that leads to it.")
        total = sources[0]
        for other in sources[1:]:
            total = built.call_function(operator.add, (total, other))
        if isinstance(node, nir.Output):
            values[name] = total
            continue
        modules[paths[name]] = _module(nir, name, node, dt)
        values[name] = built.call_module(paths[name], (total,))
    built.output((values[ends[nir.Output][0]], state))
    return fx.GraphModule(modules, built, class_name="NIRNetwork")


def nir_package() -> Any:
    """The package nir.

    Raises: ImportError that says how to install it.
    """
    try:
        import nir
    except ImportError as error:
        raise ImportError("NIR needs the package nir. Install it with: pip install snn_ipu[nir]") from error
    return nir


class _Recurrent:
    """A spiking node and the weights that lead from it back to it."""

    def __init__(self, spiking: Any, weights: Any) -> None:
        self.spiking, self.weights = spiking, weights


def check_dt(call: str, dt: float) -> None:
    """Raise ValueError for a dt that is not a time."""
    if not (isinstance(dt, numbers.Real) and 0 < dt < float("inf")):
        raise ValueError(
            f"{call}(dt={dt!r}): expected the seconds of a time step, above 0. Pass for example dt={DT:g}."
        )


def _flat(nir: Any, graph: Any) -> tuple[dict[str, Any], list[tuple[str, str]]]:
    """The graph without sub-graphs: their nodes get the sub-graph's name as a prefix, their ends are passed through."""
    nodes: dict[str, Any] = {}
    edges: list[tuple[str, str]] = []
    entries: dict[str, str] = {}
    exits: dict[str, str] = {}
    passed: list[str] = []
    for name, node in graph.nodes.items():
        if not isinstance(node, nir.NIRGraph):
            nodes[name] = node
            continue
        inner_nodes, inner_edges = _flat(nir, node)
        for kind, ends in ((nir.Input, entries), (nir.Output, exits)):
            found = [n for n, v in inner_nodes.items() if isinstance(v, kind)]
            if len(found) != 1:
                raise UnsupportedError(
                    f"import_from_nir: the sub-graph {name!r} has {kind.__name__} nodes {found}; expected one of each."
                )
            ends[name] = f"{name}.{found[0]}"
            passed.append(ends[name])
        nodes.update((f"{name}.{n}", v) for n, v in inner_nodes.items())
        edges += [(f"{name}.{a}", f"{name}.{b}") for a, b in inner_edges]
    edges += [(exits.get(a, a), entries.get(b, b)) for a, b in graph.edges]
    for name in passed:
        before = [a for a, b in edges if b == name]
        after = [b for a, b in edges if a == name]
        edges = [e for e in edges if name not in e] + [(a, b) for a in before for b in after]
        del nodes[name]
    return nodes, list(dict.fromkeys(edges))


def _merge_recurrent(nir: Any, nodes: dict[str, Any], edges: list[tuple[str, str]]) -> None:
    """Join each spiking node with the weights that lead from it back to it, in place."""
    spiking = (nir.LIF, nir.CubaLIF, nir.IF)
    weights = (nir.Affine, nir.Linear, nir.Conv2d, nir.Scale)
    for name in [n for n, v in nodes.items() if isinstance(v, weights)]:
        before = [a for a, b in edges if b == name]
        after = [b for a, b in edges if a == name]
        if len(before) != 1 or before != after or not isinstance(nodes[before[0]], spiking):
            continue
        (owner,) = before
        edges[:] = [e for e in edges if name not in e]
        prefix, _, last = owner.rpartition(".")
        joined = prefix if prefix and name == f"{prefix}.w_rec" and last == "lif" and prefix not in nodes else owner
        node = _Recurrent(nodes.pop(owner), nodes.pop(name))
        nodes[joined] = node
        edges[:] = [(joined if a == owner else a, joined if b == owner else b) for a, b in edges]


def _in_order(nodes: dict[str, Any], edges: Sequence[tuple[str, str]]) -> list[str]:
    """Names of the nodes, each after those it takes input from."""
    waiting = {name: {a for a, b in edges if b == name} for name in nodes}
    for a, b in edges:
        if a not in nodes or b not in nodes:
            raise UnsupportedError(f"import_from_nir: the edge {(a, b)} leads to no node. Repair the graph.")
    order: list[str] = []
    while waiting:
        ready = [name for name, sources in waiting.items() if not sources]
        if not ready:
            raise UnsupportedError(
                f"import_from_nir: the nodes {sorted(waiting)} lie on a cycle; expected cycles of one spiking node "
                "and weights alone, which become a recurrent neuron."
            )
        order += ready
        for name in ready:
            del waiting[name]
        for sources in waiting.values():
            sources.difference_update(ready)
    return order


def _paths(nodes: dict[str, Any]) -> dict[str, str]:
    """Module paths for the nodes' names; a node inside another one's name gets a name of its own."""
    paths: dict[str, str] = {}
    for name in nodes:
        parents = name.split(".")
        inside = any(".".join(parents[:i]) in nodes for i in range(1, len(parents)))
        path = name.replace(".", "_") if inside or not all(parents) else name
        while path in paths.values():
            path += "_"
        paths[name] = path
    return paths


def _tensor(values: Any) -> Tensor:
    """One number where all values are equal, else a tensor of them."""
    array = np.asarray(values, dtype=np.float64)
    if array.size and np.all(array == array.flat[0]):
        array = array.flat[0]
    return torch.tensor(array, dtype=torch.get_default_dtype())


def _exact(values: Any) -> Tensor:
    return torch.tensor(np.array(values), dtype=torch.get_default_dtype())


def _pair(value: Any) -> tuple[int, int]:
    values = [int(v) for v in np.asarray(value).reshape(-1)]
    return (values[0], values[0]) if len(values) == 1 else (values[0], values[1])


def _linear(node: Any) -> nn.Linear:
    bias = getattr(node, "bias", None)
    weight = torch.nn.Parameter(_exact(node.weight))
    with torch.random.fork_rng(devices=[]):
        layer = nn.Linear(weight.shape[1], weight.shape[0], bias=bias is not None)
    layer.weight = weight
    if bias is not None:
        layer.bias = nn.Parameter(_exact(bias))
    return layer


def _conv(kind: Callable[..., nn.Module], node: Any, numbers: Callable[[Any], Any]) -> nn.Module:
    weight, groups = _exact(node.weight), int(node.groups)
    padding = node.padding if isinstance(node.padding, str) else numbers(node.padding)
    bias = node.bias is not None
    with torch.random.fork_rng(devices=[]):
        layer = kind(
            weight.shape[1] * groups,
            weight.shape[0],
            tuple(weight.shape[2:]),
            numbers(node.stride),
            padding,
            numbers(node.dilation),
            groups,
            bias,
        )
    layer.weight = nn.Parameter(weight)
    if bias:
        layer.bias = nn.Parameter(_exact(node.bias))
    return layer


def _batched(dim: Any) -> int:
    """A dimension counted without the batch, counted with it."""
    return int(dim) + 1 if int(dim) >= 0 else int(dim)


def _module(nir: Any, name: str, node: Any, dt: float | None) -> nn.Module:
    """The module that a node stands for."""
    if isinstance(node, _Recurrent):
        return _recurrent(nir, name, node, dt)
    if isinstance(node, (nir.LIF, nir.IF, nir.CubaLIF)):
        return _spiking(nir, name, node, dt)
    if isinstance(node, (nir.LI, nir.I, nir.CubaLI)):
        units = _units(nir, name, node, dt)
        integrator: Callable[..., nn.Module] = NIRCubaLI if "alpha" in units else NIRLI
        return integrator(**{key: _tensor(value) for key, value in units.items()}, init_hidden=True)
    if isinstance(node, (nir.Affine, nir.Linear)) and node.weight.ndim == 2:
        return _linear(node)
    if isinstance(node, nir.Conv2d):
        return _conv(nn.Conv2d, node, _pair)
    if isinstance(node, nir.Conv1d):
        return _conv(nn.Conv1d, node, lambda value: int(np.asarray(value).reshape(-1)[0]))
    if isinstance(node, nir.AvgPool2d):
        return nn.AvgPool2d(_pair(node.kernel_size), _pair(node.stride), _pair(node.padding))
    if isinstance(node, nir.SumPool2d):
        return SumPool2d(_pair(node.kernel_size), _pair(node.stride), _pair(node.padding))
    if isinstance(node, nir.Flatten):
        return nn.Flatten(_batched(node.start_dim), _batched(node.end_dim))
    if isinstance(node, nir.Scale):
        return Scale(_exact(node.scale))
    if isinstance(node, nir.Threshold):
        return Threshold(_exact(node.threshold))
    raise UnsupportedError(
        f"import_from_nir: node {name!r} is a {type(node).__name__}, which has no counterpart here. Replace it, or "
        "import the parts of the graph around it."
    )


def _units(nir: Any, name: str, node: Any, dt: float | None) -> dict[str, Any]:
    """A neuron node per step, in float64: alpha, beta, syn_gain, gain, v_leak, threshold, v_reset."""
    written = _metadata(node)
    step = float(written.get("dt", DT if dt is None else dt))
    zero = np.zeros_like(np.asarray(node.r, np.float64))
    units: dict[str, Any] = {"v_leak": zero, "beta": zero + 1}

    def decay(tau: Any, key: str) -> Any:
        value = 1 - step / np.asarray(tau, np.float64)
        value = np.where(np.abs(value) < _CLOSE, 0, value)
        if np.any(value < 0) or not np.all(np.isfinite(value)):
            raise UnsupportedError(
                f"import_from_nir: node {name!r} has a time constant below the step of {step:g} s; expected a longer "
                "one. Pass a smaller dt=."
            )
        # the decay that the time constant was made from, unless that has been changed since
        exact = written.get(key)
        return exact + zero if exact is not None and np.allclose(exact, value, atol=_CLOSE) else value

    if isinstance(node, (nir.CubaLIF, nir.CubaLI)):
        units["alpha"], units["beta"] = decay(node.tau_syn, "alpha"), decay(node.tau_mem, "beta")
        units["syn_gain"] = np.asarray(node.w_in, np.float64) * step / node.tau_syn
        units["gain"], units["v_leak"] = node.r * step / np.asarray(node.tau_mem, np.float64), node.v_leak + zero
    elif isinstance(node, (nir.LIF, nir.LI)):
        units["beta"] = decay(node.tau, "beta")
        units["gain"], units["v_leak"] = node.r * step / np.asarray(node.tau, np.float64), node.v_leak + zero
    else:
        # frameworks whose unit of time is a step write r = 1
        units["gain"] = zero + (1 if np.all(node.r == 1) else np.asarray(node.r, np.float64) * step)
    for key in ("gain", "syn_gain"):
        if key in units and np.allclose(units[key], 1, rtol=_CLOSE):
            units[key] = zero + 1
    if hasattr(node, "v_threshold"):
        units["threshold"], units["v_reset"] = node.v_threshold + zero, node.v_reset + zero
    return units


def _metadata(node: Any) -> dict[str, Any]:
    """What export_to_nir has left in a node; strings and numbers may come back as numpy's."""
    written = node.metadata.get(METADATA, {}) if isinstance(node.metadata, dict) else {}
    return {key: value.item() if getattr(value, "ndim", 1) == 0 else value for key, value in dict(written).items()}


def _settings(node: Any) -> dict[str, Any]:
    """Reset of the neuron: as written by export_to_nir, else as NIR defines it."""
    written = _metadata(node)
    return {
        "reset_mechanism": str(written.get("reset_mechanism", "zero")),
        "reset_delay": bool(written.get("reset_delay", False)),
        "init_hidden": True,
    }


def _at_rest(units: dict[str, Any]) -> bool:
    positive = all(np.all(units[key] > 0) for key in ("gain", "syn_gain") if key in units)
    return positive and not np.any(units["v_leak"]) and not np.any(units["v_reset"])


def _scaled_threshold(units: dict[str, Any]) -> Tensor:
    """The threshold of a neuron whose input has gain 1."""
    return _tensor(units["threshold"] / (units["gain"] * units.get("syn_gain", 1.0)))


def _spiking(nir: Any, name: str, node: Any, dt: float | None) -> nn.Module:
    units = _units(nir, name, node, dt)
    if not _at_rest(units):
        build: Callable[..., nn.Module] = NIRCubaLIF if "alpha" in units else NIRLIF
        return build(**{key: _tensor(value) for key, value in units.items()}, init_hidden=True)
    threshold, beta = _scaled_threshold(units), _tensor(units["beta"])
    if _settings(node)["reset_mechanism"] == "zero" and _metadata(node).get("neuron") == Lapicque.__name__:
        # Its reset to zero drops the new input as well, which no Leaky does.
        resistance = _tensor(1 / np.maximum(1 - units["beta"], _SLOWEST))
        return Lapicque(R=resistance, C=1.0, threshold=threshold, reset_mechanism="zero", init_hidden=True)
    if "alpha" in units:
        return Synaptic(_tensor(units["alpha"]), beta, threshold, **_settings(node))
    return Leaky(beta, threshold, **_settings(node))


def _recurrent(nir: Any, name: str, node: _Recurrent, dt: float | None) -> nn.Module:
    units = _units(nir, name, node.spiking, dt)
    if not _at_rest(units):
        raise UnsupportedError(
            f"import_from_nir: the recurrent node {name!r} has v_leak or v_reset other than 0, or a gain that is not "
            "positive; expected a recurrent neuron at rest at 0. Shift its units so that they are 0."
        )
    weights = node.weights
    feedback: dict[str, Any]
    layer: nn.Module | None = None
    if isinstance(weights, nir.Conv2d):
        layer = _conv(nn.Conv2d, weights, _pair)
        feedback = {"conv2d_channels": weights.weight.shape[0], "kernel_size": tuple(weights.weight.shape[2:])}
    elif isinstance(weights, nir.Scale):
        feedback = {"all_to_all": False, "V": _tensor(weights.scale)}
    elif isinstance(weights, nir.Linear) and np.array_equal(weights.weight, np.diag(np.diag(weights.weight))):
        feedback = {"all_to_all": False, "V": _tensor(np.diag(weights.weight))}
    else:
        layer = _linear(weights)
        feedback = {"linear_features": weights.weight.shape[0]}
    threshold, beta = _scaled_threshold(units), _tensor(units["beta"])
    with torch.random.fork_rng(devices=[]):
        made: SpikingNeuron
        if "alpha" in units:
            alpha = _tensor(units["alpha"])
            made = RSynaptic(alpha, beta, threshold=threshold, **feedback, **_settings(node.spiking))
        else:
            made = RLeaky(beta, threshold=threshold, **feedback, **_settings(node.spiking))
    if layer is not None:
        made.recurrent = layer
    return made


__all__ = ["NIRLI", "NIRLIF", "NIRCubaLI", "NIRCubaLIF", "Scale", "SumPool2d", "Threshold", "import_from_nir"]
