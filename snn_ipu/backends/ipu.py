"""The IPU: fused scans and spikes as PopART custom ops, inside models that PopTorch traces. The one file that names it.

A Poplar SDK brings PopTorch and Poplar's headers; the ops are compiled against them once and cached. Outside a trace
an IPU runs nothing, so every other call stays on the backend of its tensors.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import importlib
import importlib.util
import math
import os
import shutil
import tempfile
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Callable, Iterator, Sequence

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from ..compiler import print_poplar
from ..compiler.adjoint import differentiate
from ..compiler.plan import plan
from ..compiler.print_poplar import Codelet
from ..compiler.printing import Layout
from ..compiler.trace import trace
from ..errors import BackendMissingError, BuildError, FallbackWarning, TraceError, UnsupportedError
from ..surrogate import SpikeGrad, Surrogate, on_device
from . import cache, reference
from .call import Call, Result, Runner
from .tile_memory import CUSTOM_OPS, ROOM, TILES, ScanBytes, ScanSizes, scan_bytes

NAME = "ipu"
DOMAIN = "snn.ipu"
SOURCES = ("mapping", "codelets", "scan_program", "spike_program", "heaviside_op", "scan_op")
FLAGS = (
    "-std=c++17",
    "-O2",
    "-fPIC",
    "-shared",
    "-Wall",
    "-Wextra",
    "-Werror",
    "-DONNX_NAMESPACE=onnx",
    "-Doptional_CONFIG_SELECT_OPTIONAL=optional_OPTIONAL_NONSTD",
    "-Dany_CONFIG_SELECT_ANY=any_ANY_NONSTD",
)
LIBRARIES = ("-Wl,--no-undefined", "-lpopart", "-lpopops", "-lpoputil", "-lpoplar")


@functools.lru_cache(maxsize=1)
def _imported() -> Any:
    """The module, or the exception that importing it ended with."""
    if importlib.util.find_spec("poptorch") is None:
        return BackendMissingError("poptorch is not installed; install the wheel of the Poplar SDK")
    try:
        return importlib.import_module("poptorch")
    except (ImportError, AssertionError, OSError, RuntimeError) as error:
        # PopTorch asserts that torch has its own version, and misses shared libraries without an enabled SDK.
        return BackendMissingError(f"poptorch cannot be imported: {type(error).__name__}: {error}")


def poptorch() -> Any:
    """The poptorch module.

    Raises: BackendMissingError with the reason why it cannot be had.
    """
    module = _imported()
    if isinstance(module, BackendMissingError):
        raise module
    return module


def _sdk() -> str | None:
    return os.environ.get("POPLAR_SDK_ENABLED")


@functools.lru_cache(maxsize=4)
def _sdk_version(sdk: str, path: str | None) -> str:
    popc = shutil.which("popc", path=path)
    return cache.compiler_version(popc) if popc else sdk


def _libpopart() -> str:
    folders = os.environ.get("LIBRARY_PATH", "").split(os.pathsep)
    found = [Path(f) / "libpopart.so" for f in folders if f and (Path(f) / "libpopart.so").exists()]
    return str(found[0].resolve()) if found else "libpopart.so"


def build(forced: bool = False) -> Path:
    """The op library, built against the enabled SDK where the cache does not have it.

    Args:
        forced: build in spite of SNN_IPU_BUILD=0.

    Raises: BackendMissingError without an SDK; BuildError with the compiler's output.
    """
    sdk = _sdk()
    if sdk is None:
        raise BackendMissingError("no Poplar SDK is enabled in this shell; source its enable script")
    compiler = cache.find_compiler()
    if compiler is None:
        raise BuildError("no C++ compiler was found. Install g++ or set CXX to one.")
    files = sorted(CUSTOM_OPS.glob("*.[ch]pp"))
    source = "".join(f"// {f.name}\n{f.read_text()}" for f in files)
    units = [str(CUSTOM_OPS / f"{name}.cpp") for name in SOURCES]
    command = [compiler, *FLAGS, *units, "-o", "{output}", *LIBRARIES]
    versions = (cache.compiler_version(compiler), _sdk_version(sdk, os.environ.get("PATH")), _libpopart())
    key = cache.content_key(source, " ".join((*FLAGS, *LIBRARIES)), *versions)
    forbidden = os.environ.get("SNN_IPU_BUILD") == "0" and not forced
    if forbidden and not (cache.cache_dir() / f"{key}.so").exists():
        raise BuildError("the IPU ops are not built and SNN_IPU_BUILD=0 forbids it. Run `snn-ipu build`, or unset it.")
    return cache.build_library(key, source, command)


def build_at_import() -> None:
    """Build the op library where an SDK is enabled; without one, or with SNN_IPU_BUILD=0, do nothing."""
    wanted = os.environ.get("SNN_IPU_BUILD") != "0" and _sdk() is not None
    if not wanted or importlib.util.find_spec("poptorch") is None:
        return
    try:
        build()
    except BuildError as error:
        warnings.warn(
            f"the IPU ops could not be built, IPU models will not run: {error}", FallbackWarning, stacklevel=3
        )


@functools.lru_cache(maxsize=1)
def library() -> ctypes.CDLL:
    """The op library, loaded into the process: its ops are known to PopART from then on.

    Raises: BackendMissingError; BuildError.
    """
    # Its libpopart is PopTorch's, which must be there first.
    poptorch()
    loaded = cache.load_library(build())
    loaded.snn_ipu_codelet_folders.argtypes = [ctypes.c_char_p]
    loaded.snn_ipu_codelet_folders.restype = None
    return loaded


def status() -> str | None:
    """Why this backend does not work here, or None."""
    try:
        library()
    except (BackendMissingError, BuildError) as error:
        return str(error)
    return None


def details() -> str:
    """What a working backend works with."""
    version = _sdk_version(_sdk() or "", os.environ.get("PATH")).strip().splitlines()
    found = "an IPU" if hardware() else "no IPU found"
    return f"works; {found}; SDK {version[0] if version else '?'}; ops in {build()}"


def hardware() -> bool:
    """Whether this process can run a model on an IPU."""
    module = _imported()
    found = not isinstance(module, BackendMissingError) and bool(module.ipuHardwareIsAvailable())
    return found and status() is None


# Codelets


@functools.lru_cache(maxsize=None)
def _spare_folder() -> Path:
    return Path(tempfile.mkdtemp(prefix="snn_ipu-codelets-"))


def _publish(codelet: Codelet) -> None:
    """Put the codelet where the op library finds it: in the cache, or beside one that cannot be written."""
    name = f"{codelet.key}.cpp"
    folder = cache.cache_dir()
    if not (folder / name).exists():
        try:
            _write(folder / name, codelet.source)
        except OSError:
            _write(_spare_folder() / name, codelet.source)
    folders = [str(folder), *([str(_spare_folder())] if _spare_folder.cache_info().currsize else [])]
    library().snn_ipu_codelet_folders(os.pathsep.join(folders).encode())


def _write(path: Path, text: str) -> None:
    handle, name = tempfile.mkstemp(prefix=f"{path.stem}-", dir=path.parent)
    with os.fdopen(handle, "w") as file:
        file.write(text)
    os.chmod(name, 0o644)
    os.replace(name, path)


@functools.lru_cache(maxsize=1)
def _prelude() -> str:
    return print_poplar.math_text(CUSTOM_OPS)


@functools.lru_cache(maxsize=1024)
def _scan_codelet(
    fn: Callable[..., Any],
    states: tuple[str, ...],
    params: tuple[str, ...],
    flags: tuple[tuple[str, Any], ...],
    surrogate: Surrogate,
    layout: Layout,
    learn: tuple[str, ...],
    checkpoint: int,
) -> Codelet:
    program = trace(fn, states, params, dict(flags), surrogate)
    if not layout.training:
        return print_poplar.print_scan(program, layout, _prelude())
    adjoint = differentiate(program, learn)
    kept = plan(program, adjoint, layout.traced, layout.narrow)
    return print_poplar.print_scan(program, layout, _prelude(), adjoint, kept, checkpoint)


@functools.lru_cache(maxsize=256)
def _spike_codelet(surrogate: Surrogate, dtype: str) -> Codelet:
    return print_poplar.print_spike(surrogate, dtype, _prelude())


def _shape_of(surrogate: Surrogate) -> Surrogate:
    """The surrogate without its parameter values, which are attributes of the ops."""
    return Surrogate(surrogate.factory, tuple((n, 0.0) for n, _ in surrogate.params), surrogate.smooth)


def _spike_params(surrogate: Surrogate) -> list[float]:
    """Values behind their number: PopTorch cannot pass an empty list."""
    return [float(len(surrogate.params)), *(float(v) for _, v in surrogate.params)]


@dataclass(frozen=True)
class Options:
    """Settings of an IPU model; made by `snn_ipu.ipu.options`, which describes them."""

    device_iterations: int = 1
    gradient_accumulation: int = 1
    replication: int = 1
    available_memory: float | None = None
    partials: str = "float32"
    stochastic_rounding: bool = False
    loss_scaling: float = 1.0
    accum_type: str = "float32"
    executable_cache: str | None = None
    cycle_count: bool = False
    ipu_model: bool = False
    synthetic_data: bool = False
    io_tiles: int = 0
    seed: int | None = None
    checkpoint: int = 0


def poptorch_options(options: Options, training: bool) -> Any:
    """The same as a `poptorch.Options`."""
    opts = poptorch().Options()
    opts.deviceIterations(options.device_iterations)
    opts.replicationFactor(options.replication)
    if training:
        opts.Training.gradientAccumulation(options.gradient_accumulation)
    if options.available_memory is not None:
        opts.setAvailableMemoryProportion({"IPU0": options.available_memory})
    opts.Precision.setPartialsType(getattr(torch, options.partials))
    opts.Precision.enableStochasticRounding(options.stochastic_rounding)
    if options.executable_cache is not None:
        opts.enableExecutableCaching(options.executable_cache)
    if options.cycle_count:
        opts.logCycleCount(True)
    if options.ipu_model:
        opts.useIpuModel(True)
    if options.synthetic_data:
        opts.enableSyntheticData(True)
    if options.io_tiles:
        opts.TensorLocations.numIOTiles(options.io_tiles)
    if options.seed is not None:
        opts.randomSeed(options.seed)
    return opts


def data_loader(dataset: Any, batch_size: int, options: Options, training: bool = True, **keywords: Any) -> Any:
    """A `poptorch.DataLoader` in asynchronous mode, with batches for one call of a model with these options.

    Args:
        dataset: as for torch's loader. batch_size: samples of one step on one IPU.
        keywords: for poptorch.DataLoader, such as shuffle, num_workers and drop_last.
    """
    module = poptorch()
    opts = poptorch_options(options, training)
    return module.DataLoader(opts, dataset, batch_size=batch_size, mode=module.DataLoaderMode.Async, **keywords)


_OPTIMIZERS: dict[type[Optimizer], tuple[str, tuple[str, ...]]] = {
    torch.optim.SGD: ("SGD", ("lr", "momentum", "dampening", "weight_decay", "nesterov")),
    torch.optim.Adam: ("Adam", ("lr", "betas", "eps", "weight_decay")),
    torch.optim.AdamW: ("AdamW", ("lr", "betas", "eps", "weight_decay")),
    torch.optim.RMSprop: ("RMSprop", ("lr", "alpha", "eps", "weight_decay", "momentum", "centered")),
}


_MOMENTS = "snn_ipu"


def poptorch_optimizer(optimizer: Optimizer, options: Options) -> Any:
    """PopTorch's counterpart of a torch optimizer, for the same parameters; one of PopTorch's own is returned as it is.

    Raises: UnsupportedError for an optimizer, or a setting of it, that PopART does not have.
    """
    if isinstance(optimizer, poptorch().optim.Optimizer):
        return optimizer
    known = _OPTIMIZERS.get(type(optimizer))
    if known is None:
        raise UnsupportedError(
            f"optimizer {type(optimizer).__name__} on an IPU: expected one of torch.optim's "
            f"{', '.join(name for name, _ in _OPTIMIZERS.values())}, or one of poptorch.optim."
        )
    name, settings = known
    for group in optimizer.param_groups:
        refused = [k for k in ("amsgrad", "maximize", "differentiable") if group.get(k)]
        if refused:
            raise UnsupportedError(f"{name}({refused[0]}=True) on an IPU: PopART has no such update. Leave it out.")
    groups = [{"params": g["params"], **{k: g[k] for k in settings}} for g in optimizer.param_groups]
    accum = getattr(torch, options.accum_type)
    types: dict[str, Any] = {"loss_scaling": float(options.loss_scaling), "accum_type": accum}
    if name == "SGD":
        # Separate accumulators; the combined one cannot be of another type than the weights.
        types.update(use_combined_accum=False, velocity_accum_type=torch.float32)
    else:
        types.update(first_order_momentum_accum_type=accum, second_order_momentum_accum_type=torch.float32)
    defaults = {k: groups[0][k] for k in settings}
    made = getattr(poptorch().optim, name)(groups, **defaults, **types)
    moments = optimizer.state.get(_MOMENTS)  # type: ignore[call-overload]
    if moments is not None:
        made.set_state_dict({**made.state_dict(), **{k: v for k, v in moments.items() if k != "step"}})
    return made


def keep_moments(source: Any, optimizer: Optimizer) -> None:
    """Put PopART's state of an optimizer into torch's, whose `state_dict` carries it to `poptorch_optimizer`."""
    state = {key: value for key, value in source.state_dict().items() if key in ("ipu_state", "ipu_param")}
    if state.get("ipu_state") is not None:
        # Optimizers of torch 2.0 read the step of every state that they load.
        optimizer.state[_MOMENTS] = {"step": torch.zeros(()), **state}  # type: ignore[index]


def copy_settings(source: Optimizer, target: Any) -> bool:
    """Take over settings that a scheduler has changed; whether there were any."""
    _, settings = _OPTIMIZERS[type(source)]
    changed = False
    for mine, theirs in zip(source.param_groups, target.param_groups):
        for key in settings:
            if theirs[key] != mine[key]:
                theirs[key], changed = mine[key], True
    return changed


def training_executor(model: nn.Module, options: Options, optimizer: Any) -> Any:
    """The model as PopTorch trains it."""
    return poptorch().trainingModel(model, options=poptorch_options(options, True), optimizer=optimizer)


def inference_executor(model: nn.Module, options: Options) -> Any:
    """The model as PopTorch runs it."""
    return poptorch().inferenceModel(model, options=poptorch_options(options, False))


def mark_loss(loss: Tensor) -> Tensor:
    """The loss as PopART wants it: marked, whatever it was computed from."""
    marked: Tensor = poptorch().identity_loss(loss, reduction="none")
    return marked


# Ops


def heaviside(u: Tensor, spike_grad: SpikeGrad, threshold: float = 0.0) -> Tensor:
    """spk = u > threshold inside a trace, with the surrogate as its gradient.

    Raises: UnsupportedError for a plain callable, whose backward PopTorch would never call, and for other dtypes.
    """
    if not isinstance(spike_grad, Surrogate):
        name = getattr(spike_grad, "__name__", type(spike_grad).__name__)
        raise UnsupportedError(
            f"spike_grad {name} is a plain callable; PopTorch never calls the backward of an autograd function, so its "
            "gradient would be silently zero. Write it with snn_ipu.surrogate.define."
        )
    if str(u.dtype)[6:] not in print_poplar.TYPES:
        raise UnsupportedError(f"spike(u of {u.dtype}) on an IPU: expected float32 or float16. Cast u.")
    codelet = _spike_codelet(_shape_of(spike_grad), str(u.dtype)[6:])
    _publish(codelet)
    attributes = {
        "codelet": codelet.key,
        "threshold": float(threshold),
        "spike_params": _spike_params(spike_grad),
    }
    example = torch.empty(u.shape, dtype=u.dtype, device=u.device)
    spk: Tensor = poptorch().custom_op((u,), "Heaviside", DOMAIN, 1, [example], attributes)[0]
    return spk


on_device[NAME] = heaviside


def _tiles() -> int:
    # PopTorch's small model has four tiles.
    return 4 if os.environ.get("POPTORCH_SMALL_IPU_MODEL", "0") not in ("", "0") else TILES


@dataclass
class Trace:
    """What the model that is being traced was made with.

    Attributes:
        training: whether values are kept for a backward pass.
        checkpoint: keep the states of every so many steps; 0 lets memory decide.
        tiles: of the IPU that compute.
        held: bytes on the fullest tile that earlier layers of this trace keep until the backward pass.
    """

    training: bool = True
    checkpoint: int = 0
    tiles: int = 0
    held: int = 0


_default = Trace()
_current: list[Trace] = []


@contextlib.contextmanager
def recording(training: bool, options: Options) -> Iterator[None]:
    """What calls inside the block, which is the forward of a model being traced, are compiled for."""
    _current.append(Trace(training, options.checkpoint, _tiles() - options.io_tiles))
    try:
        yield
    finally:
        _current.pop()


class _Frames:
    """How the frames of a call are seen by the op: [B, N], with N the values that parameters vary over."""

    def __init__(self, call: Call):
        self.shape = tuple(call.frame)
        spans = [p.dim() for p in call.params.values() if p.numel() != 1]
        inner = max(spans, default=min(1, len(self.shape)))
        self.inner = self.shape[len(self.shape) - inner :]
        self.features = math.prod(self.inner)
        self.batch = math.prod(self.shape) // max(self.features, 1)

    def flat(self, frame: Tensor) -> Tensor:
        return frame.reshape(self.batch, self.features)

    def over_time(self, sequence: Tensor) -> Tensor:
        return sequence.reshape(sequence.shape[0], self.batch, self.features)

    def param(self, p: Tensor) -> Tensor:
        if p.numel() == 1:
            return p.reshape(1)
        return p.expand(self.inner).reshape(self.features)


def obstacle(call: Call) -> str | None:
    """Why this backend cannot run the call, or None."""
    if call.x.device.type != "ipu":
        return (
            f"x is on {call.x.device}, and an IPU runs only inside a model that PopTorch traces; "
            "use training_model(net, ..., device='ipu') or inference_model(net, device='ipu')"
        )
    if str(call.x.dtype)[6:] not in print_poplar.TYPES:
        return f"x is {call.x.dtype}; the IPU takes {', '.join(print_poplar.TYPES)}"
    if call.x.numel() == 0:
        return "x has no elements, which PopTorch does not support"
    if not isinstance(call.spike_grad, Surrogate):
        name = getattr(call.spike_grad, "__name__", type(call.spike_grad).__name__)
        return f"spike_grad {name} is a plain callable; write it with snn_ipu.surrogate.define to have it compiled"
    reason = status()
    if reason is not None or call.single:
        return reason
    try:
        flags = tuple(sorted(call.flags.items()))
        layout = Layout(str(call.x.dtype)[6:])
        names = tuple(call.params)
        _scan_codelet(call.fn, call.state_names, names, flags, _shape_of(call.spike_grad), layout, (), 0)
    except TraceError as error:
        return str(error)
    return None


def _mask(positions: Sequence[int]) -> int:
    return sum(1 << p for p in positions)


def _sizes(call: Call, frames: _Frames, layout: Layout, codelet: Codelet) -> ScanSizes:
    item = 2 if layout.narrow else 4
    return ScanSizes(
        steps=call.steps,
        batch=frames.batch,
        features=frames.features,
        item_bytes=item,
        static=call.static,
        states=len(call.state_names),
        traces=len(call.traced),
        saves=codelet.saves,
        save_bytes=item if codelet.narrow else 4,
        checkpoint=codelet.checkpoint,
        params=len(layout.features),
        learned=len(codelet.learned),
        needs_x=codelet.needs_x,
        kept_traces=len(codelet.kept_traces),
        training=layout.training,
    )


def _checkpoints(asked: int, training: bool, steps: int) -> Iterator[int]:
    """Checkpoints to try: the one asked for, else none and then every sqrt(T) steps."""
    if asked or not training:
        yield min(asked, steps) if training else 0
        return
    yield 0
    if steps > 3:
        yield math.isqrt(steps - 1) + 1


def _refusal(label: str, need: ScanBytes, held: int, checkpoint: int) -> UnsupportedError:
    kept = f", next to {held:,} bytes that earlier layers keep" if held else ""
    tried = f" with the states of every {checkpoint} steps kept" if checkpoint else ""
    return UnsupportedError(
        f"{label} needs {max(need.forward, need.backward):,} bytes on a tile{tried}{kept}; {ROOM:,} of 624 KiB are "
        "free. Use fewer steps, a smaller batch with gradient_accumulation, float16, or another "
        "snn_ipu.ipu.options(checkpoint=...); replication splits the batch over more IPUs."
    )


def settle(call: Call) -> Runner:
    """What runs calls like this one."""
    return run


def run(call: Call) -> Result:
    """Run all steps as one op inside a trace; a single step runs as plain torch around the Heaviside op.

    Raises: UnsupportedError where the layer does not fit on the tiles, with bytes, layer and remedy; TraceError.
    """
    if call.single:
        return reference.run(call)
    assert isinstance(call.spike_grad, Surrogate)
    current = _current[-1] if _current else _default
    frames = _Frames(call)
    names = tuple(call.params)
    training = current.training and torch.is_grad_enabled()
    layout = Layout(
        dtype=str(call.x.dtype)[6:],
        features=frozenset(n for n, p in call.params.items() if p.numel() != 1),
        traced=call.traced,
        static=call.static,
        training=training,
    )
    learn = call.learned if training else ()
    flags = tuple(sorted(call.flags.items()))
    surrogate = _shape_of(call.spike_grad)
    label = f"{call.fn.__name__} over T={call.steps}, {frames.batch} x {frames.features} neurons"
    tiles = current.tiles or _tiles()
    for checkpoint in _checkpoints(current.checkpoint, training, call.steps):
        codelet = _scan_codelet(call.fn, call.state_names, names, flags, surrogate, layout, learn, checkpoint)
        need = scan_bytes(_sizes(call, frames, layout, codelet), tiles)
        if max(need.forward, need.backward) + current.held <= ROOM:
            break
    else:
        raise _refusal(label, need, current.held, checkpoint)
    current.held += need.held if _current else 0
    _publish(codelet)
    return _call_op(call, frames, layout, codelet, label)


def _call_op(call: Call, frames: _Frames, layout: Layout, codelet: Codelet, label: str) -> Result:
    assert isinstance(call.spike_grad, Surrogate)
    x, dtype = call.x, torch.float32
    count, steps, rows = len(call.state_names), call.steps, call.steps
    if codelet.checkpoint:
        rows = -(-steps // codelet.checkpoint)

    def example(kind: torch.dtype, *leading: int) -> Tensor:
        return torch.empty((*leading, frames.batch, frames.features), dtype=kind, device=x.device)

    given = [s for s in call.initial if s is not None]
    inputs = [
        frames.flat(x) if call.static else frames.over_time(x),
        *(frames.flat(s) for s in given),
        *(frames.param(p) for p in call.params.values()),
    ]
    examples = [
        example(x.dtype, steps),
        *(example(dtype) for _ in range(count)),
        *(example(dtype, steps) for _ in call.traced),
        *(example(x.dtype if codelet.narrow else dtype, rows) for _ in range(codelet.saves)),
    ]
    names = tuple(call.params)
    attributes: dict[str, Any] = {
        "codelet": codelet.key,
        # PopTorch passes ASCII alone; Python's names may have other letters.
        "layer": label.encode("ascii", "replace").decode(),
        "spike_params": _spike_params(call.spike_grad),
        "steps": int(steps),
        "static": int(call.static),
        "states": int(count),
        "traces": len(call.traced),
        "saves": int(codelet.saves),
        "narrow": int(codelet.narrow),
        "checkpoint": int(codelet.checkpoint),
        "params": len(names),
        "training": int(layout.training),
        "needs_x": int(codelet.needs_x),
        "given_states": _mask([i for i, s in enumerate(call.initial) if s is not None]),
        "needs_states": _mask(codelet.needs_states),
        "kept_traces": _mask(codelet.kept_traces),
        "per_feature": _mask([i for i, n in enumerate(names) if n in layout.features]),
        "learned": _mask(codelet.learned),
        "forward_cycles": int(codelet.forward_cycles),
        "backward_cycles": int(codelet.backward_cycles),
    }
    out = poptorch().custom_op(inputs, "Scan", DOMAIN, 1, examples, attributes)
    return Result(
        out[0].reshape(steps, *frames.shape),
        tuple(o.reshape(frames.shape) for o in out[1 : 1 + count]),
        {n: o.reshape(steps, *frames.shape) for n, o in zip(call.traced, out[1 + count :])},
    )
