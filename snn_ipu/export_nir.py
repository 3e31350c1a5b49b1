"""Networks to the Neuromorphic Intermediate Representation (NIR), as snntorch.export_nir."""

from __future__ import annotations

import operator
import warnings
from collections import OrderedDict
from typing import TYPE_CHECKING, Any, Callable, Sequence

import numpy as np
import torch
from torch import Tensor, fx, nn

from .convert import conversion_report, converted
from .errors import UnsupportedError
from .import_nir import (
    DT,
    METADATA,
    NIRLI,
    NIRLIF,
    NIRCubaLI,
    NIRCubaLIF,
    Scale,
    SumPool2d,
    Threshold,
    check_dt,
    nir_package,
)
from .neurons import IF, Lapicque, Leaky, ParametricLeaky, RLeaky, RSynaptic, SpikingNeuron, Synaptic
from .utils import reset

if TYPE_CHECKING:
    import nir

_FOREVER = 1e30


def export_to_nir(
    module: nn.Module,
    sample_data: Tensor,
    model_name: str = "snntorch",
    model_fwd_args: Sequence[Any] = [],
    ignore_dims: Sequence[int] = [],
    *,
    dt: float = DT,
) -> nir.NIRNode:
    """The NIR graph of a network whose forward maps one frame to one frame, as `snn_ipu.unroll` takes it.

    A neuron that decays by beta per step gets the time constant tau = dt / (1 - beta) and a resistance that undoes the
    scaling of its input. NIR's `LIF`, `IF` and `CubaLIF` are set to v_reset in the step of the spike. A neuron with
    another reset carries its true settings as metadata under "snn_ipu", which `import_from_nir` restores; other
    programs will run NIR's reset, and one warning names these neurons. Neurons without reset become an integrator and a
    `Threshold`, graded spikes a `Scale`, batch normalisation in evaluation mode fixed weights; dropout is left out.

    Args:
        module: the network, of this library or of snnTorch.
        sample_data: one frame [B, ...] of the network's input, for the shapes.
        model_name: name of the node where the network is a single layer.
        model_fwd_args: further arguments of forward.
        ignore_dims: dimensions of `sample_data` that the graph's input and output do not have; the batch by default.
        dt: seconds per time step.

    Returns: a `nir.NIRGraph`, for `nir.write`.

    Raises: UnsupportedError that names the layer or operation which NIR cannot express; ValueError for a dt that is not
        a time; ImportError without the package nir.
    """
    nir = nir_package()
    check_dt("export_to_nir", dt)
    net = converted(module, conversion_report(module))
    reset(net)
    tracer = _Tracer(tuple(model_fwd_args))
    if tracer.is_leaf_module(net, ""):
        net = nn.Sequential(OrderedDict([(model_name, net)]))
    try:
        traced = tracer.trace(net)
    except (fx.proxy.TraceError, TypeError) as error:
        raise UnsupportedError(
            f"export_to_nir({type(module).__name__}): its forward cannot be traced ({error}). Expected one that maps "
            "one frame to one frame, without a loop over time or control flow on tensors."
        ) from error
    shapes = _Shapes(fx.GraphModule(net, traced))
    with torch.no_grad():
        shapes.run(sample_data)
    dropped = [d % sample_data.dim() for d in ignore_dims] or [0]

    def without(shape: Sequence[int]) -> Any:
        return np.array([size for d, size in enumerate(shape) if d not in dropped])

    writer = _Writer(nir, dict(net.named_modules()), shapes.of, dt)
    sources, last = writer.write(traced)
    writer.nodes["input"] = nir.Input(input_type={"input": without(sample_data.shape)})
    writer.nodes["output"] = nir.Output(output_type={"output": without(last)})
    writer.edges += [(source, "output") for source in sources]
    if writer.other_resets:
        warnings.warn(
            f"export_to_nir: {', '.join(writer.other_resets)} do not reset as NIR defines it, to v_reset in the step "
            "of the spike. Their settings are in the nodes' metadata for import_from_nir; other programs will run "
            "NIR's reset. Train with reset_mechanism='zero', reset_delay=False for the same spikes everywhere.",
            stacklevel=2,
        )
    graph = nir.NIRGraph(writer.nodes, list(dict.fromkeys(writer.edges)), type_check=False)
    graph.infer_types()
    return graph


class _Tracer(fx.Tracer):
    """Records a forward down to single layers."""

    def __init__(self, more: tuple[Any, ...]) -> None:
        super().__init__()
        self.more = more

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        own = (SpikingNeuron, Scale, Threshold, SumPool2d)
        return isinstance(m, own) or super().is_leaf_module(m, module_qualified_name)

    def create_args_for_root(self, root_fn: Any, is_module: bool, concrete_args: Any = None) -> tuple[Any, list[Any]]:
        return root_fn, [self.root, self.create_proxy("placeholder", "x", (), {}), *self.more]


class _Shapes(fx.Interpreter):
    """Runs one frame and notes the shape of every value."""

    def __init__(self, net: fx.GraphModule) -> None:
        super().__init__(net)
        self.of: dict[str, tuple[int, ...]] = {}

    def run_node(self, n: fx.Node) -> Any:
        out = super().run_node(n)
        first = out[0] if isinstance(out, tuple) and out else out
        if n.op == "call_module" and not _unpacked(n):
            out = first
        if isinstance(first, Tensor):
            self.of[n.name] = tuple(first.shape)
        return out


def _unpacked(node: fx.Node) -> bool:
    """Whether a neuron's result is taken apart, as in spk, mem = lif(x); else it stands for its spikes."""
    return any(user.target is operator.getitem for user in node.users)


class _From:
    """A value in the graph: the sum of what these nodes give out."""

    def __init__(self, *names: str) -> None:
        self.names = names


class _State:
    """A neuron's state, which NIR has no edge for."""


class _Writer:
    """Turns a traced forward into nodes and edges."""

    def __init__(self, nir: Any, modules: dict[str, nn.Module], shapes: dict[str, tuple[int, ...]], dt: float) -> None:
        self.nir, self.modules, self.shapes, self.dt = nir, modules, shapes, dt
        self.nodes: dict[str, Any] = {}
        self.edges: list[tuple[str, str]] = []
        self.other_resets: list[str] = []

    def write(self, graph: fx.Graph) -> tuple[tuple[str, ...], tuple[int, ...]]:
        """Fill nodes and edges; returns the nodes that the output sums, and its shape."""
        values: dict[fx.Node, Any] = {}
        for node in graph.nodes:
            args = fx.node.map_arg(node.args, values.__getitem__)
            if node.op == "placeholder":
                values[node] = _From("input")
            elif node.op == "get_attr":
                values[node] = _State()
            elif node.op == "call_module":
                values[node] = self.call(node, str(node.target), args[0])
            elif node.op == "output":
                out = args[0]
                first = out[0] if isinstance(out, tuple) and out else out
                rest = out[1:] if isinstance(out, tuple) else ()
                if not isinstance(first, _From) or any(isinstance(r, _From) for r in rest):
                    raise UnsupportedError(
                        "export_to_nir: forward returns something else than one result and neuron states; expected "
                        "spikes first. Wrap the network in a module that returns its output."
                    )
                return first.names, self.shapes[node.name]
            else:
                values[node] = self.function(node, args)
        raise AssertionError("a traced graph ends with its output")

    def add(self, name: str, node: Any, *sources: str) -> _From:
        while name in self.nodes:
            name += "_"
        self.nodes[name] = node
        self.edges += [(source, name) for source in sources]
        return _From(name)

    def function(self, node: fx.Node, args: Any) -> Any:
        target = node.target
        if target is operator.getitem and isinstance(args[0], tuple):
            return args[0][args[1]]
        if target in (operator.add, operator.iadd, torch.add) or node.target in ("add", "add_"):
            if all(isinstance(a, _From) for a in args[:2]) and not node.kwargs:
                return _From(*args[0].names, *args[1].names)
        elif target in (torch.flatten, "flatten", "view", "reshape") and isinstance(args[0], _From):
            given = node.args[0]
            assert isinstance(given, fx.Node)
            before, after = self.shapes[given.name], self.shapes[node.name]
            if after == (before[0], int(np.prod(before[1:]))):
                flatten = self.nir.Flatten(input_type={"input": np.array(before[1:])}, start_dim=0, end_dim=-1)
                return self.add(node.name, flatten, *args[0].names)
        called = target if isinstance(target, str) else getattr(target, "__name__", str(target))
        raise UnsupportedError(
            f"export_to_nir: forward calls {called}, which NIR has no node for; expected layers, sums of two branches, "
            "and flatten of all but the batch. Move the rest out of the network."
        )

    def call(self, node: fx.Node, path: str, value: Any) -> Any:
        if not isinstance(value, _From):
            raise UnsupportedError(
                f"export_to_nir: {path!r} is fed with a neuron's state; expected spikes. NIR has no edge for states."
            )
        given = node.args[0]
        assert isinstance(given, fx.Node)
        module, frame = self.modules[path], self.shapes[given.name][1:]
        if isinstance(module, SpikingNeuron):
            build = _NEURONS.get(type(module))
            if build is None:
                raise UnsupportedError(
                    f"export_to_nir: {path!r} is a {type(module).__name__}, whose dynamics NIR cannot express; "
                    f"expected one of {', '.join(sorted(c.__name__ for c in _NEURONS))}."
                )
            spk = build(self, path, module, frame, value.names)
            return (spk, *(_State() for name in module.state_names if name != "spk")) if _unpacked(node) else spk
        if isinstance(module, (nn.Identity, nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.AlphaDropout)):
            return value
        return self.add(path, self.layer(path, module, frame), *value.names)

    def layer(self, path: str, m: nn.Module, frame: tuple[int, ...]) -> Any:
        """The node of a layer without state."""
        nir = self.nir
        if isinstance(m, nn.Linear):
            if m.bias is None:
                return nir.Linear(weight=_array(m.weight))
            return nir.Affine(weight=_array(m.weight), bias=_array(m.bias))
        if isinstance(m, (nn.Conv1d, nn.Conv2d)) and m.padding_mode == "zeros":
            return self.conv(m, frame)
        if isinstance(m, nn.AvgPool2d) and not m.ceil_mode and m.divisor_override is None:
            stride = m.kernel_size if m.stride is None else m.stride
            return nir.AvgPool2d(*(np.array(np.broadcast_to(v, 2)) for v in (m.kernel_size, stride, m.padding)))
        if isinstance(m, SumPool2d):
            return nir.SumPool2d(np.array(m.kernel_size), np.array(m.stride), np.array(m.padding))
        if isinstance(m, nn.Flatten) and m.start_dim != 0:
            start = m.start_dim - 1 if m.start_dim > 0 else m.start_dim
            end = m.end_dim - 1 if m.end_dim > 0 else m.end_dim
            return nir.Flatten(input_type={"input": np.array(frame)}, start_dim=start, end_dim=end)
        if isinstance(m, Scale):
            return nir.Scale(scale=self.spread(m.scale, frame))
        if isinstance(m, Threshold):
            return nir.Threshold(threshold=self.spread(m.threshold, frame))
        if isinstance(m, (nn.BatchNorm1d, nn.BatchNorm2d)) and not m.training and m.running_var is not None:
            return self.batch_norm(m, frame)
        raise UnsupportedError(
            f"export_to_nir: {path!r} is {m!r}, which NIR has no node for; expected Linear, Conv1d, Conv2d, AvgPool2d, "
            "Flatten, dropout, or batch normalisation in evaluation mode. Replace it, or call net.eval() first."
        )

    def conv(
        self, m: nn.Conv1d | nn.Conv2d, frame: tuple[int, ...], weight: Tensor | None = None, bias: Tensor | None = None
    ) -> Any:
        """A convolution; a grouped one as a full one with zeros, since shapes in the package nir know no groups."""
        weight = m.weight if weight is None else weight
        if m.groups > 1:
            blocks = weight.detach().chunk(m.groups)
            weight = torch.zeros(m.out_channels, m.in_channels, *m.kernel_size)
            for group, rows in enumerate(weight.chunk(m.groups)):
                rows.chunk(m.groups, 1)[group].copy_(blocks[group])
        if len(set(m.kernel_size)) > 1:
            raise UnsupportedError(
                f"export_to_nir: {m!r}: expected a square kernel, which the package nir takes every kernel for. "
                "Pad its weight with zeros."
            )
        bias = m.bias if bias is None else bias
        one = isinstance(m, nn.Conv1d)

        def numbers(value: Any) -> Any:
            return value[0] if one else tuple(value)

        return (self.nir.Conv1d if one else self.nir.Conv2d)(
            input_shape=numbers(frame[1:]),
            weight=_array(weight),
            stride=numbers(m.stride),
            padding=m.padding if isinstance(m.padding, str) else numbers(m.padding),
            dilation=numbers(m.dilation),
            groups=1,
            bias=np.zeros(m.out_channels, np.float32) if bias is None else _array(bias),
        )

    def batch_norm(self, m: nn.BatchNorm1d | nn.BatchNorm2d, frame: tuple[int, ...]) -> Any:
        """y = factor * x + offset per channel."""
        assert m.running_var is not None and m.running_mean is not None
        factor: Tensor = torch.rsqrt(m.running_var + m.eps) * (1 if m.weight is None else m.weight)
        offset = (0 if m.bias is None else m.bias) - m.running_mean * factor
        if len(frame) == 1:
            return self.nir.Affine(weight=_array(factor.diag()), bias=_array(offset))
        shape = nn.Conv1d(1, 1, 1) if len(frame) == 2 else nn.Conv2d(1, 1, 1)
        return self.conv(shape, frame, factor.diag().reshape(*factor.shape, -1, *[1] * (len(frame) - 1)), offset)

    def spread(self, value: Tensor, frame: tuple[int, ...]) -> Any:
        return np.array(np.broadcast_to(_array(value), frame))

    def neuron(
        self,
        path: str,
        m: Any,
        frame: tuple[int, ...],
        sources: Sequence[str],
        *,
        beta: Tensor,
        alpha: Tensor | None = None,
        gain: Tensor | float = 1.0,
        syn_gain: Tensor | float = 1.0,
        v_leak: Tensor | float = 0.0,
        v_reset: Tensor | float = 0.0,
        reset_mechanism: str = "zero",
        reset_delay: bool = False,
        feedback: bool = False,
        spikes: bool = True,
    ) -> _From:
        """A neuron with mem = v_leak + beta * (mem - v_leak) + gain * (alpha * syn + syn_gain * x) as nodes."""
        nir, dt = self.nir, self.dt
        decays = {"beta": beta} if alpha is None else {"alpha": alpha, "beta": beta}
        # files cannot hold arrays without dimensions
        written: dict[str, Any] = {
            key: value.item() if value.numel() == 1 else _array(value) for key, value in decays.items()
        }

        def full(value: Tensor | float) -> Any:
            array = np.asarray(value.detach().cpu() if isinstance(value, Tensor) else value, np.float64)
            return np.broadcast_to(array, frame)

        def constant(decay: Tensor) -> Any:
            left = 1 - full(decay)
            return np.where(left > 0, dt / np.where(left > 0, left, 1), _FOREVER)

        arrays: dict[str, Any] = {}
        name = "LI"
        tau = constant(beta)
        arrays["r"] = full(gain) * tau / dt
        arrays["v_leak"] = full(v_leak)
        if alpha is None:
            arrays["tau"] = tau
        else:
            name = "CubaLI"
            arrays.update(tau_mem=tau, tau_syn=constant(alpha))
            arrays["w_in"] = full(syn_gain) * arrays["tau_syn"] / dt
        threshold = full(m.threshold) if spikes else full(0.0)
        apart = spikes and reset_mechanism == "none" and not feedback
        if spikes and not apart:
            name += "F"
            arrays.update(v_threshold=threshold, v_reset=full(v_reset))
            # Leaky's reset to zero keeps the new input, so its spikes are those of a reset in the step of the spike
            same = reset_mechanism == "zero" and (not reset_delay or type(m) is Leaky)
            written.update(neuron=type(m).__name__, reset_mechanism=reset_mechanism, reset_delay=reset_delay)
            if not same:
                self.other_resets.append(path)
        if name == "LIF" and bool((full(beta) == 1).all()) and not arrays["v_leak"].any():
            name = "IF"
            arrays = {key: arrays[key] for key in ("v_threshold", "v_reset")}
            arrays["r"] = full(gain) if bool((full(gain) == 1).all()) else full(gain) / dt
        single = {key: np.array(value, np.float32) for key, value in arrays.items()}
        node = getattr(nir, name)(**single, metadata={METADATA: {"dt": dt, **written}})
        factor = getattr(m, "graded_spikes_factor", None)
        graded = spikes and factor is not None and bool((factor != 1).any())
        inner = feedback or graded or apart
        out = self.add(f"{path}.lif" if inner else path, node, *sources)
        if apart:
            out = self.add(f"{path}.threshold", nir.Threshold(threshold=np.array(threshold, np.float32)), *out.names)
        if graded:
            assert factor is not None
            out = self.add(f"{path}.scale", nir.Scale(scale=self.spread(factor, frame)), *out.names)
        return out


def _array(tensor: Tensor) -> Any:
    return tensor.detach().cpu().float().numpy().copy()


def _plain(path: str, m: Any) -> None:
    """Raise for settings of snnTorch's neurons that no node stands for."""
    for setting in ("inhibition", "state_quant"):
        if getattr(m, setting):
            raise UnsupportedError(
                f"export_to_nir: {path!r} has {setting}={getattr(m, setting)!r}, which NIR cannot express. "
                "Build the neuron without it."
            )


Builder = Callable[[_Writer, str, Any, "tuple[int, ...]", Sequence[str]], _From]


def _snntorch(w: _Writer, path: str, m: Any, frame: tuple[int, ...], sources: Sequence[str]) -> _From:
    """Leaky and Synaptic."""
    _plain(path, m)
    alpha = m.alpha.clamp(0, 1) if "syn" in m.state_names else None
    reset = {"reset_mechanism": m.reset_mechanism, "reset_delay": m.reset_delay}
    return w.neuron(path, m, frame, sources, beta=m.beta.clamp(0, 1), alpha=alpha, **reset)


def _lapicque(w: _Writer, path: str, m: Any, frame: tuple[int, ...], sources: Sequence[str]) -> _From:
    _plain(path, m)
    beta, gain = 1 - m.time_step / (m.R * m.C), m.time_step / m.C
    if bool((beta < 0).any()):
        raise UnsupportedError(
            f"export_to_nir: {path!r} has a time constant R * C below its time_step, so that its membrane changes sign "
            "at every step, which NIR cannot express. Use a beta above 1 / e, or a larger C."
        )
    reset = {"reset_mechanism": m.reset_mechanism, "reset_delay": True}
    return w.neuron(path, m, frame, sources, beta=beta, gain=gain, **reset)


def _feedback(w: _Writer, path: str, m: Any, frame: tuple[int, ...], sources: Sequence[str]) -> _From:
    """RLeaky and RSynaptic: the neuron, and weights that lead back to it."""
    _plain(path, m)
    alpha = m.alpha.clamp(0, 1) if "syn" in m.state_names else None
    reset = {"reset_mechanism": m.reset_mechanism, "reset_delay": m.reset_delay, "feedback": True}
    out = w.neuron(path, m, frame, sources, beta=m.beta.clamp(0, 1), alpha=alpha, **reset)
    if m.all_to_all:
        weights = w.layer(f"{path}.recurrent", m.recurrent, frame)
    elif len(frame) == 1:
        weights = w.nir.Linear(weight=np.diag(w.spread(m.V, frame)))
    else:
        weights = w.nir.Scale(scale=w.spread(m.V, frame))
    back = w.add(f"{path}.w_rec", weights, *out.names)
    w.edges += [(back.names[0], out.names[0])]
    return out


def _integrate_and_fire(w: _Writer, path: str, m: Any, frame: tuple[int, ...], sources: Sequence[str]) -> _From:
    beta = torch.ones_like(m.threshold)
    return w.neuron(path, m, frame, sources, beta=beta, reset_mechanism="subtract", reset_delay=True)


def _parametric(w: _Writer, path: str, m: Any, frame: tuple[int, ...], sources: Sequence[str]) -> _From:
    leak = torch.sigmoid(m.w)
    return w.neuron(path, m, frame, sources, beta=1 - leak, gain=leak, v_leak=m.v_reset, v_reset=m.v_reset)


def _own(w: _Writer, path: str, m: Any, frame: tuple[int, ...], sources: Sequence[str]) -> _From:
    """The neurons that import_from_nir makes."""
    names = ("alpha", "beta", "gain", "syn_gain", "v_leak", "v_reset")
    values = {name: value for name, value in m.params().items() if name in names}
    return w.neuron(path, m, frame, sources, spikes="threshold" in m.params(), **values)


_NEURONS: dict[type, Builder] = {
    Leaky: _snntorch,
    Synaptic: _snntorch,
    Lapicque: _lapicque,
    RLeaky: _feedback,
    RSynaptic: _feedback,
    IF: _integrate_and_fire,
    ParametricLeaky: _parametric,
    NIRLIF: _own,
    NIRLI: _own,
    NIRCubaLIF: _own,
    NIRCubaLI: _own,
}

__all__ = ["export_to_nir"]
