"""Circuits as one graph of two-input AND and XOR nodes, in which no two nodes are written alike.

A literal is 2 · node + (1 if inverted). Node 0 is the constant 0, nodes 1 … inputs are the inputs, the others gates.
Several circuits put into one graph over the same inputs share whatever is the same up to inverters, the order of
inputs and constants: literals that are equal are functions that are equal.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence

import numpy as np

from gatewise import gates
from gatewise.circuit.ir import Circuit
from gatewise.circuit.simulate import Bits

_SHIFT = 32

_LOOK = 1 << 14
"""Gates between two looks at the clock."""


class OutOfTime(Exception):
    """The deadline has passed."""


class Graph:
    """AND and XOR nodes that read literals; a node that would repeat an earlier one is that one."""

    def __init__(self, inputs: int) -> None:
        self.inputs = inputs
        self.left = [0] * (1 + inputs)
        self.right = [0] * (1 + inputs)
        self.is_xor = [False] * (1 + inputs)
        self.level = [0] * (1 + inputs)
        self._found: dict[int, int] = {}

    def __len__(self) -> int:
        return len(self.left)

    def both(self, a: int, b: int) -> int:
        """The literal of a AND b."""
        if a > b:
            a, b = b, a
        if a < 2:
            return b if a else 0
        if a >> 1 == b >> 1:
            return a if a == b else 0
        return self._node(a, b, False)

    def either(self, a: int, b: int) -> int:
        """The literal of a OR b."""
        return self.both(a ^ 1, b ^ 1) ^ 1

    def differ(self, a: int, b: int) -> int:
        """The literal of a XOR b."""
        inverted = (a ^ b) & 1
        a, b = a & ~1, b & ~1
        if a > b:
            a, b = b, a
        if a == b:
            return inverted
        return (self._node(a, b, True) if a else b) ^ inverted

    def gate(self, table: int, fanin: Sequence[int]) -> int:
        """The literal of a gate that reads literals: Shannon's expansion from the first input on."""
        if not fanin:
            return table
        rows = 1 << (len(fanin) - 1)
        every = (1 << rows) - 1
        low, high = table >> rows, table & every  # the first input at 0, and at 1
        first, rest = fanin[0], fanin[1:]
        if low == high:
            return self.gate(low, rest)
        if low == high ^ every:
            return self.differ(first, self.gate(low, rest))
        if low in (0, every):
            inverted = low & 1
            return self.both(first, self.gate(high, rest) ^ inverted) ^ inverted
        if high in (0, every):
            inverted = high & 1
            return self.both(first ^ 1, self.gate(low, rest) ^ inverted) ^ inverted
        return self.either(self.both(first, self.gate(high, rest)), self.both(first ^ 1, self.gate(low, rest)))

    def add(self, circuit: Circuit, deadline: float = math.inf) -> list[int]:
        """Put a circuit over the same inputs in, and return the literals of its outputs."""
        literal = [0, 1, *range(2, 2 + 2 * self.inputs, 2)]
        gate = self.gate
        rows = zip(circuit.table.tolist(), circuit.fanin.tolist(), strict=True)
        for number, (table, fanin) in enumerate(rows):
            if number % _LOOK == 0 and time.monotonic() > deadline:
                raise OutOfTime
            literal.append(gate(table, [literal[net] for net in fanin]))
        return [literal[net] for net in circuit.outputs.tolist()]

    def replace(self, node: int, literal: int) -> None:
        """Whoever asks for what `node` computes from now on gets `literal`."""
        self._found[self._key(self.left[node], self.right[node], self.is_xor[node])] = literal

    def cone(self, literals: Sequence[int]) -> list[int]:
        """The nodes [ascending] that literals depend on, inputs among them and the constant not."""
        seen = bytearray(len(self))
        for literal in literals:
            seen[literal >> 1] = 1
        for node in range(max((literal >> 1 for literal in literals), default=0), self.inputs, -1):
            if seen[node]:
                seen[self.left[node] >> 1] = seen[self.right[node] >> 1] = 1
        seen[0] = 0
        return np.flatnonzero(np.frombuffer(seen, np.uint8)).tolist()

    def _node(self, a: int, b: int, is_xor: bool) -> int:
        key = self._key(a, b, is_xor)
        literal = self._found.get(key)
        if literal is None:
            literal = self._found[key] = 2 * len(self.left)
            self.left.append(a)
            self.right.append(b)
            self.is_xor.append(is_xor)
            self.level.append(1 + max(self.level[a >> 1], self.level[b >> 1]))
        return literal

    @staticmethod
    def _key(a: int, b: int, is_xor: bool) -> int:
        return (a << _SHIFT | b) << 1 | is_xor


class Miter:
    """Two circuits in one graph, cut down to the outputs that are not the same literal.

    `pairs` are the literals of those outputs in the first and the second circuit, `outputs` their numbers, and
    `used` the numbers of the inputs they depend on: input i of the graph is input used[i] of the circuits.
    """

    def __init__(self, first: Circuit, second: Circuit, deadline: float = math.inf) -> None:
        whole = Graph(first.inputs)
        both = list(zip(whole.add(first, deadline), whole.add(second, deadline), strict=True))
        self.total = first.inputs
        self.outputs = [number for number, (a, b) in enumerate(both) if a != b]
        roots = [literal for number in self.outputs for literal in both[number]]
        cone = whole.cone(roots)
        self.used = [node - 1 for node in cone if node <= whole.inputs]
        self.graph = Graph(len(self.used))
        literal = dict(zip([2 * (place + 1) for place in self.used], range(2, 2 + 2 * len(self.used), 2), strict=True))
        literal[0] = 0
        for node in cone[len(self.used) :]:
            a, b = whole.left[node], whole.right[node]
            make = self.graph.differ if whole.is_xor[node] else self.graph.both
            literal[2 * node] = make(literal[a & ~1] ^ a & 1, literal[b & ~1] ^ b & 1)
        self.pairs = [tuple(literal[a & ~1] ^ a & 1 for a in both[number]) for number in self.outputs]

    def witness(self, found: Bits | Mapping[int, int]) -> Bits:
        """Bits of the circuits' inputs from those of the used ones, or of some nodes; the others are 0."""
        bits = np.zeros(self.total, np.bool_)
        if isinstance(found, Mapping):
            for node, bit in found.items():
                bits[self.used[node - 1]] = bit
        else:
            bits[self.used] = found
        return bits


def as_circuit(graph: Graph) -> Circuit:
    """The graph as a circuit that shows every node, in order."""
    first = 1 + graph.inputs
    fanin = np.array([graph.left[first:], graph.right[first:]], np.int64).T.reshape(-1, 2)
    table = np.where(np.array(graph.is_xor[first:], np.bool_), np.uint64(gates.XOR), np.uint64(gates.AND))
    for j in range(2):
        table = np.where(fanin[:, j] & 1 == 1, gates.negate_input(table, j, 2), table)
    node = fanin >> 1
    nets = np.arange(1, 1 + len(graph))
    nets[0] = 0
    return Circuit(graph.inputs, table, node + (node > 0), nets)
