"""Training and inference on IPUs: the settings that matter, and the models behind `device="ipu"`."""

from __future__ import annotations

import contextlib
import weakref
from dataclasses import fields, replace
from typing import Any, Callable, Iterator

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from .backends import ipu
from .backends.ipu import Options, data_loader, hardware
from .errors import BackendMissingError, ShapeError
from .neurons.base import SpikingNeuron
from .surrogate import SpikeGrad, spike
from .unroll import map_nested, unroll

LossFn = Callable[[Any, Tensor], Tensor]


def options(**settings: Any) -> Options:
    """Settings of an IPU model, for `training_model(..., device="ipu", options=...)`.

    Args:
        device_iterations: steps per call without the host. gradient_accumulation: backward passes per weight update.
        replication: IPUs that work on parts of a batch. A call takes batches of all three multiplied.
        available_memory: share of a tile's memory that matrix products may use as scratch, 0 to 1.
        partials: type of partial sums in matrix products and convolutions, "float32" or "float16".
        stochastic_rounding: round to float16 at random; on hardware only.
        loss_scaling: factor on the loss before the backward pass, for float16; gradients are divided by it again.
        accum_type: type of gradient accumulators and first moments, "float32" or "float16".
        executable_cache: folder of compiled programs.
        cycle_count: count cycles; read them with `model.cycle_count()`.
        ipu_model: run on Poplar's model of an IPU on the host.
        synthetic_data: no data from the host, to time the device alone. io_tiles: tiles set aside for transfers.
        seed: of the IPU's random numbers.
        checkpoint: keep neuron states of every so many steps for the backward pass, and compute the steps between them
            again; 0 does so only where memory asks for it.

    Raises: TypeError for unknown settings, ValueError for values out of range.
    """
    known = {f.name: f.default for f in fields(Options)}
    for name, value in settings.items():
        if name not in known:
            raise TypeError(f"options({name}=...): expected settings among {', '.join(known)}.")
        count = name in ("device_iterations", "gradient_accumulation", "replication")
        if (count or name in ("io_tiles", "checkpoint")) and (type(value) is not int or value < count):
            least = "a positive" if count else "a"
            raise ValueError(f"options({name}={value!r}): expected {least} whole number{'' if count else ' from 0'}.")
        if name in ("partials", "accum_type") and value not in ("float32", "float16"):
            raise ValueError(f"options({name}={value!r}): expected 'float32' or 'float16'.")
        if name == "loss_scaling" and not (isinstance(value, (int, float)) and value > 0):
            raise ValueError(f"options(loss_scaling={value!r}): expected a positive number, a power of two at best.")
        if name == "available_memory" and value is not None and not 0 <= value <= 1:
            raise ValueError(f"options(available_memory={value!r}): expected a share between 0 and 1.")
    return replace(Options(), **settings)


def heaviside(x: Tensor, threshold: float = 0.0, spike_grad: SpikeGrad | None = None) -> Tensor:
    """spk = x > threshold with a surrogate gradient: the custom op inside an IPU model, plain torch elsewhere.

    Args:
        x: any shape; float32 or float16 on an IPU.
        threshold: a number. Where it is learned, use `snn_ipu.spike(x - threshold)`.
        spike_grad: the surrogate of x - threshold, `surrogate.atan()` by default.
    """
    if x.device.type == "ipu" and spike_grad is not None:
        return ipu.heaviside(x, spike_grad, threshold)
    return spike(x - threshold, spike_grad)


class _Traced(nn.Module):
    """What PopTorch traces: the unrolled network, with the loss in training; it slices batches along dimension 0."""

    def __init__(self, net: nn.Module, num_steps: int | None, settings: Options, loss_fn: LossFn | None = None):
        super().__init__()
        self.net, self.num_steps, self.settings, self.loss_fn = net, num_steps, settings, loss_fn

    def forward(self, x: Tensor, y: Tensor | None = None) -> Any:
        if self.num_steps is None:
            x = x.transpose(0, 1)
        with ipu.recording(self.loss_fn is not None, self.settings):
            spk = unroll(self.net, x, self.num_steps)[0]
            out = map_nested(_swap, spk)
            if self.loss_fn is None:
                return out
            assert y is not None
            loss = self.loss_fn(spk, y)
        if not isinstance(loss, Tensor) or loss.numel() != 1:
            found = f"a tensor of shape {tuple(loss.shape)}" if isinstance(loss, Tensor) else type(loss).__name__
            raise ShapeError(f"loss_fn returned {found}; expected a tensor with one value. Average or sum the loss.")
        return out, ipu.mark_loss(loss)


def _swap(value: Any) -> Any:
    return value.transpose(0, 1) if isinstance(value, Tensor) and value.dim() > 1 else value


@contextlib.contextmanager
def without_empty_states(net: nn.Module) -> Iterator[None]:
    """Take the hidden states out of a network's buffers, for calls of a model made with poptorch by hand.

    PopTorch moves all buffers to the IPU, and knows no tensors without elements.
    """
    taken = []
    for module in net.modules():
        if isinstance(module, SpikingNeuron):
            for name in module.state_names:
                if module._buffers[name] is not None:
                    taken.append((module, name, module._buffers[name]))
                    module._buffers[name] = None
    try:
        yield
    finally:
        for module, name, value in taken:
            module._buffers[name] = value


# The executor that holds the device, and the training model of each network, whose weights inference waits for.
_attached: list[weakref.ref[Any]] = []
_trainers: weakref.WeakKeyDictionary[nn.Module, weakref.ref[Any]] = weakref.WeakKeyDictionary()


class _IpuModel:
    executor: Any

    def __init__(self, net: nn.Module, num_steps: int | None, settings: Options | None):
        missing = ipu.status()
        if missing is not None:
            raise BackendMissingError(f"device='ipu': {missing}.")
        self.net = net
        self.num_steps = num_steps
        self.device = torch.device("cpu")
        self.settings = Options() if settings is None else settings
        net.to("cpu")

    def _first(self, x: Tensor) -> Tensor:
        return x.transpose(0, 1).contiguous() if self.num_steps is None else x

    def _run(self, *inputs: Tensor) -> Any:
        self._take_device()
        with without_empty_states(self.net):
            return self.executor(*inputs)

    def _take_device(self) -> None:
        """Attach, after whoever holds the device has let go of it. PopTorch sends weights and optimizer state then."""
        holder = _attached[0]() if _attached else None
        if holder is not None and holder is not self:
            holder.release()
        _attached[:] = [weakref.ref(self)]
        if self.executor.isCompiled() and not self.executor.isAttachedToDevice():
            self.executor.attachToDevice()

    def send_weights(self) -> None:
        """Copy the network's weights to the device, after they were changed on the host; the first call does it too."""
        if self.executor.isCompiled():
            self._take_device()
            with without_empty_states(self.net):
                self.executor.copyWeightsToDevice()

    def release(self) -> None:
        """Give the device back; the next call takes it again."""
        if self.executor.isCompiled() and self.executor.isAttachedToDevice():
            self.executor.detachFromDevice()

    def cycle_count(self) -> int:
        """Cycles of the last call, with `options(cycle_count=True)` and on hardware."""
        return int(self.executor.cycleCount())


class IpuTrainingModel(_IpuModel):
    """Made by `training_model(..., device="ipu")`; `sync()` brings the weights back to the network on the host."""

    def __init__(
        self,
        net: nn.Module,
        loss_fn: LossFn,
        optimizer: Optimizer,
        num_steps: int | None = None,
        settings: Options | None = None,
    ) -> None:
        super().__init__(net, num_steps, settings)
        self.loss_fn = loss_fn
        self.optimizer = optimizer
        self._ipu_optimizer = ipu.poptorch_optimizer(optimizer, self.settings)
        self._traced = _Traced(net, num_steps, self.settings, loss_fn)
        self.executor = ipu.training_executor(self._traced, self.settings, self._ipu_optimizer)
        self._ahead = False
        _trainers[net] = weakref.ref(self)

    def __call__(self, x: Tensor, y: Tensor) -> tuple[Any, Tensor]:
        # The mode counts when the model is traced, which is now; another model of the network may have set the other.
        if not self.executor.isCompiled():
            self._traced.train()
        if self._ipu_optimizer is not self.optimizer and ipu.copy_settings(self.optimizer, self._ipu_optimizer):
            self.executor.setOptimizer(self._ipu_optimizer)
        out, loss = self._run(self._first(x), y)
        self._ahead = True
        return map_nested(_swap, out), loss.mean()

    def sync(self) -> bool:
        """Copy the weights from the device to the network, and PopART's moments to the optimizer's `state_dict`.

        Returns: whether there were new ones.
        """
        ahead, self._ahead = self._ahead, False
        if ahead:
            with without_empty_states(self.net):
                self.executor.copyWeightsToHost()
            if self._ipu_optimizer is not self.optimizer:
                ipu.keep_moments(self._ipu_optimizer, self.optimizer)
        return ahead

    def release(self) -> None:
        self.sync()
        super().release()


class IpuInferenceModel(_IpuModel):
    """Made by `inference_model(..., device="ipu")`."""

    def __init__(self, net: nn.Module, num_steps: int | None = None, settings: Options | None = None) -> None:
        super().__init__(net, num_steps, settings)
        # Gradients are accumulated in training alone.
        self.settings = replace(self.settings, gradient_accumulation=1)
        self._traced = _Traced(net, num_steps, self.settings)
        self.executor = ipu.inference_executor(self._traced, self.settings)
        self._sent: tuple[int, ...] = ()

    def __call__(self, x: Tensor) -> Any:
        trainer = _trainers[self.net]() if self.net in _trainers else None
        trained = trainer is not None and trainer.sync()
        weights = tuple(p._version for p in self.net.parameters())
        if trained or weights != self._sent:
            self.send_weights()
        self._sent = weights
        if not self.executor.isCompiled():
            self._traced.eval()
        return map_nested(_swap, self._run(self._first(x)))


__all__ = ["Options", "data_loader", "hardware", "heaviside", "options", "without_empty_states"]
