"""A host model of PopTorch, with its names and signatures: NOT AN IPU and not Graphcore's PopTorch.

For tests of code that uses `poptorch`: custom ops and codelets are compiled with g++ and run by a model of Poplar that
checks what Poplar checks; everything else is computed by torch. See the README two folders above.
"""

from __future__ import annotations

import logging
from typing import Any

import torch

from . import enums, optim, options
from ._dataloader import AsynchronousDataAccessor, DataLoader
from ._executor import PoplarExecutor, inference_model, training_model
from ._impl import createPoptorchError, isRunningOnIpu
from ._native import Error, configure, notice
from .enums import (
    AutoStage,
    CommGroupType,
    ConnectionType,
    DataLoaderMode,
    HalfFloatCastingBehavior,
    MeanReductionStrategy,
    OutputMode,
    OverlapMode,
    ReductionType,
    SharingStrategy,
    SyncPattern,
)
from .ops import (
    BeginBlock,
    Block,
    BlockFunction,
    NameScope,
    custom_op,
    for_loop,
    identity_loss,
    ipu_print_tensor,
    nop,
    recomputationCheckpoint,
    removeBlocks,
    set_available_memory,
    set_overlap_for_input,
    set_overlap_for_output,
)
from .options import Options, TensorLocationSettings

__version__ = "3.4.0+host.model"
IS_HOST_MODEL = True

notice("`poptorch` here is the host model of tests/host_sdk, for tests only")


def trainingModel(
    model: torch.nn.Module | PoplarExecutor,
    options: Options | None = None,
    optimizer: torch.optim.Optimizer | None = None,
) -> PoplarExecutor:
    """A model that runs forward, backward and weight update in one call."""
    return training_model(model, options, optimizer, __version__)


def inferenceModel(model: torch.nn.Module | PoplarExecutor, options: Options | None = None) -> PoplarExecutor:
    """A model that runs forward."""
    return inference_model(model, options, __version__)


def ipuHardwareIsAvailable(num_ipus: int = 1) -> bool:
    """False: there is no IPU."""
    return False


def ipuHardwareVersion() -> int:
    raise AssertionError("No IPU hardware available on this system")


def setLogLevel(level: str | int) -> None:
    names = {"TRACE": 10, "DEBUG": 10, "INFO": 20, "WARN": 30, "ERR": 40, "OFF": 50}
    if isinstance(level, int):
        level = ["TRACE", "DEBUG", "INFO", "WARN", "ERR", "ERR", "OFF"][level]
    if level not in names:
        raise ValueError(f"Level must be one of {', '.join(names)}")
    logging.getLogger("poptorch::python").setLevel(names[level])


def load(filename: str, edit_opts_fn: Any | None = None) -> PoplarExecutor:
    raise Error("the host model loads no executables")


__all__ = [
    "AsynchronousDataAccessor",
    "AutoStage",
    "BeginBlock",
    "Block",
    "BlockFunction",
    "CommGroupType",
    "ConnectionType",
    "DataLoader",
    "DataLoaderMode",
    "Error",
    "HalfFloatCastingBehavior",
    "MeanReductionStrategy",
    "NameScope",
    "Options",
    "OutputMode",
    "OverlapMode",
    "PoplarExecutor",
    "ReductionType",
    "SharingStrategy",
    "SyncPattern",
    "TensorLocationSettings",
    "configure",
    "createPoptorchError",
    "custom_op",
    "enums",
    "for_loop",
    "identity_loss",
    "inferenceModel",
    "ipuHardwareIsAvailable",
    "ipuHardwareVersion",
    "ipu_print_tensor",
    "isRunningOnIpu",
    "load",
    "nop",
    "optim",
    "options",
    "recomputationCheckpoint",
    "removeBlocks",
    "setLogLevel",
    "set_available_memory",
    "set_overlap_for_input",
    "set_overlap_for_output",
    "trainingModel",
]
