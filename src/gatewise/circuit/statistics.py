"""What a circuit is made of, in numbers. Encoder and popcount are in none of them: a circuit has neither.

G gates, k inputs a gate.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gatewise import gates
from gatewise.circuit.compose import drop_unused_inputs
from gatewise.circuit.ir import Circuit
from gatewise.circuit.levels import level_order, reachable
from gatewise.circuit.passes import count_bops

Counts = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Statistics:
    """The numbers of a circuit. Unless they say otherwise, they are about all its gates, needed or not."""

    inputs: int
    inputs_used: int
    """Inputs that an output shows or that a gate reads on which an output depends."""
    outputs: int
    k: int
    gates: int
    reachable: int
    """Gates that an output depends on, if a gate depends on all it reads."""
    bops: int
    """The paper's count: gates an output depends on, looking through and not counting constants, identities and
    negations."""
    level_sizes: Counts
    """[depth]: gates of each level; a gate is one level after the latest gate it reads."""
    fan_out: Counts
    """[largest + 1]: how many inputs and gates are read n times. An output reads too; so does a gate, each time."""
    tables: NDArray[np.uint64]
    table_counts: Counts
    """[T] each: the tables there are, in order, and how many gates have each."""
    dependence: Counts
    """[k + 1]: how many gates have a table that depends on n of their inputs; those of 0 are constants."""

    @property
    def depth(self) -> int:
        """Gates on the longest path."""
        return len(self.level_sizes)

    @property
    def fan_out_max(self) -> int:
        """How often the net is read that is read most."""
        return len(self.fan_out) - 1

    @property
    def fan_out_mean(self) -> float:
        """How often an input or a gate is read, in the mean."""
        return float(np.arange(len(self.fan_out)) @ self.fan_out / max(1, self.fan_out.sum()))


def statistics(circuit: Circuit) -> Statistics:
    """Count what a circuit is made of.

    >>> statistics(circuit).depth
    """
    small, _ = drop_unused_inputs(circuit)  # a circuit may have billions of inputs that take no memory
    needed = reachable(small.first_gate, small.fanin, small.outputs)
    tables, table_counts = np.unique(circuit.table, return_counts=True)
    return Statistics(
        inputs=circuit.inputs,
        inputs_used=int(np.count_nonzero(needed[2 : small.first_gate])),
        outputs=len(circuit.outputs),
        k=circuit.k,
        gates=circuit.gates,
        reachable=int(np.count_nonzero(needed[small.first_gate :])),
        bops=count_bops(small),
        level_sizes=np.diff(level_order(small)[1]),
        fan_out=_fan_out(small, circuit.inputs - small.inputs),
        tables=tables,
        table_counts=table_counts,
        dependence=_dependence(tables, table_counts, circuit.k),
    )


def _fan_out(circuit: Circuit, unread: int) -> Counts:
    """How many inputs and gates are read n times; `unread` more inputs are read by nobody."""
    reads = np.bincount(np.concatenate([circuit.fanin.ravel(), circuit.outputs]), minlength=circuit.nets)[2:]
    histogram = np.bincount(reads, minlength=1)
    histogram[0] += unread
    return histogram


def _dependence(tables: NDArray[np.uint64], counts: Counts, k: int) -> Counts:
    inputs = np.zeros(len(tables), np.int64)
    for j in range(k):
        inputs += gates.restrict(tables, j, 0, k) != gates.restrict(tables, j, 1, k)
    return np.bincount(inputs, weights=counts, minlength=k + 1).astype(np.int64)
