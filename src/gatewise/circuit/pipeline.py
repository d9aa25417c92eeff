"""The passes in order, again and again until none of them changes anything, and a row for each time one was applied."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from gatewise.circuit.collapse import merge_two_levels
from gatewise.circuit.cuts import rewrite
from gatewise.circuit.ir import Circuit
from gatewise.circuit.passes import prune
from gatewise.circuit.simplify import absorb_inverters, fold_constants, share_equal_gates
from gatewise.errors import ConfigError

Pass = Callable[[Circuit], Circuit]

PIPELINE: tuple[Pass, ...] = (
    prune,
    fold_constants,
    absorb_inverters,
    share_equal_gates,
    merge_two_levels,
    rewrite,
)
"""What `optimize` does, in order. Each pass may count on the one before; none ever adds a gate."""


@dataclass(frozen=True)
class Applied:
    """A pass applied once. Gates are all there are, the NOTs that outputs show among them."""

    round: int
    name: str
    gates_before: int
    gates_after: int
    seconds: float
    verdict: str
    """What the check said: empty without a check, `unchanged` where there was nothing to check."""


@dataclass(frozen=True)
class Optimized:
    """A circuit that the passes leave as it is, and how it came about."""

    circuit: Circuit
    rows: tuple[Applied, ...]
    settled: bool
    """Whether no pass changes the circuit any more; False if the rounds were used up before that."""


def optimize(
    circuit: Circuit,
    passes: Sequence[Pass] = PIPELINE,
    check: Callable[[Circuit, Circuit], object] | None = None,
    max_rounds: int = 20,
) -> Optimized:
    """Apply the passes in turn until each leaves the circuit as it is, or `max_rounds` times.

    `check(before, after)` is called when a pass has changed something: it raises, or its answer is kept as text.

    >>> smaller = optimize(circuit).circuit
    """
    if not passes or max_rounds < 1:
        raise ConfigError(
            f"optimize came with {len(passes)} passes and {max_rounds} rounds: expected at least 1 of each"
        )
    rows: list[Applied] = []
    unchanged = 0  # passes in a row
    for number in range(1, max_rounds + 1):
        for apply in passes:
            begin = time.perf_counter()
            after = apply(circuit)
            seconds = time.perf_counter() - begin
            same = after == circuit
            verdict = "" if check is None else "unchanged" if same else str(check(circuit, after))
            name = getattr(apply, "__name__", str(apply))
            rows.append(Applied(number, name, circuit.gates, after.gates, seconds, verdict))
            circuit, unchanged = after, unchanged + 1 if same else 0
            if unchanged == len(passes):
                return Optimized(circuit, tuple(rows), settled=True)
    return Optimized(circuit, tuple(rows), settled=False)


@dataclass(frozen=True)
class Removed:
    """What one pass has done in all rounds."""

    name: str
    times: int
    gates: int
    seconds: float
    verdicts: tuple[str, ...]
    """What the check said, each answer once."""


def removed_by_pass(rows: Iterable[Applied]) -> list[Removed]:
    """The rows summed up, a pass each, in the order of their first application."""
    groups: dict[str, list[Applied]] = {}
    for row in rows:
        groups.setdefault(row.name, []).append(row)
    return [
        Removed(
            name,
            len(group),
            sum(row.gates_before - row.gates_after for row in group),
            sum(row.seconds for row in group),
            tuple(dict.fromkeys(row.verdict for row in group if row.verdict)),
        )
        for name, group in groups.items()
    ]
