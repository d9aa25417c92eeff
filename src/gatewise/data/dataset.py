"""The types every loader shares: one row of the dataset table, and what loading it gives."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from gatewise.errors import DataError

if TYPE_CHECKING:
    from gatewise.data.source import Source

Progress = Callable[[int, int], None]
"""Called with (done, total) during slow work: bytes of a download, or images decoded."""

Samples = NDArray[Any]
Labels = NDArray[np.int64]
Part = tuple[Samples, Labels]


@dataclass(frozen=True)
class File:
    """One file of a dataset: its name, the folders it may lie in (the first is where downloads go) and its origin."""

    name: str
    folders: tuple[str, ...] = ("",)
    url: str | None = None
    checksum: str | None = None
    """`md5:…` or `sha256:…` of the publisher's file; only downloads are compared with it."""
    unpacked: str | None = None
    """The name of the file or folder inside it, which will do as well."""

    def places(self) -> tuple[str, ...]:
        """Where it may lie in a folder of data."""
        names = (self.name, self.unpacked) if self.unpacked else (self.name,)
        return tuple(f"{folder}/{name}".lstrip("/") for folder in self.folders for name in names)


@dataclass(frozen=True)
class Splits:
    """A loaded dataset. Images are uint8 [n, C, H, W], signals float64 [n, D], tables float64 or object [n, D]."""

    train_x: Samples
    train_y: Labels
    test_x: Samples
    test_y: Labels
    columns: tuple[str, ...] = ()
    """The names of a table's columns; empty for images and signals."""
    levels: int | None = None
    """How many different values a byte of an image still has in a packed dataset; None in the original."""


@dataclass(frozen=True)
class Dataset:
    """One row of `DATASETS`."""

    name: str
    kind: str
    """`image`, `signal` or `table`."""
    shape: tuple[int, ...]
    """The shape of one raw sample."""
    classes: int
    load: Callable[[Dataset, Source], Splits]
    source: str
    licence: str
    files: tuple[File, ...] = ()
    low: float | None = None
    """The smallest raw value, from which equal thresholds start; None for tables."""
    high: float | None = None
    columns: tuple[str, ...] = ()
    categories: tuple[tuple[str, ...] | None, ...] = ()
    """For each column of a table the values its publisher lists, or None for a numeric column."""
    augmentation: str = "none"
    """A name in `gatewise.data.augment.AUGMENTATIONS`."""
    fetch: str = ""
    """What to fetch by hand, for a dataset that cannot be downloaded without a login."""


def check_splits(row: Dataset, splits: Splits) -> Splits:
    """Return `splits` if shapes and labels are what `row` promises, else raise a DataError."""
    for part, x, y in (("train", splits.train_x, splits.train_y), ("test", splits.test_x, splits.test_y)):
        if len(x) == 0:
            raise DataError(f"the {part} split of {row.name} is empty: check that its files are complete")
        if x.shape[1:] != row.shape or y.shape != (len(x),):
            raise DataError(
                f"the {part} split of {row.name} has samples of shape {x.shape[1:]} and {len(y)} labels for {len(x)} "
                f"samples, expected shape {row.shape} and one label a sample: check that its files are the publisher's"
            )
        wrong = np.flatnonzero((y < 0) | (y >= row.classes))
        if len(wrong):
            raise DataError(
                f"label {y[wrong[0]]} of sample {wrong[0]} in the {part} split of {row.name} is out of range, "
                f"expected 0..{row.classes - 1}: check that its files are the publisher's"
            )
    return splits
