"""Passes that look at a gate and what it reads: constants, negations, gates that are equal.

Each takes a circuit of any k, and leaves out the gates that it has made unnecessary. Where what becomes of a gate
depends on what has become of those it reads, gates are taken level by level.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from gatewise import gates
from gatewise.circuit.ir import Circuit
from gatewise.circuit.levels import by_level
from gatewise.circuit.normal import is_gate, normal_form
from gatewise.circuit.passes import assemble, negate_inputs, resolve_wires

Nets = NDArray[np.int32]
Tables = NDArray[np.uint64]
Mask = NDArray[np.bool_]


def fold_constants(circuit: Circuit) -> Circuit:
    """Without gates that turn out constant or wires because of what they read: 0, 1, a net twice, a net and its NOT.

    `6 = and 4 1` becomes net 4, `7 = xor 5 5` net 0. A NOT stays a gate (see `absorb_inverters`).
    """
    first = circuit.first_gate
    table, fanin = normal_form(circuit.table, circuit.fanin)
    root = np.arange(circuit.nets, dtype=np.int32)
    source, inverted = root.copy(), np.zeros(circuit.nets, np.bool_)  # a NOT's is what it negates
    for gate in by_level(circuit):
        read, is_trivial = fanin[gate], fanin[gate, 0] == fanin[gate, -1]
        changed = np.flatnonzero(is_trivial | (source[read] != read).any(axis=1))
        if not changed.size:
            continue
        gate, read = gate[changed], root[read[changed]]
        table[gate], fanin[gate] = now, read = normal_form(table[gate], read, source[read], inverted[read])
        _note_wires(first + gate, now, read, root, source, inverted)
    shown = root[circuit.outputs]
    return assemble(circuit.inputs, table, root[fanin], shown, np.zeros(len(shown), np.bool_))


def _note_wires(net: Nets, table: Tables, fanin: Nets, root: Nets, source: Nets, inverted: Mask) -> None:
    """Write down which nets are, in normal form, constants, wires, NOTs, or NOTs of a NOT, which are wires."""
    k, read = fanin.shape[1], fanin[:, 0]
    wire = gates.ones(0, k)
    negates = is_gate(table, gates.negate(wire, k))
    passes = is_gate(table, wire) | negates & inverted[read]
    behind = np.where(negates, source[read], read)
    root[net[passes]] = behind[passes]
    for value, constant in enumerate((0, gates.full(k))):
        root[net[is_gate(table, constant)]] = value
    source[net] = source[root[net]]
    inverts = negates & ~passes
    source[net[inverts]], inverted[net[inverts]] = behind[inverts], True


def absorb_inverters(circuit: Circuit) -> Circuit:
    """Without wires and NOTs: readers read what is behind them, and their tables negate it.

    A gate that outputs show only inverted is negated itself; so a NOT is left only where outputs show an input
    inverted, or a gate both ways.
    """
    wires = resolve_wires(circuit)
    table = negate_inputs(circuit.table, wires.inverted[circuit.fanin])
    return rebuild(circuit, table, wires.root[circuit.fanin], wires.root, wires.inverted)


def share_equal_gates(circuit: Circuit) -> Circuit:
    """Structural hashing: gates that compute the same, or the inverse, of the same nets become one.

    Every gate is written in normal form and, negated if need be, so that it gives 0 for all inputs 0.
    """
    k, first = circuit.k, circuit.first_gate
    table, fanin = normal_form(circuit.table, circuit.fanin)
    root = np.arange(circuit.nets, dtype=np.int32)
    inverted = np.zeros(circuit.nets, np.bool_)
    for gate in by_level(circuit):
        read = fanin[gate]
        now, behind = negate_inputs(table[gate], inverted[read]), root[read]
        changed = np.flatnonzero((behind != read).any(axis=1))
        if changed.size:
            now[changed], behind[changed] = normal_form(now[changed], behind[changed])
        negative = now > np.uint64(gates.full(k) >> 1)
        now = np.where(negative, gates.negate(now, k), now)
        table[gate], fanin[gate] = now, behind
        inverted[first + gate] = negative
        if gate.size > 1:
            root[first + gate] = first + gate[_first_alike(now, behind)]
    return rebuild(circuit, table, fanin, root, inverted)


def _first_alike(table: Tables, fanin: Nets) -> NDArray[np.int64]:
    """For each gate the first that has its table and fanin."""
    order = np.lexsort((*fanin.T, table))
    new = np.ones(len(order), np.bool_)
    new[1:] = table[order[1:]] != table[order[:-1]]
    new[1:] |= (fanin[order[1:]] != fanin[order[:-1]]).any(axis=1)
    first = np.empty(len(order), np.int64)
    first[order] = order[np.flatnonzero(new)[np.cumsum(new) - 1]]
    return first


def rebuild(circuit: Circuit, table: Tables, fanin: Nets, root: Nets, inverted: Mask) -> Circuit:
    """The circuit of the gates (table, fanin), with the old outputs: net n is now net root[n], or its inverse where
    inverted[n]. Gates that outputs show only inverted are negated, and so is what reads them.
    """
    shown, turned = root[circuit.outputs], inverted[circuit.outputs]
    negated = np.zeros(circuit.nets, np.bool_)
    negated[shown[turned]] = True
    negated[shown[~turned]] = False
    negated[: circuit.first_gate] = False
    if negated.any():
        table = np.where(negated[circuit.first_gate :], gates.negate(table, circuit.k), table)
        table = negate_inputs(table, negated[fanin])
        turned = turned & ~negated[shown]
    return assemble(circuit.inputs, table, fanin, shown, turned)
