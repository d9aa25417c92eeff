"""A dataset of images at few levels a value, in one file: enough to train where the originals are not at hand.

A value, a byte x, becomes one of L levels, x >> (8 - log2 L). Levels are packed at 1, 2, 4 or 8 bits, the first value
in the highest bits, each pixel's channels side by side (which compresses better than channel after channel), and
compressed with xz. What is read back is level << (8 - log2 L): it lies above i/(N+1) of 255 exactly if the original
does, for any N+1 that divides L.

n samples, C channels, H rows, W columns, L levels.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gatewise.data.dataset import Dataset, Labels, Progress, Splits
from gatewise.errors import DataError, EncodingError, FileError
from gatewise.files import Arrays, brief, read_arrays, write_arrays

FORMAT, VERSION = "gatewise-data", 1
SUFFIX = ".gatewise-data"
LEVELS = (2, 4, 8, 16, 32, 64, 128, 256)
COMPRESSION = "xz"

_PARTS = ("train", "test")
_BLOCK = 1 << 18
"""About how many packed bytes are read at a time, and eighths of values written."""
_DECODER_MEMORY = 16 << 20
"""The most that the decoder may take: a file of ours needs 9 MiB, and a hostile one can ask for 4 GiB."""


def file_name(name: str, levels: int) -> str:
    """What a packed file of a dataset is called, unless its user says otherwise."""
    return f"{name}-{levels}{SUFFIX}"


def find_packed(row: Dataset, folder: Path) -> Path | None:
    """The packed file of a dataset in a folder, under its usual name; of several, the one with the most levels."""
    places = (folder / file_name(row.name, levels) for levels in reversed(LEVELS))
    return next((place for place in places if place.is_file()), None)


def is_packed(path: Path) -> bool:
    """Whether a path that stands for a dataset is meant as a packed file, not as a folder of originals."""
    return path.is_file() or (path.suffix == SUFFIX and not path.is_dir())


def check_packable(row: Dataset, levels: int) -> None:
    """Raise a DataError unless this dataset can be packed at so many levels."""
    if row.kind != "image":
        raise DataError(f"{row.name} is a {row.kind}, whose values are no bytes: only datasets of images can be packed")
    if levels not in LEVELS:
        raise DataError(f"levels is {levels}, expected a power of two from {LEVELS[0]} to {LEVELS[-1]}")
    if levels < LEVELS[-1] and (row.low, row.high) != (0, 255):
        raise DataError(
            f"{row.name} has values {row.low:g}..{row.high:g}, and fewer levels are exact for 0..255 alone: "
            f"pack it with {LEVELS[-1]} levels"
        )


def quantise(x: NDArray[np.uint8], levels: int) -> NDArray[np.uint8]:
    """Each value's level, 0..levels-1."""
    return x >> np.uint8(8 - _log2(levels))


def restore(level: NDArray[np.uint8], levels: int) -> NDArray[np.uint8]:
    """The smallest value of each level."""
    return level << np.uint8(8 - _log2(levels))


def bits_of(levels: int) -> int:
    """Bits a level takes: log2 L, rounded up to what fills a byte."""
    return next(bits for bits in (1, 2, 4, 8) if 1 << bits >= levels)


def pack_rows(level: NDArray[np.uint8], bits: int) -> NDArray[np.uint8]:
    """Levels [n, values] at so many bits each, the first highest; the last byte of a row is filled up with zeros."""
    per_byte = 8 // bits
    whole = np.pad(level, ((0, 0), (0, -level.shape[1] % per_byte)))
    packed = np.zeros((len(level), whole.shape[1] // per_byte), dtype=np.uint8)
    for i in range(per_byte):
        packed |= whole[:, i::per_byte] << np.uint8(8 - bits * (i + 1))
    return packed


def levels_needed(thresholds: NDArray[np.float64]) -> int:
    """The fewest levels at which every byte stays on its side of each of these thresholds."""
    # Of bytes, those above t are those from floor(t) + 1 on; a level begins at each multiple of 256 / L.
    begins = np.floor(thresholds[(thresholds >= 0) & (thresholds < 255)]).astype(np.int64) + 1
    return max(LEVELS[0], 256 // math.gcd(256, *np.unique(begins).tolist()))


def check_levels(name: str, splits: Splits, thresholds: NDArray[np.float64]) -> None:
    """Raise an EncodingError if a dataset was packed at too few levels to know which values are above a threshold."""
    if splits.levels is None:
        return
    needed = levels_needed(thresholds)
    if splits.levels % needed:
        raise EncodingError(
            f"{name} was packed at {splits.levels} levels a value, but {len(thresholds)} thresholds need {needed}: "
            f"pack it anew where the originals are, with `gatewise data pack {name} --levels {needed}`"
        )


def save_packed(
    row: Dataset, splits: Splits, levels: int, path: str | Path, *, progress: Progress | None = None
) -> None:
    """Write a dataset to one file, which `load_packed` reads; `progress` is called with samples done and in all."""
    check_packable(row, levels)
    if splits.levels is not None and splits.levels < levels:
        raise DataError(
            f"{row.name} was packed at {splits.levels} levels a value, from which {levels} cannot be made: "
            f"pack it where the originals are"
        )
    parts = {"train": (splits.train_x, splits.train_y), "test": (splits.test_x, splits.test_y)}
    total, done = sum(len(y) for _, y in parts.values()), 0
    arrays: Arrays = {}
    for part, (x, y) in parts.items():
        assert x.dtype == np.uint8, row.name
        arrays[f"{part}_x"] = _compressed(x, levels, progress, done, total)
        arrays[f"{part}_y"] = y.astype(np.uint8)
        done += len(y)
    header = {"dataset": row.name, "levels": levels, "shape": list(row.shape), "compression": COMPRESSION}
    samples = {part: len(y) for part, (_, y) in parts.items()}
    write_arrays(path, arrays, {"format": FORMAT, "version": VERSION, **header, "samples": samples})


def load_packed(row: Dataset, path: str | Path, *, progress: Progress | None = None) -> Splits:
    """The dataset that `save_packed` wrote to `path`; an error says what is wrong with anything else.

    What it takes in memory is known, and checked, before anything is decompressed.
    """
    arrays, header = read_arrays(path, FORMAT, VERSION)
    if header.get("dataset") != row.name:
        raise DataError(f"{path} holds {brief(repr(header.get('dataset')))}, expected {row.name}: name its file")
    try:
        levels, labels = _check_header(row, header, arrays)
        total, done = sum(map(len, labels)), 0
        images = []
        for part, y in zip(_PARTS, labels, strict=True):
            images.append(_decompressed(arrays[f"{part}_x"], len(y), row.shape, levels, progress, done, total))
            done += len(y)
    except _Unsound as error:
        raise FileError(f"{path} holds no sound dataset: {brief(str(error))}") from error
    return Splits(images[0], labels[0], images[1], labels[1], levels=levels)


class _Unsound(Exception):
    """What is wrong with the inside of a file whose checksum is right."""


def _check_header(row: Dataset, header: dict[str, Any], arrays: Arrays) -> tuple[int, list[Labels]]:
    """Levels and labels, if header and arrays are those of one dataset of this row."""
    levels = header.get("levels")
    if type(levels) is not int or levels not in LEVELS:
        raise _Unsound(f"levels is {levels!r}, expected a power of two from {LEVELS[0]} to {LEVELS[-1]}")
    expected = {"shape": list(row.shape), "compression": COMPRESSION}
    for key, value in expected.items():
        if header.get(key) != value:
            raise _Unsound(f"{key} is {header.get(key)!r}, expected {value!r}")
    if set(arrays) != {f"{part}_{what}" for part in _PARTS for what in "xy"}:
        raise _Unsound(
            f"there are the arrays {', '.join(sorted(arrays)) or 'none'}, expected x and y of train and test"
        )
    for name, array in arrays.items():
        if array.dtype != np.uint8 or array.ndim != 1:
            raise _Unsound(f"{name} is {array.dtype} of shape {array.shape}, expected a row of bytes")
    found = {part: len(arrays[f"{part}_y"]) for part in _PARTS}
    if header.get("samples") != found:
        raise _Unsound(f"samples is {header.get('samples')!r}, but there are labels for {found}")
    return levels, [arrays[f"{part}_y"].astype(np.int64) for part in _PARTS]


def _compressed(
    x: NDArray[np.uint8], levels: int, progress: Progress | None, done: int, total: int
) -> NDArray[np.uint8]:
    """Images [n, C, H, W] as compressed bytes."""
    lzma = _lzma()
    encoder = lzma.LZMACompressor(check=lzma.CHECK_CRC32)
    step = 8 * max(1, _BLOCK // max(1, math.prod(x.shape[1:])))  # so that blocks end with a byte
    written = []
    for begin in range(0, len(x), step):
        block = x[begin : begin + step]
        level = quantise(np.moveaxis(block, 1, -1), levels).reshape(1, -1)
        written.append(encoder.compress(pack_rows(level, bits_of(levels)).tobytes()))
        if progress is not None:
            progress(done + begin + len(block), total)
    return np.frombuffer(b"".join([*written, encoder.flush()]), dtype=np.uint8)


def _decompressed(
    data: NDArray[np.uint8],
    n: int,
    shape: tuple[int, ...],
    levels: int,
    progress: Progress | None,
    done: int,
    total: int,
) -> NDArray[np.uint8]:
    """The images [n, C, H, W] in compressed bytes."""
    bits, size = bits_of(levels), math.prod(shape)
    per_byte = 8 // bits
    # [256, per_byte]: what each byte stands for, and whether all of it is a level.
    level = np.arange(256)[:, None] >> bits * np.arange(per_byte)[::-1] & (1 << bits) - 1
    sound, values = np.all(level < levels, axis=1), restore(level.astype(np.uint8), levels)
    flat = np.empty(-(-n * size // per_byte) * per_byte, dtype=np.uint8)
    end = 0
    for block in _blocks(data.tobytes(), len(flat) // per_byte):
        packed = np.frombuffer(block, dtype=np.uint8)
        if not sound[packed].all():
            raise _Unsound(f"a value is no level of 0..{levels - 1}")
        begin, end = end, end + len(packed) * per_byte
        flat[begin:end] = values[packed].ravel()
        if progress is not None:
            progress(done + end // size, total)
    channels, *sides = shape
    images = flat[: n * size].reshape(n, *sides, channels)
    return np.ascontiguousarray(np.moveaxis(images, -1, 1))


def _blocks(data: bytes, expected: int) -> Iterator[bytes]:
    """Decompress exactly the expected number of bytes, some at a time."""
    lzma = _lzma()
    decoder, left = lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=_DECODER_MEMORY), expected
    try:
        while not decoder.eof:
            if decoder.needs_input and not data:
                raise _Unsound(f"its images end {left:,} of {expected:,} bytes early")
            block = decoder.decompress(data, min(left + 1, _BLOCK))
            data, left = b"", left - len(block)
            if left < 0:
                raise _Unsound(f"its images take more than the {expected:,} bytes that its header says")
            yield block
    except lzma.LZMAError as error:
        raise _Unsound(f"its images cannot be decompressed ({error})") from error
    if left or decoder.unused_data:
        raise _Unsound(f"its images end {left:,} of {expected:,} bytes early, or something follows them")


def _lzma() -> ModuleType:
    try:
        import lzma
    except ImportError as error:
        raise DataError(
            "packed data need Python's module lzma, and this Python was built without it: use another Python"
        ) from error
    return lzma


def _log2(levels: int) -> int:
    return levels.bit_length() - 1
