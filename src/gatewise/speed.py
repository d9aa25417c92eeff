"""How fast a model predicts on this machine: samples a second by batch size, and how long one sample takes."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.table import Table

from gatewise import core
from gatewise.encode import Thermometer
from gatewise.errors import ConfigError
from gatewise.model import BooleanModel

BATCHES = (1, 64, 512, 4_096, 65_536)


@dataclass(frozen=True)
class Timing:
    """One line of the table."""

    rows: str
    """What is predicted from: features (and their dtype), bits, or packed bits."""
    batch: int
    seconds: float
    """The best call."""
    calls: int

    @property
    def rate(self) -> float:
        """Samples a second."""
        return self.batch / self.seconds


def best_seconds(call: Callable[[], object], budget: float, least: int = 3) -> tuple[float, int]:
    """The shortest of as many calls as fit into `budget` seconds, and how many they were."""
    best, calls, begin = math.inf, 0, time.perf_counter()
    while calls < least or time.perf_counter() - begin < budget:
        start = time.perf_counter()
        call()
        best = min(best, time.perf_counter() - start)
        calls += 1
    return best, calls


def measure(model: BooleanModel, *, threads: int = 1, seconds: float = 0.5, seed: int = 0) -> list[Timing]:
    """Time `predict` and `predict_bits` on random samples, for about `seconds` a batch size.

    >>> timings = measure(gatewise.load("runs/digits/model.gatewise"))
    """
    if threads < 1 or not 0 < seconds <= 600:
        raise ConfigError(f"threads={threads} and seconds={seconds}: expected at least 1 thread and up to 600 seconds")
    rng = np.random.default_rng(seed)
    inputs, largest = model.circuit.inputs, max(BATCHES)
    bits = rng.random((largest, inputs), np.float32) < 0.5
    packed = np.packbits(bits, axis=1, bitorder="little")
    kinds: list[tuple[str, NDArray[Any], Callable[[NDArray[Any]], object]]] = [
        ("bits", bits, model.predict_bits),
        ("packed bits", packed, lambda rows: model.predict_bits(rows, packed=True)),
    ]
    features = _features(model, rng, largest)
    if features is not None:
        kinds.insert(0, (f"{features.dtype} features", features, model.predict))
    before = core.fixed_threads()
    core.set_threads(threads)
    try:
        return [
            Timing(name, batch, *best_seconds(lambda c=call, r=rows[:batch]: c(r), seconds))  # type: ignore[misc]
            for name, rows, call in kinds
            for batch in BATCHES
        ]
    finally:
        core.set_threads(before)


def _features(model: BooleanModel, rng: np.random.Generator, samples: int) -> NDArray[Any] | None:
    """Random features in the range of a thermometer's thresholds; None for tables, whose columns mean something."""
    if not isinstance(model.encoder, Thermometer):
        return None
    low, high = float(model.encoder.thresholds.min()), float(model.encoder.thresholds.max())
    shape = (samples, *model.encoder.input_shape)
    if low >= 0 and 1 < high <= 255:
        return rng.integers(0, 256, shape, dtype=np.uint8)
    return rng.uniform(low - 1, high + 1, shape).astype(np.float32)


def table_of(timings: list[Timing], threads: int) -> Table:
    """The timings as a table."""
    table = Table("from", "batch", "time a call", "samples a second", title_justify="left")
    table.title = f"prediction on {threads} thread{'s' * (threads > 1)}, encoding, circuit and popcount included"
    for column in table.columns[1:]:
        column.justify = "right"
    for i, t in enumerate(timings):
        new = i > 0 and timings[i - 1].rows != t.rows
        if new:
            table.add_section()
        name = t.rows if new or i == 0 else ""
        table.add_row(name, f"{t.batch:,}", f"{1e6 * t.seconds:,.1f} µs", f"{t.rate:,.0f}")
    return table


def describe(model: BooleanModel) -> str:
    """What runs, in a line."""
    program = model.program
    if program is None:
        return f"the simulator runs, not the C core: {core.why_not()}"
    width = core.levels()[-1] if core.level() < 0 else list(core.LEVELS)[core.level()]
    return (
        f"{program.gates:,} gates in {program.runs:,} runs on {program.slots:,} slots "
        f"({program.state_bytes / 2**10:,.0f} KiB at 512 samples a word), {width}"
    )
