"""The text datasets: MIT-BIH heartbeats as CSV, and the small UCI tables."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from gatewise.data.dataset import Dataset, Labels, Part, Samples, Splits
from gatewise.data.images import every_nth
from gatewise.data.source import Source, read_lines
from gatewise.errors import DataError


def load_ecg(row: Dataset, source: Source) -> Splits:
    """The heartbeat CSV files: 187 samples and a label a row."""
    train, test = (read_csv(source.path(f), row.shape[0], row.classes) for f in row.files)
    return Splits(*train, *test)


def read_csv(path: Path, features: int, classes: int) -> Part:
    """Numbers [n, features] and the labels in the last column; a bad cell is named by line and column."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", UserWarning)  # numpy warns about a file without rows
            rows = np.loadtxt(path, delimiter=",", dtype=np.float64, comments=None, ndmin=2)
    except (ValueError, UserWarning, OSError) as error:
        raise _csv_error(path, features, classes, str(error)) from error
    y = rows[:, -1]
    fits = rows.shape[1] == features + 1 and np.isfinite(rows).all() and np.isin(y, np.arange(classes)).all()
    if not fits:
        raise _csv_error(path, features, classes, "its shape")
    return np.ascontiguousarray(rows[:, :-1]), y.astype(np.int64)


def _csv_error(path: Path, features: int, classes: int, otherwise: str) -> DataError:
    """Find the first bad line of a file that did not parse, slowly: nobody waits for a good file here."""
    empty = True
    for number, line in enumerate(read_lines(path), 1):
        if not line.strip():
            continue
        empty = False
        cells = line.split(",")
        if len(cells) != features + 1:
            return DataError(
                f"line {number} of {path} has {len(cells)} columns, expected {features} values and a label: "
                f"fetch the file again"
            )
        for column, cell in enumerate(cells, 1):
            value = _number(cell)
            if value is None:
                return DataError(
                    f"line {number}, column {column} of {path} is {cell.strip()!r}, expected a finite number: "
                    f"fetch the file again"
                )
        if value not in range(classes):
            return DataError(
                f"line {number} of {path} ends with the label {cells[-1].strip()}, expected 0..{classes - 1}: "
                f"fetch the file again"
            )
    if empty:
        return DataError(f"{path} holds no rows, expected {features} values and a label a line: fetch the file again")
    return DataError(f"{path} cannot be read as comma-separated numbers ({otherwise}): fetch the file again")


def _number(cell: str) -> float | None:
    try:
        value = float(cell)
    except ValueError:
        return None
    return value if math.isfinite(value) else None


@dataclass(frozen=True)
class Layout:
    """How one publisher writes a table: the separator, and where in a line the label and the first feature stand."""

    separator: str | None
    label: int
    first: int
    cells: int
    labels: tuple[str, ...]
    """The label of each class, by class number."""


BREAST_CANCER = Layout(",", 0, 1, 10, ("no-recurrence-events", "recurrence-events"))
ADULT = Layout(",", 14, 0, 15, ("<=50K", ">50K"))
MONKS = Layout(None, 0, 1, 8, ("0", "1"))


def load_breast_cancer(row: Dataset, source: Source) -> Splits:
    """Rows with a missing value (`?`) are dropped; rows 0, 4, 8, … of each class are the test split."""
    x, y = read_table(source.path(row.files[0]), BREAST_CANCER, row)
    test = every_nth(y, 4)
    return Splits(x[~test], y[~test], x[test], y[test], row.columns)


def load_adult(row: Dataset, source: Source) -> Splits:
    """The publisher's two files; rows with a missing value (`?`) are dropped from both, as in DiffLogicNet's runs."""
    train, test = (read_table(source.path(f), ADULT, row) for f in row.files)
    return Splits(*train, *test, row.columns)


def load_monks(row: Dataset, source: Source) -> Splits:
    """The publisher's training rows, and its test file of all 432 combinations. The coded values stay text."""
    train, test = (read_table(source.path(f), MONKS, row) for f in row.files)
    return Splits(*train, *test, row.columns)


def read_table(path: Path, layout: Layout, row: Dataset) -> Part:
    """The features [n, D] of a UCI text table (objects if any column is text) and its labels."""
    numbers, rows = _split_lines(path, layout)
    if not rows:
        raise DataError(f"{path} holds no complete rows, expected {layout.cells} columns a line: fetch the file again")
    by_cell = list(zip(*rows, strict=True))
    labels = _labels(by_cell[layout.label], layout, numbers, path)
    x = np.empty((len(rows), len(row.columns)), dtype=object if any(row.categories) else np.float64)
    for j, (name, known) in enumerate(zip(row.columns, row.categories, strict=True)):
        cells = by_cell[layout.first + j]
        x[:, j] = _texts(cells, known, numbers, name, path) if known else _numbers(cells, numbers, name, path)
    return x, labels


def _split_lines(path: Path, layout: Layout) -> tuple[list[int], list[list[str]]]:
    """Line numbers and cells of the rows without a missing value; blank lines and Adult's `|` line are no rows."""
    numbers, rows = [], []
    for number, line in enumerate(read_lines(path), 1):
        if not line.strip() or line.startswith("|"):
            continue
        cells = [cell.strip() for cell in line.split(layout.separator)]
        if len(cells) != layout.cells:
            raise DataError(
                f"line {number} of {path} has {len(cells)} columns, expected {layout.cells}: fetch the file again"
            )
        if "?" not in cells:
            numbers.append(number)
            rows.append(cells)
    return numbers, rows


def _labels(cells: Sequence[str], layout: Layout, numbers: Sequence[int], path: Path) -> Labels:
    index = {label: i for i, label in enumerate(layout.labels)}
    # Adult's test file ends each label with a full stop.
    found = [index.get(cell.removesuffix("."), -1) for cell in cells]
    if -1 in found:
        at = found.index(-1)
        raise DataError(
            f"line {numbers[at]} of {path} has the label {cells[at]!r}, expected one of {', '.join(layout.labels)}: "
            f"fetch the file again"
        )
    return np.array(found, dtype=np.int64)


def _texts(cells: Sequence[str], known: tuple[str, ...], numbers: Sequence[int], name: str, path: Path) -> Samples:
    if not set(cells) <= set(known):
        at = next(i for i, cell in enumerate(cells) if cell not in known)
        raise DataError(
            f"line {numbers[at]}, column {name} of {path} is {cells[at]!r}, expected one of {', '.join(known)}: "
            f"fetch the file again"
        )
    return np.array(cells, dtype=object)


def _numbers(cells: Sequence[str], numbers: Sequence[int], name: str, path: Path) -> NDArray[np.float64]:
    values = [_number(cell) for cell in cells]
    if None in values:
        at = values.index(None)
        raise DataError(
            f"line {numbers[at]}, column {name} of {path} is {cells[at]!r}, expected a finite number: "
            f"fetch the file again"
        )
    return np.array(values, dtype=np.float64)
