"""Passes: functions from circuit to circuit that leave the computed function as it is."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gatewise import gates
from gatewise.circuit.ir import Circuit
from gatewise.circuit.levels import distinct


def prune(circuit: Circuit) -> Circuit:
    """The paper's Algorithm 3: without constant gates, identities, negations and gates no output needs.

    What a gate is, its table alone decides; nothing is folded, so an AND that reads one net twice, or a
    constant, stays. A negation moves into the tables of the gates that read it. One that an output shows has no such
    gate: then a NOT (of the first input, reading its net k times) is kept after all other gates, one a net.
    The negation of a constant is the other constant.
    """
    wires = _resolve_wires(circuit)
    kept = _reachable(circuit, wires)
    net = np.arange(circuit.nets, dtype=np.int32)
    net[circuit.first_gate :] = circuit.first_gate - 1 + np.cumsum(kept)

    read = circuit.fanin[kept]
    table, fanin = circuit.table[kept], net[wires.root[read]]
    for j in range(circuit.k):
        table = np.where(wires.inverted[read[:, j]], gates.negate_input(table, j, circuit.k), table)

    outputs, inverted = net[wires.root[circuit.outputs]], wires.inverted[circuit.outputs]
    roots, which = np.unique(outputs[inverted], return_inverse=True)
    outputs[inverted] = circuit.first_gate + len(table) + which
    inverter = gates.negate(gates.ones(0, circuit.k), circuit.k)
    return Circuit(
        circuit.inputs,
        np.concatenate([table, np.full(len(roots), inverter, np.uint64)]),
        np.concatenate([fanin, np.repeat(roots[:, None], circuit.k, axis=1)]),
        outputs,
    )


def count_bops(circuit: Circuit) -> int:
    """The paper's count: gates that the outputs depend on and that are no constant, identity or negation."""
    return int(np.count_nonzero(_reachable(circuit, _resolve_wires(circuit))))


@dataclass(frozen=True)
class _Wires:
    """Where the value of each net comes from: the net `root`, and whether it arrives `inverted`.

    A root is a constant, an input or a gate that is more than a wire. Constants never arrive inverted.
    """

    root: NDArray[np.int32]  # [nets]
    inverted: NDArray[np.bool_]  # [nets]


def _resolve_wires(circuit: Circuit) -> _Wires:
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
    return _Wires(root, inverted)


def _reachable(circuit: Circuit, wires: _Wires) -> NDArray[np.bool_]:
    """Which gates [G] the outputs depend on when wires are looked through; wires themselves are not among them."""
    seen = np.zeros(circuit.nets, np.bool_)
    scratch = np.empty(circuit.nets, np.int32)
    found = wires.root[circuit.outputs]
    while found.size:
        found = distinct(found[(found >= circuit.first_gate) & ~seen[found]], scratch)
        seen[found] = True
        found = wires.root[circuit.fanin[found - circuit.first_gate]].ravel()
    return seen[circuit.first_gate :]
