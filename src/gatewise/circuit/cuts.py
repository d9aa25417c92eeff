"""Passes over cuts, the small cones that end in a gate: rewriting, and mapping to gates of up to six inputs.

The work is done by the C core (xag.c, cuts.c, rewrite.c), on one thread, with about 450 bytes a gate of two inputs.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from gatewise import core
from gatewise.circuit.handover import arrays, describe, sizes
from gatewise.circuit.ir import MAX_K, Circuit
from gatewise.errors import ConfigError

FUNCTIONS, WAYS = 1 << 15, 4
_NO_MEMORY = -3

_GATES_A_TABLE = {1: 1, 2: 1, 3: 7, 4: 7, 5: 17, 6: 37}
"""The most gates of two inputs that a table takes: two halves and a choice of three gates for each input above four."""


class _Netlist(ctypes.Structure):
    _fields_ = [*sizes("room", "gates", "k"), *arrays("table", "fanin", "output")]


def map_luts(circuit: Circuit, k: int, rounds: int = 3) -> Circuit:
    """The circuit in as few gates of k inputs, 2 to 6, as priority cuts with area recovery find.

    >>> map_luts(circuit, 3)
    <Circuit: 784 inputs, 12894 gates of 3 inputs, 8000 outputs>

    An input that a gate does not need is its last and reads net 0. Gates of more than two inputs are first expanded.
    Each further round expands and maps the result of the one before, which is another structure; the best is kept.
    """
    if not 2 <= k <= MAX_K:
        raise ConfigError(f"k is {k}: expected 2 to {MAX_K} inputs a gate")
    best = current = _run(core.library().gw_map_luts, circuit, k)
    for _ in range(rounds - 1):
        current = _run(core.library().gw_map_luts, current, k)
        best = min(best, current, key=_size)
    return best


def rewrite(circuit: Circuit, rounds: int = 4) -> Circuit:
    """Cones of up to four leaves replaced by smaller ones, in gates of two inputs; the same circuit if that gains none.

    >>> rewrite(circuit)
    <Circuit: 784 inputs, 17408 gates of 2 inputs, 8000 outputs>

    Every second round also replaces a cone by another of its size, from which the next round may gain. It ends when
    two rounds have gained nothing. Gates of more than two inputs are first expanded, so expect no gain on those.
    """
    best = current = expand_luts(circuit)
    idle = 0
    for turn in range(rounds):
        current = _run(core.library().gw_rewrite, current, 2, turn % 2)
        idle = 0 if current.gates < best.gates else idle + 1
        best = min(best, current, key=_size)
        if idle == 2:
            break
    return best if best.gates < circuit.gates else circuit


def expand_luts(circuit: Circuit) -> Circuit:
    """The circuit in gates of two inputs, equal gates shared and trivial ones folded; the inverse of `map_luts`."""
    return _run(core.library().gw_expand_luts, circuit, 2)


@functools.cache
def library() -> NDArray[np.uint64]:
    """How to make each function of four inputs of smaller ones, [FUNCTIONS, WAYS]; gatewise.h says how to read it."""
    table = np.empty((FUNCTIONS, WAYS), np.uint64)
    core.check(core.library().gw_fill_library(ctypes.c_void_p(table.ctypes.data)))
    table.flags.writeable = False
    return table


def _size(circuit: Circuit) -> tuple[int, int]:
    """Fewest gates, and among them fewest inputs read."""
    return circuit.gates, int(np.count_nonzero(circuit.fanin))


def _run(function: Callable[..., int], circuit: Circuit, k: int, *options: int) -> Circuit:
    """Call a pass of the core, with room for as many gates as it can write."""
    room = circuit.gates * _GATES_A_TABLE[circuit.k]
    table, fanin = np.empty(room, np.uint64), np.empty((room, k), np.int32)
    output = np.empty(len(circuit.outputs), np.int32)
    given = describe(circuit)
    netlist = _Netlist(room, 0, k, *(a.ctypes.data for a in (table, fanin, output)))
    ways = ctypes.c_void_p(library().ctypes.data)
    status = function(ctypes.byref(given), ways, *options, ctypes.byref(netlist))
    if status == _NO_MEMORY:
        raise MemoryError(f"there is not enough memory for a pass over {circuit.gates} gates")
    core.check(status)
    return Circuit(circuit.inputs, table[: netlist.gates], fanin[: netlist.gates], output)
