"""IDX, the file format of MNIST and Fashion-MNIST: a big-endian header and array, plain or gzip."""

from __future__ import annotations

import gzip
import os
import struct
import zlib
from typing import Any, BinaryIO, Union

import numpy as np
import numpy.typing as npt

from ..errors import DataError

Path = Union[str, "os.PathLike[str]"]

_TYPES = {0x08: "u1", 0x09: "i1", 0x0B: ">i2", 0x0C: ">i4", 0x0D: ">f4", 0x0E: ">f8"}
_CODES = {np.dtype(text).newbyteorder("="): code for code, text in _TYPES.items()}
_GZIP_MAGIC = b"\x1f\x8b"
_CHUNK = 1 << 20
# the rank that every numpy version can hold
_MAX_RANK = 32


def read_idx(path: Path) -> npt.NDArray[Any]:
    """Read one IDX file into an array of native byte order.

    Args: path, a plain or a gzip file; the content decides, not the name.
    Raises: DataError when the file is missing, not IDX, truncated, or longer than its header says.
    Source: the format's description on the MNIST page (LeCun, Cortes, Burges).
    """
    path = os.fspath(path)
    try:
        with open(path, "rb") as file:
            compressed = file.read(2) == _GZIP_MAGIC
            file.seek(0)
            if not compressed:
                return _read(file, path)
            with gzip.GzipFile(fileobj=file) as unpacked:
                return _read(unpacked, path)
    except (EOFError, zlib.error, gzip.BadGzipFile) as e:
        raise DataError(
            f"read_idx({path!r}): the gzip data is truncated or damaged ({e}). Fetch the file again."
        ) from e
    except OSError as e:
        raise DataError(
            f"read_idx({path!r}): cannot read the file ({e.strerror or e}). Check path and permissions."
        ) from e


def write_idx(path: Path, array: npt.NDArray[Any]) -> None:
    """Write an array as a gzip IDX file whose bytes depend on the array alone (no time stamp, no name).

    Raises: DataError for a dtype or rank that IDX cannot hold.
    """
    code = _CODES.get(array.dtype.newbyteorder("="))
    if code is None or not 1 <= array.ndim <= _MAX_RANK:
        raise DataError(
            f"write_idx({os.fspath(path)!r}, {array.dtype}{list(array.shape)}): expected 1 to "
            f"{_MAX_RANK} dimensions of {', '.join(str(t) for t in _CODES)}. Convert the array first."
        )
    header = struct.pack(f">BBBB{array.ndim}I", 0, 0, code, array.ndim, *array.shape)
    data = array.astype(np.dtype(_TYPES[code]), order="C").tobytes()
    with open(path, "wb") as file, gzip.GzipFile("", "wb", 9, file, mtime=0) as packed:
        packed.write(header + data)


def _read(file: BinaryIO | gzip.GzipFile, path: str) -> npt.NDArray[Any]:
    magic = file.read(4)
    if len(magic) < 4 or magic[:2] != b"\0\0" or magic[2] not in _TYPES or not 1 <= magic[3] <= _MAX_RANK:
        raise DataError(
            f"read_idx({path!r}): the file begins with bytes {magic.hex() or '(none)'}; an IDX file begins "
            f"with 00 00, a type (08, 09, 0b to 0e) and 1 to {_MAX_RANK} dimensions. Give an IDX file."
        )
    rank = magic[3]
    header = file.read(4 * rank)
    if len(header) < 4 * rank:
        raise DataError(
            f"read_idx({path!r}): truncated in its header: {rank} dimensions need {4 * rank} bytes, "
            f"got {len(header)}. Fetch the file again."
        )
    shape = struct.unpack(f">{rank}I", header)
    dtype = np.dtype(_TYPES[magic[2]])
    expected = dtype.itemsize
    for size in shape:
        expected *= size
    data = _read_at_most(file, expected + 1)
    if len(data) != expected:
        problem = "truncated" if len(data) < expected else "followed by trailing bytes"
        met = f"got {len(data)}" if len(data) < expected else "got more"
        raise DataError(
            f"read_idx({path!r}): the data is {problem}: the header says {list(shape)} of {dtype.name}, "
            f"{expected} bytes, {met}. Fetch the file again."
        )
    return np.frombuffer(data, dtype).reshape(shape).astype(dtype.newbyteorder("="), copy=False)


def _read_at_most(file: BinaryIO | gzip.GzipFile, size: int) -> bytearray:
    # in pieces: a damaged header may ask for far more memory than the file has bytes
    data = bytearray()
    while len(data) < size:
        piece = file.read(min(_CHUNK, size - len(data)))
        if not piece:
            break
        data += piece
    return data
