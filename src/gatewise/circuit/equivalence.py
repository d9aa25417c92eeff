"""Whether two circuits compute the same: proved, refuted by a witness, or undecided within the time there was."""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from gatewise.circuit import berkeley_abc
from gatewise.circuit.decide import Decider, load_solver
from gatewise.circuit.graph import Graph, Miter, OutOfTime
from gatewise.circuit.ir import Circuit
from gatewise.circuit.simulate import Bits, Simulator, simulate
from gatewise.circuit.sweep import Signatures, Sweep
from gatewise.circuit.vectors import blocks, every_vector, first_set
from gatewise.errors import CircuitError, ConfigError

TOOLS = ("exhaustive", "random", "sat", "abc")
"""What may be used, in this order; that both circuits are brought into one graph comes before."""

EXHAUSTIVE_INPUTS = 16

FEW, MANY = 1 << 14, 1 << 22
"""Random vectors before and after sweeping: few tell most nets apart, many are for what could not be proved."""

FEWEST_CONFLICTS = 1_000
"""What SAT may cost for an output at first; ten times as much in each further round."""

RANDOM_SHARE, SWEEP_SHARE, ABC_SHARE = 0.1, 0.6, 0.4
"""Of the time that is left: for random vectors, for sweeping, and for ABC where SAT is tried before it."""


@dataclass(frozen=True, eq=False)
class Verdict:
    """What was found out; true only when the circuits are proved equal."""

    outcome: Literal["proved", "refuted", "undecided"]
    how: tuple[str, ...]
    """What was tried, one clause each; the last decided, if anything did."""
    seconds: float
    witness: Bits | None = None
    """When refuted: bits [inputs] on which the circuits differ, and the first output that does."""
    output: int | None = None

    def __bool__(self) -> bool:
        return self.outcome == "proved"

    def __str__(self) -> str:
        if self.outcome == "undecided":
            return f"Undecided after {self.seconds:.1f} s; tried: {'; '.join(self.how)}."
        if self.outcome == "proved":
            return f"Proved equal in {self.seconds:.1f} s: {'; '.join(self.how)}."
        return f"Refuted in {self.seconds:.1f} s, output {self.output} differs: {'; '.join(self.how)}."


def prove(
    first: Circuit,
    second: Circuit,
    *,
    time_limit: float = 60.0,
    seed: int = 0,
    tools: Collection[str] = TOOLS,
    progress: Callable[[str], object] = lambda stage: None,
) -> Verdict:
    """Whether both circuits compute the same, within `time_limit` seconds; `progress` hears of each stage.

    >>> bool(prove(circuit, prune(circuit)))
    True
    """
    check_comparable(first, second)
    unknown = set(tools) - set(TOOLS)
    if unknown or isinstance(tools, str):
        raise ConfigError(f"tools is {tools!r}: expected some of {', '.join(TOOLS)}")
    if not (time_limit > 0 and math.isfinite(time_limit)):
        raise ConfigError(f"time_limit is {time_limit!r}: expected seconds above 0")
    if seed < 0:
        raise ConfigError(f"seed is {seed}: expected 0 or more")
    attempt = _Attempt(first, second, time.monotonic() + time_limit, tools, np.random.default_rng(seed), progress)
    start = time.monotonic()
    try:
        found = next((answer for answer in attempt.stages() if answer is not None), None)
    except OutOfTime:
        found = None
        attempt.how.append("the time ran out while both were brought into one graph")
    how, seconds = tuple(attempt.how), time.monotonic() - start
    if found is None or found is True:
        return Verdict("undecided" if found is None else "proved", how, seconds)
    differs = _outputs_differ(first, second, found)
    assert differs.any(), "a witness that is none"
    return Verdict("refuted", how, seconds, found, int(np.argmax(differs)))


def find_difference(first: Circuit, second: Circuit, vectors: int = 1 << 20, seed: int = 0) -> Bits | None:
    """Bits [inputs] on which the circuits differ, or None if so many corner and random vectors show no difference."""
    check_comparable(first, second)
    simulators = Simulator(first), Simulator(second)
    tried = 0
    for words in blocks(first.inputs, np.random.default_rng(seed)):
        mine, theirs = (simulator.words(words) for simulator in simulators)
        if (witness := first_set(words, mine ^ theirs)) is not None:
            return witness
        tried += 64 * words.shape[1]
        if tried >= vectors:
            break
    return None


def check_comparable(first: Circuit, second: Circuit) -> None:
    """Raise unless both circuits have as many inputs, and as many outputs."""
    counts = {
        "inputs": (first.inputs, second.inputs),
        "outputs": (len(first.outputs), len(second.outputs)),
    }
    for what, (mine, theirs) in counts.items():
        if mine != theirs:
            raise CircuitError(
                f"the first circuit has {mine} {what} and the second has {theirs}: only circuits with as many compare"
            )


@dataclass
class _Attempt:
    """One comparison. Each stage gives an answer (True, or a witness) or None, and says in `how` what it did."""

    first: Circuit
    second: Circuit
    deadline: float
    tools: Collection[str]
    rng: np.random.Generator
    progress: Callable[[str], object]
    how: list[str] = field(default_factory=list)

    def stages(self) -> Iterator[Bits | Literal[True] | None]:
        self._begin("bringing both into one graph")
        self.miter = Miter(self.first, self.second, self.deadline)
        equal = len(self.first.outputs) - len(self.miter.pairs)
        self.how.append(f"{equal:,} of {len(self.first.outputs):,} outputs are the same in one graph of both")
        if not self.miter.pairs:
            yield True
            return
        self.signatures = Signatures(self.miter, self.rng)
        if "exhaustive" in self.tools and len(self.miter.used) <= EXHAUSTIVE_INPUTS:
            yield self._exhaustive()
            return
        if "random" in self.tools:
            yield self._random(FEW)
        if "sat" in self.tools:
            yield self._sweep()
            yield self._satisfy([FEWEST_CONFLICTS])
        if "random" in self.tools:
            yield self._random(MANY)
        if "sat" in self.tools and self.decider.solver is not None:
            yield self._satisfy(FEWEST_CONFLICTS * 10**n for n in itertools.count(1))
        if "abc" in self.tools:
            yield self._abc()

    def _begin(self, stage: str) -> None:
        self.progress(f"{stage}, {max(0.0, self.left()):.0f} s left")

    def left(self) -> float:
        return self.deadline - time.monotonic()

    def _exhaustive(self) -> Bits | Literal[True] | None:
        self._begin("all inputs")
        for words in every_vector(self.miter.graph.inputs):
            if (found := self.signatures.observe(words)) is not None:
                break
            if self.left() < 0:
                self.how.append("the time ran out while all inputs were tried")
                return None
        self.how.append(f"all {1 << len(self.miter.used):,} values of the {len(self.miter.used)} inputs that matter")
        return True if found is None else self.miter.witness(found)

    def _random(self, count: int) -> Bits | None:
        self._begin("random vectors")
        end = time.monotonic() + RANDOM_SHARE * self.left()
        tried = 0
        for words in blocks(self.miter.graph.inputs, self.rng):
            found = self.signatures.observe(words)
            tried += 64 * words.shape[1]
            if found is not None or tried >= count or time.monotonic() > end:
                break
        self.how.append(f"{tried:,} corner and random vectors")
        return None if found is None else self.miter.witness(found)

    def _sweep(self) -> Bits | Literal[True] | None:
        self._begin("sweeping")
        if not self.signatures.vectors and (known := self._random(FEW)) is not None:
            return known
        solver = load_solver()
        self.decider = Decider(Graph(self.miter.graph.inputs), solver, self._before_abc())
        sweep = Sweep(self.miter, self.signatures, self.decider, time.monotonic() + SWEEP_SHARE * self.left())
        found = sweep.run()
        merged = f"sweeping merged {sweep.merged:,} nets ({self.decider.by_sat:,} proofs by SAT)"
        if solver is None:
            self.how.append("there was no SAT solver (to install one: pip install 'gatewise[verify]')")
        if found is not None:
            self.how.append(f"{merged} and found a difference")
            return self.miter.witness(found)
        self.open = list(sweep.pairs())
        self.how.append(f"{merged} and left {len(self.open):,} outputs open, {sweep.unknown:,} comparisons undecided")
        return None if self.open else True

    def _satisfy(self, limits: Iterable[int]) -> Bits | Literal[True] | None:
        """Ask about each output that is open, with each of these limits of conflicts, while there is time."""
        self._begin("SAT on each output")
        asked = len(self.open)
        for conflicts in limits:
            undecided = []
            for number, mine, theirs in self.open:
                answer = self.decider.same(mine, theirs, conflicts)
                if answer is None:
                    undecided.append((number, mine, theirs))
                elif answer is not True:
                    self.how.append(f"SAT on output {number} found a difference")
                    return self.miter.witness(answer)
            self.open = undecided
            if not undecided or time.monotonic() > self.decider.deadline:
                break
        self.how.append(f"SAT on {asked:,} outputs left {len(self.open):,} open")
        return None if self.open else True

    def _before_abc(self) -> float:
        """When SAT has to stop, to leave time for ABC."""
        share = ABC_SHARE if "abc" in self.tools and berkeley_abc.find() else 0.0
        return self.deadline - share * self.left()

    def _abc(self) -> Bits | Literal[True] | None:
        program = berkeley_abc.find()
        if program is None:
            self.how.append("ABC is not there (to install it: apt install berkeley-abc)")
            return None
        self._begin("ABC")
        found = berkeley_abc.check(program, self.miter, self.left())
        self.how.append("ABC's &cec")
        if found is None or found is True:
            return found
        witness = self.miter.witness(found)
        return witness if _outputs_differ(self.first, self.second, witness).any() else None


def _outputs_differ(first: Circuit, second: Circuit, bits: Bits) -> Bits:
    """Which outputs [M] differ on bits [inputs]."""
    differs: Bits = simulate(first, bits[None])[0] ^ simulate(second, bits[None])[0]
    return differs
