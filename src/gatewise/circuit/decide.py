"""Whether two literals of a graph are the same function: by truth tables over a common cut, else by SAT.

A cut is a set of nodes taken as free. What holds whatever they are, holds; what does not may still hold for the
values they can have, so only a cut that has reached the inputs refutes.
"""

from __future__ import annotations

import functools
import heapq
import importlib
import time
from collections.abc import Callable, Sequence
from typing import Any, Literal

from gatewise.circuit.graph import Graph

CUT = 10
"""Leaves of a cut that is decided by truth tables."""

SMALL = 14
"""Inputs of two functions that are compared on all of them."""

WINDOWS = (100, 1_000)
"""Nodes that are looked at before the whole cone is."""

WINDOW_CONFLICTS = 200

_STEP = 500_000
"""Propagations between two looks at the clock: a fraction of a second."""

_LOAD_SECONDS = 1e-5
"""Time to hand one node to the solver, with a margin."""

Witness = dict[int, int]
"""The value of each input node that matters."""

Answer = Literal[True] | Witness | None
"""They are one function, or differ there, or that was not found out."""


def load_solver() -> Callable[..., Any] | None:
    """The SAT solver of python-sat, if that is installed: one that can be stopped."""
    try:
        return functools.partial(importlib.import_module("pysat.solvers").Solver, name="minisat22")
    except ImportError:
        return None


class Decider:
    """Decides pairs of literals. True and a Witness are final; None is: not within these means."""

    def __init__(self, graph: Graph, solver: Callable[..., Any] | None, deadline: float) -> None:
        self.graph, self.solver, self.deadline = graph, solver, deadline
        self.by_cut = self.by_sat = 0

    def same(self, a: int, b: int, conflicts: int) -> Answer:
        """Whether a and b are one function: True, the inputs on which they differ, or None."""
        if time.monotonic() > self.deadline:
            return None
        if a < b:
            a, b = b, a
        answer = self._by_cut(a, b)
        self.by_cut += answer is not None
        if answer is None:
            answer = self._by_window(a, b, conflicts)
        return answer

    def _by_window(self, a: int, b: int, conflicts: int) -> Answer:
        """Look at more and more of what a and b depend on, until it is enough or all of it."""
        for size in (*WINDOWS, len(self.graph)):
            inner, leaves = self._window(a, b, size)
            whole = max(leaves) <= self.graph.inputs
            if whole and len(leaves) <= SMALL:
                self.by_cut += 1
                return self._compare(a, b, set(inner), set(leaves), exact=True)
            if self.solver is None:
                continue
            answer = self._satisfy(a, b, inner, leaves, conflicts if whole else min(conflicts, WINDOW_CONFLICTS))
            if whole or answer is True:
                self.by_sat += answer is not None
                return answer
        return None

    def _by_cut(self, a: int, b: int) -> Answer:
        """Open the node of highest level until both functions agree over the leaves, or those are too many.

        Leaves that only one of the two reads go first: they are in the way of a common cut.
        """
        graph = self.graph
        left, right, level, inputs = graph.left, graph.right, graph.level, graph.inputs
        mine, theirs = {a >> 1}, {b >> 1} - {0}
        inner: set[int] = set()
        while True:
            node = max(mine ^ theirs, key=level.__getitem__, default=0)
            if node <= inputs:
                node = max(mine | theirs, key=level.__getitem__)
                if node <= inputs:
                    return self._compare(a, b, inner, mine | theirs, exact=True)
            inner.add(node)
            below = (left[node] >> 1, right[node] >> 1)
            for side in (mine, theirs):
                if node in side:
                    side.remove(node)
                    side.update(below)
            leaves = mine | theirs
            if len(leaves) > CUT:
                return None
            if self._compare(a, b, inner, leaves, exact=False):
                return True

    def _compare(self, a: int, b: int, inner: set[int], leaves: set[int], *, exact: bool) -> Answer:
        """Compare the tables of a and b over the leaves; `exact` is whether the leaves are all inputs."""
        graph, order = self.graph, sorted(leaves)
        variables, every = _variables(len(order))
        value = dict(zip(order, variables, strict=True))
        value[0] = 0
        for node in sorted(inner - leaves):
            x, y = graph.left[node], graph.right[node]
            p = value[x >> 1] ^ (every if x & 1 else 0)
            q = value[y >> 1] ^ (every if y & 1 else 0)
            value[node] = p ^ q if graph.is_xor[node] else p & q
        difference = value[a >> 1] ^ value[b >> 1] ^ (every if (a ^ b) & 1 else 0)
        if not difference:
            return True
        if not exact:
            return None
        row = difference.bit_length() - 1
        return {leaf: variable >> row & 1 for leaf, variable in zip(order, variables, strict=True)}

    def _window(self, a: int, b: int, size: int) -> tuple[list[int], list[int]]:
        """The `size` nodes of highest level that a and b depend on, and the nodes those read."""
        graph = self.graph
        heap = [(-graph.level[node], node) for node in {a >> 1, b >> 1} - {0}]
        heapq.heapify(heap)
        seen = {node for _, node in heap}
        inner: list[int] = []
        while heap and len(inner) < size and heap[0][1] > graph.inputs:
            node = heapq.heappop(heap)[1]
            inner.append(node)
            for below in (graph.left[node] >> 1, graph.right[node] >> 1):
                if below not in seen:
                    seen.add(below)
                    heapq.heappush(heap, (-graph.level[below], below))
        return inner, [node for _, node in heap]

    def _satisfy(self, a: int, b: int, inner: Sequence[int], leaves: Sequence[int], conflicts: int) -> Answer:
        """Ask the solver for values of the leaves on which a and b differ: True if there are none."""
        variable = {node: number for number, node in enumerate([*leaves, *inner], 1)}
        assert self.solver is not None
        if _LOAD_SECONDS * len(inner) > self.deadline - time.monotonic():
            return None
        with self.solver(bootstrap_with=_clauses(self.graph, a, b, inner, variable)) as solver:
            while time.monotonic() < self.deadline:
                solver.conf_budget(max(1, conflicts - solver.accum_stats()["conflicts"]))
                solver.prop_budget(_STEP)
                found = solver.solve_limited()
                if found is False:
                    return True
                if found is True:
                    values = solver.get_model()
                    return {node: int(values[variable[node] - 1] > 0) for node in leaves}
                if solver.accum_stats()["conflicts"] >= conflicts:
                    return None
        return None


def _clauses(graph: Graph, a: int, b: int, inner: Sequence[int], variable: dict[int, int]) -> list[list[int]]:
    """What the inner nodes compute, and that a and b differ."""

    def term(literal: int) -> int:
        number = variable[literal >> 1]
        return -number if literal & 1 else number

    clauses = []
    for node in inner:
        z, x, y = variable[node], term(graph.left[node]), term(graph.right[node])
        if graph.is_xor[node]:
            clauses += [[-z, x, y], [-z, -x, -y], [z, -x, y], [z, x, -y]]
        else:
            clauses += [[-z, x], [-z, y], [z, -x, -y]]
    if b < 2:
        return [*clauses, [-term(a) if b else term(a)]]
    return [*clauses, [term(a), term(b)], [-term(a), -term(b)]]


@functools.cache
def _variables(count: int) -> tuple[list[int], int]:
    """The tables of `count` free variables, row r at bit r, and that of the constant 1."""
    rows = 1 << count
    every = (1 << rows) - 1
    return [every // ((1 << (1 << i)) + 1) << (1 << i) & every for i in range(count)], every
