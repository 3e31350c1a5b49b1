"""The data sets by name, each with the folders it is looked for in."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from typing import Any, Callable, Tuple, Union

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from ..errors import DataError
from .cifar10 import TEST_FILES, TRAIN_FILES, read_cifar10
from .idx import read_idx

Root = Union[str, "os.PathLike[str]"]
Split = Tuple[npt.NDArray[Any], npt.NDArray[Any]]

DEBIAN_FASHION_MNIST = "/usr/share/datasets/fashion-mnist"
MINI_FOLDER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "fashion_mnist_mini")
IDX_FILES = (
    "train-images-idx3-ubyte",
    "train-labels-idx1-ubyte",
    "t10k-images-idx3-ubyte",
    "t10k-labels-idx1-ubyte",
)

_DIGITS = tuple(str(digit) for digit in range(10))
_CLOTHES = (
    "T-shirt/top",
    "Trouser",
    "Pullover",
    "Dress",
    "Coat",
    "Sandal",
    "Shirt",
    "Sneaker",
    "Bag",
    "Ankle boot",
)
_OBJECTS = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")


@dataclass(frozen=True, eq=False)
class Dataset:
    """Labelled images in memory: images uint8 [N, C, H, W], labels int64 [N] in 0..num_classes-1."""

    name: str
    train_images: Tensor
    train_labels: Tensor
    test_images: Tensor
    test_labels: Tensor
    class_names: tuple[str, ...]
    source: str

    @property
    def num_classes(self) -> int:
        return len(self.class_names)

    @property
    def image_shape(self) -> tuple[int, int, int]:
        """[C, H, W] of one image."""
        channels, height, width = self.train_images.shape[1:]
        return channels, height, width

    def first(self, limit: int | None) -> Dataset:
        """The first `limit` images of each split; None keeps all."""
        if limit is None:
            return self
        return replace(
            self,
            train_images=self.train_images[:limit],
            train_labels=self.train_labels[:limit],
            test_images=self.test_images[:limit],
            test_labels=self.test_labels[:limit],
        )


def load(name: str, root: Root | None = None) -> Dataset:
    """Load a data set by name.

    Args: name, one of `NAMES`; root, the folder that holds the files or a sub-folder with them. Without it,
    `fashion-mnist` is found where Debian's package puts it; `fashion-mnist-mini` is part of this package.
    Raises: DataError for an unknown name, a missing root, and missing, damaged or inconsistent files.
    """
    if name not in _LOADERS:
        raise DataError(f"load({name!r}): unknown data set; expected one of {', '.join(NAMES)}.")
    if root is not None and not os.path.isdir(root):
        raise DataError(
            f"load({name!r}, root={os.fspath(root)!r}): no such folder. Give the folder that holds the data."
        )
    return _LOADERS[name](None if root is None else os.fspath(root))


def _fashion_mnist_mini(root: str | None) -> Dataset:
    return _from_idx("fashion-mnist-mini", MINI_FOLDER, _CLOTHES)


def _fashion_mnist(root: str | None) -> Dataset:
    folders = (*_under(root, "fashion-mnist", "FashionMNIST/raw"), DEBIAN_FASHION_MNIST)
    remedy = (
        "Give the folder of the four files (https://github.com/zalandoresearch/fashion-mnist) as root "
        "(--data-root), or install Debian's package dataset-fashion-mnist, which fills "
        f"{DEBIAN_FASHION_MNIST}."
    )
    return _from_idx("fashion-mnist", _find("fashion-mnist", folders, IDX_FILES, remedy), _CLOTHES)


def _mnist(root: str | None) -> Dataset:
    folders = _under(root, "mnist", "MNIST/raw")
    remedy = "Give the folder of the four MNIST files, plain or .gz, as root (--data-root)."
    return _from_idx("mnist", _find("mnist", folders, IDX_FILES, remedy), _DIGITS)


def _cifar10(root: str | None) -> Dataset:
    remedy = (
        "Unpack cifar-10-python.tar.gz (https://www.cs.toronto.edu/~kriz/cifar.html) and give its folder as "
        "root (--data-root)."
    )
    files = (*TRAIN_FILES, *TEST_FILES)
    folder = _find("cifar10", _under(root, "cifar-10-batches-py"), files, remedy)
    train, test = read_cifar10(folder)
    return _checked("cifar10", folder, train, test, _OBJECTS)


_LOADERS: dict[str, Callable[[str | None], Dataset]] = {
    "fashion-mnist-mini": _fashion_mnist_mini,
    "fashion-mnist": _fashion_mnist,
    "mnist": _mnist,
    "cifar10": _cifar10,
}
NAMES = tuple(_LOADERS)


def _under(root: str | None, *folders: str) -> tuple[str, ...]:
    return () if root is None else (root, *(os.path.join(root, folder) for folder in folders))


def _path(folder: str, file: str) -> str | None:
    paths = (os.path.join(folder, file), os.path.join(folder, file + ".gz"))
    return next((path for path in paths if os.path.isfile(path)), None)


def _find(name: str, folders: tuple[str, ...], files: tuple[str, ...], remedy: str) -> str:
    # the first folder with any of the files counts: an incomplete set is an error
    for folder in folders:
        missing = [file for file in files if _path(folder, file) is None]
        if not missing:
            return folder
        if len(missing) < len(files):
            raise DataError(f"load({name!r}): {folder} lacks {', '.join(missing)}. Complete the folder.")
    searched = f"not found in {', '.join(folders)}" if folders else "no folder was given"
    raise DataError(f"load({name!r}): {searched}. {remedy}")


def _from_idx(name: str, folder: str, class_names: tuple[str, ...]) -> Dataset:
    train_images, train_labels, test_images, test_labels = (
        read_idx(_path(folder, file) or os.path.join(folder, file)) for file in IDX_FILES
    )
    for file, images in ((IDX_FILES[0], train_images), (IDX_FILES[2], test_images)):
        if images.dtype != np.uint8 or images.ndim != 3 or images.size == 0:
            raise DataError(
                f"load({name!r}): {file} in {folder} holds {images.dtype}{list(images.shape)}; expected "
                "uint8 [N, H, W] with N > 0. Give the image file of the set."
            )
    train, test = (train_images[:, None], train_labels), (test_images[:, None], test_labels)
    return _checked(name, folder, train, test, class_names)


def _checked(name: str, folder: str, train: Split, test: Split, class_names: tuple[str, ...]) -> Dataset:
    for split, (images, labels) in (("training", train), ("test", test)):
        if labels.dtype.kind not in "iu" or labels.shape != images.shape[:1] or len(images) == 0:
            raise DataError(
                f"load({name!r}): the {split} files in {folder} hold {len(images)} images and labels "
                f"{labels.dtype}{list(labels.shape)}; expected one integer label for each of N > 0 images. "
                "Fetch the set again."
            )
        wrong = np.flatnonzero((labels < 0) | (labels >= len(class_names)))
        if len(wrong):
            raise DataError(
                f"load({name!r}): label {labels[wrong[0]]} of {split} image {wrong[0]} in {folder} is out of "
                f"range; expected 0 to {len(class_names) - 1}. Fetch the set again."
            )
    if train[0].shape[1:] != test[0].shape[1:]:
        raise DataError(
            f"load({name!r}): training images are {list(train[0].shape[1:])}, test images "
            f"{list(test[0].shape[1:])} in {folder}; expected one shape [C, H, W]. Fetch the set again."
        )
    return Dataset(
        name,
        train_images=torch.from_numpy(train[0]),
        train_labels=torch.from_numpy(train[1].astype(np.int64)),
        test_images=torch.from_numpy(test[0]),
        test_labels=torch.from_numpy(test[1].astype(np.int64)),
        class_names=class_names,
        source=folder,
    )
