"""Sweeping: nets that simulation cannot tell apart are proved equal, from the inputs on, and become one.

Each proof is small, since what lies below has become one already. A proof that fails gives inputs on which two nets
differ; simulated with their neighbours, they tell many others apart.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

import numpy as np

from gatewise.circuit.decide import Decider, Witness
from gatewise.circuit.graph import Miter, as_circuit
from gatewise.circuit.simulate import Bits, Simulator, Words
from gatewise.circuit.vectors import first_set

REFRESH = 64
"""Refuted pairs that are simulated together."""

CONFLICTS = 500
"""Conflicts that a proof within the circuits may cost."""

TRIES = 3
"""Nets that one net is compared with before it counts as new."""

_ALL = np.uint64(2**64 - 1)


class Signatures:
    """What all vectors so far say about each node of a miter: nodes of different key are different functions.

    A node that is 1 where all inputs are 0 is looked at inverted (`phase`), so that inverted nodes share a key.
    """

    def __init__(self, miter: Miter, rng: np.random.Generator) -> None:
        self.rng, self.inputs = rng, miter.graph.inputs
        self._simulator = Simulator(as_circuit(miter.graph))
        pairs = np.array(miter.pairs, np.int64).reshape(-1, 2)
        self._pairs, self._inverted = pairs >> 1, (pairs[:, 0] ^ pairs[:, 1]) & 1 == 1
        self.key = np.zeros(len(miter.graph), np.uint64)
        self.vectors = 0
        self.phase = self._simulator.words(np.zeros((self.inputs, 1), np.uint64))[:, 0] != 0

    def observe(self, words: Words) -> Bits | None:
        """Take vectors [inputs, W] in; those of one on which outputs of the miter differ, if any."""
        state = self._simulator.words(words)
        self.vectors += 64 * words.shape[1]
        differs = state[self._pairs[:, 0]] ^ state[self._pairs[:, 1]]
        differs[self._inverted] ^= _ALL
        if (found := first_set(words, differs)) is not None:
            return found
        state[self.phase] ^= _ALL
        state ^= state >> np.uint64(29)
        odd = self.rng.integers(0, 2**63, words.shape[1], np.uint64) << np.uint64(1) | np.uint64(1)
        self.key = self.key * np.uint64(0x9E3779B97F4A7C15) + state @ odd
        return None


class Sweep:
    """The nodes of a miter put into a new graph one by one, each as the first node that is the same function."""

    def __init__(self, miter: Miter, signatures: Signatures, decider: Decider, until: float) -> None:
        self.miter, self.signatures, self.decider = miter, signatures, decider
        self.graph, self.until = decider.graph, until
        self.literal = list(range(0, 2 * (1 + miter.graph.inputs), 2))  # of each node of the miter, in the new graph
        self.merged = self.unknown = 0
        self._refuted: list[Witness] = []
        self._own = list(range(1 + miter.graph.inputs))  # nodes of the miter that are no other node
        self._classes: dict[int, list[int]] = {}
        self._keys: list[int] = []
        self._phase = signatures.phase.astype(int).tolist()

    def run(self) -> Bits | None:
        """Merge all that can be proved until time is up; inputs on which outputs differ, if some were found."""
        self._sort()
        source = self.miter.graph
        for node in range(1 + source.inputs, len(source)):
            if time.monotonic() > self.until:
                self._copy_from(node)
                return None
            self._place(node)
            if len(self._refuted) >= REFRESH and (witness := self._refine()) is not None:
                return witness
        return self._refine() if self._refuted else None

    def pairs(self) -> Iterator[tuple[int, int, int]]:
        """The outputs that are not yet one node: their number and their two literals in the new graph."""
        for number, (a, b) in zip(self.miter.outputs, self.miter.pairs, strict=True):
            mine, theirs = (self.literal[x >> 1] ^ x & 1 for x in (a, b))
            if mine != theirs:
                yield number, mine, theirs

    def _copy(self, node: int) -> int:
        source, literal = self.miter.graph, self.literal
        a, b = source.left[node], source.right[node]
        make = self.graph.differ if source.is_xor[node] else self.graph.both
        return make(literal[a >> 1] ^ a & 1, literal[b >> 1] ^ b & 1)

    def _copy_from(self, start: int) -> None:
        for node in range(start, len(self.miter.graph)):
            self.literal.append(self._copy(node))

    def _place(self, node: int) -> None:
        before = len(self.graph)
        own = self._copy(node)
        if len(self.graph) == before:
            self.literal.append(own)
            return
        phase = self._phase[node]
        rivals = self._classes.setdefault(self._keys[node], [])
        for rival in rivals[:TRIES]:
            answer = self.decider.same(own ^ phase, rival, CONFLICTS)
            if answer is True:
                self.graph.replace(own >> 1, rival ^ phase ^ own & 1)
                self.literal.append(rival ^ phase)
                self.merged += 1
                return
            if answer is None:
                self.unknown += 1
            else:
                self._refuted.append(answer)
        rivals.append(own ^ phase)
        self._own.append(node)
        self.literal.append(own)

    def _refine(self) -> Bits | None:
        """Simulate the inputs that told nets apart, with their neighbours, and sort anew."""
        rng, inputs = self.signatures.rng, self.signatures.inputs
        words = rng.integers(0, 2**64, (inputs, len(self._refuted)), np.uint64)
        for column, witness in enumerate(self._refuted):
            nodes = np.fromiter(witness, np.int64) - 1
            words[nodes, column] = -np.fromiter(witness.values(), np.int64).astype(np.uint64)
            lanes = np.uint64(1) << np.arange(1, 64, dtype=np.uint64)
            np.bitwise_xor.at(words[:, column], rng.choice(nodes, 63), lanes)
        self._refuted.clear()
        found = self.signatures.observe(words)
        self._sort()
        return found

    def _sort(self) -> None:
        """Put each node that stands for itself into the class of its key."""
        self._keys = self.signatures.key.tolist()
        self._classes = {}
        for node in self._own:
            self._classes.setdefault(self._keys[node], []).append(self.literal[node] ^ self._phase[node])
