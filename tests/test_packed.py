"""Packed datasets: what a preset sees of them is what it sees of the originals, and hostile files are refused."""

from __future__ import annotations

import dataclasses
import lzma
import os
import random
import re
import subprocess
import sys
import tracemalloc
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from fuzz_files import Draft, damaged_files
from hypothesis import given, settings
from hypothesis import strategies as st
from runs import Done, assert_one_sentence, assert_same_run, contents, flags, gatewise, tiny
from test_data import jpeg, write_imagenet, write_mnist

from gatewise import progress
from gatewise.data import DATASETS, Splits, check_levels, load_dataset, load_packed, save_packed
from gatewise.data.augment import AUGMENTATIONS, DRAWS, augment
from gatewise.data.packed import LEVELS, file_name, levels_needed, quantise, restore
from gatewise.encode import Thermometer
from gatewise.errors import DataError, EncodingError, FileError, GatewiseError
from gatewise.packing import default_levels
from gatewise.presets import Options
from gatewise.train import prepare, train

REAL = os.environ.get("GATEWISE_TEST_DATA")
needs_real_data = pytest.mark.skipif(not REAL, reason="GATEWISE_TEST_DATA names no folder with the real datasets")
needs_fork = pytest.mark.skipif(os.name != "posix", reason="processes are forked, so that each is cheap")

MNIST, CIFAR = DATASETS["mnist"], DATASETS["cifar10"]
EVERY_BYTE = np.arange(256, dtype=np.uint8)


def fails(kind: type[GatewiseError], *words: str) -> Any:
    """An error of one sentence with these words in it, in this order."""
    return pytest.raises(kind, match=".*".join(map(re.escape, words)))


def images(shape: tuple[int, ...], seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, shape, dtype=np.uint8)


def small(name: str = "mnist", train: int = 5, test: int = 3) -> Splits:
    """A dataset of random images, of the shape of that name's."""
    row = DATASETS[name]
    x, y = images((train + test, *row.shape)), np.arange(train + test) % row.classes
    return Splits(x[:train], y[:train], x[train:], y[train:])


def packed(folder: Path, name: str = "mnist", levels: int = 4, splits: Splits | None = None) -> Path:
    path = folder / file_name(name, levels)
    save_packed(DATASETS[name], splits or small(name), levels, path)
    return path


# What comes back


def assert_packed(found: Splits, original: Splits, levels: int) -> None:
    """`found` is `original` with each value at the lowest of its level, and the same labels."""
    step = 256 // levels
    assert found.levels == levels
    for part in ("train", "test"):
        x, y = getattr(found, f"{part}_x"), getattr(found, f"{part}_y")
        np.testing.assert_array_equal(x, getattr(original, f"{part}_x") // step * step)
        np.testing.assert_array_equal(y, getattr(original, f"{part}_y"))
        assert (x.dtype, y.dtype, x.flags.c_contiguous) == (np.uint8, np.int64, True)


@pytest.mark.parametrize("levels", LEVELS)
@pytest.mark.parametrize("name", ["mnist", "cifar10", "tiny-imagenet"])
def test_a_dataset_comes_back_at_its_levels(tmp_path: Path, name: str, levels: int) -> None:
    original = small(name)
    path = packed(tmp_path, name, levels, original)
    assert_packed(load_packed(DATASETS[name], path), original, levels)
    assert_packed(load_dataset(name, path), original, levels)


@given(st.integers(1, 40), st.integers(1, 40), st.sampled_from(LEVELS), st.tuples(*[st.integers(1, 5)] * 3))
@settings(max_examples=40, deadline=None)
def test_images_of_any_number_and_shape_come_back(
    tmp_path_factory: pytest.TempPathFactory, train: int, test: int, levels: int, shape: tuple[int, ...]
) -> None:
    row = dataclasses.replace(MNIST, shape=shape)
    x = images((train + test, *shape))
    original = Splits(x[:train], np.arange(train) % 10, x[train:], np.arange(test) % 10)
    path = tmp_path_factory.mktemp("any") / "any.gatewise-data"
    save_packed(row, original, levels, path)
    assert_packed(load_packed(row, path), original, levels)


def test_more_than_a_block_comes_back_and_progress_counts_up(tmp_path: Path) -> None:
    few, calls = small("cifar10", 30, 5), []
    splits = Splits(*(np.repeat(part, 100, 0) for part in (few.train_x, few.train_y, few.test_x, few.test_y)))
    path = tmp_path / "big.gatewise-data"
    save_packed(CIFAR, splits, 256, path, progress=lambda *at: calls.append(at))
    assert_packed(load_packed(CIFAR, path, progress=lambda *at: calls.append(at)), splits, 256)
    half = calls.index((3_500, 3_500)) + 1
    for numbers in (calls[:half], calls[half:]):
        assert len(numbers) > 4
        assert numbers == sorted(numbers)
        assert numbers[-1] == (3_500, 3_500)


def test_equal_datasets_are_equal_files(tmp_path: Path) -> None:
    first = packed(tmp_path).read_bytes()
    assert packed(tmp_path).read_bytes() == first
    other = dataclasses.replace(small(), train_y=small().train_y[::-1])
    assert packed(tmp_path, splits=other).read_bytes() != first


def test_the_header_says_what_is_inside(tmp_path: Path) -> None:
    header = Draft.of(packed(tmp_path, "cifar10").read_bytes()).header
    assert header == {
        "format": "gatewise-data", "version": 1, "dataset": "cifar10", "levels": 4, "shape": [3, 32, 32],
        "compression": "xz", "samples": {"train": 5, "test": 3},
    }  # fmt: skip


def test_packing_again_at_fewer_levels_is_packing_the_original_and_at_more_is_refused(tmp_path: Path) -> None:
    once = load_packed(MNIST, packed(tmp_path, levels=16))
    assert packed(tmp_path, levels=4).read_bytes() == packed(tmp_path, levels=4, splits=once).read_bytes()
    with fails(DataError, "packed at 16 levels a value, from which 32 cannot be made"):
        packed(tmp_path, levels=32, splits=once)


# Which thresholds it is exact for


@pytest.mark.parametrize("thresholds", [1, 3, 7, 15, 31, 63, 127, 255])
def test_every_byte_gives_the_bits_of_the_original(thresholds: int) -> None:
    encoder = Thermometer.equal(thresholds, 0, 255, (1,))
    bits = encoder.transform(EVERY_BYTE[:, None])
    assert levels_needed(encoder.thresholds) == thresholds + 1
    for levels in LEVELS:
        same = np.array_equal(encoder.transform(restore(quantise(EVERY_BYTE, levels), levels)[:, None]), bits)
        assert same == (levels % (thresholds + 1) == 0), levels


@given(st.lists(st.floats(-300, 600) | st.integers(-1, 256).map(float), min_size=1, max_size=12))
@settings(max_examples=300)
def test_the_levels_needed_are_enough_and_none_fewer_are(values: list[float]) -> None:
    thresholds = np.array(values)
    bits = EVERY_BYTE[:, None] > thresholds
    needed = levels_needed(thresholds)
    for levels in LEVELS:
        same = np.array_equal(restore(quantise(EVERY_BYTE, levels), levels)[:, None] > thresholds, bits)
        assert same == (levels >= needed), levels


@pytest.mark.parametrize("name", [name for name in AUGMENTATIONS if name != "none"])
def test_augmentation_commutes_with_packing(name: str) -> None:
    x = images((50, 3, 20, 20))
    draws = torch.randint(1 << 32, (50, DRAWS), generator=torch.Generator().manual_seed(0))
    whole = augment(name, torch.from_numpy(x), draws).numpy()
    assert not np.array_equal(whole, x)
    for levels in LEVELS:
        few = augment(name, torch.from_numpy(restore(quantise(x, levels), levels)), draws).numpy()
        np.testing.assert_array_equal(few, restore(quantise(whole, levels), levels))


@needs_real_data
@pytest.mark.parametrize(("name", "levels", "bytes_an_image"), [("mnist", 2, 30), ("cifar10", 4, 300)])
def test_real_images_take_few_bytes_and_give_the_bits_of_the_originals(
    tmp_path: Path, name: str, levels: int, bytes_an_image: int
) -> None:
    whole = load_dataset(name, Path(str(REAL)))
    part = Splits(whole.train_x[:1_500], whole.train_y[:1_500], whole.test_x[:500], whole.test_y[:500])
    path = packed(tmp_path, name, levels, part)
    assert path.stat().st_size < bytes_an_image * 2_000
    found = load_dataset(name, path)
    assert_packed(found, part, levels)
    encoder = Thermometer.equal(levels - 1, 0, 255, part.train_x.shape[1:])
    np.testing.assert_array_equal(encoder.transform(found.train_x), encoder.transform(part.train_x))
    for thresholds in (1, 3, 7, 15, 31, 63):
        few = restore(quantise(part.test_x, thresholds + 1), thresholds + 1)
        encoder = Thermometer.equal(thresholds, 0, 255, part.test_x.shape[1:])
        np.testing.assert_array_equal(encoder.transform(few), encoder.transform(part.test_x))


# Training from it


def mnist_folder(folder: Path, samples: int = 300) -> Path:
    """MNIST's files with images of blurred bars, whose place is their label: something that can be learned."""
    rng = np.random.default_rng(0)
    y = (np.arange(2 * samples) % 10).astype(np.uint8)
    x = rng.integers(0, 120, (2 * samples, 28, 28))
    for i, label in enumerate(y):
        x[i, 2 * label + 3 : 2 * label + 6] += 130
    x = x.astype(np.uint8)

    def idx(array: np.ndarray, magic: int) -> bytes:
        return np.array([magic, *array.shape], dtype=">u4").tobytes() + array.tobytes()

    write_mnist(
        folder, train_images=idx(x[:samples], 0x803), train_labels=idx(y[:samples], 0x801),
        t10k_images=idx(x[samples:], 0x803), t10k_labels=idx(y[samples:], 0x801),
    )  # fmt: skip
    return folder


TINY_MNIST = {"thresholds": 3, "dense": (1_200, 600), "steps": 20, "eval_every": 10}


@needs_fork
def test_a_run_from_a_packed_file_is_the_run_from_the_originals_bit_for_bit(tmp_path: Path) -> None:
    data = mnist_folder(tmp_path / "data")
    done = gatewise("data", "pack", "mnist", "--levels", "4", "--data", data, cwd=tmp_path)
    assert done.code == 0, done.err
    file = tmp_path / "mnist-4.gatewise-data"
    (tmp_path / "alone").mkdir()
    file.rename(tmp_path / "alone" / file.name)
    words = ["train", "mnist-regular-s", *flags(**TINY_MNIST)]
    said = []
    for out, place in (("originals", data), ("file", tmp_path / "alone" / file.name), ("folder", tmp_path / "alone")):
        done = gatewise(*words, "--data", place, "--out", out, cwd=tmp_path)
        assert done.code == 0, done.err
        said.append("mnist: packed data, 4 levels a value\n" in done.err)
    assert said == [False, True, True]
    assert_same_run(tmp_path / "originals", tmp_path / "file")
    assert_same_run(tmp_path / "originals", tmp_path / "folder")
    done = gatewise("eval", "file", "--data", tmp_path / "alone", cwd=tmp_path)
    assert "of 300 test samples of mnist, packed at 4 levels)" in done.out
    assert done.out.split()[0] == gatewise("eval", "file", "--data", data, cwd=tmp_path).out.split()[0]
    compiled = gatewise("compile", "file", "--dont-cares", "--data", tmp_path / "alone", cwd=tmp_path)
    assert compiled.code == 0, compiled.err
    coarse = packed(tmp_path, "mnist", 2, load_dataset("mnist", data))
    for command in (["eval", "file"], ["compile", "file", "--dont-cares"]):
        done = gatewise(*command, "--data", coarse, cwd=tmp_path)
        assert_one_sentence(done, "mnist was packed at 2 levels a value, but 3 thresholds need 4", "--levels 4")


def test_a_run_from_other_images_would_be_noticed(tmp_path: Path) -> None:
    data = mnist_folder(tmp_path / "data")
    splits = load_dataset("mnist", data)
    splits.train_x[:, 0, 14] ^= 0x80
    other = packed(tmp_path, "mnist", 4, splits)
    row = tiny("mnist-regular-s", **TINY_MNIST)
    for out, place in (("a", data), ("b", other)):
        train(row, tmp_path / out, data=place)
    with pytest.raises(AssertionError, match="differs"):
        assert_same_run(tmp_path / "a", tmp_path / "b")


@pytest.mark.parametrize(
    ("thresholds", "levels", "needed"), [(7, 4, 8), (3, 2, 4), (2, 128, 256), (63, 32, 64), (300, 128, 256)]
)
def test_a_preset_with_too_many_thresholds_is_refused(
    tmp_path: Path, thresholds: int, levels: int, needed: int
) -> None:
    path = packed(tmp_path, "cifar10", levels)
    row = tiny("cifar-regular-s", thresholds=thresholds)
    with fails(EncodingError, f"packed at {levels} levels", f"{thresholds} thresholds need {needed}:") as caught:
        prepare(row, Options(), path)
    assert f"`gatewise data pack cifar10 --levels {needed}`" in str(caught.value)


def test_a_preset_with_fewer_thresholds_than_there_are_levels_is_not(tmp_path: Path) -> None:
    path = packed(tmp_path, "cifar10", 8, small("cifar10", 40, 20))
    for thresholds in (1, 3, 7):
        encoder = prepare(tiny("cifar-regular-s", thresholds=thresholds), Options(), path).encoder
        assert encoder.bit_shape == (3 * thresholds, 32, 32)
    check_levels("cifar10", small("cifar10"), Thermometer.equal(30, 0, 255, (3, 32, 32)).thresholds)  # an original


# Where it is looked for


def test_originals_in_a_folder_come_before_a_packed_file_and_more_levels_before_fewer(tmp_path: Path) -> None:
    for levels in (2, 16, 4):
        packed(tmp_path, levels=levels)
    assert load_dataset("mnist", tmp_path).levels == 16
    write_mnist(tmp_path / "MNIST" / "raw")
    assert load_dataset("mnist", tmp_path).levels is None
    (tmp_path / "MNIST" / "raw" / "t10k-labels-idx1-ubyte.gz").unlink()
    with fails(DataError, "mnist needs", "t10k-labels-idx1-ubyte"):  # and not, silently, something else
        load_dataset("mnist", tmp_path)


def test_a_packed_file_in_the_cache_saves_a_download(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GATEWISE_DATA", str(tmp_path))
    monkeypatch.setitem(sys.modules, "pooch", None)
    packed(tmp_path, levels=8)
    assert load_dataset("mnist").levels == 8


def test_tiny_imagenet_needs_no_pillow_once_it_is_packed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_imagenet(tmp_path / "originals", imagenet())
    original = load_dataset("tiny-imagenet", tmp_path / "originals")
    packed(tmp_path, "tiny-imagenet", 8, original)
    monkeypatch.setitem(sys.modules, "PIL", None)
    assert_packed(load_dataset("tiny-imagenet", tmp_path), original, 8)


def imagenet() -> dict[str, bytes]:
    return {
        "wnids.txt": b"n01\n",
        "train/n01/images/a.JPEG": jpeg((250, 0, 0)),
        "val/val_annotations.txt": b"b.JPEG\tn01\t0\t0\t1\t1\n",
        "val/images/b.JPEG": jpeg((0, 9, 0)),
    }


LOAD_ALONE = """
import sys
sys.modules["pooch"] = sys.modules["PIL"] = sys.modules["torch"] = None
from pathlib import Path
from gatewise.data import load_dataset
print(len(load_dataset("mnist", Path(sys.argv[1]) if sys.argv[1:] else None).train_x))
"""


def load_alone(*arguments: str | Path) -> Done:
    """Load mnist in an interpreter that has neither pooch nor Pillow nor torch."""
    environment = {name: value for name, value in os.environ.items() if name != "GATEWISE_DATA"}
    words = [sys.executable, "-c", LOAD_ALONE, *map(str, arguments)]
    done = subprocess.run(words, env=environment, capture_output=True, text=True, check=False)
    return Done(done.returncode, done.stdout, done.stderr)


def test_a_packed_file_is_read_without_pooch_pillow_and_torch(tmp_path: Path) -> None:
    path = packed(tmp_path)
    for place in (path, tmp_path):
        done = load_alone(place)
        assert (done.code, done.out) == (0, "5\n"), done.err
    assert "import of pooch halted" in load_alone().err  # so pooch would have been missed


def test_a_python_without_lzma_is_told_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = packed(tmp_path)
    monkeypatch.setitem(sys.modules, "lzma", None)
    with fails(DataError, "packed data need Python's module lzma"):
        load_dataset("mnist", path)


# Files that are not sound


def draft(folder: Path) -> Draft:
    return Draft.of(packed(folder).read_bytes())


def load_draft(folder: Path, found: Draft) -> Splits:
    (folder / "changed").write_bytes(found.seal())
    return load_dataset("mnist", folder / "changed")


@pytest.mark.parametrize(
    ("header", "words"),
    [
        ({"levels": 5}, "levels is 5, expected a power of two from 2 to 256"),
        ({"levels": 4.0}, "levels is 4.0"),
        ({"levels": True}, "levels is True"),
        ({"levels": None}, "levels is None"),
        ({"levels": 2}, "bytes that its header says"),
        ({"levels": 256}, "bytes early"),
        ({"shape": [3, 32, 32]}, "shape is [3, 32, 32], expected [1, 28, 28]"),
        ({"shape": [1, 28, 10**30]}, "shape is [1, 28, 1000"),
        ({"shape": None}, "shape is None"),
        ({"compression": "zip"}, "compression is 'zip', expected 'xz'"),
        ({"samples": {"train": 6, "test": 3}}, "samples is {'train': 6"),
        ({"samples": {"train": 10**30, "test": 3}}, "samples is {'train': 1000"),
        ({"samples": None}, "samples is None"),
        ({"dataset": "cifar10"}, "holds 'cifar10', expected mnist"),
        ({"dataset": ["x" * 10_000]}, "holds ['xxx"),
        ({"format": "gatewise-model"}, "has format 'gatewise-model' version 1: expected 'gatewise-data' version 1"),
        ({"version": 2}, "version 2: expected"),
    ],
)
def test_a_header_that_does_not_fit_is_refused(tmp_path: Path, header: dict[str, Any], words: str) -> None:
    found = draft(tmp_path)
    found.header |= header
    with fails(GatewiseError, "changed ", words) as caught:
        load_draft(tmp_path, found)
    assert len(str(caught.value)) < 600


def xz(data: bytes, **more: Any) -> bytes:
    return lzma.compress(data, **more)


PLANES = 5 * 28 * 28 // 4
"""Packed bytes of the five training images at four levels."""


@pytest.mark.parametrize(
    ("name", "change", "words"),
    [
        ("train_x", lambda d: d[:-1], "bytes early"),
        ("train_x", lambda d: d[: len(d) // 2], "bytes early"),
        ("train_x", lambda d: b"", "end 980 of 980 bytes early"),
        ("train_x", lambda d: d + b"\0", "or something follows them"),
        ("train_x", lambda d: d + d, "or something follows them"),
        ("train_x", lambda d: b"no xz" * 9, "cannot be decompressed (Input format not supported"),
        ("train_x", lambda d: d[:40] + b"\xff" + d[41:], "cannot be decompressed (Corrupt input data)"),
        ("train_x", lambda d: xz(bytes(PLANES - 1)), "end 1 of 980 bytes early"),
        ("train_x", lambda d: xz(bytes(PLANES + 1)), "more than the 980 bytes that its header says"),
        ("train_x", lambda d: xz(bytes(PLANES), format=lzma.FORMAT_ALONE), "cannot be decompressed"),
        ("train_y", lambda d: b"\x0a" * 5, "label 10 of sample 0 in the train split of mnist is out of range"),
        ("train_y", lambda d: d + b"\0", "samples is"),
    ],
)
def test_contents_that_do_not_fit_are_refused(
    tmp_path: Path, name: str, change: Callable[[bytes], bytes], words: str
) -> None:
    found = draft(tmp_path)
    for i, (label, kind, _, data) in enumerate(found.arrays):
        if label == name:
            changed = change(data)
            found.arrays[i] = (label, kind, [len(changed)], changed)
    with fails(GatewiseError, words):
        load_draft(tmp_path, found)


@pytest.mark.parametrize(
    ("arrays", "words"),
    [
        ({"train_x": ("I8", [4], bytes(4))}, "train_x is int8 of shape (4,), expected a row of bytes"),
        ({"train_y": ("U8", [1, 5], bytes(5))}, "train_y is uint8 of shape (1, 5)"),
        ({"test_y": ("U8", [], bytes(1))}, "test_y is uint8 of shape ()"),
        ({"more": ("U8", [0], b"")}, "there are the arrays more, test_x, test_y, train_x, train_y, expected"),
    ],
)
def test_arrays_that_are_no_dataset_are_refused(tmp_path: Path, arrays: dict[str, Any], words: str) -> None:
    found = draft(tmp_path)
    kept = [array for array in found.arrays if array[0] not in arrays]
    found.arrays = kept + [(name, *array) for name, array in arrays.items()]
    with fails(FileError, "changed holds no sound dataset: ", words):
        load_draft(tmp_path, found)


def test_a_level_that_is_none_is_refused(tmp_path: Path) -> None:
    path = packed(tmp_path, levels=8)  # of three bits, in four
    found = Draft.of(path.read_bytes())
    i = [array[0] for array in found.arrays].index("test_x")
    data = xz(b"\x77" * (3 * 28 * 28 // 2 - 1) + b"\x78")
    found.arrays[i] = ("test_x", "U8", [len(data)], data)
    with fails(FileError, "a value is no level of 0..7"):
        load_draft(tmp_path, found)


def test_a_bomb_is_stopped_at_what_the_header_says(tmp_path: Path) -> None:
    found = draft(tmp_path)
    i = [array[0] for array in found.arrays].index("train_x")
    bomb = xz(bytes(1 << 28), preset=1)
    found.arrays[i] = ("train_x", "U8", [len(bomb)], bomb)
    tracemalloc.start()
    with fails(FileError, "more than the 980 bytes"):
        load_draft(tmp_path, found)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 4 << 20


def test_a_decoder_that_asks_for_gigabytes_is_refused(tmp_path: Path) -> None:
    found = draft(tmp_path)
    i = [array[0] for array in found.arrays].index("train_x")
    data = bytearray(xz(bytes(PLANES)))
    # The dictionary's size in the block header, whose checksum is made to fit: 4 GiB - 1.
    at = data.index(b"\x21\x01") + 2
    data[at] = 40
    size = 4 * (data[12] + 1)
    data[12 + size - 4 : 12 + size] = zlib.crc32(data[12 : 12 + size - 4]).to_bytes(4, "little")
    found.arrays[i] = ("train_x", "U8", [len(data)], bytes(data))
    with fails(FileError, "cannot be decompressed (Memory usage limit exceeded)"):
        load_draft(tmp_path, found)


@pytest.mark.parametrize("keep", [0, 7, 100, -1])
def test_a_file_that_was_cut_off_is_refused(tmp_path: Path, keep: int) -> None:
    path = packed(tmp_path)
    path.write_bytes(path.read_bytes()[:keep])
    with fails(FileError, str(path)):
        load_dataset("mnist", path)


def test_what_is_no_packed_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("hello, world")
    with fails(FileError, "text is no gatewise file, or was cut off: expected a gatewise-data file"):
        load_dataset("mnist", tmp_path / "text")
    with fails(FileError, "mnist-2.gatewise-data cannot be read"):
        load_dataset("mnist", tmp_path / "mnist-2.gatewise-data")


def test_damaged_files_are_refused_in_a_sentence_and_little_memory(tmp_path: Path) -> None:
    files = damaged_files([packed(tmp_path, levels=levels).read_bytes() for levels in (2, 8)], random.Random(0))
    path, loaded, longest = tmp_path / "damaged", 0, 0
    for _ in range(400):
        data = next(files)
        path.write_bytes(data)
        tracemalloc.start()
        try:
            loaded += load_dataset("mnist", path).train_x.shape[1:] == MNIST.shape
        except (FileError, DataError) as error:
            longest = max(longest, len(str(error)))
        finally:
            peak = tracemalloc.get_traced_memory()[1]
            tracemalloc.stop()
        assert peak < 16 * len(data) + (16 << 20)
    assert loaded < 200
    assert longest < 1_000


# The command


@pytest.mark.parametrize(("name", "levels"), [("mnist", 2), ("cifar10", 4), ("tiny-imagenet", 8), ("digits", 256)])
def test_by_default_some_preset_can_be_trained_from_it(name: str, levels: int) -> None:
    assert default_levels(DATASETS[name]) == levels


@needs_fork
def test_the_command_packs_into_one_file_and_says_so(tmp_path: Path) -> None:
    write_mnist(tmp_path / "data")
    done = gatewise("data", "pack", "mnist", "--data", "data", cwd=tmp_path)
    assert (done.code, done.err) == (0, "")
    words = " ".join(re.sub("[│┌┐└┘─]", " ", done.out).split())
    for shown in ("mnist, packed", "training samples 20", "test samples 10", "levels a value 2", "size 0.00 MiB"):
        assert shown in words, shown
    assert done.out.endswith("packed data: mnist-2.gatewise-data\n")
    assert sorted(p.name for p in tmp_path.iterdir() if p.name[0] != ".") == ["data", "mnist-2.gatewise-data"]
    for out in ("data", "data/other"):
        assert gatewise("data", "pack", "mnist", "--data", "data", "--out", out, cwd=tmp_path).code == 0
    first = (tmp_path / "mnist-2.gatewise-data").read_bytes()
    assert (tmp_path / "data" / "mnist-2.gatewise-data").read_bytes() == first
    assert (tmp_path / "data" / "other").read_bytes() == first


@needs_fork
def test_the_digits_of_the_package_are_packed_as_they_are(tmp_path: Path) -> None:
    assert gatewise("data", "pack", "digits", cwd=tmp_path).code == 0
    found, original = load_dataset("digits", tmp_path / "digits-256.gatewise-data"), load_dataset("digits")
    np.testing.assert_array_equal(found.train_x, original.train_x)
    done = gatewise("train", "digits", *flags(steps=1), "--data", "digits-256.gatewise-data", cwd=tmp_path)
    assert done.code == 0, done.err


@needs_fork
@pytest.mark.parametrize(
    ("words", "answers"),
    [
        (["minst"], ["there is no dataset 'minst', expected one of: digits, mnist"]),
        (["ecg"], ["ecg is a signal, whose values are no bytes: only datasets of images can be packed"]),
        (["adult", "--levels", "4"], ["adult is a table"]),
        (["mnist", "--levels", "5"], ["levels is 5, expected a power of two from 2 to 256"]),
        (["mnist", "--levels", "1"], ["levels is 1"]),
        (["mnist", "--levels", "512"], ["levels is 512"]),
        (["digits", "--levels", "4"], ["digits has values 0..16", "pack it with 256 levels"]),
        (["mnist", "--data", "none"], ["mnist needs", "no such folder"]),
        (["mnist", "--data", "empty"], ["mnist needs", "not there"]),
        (["digits", "--out", "none/digits"], ["none/digits cannot be written: there is no folder none"]),
        (["mnist", "--data", "mnist-4.gatewise-data", "--levels", "8"], ["packed at 4 levels", "8 cannot be made"]),
        (["mnist", "--data", "mnist-4.gatewise-data", "--out", "mnist-4.gatewise-data"], ["is the data to be packed"]),
        (["cifar10", "--data", "mnist-4.gatewise-data"], ["mnist-4.gatewise-data holds 'mnist', expected cifar10"]),
    ],
)  # fmt: skip
def test_what_cannot_be_packed_is_one_sentence(tmp_path: Path, words: list[str], answers: list[str]) -> None:
    packed(tmp_path)
    (tmp_path / "empty").mkdir()
    before = contents(tmp_path)
    assert_one_sentence(gatewise("data", "pack", *words, cwd=tmp_path), *answers)
    assert {name: data for name, data in contents(tmp_path).items() if name[0] != "."} == before


def test_long_work_says_how_far_it_is_where_there_is_no_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(progress, "QUIET_SECONDS", -1.0)
    with progress.working("packing mnist") as report:
        for done in range(5):
            report(done, 4)
    lines = capsys.readouterr().err.splitlines()
    assert [re.sub(r"\d:\d\d:\d\d", "time", line) for line in lines] == [
        f"packing mnist: {share}%  time left" for share in (25, 50, 75)
    ]


@needs_fork
def test_help_has_examples(tmp_path: Path) -> None:
    assert "pack" in gatewise("data", "--help", cwd=tmp_path).out
    done = gatewise("data", "pack", "--help", cwd=tmp_path)
    assert (done.code, done.err) == (0, "")
    assert "Usage: gatewise data pack" in done.out
    assert "Examples" in done.out
