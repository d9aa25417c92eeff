"""Real features → bits. An encoder is a value: fitting gives another one, which is saved with the model.

Every encoder has `input_shape`, `bit_shape`, `fit(x)`, `transform(x) -> bool [n, *bit_shape]`, and `header()` and
`arrays()`, from which `encoder_from` makes it again. Everything here is numpy.

n samples, N levels (thresholds), D features of one sample, C channels, H rows, W columns.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from numbers import Real
from typing import Any, NoReturn, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from gatewise.errors import EncodingError

Shape = tuple[int, ...]
Bits = NDArray[np.bool_]
Floats = NDArray[np.float64]
Samples = NDArray[Any]

_MAX_DIMENSIONS = 16


class Encoder(Protocol):
    """What all encoders offer."""

    @property
    def input_shape(self) -> Shape: ...
    @property
    def bit_shape(self) -> Shape: ...
    def fit(self, x: ArrayLike) -> Encoder: ...
    def transform(self, x: ArrayLike) -> Bits: ...
    def header(self) -> dict[str, Any]: ...
    def arrays(self) -> dict[str, NDArray[Any]]: ...


@dataclass(frozen=True, eq=False)
class Thermometer:
    """One bit for each threshold a value lies above (strictly).

    `thresholds` is float64 [N], the same for all features, or [N, D], with a column for each feature of the flattened
    sample; it is in the raw units of the samples. Bits are plane-major: a shape (C, H, W) becomes (N·C, H, W), the C
    channels of the first threshold before those of the second, and (D,) becomes (N·D,).
    """

    thresholds: Floats
    input_shape: Shape

    def __post_init__(self) -> None:
        t, shape = np.array(self.thresholds, dtype=np.float64), _checked_shape(self.input_shape)
        if t.ndim not in (1, 2) or len(t) == 0 or (t.ndim == 2 and t.shape[1] != math.prod(shape)):
            raise EncodingError(
                f"thresholds have shape {t.shape}, expected (levels,) or (levels, {math.prod(shape)}) for samples of "
                f"shape {shape}"
            )
        if not np.isfinite(t).all():
            raise EncodingError("a threshold is not finite: give finite numbers")
        t.setflags(write=False)
        object.__setattr__(self, "thresholds", t)
        object.__setattr__(self, "input_shape", shape)

    @classmethod
    def equal(cls, levels: int, low: float, high: float, shape: Shape) -> Thermometer:
        """Thresholds at i / (levels + 1) of the way from `low` to `high`, for i = 1..levels."""
        _check_levels(levels)
        if not (math.isfinite(low) and math.isfinite(high) and low < high):
            raise EncodingError(f"the range of values is {low}..{high}, expected two finite numbers, the lower first")
        # Multiplying first keeps every threshold exact that is a whole number.
        steps = np.arange(1, levels + 1, dtype=np.float64)
        return cls(low + (high - low) * steps / (levels + 1), shape)

    @classmethod
    def quantile(cls, levels: int, shape: Shape) -> QuantileThermometer:
        """A thermometer whose thresholds, for each feature apart, come from the samples given to `fit`."""
        return QuantileThermometer(levels, shape)

    @property
    def levels(self) -> int:
        """The number of thresholds, N."""
        return len(self.thresholds)

    @property
    def bit_shape(self) -> Shape:
        return _plane_shape(self.levels, self.input_shape)

    def fit(self, x: ArrayLike) -> Thermometer:
        """Check `x`; the thresholds stay. To learn them anew, fit `Thermometer.quantile` again."""
        _numbers(x, self.input_shape)
        return self

    def transform(self, x: ArrayLike) -> Bits:
        """The bits of samples [n, *input_shape]."""
        samples = _numbers(x, self.input_shape)
        first = self.input_shape[0]
        bits = np.empty((len(samples), *self.bit_shape), dtype=np.bool_)
        for i, threshold in enumerate(self.thresholds):
            # At least one axis, so that no numpy version takes a float64 threshold down to float32 samples.
            per_feature = threshold.reshape(self.input_shape if threshold.ndim else (1,) * len(self.input_shape))
            _above(samples, per_feature, bits[:, i * first : (i + 1) * first])
        return bits

    def header(self) -> dict[str, Any]:
        return {"kind": "thermometer", "input_shape": list(self.input_shape)}

    def arrays(self) -> dict[str, NDArray[Any]]:
        return {"thresholds": self.thresholds}


def Rounding(low: float, high: float, shape: Shape) -> Thermometer:
    """The nearest of two values: one threshold halfway between `low` and `high`."""
    return Thermometer.equal(1, low, high, shape)


@dataclass(frozen=True)
class QuantileThermometer:
    """A thermometer that still has to see samples: `fit` gives a Thermometer with `levels` thresholds a feature.

    A feature with too few distinct values for that repeats its highest threshold, since all features have as many bits.
    """

    levels: int
    input_shape: Shape

    def __post_init__(self) -> None:
        _check_levels(self.levels)
        object.__setattr__(self, "input_shape", _checked_shape(self.input_shape))

    @property
    def bit_shape(self) -> Shape:
        return _plane_shape(self.levels, self.input_shape)

    def fit(self, x: ArrayLike) -> Thermometer:
        """The thermometer whose thresholds part `x` as evenly as can be."""
        samples = _numbers(x, self.input_shape)
        _check_not_empty(samples)
        columns = samples.reshape(len(samples), -1).T
        thresholds = np.empty((self.levels, len(columns)))
        for j, column in enumerate(columns):
            found = quantile_thresholds(column, self.levels)
            found = found if len(found) else np.array([column.max()], dtype=np.float64)
            thresholds[:, j] = np.pad(found, (0, self.levels - len(found)), mode="edge")
        return Thermometer(thresholds, self.input_shape)

    def transform(self, x: ArrayLike) -> Bits:
        _not_fitted()

    def header(self) -> dict[str, Any]:
        _not_fitted()

    def arrays(self) -> dict[str, NDArray[Any]]:
        _not_fitted()


def quantile_thresholds(column: Samples, levels: int) -> Floats:
    """Up to `levels` distinct values of `column` that part it into parts of as equal a size as can be.

    They are quantiles. Where one frequent value (such as the zeros of an amount that few people have) would take
    several of them, frequent values count for less, by halves, until all are distinct; so a rare tail keeps its bits.
    A column with no more than levels + 1 distinct values gets a threshold between any two.
    """
    values, counts = np.unique(column, return_counts=True)
    if len(values) <= levels + 1:
        return values[:-1].astype(np.float64)
    most = int(counts.max())
    while True:
        total = np.cumsum(np.minimum(counts, most))
        # The first value at or below which at least i / (levels + 1) of the samples lie, in whole numbers.
        at = np.searchsorted(total * (levels + 1), total[-1] * np.arange(1, levels + 1))
        if most == 1 or (len(np.unique(at)) == levels and at[-1] < len(values) - 1):
            thresholds: Floats = values[at].astype(np.float64)
            return thresholds
        most = max(1, most // 2)


@dataclass(frozen=True)
class Numeric:
    """A numeric column of a table: a bit for each threshold, up to `levels` of them, learned unless given."""

    name: str
    levels: int
    thresholds: tuple[float, ...] | None = None


@dataclass(frozen=True)
class Category:
    """A column of a table with a bit for each value, in the order of `values`, learned (and sorted) unless given."""

    name: str
    values: tuple[str, ...] | None = None


Column = Numeric | Category


@dataclass(frozen=True)
class TableEncoder:
    """Rows of a table: the bits of the first column, then those of the second, and so on."""

    columns: tuple[Column, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "columns", tuple(self.columns))
        names = [c.name for c in self.columns]
        if not names or len(set(names)) < len(names):
            raise EncodingError(f"the columns are named {names}, expected at least one and each name once")
        for column in self.columns:
            _check_column(column)

    @classmethod
    def mixed(cls, names: Sequence[str], categories: Sequence[Sequence[str] | None], levels: int) -> TableEncoder:
        """Columns as a dataset row lists them: None is numeric, () a category to learn, else the category's values."""
        if len(names) != len(categories):
            raise EncodingError(f"there are {len(names)} names for {len(categories)} columns, expected one each")
        pairs = zip(names, categories, strict=True)
        return cls(tuple(Numeric(n, levels) if c is None else Category(n, tuple(c) or None) for n, c in pairs))

    @property
    def input_shape(self) -> Shape:
        return (len(self.columns),)

    @property
    def bit_shape(self) -> Shape:
        return (sum(len(_known(c)) for c in self.columns),)

    def bit_names(self) -> tuple[str, ...]:
        """What each bit says, as `age > 37` or `sex = Male`."""
        return tuple(
            f"{c.name} {'>' if isinstance(c, Numeric) else '='} {_short(v)}" for c in self.columns for v in _known(c)
        )

    def fit(self, x: ArrayLike) -> TableEncoder:
        """The encoder with what was still open learned from `x`; what was given stays."""
        table = _table(x, len(self.columns))
        _check_not_empty(table)
        fitted = TableEncoder(tuple(_fit_column(c, table[:, j]) for j, c in enumerate(self.columns)))
        if fitted.bit_shape == (0,):
            raise EncodingError("no column has two different values, so there are no bits: give more varied rows")
        return fitted

    def transform(self, x: ArrayLike) -> Bits:
        """The bits of rows [n, columns]."""
        table = _table(x, len(self.columns))
        return np.concatenate([_encode_column(c, table[:, j]) for j, c in enumerate(self.columns)], axis=1)

    def header(self) -> dict[str, Any]:
        columns: list[dict[str, Any]] = [
            {"name": c.name, "levels": c.levels, "thresholds": len(_known(c))}
            if isinstance(c, Numeric)
            else {"name": c.name, "values": list(_known(c))}
            for c in self.columns
        ]
        return {"kind": "table", "columns": columns}

    def arrays(self) -> dict[str, NDArray[Any]]:
        thresholds = [t for c in self.columns if isinstance(c, Numeric) for t in _known(c)]
        return {"thresholds": np.array(thresholds, dtype=np.float64)}


def OneHot(columns: Sequence[str], categories: Sequence[Sequence[str]] | None = None) -> TableEncoder:
    """A table of categories only, with the values of each column unless `fit` shall learn them."""
    return TableEncoder.mixed(columns, categories or [()] * len(columns), 1)


def encoder_from(header: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> Encoder:
    """The encoder that gave this `header()` and these `arrays()`."""
    kind = header.get("kind") if isinstance(header, Mapping) else None
    thresholds = arrays.get("thresholds")
    if not isinstance(thresholds, np.ndarray) or thresholds.dtype != np.float64:
        raise EncodingError("the saved encoder has no float64 array `thresholds`: save the model again")
    if kind == "thermometer":
        return Thermometer(thresholds, _entry(header, "input_shape", list))
    if kind == "table":
        return _table_from(_entry(header, "columns", list), thresholds)
    raise EncodingError(f"the saved encoder is of kind {kind!r}, expected thermometer or table: save the model again")


def _table_from(entries: list[Any], thresholds: Floats) -> TableEncoder:
    columns: list[Column] = []
    used = 0
    for entry in entries:
        name = _entry(entry, "name", str)
        if "values" in entry:
            columns.append(Category(name, tuple(_entry(entry, "values", list))))
            continue
        count = _entry(entry, "thresholds", int)
        if not 0 <= count <= thresholds.size - used:
            raise EncodingError(f"column {name!r} of the saved encoder has {count} thresholds, which are not there")
        columns.append(Numeric(name, _entry(entry, "levels", int), tuple(thresholds[used : used + count].tolist())))
        used += count
    if thresholds.shape != (used,):
        raise EncodingError(f"the saved encoder has thresholds {thresholds.shape}, expected {used}: save it again")
    return TableEncoder(tuple(columns))


def _entry(header: Any, key: str, kind: type) -> Any:
    value = header.get(key) if isinstance(header, Mapping) else None
    if type(value) is not kind:
        raise EncodingError(
            f"the saved encoder has {key} = {value!r}, expected a {kind.__name__}: save the model again"
        )
    return value


def _known(column: Column) -> tuple[Any, ...]:
    """A column's thresholds or values."""
    known = column.thresholds if isinstance(column, Numeric) else column.values
    if known is None:
        _not_fitted(f"column {column.name!r} of the encoder")
    return known


def _fit_column(column: Column, cells: Samples) -> Column:
    if isinstance(column, Numeric):
        numbers = _numeric_cells(column.name, cells)
        if column.thresholds is not None:
            return column
        return Numeric(column.name, column.levels, tuple(quantile_thresholds(numbers, column.levels).tolist()))
    texts = _text_cells(column.name, cells)
    return Category(column.name, tuple(sorted(set(texts)))) if column.values is None else column


def _encode_column(column: Column, cells: Samples) -> Bits:
    known = _known(column)
    bits: Bits
    if isinstance(column, Numeric):
        bits = _numeric_cells(column.name, cells)[:, None] > np.array(known, dtype=np.float64)
        return bits
    index = {value: i for i, value in enumerate(known)}
    texts = _text_cells(column.name, cells)
    codes = [index.get(text, -1) for text in texts]
    if -1 in codes:
        row = codes.index(-1)
        listed = ", ".join(known[:12]) + (", …" if len(known) > 12 else "")
        raise EncodingError(f"row {row}, column {column.name!r} is {texts[row]!r}, expected one of {listed}")
    bits = np.array(codes, dtype=np.int64)[:, None] == np.arange(len(known))
    return bits


def _numeric_cells(name: str, cells: Samples) -> Floats:
    if cells.dtype.kind not in "buif":
        for row, value in enumerate(cells.tolist()):
            if not isinstance(value, Real):
                raise EncodingError(f"row {row}, column {name!r} is {value!r}, expected a number")
    numbers = cells.astype(np.float64)
    wrong = np.flatnonzero(~np.isfinite(numbers))
    if len(wrong):
        raise EncodingError(
            f"row {wrong[0]}, column {name!r} is {numbers[wrong[0]]}, expected a finite number: fill in or drop the row"
        )
    return numbers


def _text_cells(name: str, cells: Samples) -> list[str]:
    texts: list[str] = cells.tolist()
    for row, text in enumerate(texts):
        if not isinstance(text, str):
            raise EncodingError(f"row {row}, column {name!r} is {text!r}, expected text: a category is a str")
    return texts


def _numbers(x: ArrayLike, shape: Shape) -> Samples:
    """`x` as an array [n, *shape] of finite numbers."""
    try:
        samples = np.asarray(x)
    except ValueError as error:
        raise EncodingError(f"the samples do not form an array of shape (n, {str(shape)[1:-1]}): {error}") from error
    if samples.dtype.kind not in "buif":
        raise EncodingError(
            f"the samples have dtype {samples.dtype}, expected numbers: convert them, or use TableEncoder"
        )
    if samples.shape[1:] != shape or samples.ndim == 0:
        raise EncodingError(f"the samples have shape {samples.shape}, expected (n, {', '.join(map(str, shape))})")
    if samples.dtype.kind == "f" and not np.isfinite(samples).all():
        row, *feature = np.argwhere(~np.isfinite(samples))[0].tolist()
        value, where = samples[(row, *feature)], feature[0] if len(feature) == 1 else tuple(feature)
        raise EncodingError(f"row {row}, column {where} is {value}, expected a finite number: fill in or drop the row")
    return samples.view(np.uint8) if samples.dtype.kind == "b" else samples


def _table(x: ArrayLike, columns: int) -> Samples:
    """`x` as a two-dimensional array of `columns` columns."""
    try:
        # Lists of mixed rows would become text, numbers and all.
        table = x if isinstance(x, np.ndarray) else np.asarray(x, dtype=object)
    except ValueError as error:
        raise EncodingError(f"the rows do not form a table of {columns} columns: {error}") from error
    if table.dtype.kind not in "OUbuif":
        raise EncodingError(f"the table has dtype {table.dtype}, expected numbers, text, or objects of both")
    if table.ndim != 2 or table.shape[1] != columns:
        raise EncodingError(f"the table has shape {table.shape}, expected (rows, {columns}): give every column once")
    return table


def _above(samples: Samples, threshold: Floats, out: Bits) -> None:
    """out = samples > threshold. Small integers are compared as such, without a float64 copy: x > t is x > ⌊t⌋."""
    if samples.dtype.kind == "f" or samples.dtype.itemsize > 4:
        np.greater(samples, threshold, out=out)
        return
    limits = np.iinfo(samples.dtype)
    floor = np.floor(threshold)
    np.greater(samples, floor.clip(limits.min, limits.max).astype(samples.dtype), out=out)
    if (floor < limits.min).any():
        out |= floor < limits.min


def _plane_shape(levels: int, shape: Shape) -> Shape:
    return (levels * shape[0], *shape[1:])


def _checked_shape(shape: Sequence[int]) -> Shape:
    sizes = tuple(shape)
    if not 1 <= len(sizes) <= _MAX_DIMENSIONS or not all(type(s) is int and 0 < s < 2**31 for s in sizes):
        raise EncodingError(
            f"the shape of a sample is {sizes}, expected 1 to {_MAX_DIMENSIONS} whole numbers from 1 to 2**31 - 1"
        )
    return sizes


def _check_levels(levels: int) -> None:
    if not isinstance(levels, int) or levels < 1:
        raise EncodingError(f"there are {levels} levels, expected a whole number from 1 up")


def _check_column(column: Column) -> None:
    known = column.thresholds if isinstance(column, Numeric) else column.values
    if isinstance(column, Numeric):
        _check_levels(column.levels)
        if known is not None and not (np.isfinite(known).all() and (np.diff(known) > 0).all()):
            raise EncodingError(
                f"column {column.name!r} has thresholds {known}, expected finite and increasing numbers"
            )
    elif known is not None and (
        not all(isinstance(v, str) for v in known) or len(set(known)) < len(known) or not known
    ):
        raise EncodingError(f"column {column.name!r} has values {known}, expected some texts, each once")


def _check_not_empty(x: Samples) -> None:
    if len(x) == 0:
        raise EncodingError("there are no samples to learn from: fit on at least one")


def _short(value: float | str) -> str:
    return value if isinstance(value, str) else repr(value).removesuffix(".0")


def _not_fitted(what: str = "the encoder") -> NoReturn:
    raise EncodingError(f"{what} has not seen samples yet: call fit first and use what it returns")
