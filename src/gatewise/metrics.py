"""metrics.jsonl: a line of JSON an evaluation."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from gatewise.errors import FileError
from gatewise.files import write_atomically


def trim_metrics(path: Path, step: int) -> None:
    """Drop lines later than the checkpoint, which a killed run has written and will write again."""
    try:
        lines = path.read_text().splitlines() if path.exists() else []
    except (OSError, UnicodeDecodeError) as error:
        raise FileError(f"{path} cannot be read: {error}") from error
    kept = [line for line in lines if (at := _step_of(line)) is not None and at <= step]
    write_atomically(path, "".join(line + "\n" for line in kept).encode())


def _step_of(line: str) -> int | None:
    """The step a line of metrics is of; None for a line that was cut off."""
    try:
        return int(json.loads(line)["step"])
    except (ValueError, KeyError, TypeError):
        return None


def append_metrics(path: Path, metrics: dict[str, Any]) -> None:
    """Add a line."""
    try:
        with path.open("a") as file:
            file.write(json.dumps(metrics, allow_nan=False) + "\n")
    except OSError as error:
        raise FileError(f"{path} cannot be written: {error.strerror}") from error
