"""CIFAR-10 from its Python batches, which are pickles: read without running anything that a pickle can name."""

from __future__ import annotations

import gzip
import io
import math
import pickle
import tarfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gatewise.data.dataset import Dataset, Part, Splits
from gatewise.data.source import Source, read_bytes
from gatewise.errors import DataError

FOLDER = "cifar-10-batches-py"
TRAIN = tuple(f"data_batch_{i}" for i in range(1, 6))
TEST = ("test_batch",)


def load_cifar10(row: Dataset, source: Source) -> Splits:
    """The five training batches and the test batch, from the unpacked folder or from the archive."""
    if source.find(FOLDER) is not None:
        batches = {name: _batch_file(source, name) for name in (*TRAIN, *TEST)}
    else:
        batches = _read_archive(source.path(row.files[0]))
    train = [read_batch(*batches[name]) for name in TRAIN]
    test_x, test_y = read_batch(*batches[TEST[0]])
    return Splits(np.concatenate([x for x, _ in train]), np.concatenate([y for _, y in train]), test_x, test_y)


def _batch_file(source: Source, name: str) -> tuple[bytes, str]:
    path = source.find(f"{FOLDER}/{name}")
    if path is None:
        raise source.missing(f"{FOLDER}/{name}")
    return read_bytes(path), str(path)


def _read_archive(path: Path) -> dict[str, tuple[bytes, str]]:
    """The batches in the publisher's tar.gz, read in memory, so that no member name is ever used as a path."""
    wanted = {f"{FOLDER}/{name}": name for name in (*TRAIN, *TEST)}
    batches = {}
    try:
        with gzip.open(path) as stream, tarfile.open(fileobj=stream, mode="r:") as archive:
            for member in archive:
                content = archive.extractfile(member) if member.name in wanted else None
                if content is not None:
                    batches[wanted[member.name]] = content.read(), f"{path}:{member.name}"
            while stream.read(1 << 20):  # up to the checksum at the end, which the archive's own end comes before
                pass
    except (tarfile.TarError, EOFError, OSError, zlib.error) as error:
        raise DataError(
            f"{path} is truncated or no tar.gz archive ({error}), expected CIFAR-10's Python version: fetch it again"
        ) from error
    lacking = [member for member, name in wanted.items() if name not in batches]
    if lacking:
        raise DataError(f"{path} lacks {lacking[0]}, expected CIFAR-10's Python version: fetch the archive again")
    return batches


def read_batch(data: bytes, origin: str) -> Part:
    """Images uint8 [n, 3, 32, 32] and labels of one batch."""
    batch = read_pickle(data, origin)
    x, labels = batch.get("data"), batch.get("labels")
    if not isinstance(x, np.ndarray) or x.ndim != 2 or x.shape[1] != 3072:
        came = f"an array of shape {x.shape}" if isinstance(x, np.ndarray) else "no array"
        raise DataError(f"{origin} holds {came} as `data`, expected rows of 3072 bytes: fetch the file again")
    if not isinstance(labels, list) or len(labels) != len(x) or not all(type(v) is int for v in labels):
        came = f"a list of {len(labels)}" if isinstance(labels, list) else "no list"
        raise DataError(f"{origin} holds {came} as `labels`, expected {len(x)} whole numbers: fetch the file again")
    wrong = [v for v in labels if not 0 <= v < 10]
    if wrong:
        raise DataError(f"{origin} holds the label {wrong[0]}, expected 0..9: fetch the file again")
    return x.reshape(-1, 3, 32, 32), np.array(labels, dtype=np.int64)


def read_pickle(data: bytes, origin: str) -> dict[str, Any]:
    """The dictionary in a pickle of plain values and uint8 arrays, written by Python 2 or 3; its keys become text."""
    unpickler = _Unpickler(data, origin)
    try:
        loaded = unpickler.load()
    except DataError:
        raise
    except Exception as error:  # a damaged pickle can raise anything
        raise DataError(
            f"{origin} is truncated or no pickle ({type(error).__name__}), expected a CIFAR-10 batch: fetch it again"
        ) from error
    if not isinstance(loaded, dict):
        raise DataError(f"{origin} holds a {type(loaded).__name__}, expected a dictionary: fetch the file again")
    kind = unpickler.allowed["numpy.ndarray"]
    return {
        k.decode("latin1") if isinstance(k, bytes) else str(k): v.array(origin) if isinstance(v, kind) else v
        for k, v in loaded.items()
    }


class _Unpickler(pickle.Unpickler):
    """Hands out stand-ins for the few names that uint8 arrays and bytes need, and refuses every other name.

    The stand-ins only remember what they are given, so not even numpy's own constructors run on untrusted values;
    they are made anew for each pickle, because a pickle may assign attributes to what it names.
    """

    def __init__(self, data: bytes, origin: str) -> None:
        super().__init__(io.BytesIO(data), encoding="bytes")
        self.origin, self.allowed = origin, _stand_ins()

    def find_class(self, module: str, name: str) -> Any:
        # numpy 2 moved numpy.core to numpy._core; files written before and after name it differently.
        key = f"{module}.{name}".replace("numpy._core.", "numpy.core.")
        if key not in self.allowed:
            raise DataError(
                f"{self.origin} names {module}.{name}, which CIFAR-10's batches never do, expected only arrays, "
                f"numbers and text: do not use this file, fetch the publisher's"
            )
        return self.allowed[key]


def _stand_ins() -> dict[str, Any]:
    class Dtype:
        def __init__(self, code: str | bytes, *flags: Any) -> None:
            self.code = code.decode("latin1") if isinstance(code, bytes) else code

        def __setstate__(self, state: Any) -> None:
            """Byte order and alignment, which say nothing about single bytes."""

    class Array:
        state: Any = None

        def __setstate__(self, state: Any) -> None:
            self.state = state

        def array(self, origin: str) -> NDArray[np.uint8]:
            match self.state:
                case (_, tuple() as shape, Dtype(code="u1"), columns_first, bytes() as raw) if all(
                    type(n) is int and n >= 0 for n in shape
                ):
                    flat = np.frombuffer(raw, dtype=np.uint8)
                    if flat.size == math.prod(shape):
                        return flat.reshape(shape, order="F" if columns_first else "C").copy()
            raise DataError(f"{origin} holds a damaged array, expected one of bytes: fetch the file again")

    def reconstruct(kind: Any, shape: Any, code: Any) -> Array:
        return Array()

    def encode(text: str, codec: str) -> bytes:
        """How Python 3 writes bytes into an old pickle."""
        if codec != "latin1":
            raise ValueError(f"codec {codec}")
        return text.encode("latin1")

    return {
        "numpy.core.multiarray._reconstruct": reconstruct,
        "numpy.ndarray": Array,
        "numpy.dtype": Dtype,
        "_codecs.encode": encode,
    }
