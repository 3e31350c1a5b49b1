"""Write `fashion_mnist_mini/`: 600 training and 100 test images of each Fashion-MNIST class, by a fixed seed.

    python -m snn_ipu.data.make_fashion_mnist_mini [OUT_FOLDER]

Reads the set of Debian's package dataset-fashion-mnist, or the one under $FASHION_MNIST. The same zlib writes
the same bytes every time.
"""

from __future__ import annotations

import os
import sys

import numpy as np

from .idx import write_idx
from .sets import IDX_FILES, MINI_FOLDER, load

SEED = 0
PER_CLASS = {"train": 600, "test": 100}


def main(out: str = MINI_FOLDER) -> None:
    full = load("fashion-mnist", os.environ.get("FASHION_MNIST"))
    rng = np.random.RandomState(SEED)
    splits = (
        ("train", full.train_images, full.train_labels, IDX_FILES[:2]),
        ("test", full.test_images, full.test_labels, IDX_FILES[2:]),
    )
    os.makedirs(out, exist_ok=True)
    for split, images, labels, (images_file, labels_file) in splits:
        values = labels.numpy()
        chosen = np.concatenate(
            [rng.choice(np.flatnonzero(values == c), PER_CLASS[split], replace=False) for c in range(full.num_classes)]
        )
        chosen = rng.permutation(chosen)
        write_idx(os.path.join(out, images_file + ".gz"), images.numpy()[chosen, 0])
        write_idx(os.path.join(out, labels_file + ".gz"), values[chosen].astype(np.uint8))


if __name__ == "__main__":
    main(*sys.argv[1:2])
