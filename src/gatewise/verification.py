"""`gatewise verify`: open two files, and find out whether they compute the same."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from gatewise.circuit import Verdict, prove
from gatewise.files import write_atomically
from gatewise.inspection import circuit_of, load_any
from gatewise.model import BooleanModel

EXIT_CODES = {"proved": 0, "refuted": 1, "undecided": 3}

_SHOWN_INPUTS = 20
"""A witness with more inputs at 1 than this is printed in part."""


def verify(first: Path, second: Path, *, time_limit: float, seed: int, witness: Path | None) -> int:
    """Print whether two files compute the same, and return the exit code."""
    opened = [load_any(path) for path in (first, second)]
    if all(isinstance(item, BooleanModel) for item in opened):
        other = _differences(*opened)  # type: ignore[arg-type]
        if other:
            print(f"Refuted: the models have different {' and '.join(other)}.")
            return EXIT_CODES["refuted"]
    with _stages() as progress:
        verdict = prove(*map(circuit_of, opened), time_limit=time_limit, seed=seed, progress=progress)
    print(verdict)
    if verdict.witness is not None:
        _show_witness(verdict, witness)
    return EXIT_CODES[verdict.outcome]


def _differences(first: BooleanModel, second: BooleanModel) -> list[str]:
    """What differs between two models apart from their circuits."""
    mine, theirs = (model.encoder.arrays() for model in (first, second))
    same_arrays = mine.keys() == theirs.keys() and all(np.array_equal(mine[name], theirs[name]) for name in mine)
    same = {
        "encoders": same_arrays and first.encoder.header() == second.encoder.header(),
        "heads": first.head == second.head,
        "class names": first.class_names == second.class_names,
    }
    return [what for what, equal in same.items() if not equal]


def _show_witness(verdict: Verdict, path: Path | None) -> None:
    """Say on which inputs the circuits differ, and write those to a file if there is a name for it."""
    bits = verdict.witness
    assert bits is not None
    ones = np.flatnonzero(bits)
    shown = ", ".join(map(str, ones[:_SHOWN_INPUTS].tolist())) or "none"
    more = f" and {len(ones) - _SHOWN_INPUTS:,} more" if len(ones) > _SHOWN_INPUTS else ""
    print(f"witness: of {len(bits):,} inputs, these are 1: {shown}{more}")
    if path is not None:
        write_atomically(path, lambda file: np.save(file, bits))
        print(f"written to {path}")


@contextlib.contextmanager
def _stages() -> Iterator[Callable[[str], object]]:
    """Show the stage that runs: on a terminal with a clock, elsewhere as one line a stage."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield lambda stage: print(stage, file=sys.stderr, flush=True)
        return
    with Progress(
        SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn(), console=console, transient=True
    ) as bar:
        task = bar.add_task("")
        yield lambda stage: bar.update(task, description=stage)
