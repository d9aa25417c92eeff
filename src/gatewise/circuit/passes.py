"""Passes: functions from circuit to circuit that leave the computed function as it is.

Here are the paper's pruning, and what every pass is made of; the stronger ones are in `simplify`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gatewise import gates
from gatewise.circuit.ir import Circuit
from gatewise.circuit.levels import reachable

Nets = NDArray[np.int32]
Tables = NDArray[np.uint64]
Mask = NDArray[np.bool_]


def prune(circuit: Circuit) -> Circuit:
    """The paper's Algorithm 3: without constant gates, identities, negations and gates no output needs.

    What a gate is, its table alone decides; nothing is folded, so an AND that reads one net twice, or a
    constant, stays. A negation moves into the tables of the gates that read it. One that an output shows has no such
    gate: then a NOT (of the first input, reading its net k times) is kept after all other gates, one a net.
    The negation of a constant is the other constant.
    """
    wires = resolve_wires(circuit)
    table = negate_inputs(circuit.table, wires.inverted[circuit.fanin])
    root, shown = wires.root, circuit.outputs
    return assemble(circuit.inputs, table, root[circuit.fanin], root[shown], wires.inverted[shown])


def drop_unreachable(circuit: Circuit) -> Circuit:
    """Without the gates that no output depends on."""
    shown = circuit.outputs
    return assemble(circuit.inputs, circuit.table, circuit.fanin, shown, np.zeros(len(shown), np.bool_))


def count_bops(circuit: Circuit) -> int:
    """The paper's count: gates that the outputs depend on and that are no constant, identity or negation."""
    root, first = resolve_wires(circuit).root, circuit.first_gate
    return int(np.count_nonzero(reachable(first, root[circuit.fanin], root[circuit.outputs])[first:]))


@dataclass(frozen=True)
class Wires:
    """Where the value of each net comes from: the net `root`, and whether it arrives `inverted`.

    A root is a constant, an input or a gate that is more than a wire. Constants never arrive inverted.
    """

    root: Nets  # [nets]
    inverted: Mask  # [nets]


def resolve_wires(circuit: Circuit) -> Wires:
    """Follow all constants, identities and negations at once: each round doubles the distance looked back."""
    root = np.arange(circuit.nets, dtype=np.int32)
    inverted = np.zeros(circuit.nets, np.bool_)
    own, inversion = root[circuit.first_gate :], inverted[circuit.first_gate :]
    own[circuit.table == np.uint64(0)] = 0
    own[circuit.table == np.uint64(gates.full(circuit.k))] = 1
    for j in range(circuit.k):
        identity = gates.ones(j, circuit.k)
        negated = circuit.table == np.uint64(gates.negate(identity, circuit.k))
        wire = (circuit.table == np.uint64(identity)) | negated
        own[wire] = circuit.fanin[wire, j]
        inversion[negated] = True

    is_wire = root != np.arange(circuit.nets)
    active = np.flatnonzero(is_wire)
    while (active := active[is_wire[root[active]]]).size:
        behind = root[active]
        turned, further = inverted[active] ^ inverted[behind], root[behind]
        inverted[active], root[active] = turned, further

    flipped = inverted & (root < 2)
    root[flipped] ^= 1
    inverted[flipped] = False
    return Wires(root, inverted)


def negate_inputs(table: Tables, which: Mask) -> Tables:
    """The gates [n] that read inverted those of their inputs that `which` [n, k] names."""
    k = which.shape[1]
    for j in range(k):
        if which[:, j].any():
            table = np.where(which[:, j], gates.negate_input(table, j, k), table)
    return table


def assemble(inputs: int, table: Tables, fanin: Nets, outputs: Nets, inverted: Mask) -> Circuit:
    """The circuit of those of the gates that the outputs need, in their order.

    An output that is `inverted` [M] is shown through a NOT after all other gates, one a net.
    """
    k, first = fanin.shape[1], 2 + inputs
    kept = reachable(first, fanin, outputs)[first:]
    net = np.arange(first + len(table), dtype=np.int32)
    net[first:] = first - 1 + np.cumsum(kept)
    table, fanin, shown = table[kept], net[fanin[kept]], net[outputs]
    roots, which = np.unique(shown[inverted], return_inverse=True)
    shown[inverted] = first + len(table) + which
    inverter = gates.negate(gates.ones(0, k), k)
    return Circuit(
        inputs,
        np.concatenate([table, np.full(len(roots), inverter, np.uint64)]),
        np.concatenate([fanin, np.repeat(roots[:, None], k, axis=1)]),
        shown,
    )
