"""Which backend runs a call, and why: the one asked for or an error; `auto` warns once when it takes the slow path."""

from __future__ import annotations

import os
from typing import NamedTuple, Protocol

from torch import Tensor

from .._compat import is_compiling
from ..errors import BackendMissingError, BuildError, FallbackWarning, UnsupportedError, warn
from . import cpu, cuda, ipu, reference
from .call import Call, Result, Runner


class Backend(Protocol):
    """What each module of a backend offers."""

    NAME: str

    def status(self) -> str | None: ...

    def obstacle(self, call: Call) -> str | None: ...

    def settle(self, call: Call) -> Runner: ...


class Status(NamedTuple):
    """Whether a backend works on this machine; `reason` says why not, or with what."""

    name: str
    available: bool
    reason: str


BACKENDS: dict[str, Backend] = {module.NAME: module for module in (reference, cpu, cuda, ipu)}
NAMES = ("auto", *BACKENDS)
_warned: set[str] = set()


def check_name(name: str) -> str:
    """The name itself where it is a backend's or "auto".

    Raises: ValueError that lists the names.
    """
    if name not in NAMES:
        raise ValueError(f"backend={name!r}: expected one of {', '.join(NAMES)}.")
    return name


def status() -> list[Status]:
    """Every backend with whether it works on this machine."""
    reasons = [(name, module.status()) for name, module in BACKENDS.items()]
    works = {ipu.NAME: ipu.details}
    return [Status(name, reason is None, reason or works.get(name, lambda: "works")()) for name, reason in reasons]


def traced_once(x: Tensor) -> bool:
    """Whether x belongs to a model that is traced once and runs elsewhere, so that modules cannot keep anything."""
    return isinstance(x, Tensor) and x.device.type == ipu.NAME


def _warned_once(runner: Runner, reason: str) -> Runner:
    """The same, with a warning after the first call; one that fails has an error to tell, and no need of a warning."""

    def run(call: Call) -> Result:
        result = runner(call)
        warn_once(reason)
        return result

    return run


def warn_once(reason: str) -> None:
    """Say that the reference runs, and why; once per reason."""
    if reason not in _warned:
        _warned.add(reason)
        warn(
            f"running the slow reference backend: {reason.rstrip('.')}. "
            "Pass backend='reference' to choose it silently.",
            FallbackWarning,
        )


def requested(name: str) -> str:
    """The backend that is asked for: the name itself, or what SNN_IPU_BACKEND says in place of "auto"."""
    return check_name(os.environ.get("SNN_IPU_BACKEND") or name) if name == "auto" else check_name(name)


def settle(call: Call, name: str) -> Runner:
    """What runs the call, on the backend asked for; with "auto", on the one of x's device.

    Raises: BackendMissingError when the backend does not work here; UnsupportedError when it cannot run this call;
        BuildError when its kernel cannot be built.
    """
    if name != "auto":
        module = BACKENDS[name]
        missing = module.status()
        if missing is not None:
            raise BackendMissingError(f"backend={name!r}: {missing}.")
        reason = module.obstacle(call)
        if reason is not None:
            raise UnsupportedError(f"backend={name!r} cannot run {call.fn.__name__}: {reason}.")
        return module.settle(call)
    if is_compiling() and call.x.device.type == cpu.NAME:
        # Only what has no operator comes here, and `operators.register` has said why.
        return reference.settle(call)
    module = BACKENDS.get(call.x.device.type, reference)
    reason = module.obstacle(call)
    if reason is None:
        try:
            return module.settle(call)
        except BuildError as error:
            reason = str(error)
    return _warned_once(reference.settle(call), reason)
