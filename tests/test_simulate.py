"""What a circuit computes, against an evaluator that goes sample by sample and gate by gate."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pytest
from circuits import assert_equal_bits, circuits, evaluate_plainly, every_row, random_circuit
from hypothesis import given, settings
from hypothesis import strategies as st

from gatewise import gates
from gatewise.circuit import Circuit, Simulator, pack, simulate, unpack
from gatewise.circuit.simulate import polynomial
from gatewise.errors import CircuitError

COUNTS = [0, 1, 63, 64, 65, 127, 128, 1000]


@given(circuits(max_inputs=6))
@settings(max_examples=150, deadline=None)
def test_random_circuits_compute_what_their_tables_say(circuit: Circuit) -> None:
    rows = every_row(circuit.inputs)
    assert_equal_bits(simulate(circuit, rows), evaluate_plainly(circuit, rows))


@pytest.mark.parametrize("k", range(1, 7))
def test_ten_inputs_are_compared_exhaustively(k: int) -> None:
    circuit = random_circuit(np.random.default_rng(k), 10, 60, k, outputs=20, trivial=0.2)
    rows = every_row(10)
    assert_equal_bits(simulate(circuit, rows), evaluate_plainly(circuit, rows))


@pytest.mark.parametrize("table", range(16))
def test_each_gate_of_two_inputs_is_its_table(table: int) -> None:
    found = simulate(Circuit(2, [table], [[2, 3]], [4]), every_row(2))
    assert found[:, 0].tolist() == [bool(gates.evaluate(table, (a, b))) for a in (0, 1) for b in (0, 1)]


@pytest.mark.parametrize("k", [2, 3])
def test_wide_levels_that_are_cut_by_table_compute_the_same(k: int) -> None:
    rng = np.random.default_rng(1)
    size = 3000
    table = rng.choice(np.array([0, 1, 6, gates.ones(0, k), gates.full(k)], np.uint64), size)
    wide = Circuit(9, table, rng.integers(0, 11, (size, k)), np.arange(11 + size))
    assert len(Simulator(wide)._cuts) > 2, "the level was meant to be cut"
    bits = rng.random((40, 9)) < 0.5
    assert_equal_bits(simulate(wide, bits), evaluate_plainly(wide, bits))


def test_one_flipped_table_bit_is_noticed() -> None:
    random = random_circuit(np.random.default_rng(2), 8, 40)
    circuit = Circuit(8, random.table, random.fanin, np.arange(random.nets))
    rows = every_row(8)
    expected = evaluate_plainly(circuit, rows)
    planted = 0
    for gate in range(circuit.gates):
        if not expected[:, circuit.fanin[gate]].all(axis=1).any():
            continue  # the last row of this table never occurs
        faulty = Circuit(8, circuit.table ^ (np.arange(circuit.gates) == gate), circuit.fanin, circuit.outputs)
        with pytest.raises(AssertionError, match="bits differ"):
            assert_equal_bits(simulate(faulty, rows), expected)
        planted += 1
    assert planted > 10


@pytest.mark.parametrize("count", COUNTS)
def test_any_number_of_samples_is_exact(count: int) -> None:
    rng = np.random.default_rng(3)
    circuit = random_circuit(rng, 12, 80, outputs=9)
    bits = rng.random((count, 12)) < 0.5
    assert_equal_bits(simulate(circuit, bits), evaluate_plainly(circuit, bits))


def test_samples_taken_in_blocks_give_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(4)
    circuit = random_circuit(rng, 12, 300, outputs=9)
    bits = rng.random((1000, 12)) < 0.5
    expected = evaluate_plainly(circuit, bits)
    module = sys.modules["gatewise.circuit.simulate"]
    for state in (1, 8 * circuit.nets * 3, 8 * circuit.nets * 5 + 1):
        for words in (1, 7, 1 << 16):
            monkeypatch.setattr(module, "_STATE_BYTES", state)
            monkeypatch.setattr(module, "_SLICE_WORDS", words)
            assert_equal_bits(simulate(circuit, bits), expected)


@pytest.mark.parametrize("dtype", [bool, np.uint8, np.int8, np.int32, np.int64, np.uint64])
def test_bits_may_be_bool_or_integers(dtype: Any) -> None:
    rng = np.random.default_rng(5)
    circuit = random_circuit(rng, 7, 30)
    bits = rng.random((70, 7)) < 0.5
    assert_equal_bits(simulate(circuit, bits.astype(dtype)), evaluate_plainly(circuit, bits))


def test_bits_may_lie_in_memory_in_any_way() -> None:
    rng = np.random.default_rng(6)
    circuit = random_circuit(rng, 7, 30)
    bits = rng.random((14, 130)) < 0.5
    for view in (bits.T[:, ::2], bits.T[::-1, 3:10], np.asfortranarray(bits.T[:, :7])):
        assert_equal_bits(simulate(circuit, view), evaluate_plainly(circuit, view))
    assert_equal_bits(simulate(circuit, bits.T[:, :7].tolist()), evaluate_plainly(circuit, bits.T[:, :7]))


@pytest.mark.parametrize(
    ("bits", "message"),
    [
        (np.zeros((3, 2)), "bits has dtype float64: expected bool, or integers 0 and 1"),
        (np.array([[0, 2]]), "bits holds numbers from 0 to 2: expected 0 and 1"),
        (np.array([[-1, 0]]), "bits holds numbers from -1 to 0"),
        (np.zeros(2, bool), r"bits has shape \(2,\): expected \[samples, inputs\]"),
        (np.zeros((3, 4), bool), r"bits has shape \(3, 4\): the circuit has 2 inputs"),
        ([["0", "1"]], "bits has dtype"),
    ],
)
def test_what_are_no_bits_for_the_circuit_is_refused(bits: Any, message: str) -> None:
    with pytest.raises(CircuitError, match=message):
        simulate(Circuit(2, [1], [[2, 3]], [4]), bits)


def test_outputs_may_be_inputs_constants_and_repeated() -> None:
    circuit = Circuit(1, [], np.zeros((0, 2)), [0, 1, 2, 2, 1])
    assert simulate(circuit, [[0], [1]]).tolist() == [
        [False, True, False, False, True],
        [False, True, True, True, True],
    ]


def test_a_circuit_without_inputs_or_outputs_still_has_samples() -> None:
    assert simulate(Circuit(0, [], np.zeros((0, 2)), [1]), np.zeros((3, 0), bool)).tolist() == [[True]] * 3
    assert simulate(Circuit(2, [], np.zeros((0, 2)), []), np.zeros((3, 2), bool)).shape == (3, 0)


def test_a_deep_chain_is_simulated() -> None:
    size = 20_000
    chain = Circuit(1, np.full(size, 6), np.stack([np.arange(2, 2 + size), np.full(size, 2)], 1), [size + 1, size + 2])
    assert simulate(chain, [[0], [1]]).tolist() == [[False, False], [False, True]]


@given(st.integers(0, 200), st.integers(0, 9), st.integers(0, 2**32 - 1))
def test_unpacking_undoes_packing(count: int, inputs: int, seed: int) -> None:
    bits = np.random.default_rng(seed).random((count, inputs)) < 0.5
    words = pack(bits)
    assert words.shape == (inputs, -(-count // 64))
    assert words.dtype == np.uint64
    assert_equal_bits(unpack(words, count), bits)


def test_sample_b_is_bit_b_mod_64_of_word_b_div_64() -> None:
    bits = np.zeros((130, 2), bool)
    bits[[0, 5, 63, 64, 129], [0, 1, 0, 1, 0]] = True
    assert pack(bits).tolist() == [[1 | 1 << 63, 0, 1 << 1], [1 << 5, 1 << 0, 0]]


@given(st.integers(1, 6), st.data())
def test_the_polynomial_of_a_table_has_its_values(k: int, data: st.DataObject) -> None:
    table = data.draw(st.integers(0, gates.full(k)))
    coefficients = int(polynomial(np.array([table], np.uint64), k)[0])
    for row in range(2**k):
        terms = (coefficients >> (2**k - 1 - term) & 1 for term in range(2**k) if term & row == term)
        assert sum(terms) % 2 == table >> (2**k - 1 - row) & 1
