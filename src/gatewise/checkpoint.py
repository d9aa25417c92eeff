"""A training run on disk: one file holds all that a resumed run needs, and is either whole or the one before it.

The file is safetensors with a JSON header (see files.py); names are paths into nested state, `optimizer.0.exp_avg`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from gatewise.errors import FileError
from gatewise.files import read_arrays, write_arrays
from gatewise.presets import Options, Preset

FORMAT, VERSION = "gatewise-checkpoint", 1


def _flatten(prefix: str, state: Any) -> Iterator[tuple[str, Tensor]]:
    items = state.items() if isinstance(state, Mapping) else enumerate(state)
    for key, value in items:
        name = f"{prefix}.{key}"
        if isinstance(value, Mapping | list):
            yield from _flatten(name, value)
        else:
            yield name, torch.as_tensor(value)


def _fill(prefix: str, state: Any, arrays: Mapping[str, Any], path: Path) -> Any:
    """`state` with each tensor and number replaced by the saved one of the same name and shape."""
    if isinstance(state, Mapping):
        return {key: _fill(f"{prefix}.{key}", value, arrays, path) for key, value in state.items()}
    if isinstance(state, list):
        return [_fill(f"{prefix}.{i}", value, arrays, path) for i, value in enumerate(state)]
    expected = torch.as_tensor(state)
    if prefix not in arrays:
        raise FileError(f"{path} has no {prefix}: it was made by another network")
    saved = torch.from_numpy(arrays[prefix])
    if saved.shape != expected.shape or saved.dtype != expected.dtype:
        raise FileError(
            f"{path} has {prefix} of {saved.dtype} {list(saved.shape)}, but this run needs {expected.dtype} "
            f"{list(expected.shape)}: it was made by another network or for other data"
        )
    return saved.to(expected.device) if isinstance(state, Tensor) else saved.item()


def save(path: Path, state: Mapping[str, Any], header: Mapping[str, Any]) -> None:
    """Write nested state (mappings and lists of tensors and numbers) and a JSON header."""
    arrays: dict[str, Any] = {}
    for part, value in state.items():
        arrays.update((name, np.asarray(t.detach().cpu())) for name, t in _flatten(part, value))
    write_arrays(path, arrays, {"format": FORMAT, "version": VERSION, **header})


def load(path: Path, like: Mapping[str, Any]) -> dict[str, Any]:
    """The saved state, in the shape of `like`; whatever does not fit raises a FileError."""
    arrays, _ = read_arrays(path, FORMAT, VERSION)
    return {part: _fill(part, value, arrays, path) for part, value in like.items()}


def header(path: Path) -> dict[str, Any]:
    """What the run that wrote the file said of itself."""
    return read_arrays(path, FORMAT, VERSION)[1]


def settings(path: Path) -> tuple[Preset, Options]:
    """What the run that wrote the file was asked to do."""
    found = header(path)
    preset, options = found.get("preset"), found.get("options")
    for what, kind in ((preset, Preset), (options, Options)):
        names = {field.name for field in dataclasses.fields(kind)}
        if not isinstance(what, dict) or set(what) != names:
            raise FileError(f"{path} does not say what it was trained with, or another version of gatewise made it")
    assert isinstance(preset, dict)
    assert isinstance(options, dict)
    return Preset(**{**preset, "dense": tuple(preset["dense"])}), Options(**options)


def optimizer_state(optimizer: torch.optim.Optimizer) -> dict[str, Any]:
    """The optimizer's tensors, by the position of their parameter."""
    return {str(i): dict(state) for i, state in optimizer.state_dict()["state"].items()}


def load_optimizer_state(optimizer: torch.optim.Optimizer, state: Mapping[str, Any]) -> None:
    """Put back what `optimizer_state` gave."""
    whole = optimizer.state_dict()
    optimizer.load_state_dict({**whole, "state": {int(i): dict(s) for i, s in state.items()}})
