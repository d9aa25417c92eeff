"""Where a dataset's files come from: a folder the user names, or a cache that downloads what is missing."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from gatewise.data.dataset import Dataset, File, Progress
from gatewise.errors import DataError

FOLDER_VARIABLE = "GATEWISE_DATA"
"""The environment variable that names the folder used when a call names none."""


@dataclass(frozen=True)
class Source:
    """A folder to look in for the files of `row`, and whether one that is not there may be downloaded into it."""

    row: Dataset
    root: Path
    download: bool
    progress: Progress | None = None

    def find(self, *places: str) -> Path | None:
        """The first of these places below the folder that exists."""
        return next((p for p in (self.root / place for place in places) if p.exists()), None)

    def has_originals(self) -> bool:
        """Whether some of the publisher's files are in the folder; what comes with the package always is."""
        return not self.row.files or any(self.find(*file.places()) for file in self.row.files)

    def path(self, file: File) -> Path:
        """Where `file` lies, or what it holds, downloading it if that is allowed and needed."""
        found = self.find(*file.places())
        if found is not None:
            return found
        if self.download and file.url:
            return fetch(file, self.root / file.folders[0], self.progress)
        raise self.missing(*file.places())

    def missing(self, *places: str) -> DataError:
        """The error for a file that is in none of these places below the folder."""
        what = f"{self.row.name} needs {' or '.join(places)} in the folder {self.root}"
        why = "which is not there" if self.root.is_dir() else "but there is no such folder"
        remedy = self.row.fetch or "put it there, or name no folder to have it downloaded"
        return DataError(f"{what}, {why}: {remedy}")


def open_source(row: Dataset, folder: Path | None, progress: Progress | None) -> Source:
    """The source for `folder`, or for the user's cache (`GATEWISE_DATA` overrides its place) if that is None."""
    if folder is not None:
        return Source(row, Path(folder), download=False, progress=progress)
    return Source(row, cache_folder(), download=True, progress=progress)


def cache_folder() -> Path:
    """Where downloads go: the folder in GATEWISE_DATA, else the system's place for caches."""
    named = os.environ.get(FOLDER_VARIABLE)
    if named:
        return Path(named).expanduser()
    import pooch

    return Path(pooch.os_cache("gatewise"))


class _Bar:
    """What pooch drives during a download, passed on as calls of a Progress."""

    def __init__(self, progress: Progress) -> None:
        self.progress, self.total, self.done = progress, 0, 0

    def update(self, size: int) -> None:
        self.done = min(self.done + size, self.total) if self.total else self.done + size
        self.progress(self.done, self.total)

    def reset(self) -> None:
        self.done = 0

    def close(self) -> None:
        pass


def fetch(file: File, folder: Path, progress: Progress | None = None) -> Path:
    """Download `file` into `folder`; it appears there only when it is complete and its checksum is right."""
    import pooch

    bar = False if progress is None else _Bar(progress)
    downloader = pooch.HTTPDownloader(progressbar=bar, chunk_size=1 << 16, timeout=60)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        return Path(pooch.retrieve(file.url, file.checksum, file.name, folder, downloader=downloader))
    except ValueError as error:
        raise DataError(
            f"{file.name} from {file.url} has another checksum than the expected {file.checksum}: try again, "
            f"or fetch the publisher's file by hand and put it into {folder}"
        ) from error
    except OSError as error:
        if error.errno is not None or isinstance(error, PermissionError):
            raise DataError(
                f"{file.name} cannot be written into {folder} ({error.strerror or error}): free or unlock that folder, "
                f"or name another one with {FOLDER_VARIABLE}"
            ) from error
        raise DataError(
            f"{file.name} cannot be downloaded from {file.url} ({_reason(error)}): check the connection and try again, "
            f"or fetch it by hand and put it into {folder}"
        ) from error


def _reason(error: OSError) -> str:
    status = getattr(getattr(error, "response", None), "status_code", None)
    return f"the server answers {status}" if status else type(error).__name__


def read_bytes(path: Path) -> bytes:
    """The file's content; a file that cannot be read is a DataError."""
    try:
        return path.read_bytes()
    except OSError as error:
        raise DataError(
            f"{path} cannot be read ({error.strerror}), expected a readable file: check its permissions"
        ) from error


def read_lines(path: Path) -> list[str]:
    """The lines of a text file; one that is not UTF-8 is a DataError."""
    try:
        return read_bytes(path).decode("utf-8").splitlines()
    except UnicodeDecodeError as error:
        raise DataError(
            f"{path} is not text (byte {error.start} is not UTF-8), expected the publisher's text file: fetch it again"
        ) from error
