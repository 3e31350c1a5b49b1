"""Exceptions and warnings. A message shows the call as written, what was expected, and what to do."""

from __future__ import annotations

import sys
import warnings


class ShapeError(ValueError):
    """A tensor has a rank, shape or dtype that does not fit the call."""


class UnsupportedError(TypeError):
    """A combination of arguments that the chosen backend cannot honour."""


class TraceError(TypeError):
    """A neuron step or surrogate uses an operation that cannot become a kernel."""


class BackendMissingError(RuntimeError):
    """The backend asked for does not work on this machine."""


class BuildError(RuntimeError):
    """The compiler refused a generated kernel or could not be run."""


class DataError(ValueError):
    """A data set is missing, truncated or not in the expected format."""


class CheckpointError(RuntimeError):
    """A checkpoint is unreadable or belongs to another model or run."""


class RunError(RuntimeError):
    """A training run cannot start or go on as asked."""


class FallbackWarning(UserWarning):
    """`backend="auto"` took the reference path; the message names the reason."""


def warn(message: str, category: type[Warning] = UserWarning) -> None:
    """Warn at the line of the user's code that led here, whatever calls lie between."""
    level, frame = 1, sys._getframe()
    while frame.f_back is not None and frame.f_globals.get("__name__", "").split(".")[0] in ("snn_ipu", "torch"):
        level, frame = level + 1, frame.f_back
    warnings.warn(message, category, stacklevel=level)
