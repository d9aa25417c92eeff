"""What a circuit computes, 64 samples a word: the definition that every export is compared with.

B samples, W words of 64 samples, G gates, k inputs a gate, M outputs.
"""

from __future__ import annotations

from functools import cache

import numpy as np
from numpy.typing import ArrayLike, NDArray

from gatewise import gates
from gatewise.circuit.ir import Circuit
from gatewise.circuit.levels import level_order
from gatewise.errors import CircuitError

Bits = NDArray[np.bool_]
Words = NDArray[np.uint64]

_STATE_BYTES = 256 * 2**20
"""Memory for the values of all nets; samples are taken in blocks that keep below it."""

_BLOCK_WORDS = 1024
"""More words at a time than this gain nothing and leave the caches."""

_SLICE_WORDS = 1 << 16
"""Gates are computed in slices of this many words, so that intermediate values stay in the caches."""

_WORTH_SPLITTING = 64
"""A level is cut by table where that leaves this many gates a cut: fewer word operations, more calls."""

_ALL = np.uint64(2**64 - 1)


def simulate(circuit: Circuit, bits: ArrayLike) -> Bits:
    """The outputs [B, M] of the circuit for bits [B, inputs], which are bool or integers 0 and 1."""
    return Simulator(circuit)(bits)


def block_words(circuit: Circuit) -> int:
    """How many words of samples to simulate at a time."""
    return min(_BLOCK_WORDS, max(1, _STATE_BYTES // (8 * circuit.nets)))


def pack(bits: ArrayLike) -> Words:
    """Bits [B, inputs] as words [inputs, W]: sample b is bit b mod 64 (from the low end) of word b // 64."""
    return _pack(_checked(bits))


def unpack(words: Words, count: int) -> Bits:
    """The bits [count, M] of words [M, W], which may hold more samples than that."""
    octets = np.ascontiguousarray(words, dtype="<u8").view(np.uint8)
    return np.unpackbits(octets.T, axis=0, count=count, bitorder="little").view(np.bool_)


def _pack(bits: NDArray[np.generic]) -> Words:
    samples, inputs = bits.shape
    octets = np.zeros((inputs, -(-samples // 64) * 8), np.uint8)
    octets[:, : -(-samples // 8)] = np.packbits(bits.astype(np.bool_, copy=False), axis=0, bitorder="little").T
    return octets.view("<u8").astype(np.uint64, copy=False)


def _checked(bits: ArrayLike) -> NDArray[np.generic]:
    array = np.asarray(bits)
    if array.ndim != 2:
        raise CircuitError(f"bits has shape {array.shape}: expected [samples, inputs]")
    if array.dtype.kind not in "biu":
        raise CircuitError(f"bits has dtype {array.dtype}: expected bool, or integers 0 and 1")
    if array.dtype.kind != "b" and array.size and not (array.min() >= 0 and array.max() <= 1):
        raise CircuitError(f"bits holds numbers from {array.min()} to {array.max()}: expected 0 and 1")
    return array


class Simulator:
    """A circuit made ready to be simulated more than once: its gates sorted by level and table."""

    def __init__(self, circuit: Circuit) -> None:
        self.circuit = circuit
        order, start = level_order(circuit)
        level = np.repeat(np.arange(len(start) - 1, dtype=np.int32), np.diff(start))
        by_table = np.lexsort((circuit.table[order], level))
        order = order[by_table]
        row = np.arange(circuit.nets, dtype=np.int32)  # where the state keeps a net
        row[circuit.first_gate + order] = np.arange(circuit.first_gate, circuit.nets)
        self._fanin = np.ascontiguousarray(row[circuit.fanin[order]].T)  # [k, G]
        self._outputs = row[circuit.outputs]
        table = circuit.table[order]
        self._polynomial = polynomial(table, circuit.k)
        self._cuts = _cuts(level, table)

    def __call__(self, bits: ArrayLike) -> Bits:
        array = _checked(bits)
        samples, inputs = array.shape
        if inputs != self.circuit.inputs:
            raise CircuitError(f"bits has shape {array.shape}: the circuit has {self.circuit.inputs} inputs")
        out = np.empty((samples, len(self._outputs)), np.bool_)
        words = block_words(self.circuit)
        for begin in range(0, samples, 64 * words):
            block = array[begin : begin + 64 * words]
            out[begin : begin + len(block)] = unpack(self.words(_pack(block)), len(block))
        return out

    def words(self, words: Words) -> Words:
        """The outputs [M, W] for packed inputs [inputs, W]; the values of all nets take 8 bytes a net and word."""
        return self._run(words)[self._outputs]

    def _run(self, words: Words) -> Words:
        """The value of every net [nets, W] from those of the inputs [inputs, W]."""
        first, width = self.circuit.first_gate, words.shape[1]
        state = np.empty((self.circuit.nets, width), np.uint64)
        state[0], state[1], state[2:first] = 0, _ALL, words
        longest = max(1, _SLICE_WORDS // max(1, width))
        for begin, end in zip(self._cuts[:-1], self._cuts[1:], strict=True):
            for low in range(begin, end, longest):
                high = min(end, low + longest)
                state[first + low : first + high] = self._gates(state, low, high)
        return state

    def _gates(self, state: Words, low: int, high: int) -> Words | np.uint64:
        """The values of gates low … high - 1, as far as they vary: [n, W], [n, 1] or a constant."""
        k, coefficient = self.circuit.k, self._polynomial[low:high]
        some, every = int(np.bitwise_or.reduce(coefficient)), int(np.bitwise_and.reduce(coefficient))

        @cache
        def read(j: int) -> Words:
            return state[self._fanin[j, low:high]]

        def term(row: int) -> Words | np.uint64 | None:
            """The coefficients of one product of inputs as masks; None where no gate has it."""
            place = 2**k - 1 - row
            if not some >> place & 1:
                return None
            if every >> place & 1:
                return _ALL
            return -(coefficient[:, None] >> np.uint64(place) & np.uint64(1))

        def value(j: int, row: int) -> Words | np.uint64 | None:
            """Horner's rule from input j on: without the input, plus (xor) the input times the rest."""
            if j == k:
                return term(row)
            without, rest = value(j + 1, row), value(j + 1, row + gates.step(j, k))
            if rest is None:
                return without
            product = read(j) if rest is _ALL else read(j) & rest
            return product if without is None else product ^ without

        result = value(0, 0)
        return np.uint64(0) if result is None else result


def polynomial(table: Words, k: int) -> Words:
    """The tables as polynomials over xor and and: row r holds whether the product of the inputs set in r takes part."""
    for j in range(k):
        table = table ^ gates.restrict(table, j, 0, k) & np.uint64(gates.ones(j, k))
    return table


def _cuts(level: NDArray[np.int32], table: Words) -> list[int]:
    """Where one run of gates that are computed together ends and the next begins."""
    if not level.size:
        return [0]
    new_level = np.ones(level.size, np.bool_)
    new_level[1:] = level[1:] != level[:-1]
    new_table = new_level.copy()
    new_table[1:] |= table[1:] != table[:-1]
    split = np.bincount(level) >= _WORTH_SPLITTING * np.bincount(level, weights=new_table)
    return [*np.flatnonzero(new_level | new_table & split[level]).tolist(), level.size]
