"""The gate table: the id of a gate *is* its truth table.

A table over k inputs is a number of 2**k bits. Row 0 (all inputs 0) is its most significant bit, and the
first input is the most significant digit of a row; so for k = 2, id = f(0,0)·8 + f(0,1)·4 + f(1,0)·2 + f(1,1).
Everything else here is derived from that. The functions take Python ints or numpy arrays of uint64.
"""

from __future__ import annotations

from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

Table = TypeVar("Table", int, NDArray[np.uint64])

NAMES = ("0", "and", "a&~b", "a", "~a&b", "b", "xor", "or", "nor", "xnor", "~b", "a|~b", "~a", "~a|b", "nand", "1")
"""What people call the sixteen gates of two inputs a and b, by id."""

CONST0, AND, FIRST, SECOND, XOR, OR, NOT_SECOND, NOT_FIRST, NAND, CONST1 = 0, 1, 3, 5, 6, 7, 10, 12, 14, 15


def full(k: int) -> int:
    """The table of the constant 1 over k inputs: every row set."""
    return (1 << (1 << k)) - 1


def step(j: int, k: int) -> int:
    """How many rows lie between input j being 0 and being 1, all other inputs alike."""
    return 1 << (k - 1 - j)


def ones(j: int, k: int) -> int:
    """The rows in which input j is 1: the table of the gate that passes input j on."""
    width = step(j, k)
    return full(k) // ((1 << (2 * width)) - 1) * ((1 << width) - 1)


def _like(table: Table, value: int) -> Table:
    return np.uint64(value) if isinstance(table, np.ndarray) else value  # type: ignore[return-value]


def negate(table: Table, k: int) -> Table:
    """The gate whose output is inverted."""
    return table ^ _like(table, full(k))


def negate_input(table: Table, j: int, k: int) -> Table:
    """The gate that reads input j inverted."""
    mask, width = _like(table, ones(j, k)), _like(table, step(j, k))
    return (table & mask) << width | (table >> width) & mask


def restrict(table: Table, j: int, value: int, k: int) -> Table:
    """The gate (still over k inputs) with input j held at `value`."""
    mask, width = _like(table, ones(j, k)), _like(table, step(j, k))
    half = table & mask if value else (table >> width) & mask
    return half | half << width


def swap_inputs(table: Table, i: int = 0, j: int = 1, k: int = 2) -> Table:
    """The gate with its inputs i and j exchanged; i comes before j."""
    width = _like(table, step(i, k) - step(j, k))  # from a row with only i set to the one with only j set
    mask = _like(table, ones(i, k) & ~ones(j, k))
    differ = (table ^ table >> width) & mask
    swapped: Table = table ^ differ ^ differ << width
    return swapped


def tie_inputs(table: Table, i: int, j: int, k: int) -> Table:
    """The gate (still over k inputs) that reads input i where it read input j."""
    mask = _like(table, ones(i, k))
    tied: Table = restrict(table, j, 1, k) & mask | restrict(table, j, 0, k) & ~mask
    return tied


def evaluate(table: int, bits: tuple[int, ...]) -> int:
    """The output for one row of inputs: the definition all else is compared with."""
    row = int("".join(str(int(b)) for b in bits), 2)
    return table >> ((1 << len(bits)) - 1 - row) & 1


COEFFICIENTS = np.array(
    [
        [f00, f10 - f00, f01 - f00, f00 - f01 - f10 + f11]
        for f00, f01, f10, f11 in ([evaluate(t, (r >> 1, r & 1)) for r in range(4)] for t in range(16))
    ],
    dtype=np.float32,
)
"""[16, 4]: c0, ca, cb, cab of the multilinear extension c0 + ca·a + cb·b + cab·a·b."""
