"""One way to write each gate, so that equal gates are equal numbers.

In normal form a gate reads only nets that matter to it, each once, in rising order; the places left over read net 0.
A gate to which one net matters is a wire, or a NOT, of its first input and reads that net k times; to a constant
nothing matters. Gates are arrays here: table [n], fanin [n, k].
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from gatewise import gates

Nets = NDArray[np.int32]
Tables = NDArray[np.uint64]
Mask = NDArray[np.bool_]

_LAST = np.int32(2**31 - 1)


def normal_form(
    table: Tables, fanin: Nets, source: Nets | None = None, inverted: Mask | None = None
) -> tuple[Tables, Nets]:
    """The gates in normal form. Where net fanin[i, j] is known to be net source[i, j], or its inverse where
    `inverted`, a gate that reads two nets of one source reads only the first of them.
    """
    table, fanin = table.copy(), fanin.copy()
    source = fanin.copy() if source is None else source.copy()
    _fold_constants(table, fanin)
    _tie_equal_inputs(table, fanin, source, inverted)
    _forget_ignored_inputs(table, fanin)
    _sort_inputs(table, fanin)
    alone = fanin[:, min(1, fanin.shape[1] - 1)] == 0
    fanin[alone] = fanin[alone, :1]
    return table, fanin


def is_gate(table: Tables, which: int) -> Mask:
    """Which of the gates have this table."""
    same: Mask = table == np.uint64(which)
    return same


def _fold_constants(table: Tables, fanin: Nets) -> None:
    k = fanin.shape[1]
    for j in range(k):
        for value in (0, 1):
            held = np.flatnonzero(fanin[:, j] == value)
            table[held] = gates.restrict(table[held], j, value, k)
        fanin[fanin[:, j] < 2, j] = 0


def _tie_equal_inputs(table: Tables, fanin: Nets, source: Nets, inverted: Mask | None) -> None:
    k = fanin.shape[1]
    for i in range(k):
        for j in range(i + 1, k):
            same = np.flatnonzero((source[:, i] == source[:, j]) & (fanin[:, i] != 0) & (fanin[:, j] != 0))
            if not same.size:
                continue
            read = table[same]
            if inverted is not None:
                opposite = inverted[same, i] != inverted[same, j]
                read = np.where(opposite, gates.negate_input(read, j, k), read)
            table[same] = gates.tie_inputs(read, i, j, k)
            fanin[same, j] = 0


def _forget_ignored_inputs(table: Tables, fanin: Nets) -> None:
    k = fanin.shape[1]
    for j in range(k):
        fanin[gates.restrict(table, j, 0, k) == gates.restrict(table, j, 1, k), j] = 0


def _sort_inputs(table: Tables, fanin: Nets) -> None:
    """Exchange neighbours until nets rise from left to right and those that do not matter stand at the end."""
    k = fanin.shape[1]
    key = np.where(fanin == 0, _LAST, fanin)
    for last in range(k - 1, 0, -1):
        for i in range(last):
            wrong = np.flatnonzero(key[:, i] > key[:, i + 1])
            if not wrong.size:
                continue
            table[wrong] = gates.swap_inputs(table[wrong], i, i + 1, k)
            for rows in (fanin, key):
                rows[wrong, i], rows[wrong, i + 1] = rows[wrong, i + 1], rows[wrong, i]
