"""Tiny ImageNet from the publisher's folders, or from the publisher's zip without unpacking it."""

from __future__ import annotations

import io
import zipfile
import zlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import ModuleType

import numpy as np
from numpy.typing import NDArray

from gatewise.data.dataset import Dataset, Splits
from gatewise.data.source import Source, read_bytes
from gatewise.errors import DataError

FOLDER = "tiny-imagenet-200"
SIDE = 64
REPORT_EVERY = 256

Listed = list[tuple[str, int]]
"""File names with their labels."""


@dataclass(frozen=True)
class Tree:
    """The files of the dataset, by their names inside its top folder."""

    names: tuple[str, ...]
    read: Callable[[str], bytes]
    origin: str


def load_tiny_imagenet(row: Dataset, source: Source) -> Splits:
    """Train and validation images (the test images have no labels); classes are numbered in the order of their ids."""
    pillow = _pillow()
    folder = source.find(FOLDER)
    if folder is not None:
        names = sorted(p.relative_to(folder).as_posix() for p in folder.rglob("*") if p.is_file())
        return _load(Tree(tuple(names), lambda name: read_bytes(folder / name), str(folder)), row, source, pillow)
    path, prefix = source.path(row.files[0]), f"{FOLDER}/"
    with _open_zip(path) as archive:
        names = sorted(n.removeprefix(prefix) for n in archive.namelist() if n.startswith(prefix) and n[-1] != "/")
        tree = Tree(tuple(names), partial(_read_member, archive, path, prefix), str(path))
        return _load(tree, row, source, pillow)


def _pillow() -> ModuleType:
    try:
        from PIL import Image
    except ImportError as error:
        raise DataError(
            "tiny-imagenet needs Pillow to decode JPEG images, and it is not installed: "
            "run `pip install 'gatewise[images]'`"
        ) from error
    return Image


def _open_zip(path: Path) -> zipfile.ZipFile:
    try:
        return zipfile.ZipFile(path)
    except (zipfile.BadZipFile, EOFError, OSError) as error:
        raise DataError(
            f"{path} is truncated or no zip archive ({error}), expected {FOLDER}.zip: fetch it again"
        ) from error


def _read_member(archive: zipfile.ZipFile, path: Path, prefix: str, name: str) -> bytes:
    try:
        return archive.read(prefix + name)
    except (zipfile.BadZipFile, zlib.error, EOFError, OSError, NotImplementedError, RuntimeError) as error:
        raise DataError(f"{prefix}{name} in {path} is damaged ({error}): fetch the archive again") from error


def _load(tree: Tree, row: Dataset, source: Source, pillow: ModuleType) -> Splits:
    for needed in ("wnids.txt", "val/val_annotations.txt"):
        if needed not in tree.names:
            raise DataError(f"{tree.origin} lacks {needed}, expected the publisher's layout: fetch and unpack it again")
    label = _class_numbers(tree, row.classes)
    train, test = _train_files(tree, label), _test_files(tree, label)
    total = len(train) + len(test)

    def report(done: int) -> None:
        if source.progress is not None:
            source.progress(done, total)

    train_x = _decode_all(train, tree, pillow, report)
    test_x = _decode_all(test, tree, pillow, lambda done: report(len(train) + done))
    return Splits(train_x, _labels(train), test_x, _labels(test))


def _class_numbers(tree: Tree, classes: int) -> dict[str, int]:
    ids = sorted(tree.read("wnids.txt").decode("ascii", "replace").split())
    if not 0 < len(ids) <= classes or len(set(ids)) < len(ids):
        raise DataError(
            f"{tree.origin}/wnids.txt lists {len(ids)} class ids, expected 1..{classes} different ones: fetch it again"
        )
    return {wnid: i for i, wnid in enumerate(ids)}


def _train_files(tree: Tree, label: dict[str, int]) -> Listed:
    files = []
    for name in tree.names:
        match name.split("/"):
            case ["train", wnid, "images", file] if file.lower().endswith((".jpeg", ".jpg")):
                if wnid not in label:
                    where = f"{tree.origin}/train/{wnid}"
                    raise DataError(f"{where} is no class of wnids.txt: remove it or fetch the data again")
                files.append((name, label[wnid]))
    found = {number for _, number in files}
    for wnid, number in label.items():
        if number not in found:
            raise DataError(f"{tree.origin}/train/{wnid}/images holds no JPEG image: fetch the data again")
    return files


def _test_files(tree: Tree, label: dict[str, int]) -> Listed:
    present, files = set(tree.names), []
    for number, line in enumerate(tree.read("val/val_annotations.txt").decode("utf-8", "replace").splitlines(), 1):
        cells = line.split("\t")
        where = f"line {number} of {tree.origin}/val/val_annotations.txt"
        if len(cells) < 2 or cells[1] not in label:
            raise DataError(
                f"{where} is {line[:60]!r}, expected an image and a class of wnids.txt between tabs: fetch it again"
            )
        name = f"val/images/{cells[0]}"
        if name not in present:
            raise DataError(f"{where} names {cells[0]}, which is not in val/images: fetch the data again")
        files.append((name, label[cells[1]]))
    return sorted(files)


def _labels(files: Listed) -> NDArray[np.int64]:
    return np.array([label for _, label in files], dtype=np.int64)


def _decode_all(files: Listed, tree: Tree, pillow: ModuleType, report: Callable[[int], None]) -> NDArray[np.uint8]:
    """Every image as uint8 [n, 3, 64, 64]; Pillow lets go of the interpreter lock, so threads help."""
    images = np.empty((len(files), 3, SIDE, SIDE), dtype=np.uint8)

    def decode(i: int) -> None:
        name = files[i][0]
        images[i] = _decode(tree.read(name), f"{tree.origin}/{name}", pillow)

    with ThreadPoolExecutor() as pool:
        for start in range(0, len(files), REPORT_EVERY):
            end = min(start + REPORT_EVERY, len(files))
            list(pool.map(decode, range(start, end)))
            report(end)
    return images


def _decode(data: bytes, origin: str, pillow: ModuleType) -> NDArray[np.uint8]:
    try:
        with pillow.open(io.BytesIO(data), formats=("JPEG",)) as image:
            size = image.size
            pixels = np.asarray(image.convert("RGB")) if size == (SIDE, SIDE) else None
    except Exception as error:  # Pillow raises many kinds for damaged files
        raise DataError(
            f"{origin} cannot be decoded ({type(error).__name__}), expected a JPEG image: fetch it again"
        ) from error
    if pixels is None:
        raise DataError(f"{origin} has {size[0]}×{size[1]} pixels, expected {SIDE}×{SIDE}: fetch it again")
    return pixels.transpose(2, 0, 1)
