"""Gates by level: those of one level depend only on earlier levels, so they can be computed together."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from gatewise.circuit.ir import Circuit

Nets = NDArray[np.int32]
Offsets = NDArray[np.int64]


def level_order(circuit: Circuit) -> tuple[Nets, Offsets]:
    """All gates sorted by level, and where each level begins: level d is `order[start[d] : start[d + 1]]`.

    A gate is as early as its fanin allows; within a level gates keep their order. The work is that of
    visiting each gate and each wire once (Kahn), plus a few numpy calls a level.
    """
    readers, first = _fan_out(circuit)
    pending = (circuit.fanin >= circuit.first_gate).sum(axis=1, dtype=np.int32)
    order = np.empty(circuit.gates, np.int32)
    scratch = np.empty(circuit.gates, np.int32)
    start = [0]
    frontier = np.flatnonzero(pending == 0).astype(np.int32)
    while frontier.size:
        begin, end = start[-1], start[-1] + frontier.size
        order[begin:end] = frontier
        start.append(end)
        reached = readers[spans(first[frontier], first[frontier + 1])]
        np.subtract.at(pending, reached, 1)
        frontier = np.sort(distinct(reached[pending[reached] == 0], scratch))
    assert start[-1] == circuit.gates, "a checked circuit has no cycle"
    return order, np.array(start, np.int64)


def by_level(circuit: Circuit) -> Iterator[Nets]:
    """The gates of each level, in order."""
    order, start = level_order(circuit)
    for begin, end in pairwise(start.tolist()):
        yield order[begin:end]


def depths(circuit: Circuit) -> Nets:
    """The level of each gate, [G]; gates that read only inputs and constants are at level 0."""
    order, start = level_order(circuit)
    depth = np.empty(circuit.gates, np.int32)
    depth[order] = np.repeat(np.arange(len(start) - 1, dtype=np.int32), np.diff(start))
    return depth


def reachable(first_gate: int, fanin: Nets, nets: Nets) -> NDArray[np.bool_]:
    """Which nets [all of them] these nets are or depend on; a gate depends on all it reads, whatever its table says."""
    size = first_gate + len(fanin)
    seen, scratch = np.zeros(size, np.bool_), np.empty(size, np.int32)
    found = nets
    while found.size:
        found = distinct(found[~seen[found]], scratch)
        seen[found] = True
        found = fanin[found[found >= first_gate] - first_gate].ravel()
    return seen


def spans(begin: Offsets, end: Offsets) -> Offsets:
    """The numbers begin[i] … end[i] - 1 of all i, one after the other."""
    length = end - begin
    stop = np.cumsum(length)
    total = int(stop[-1]) if stop.size else 0
    return np.repeat(begin - stop + length, length) + np.arange(total)


def distinct(items: Nets, scratch: Nets) -> Nets:
    """Each of `items` once, in the time of looking at them: the last to sign in `scratch` stays."""
    visit = np.arange(items.size, dtype=np.int32)
    scratch[items] = visit
    last: Nets = items[scratch[items] == visit]
    return last


def _fan_out(circuit: Circuit) -> tuple[Nets, Offsets]:
    """The gates that read gate g: `readers[first[g] : first[g + 1]]`, as often as they read it."""
    flat = circuit.fanin.ravel()
    wire = np.flatnonzero(flat >= circuit.first_gate)
    source = flat[wire] - np.int32(circuit.first_gate)
    readers = (wire // circuit.k).astype(np.int32)[np.argsort(source, kind="stable")]
    first = np.zeros(circuit.gates + 1, np.int64)
    np.cumsum(np.bincount(source, minlength=circuit.gates), out=first[1:])
    return readers, first
