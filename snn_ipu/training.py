"""One minibatch of training or inference as one call, the same on every backend."""

from __future__ import annotations

from typing import Any, Callable

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from .backends.select import NAMES
from .errors import BackendMissingError, ShapeError
from .ipu import IpuInferenceModel, IpuTrainingModel, Options, hardware
from .neurons.base import SpikingNeuron
from .unroll import map_nested, unroll

LossFn = Callable[[Any, Tensor], Tensor]


def _place(net: nn.Module, device: str) -> torch.device:
    """Move the network to the device and set the backend of its neurons; "auto" takes CUDA where there is one."""
    if device not in NAMES:
        raise ValueError(f"device={device!r}: expected one of {', '.join(NAMES)}.")
    if device == "cuda" and not torch.cuda.is_available():
        raise BackendMissingError("device='cuda': torch finds no CUDA device. Use device='cpu' or 'auto'.")
    where = "cuda" if device == "cuda" or (device == "auto" and torch.cuda.is_available()) else "cpu"
    if device in ("reference", "cpu"):
        for module in net.modules():
            if isinstance(module, SpikingNeuron):
                module.backend = device
    net.to(where)
    return torch.device(where)


class _Model:
    def __init__(self, net: nn.Module, num_steps: int | None, device: str):
        self.net = net
        self.num_steps = num_steps
        self.device = _place(net, device)

    def spikes(self, x: Tensor) -> Any:
        return unroll(self.net, x.to(self.device, non_blocking=True), self.num_steps)[0]


class TrainingModel(_Model):
    """Made by `training_model`."""

    def __init__(
        self, net: nn.Module, loss_fn: LossFn, optimizer: Optimizer, num_steps: int | None, device: str
    ) -> None:
        super().__init__(net, num_steps, device)
        self.loss_fn = loss_fn
        self.optimizer = optimizer

    def __call__(self, x: Tensor, y: Tensor) -> tuple[Any, Tensor]:
        if self.num_steps is None and y.shape == x.shape[:1] != x.shape[1:2]:
            raise ShapeError(
                f"training step on x of shape {tuple(x.shape)} and y of shape {tuple(y.shape)}: y has a value for each "
                "time step of x [T, B, ...]; expected one for each sample. Pass num_steps= if x is static, [B, ...]."
            )
        self.net.train()
        self.optimizer.zero_grad(set_to_none=True)
        out = self.spikes(x)
        loss = self.loss_fn(out, y.to(self.device, non_blocking=True))
        if not isinstance(loss, Tensor) or loss.numel() != 1:
            found = f"a tensor of shape {tuple(loss.shape)}" if isinstance(loss, Tensor) else type(loss).__name__
            raise ShapeError(f"loss_fn returned {found}; expected a tensor with one value. Average or sum the loss.")
        loss.backward()  # type: ignore[no-untyped-call]
        self.optimizer.step()
        return map_nested(lambda v: v.detach() if isinstance(v, Tensor) else v, out), loss.detach()

    def sync(self) -> bool:
        """Bring the weights back to the network; here they never left it. Returns whether anything was brought."""
        return False


class InferenceModel(_Model):
    """Made by `inference_model`."""

    def __call__(self, x: Tensor) -> Any:
        self.net.eval()
        with torch.no_grad():
            return self.spikes(x)


def _takes_ipu(device: str, options: Options | None) -> bool:
    if device == "ipu" or (device == "auto" and hardware()):
        return True
    if options is not None and device != "auto":
        raise TypeError(
            f"device={device!r} with options for an IPU: expected device='ipu' or 'auto'. Leave options out."
        )
    return False


def training_model(
    net: nn.Module,
    loss_fn: LossFn,
    optimizer: Optimizer,
    *,
    num_steps: int | None = None,
    device: str = "auto",
    options: Options | None = None,
) -> TrainingModel | IpuTrainingModel:
    """A callable that trains on one minibatch: forward over all time steps, backward, weight update.

    Args:
        net: a one-step network, as `unroll` takes it.
        loss_fn: `loss_fn(spk, y)` of spikes [T, B, classes] and targets [B].
        optimizer: over the network's parameters.
        num_steps: T for static inputs [B, ...]; None for inputs [T, B, ...].
        device: "auto", "cpu", "cuda", "ipu" or "reference"; "auto" takes an IPU or a CUDA device where there is one.
        options: from `snn_ipu.ipu.options`, for an IPU.

    Returns: `step(x, y) -> (out, loss)`; out are the spikes, detached. It raises ShapeError for a loss of more than one
        value, and for as many targets as x has steps.

    Raises: BackendMissingError for a device that does not work here; ValueError for an unknown one.
    """
    if _takes_ipu(device, options):
        return IpuTrainingModel(net, loss_fn, optimizer, num_steps, options)
    return TrainingModel(net, loss_fn, optimizer, num_steps, device)


def inference_model(
    net: nn.Module, *, num_steps: int | None = None, device: str = "auto", options: Options | None = None
) -> InferenceModel | IpuInferenceModel:
    """A callable that runs the network without keeping anything for a backward pass; arguments as in `training_model`.

    Returns: `run(x) -> out`, spikes [T, B, classes].
    """
    if _takes_ipu(device, options):
        return IpuInferenceModel(net, num_steps, options)
    return InferenceModel(net, num_steps, device)
