"""Two levels of gates into one, where the nets read in all are few enough for one gate.

n gates, k inputs a gate, S sets of one or two of a gate's inputs.
"""

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
Mask = NDArray[np.bool_]

_SLICE = 1 << 22
"""Gates are looked at so many at a time that their nets, for all sets of fanins, are about this many."""


def merge_two_levels(circuit: Circuit) -> Circuit:
    """Let a gate read the nets that one or two of the gates it reads do, where it then reads at most k in all.

    `6 = and 4 5` of `4 = or 2 3` and `5 = nand 2 3` becomes `6 = xor 2 3`. There are never more gates, and no
    gate gets later; what nobody reads any more is left out.
    """
    k, first = circuit.k, circuit.first_gate
    table, fanin = normal_form(circuit.table, circuit.fanin)
    sets = [chosen for size in (1, 2) for chosen in combinations(range(k), size)]
    chosen = np.array([[j in chosen for j in range(k)] for chosen in sets])  # [S, k]
    step = max(1, _SLICE // (chosen.size * (1 + k)))
    for gate in by_level(circuit):
        while gate.size:  # those that have changed may change again
            gate = gate[fanin[gate, 0] != fanin[gate, -1]]  # neither constant nor a wire
            slices = [gate[begin : begin + step] for begin in range(0, gate.size, step)]
            gate = np.concatenate([gate[:0], *(_merge(first, table, fanin, part, chosen) for part in slices)])
    return drop_unreachable(Circuit(circuit.inputs, table, fanin, circuit.outputs))


def _merge(first: int, table: Tables, fanin: Nets, gate: Nets, chosen: Mask) -> Nets:
    """Merge each gate with the first set of its fanins that leaves at most k nets to read; → those that had one."""
    k, read = fanin.shape[1], fanin[gate]
    below = np.where(read >= first, read - first, 0)  # which gate, where it is one
    direct = np.where(chosen, 0, read[:, None])  # [n, S, k]
    through = np.where(chosen[..., None], fanin[below][:, None], 0)  # [n, S, k, k]
    leaves, count = _distinct(np.concatenate([direct, through.reshape(len(gate), len(chosen), -1)], axis=2))
    fits = (count <= k) & ((read >= first)[:, None] | ~chosen).all(axis=2)
    which = np.flatnonzero(fits.any(axis=1))
    if which.size:
        picked = fits[which].argmax(axis=1)
        gate, read, below, leaves = gate[which], read[which], below[which], leaves[which, picked, -k:]
        values = []
        for j in range(k):
            lower = _compose(table[below[:, j]], _positions(fanin[below[:, j]], leaves))
            values.append(np.where(chosen[picked, j], lower, _positions(read[:, j : j + 1], leaves)[0]))
        table[gate], fanin[gate] = normal_form(_compose(table[gate], values), leaves)
    return gate[: which.size]


def _distinct(nets: Nets) -> tuple[Nets, NDArray[np.int64]]:
    """Each net other than 0 once, in order at the end of the last axis, net 0 before; and how many there are."""
    nets = np.sort(nets, axis=-1)
    nets[..., 1:][nets[..., 1:] == nets[..., :-1]] = 0
    return np.sort(nets, axis=-1), np.count_nonzero(nets, axis=-1)


def _positions(nets: Nets, leaves: Nets) -> list[Tables]:
    """Each column of `nets` as a table over the leaves [n, k]; any table for a net that is none of them."""
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
