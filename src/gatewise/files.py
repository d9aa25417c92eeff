"""Files that are either whole or not there: written beside their place and renamed, checked when read.

An arrays file is a safetensors file whose metadata holds a JSON header and a checksum over header and arrays.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import secrets
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load as arrays_from_bytes
from safetensors.numpy import save as bytes_from_arrays

from gatewise.errors import FileError

fcntl: Any
try:
    import fcntl
except ImportError:  # Windows
    fcntl = None

Arrays = dict[str, NDArray[Any]]

PART = ".gatewise-*.part"
"""What a file is called until it is whole."""


def write_atomically(path: str | os.PathLike[str], data: bytes | Callable[[IO[bytes]], object]) -> None:
    """Write `data`, or what `data` writes to the file it is handed, so that `path` is the old file or the new one.

    The bytes go to a temporary file in the same folder, are flushed to the disk and renamed; a failure leaves
    what was at `path` as it was, and nothing beside it.
    """
    target = Path(os.path.realpath(path))  # a link stays a link
    beside = target.parent / PART.replace("*", secrets.token_hex(8))
    try:
        try:
            with open(beside, "xb") as file:
                if callable(data):
                    data(file)
                else:
                    file.write(data)
                file.flush()
                os.fsync(file.fileno())
            os.replace(beside, target)
        except BaseException:
            beside.unlink(missing_ok=True)
            raise
        _sync_folder(target.parent)
    except OSError as error:
        raise FileError(f"{os.fspath(path)} cannot be written: {_reason(error)}") from error


def remove_parts(folder: Path) -> None:
    """Remove what writers that were killed have left in a folder in which nobody else is writing."""
    try:
        for part in folder.glob(PART):
            part.unlink(missing_ok=True)
    except OSError as error:
        raise FileError(f"{folder} cannot be tidied: {_reason(error)}") from error


def lock_folder(folder: Path) -> int | None:
    """Lock a folder for this process, while the returned descriptor is open; None where folders cannot be locked."""
    if fcntl is None:
        return None
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        raise FileError(f"another process is at work in {folder}: wait for it, or choose another folder") from None
    except OSError:  # a file system without locks
        os.close(descriptor)
        return None
    return descriptor


def write_arrays(path: str | os.PathLike[str], arrays: Mapping[str, NDArray[Any]], header: Mapping[str, Any]) -> None:
    """Write arrays and a JSON header, which names its "format" and "version", as one file."""
    try:
        text = json.dumps(header)
    except (TypeError, ValueError) as error:
        raise FileError(f"{os.fspath(path)} cannot be written: its header is not JSON ({error})") from None
    plain = {name: np.asarray(array, order="C") for name, array in arrays.items()}
    sealed = json.dumps({"sha256": _checksum(text, plain), "header": header})
    # One key: safetensors writes several in an arbitrary order, and equal contents should be equal bytes.
    write_atomically(path, bytes_from_arrays(plain, {"gatewise": sealed}))


def read_arrays(path: str | os.PathLike[str], format: str, version: int) -> tuple[Arrays, dict[str, Any]]:
    """The arrays and the header of a file that `write_arrays` wrote in this format and version."""
    name = os.fspath(path)
    try:
        data = Path(path).read_bytes()
    except (OSError, ValueError) as error:  # a path with a zero byte is a ValueError
        raise FileError(f"{name} cannot be read: {_reason(error)}") from error
    sealed = _sealed_header(data)
    if sealed is None:
        raise FileError(f"{name} is no gatewise file, or was cut off: expected a {format} file")
    header = sealed["header"]
    try:
        arrays = arrays_from_bytes(data)
        intact = sealed["sha256"] == _checksum(json.dumps(header), arrays)
    except (SafetensorError, KeyError, TypeError, ValueError, RecursionError) as error:
        raise FileError(f"{name} is damaged: {error}") from error
    if not intact:
        raise FileError(f"{name} is damaged: its checksum does not match what it holds")
    found = (header.get("format"), header.get("version")) if isinstance(header, dict) else (None, None)
    if found != (format, version):
        raise FileError(f"{name} has format {found[0]!r} version {found[1]!r}: expected {format!r} version {version}")
    return arrays, header


def _sealed_header(data: bytes) -> dict[str, Any] | None:
    """The header and the checksum in the metadata of a file of ours; None of anything else."""
    length = int.from_bytes(data[:8], "little")
    try:
        sealed = json.loads(json.loads(data[8 : 8 + length])["__metadata__"]["gatewise"])
        return {"header": sealed["header"], "sha256": sealed["sha256"]}
    except (ValueError, KeyError, TypeError, RecursionError):
        return None


def _checksum(text: str, arrays: Mapping[str, NDArray[Any]]) -> str:
    digest = hashlib.sha256(text.encode())
    for name in sorted(arrays):
        array = arrays[name].astype(arrays[name].dtype.newbyteorder("<"), copy=False)
        digest.update(f"\n{name} {array.dtype.str} {array.shape}\n".encode())
        digest.update(array.reshape(-1).view(np.uint8).data)
    return digest.hexdigest()


def _sync_folder(folder: Path) -> None:
    """Make the renaming itself last; some file systems cannot, which is no reason to fail."""
    if os.name != "posix":
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):
            raise
    finally:
        os.close(descriptor)


def _reason(error: Exception) -> str:
    return (isinstance(error, OSError) and error.strerror) or str(error)
