"""`PoplarExecutor`: a model traced once and run on the host model."""

from __future__ import annotations

import copy
import hashlib
import inspect
import logging
from datetime import timedelta
from pathlib import Path
from typing import Any, Iterator, NamedTuple

import torch

from . import _impl, enums
from ._native import Error, Session, notice
from ._trace import CustomOp, IpuTensor, Tape, strict
from ._update import Updater
from .optim import SGD
from .options import Options

logger = logging.getLogger("poptorch::python")
NO_EXECUTABLE = "Model has not been compiled or has been destroyed."
RECOMPILE = (
    "\nThis error occurred because the inputs passed at runtime don't match the inputs used to compile the model.\n"
    "To recompile the model for the new inputs create a new inferenceModel / trainingModel wrapper or call destroy() "
    "on the curent one and try again."
)


def flatten(structure: Any) -> list[torch.Tensor]:
    if isinstance(structure, torch.Tensor):
        return [structure]
    if isinstance(structure, dict):
        structure = list(structure.values())
    if isinstance(structure, (list, tuple)):
        return [t for part in structure for t in flatten(part)]
    return []


def rebuild(structure: Any, tensors: Iterator[torch.Tensor]) -> Any:
    if isinstance(structure, torch.Tensor):
        return next(tensors)
    if isinstance(structure, dict):
        return type(structure)({k: rebuild(v, tensors) for k, v in structure.items()})
    if isinstance(structure, (list, tuple)):
        parts = [rebuild(v, tensors) for v in structure]
        return type(structure)(*parts) if hasattr(structure, "_fields") else type(structure)(parts)
    return structure


def on_device(tensor: torch.Tensor) -> torch.Tensor:
    """The value an IPU gets: it has no 64-bit integers, doubles or bfloat16."""
    if tensor.dtype == torch.int64:
        return tensor.to(torch.int32).to(torch.int64)
    if tensor.dtype in (torch.float64, torch.bfloat16):
        return tensor.to(torch.float32)
    return tensor


def from_device(tensor: torch.Tensor) -> torch.Tensor:
    if tensor.dtype == torch.int64:
        return tensor.to(torch.int32)
    if tensor.dtype == torch.float64:
        return tensor.to(torch.float32)
    return tensor


class Slot(NamedTuple):
    """Where a parameter or buffer lives in the model."""

    module: torch.nn.Module
    kind: str
    name: str
    full_name: str
    tensor: torch.Tensor


def slots_of(model: torch.nn.Module) -> list[Slot]:
    found = []
    for prefix, module in model.named_modules():
        for kind in ("_parameters", "_buffers"):
            for name, tensor in getattr(module, kind).items():
                if tensor is not None:
                    found.append(Slot(module, kind, name, f"{prefix}.{name}" if prefix else name, tensor))
    return found


class PoplarExecutor:
    """Runs a model as `poptorch.trainingModel` and `poptorch.inferenceModel` do; made by these."""

    def __init__(
        self,
        model: torch.nn.Module,
        options: Options | None,
        training: bool,
        poptorch_version: str,
        optimizer: torch.optim.Optimizer | None = None,
        user_model: torch.nn.Module | None = None,
    ) -> None:
        if options is not None:
            if not isinstance(options, Options):
                raise _impl.createPoptorchError(
                    f"Invalid type: 'options' is of type {type(options)} (Expected poptorch.Options)"
                )
            options._freeze()
            options = options.clone()
        else:
            options = Options()
        self._user_model = user_model if user_model is not None else model
        self._model = model
        self._training = training
        self._compiled = False
        self._attached = False
        self._host_weights_version = 0
        self._tape: Tape | None = None
        self._session: Session | None = None
        self._device: dict[str, torch.Tensor] = {}
        if training:
            if options.defaultOutputMode():
                options.outputMode(enums.OutputMode.Final)
            if optimizer is None:
                optimizer = SGD(self._user_model.parameters(), lr=0.01)
        else:
            if options.defaultOutputMode():
                options.outputMode(enums.OutputMode.All)
            if options.Training.gradient_accumulation != 1:
                raise _impl.createPoptorchError(
                    "You must set poptorch.Options().Training.gradientAccumulation to 1 or leave it as its default "
                    "value (1) when running a poptorch.inferenceModel()."
                )
            assert not optimizer, "Optimizer should be None for inference"
        self._options = options
        self._optimizer = optimizer
        self._updater: Updater | None = None
        if training:
            self._wrap_model()
            self.setOptimizer(optimizer)
        options._freeze()

    def _wrap_model(self) -> None:
        parent = self
        original = type(self._user_model)

        class PoptorchModel(original):  # type: ignore[valid-type, misc]
            _host_wrapped_class = original

            def copyWeightsToHostIfNeeded(self) -> bool:
                return False

            def destroy(self) -> None:
                parent.destroy()

            @property
            def _host_weights_version(self) -> int:
                return parent._host_weights_version

        PoptorchModel.__name__ = f"Poptorch{original.__name__}"
        self._user_model.__class__ = PoptorchModel

    def __getattr__(self, attr: str) -> Any:
        if attr.startswith("__") or "_user_model" not in self.__dict__:
            raise AttributeError(attr)
        return getattr(self._user_model, attr)

    def __repr__(self) -> str:
        return f"PoplarExecutor(host model, NOT AN IPU, {self._user_model!r})"

    @property
    def model(self) -> torch.nn.Module:
        return self._user_model

    @property
    def options(self) -> Options:
        return self._options

    def isCompiled(self) -> bool:
        return self._compiled

    def isAttachedToDevice(self) -> bool:
        return self._compiled and self._attached

    def attachToDevice(self) -> None:
        """Weights go to the device again."""
        self._require_compiled()
        if self._attached:
            raise _impl.createPoptorchError("Device is already attached")
        self._attached = True
        self._load_weights()

    def detachFromDevice(self) -> None:
        self._require_compiled()
        if not self._attached:
            raise _impl.createPoptorchError("Device is not attached")
        self._attached = False

    def _require_compiled(self) -> None:
        if not self._compiled:
            raise _impl.createPoptorchError(NO_EXECUTABLE)

    def setOptimizer(self, optimizer: torch.optim.Optimizer) -> None:
        """Hyperparameters that change afterwards have no effect until this is called again."""
        names = {id(p): n for n, p in self._model.named_parameters()}
        if self._updater is not None and optimizer is self._optimizer:
            self._updater.read(optimizer, names)
        else:
            updater = Updater(optimizer, names)
            running = enums.MeanReductionStrategy.Running
            training = self._options.Training
            if updater.accum_type == torch.float16 and not getattr(optimizer, "use_combined_accum", False):
                if self._compiled and training.meanAccumulationAndReplicationReductionStrategy != running:
                    raise ValueError(
                        "Invalid optimizer: the new optimizer would require changing options.Training."
                        "meanAccumulationAndReplicationReductionStrategy to poptorch.MeanReductionStrategy.Running "
                        "but the executable is already compiled."
                    )
                frozen = self._options._is_frozen
                self._options._unfreeze()
                training.setMeanAccumulationAndReplicationReductionStrategy(running)
                if frozen:
                    self._options._freeze()
            self._updater = updater
        self._optimizer = optimizer

    def copyWeightsToHostIfNeeded(self) -> bool:
        return False

    def copyWeightsToHost(self) -> None:
        self._require_compiled()
        with torch.no_grad():
            for slot in slots_of(self._model):
                if slot.full_name in self._device:
                    slot.tensor.data.copy_(self._device[slot.full_name])
        self._host_weights_version += 1

    def copyWeightsToDevice(self) -> None:
        self._require_compiled()
        self._load_weights()

    def load_state_dict(self, state_dict: dict[str, torch.Tensor], strict: bool = True) -> Any:
        out = self._user_model.load_state_dict(state_dict, strict)
        if self.isAttachedToDevice():
            self.copyWeightsToDevice()
        return out

    def _load_weights(self) -> None:
        self._device = {}
        by_identity: dict[int, torch.Tensor] = {}
        for slot in slots_of(self._model):
            copied = by_identity.get(id(slot.tensor))
            if copied is None:
                copied = on_device(slot.tensor.detach().clone())
                copied.requires_grad_(slot.kind == "_parameters" and slot.tensor.requires_grad)
                by_identity[id(slot.tensor)] = copied
            self._device[slot.full_name] = copied

    def destroy(self) -> None:
        """Release the executable and give the model its own class back."""
        self._compiled = False
        self._attached = False
        self._tape = None
        self._session = None
        if self._training:
            _impl.unwrap(self._user_model)

    def cycleCount(self) -> int:
        if not self._options._Popart.options["instrumentWithHardwareCycleCounter"]:
            raise _impl.createPoptorchError(
                "Cycle count logging is disabled. Please set option logCycleCount to True to enable."
            )
        if not self._compiled:
            raise _impl.createPoptorchError("Please run the model at least once before obtaining cycle count.")
        raise Error("cycles are counted by IPU hardware; this is a host model")

    def compilationTime(self) -> timedelta:
        if not self._compiled:
            raise _impl.createPoptorchError("Please compile the model before obtaining compilation time.")
        return timedelta(0)

    def hostReport(self) -> dict[str, Any]:
        """Of the host model only: vertices, tiles, bytes and exchange of the custom ops."""
        self._require_compiled()
        assert self._session is not None
        return self._session.report()

    def compile(self, *args: Any, **kwargs: Any) -> None:
        if self._compiled:
            logger.warning("Call to compile() ignored: the executable is already compiled")
            return
        self._compile(self._bind(args, kwargs))

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        assert self._options.connection_type != enums.ConnectionType.Never, (
            "Trying to run a model on an offline device (ConnectionType.Never): use model.compile(inputs) instead of "
            "model(inputs)"
        )
        call = self._bind(args, kwargs)
        if not self._compiled:
            self._compile(call)
        else:
            self._validate(call)
        if not self._attached:
            self.attachToDevice()
        if not self._training:
            version = getattr(self._user_model, "_host_weights_version", self._host_weights_version)
            if version != self._host_weights_version:
                self._load_weights()
                self._host_weights_version = version
        return self._execute(flatten(call))

    def _bind(self, args: Any, kwargs: dict[str, Any]) -> dict[str, Any]:
        def tuples(value: Any) -> Any:
            if isinstance(value, (list, tuple)) and not hasattr(value, "_fields"):
                return tuple(tuples(v) for v in value)
            return value

        bound = inspect.signature(self._model.forward).bind(*args, **kwargs)
        return {name: tuples(value) for name, value in bound.arguments.items()}

    def _validate(self, call: dict[str, Any]) -> None:
        def check(name: str, compiled: Any, given: Any) -> None:
            if isinstance(compiled, torch.Tensor) and isinstance(given, torch.Tensor):
                if compiled.dtype != given.dtype:
                    raise _impl.createPoptorchError(
                        f"Data type mismatch for {name}: expected {compiled.dtype} but got {given.dtype}.{RECOMPILE}"
                    )
                if compiled.shape != given.shape:
                    raise _impl.createPoptorchError(
                        f"Shape mismatch for {name}: expected {compiled.shape} but got {given.shape}.{RECOMPILE}"
                    )
            elif type(compiled) is not type(given):
                raise _impl.createPoptorchError(
                    f"Type mismatch for {name}: expected {type(compiled)} but got {type(given)}.{RECOMPILE}"
                )
            elif isinstance(compiled, tuple):
                if len(compiled) != len(given):
                    raise _impl.createPoptorchError(
                        f"Length mismatch for {name}: expected {len(compiled)} elements but got "
                        f"{len(given)}.{RECOMPILE}"
                    )
                for i, (c, g) in enumerate(zip(compiled, given)):
                    check(f"{name}[{i}]", c, g)
            elif isinstance(compiled, dict):
                if compiled.keys() != given.keys():
                    raise _impl.createPoptorchError(f"Keys mismatch for {name}.{RECOMPILE}")
                for key in compiled:
                    check(f"{name}[{key}]", compiled[key], given[key])
            elif compiled != given:
                raise _impl.createPoptorchError(
                    f"Value mismatch for {name}: expected {compiled} but got {given}.{RECOMPILE}"
                )

        check("named arguments", self._call, call)

    def _parts(self) -> int:
        o = self._options
        return int(o.device_iterations * o.replication_factor * o.Training.gradient_accumulation)

    def _micro_batch(self, tensor: torch.Tensor) -> torch.Tensor:
        o, parts = self._options, self._parts()
        size = tensor.shape[0] if tensor.dim() else 1
        assert size % parts == 0, (
            f"Invalid batch dimension: In the input {tensor.shape}, the batch dimension ({size}) must be a multiple of "
            f"Options.deviceIterations({o.device_iterations}) * (Options.replicationFactor({o.replication_factor}) / "
            f"Options.inputReplicaGrouping.input_group_size({o.input_group_size})) * "
            f"Options.Training.gradientAccumulation({o.Training.gradient_accumulation}) = {parts}"
        )
        return tensor.narrow(0, 0, size // parts) if tensor.dim() else tensor

    def _compile(self, call: dict[str, Any]) -> None:
        notice(f"compiling {type(self._model).__name__} for the host model of an IPU; times mean nothing")
        inputs = flatten(call)
        for i, tensor in enumerate(inputs):
            if tensor.requires_grad:
                raise _impl.createPoptorchError(
                    "An input tensor to an IPU model can not have requires_grad set to True, however input "
                    f"{i} does: {tensor}\nYou can set requires_grad=True from within the model as an alternative, "
                    "and return gradients as outputs to your model, if required."
                )
            if tensor.numel() == 0:
                raise Error(f"input {i} of shape {tuple(tensor.shape)}: PopTorch supports no zero-size tensors")
        self._call = call
        self._trace(call, inputs)
        tape = self._tape
        assert tape is not None
        wanted = set(self._output_numbers)
        self._loss = tape.final_loss() if self._training else -1
        if self._training:
            wanted.add(self._loss)
        wanted |= {n for node in tape.nodes for n in node.mutates if tape.root(n) in self._state_roots()}
        tape.prune(wanted)
        self._build_session()
        self._compiled = True
        self.attachToDevice()

    def _state_roots(self) -> set:
        assert self._tape is not None
        return {self._tape.root(n) for n in self._state_numbers.values()}

    def _trace(self, call: dict[str, Any], inputs: list[torch.Tensor]) -> None:
        tape = Tape(self._training)
        slots = slots_of(self._model)
        for slot in slots:
            if slot.tensor.numel() == 0:
                raise Error(f"{slot.full_name} has no elements: PopTorch supports no zero-size tensors")
        placed: dict[int, IpuTensor] = {}
        self._state_numbers: dict[str, int] = {}
        for slot in slots:
            if id(slot.tensor) not in placed:
                placed[id(slot.tensor)] = tape.parameter(
                    on_device(slot.tensor) if slot.kind == "_buffers" else slot.tensor
                )
                tape.known[id(slot.tensor)] = placed[id(slot.tensor)]
            self._state_numbers[slot.full_name] = placed[id(slot.tensor)]._number
        arguments = [tape.placeholder(on_device(self._micro_batch(t))) for t in inputs]
        self._input_numbers = [a._number for a in arguments]
        traced_call = rebuild(call, iter(arguments))
        before = self._attributes()
        wrapped_class = type(self._model)
        try:
            _impl.unwrap(self._model)
            for slot in slots:
                getattr(slot.module, slot.kind)[slot.name] = placed[id(slot.tensor)]
            _impl.set_tape(tape)
            with tape.trace():
                result = self._call_model(traced_call)
                self._check_reassigned(slots, placed)
        finally:
            _impl.set_tape(None)
            for slot in slots:
                getattr(slot.module, slot.kind)[slot.name] = slot.tensor
            self._model.__class__ = wrapped_class
        self._check_attributes(before)
        self._structure = result
        outputs = flatten(result)
        for output in outputs:
            if not isinstance(output, IpuTensor):
                logger.warning("Output expected to be on the IPU but is on %s", output.device.type)
        self._output_numbers = [o._number for o in outputs if isinstance(o, IpuTensor)]
        self._cpu_outputs = [o for o in outputs if not isinstance(o, IpuTensor)]
        self._tape = tape

    def _call_model(self, arguments: dict[str, Any]) -> Any:
        parameters = inspect.signature(self._model.forward).parameters
        args: list[Any] = []
        kwargs: dict[str, Any] = {}
        for name, value in arguments.items():
            kind = parameters[name].kind
            if kind == inspect.Parameter.VAR_POSITIONAL:
                args.extend(value)
            elif kind == inspect.Parameter.VAR_KEYWORD:
                kwargs.update(value)
            elif kind == inspect.Parameter.KEYWORD_ONLY:
                kwargs[name] = value
            else:
                args.append(value)
        return self._model(*args, **kwargs)

    @staticmethod
    def _check_reassigned(slots: list[Slot], placed: dict[int, IpuTensor]) -> None:
        for slot in slots:
            if isinstance(slot.module, torch.nn.modules.batchnorm._BatchNorm):
                continue
            what = "Parameter" if slot.kind == "_parameters" else "Buffer"
            now = getattr(slot.module, slot.kind).get(slot.name)
            if now is None:
                raise _impl.createPoptorchError(
                    f"{what} {slot.full_name} is removed from the model when calling the forward method."
                )
            if now is not placed[id(slot.tensor)]:
                raise _impl.createPoptorchError(
                    f"{what} {slot.full_name} is reassigned within the model when calling the forward method. This is "
                    f"not supported. Consider using self.{slot.full_name}.copy_(src) to copy data from a source "
                    "tensor, where src is the name of the source tensor."
                )

    def _attributes(self) -> dict[tuple[str, str], Any]:
        return {
            (prefix, name): value
            for prefix, module in self._model.named_modules()
            for name, value in vars(module).items()
            if not name.startswith("_") or isinstance(value, torch.Tensor)
        }

    def _check_attributes(self, before: dict[tuple[str, str], Any]) -> None:
        for key, value in self._attributes().items():
            if not any(isinstance(t, IpuTensor) for t in flatten(value)) or before.get(key) is value:
                continue
            name = ".".join(part for part in key if part)
            text = (
                f"attribute {name} was set to a tensor while the model was traced: the value of that trace is frozen, "
                "nothing is carried from one call to the next. Use a buffer and copy_, or return the state."
            )
            if strict():
                raise Error(text)
            logger.warning("%s", text)

    def _build_session(self) -> None:
        tape = self._tape
        assert tape is not None
        popart = self._options._Popart.options
        self._session = Session(self._training, bool(popart.get("enableOutlining", True)))
        customs = [node for node in tape.nodes if node.kind == "custom"]
        known: set = set()
        leading = tape.leading_to(self._loss) if self._training else set()
        for node in customs:
            op: CustomOp = node.target
            numbers = tape.inputs_of(node)
            op.input_names = [f"t{n}" for n in numbers]
            op.output_names = [f"t{n}" for n in node.outputs]
            for ref, name in zip(numbers, op.input_names):
                if name not in known:
                    known.add(name)
                    dtype = tape.dtypes[ref]
                    self._session.add_tensor(name, torch.int32 if dtype == torch.int64 else dtype, tape.shapes[ref])
            op.index = self._session.add_op(
                op.domain, op.name, op.version, op.input_names, op.output_names, op.attributes
            )
            known.update(op.output_names)
            self._check_examples(op)
            op.on_loss_path = [tape.root(n) in leading for n in node.outputs if n is not None]
            if self._training and any(op.on_loss_path):
                op.gradients = self._session.grow_gradients(op.index, op.on_loss_path)
        self._session.compile()
        if popart.get("enableEngineCaching") and popart.get("cachePath"):
            self._check_cache(Path(popart["cachePath"]))

    def _check_examples(self, op: CustomOp) -> None:
        """PopTorch does not compare them; what is wrong here fails far away on an IPU."""
        assert self._session is not None
        for i, (name, (dtype, shape)) in enumerate(zip(op.output_names, op.output_infos)):
            real_dtype, real_shape = self._session.info(name)
            wanted = torch.int32 if dtype == torch.int64 else dtype
            if real_dtype != wanted or tuple(real_shape) != tuple(shape):
                raise Error(
                    f"custom_op({op.name!r}): example output {i} is {dtype} {list(shape)}, setup() of the op makes it "
                    f"{real_dtype} {real_shape}; PopTorch would not notice"
                )

    def _check_cache(self, folder: Path) -> None:
        """The executable cache knows ops and attributes, not the text of codelets."""
        assert self._session is not None
        folder.mkdir(parents=True, exist_ok=True)
        tape = self._tape
        assert tape is not None
        graph = [(str(n.target) if n.kind == "aten" else n.target.name, n.outputs) for n in tape.nodes]
        text = self._session.identity() + repr(graph)
        entry = folder / f"{hashlib.sha256(text.encode()).hexdigest()[:32]}.host_model"
        codelets = self._session.codelets()
        if entry.exists() and entry.read_text() != codelets:
            raise Error(
                "stale executable: the executable cache has this graph with other codelets, and an IPU would run "
                "those. Put a hash of the codelets into an attribute, and append it in appendOutlineAttributes()."
            )
        entry.write_text(codelets)

    def _execute(self, inputs: list[torch.Tensor]) -> Any:
        o = self._options
        parts, accumulation = self._parts(), o.Training.gradient_accumulation
        synthetic = o._Popart.options.get("syntheticDataMode", 0)
        micro: list[list[torch.Tensor]] = []
        per_update = accumulation * o.replication_factor
        gradients: dict[str, torch.Tensor] = {}
        for part in range(parts):
            values = []
            for tensor in inputs:
                value = tensor
                if tensor.dim():
                    size = tensor.shape[0] // parts
                    value = tensor.narrow(0, part * size, size)
                if synthetic:
                    value = torch.randn_like(value) if value.is_floating_point() else torch.zeros_like(value)
                values.append(on_device(value.detach()))
            micro.append(self._run_part(values, gradients, part % per_update))
            if self._training and (part + 1) % per_update == 0:
                self._update(gradients, per_update)
                gradients = {}
        if self._training:
            self.copyWeightsToHost()
        outputs = [self._collect([m[i] for m in micro]) for i in range(len(self._output_numbers))]
        if synthetic:
            outputs = [torch.zeros_like(t) for t in outputs]
        for output in outputs:
            output.backward = _no_backward  # type: ignore[method-assign]
        if self._structure is None:
            return None
        ipu, cpu = iter(outputs), iter(self._cpu_outputs)
        merged = [next(ipu) if isinstance(t, IpuTensor) else next(cpu) for t in flatten(self._structure)]
        return rebuild(self._structure, iter(merged))

    def _run_part(
        self, values: list[torch.Tensor], gradients: dict[str, torch.Tensor], part: int
    ) -> list[torch.Tensor]:
        tape = self._tape
        assert tape is not None
        given = dict(zip(self._input_numbers, values))
        for name, number in self._state_numbers.items():
            given[number] = self._device[name]
        with torch.set_grad_enabled(self._training):
            result = tape.run(given, self._session)
            if self._training:
                self._backward(result[self._loss], gradients, part)
        return [from_device(result[n].detach()).clone() for n in self._output_numbers]

    def _backward(self, loss: torch.Tensor, gradients: dict[str, torch.Tensor], part: int) -> None:
        updater = self._updater
        assert updater is not None
        if not loss.requires_grad:
            return
        leaves = {n: t for n, t in self._device.items() if t.requires_grad}
        seed = torch.full_like(loss, updater.loss_scaling)
        found = torch.autograd.grad(loss, list(leaves.values()), seed, allow_unused=True)
        mean = self._options.Training.accumulation_and_replication_reduction_type == enums.ReductionType.Mean
        strategy = self._options.Training.meanAccumulationAndReplicationReductionStrategy
        running = mean and strategy == enums.MeanReductionStrategy.Running
        for name, grad in zip(leaves, found):
            if grad is None:
                continue
            grad = grad.to(updater.accum_type)
            before = gradients.get(name)
            if before is None:
                gradients[name] = grad
            elif running:
                gradients[name] = before * (part / (part + 1)) + grad / (part + 1)
            else:
                gradients[name] = before + grad

    def _update(self, gradients: dict[str, torch.Tensor], count: int) -> None:
        assert self._updater is not None
        training = self._options.Training
        mean = training.accumulation_and_replication_reduction_type == enums.ReductionType.Mean
        strategy = training.meanAccumulationAndReplicationReductionStrategy
        if mean and strategy != enums.MeanReductionStrategy.Running:
            gradients = {name: g / count for name, g in gradients.items()}
        with torch.no_grad():
            self._updater.step(self._device, gradients)

    def _collect(self, parts: list[torch.Tensor]) -> torch.Tensor:
        o = self._options
        mode = enums.OutputMode(o.output_mode)
        if mode == enums.OutputMode.Sum:
            return torch.stack(parts).sum(0)
        if mode == enums.OutputMode.Final:
            parts = parts[-o.replication_factor :]
        elif mode == enums.OutputMode.EveryN:
            parts = parts[o.output_return_period - 1 :: o.output_return_period]
        if parts[0].dim() == 0:
            return parts[0] if len(parts) == 1 else torch.stack(parts)
        return torch.cat(parts)


def _no_backward(*_: Any, **__: Any) -> None:
    raise _impl.createPoptorchError(
        "backward() cannot be called explicitly on outputs of a PopTorch model. If you're using a trainingModel, the "
        "backwards pass is performed automatically when invoking the model. If you're using an inferenceModel, you "
        "should use a trainingModel instead."
    )


def training_model(
    model: Any, options: Options | None, optimizer: torch.optim.Optimizer | None, version: str
) -> PoplarExecutor:
    if isinstance(model, PoplarExecutor):
        model = model._user_model
    if _impl.isWrapped(model):
        raise RuntimeError(
            "Model has already been wrapped in 'poptorch.trainingModel'. Call model.destroy() on the model to unwrap "
            "before wrapping again."
        )
    return PoplarExecutor(copy.copy(model), options, True, version, optimizer, user_model=model)


def inference_model(model: Any, options: Options | None, version: str) -> PoplarExecutor:
    if isinstance(model, PoplarExecutor):
        model = model._user_model
    executor = PoplarExecutor(copy.copy(model), options, False, version)
    executor._user_model = model
    return executor
