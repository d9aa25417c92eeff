"""Vectors to try circuits on: the corners first, then random ones of every density. Packed, 64 a word."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np

from gatewise import gates
from gatewise.circuit.simulate import Bits, Words, pack

WORDS = 16
"""Words a block: with more, the values of all nets leave the caches."""

CORNERS = 1 << 12
"""At most as many inputs are set, or cleared, alone."""

_ALL = np.uint64(2**64 - 1)


def blocks(inputs: int, rng: np.random.Generator) -> Iterator[Words]:
    """Blocks [inputs, W] without end: all 0, all 1, one 1, one 0; then half of the inputs set, or fewer, or more."""
    chosen = np.sort(rng.permutation(inputs)[:CORNERS])
    one = np.zeros((1 + len(chosen), inputs), np.bool_)
    one[1 + np.arange(len(chosen)), chosen] = True
    corners = pack(np.concatenate([one, ~one]))
    for begin in range(0, corners.shape[1], WORDS):
        yield corners[:, begin : begin + WORDS]
    for halvings in itertools.cycle((1, 1, 2, 1, 3, 1, 5)):
        words = _random(inputs, rng)
        for _ in range(halvings - 1):
            words &= _random(inputs, rng)
        yield words
        if halvings > 1:
            yield words ^ _ALL


def every_vector(inputs: int) -> Iterator[Words]:
    """Blocks that hold all 2**inputs vectors."""
    if inputs < 6:  # one word, its rows repeated
        rows = np.arange(64) % (1 << inputs)
        yield pack((rows[:, None] >> np.arange(inputs) & 1).astype(np.bool_))
        return
    low = [np.uint64(gates.ones(5 - j, 6)) for j in range(6)]
    for begin in range(0, 1 << (inputs - 6), WORDS):
        word = np.arange(begin, min(begin + WORDS, 1 << (inputs - 6)), dtype=np.uint64)
        high = [-(word >> np.uint64(j) & np.uint64(1)) for j in range(inputs - 6)]
        yield np.array([*(np.full(len(word), pattern) for pattern in low), *high], np.uint64)


def first_set(words: Words, differs: Words) -> Bits | None:
    """The vector in `words` [inputs, W] at the first bit set in any row of `differs`."""
    column = np.bitwise_or.reduce(differs, axis=0)
    if not column.any():
        return None
    word = int(np.argmax(column != 0))
    found = int(column[word])
    lane = np.uint64((found & -found).bit_length() - 1)
    vector: Bits = (words[:, word] >> lane & np.uint64(1)).astype(np.bool_)
    return vector


def _random(inputs: int, rng: np.random.Generator) -> Words:
    return rng.integers(0, 2**64, (inputs, WORDS), np.uint64)
