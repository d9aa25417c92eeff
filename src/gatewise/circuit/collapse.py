"""Two levels of gates into one, where the nets read in all are few enough for one gate."""

from __future__ import annotations

from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from gatewise import gates
from gatewise.circuit.ir import Circuit
from gatewise.circuit.levels import by_level
from gatewise.circuit.normal import normal_form
from gatewise.circuit.passes import drop_unreachable

Nets = NDArray[np.int32]
Tables = NDArray[np.uint64]
Indices = NDArray[np.int64]


def merge_two_levels(circuit: Circuit) -> Circuit:
    """Let a gate read the nets that one or two of the gates it reads do, where it then reads at most k in all.

    `6 = and 4 5` of `4 = or 2 3` and `5 = nand 2 3` becomes `6 = xor 2 3`. There are never more gates, and no
    gate gets later; what nobody reads any more is left out.
    """
    table, fanin = normal_form(circuit.table, circuit.fanin)
    sets = [chosen for size in (1, 2) for chosen in combinations(range(circuit.k), size)]
    for gate in by_level(circuit):
        while gate.size:  # those that have changed may change again
            gate = gate[fanin[gate, 0] != fanin[gate, -1]]  # neither constant nor a wire
            changed = np.zeros(len(gate), np.bool_)
            for chosen in sets:
                rest = np.flatnonzero(~changed)
                changed[rest[_merge(circuit.first_gate, table, fanin, gate[rest], chosen)]] = True
            gate = gate[changed]
    return drop_unreachable(Circuit(circuit.inputs, table, fanin, circuit.outputs))


def _merge(first: int, table: Tables, fanin: Nets, gate: Nets, chosen: tuple[int, ...]) -> Indices:
    """Merge those of the gates with their chosen fanins that are gates and leave at most k nets; → which."""
    k = fanin.shape[1]
    which: Indices = np.flatnonzero((fanin[gate][:, chosen] >= first).all(axis=1))
    if not which.size:
        return which
    read = fanin[gate[which]]
    others = [j for j in range(k) if j not in chosen]
    leaves = np.concatenate([read[:, others], *(fanin[read[:, j] - first] for j in chosen)], axis=1)
    leaves, count = _distinct(leaves)
    few = count <= k
    which, read, leaves = which[few], read[few], leaves[few, -k:]
    if which.size:
        values = [
            _compose(table[below := read[:, j] - first], _positions(fanin[below], leaves))
            if j in chosen
            else _positions(read[:, j : j + 1], leaves)[0]
            for j in range(k)
        ]
        chosen_gates = gate[which]
        table[chosen_gates], fanin[chosen_gates] = normal_form(_compose(table[chosen_gates], values), leaves)
    return which


def _distinct(nets: Nets) -> tuple[Nets, Indices]:
    """Rows with each net other than 0 once, in order at the end, net 0 before; and how many there are."""
    nets = np.sort(nets, axis=1)
    nets[:, 1:][nets[:, 1:] == nets[:, :-1]] = 0
    return np.sort(nets, axis=1), np.count_nonzero(nets, axis=1)


def _positions(nets: Nets, leaves: Nets) -> list[Tables]:
    """Each column of `nets` as a table over the leaves [n, k], among which it is, unless no table heeds it (net 0)."""
    k = leaves.shape[1]
    places = np.array([gates.ones(j, k) for j in range(k)], np.uint64)
    return [places[(leaves == column[:, None]).argmax(axis=1)] for column in nets.T]


def _compose(table: Tables, inputs: list[Tables]) -> Tables:
    """The table over the leaves of gates whose inputs are tables over them (Shannon's expansion)."""
    k = len(inputs)

    def expand(j: int, row: int) -> Tables:
        if j == k:
            return -(table >> np.uint64(2**k - 1 - row) & np.uint64(1))
        zero, one = expand(j + 1, row), expand(j + 1, row + gates.step(j, k))
        return zero ^ (zero ^ one) & inputs[j]

    return expand(0, 0) & np.uint64(gates.full(k))
