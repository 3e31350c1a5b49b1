from __future__ import annotations

import gzip
import hashlib
import os
import pickle
import shutil
import subprocess
import sys
from collections import OrderedDict
from pathlib import Path

import numpy as np
import pytest
import torch

from snn_ipu.data import NAMES, Batches, load, sets
from snn_ipu.data.idx import read_idx, write_idx
from snn_ipu.errors import DataError, ShapeError

IDX_DTYPES = ["uint8", "int8", "int16", "int32", "float32", "float64"]
IDX_SHAPES = [(1,), (0,), (3, 0, 2), (5, 3, 7), (2, 1, 3, 1, 2)]  # least, empty, empty inside, odd, high rank


def header(code: int, *shape: int) -> bytes:
    return bytes([0, 0, code, len(shape)]) + b"".join(size.to_bytes(4, "big") for size in shape)


@pytest.mark.parametrize("dtype", IDX_DTYPES)
@pytest.mark.parametrize("shape", IDX_SHAPES, ids=str)
def test_idx__any_type_and_shape__reads_what_was_written(tmp_path: Path, dtype: str, shape: tuple) -> None:
    array = (np.arange(np.prod(shape)) % 100 - (0 if dtype == "uint8" else 50)).reshape(shape).astype(dtype)
    write_idx(tmp_path / "a.gz", array)
    read = read_idx(tmp_path / "a.gz")
    assert read.dtype == array.dtype and read.dtype.isnative and read.flags.writeable
    assert np.array_equal(read, array)


def test_write_idx__non_contiguous_big_endian_array__writes_its_values(tmp_path: Path) -> None:
    array = np.arange(24, dtype=">i4").reshape(4, 6)[::2, ::-1]
    write_idx(tmp_path / "a", array)
    assert np.array_equal(read_idx(tmp_path / "a"), array)


def test_write_idx__twice__gives_the_same_bytes(tmp_path: Path) -> None:
    for name in ("a.gz", "b.gz"):
        write_idx(tmp_path / name, np.arange(99, dtype=np.uint8))
    assert (tmp_path / "a.gz").read_bytes() == (tmp_path / "b.gz").read_bytes()


@pytest.mark.parametrize("array", [np.zeros(2, np.complex64), np.zeros((), np.uint8)], ids=["complex", "rank 0"])
def test_write_idx__what_idx_cannot_hold__raises(tmp_path: Path, array: np.ndarray) -> None:
    with pytest.raises(DataError, match="Convert the array first"):
        write_idx(tmp_path / "a", array)
    assert not (tmp_path / "a").exists()


@pytest.mark.parametrize("name", ["a", "a.gz"])
def test_read_idx__plain_or_gzip__is_told_by_content(tmp_path: Path, name: str) -> None:
    content = header(8, 2, 2) + b"\1\2\3\4"
    (tmp_path / "plain").write_bytes(content)
    (tmp_path / name).write_bytes(gzip.compress(content))
    for path in (tmp_path / "plain", tmp_path / name):
        assert read_idx(path).tolist() == [[1, 2], [3, 4]]


BROKEN = {
    "empty": (b"", "begins with bytes \\(none\\)"),
    "other magic": (b"\x89PNG....", "begins with bytes 89504e47"),
    "unknown type": (header(7, 1) + b"\0", "a type"),
    "no dimensions": (header(8), "1 to 32 dimensions"),
    "rank above numpy's": (bytes([0, 0, 8, 200]) + bytes(800), "1 to 32 dimensions"),
    "short header": (header(8, 2, 2)[:-1], "truncated in its header"),
    "short data": (
        header(8, 2, 2) + b"123",
        "truncated: the header says \\[2, 2\\] of uint8, 4 bytes, got 3",
    ),
    "huge claim": (header(0x0E, *[2**32 - 1] * 3), "truncated"),
    "trailing bytes": (header(8, 2, 2) + b"12345", "trailing bytes"),
}


@pytest.mark.parametrize("pack", [bytes, gzip.compress], ids=["plain", "gzip"])
@pytest.mark.parametrize("case", BROKEN)
def test_read_idx__broken_file__names_file_fault_and_remedy(tmp_path: Path, case: str, pack: type) -> None:
    content, message = BROKEN[case]
    path = tmp_path / "labels"
    path.write_bytes(pack(content))
    with pytest.raises(DataError, match=message) as error:
        read_idx(path)
    assert repr(str(path)) in str(error.value)
    assert str(error.value).endswith(("Fetch the file again.", "Give an IDX file."))


def test_read_idx__damaged_gzip__raises(tmp_path: Path) -> None:
    whole = gzip.compress(header(8, 500) + np.random.RandomState(0).bytes(500))
    flipped = bytearray(whole)
    flipped[100] ^= 0xFF
    for content in (whole[:-9], whole[:60], whole[:5], bytes(flipped), whole + b"x"):
        (tmp_path / "a.gz").write_bytes(content)
        with pytest.raises(DataError, match="gzip data is truncated or damaged"):
            read_idx(tmp_path / "a.gz")


def test_read_idx__missing_file_or_folder__raises(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="No such file"):
        read_idx(tmp_path / "nothing")
    with pytest.raises(DataError, match="Is a directory"):
        read_idx(tmp_path)


def write_idx_set(folder: Path, *, train: int = 7, test: int = 3, plain: bool = False) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for file, size in zip(sets.IDX_FILES, (train, train, test, test)):
        array = np.arange(size * 28 * 28).reshape(size, 28, 28) if "images" in file else np.arange(size) % 10
        path = folder / (file if plain else file + ".gz")
        write_idx(path, array.astype(np.uint8))
        if plain:
            path.write_bytes(gzip.decompress(path.read_bytes()))


@pytest.mark.parametrize("name", ["mnist", "fashion-mnist"])
@pytest.mark.parametrize("plain", [True, False], ids=["plain", "gzip"])
@pytest.mark.parametrize("nested", [True, False], ids=["sub-folder", "root"])
def test_load__idx_files_under_root__are_read(tmp_path: Path, name: str, plain: bool, nested: bool) -> None:
    folder = tmp_path / ({"mnist": "MNIST/raw", "fashion-mnist": "FashionMNIST/raw"}[name] if nested else "")
    write_idx_set(folder, plain=plain)
    data = load(name, tmp_path)
    assert data.name == name and os.path.samefile(data.source, folder)
    assert data.train_images.shape == (7, 1, 28, 28) and data.train_images.dtype == torch.uint8
    assert data.train_labels.tolist() == list(range(7)) and data.train_labels.dtype == torch.int64
    assert data.test_images.shape == (3, 1, 28, 28) and data.test_labels.tolist() == [0, 1, 2]
    assert data.num_classes == 10 and data.image_shape == (1, 28, 28)
    assert data.train_images[0, 0, 1, 2] == 30


def test_load__root_lacks_one_file__names_it(tmp_path: Path) -> None:
    write_idx_set(tmp_path)
    (tmp_path / "t10k-labels-idx1-ubyte.gz").unlink()
    with pytest.raises(DataError, match=r"lacks t10k-labels-idx1-ubyte\. Complete the folder"):
        load("fashion-mnist", tmp_path)


def test_load__fashion_mnist_nowhere__names_the_debian_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sets, "DEBIAN_FASHION_MNIST", str(tmp_path / "absent"))
    with pytest.raises(DataError, match="package dataset-fashion-mnist") as error:
        load("fashion-mnist", tmp_path)
    assert str(tmp_path / "absent") in str(error.value)


def test_load__fashion_mnist_without_root__uses_the_debian_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_idx_set(tmp_path / "debian")
    monkeypatch.setattr(sets, "DEBIAN_FASHION_MNIST", str(tmp_path / "debian"))
    assert load("fashion-mnist").source == str(tmp_path / "debian")
    (tmp_path / "own").mkdir()
    assert load("fashion-mnist", tmp_path / "own").source == str(tmp_path / "debian")


def test_load__unknown_name_or_root__raises(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="expected one of fashion-mnist-mini, fashion-mnist, mnist, cifar10"):
        load("imagenet", tmp_path)
    with pytest.raises(DataError, match="no such folder"):
        load("mnist", tmp_path / "absent")
    with pytest.raises(DataError, match=r"no folder was given\. Give the folder of the four MNIST files"):
        load("mnist")


def test_load__label_out_of_range__names_image_and_range(tmp_path: Path) -> None:
    write_idx_set(tmp_path)
    write_idx(tmp_path / "t10k-labels-idx1-ubyte.gz", np.array([1, 10, 2], np.uint8))
    with pytest.raises(DataError, match=r"label 10 of test image 1 .* expected 0 to 9"):
        load("mnist", tmp_path)


@pytest.mark.parametrize(
    ("file", "array", "message"),
    [
        ("train-labels-idx1-ubyte", np.zeros(6, np.uint8), r"7 images and labels uint8\[6\]"),
        ("train-labels-idx1-ubyte", np.zeros(7, np.float32), r"labels float32\[7\]"),
        (
            "train-images-idx3-ubyte",
            np.zeros((7, 28), np.uint8),
            r"uint8\[7, 28\]; expected uint8 \[N, H, W\]",
        ),
        ("train-images-idx3-ubyte", np.zeros((0, 28, 28), np.uint8), "N > 0"),
        ("t10k-images-idx3-ubyte", np.zeros((3, 14, 28), np.uint8), r"test images \[1, 14, 28\]"),
    ],
)
def test_load__files_that_do_not_fit_together__raise(
    tmp_path: Path, file: str, array: np.ndarray, message: str
) -> None:
    write_idx_set(tmp_path)
    write_idx(tmp_path / (file + ".gz"), array)
    with pytest.raises(DataError, match=message):
        load("mnist", tmp_path)


def test_fashion_mnist_mini__as_packaged__is_balanced_and_the_committed_images() -> None:
    data = load("fashion-mnist-mini")
    assert data.train_images.shape == (6000, 1, 28, 28) and data.test_images.shape == (1000, 1, 28, 28)
    assert torch.bincount(data.train_labels).tolist() == [600] * 10
    assert torch.bincount(data.test_labels).tolist() == [100] * 10
    assert len(torch.unique(torch.cat([data.train_images, data.test_images]), dim=0)) > 6990
    assert len(torch.unique(data.train_labels[:100])) == 10  # mixed, so a prefix is a fair sample
    content = data.train_images.numpy().tobytes() + data.test_images.numpy().tobytes()
    assert hashlib.sha256(content).hexdigest() == MINI_SHA256
    files = {path.name: path.stat().st_size for path in Path(sets.MINI_FOLDER).iterdir()}
    assert {"LICENSE", "README.md"} < set(files) and sum(files.values()) < 3_500_000
    assert "Zalando SE" in (Path(sets.MINI_FOLDER) / "LICENSE").read_text(encoding="utf-8")


MINI_SHA256 = "525a3607dfc2ee5409cbe9ac9b9a44a3b337d1c983ccea78891644ef0b50f380"


def test_make_fashion_mnist_mini__small_set__takes_a_fixed_balanced_choice(tmp_path: Path) -> None:
    full = tmp_path / "full"
    full.mkdir()
    for split, per_class in (("train", 610), ("t10k", 100)):
        labels = np.arange(per_class * 10) % 10
        images = np.arange(per_class * 10 * 4).reshape(-1, 2, 2)
        write_idx(full / f"{split}-images-idx3-ubyte.gz", images.astype(np.uint8))
        write_idx(full / f"{split}-labels-idx1-ubyte.gz", labels.astype(np.uint8))
    outs = [tmp_path / "a", tmp_path / "b"]
    for out in outs:
        command = [sys.executable, "-m", "snn_ipu.data.make_fashion_mnist_mini", str(out)]
        subprocess.run(command, check=True, env={**os.environ, "FASHION_MNIST": str(full)})
    for file in sets.IDX_FILES:
        assert (outs[0] / f"{file}.gz").read_bytes() == (outs[1] / f"{file}.gz").read_bytes()
    made = load("mnist", outs[0])
    assert torch.bincount(made.train_labels).tolist() == [600] * 10
    assert torch.bincount(made.test_labels).tolist() == [100] * 10


def write_cifar(folder: Path, *, protocol: int = 4, keys: type = bytes, size: int = 3) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    rng = np.random.RandomState(1)
    for name in (*sets.TRAIN_FILES, *sets.TEST_FILES):
        batch = {"data": rng.randint(0, 256, (size, 3072)).astype(np.uint8), "labels": [1, 9, 0][:size]}
        batch["filenames"] = [b"a.png"] * size
        content = {key.encode() if keys is bytes else key: value for key, value in batch.items()}
        (folder / name).write_bytes(pickle.dumps(content, protocol))


@pytest.mark.parametrize("protocol", [0, 2, 4, 5])
@pytest.mark.parametrize("keys", [bytes, str])
def test_cifar10__any_pickle_protocol__is_read(tmp_path: Path, protocol: int, keys: type) -> None:
    write_cifar(tmp_path / "cifar-10-batches-py", protocol=protocol, keys=keys)
    data = load("cifar10", tmp_path)
    assert data.train_images.shape == (15, 3, 32, 32) and data.test_images.shape == (3, 3, 32, 32)
    assert data.train_labels.tolist() == [1, 9, 0] * 5 and data.class_names[9] == "truck"
    first = np.random.RandomState(1).randint(0, 256, (3, 3072)).astype(np.uint8)
    assert torch.equal(data.train_images[0], torch.from_numpy(first[0].reshape(3, 32, 32)))


def test_cifar10__pickle_of_python_2__is_read(tmp_path: Path) -> None:
    write_cifar(tmp_path)
    # what cPickle under Python 2 writes: one-byte strings and the numpy names of that time
    text = bytes(range(256)) * 12
    head = b"cnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\n(I0\ntU\x01btR(I1\n(I1\nI3072\nt"
    dtype = b"cnumpy\ndtype\n(U\x02u1I0\nI1\ntR(I3\nU\x01|NNNI-1\nI-1\nI0\ntb"
    array = head + dtype + b"I00\nT" + (3072).to_bytes(4, "little") + text + b"tb"
    (tmp_path / "test_batch").write_bytes(b"\x80\x02}(U\x04data" + array + b"U\x06labels](K\x07eu.")
    data = load("cifar10", tmp_path)
    assert data.test_labels.tolist() == [7]
    assert data.test_images.flatten().tolist() == list(text)


class Runs:
    def __init__(self, flag: Path) -> None:
        self.flag = flag

    def __reduce__(self) -> tuple:
        return os.mkdir, (str(self.flag),)


@pytest.mark.parametrize("protocol", [0, 4])
def test_cifar10__pickle_that_names_a_function__is_refused_and_not_run(tmp_path: Path, protocol: int) -> None:
    write_cifar(tmp_path)
    flag = tmp_path / "ran"
    (tmp_path / "data_batch_3").write_bytes(pickle.dumps({b"data": Runs(flag)}, protocol))
    with pytest.raises(DataError, match=r"data_batch_3.*asks for posix\.mkdir"):
        load("cifar10", tmp_path)
    assert not flag.exists()


IMAGES = np.zeros((2, 3072), np.uint8)
WRONG_BATCHES = {
    "a list": ([1, 2], "holds a list"),
    "no data": ({b"labels": [1]}, "data of type NoneType"),
    "float data": ({b"data": IMAGES.astype(np.float32), b"labels": [1, 2]}, r"float32\[2, 3072\]"),
    "narrow data": ({b"data": IMAGES[:, :9], b"labels": [1, 2]}, r"uint8\[2, 9\]"),
    "no labels": ({b"data": IMAGES}, "labels of type NoneType for 2 images"),
    "few labels": ({b"data": IMAGES, b"labels": [1]}, "labels a list of 1 for 2 images"),
    "text labels": ({b"data": IMAGES, b"labels": ["a", "b"]}, "expected one integer"),
    "float labels": ({b"data": IMAGES, b"labels": np.zeros(2)}, r"labels float64\[2\]"),
    "label too large": ({b"data": IMAGES, b"labels": [0, 10]}, "label 10 of test image 1"),
    "negative label": ({b"data": IMAGES, b"labels": [-1, 0]}, "label -1 of test image 0"),
    "another type": (OrderedDict(data=IMAGES), "asks for collections.OrderedDict"),
}


@pytest.mark.parametrize("case", WRONG_BATCHES)
def test_cifar10__wrong_batch__names_file_and_fault(tmp_path: Path, case: str) -> None:
    write_cifar(tmp_path)
    batch, message = WRONG_BATCHES[case]
    (tmp_path / "test_batch").write_bytes(pickle.dumps(batch))
    with pytest.raises(DataError, match=message):
        load("cifar10", tmp_path)


def test_cifar10__damaged_at_any_place__raises_or_reads(tmp_path: Path) -> None:
    write_cifar(tmp_path, size=1)
    whole = (tmp_path / "test_batch").read_bytes()
    cuts = [whole[:end] for end in (0, 1, 20, 150, len(whole) - 1)]
    rng = np.random.RandomState(3)
    flips = []
    for _ in range(150):
        flipped = bytearray(whole)
        at = int(rng.randint(200)) - 30  # the structure; pixels in between may hold any value
        flipped[at] = int(rng.randint(256))
        flips.append(bytes(flipped))
    refused = 0
    for content in cuts + flips:
        (tmp_path / "test_batch").write_bytes(content)
        try:
            assert len(load("cifar10", tmp_path).test_images) == 1
        except DataError:
            refused += 1
    assert refused >= len(cuts)


def test_cifar10__missing_batch_or_folder__raises(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"Unpack cifar-10-python\.tar\.gz"):
        load("cifar10", tmp_path)
    write_cifar(tmp_path)
    (tmp_path / "data_batch_2").unlink()
    with pytest.raises(DataError, match="lacks data_batch_2"):
        load("cifar10", tmp_path)


def test_dataset__first__limits_both_splits() -> None:
    data = load("fashion-mnist-mini")
    few = data.first(7)
    assert len(few.train_images) == len(few.train_labels) == len(few.test_images) == len(few.test_labels) == 7
    assert torch.equal(few.train_images, data.train_images[:7]) and few.class_names == data.class_names
    assert len(data.first(None).train_images) == 6000 and len(data.first(10**9).test_images) == 1000


def numbered(size: int) -> Batches:
    images = torch.arange(size, dtype=torch.uint8)[:, None, None, None].expand(size, 1, 2, 3)
    return Batches(images, torch.arange(size), 4, seed=5)


def labels_of(batches: Batches, epoch: int, start: int = 0) -> list:
    return [labels.tolist() for _, labels in batches.epoch(epoch, start)]


@pytest.mark.parametrize("size", [0, 3, 4, 10])  # empty, less than one batch, exact, partial last batch
@pytest.mark.parametrize("drop_last", [True, False])
def test_batches__every_size__cover_each_image_once(size: int, drop_last: bool) -> None:
    batches = numbered(size)
    batches.drop_last = drop_last
    met = labels_of(batches, 0)
    expected = [4] * (size // 4) + ([size % 4] if size % 4 and not drop_last else [])
    assert [len(labels) for labels in met] == expected and len(batches) == len(expected)
    flat = [label for labels in met for label in labels]
    assert len(set(flat)) == len(flat) and (drop_last or sorted(flat) == list(range(size)))


def test_batches__order__depends_on_seed_and_epoch_alone() -> None:
    batches = numbered(50)
    torch.manual_seed(0)
    first = labels_of(batches, 3)
    torch.manual_seed(1)
    np.random.seed(1)
    assert labels_of(batches, 3) == first and labels_of(numbered(50), 3) == first
    assert labels_of(batches, 4) != first
    other = Batches(batches.images, batches.labels, 4, seed=6)
    assert labels_of(other, 3) != first
    assert labels_of(batches, 3, start=9) == first[9:] and labels_of(batches, 3, start=13) == []


def test_batches__without_shuffle__keep_the_stored_order() -> None:
    batches = Batches(torch.zeros(5, 1, 2, 2), torch.arange(5), 2, shuffle=False)
    assert labels_of(batches, 0) == labels_of(batches, 1) == [[0, 1], [2, 3], [4]]
    assert [labels.tolist() for _, labels in batches] == [[0, 1], [2, 3], [4]]


def test_batches__images__become_float32_between_0_and_1() -> None:
    images = torch.tensor([0, 51, 255], dtype=torch.uint8).reshape(3, 1, 1, 1)
    (x, y), *_ = Batches(images, torch.arange(3, dtype=torch.int32), 3, shuffle=False)
    assert x.dtype == torch.float32 and y.dtype == torch.int64
    assert x.flatten().tolist() == [0.0, pytest.approx(0.2), 1.0]
    assert images.flatten().tolist() == [0, 51, 255]
    half = torch.full((1, 1, 1, 1), 0.25, dtype=torch.float64)
    (x, _), *_ = Batches(half, torch.zeros(1), 1)
    assert x.dtype == torch.float32 and x.item() == 0.25


@pytest.mark.parametrize(
    ("images", "labels", "options"),
    [
        (torch.zeros(3, 1, 2, 2), torch.zeros(4), {"batch_size": 1}),
        (torch.zeros(3, 4), torch.zeros(3), {"batch_size": 1}),
        (torch.zeros(3, 1, 2, 2), torch.zeros(3), {"batch_size": 0}),
        (torch.zeros(3, 1, 2, 2), torch.zeros(3), {"batch_size": 1, "seed": -1}),
    ],
)
def test_batches__arguments_that_do_not_fit__raise(images: torch.Tensor, labels: torch.Tensor, options: dict) -> None:
    with pytest.raises(ShapeError, match=r"Batches\("):
        Batches(images, labels, **options)


def test_names__all__have_a_clear_outcome_without_root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sets, "DEBIAN_FASHION_MNIST", str(tmp_path / "absent"))
    for name in NAMES:
        if name == "fashion-mnist-mini":
            assert load(name).num_classes == 10
        else:
            with pytest.raises(DataError, match="--data-root"):
                load(name)


def test_load__unreadable_folder_of_batches__raises(tmp_path: Path) -> None:
    write_cifar(tmp_path)
    shutil.copytree(tmp_path, tmp_path / "copy")
    (tmp_path / "copy" / "data_batch_1").unlink()
    os.symlink("data_batch_1", tmp_path / "copy" / "data_batch_1")
    with pytest.raises(DataError, match="lacks data_batch_1"):
        load("cifar10", tmp_path / "copy")
