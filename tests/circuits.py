"""Random circuits for tests, every row of a few inputs, and a plain evaluator to compare with."""

from __future__ import annotations

import itertools

import numpy as np
from hypothesis import strategies as st

from gatewise import gates
from gatewise.circuit import Circuit


def random_circuit(
    rng: np.random.Generator, inputs: int, size: int, k: int = 2, outputs: int = 5, *, trivial: float = 0.0
) -> Circuit:
    """Gates that read any nets before them, constants and one net twice among them.

    `trivial` is the share of gates made constant, identity or negation.
    """
    table = rng.integers(0, gates.full(k), size, dtype=np.uint64, endpoint=True)
    plain = [0, *(gates.ones(j, k) for j in range(k))]
    trivial_tables = np.array([*plain, *(gates.negate(t, k) for t in plain)], np.uint64)
    chosen = rng.random(size) < trivial
    table[chosen] = rng.choice(trivial_tables, size)[chosen]
    own = 2 + inputs + np.arange(size)
    fanin = rng.integers(0, own[:, None], (size, k))
    return Circuit(inputs, table, fanin, rng.integers(0, 2 + inputs + size, outputs))


@st.composite
def circuits(
    draw: st.DrawFn, k: st.SearchStrategy[int] | None = None, max_inputs: int = 6, max_gates: int = 24
) -> Circuit:
    """Any small circuit, down to none of anything."""
    width = draw(st.integers(1, 6) if k is None else k)
    inputs = draw(st.integers(0, max_inputs))
    size = draw(st.integers(0, max_gates))
    # Hypothesis chooses the shape and the seed; drawing each net would be slow and would shrink no better.
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    outputs = draw(st.integers(0, 6))
    return random_circuit(rng, inputs, size, width, outputs, trivial=draw(st.sampled_from([0.0, 0.5, 0.9])))


def every_row(inputs: int) -> np.ndarray:
    """All bits [2**inputs, inputs]."""
    return np.array(list(itertools.product([False, True], repeat=inputs)), bool).reshape(2**inputs, inputs)


def evaluate_plainly(circuit: Circuit, bits: np.ndarray) -> np.ndarray:
    """The outputs, one sample and one gate at a time, by the definition of a gate alone."""
    table, fanin, outputs = circuit.table.tolist(), circuit.fanin.tolist(), circuit.outputs.tolist()
    rows = []
    for sample in bits.tolist():
        value = [0, 1, *map(int, sample)]
        for gate, reads in zip(table, fanin, strict=True):
            value.append(gates.evaluate(gate, tuple(value[net] for net in reads)))
        rows.append([value[net] for net in outputs])
    return np.array(rows, bool).reshape(len(bits), len(outputs))


def assert_equal_bits(found: np.ndarray, expected: np.ndarray) -> None:
    """Bits get no tolerance, and neither does their shape."""
    assert found.dtype == expected.dtype == np.bool_
    assert found.shape == expected.shape
    assert np.array_equal(found, expected), f"{np.count_nonzero(found != expected)} bits differ"
