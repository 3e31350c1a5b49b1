"""What one training run is made of, and the objects built from it."""

from __future__ import annotations

import dataclasses
import json
import math
from dataclasses import dataclass
from typing import Any, Callable, Mapping

import torch
from torch import Tensor, nn

from .. import functional, models, surrogate
from .._compat import HAS_FUSED_OPTIMIZERS
from ..data import Dataset
from ..errors import CheckpointError, UnsupportedError
from ..neurons import SpikingNeuron

Loss = Callable[[Tensor, Tensor], Tensor]

MODELS = ("dsnn", "csnn")
LOSSES: dict[str, Callable[..., Loss]] = {
    "ce_rate": functional.ce_rate_loss,
    "ce_count": functional.ce_count_loss,
    "mse_count": functional.mse_count_loss,
}
OPTIMIZERS: dict[str, Callable[..., torch.optim.Optimizer]] = {
    "adamw": torch.optim.AdamW,
    "adam": torch.optim.Adam,
    "sgd": torch.optim.SGD,
}
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}
SURROGATES = {name: value for name, value in vars(surrogate).items() if isinstance(value, surrogate.SurrogateFactory)}
_SIZES_OF = {"hidden": "dsnn", "channels": "csnn"}
_DEFAULT_SIZES = {"hidden": (1000,), "channels": (12, 64)}
_DEFAULT_LR = {"dsnn": 3e-4, "csnn": 1e-3}

# what may change between a run and its continuation; the rest decides the numbers
FREE_ON_RESUME = ("data_root", "epochs", "threads", "device")


@dataclass(frozen=True)
class TrainConfig:
    """All settings of a run; equal settings on an equal machine give equal bits."""

    model: str = "dsnn"
    hidden: tuple[int, ...] | None = None
    channels: tuple[int, ...] | None = None
    population: int = 1
    beta: float = 0.9
    surrogate: str = "fast_sigmoid:slope=10"
    num_steps: int = 25
    data: str = "fashion-mnist-mini"
    data_root: str | None = None
    limit: int | None = None
    epochs: int = 5
    batch_size: int = 128
    loss: str = "mse_count"
    optimizer: str = "adamw"
    lr: float | None = None
    dtype: str = "float32"
    device: str = "auto"
    threads: int = 1
    seed: int = 0

    def __post_init__(self) -> None:
        for name, model in _SIZES_OF.items():
            if getattr(self, name) is None and self.model == model:
                object.__setattr__(self, name, _DEFAULT_SIZES[name])
            elif getattr(self, name) is not None and self.model != model:
                raise UnsupportedError(f"--{name} with --model {self.model}: it goes with {model}. Leave it out.")
        if self.lr is None:
            object.__setattr__(self, "lr", _DEFAULT_LR[self.model])
        parse_surrogate(self.surrogate)

    def to_json(self) -> str:
        return json.dumps(dataclasses.asdict(self), indent=2) + "\n"

    @staticmethod
    def from_json(text: str, path: str) -> TrainConfig:
        """Raises: CheckpointError when the text, read from `path`, is not the configuration of a run."""
        try:
            fields = json.loads(text)
            tuples = {name: tuple(fields[name]) for name in _SIZES_OF if fields[name] is not None}
            return TrainConfig(**{**fields, **tuples})
        except (ValueError, TypeError, KeyError, UnsupportedError) as e:
            raise CheckpointError(
                f"{path} does not hold the configuration of a run ({e!r}). Restore it or start a new run."
            ) from e

    def continued_with(self, changes: Mapping[str, Any]) -> TrainConfig:
        """This configuration for going on with its run; `changes` are settings asked for anew.

        Raises: CheckpointError naming each other field that would change.
        """
        differing = [
            f"{name} (here {getattr(self, name)!r}, asked for {value!r})"
            for name, value in changes.items()
            if name not in FREE_ON_RESUME and value != getattr(self, name)
        ]
        if differing:
            raise CheckpointError(
                f"the checkpoint belongs to another run: they differ in {', '.join(differing)}. "
                "Leave these options out to continue it, or start a new run in another folder."
            )
        return dataclasses.replace(self, **{name: changes[name] for name in FREE_ON_RESUME if name in changes})


def parse_surrogate(text: str) -> surrogate.Surrogate:
    """A surrogate from `name` or `name:parameter=value,...`, for example `fast_sigmoid:slope=10`.

    Raises: UnsupportedError for an unknown name or parameter, or a value that is no number.
    """
    name, _, arguments = text.partition(":")
    if name not in SURROGATES:
        raise UnsupportedError(f"--surrogate {text}: expected one of {', '.join(sorted(SURROGATES))}.")
    factory = SURROGATES[name]
    values = {}
    for argument in arguments.split(",") if arguments else []:
        key, _, value = argument.partition("=")
        try:
            values[key] = float(value)
        except ValueError as e:
            raise UnsupportedError(
                f"--surrogate {text}: {argument!r} is not parameter=number. Write {name}:parameter=1.5"
            ) from e
    unknown = [key for key in values if key not in factory.defaults]
    if unknown or not all(map(math.isfinite, values.values())):
        known = ", ".join(f"{key}={value:g}" for key, value in factory.defaults.items()) or "no parameters"
        raise UnsupportedError(f"--surrogate {text}: {name} takes {known}, finite numbers. Change the option.")
    return factory(**values)


def build_net(config: TrainConfig, data: Dataset) -> nn.Sequential:
    """The untrained network, its weights in the run's dtype and its neurons' parameters in float32.

    Raises: UnsupportedError when the images are too small for the layers asked for.
    """
    common: dict[str, Any] = {
        "classes": data.num_classes,
        "population": config.population,
        "beta": config.beta,
        "spike_grad": parse_surrogate(config.surrogate),
    }
    if config.model == "dsnn":
        net = models.DSNN(inputs=math.prod(data.image_shape), hidden=config.hidden or (), **common)
    else:
        try:
            net = models.CSNN(image_shape=data.image_shape, channels=config.channels or (), **common)
        except ValueError as e:
            raise UnsupportedError(f"--model csnn --channels {config.channels}: {e}") from e
    for layer in net:
        # a decay of 0.9 rounded to 16 bits would be another neuron
        if not isinstance(layer, SpikingNeuron):
            layer.to(DTYPES[config.dtype])
    return net


def population_options(config: TrainConfig, data: Dataset) -> dict[str, Any]:
    """Arguments that make a loss or an accuracy pool `population` outputs for each class."""
    return {"population_code": True, "num_classes": data.num_classes} if config.population > 1 else {}


def build_loss(config: TrainConfig, data: Dataset) -> Loss:
    return LOSSES[config.loss](**population_options(config, data))


def build_optimizer(config: TrainConfig, net: nn.Module) -> torch.optim.Optimizer:
    return OPTIMIZERS[config.optimizer](net.parameters(), lr=config.lr, fused=HAS_FUSED_OPTIMIZERS)
