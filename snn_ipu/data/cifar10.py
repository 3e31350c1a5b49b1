"""CIFAR-10 in its standard Python layout: a folder `cifar-10-batches-py` of six pickled batches."""

from __future__ import annotations

import codecs
import io
import os
import pickle
from typing import Any, Tuple

import numpy as np
import numpy.typing as npt

from ..errors import DataError

TRAIN_FILES = tuple(f"data_batch_{i}" for i in range(1, 6))
TEST_FILES = ("test_batch",)
IMAGE_SHAPE = (3, 32, 32)

Arrays = Tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64]]


def read_cifar10(folder: str) -> tuple[Arrays, Arrays]:
    """Read the training and the test batches of one folder.

    Returns: (train images uint8 [N, 3, 32, 32], train labels int64 [N]), (test images, test labels).
    Raises: DataError when a batch is missing, damaged, holds more than arrays and lists, or has another
    shape.
    Source: Krizhevsky, Learning Multiple Layers of Features from Tiny Images, 2009.
    """
    return _read_all(folder, TRAIN_FILES), _read_all(folder, TEST_FILES)


def _read_all(folder: str, names: tuple[str, ...]) -> Arrays:
    batches = [_read_batch(os.path.join(folder, name)) for name in names]
    images = np.concatenate([images for images, _ in batches])
    labels = np.concatenate([labels for _, labels in batches])
    return images.reshape(-1, *IMAGE_SHAPE), labels


def _read_batch(path: str) -> Arrays:
    batch = _unpickle(path)
    data = batch.get("data")
    width = int(np.prod(IMAGE_SHAPE))
    if not isinstance(data, np.ndarray) or data.dtype != np.uint8 or data.ndim != 2 or data.shape[1] != width:
        raise DataError(
            f"read_cifar10: {path!r} holds data {_describe(data)}; expected uint8 [N, {width}]. "
            "Give the batches of cifar-10-python.tar.gz."
        )
    labels = _as_labels(batch.get("labels"))
    if labels is None or labels.shape != data.shape[:1]:
        raise DataError(
            f"read_cifar10: {path!r} holds labels {_describe(batch.get('labels'))} for {len(data)} images; "
            "expected one integer for each. Give the batches of cifar-10-python.tar.gz."
        )
    return data, labels


def _as_labels(value: object) -> npt.NDArray[np.int64] | None:
    if isinstance(value, list) and not all(type(v) is int or isinstance(v, np.integer) for v in value):
        return None
    if not isinstance(value, (list, np.ndarray)):
        return None
    labels = np.asarray(value) if len(value) else np.zeros(0, np.int64)
    return labels.astype(np.int64) if labels.ndim == 1 and labels.dtype.kind in "iu" else None


def _describe(value: object) -> str:
    if isinstance(value, np.ndarray):
        return f"{value.dtype}{list(value.shape)}"
    if isinstance(value, list):
        return f"a list of {len(value)}"
    return f"of type {type(value).__name__}"


def _encode(text: str, encoding: str) -> bytes:
    if encoding not in ("latin1", "latin-1"):
        raise pickle.UnpicklingError(f"encoding {encoding!r} is not one that pickled bytes use")
    return codecs.encode(text, "latin-1")


# numpy's own functions under the names that numpy 1 and numpy 2 write into pickles
_RECONSTRUCT = np.zeros(0).__reduce__()[0]
_SCALAR = np.uint8(0).__reduce__()[0]
_FROM_BUFFER = np.zeros(1).__reduce_ex__(5)[0]
_ALLOWED: dict[tuple[str, str], Any] = {
    ("numpy", "ndarray"): np.ndarray,
    ("numpy", "dtype"): np.dtype,
    ("_codecs", "encode"): _encode,
}
for _core in ("numpy.core", "numpy._core"):
    _ALLOWED[f"{_core}.multiarray", "_reconstruct"] = _RECONSTRUCT
    _ALLOWED[f"{_core}.multiarray", "scalar"] = _SCALAR
    _ALLOWED[f"{_core}.numeric", "_frombuffer"] = _FROM_BUFFER


class _ArraysOnly(pickle.Unpickler):
    """Builds dicts, lists, strings, numbers and numpy arrays; refuses a pickle that names anything else."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in _ALLOWED:
            raise pickle.UnpicklingError(f"it asks for {module}.{name}, which a data file has no use for")
        return _ALLOWED[module, name]


# what a damaged pickle raises inside the unpickler and numpy's set-state functions
_DAMAGE = (
    pickle.UnpicklingError,
    EOFError,
    ValueError,
    TypeError,
    IndexError,
    KeyError,
    AttributeError,
    OverflowError,
    MemoryError,
)


def _unpickle(path: str) -> dict[str, Any]:
    try:
        with open(path, "rb") as file:
            content = file.read()
    except OSError as e:
        raise DataError(
            f"read_cifar10: cannot read {path!r} ({e.strerror}). Unpack cifar-10-python.tar.gz again."
        ) from e
    try:
        batch = _ArraysOnly(io.BytesIO(content), encoding="bytes").load()
    except _DAMAGE as e:
        raise DataError(
            f"read_cifar10: {path!r} is not a CIFAR-10 batch or is damaged: {e}. Unpack cifar-10-python.tar.gz again."
        ) from e
    if not isinstance(batch, dict):
        raise DataError(
            f"read_cifar10: {path!r} holds a {type(batch).__name__}; expected a dict with data and labels. "
            "Give the batches of cifar-10-python.tar.gz."
        )
    return {_text(key): value for key, value in batch.items()}


def _text(key: object) -> str:
    return key.decode("latin-1") if isinstance(key, bytes) else str(key)
