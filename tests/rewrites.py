"""Circuits written differently without becoming different, for whoever has to find out that they are the same."""

from __future__ import annotations

import numpy as np

from gatewise import gates
from gatewise.circuit import Circuit


class _Writer:
    """Gates of two inputs, appended one by one. A literal is a net and whether it is inverted."""

    def __init__(self, inputs: int, rng: np.random.Generator) -> None:
        self.rng, self.inputs = rng, inputs
        self.table: list[int] = []
        self.fanin: list[tuple[int, int]] = []

    def gate(self, table: int, a: tuple[int, bool], b: tuple[int, bool]) -> tuple[int, bool]:
        """A gate that reads literals; at random with its inputs swapped or its output inverted."""
        for j, (_, inverted) in enumerate((a, b)):
            table = gates.negate_input(table, j, 2) if inverted else table
        swapped, inverted = self.rng.random(2) < 0.5
        if swapped:
            table, a, b = gates.swap_inputs(table), b, a
        self.table.append(gates.negate(table, 2) if inverted else table)
        self.fanin.append((a[0], b[0]))
        return 1 + self.inputs + len(self.table), bool(inverted)

    def circuit(self, outputs: list[tuple[int, bool]]) -> Circuit:
        nets = [self.gate(gates.FIRST, literal, literal) for literal in outputs]
        nets = [net if not inverted else self._not(net) for net, inverted in nets]
        return Circuit(self.inputs, self.table, np.array(self.fanin, np.int64).reshape(-1, 2), nets)

    def _not(self, net: int) -> int:
        self.table.append(gates.NOT_FIRST)
        self.fanin.append((net, net))
        return 1 + self.inputs + len(self.table)


def rewritten(circuit: Circuit, rng: np.random.Generator, share: float = 0.5) -> Circuit:
    """The circuit (k = 2) with inverters moved, inputs swapped and a share of its gates written in another way.

    XOR becomes AND and OR, AND becomes an inverted OR, trees are rotated, AND is distributed over OR, gates are
    doubled, and redundant ones are put in.
    """
    writer = _Writer(circuit.inputs, rng)
    copies: list[list[tuple[int, bool]]] = [[(net, False)] for net in range(circuit.first_gate)]
    how: list[tuple[int, tuple[int, bool], tuple[int, bool]] | None] = [None] * circuit.first_gate
    die = rng.random((circuit.gates, 3)).tolist()
    for table, nets, (first, second, third) in zip(circuit.table.tolist(), circuit.fanin.tolist(), die, strict=True):
        a, b = (copies[net][int(third * len(copies[net]))] for net in nets)
        made = _other(writer, table, a, b, how[nets[1]], second) if first < share else None
        made = made or writer.gate(table, a, b)
        copies.append([made, writer.gate(table, a, b)] if second < 0.1 * share else [made])
        how.append((table, a, b))
    return writer.circuit([copies[net][0] for net in circuit.outputs.tolist()])


def _other(
    writer: _Writer,
    table: int,
    a: tuple[int, bool],
    b: tuple[int, bool],
    below: tuple[int, tuple[int, bool], tuple[int, bool]] | None,
    choice: float,
) -> tuple[int, bool] | None:
    """The gate in another way, or None where there is none; `below` is how the gate at b was made."""
    if below is not None and table == below[0] and table in (gates.AND, gates.OR, gates.XOR):  # a(bc) = (ab)c
        return writer.gate(table, writer.gate(table, a, below[1]), below[2])
    if below is not None and (table, below[0]) == (gates.AND, gates.OR):
        return writer.gate(gates.OR, *(writer.gate(gates.AND, a, c) for c in below[1:]))
    if table == gates.XOR:
        neither, both = writer.gate(8, a, b), writer.gate(gates.AND, a, b)
        return writer.gate(8, neither, both)
    if choice < 0.5:  # f(a, b) = f(a, b) & (f(a, b) | a)
        made = writer.gate(table, a, b)
        return writer.gate(gates.AND, made, writer.gate(gates.OR, made, a))
    zero, one = (writer.gate(gates.restrict(table, 0, value, 2), a, b) for value in (0, 1))  # Shannon
    picked = writer.gate(gates.AND, a, one), writer.gate(4, a, zero)
    return writer.gate(gates.OR, *picked)


def collapsed(circuit: Circuit, k: int, rng: np.random.Generator) -> Circuit:
    """The circuit (k = 2) with gates swallowed by those that read them, into gates of k inputs."""
    first, fanin, table = circuit.first_gate, circuit.fanin.tolist(), circuit.table.tolist()
    cuts: dict[int, tuple[list[int], set[int]]] = {}
    wanted = sorted({net for net in circuit.outputs.tolist() if net >= first}, reverse=True)
    seen = set(wanted)
    pending = list(wanted)
    while pending:
        root = pending.pop()
        inner, leaves = {root}, set(fanin[root - first])
        for _ in range(8):
            opened = [net for net in leaves if net >= first and len(leaves - {net} | set(fanin[net - first])) <= k]
            if not opened:
                break
            net = int(rng.choice(opened))
            inner.add(net)
            leaves = leaves - {net} | set(fanin[net - first])
        inner -= leaves
        cuts[root] = (sorted(leaves), inner)
        for net in leaves:
            if net >= first and net not in seen:
                seen.add(net)
                pending.append(net)
    number = {net: net for net in range(first)}
    tables, fanins = [], []
    for root in sorted(cuts):
        leaves, inner = cuts[root]
        order = rng.permutation(leaves).tolist()
        order += [int(rng.integers(first)) for _ in range(k - len(order))]  # read, but of no consequence
        value = {net: gates.ones(j, k) for j, net in reversed(list(enumerate(order)))}
        value = {0: 0, 1: gates.full(k)} | {net: value[net] for net in leaves if net > 1}
        for net in sorted(inner):
            a, b = (value[read] for read in fanin[net - first])
            made = 0
            for row in range(4):
                if table[net - first] >> (3 - row) & 1:
                    made |= (a if row & 2 else gates.negate(a, k)) & (b if row & 1 else gates.negate(b, k))
            value[net] = made
        tables.append(value[root])
        fanins.append([number[net] for net in order])
        number[root] = first - 1 + len(tables)
    outputs = [number[net] for net in circuit.outputs.tolist()]
    return Circuit(circuit.inputs, np.array(tables, np.uint64), np.array(fanins, np.int64).reshape(-1, k), outputs)


def flipped(circuit: Circuit, gate: int, row: int) -> Circuit:
    """The circuit with one row of one gate's table inverted."""
    table = circuit.table.copy()
    table[gate] ^= np.uint64(1 << (2**circuit.k - 1 - row))
    return Circuit(circuit.inputs, table, circuit.fanin, circuit.outputs)
