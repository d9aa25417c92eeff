"""Circuits out of circuits: one behind the other, side by side, a part of one, or one with wider gates.

G gates, k inputs a gate.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from gatewise.circuit.ir import MAX_K, Circuit
from gatewise.circuit.levels import Nets, reachable
from gatewise.errors import CircuitError


def cascade(first: Circuit, second: Circuit) -> Circuit:
    """The second circuit behind the first: it reads what the first shows.

    >>> cascade(adder, comparator)
    """
    if len(first.outputs) != second.inputs:
        raise CircuitError(f"the first circuit has {len(first.outputs)} outputs: the second reads {second.inputs}")
    return _append(first, second, first.outputs, shown=())


def beside(first: Circuit, second: Circuit) -> Circuit:
    """Both circuits over one set of inputs: the outputs of the first, then those of the second.

    >>> beside(network, rewritten)
    """
    if first.inputs != second.inputs:
        raise CircuitError(
            f"the first circuit has {first.inputs} inputs and the second {second.inputs}: expected one set"
        )
    return _append(first, second, np.arange(2, first.first_gate), shown=first.outputs)


def widen(circuit: Circuit, k: int) -> Circuit:
    """The same gates with k inputs each; those that are new come last, read the constant 0 and change nothing.

    >>> widen(circuit, 6)
    """
    if not circuit.k <= k <= MAX_K:
        raise CircuitError(f"k is {k}: expected {circuit.k}, which the circuit has, to {MAX_K}")
    width = 2**k // 2**circuit.k  # rows that one row becomes
    table = np.zeros_like(circuit.table)
    for row in range(2**circuit.k):
        bit = circuit.table >> np.uint64(row) & np.uint64(1)
        table |= bit * np.uint64((1 << width) - 1) << np.uint64(row * width)
    return Circuit(circuit.inputs, table, np.pad(circuit.fanin, ((0, 0), (0, k - circuit.k))), circuit.outputs)


def cone(circuit: Circuit, outputs: Iterable[int]) -> Circuit:
    """The outputs at these places, in this order, and the gates they depend on; all inputs stay.

    >>> cone(circuit, range(10))
    """
    try:
        chosen = [operator.index(place) for place in outputs]
    except TypeError as error:
        raise CircuitError(f"outputs are chosen by whole numbers: {error}") from None
    wrong = [place for place in chosen if not 0 <= place < len(circuit.outputs)]
    if wrong:
        raise CircuitError(f"there is no output {wrong[0]}: the circuit has {len(circuit.outputs)}, counted from 0")
    shown = circuit.outputs[np.array(chosen, np.intp)]
    kept = reachable(circuit.first_gate, circuit.fanin, shown)
    kept[: circuit.first_gate] = True
    net = np.cumsum(kept, dtype=np.int32) - 1
    gates = kept[circuit.first_gate :]
    return Circuit(circuit.inputs, circuit.table[gates], net[circuit.fanin[gates]], net[shown])


def drop_unused_inputs(circuit: Circuit) -> tuple[Circuit, Nets]:
    """The circuit without the inputs that nothing reads and no output shows, and the old places of those that stay."""
    read = np.concatenate([circuit.fanin.ravel(), circuit.outputs])
    used = np.unique(read[(read >= 2) & (read < circuit.first_gate)])  # the circuit may claim billions of inputs

    def renumber(net: Nets) -> NDArray[np.int64]:
        gates, inputs = net >= circuit.first_gate, 2 + np.searchsorted(used, net)
        return np.where(gates, net - (circuit.inputs - len(used)), np.where(net < 2, net, inputs))

    return Circuit(len(used), circuit.table, renumber(circuit.fanin), renumber(circuit.outputs)), used - 2


def _append(first: Circuit, second: Circuit, feeds: NDArray[np.integer], shown: Nets | tuple[()]) -> Circuit:
    """The gates of both, the second reading `feeds` as its inputs; the outputs: `shown`, and those of the second."""
    k = max(first.k, second.k)
    first, second = widen(first, k), widen(second, k)
    net = np.concatenate([[0, 1], feeds, first.nets + np.arange(second.gates)])
    return Circuit(
        first.inputs,
        np.concatenate([first.table, second.table]),
        np.concatenate([first.fanin, net[second.fanin]]),
        np.concatenate([shown, net[second.outputs]]).astype(np.int64),
    )
