"""The C interface of the host model: sessions of custom ops, run by C++."""

from __future__ import annotations

import ctypes
import json
import os
import shlex
import sys
from typing import Any, NamedTuple, Sequence

import poplar_host
import torch


class Error(RuntimeError):
    """As `poptorch.Error`: raised by PopTorch, PopART or Poplar."""

    def __init__(self, message: str, kind: str = "poptorch_py_error") -> None:
        super().__init__(f"'{kind}': {message}")
        self.type = kind
        self.message = message
        self.location = ""


# popart::DataType
POPART_TYPES: dict[torch.dtype, int] = {
    torch.uint8: 0,
    torch.int8: 1,
    torch.int16: 5,
    torch.int32: 6,
    torch.bool: 10,
    torch.float32: 11,
    torch.float16: 12,
}
TORCH_TYPES = {number: dtype for dtype, number in POPART_TYPES.items()}

SDK = poplar_host.install()
_P = ctypes.c_void_p
_S = ctypes.c_char_p
_I = ctypes.c_int


def _load() -> ctypes.CDLL:
    # Global, so that op libraries and codelets find the model by name, as they find Poplar in an enabled shell.
    for name in ("poplar", "poputil", "popops"):
        ctypes.CDLL(str(SDK.lib / f"lib{name}.so"), mode=ctypes.RTLD_GLOBAL)
    lib = ctypes.CDLL(str(SDK.lib / "libpopart.so"), mode=ctypes.RTLD_GLOBAL)
    for name in ("last_error", "session_describe_op", "session_report", "session_identity", "session_codelets"):
        getattr(lib, f"hs_{name}").restype = _S
    for name in ("attributes_new", "session_new"):
        getattr(lib, f"hs_{name}").restype = _P
    lib.hs_attributes_float.argtypes = [_P, _S, ctypes.c_double]
    lib.hs_attributes_int.argtypes = [_P, _S, ctypes.c_int64]
    lib.hs_attributes_string.argtypes = [_P, _S, _S]
    for name in ("floats", "ints", "strings"):
        getattr(lib, f"hs_attributes_{name}").argtypes = [_P, _S, _P, _I]
    lib.hs_attributes_delete.argtypes = [_P]
    lib.hs_session_delete.argtypes = [_P]
    lib.hs_session_new.argtypes = [_I, _I]
    lib.hs_session_add_tensor.argtypes = [_P, _S, _I, _P, _I]
    lib.hs_session_add_op.argtypes = [_P, _S, _S, _I, _P, _I, _P, _I, _P, _P]
    lib.hs_session_grow_gradients.argtypes = [_P, _I, _P, _I, _P, _P]
    lib.hs_session_compile.argtypes = [_P]
    lib.hs_session_describe_op.argtypes = [_P, _I]
    lib.hs_session_tensor_info.argtypes = [_P, _S, _P, _P, _P]
    lib.hs_session_run.argtypes = [_P, _I, _P, _P, _I, _P, _P, _I]
    for name in ("report", "identity", "codelets"):
        getattr(lib, f"hs_session_{name}").argtypes = [_P]
    return lib


LIB = _load()


def check(status: int) -> None:
    if status:
        raise Error(LIB.hs_last_error().decode(), "popart_exception")


def configure(**settings: Any) -> None:
    """Change settings of the model: half, checks, tiles, tile_bytes, memory_margin, target."""
    for key, value in settings.items():
        check(LIB.hs_set(key.encode(), str(value).encode()))


configure(
    codelet_driver=" ".join(shlex.quote(part) for part in (sys.executable, str(poplar_host.CODELETS))),
)
os.environ.setdefault("HOST_SDK_CACHE", str(poplar_host.cache_dir()))


def notice(text: str) -> None:
    LIB.hs_notice(text.encode())


def _strings(values: Sequence[str]) -> Any:
    return (_S * len(values))(*[v.encode() for v in values])


def attributes(values: dict[str, Any]) -> int:
    handle = LIB.hs_attributes_new()
    for key, value in values.items():
        name = key.encode()
        if isinstance(value, int):
            if not -(2**63) <= value < 2**63:
                raise Error(f"attribute {key}={value} does not fit int64")
            LIB.hs_attributes_int(handle, name, value)
        elif isinstance(value, float):
            if abs(value) > torch.finfo(torch.float32).max and value not in (float("inf"), -float("inf")):
                raise Error(f"attribute {key}={value} does not fit float32")
            LIB.hs_attributes_float(handle, name, value)
        elif isinstance(value, str):
            LIB.hs_attributes_string(handle, name, value.encode())
        elif isinstance(value[0], int):
            LIB.hs_attributes_ints(handle, name, (ctypes.c_int64 * len(value))(*value), len(value))
        elif isinstance(value[0], float):
            LIB.hs_attributes_floats(handle, name, (ctypes.c_double * len(value))(*value), len(value))
        else:
            LIB.hs_attributes_strings(handle, name, _strings(value), len(value))
    return int(handle)


class Port(NamedTuple):
    index: int
    tensor: str
    forward_input: int | None = None


class Session:
    """The custom ops of one model."""

    def __init__(self, training: bool, outlining: bool) -> None:
        self._handle = LIB.hs_session_new(int(training), int(outlining))
        if not self._handle:
            raise Error(LIB.hs_last_error().decode(), "popart_exception")

    def __del__(self) -> None:
        if getattr(self, "_handle", None):
            LIB.hs_session_delete(self._handle)

    def add_tensor(self, name: str, dtype: torch.dtype, shape: Sequence[int]) -> None:
        if dtype not in POPART_TYPES:
            raise Error(f"a custom op cannot take a tensor of {dtype}")
        dims = (ctypes.c_int64 * max(1, len(shape)))(*shape)
        check(LIB.hs_session_add_tensor(self._handle, name.encode(), POPART_TYPES[dtype], dims, len(shape)))

    def add_op(
        self,
        domain: str,
        name: str,
        version: int,
        inputs: Sequence[str],
        outputs: Sequence[str],
        values: dict[str, Any],
    ) -> int:
        handle = attributes(values)
        index = _I()
        try:
            check(
                LIB.hs_session_add_op(
                    self._handle,
                    domain.encode(),
                    name.encode(),
                    version,
                    _strings(inputs),
                    len(inputs),
                    _strings(outputs),
                    len(outputs),
                    handle,
                    ctypes.byref(index),
                )
            )
        finally:
            LIB.hs_attributes_delete(handle)
        return index.value

    def grow_gradients(self, op: int, has_gradient: Sequence[bool]) -> list[int]:
        flags = (_I * max(1, len(has_gradient)))(*[int(f) for f in has_gradient])
        indices = (_I * 16)()
        count = _I(16)
        check(LIB.hs_session_grow_gradients(self._handle, op, flags, len(has_gradient), indices, ctypes.byref(count)))
        return list(indices[: count.value])

    def compile(self) -> None:
        check(LIB.hs_session_compile(self._handle))

    def ports(self, op: int) -> tuple[list[Port], list[Port]]:
        """Inputs and outputs of an op, with the forward input that a gradient output belongs to."""
        text = LIB.hs_session_describe_op(self._handle, op).decode()

        def read(part: str) -> list[Port]:
            fields = [word.split(":") for word in part.split()]
            return [Port(int(f[0]), f[1], int(f[2]) if len(f) > 2 else None) for f in fields]

        before, after = text.split("|")
        return read(before), read(after)

    def info(self, tensor: str) -> tuple[torch.dtype, list[int]]:
        dtype, rank = _I(), _I(16)
        shape = (ctypes.c_int64 * 16)()
        check(LIB.hs_session_tensor_info(self._handle, tensor.encode(), ctypes.byref(dtype), shape, ctypes.byref(rank)))
        return TORCH_TYPES[dtype.value], list(shape[: rank.value])

    def run(self, op: int, inputs: dict[str, torch.Tensor]) -> list[torch.Tensor]:
        """Run one op on host tensors; its outputs in order."""
        _, out_ports = self.ports(op)
        outputs = []
        for port in out_ports:
            dtype, shape = self.info(port.tensor)
            outputs.append(torch.empty(shape, dtype=dtype))
        in_pointers = (_P * max(1, len(inputs)))(*[t.data_ptr() for t in inputs.values()])
        out_pointers = (_P * max(1, len(outputs)))(*[t.data_ptr() for t in outputs])
        check(
            LIB.hs_session_run(
                self._handle,
                op,
                _strings(list(inputs)),
                in_pointers,
                len(inputs),
                _strings([p.tensor for p in out_ports]),
                out_pointers,
                len(outputs),
            )
        )
        return outputs

    def report(self) -> dict[str, Any]:
        return dict(json.loads(LIB.hs_session_report(self._handle).decode()))

    def identity(self) -> str:
        return str(LIB.hs_session_identity(self._handle).decode())

    def codelets(self) -> str:
        return str(LIB.hs_session_codelets(self._handle).decode())
