"""What `gatewise inspect` shows: a model or a circuit in numbers, each of which says what it counts."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table
from rich.text import Text

from gatewise.circuit import Circuit, Statistics, load_circuit, parse, statistics, store
from gatewise.circuit.ir import gate_name
from gatewise.encode import Encoder, Numeric, TableEncoder, Thermometer
from gatewise.errors import FileError
from gatewise.files import brief, format_of
from gatewise.model import FORMAT, BooleanModel, file_of, load

BAR, ROWS = 30, 24
"""The longest bar in characters, and the most rows of bars."""

Rows = Iterable[tuple[str, str]]


def load_any(path: str | os.PathLike[str]) -> BooleanModel | Circuit:
    """The model or the circuit in a file, the circuit that a text file spells, or the model in the folder of a run.

    >>> load_any("runs/digits")
    """
    file = file_of(path)
    if (text := _text_of(file)) is not None:
        return parse(text)
    found = format_of(file)
    if found == FORMAT:
        return load(file)
    if found == store.FORMAT:
        return load_circuit(file)
    raise FileError(f"{file} has format {brief(repr(found))}: expected {FORMAT!r} or {store.FORMAT!r}")


def _text_of(file: Path) -> str | None:
    """What a text file says; None for one of ours, which has a zero in its first eight bytes, as no text has."""
    if not file.is_file():
        return None
    try:
        with file.open("rb") as opened:
            start = opened.read(8)
            return None if b"\0" in start else (start + opened.read()).decode()
    except OSError as error:
        raise FileError(f"{file} cannot be read: {error.strerror or error}") from error
    except UnicodeDecodeError:
        raise FileError(f"{file} is neither a model nor a circuit, nor one as text") from None


def circuit_of(found: BooleanModel | Circuit) -> Circuit:
    """The circuit of a model, or the circuit itself."""
    return found.circuit if isinstance(found, BooleanModel) else found


def neurons_before(model: BooleanModel, path: Path) -> int | None:
    """How many neurons the model's network had: from its notes, or from the report beside it if that is of its circuit.

    >>> neurons_before(model, Path("runs/digits/model.gatewise"))
    """
    report = path.parent / "report.json"
    try:
        told = json.loads(report.read_bytes()) if report.is_file() else {}
    except (OSError, ValueError, RecursionError):
        told = {}
    same = isinstance(told, dict) and told.get("gates") == model.circuit.gates
    neurons = model.notes.get("neurons", told.get("neurons") if same else None)
    return neurons if type(neurons) is int else None


def show(found: BooleanModel | Circuit, path: Path, console: Console) -> None:
    """Print what a file holds as tables."""
    counts = statistics(circuit_of(found))
    model = found if isinstance(found, BooleanModel) else None
    name = str(path).encode(console.encoding, "backslashreplace").decode(console.encoding)
    console.print(Text(f"{name}: a {'circuit' if model is None else 'model'}"), soft_wrap=True)
    neurons = None if model is None else neurons_before(model, path)
    console.print(_table("circuit, without encoder and popcount", _circuit_rows(counts, neurons)))
    if model is not None:
        rows = [*_encoder_rows(model.encoder), *_head_rows(model), *_note_rows(model)]
        console.print(_table("what is around it", rows))
    console.print(_bars("gates by level", _grouped(counts.level_sizes), console))
    console.print(_bars("inputs and gates by how often they are read", _doubling(counts.fan_out), console))
    console.print(_bars("gates by what they compute", _gate_kinds(counts), console))


def _circuit_rows(counts: Statistics, neurons: int | None) -> Iterator[tuple[str, str]]:
    if neurons is not None:
        yield "neurons: gates before anything was removed, convolutions unrolled", f"{neurons:,}"
    yield f"gates in the file, of {counts.k} input{'s' * (counts.k > 1)} each", f"{counts.gates:,}"
    yield "gates that an output depends on", f"{counts.reachable:,}"
    yield "BOPs, the paper's count: those without constants, identities and negations", f"{counts.bops:,}"
    yield "inputs (bits)", f"{counts.inputs:,}"
    yield "inputs that an output depends on", f"{counts.inputs_used:,}"
    yield "outputs (bits)", f"{counts.outputs:,}"
    yield "depth: gates on the longest path", f"{counts.depth:,}"
    yield "fan-out of inputs and gates: mean, largest", f"{counts.fan_out_mean:.2f}, {counts.fan_out_max:,}"


def _encoder_rows(encoder: Encoder) -> Iterator[tuple[str, str]]:
    if isinstance(encoder, Thermometer):
        each = "the same for all values" if encoder.thresholds.ndim == 1 else "its own for each value"
        yield "encoder", f"thermometer of {encoder.levels:,} level{'s' * (encoder.levels > 1)}, {each}"
    elif isinstance(encoder, TableEncoder):
        numeric = sum(isinstance(column, Numeric) for column in encoder.columns)
        yield "encoder", f"table of {numeric:,} numeric and {len(encoder.columns) - numeric:,} category columns"
    yield "shape of a sample, and of its bits", f"{tuple(encoder.input_shape)}, {tuple(encoder.bit_shape)}"


def _head_rows(model: BooleanModel) -> Iterator[tuple[str, str]]:
    head, outputs = model.head, len(model.circuit.outputs)
    yield "head", "popcount for each class, the largest wins"
    yield "classes", f"{head.classes:,}"
    yield "outputs counted for a class", f"{head.group_size(outputs):,}"
    yield "tau: a score is the count divided by it", f"{head.tau:g}"


def _note_rows(model: BooleanModel) -> Iterator[tuple[str, str]]:
    if isinstance(model.notes.get("dataset"), str):
        yield "trained on", ascii(brief(model.notes["dataset"]))[1:-1]


def _gate_kinds(counts: Statistics) -> list[tuple[str, int]]:
    """Two-input gates by name, others by how many inputs they depend on; the most frequent first."""
    if counts.k == 2:
        pairs = zip(counts.tables.tolist(), counts.table_counts.tolist(), strict=True)
        kinds = [(gate_name(table, 2), count) for table, count in pairs]
    else:
        kinds = [
            (f"depends on {n} of {counts.k}", count) for n, count in enumerate(counts.dependence.tolist()) if count
        ]
    return sorted(kinds, key=lambda kind: -kind[1])


def _grouped(sizes: np.ndarray) -> Iterator[tuple[str, int]]:
    """Sizes of at most ROWS runs of levels, numbered from 1."""
    step = max(1, -(-len(sizes) // ROWS))
    for begin in range(0, len(sizes), step):
        end = min(begin + step, len(sizes))
        yield (f"{end}" if end == begin + 1 else f"{begin + 1} to {end}"), int(sizes[begin:end].sum())


def _doubling(histogram: np.ndarray) -> Iterator[tuple[str, int]]:
    """A histogram's sums over 0, 1, 2 to 3, 4 to 7 and so on."""
    begin, end = 0, 1
    while begin < len(histogram):
        yield (f"{begin}" if end == begin + 1 else f"{begin} to {end - 1}"), int(histogram[begin:end].sum())
        begin, end = end, 2 * end


def _table(title: str, rows: Rows) -> Table:
    table = Table(title=title, show_header=False, title_justify="left")
    table.add_column(style="dim")
    table.add_column(justify="right")
    for name, value in rows:
        table.add_row(Text(name), Text(value))
    return table


def _bars(title: str, rows: Iterable[tuple[str, int]], console: Console) -> Table:
    """Counts with a bar each, as long as its part of the largest."""
    rows = list(rows)
    largest = max((count for _, count in rows), default=0)
    mark = "#" if console.options.ascii_only else "█"
    table = Table(title=title, show_header=False, title_justify="left")
    table.add_column(style="dim")
    table.add_column(justify="right")
    table.add_column()
    for name, count in rows:
        table.add_row(Text(name), f"{count:,}", mark * -(-BAR * count // max(1, largest)))
    return table
