"""Files that are either whole or not there: written beside their place and renamed, checked when read.

An arrays file is a safetensors file whose metadata holds a JSON header and a checksum over header and arrays.
Nothing a file says is believed before it is checked: reading one takes memory for a small multiple of its size.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import re
import secrets
import stat
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

MAX_HEADER, MAX_PARTS = 4 << 20, 1 << 16
"""The longest header in bytes, and the most lists and tables in it: `[` is one byte in JSON and a hundred in memory."""


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
    name = os.fspath(path)
    try:
        text = json.dumps(header)
        _from_json(text)  # what cannot be read again: two keys that are one as text, half a character
    except (TypeError, ValueError, RecursionError) as error:
        raise FileError(f"{name} cannot be written: its header is not JSON ({error})") from None
    plain = {name: np.asarray(array, order="C") for name, array in arrays.items()}
    sealed = json.dumps({"sha256": _checksum(text, plain), "header": header})
    # One key: safetensors writes several in an arbitrary order, and equal contents should be equal bytes.
    data = bytes_from_arrays(plain, {"gatewise": sealed})
    length = int.from_bytes(data[:8], "little")
    if length > MAX_HEADER or _sealed_header(data[8 : 8 + length]) is None:
        raise FileError(
            f"{name} cannot be written: its header takes {length:,} bytes and names {len(plain):,} arrays, "
            f"expected {MAX_HEADER:,} bytes and {MAX_PARTS:,} lists and tables at most"
        )
    write_atomically(path, data)


def read_arrays(path: str | os.PathLike[str], format: str, version: int) -> tuple[Arrays, dict[str, Any]]:
    """The arrays and the header of a file that `write_arrays` wrote in this format and version."""
    name = os.fspath(path)
    data, sealed = _read(path, format)
    header = sealed["header"]
    try:
        arrays = arrays_from_bytes(data)
        intact = sealed["sha256"] == _checksum(json.dumps(header), arrays)
    except (SafetensorError, KeyError, TypeError, ValueError, RecursionError) as error:
        raise FileError(f"{name} is damaged: {brief(str(error))}") from error
    if not intact:
        raise FileError(f"{name} is damaged: its checksum does not match what it holds")
    found = (header.get("format"), header.get("version")) if isinstance(header, dict) else (None, None)
    if found != (format, version) or type(found[1]) is not int:
        came = brief(f"{found[0]!r} version {found[1]!r}")
        raise FileError(f"{name} has format {came}: expected {format!r} version {version}")
    return arrays, header


def format_of(path: str | os.PathLike[str]) -> Any:
    """The format that a file of ours says it has, whatever that is."""
    header = _read(path, "gatewise")[1]["header"]
    return header.get("format") if isinstance(header, dict) else None


def brief(text: str) -> str:
    """A message that quotes what a file holds, cut to what somebody would read."""
    return text if len(text) <= 400 else f"{text[:400]} …"


def _read(path: str | os.PathLike[str], format: str) -> tuple[bytes, dict[str, Any]]:
    """A whole file and its sealed header; what does not begin like one of ours, or is too short or long, isn't read."""
    name = os.fspath(path)
    try:
        kind = os.stat(path).st_mode
        if not (stat.S_ISREG(kind) or stat.S_ISDIR(kind)):  # a device may have no end, a pipe no beginning
            raise FileError(f"{name} cannot be read: expected a file, not a device or a pipe")
        with open(path, "rb") as file:
            size = os.fstat(file.fileno()).st_size
            length = int.from_bytes(file.read(8), "little")
            found = _sealed_header(file.read(length)) if length <= min(size, MAX_HEADER) else None
            if found is None:
                raise FileError(f"{name} is no gatewise file, or was cut off: expected a {format} file")
            sealed, end = found
            if size != 8 + length + end:
                raise FileError(f"{name} is damaged: it has {size} bytes, but its header says {8 + length + end}")
            file.seek(0)
            return file.read(size), sealed
    except (OSError, ValueError) as error:  # a path with a zero byte is a ValueError
        raise FileError(f"{name} cannot be read: {_reason(error)}") from error


def _sealed_header(head: bytes) -> tuple[dict[str, Any], int] | None:
    """The header and checksum in the metadata of a file of ours, and where the arrays end; None of anything else."""
    try:
        entries = _from_json(head.decode())
        sealed = _from_json(entries.pop("__metadata__")["gatewise"])
        end = max((entry["data_offsets"][1] for entry in entries.values()), default=0)
        sound = type(end) is int and 0 <= end < 2**63
        return ({"header": sealed["header"], "sha256": sealed["sha256"]}, end) if sound else None
    except (ValueError, LookupError, AttributeError, TypeError, RecursionError):
        return None


def _from_json(text: str) -> Any:
    """What a JSON text says, which may not name a key twice or hold half of a surrogate pair."""
    if text.count("[") + text.count("{") > MAX_PARTS:
        raise ValueError(f"it has more than {MAX_PARTS:,} lists and tables")
    value = json.loads(text, object_pairs_hook=_distinct)
    if re.search(r"\\u[dD]", text):
        json.dumps(value, ensure_ascii=False).encode()
    return value


def _distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    table = dict(pairs)
    if len(table) < len(pairs):
        raise ValueError("a key is there twice")
    return table


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
