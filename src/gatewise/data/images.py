"""The small image datasets: digits (inside the package) and MNIST (IDX files)."""

from __future__ import annotations

import gzip
import io
import math
import zlib
from importlib import resources
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from gatewise.data.dataset import Dataset, Labels, Splits
from gatewise.data.source import Source, read_bytes
from gatewise.errors import DataError

IMAGES_MAGIC, LABELS_MAGIC = 0x803, 0x801
"""An IDX file's first word: two zero bytes, 8 for unsigned bytes, then the number of dimensions."""


def every_nth(labels: Labels, step: int) -> NDArray[np.bool_]:
    """True for samples 0, step, 2·step, … of each class, in the order given: a stratified split without any chance."""
    chosen = np.zeros(len(labels), dtype=np.bool_)
    for label in np.unique(labels):
        chosen[np.flatnonzero(labels == label)[::step]] = True
    return chosen


def load_digits(row: Dataset, source: Source) -> Splits:
    """The 1,797 digits inside the package; samples 0, 5, 10, … of each class are the test split."""
    packed = resources.files("gatewise.data").joinpath("digits.npz").read_bytes()
    with np.load(io.BytesIO(packed), allow_pickle=False) as arrays:
        x, y = arrays["images"][:, None], arrays["labels"].astype(np.int64)
    test = every_nth(y, 5)
    return Splits(x[~test], y[~test], x[test], y[test])


def load_mnist(row: Dataset, source: Source) -> Splits:
    """MNIST's four IDX files, compressed or not; `row.files` lists train images, train labels, test images, labels."""
    paths = [source.path(f) for f in row.files]
    train_x, test_x = (read_idx(p, IMAGES_MAGIC)[:, None] for p in paths[::2])
    train_y, test_y = (read_idx(p, LABELS_MAGIC).astype(np.int64) for p in paths[1::2])
    return Splits(train_x, train_y, test_x, test_y)


def read_idx(path: Path, magic: int) -> NDArray[np.uint8]:
    """The array in an IDX file of unsigned bytes whose first word is `magic`."""
    data = _gunzip(path) if path.suffix == ".gz" else read_bytes(path)
    start = 4 + 4 * (magic & 0xFF)
    words = np.frombuffer(data[: min(start, len(data) // 4 * 4)], dtype=">u4").tolist()
    if not words or words[0] != magic:
        came = f"{words[0]:#010x}" if words else f"only {len(data)} bytes"
        raise DataError(f"{path} starts with {came}, expected the IDX magic {magic:#010x}: fetch the file again")
    expected = start + math.prod(words[1:])
    if len(data) != expected:  # also when the header itself is cut short, since `expected` is never below `start`
        raise DataError(f"{path} holds {len(data)} bytes, expected {expected} by its header: fetch the file again")
    return np.frombuffer(data, dtype=np.uint8)[start:].reshape(words[1:]).copy()


def _gunzip(path: Path) -> bytes:
    try:
        return gzip.decompress(read_bytes(path))
    except (EOFError, OSError, zlib.error) as error:
        raise DataError(
            f"{path} is truncated or no gzip file ({error}), expected a complete gzip file: fetch it again"
        ) from error
