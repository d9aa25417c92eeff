"""Merging on data: the samples keep their outputs, and what they can tell apart is not merged."""

from __future__ import annotations

import sys

import numpy as np
import pytest
from circuits import assert_equal_bits, circuits, every_row, random_circuit
from hypothesis import given, settings
from hypothesis import strategies as st

from gatewise.circuit import Circuit, merge_on_data, pack, parse, simulate
from gatewise.circuit.dontcares import merge_on_words
from gatewise.errors import CircuitError


def samples(circuit: Circuit, count: int, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).random((count, circuit.inputs)) < 0.5


def all_nets(circuit: Circuit, bits: np.ndarray) -> np.ndarray:
    return simulate(Circuit(circuit.inputs, circuit.table, circuit.fanin, np.arange(circuit.nets)), bits)


@given(circuits(max_inputs=6, max_gates=40), st.integers(1, 200), st.integers(0, 2**32 - 1))
@settings(max_examples=100, deadline=None)
def test_the_samples_keep_their_outputs_and_no_gate_is_added(circuit: Circuit, count: int, seed: int) -> None:
    bits = samples(circuit, count, seed)
    merged = merge_on_data(circuit, bits)
    assert_equal_bits(simulate(merged, bits), simulate(circuit, bits))
    assert merged.gates <= circuit.gates
    assert merge_on_data(merged, bits) == merged


@given(circuits(max_inputs=6, max_gates=40), st.integers(1, 200), st.integers(0, 2**32 - 1))
@settings(max_examples=60, deadline=None)
def test_no_two_gates_are_left_that_the_samples_do_not_tell_apart(circuit: Circuit, count: int, seed: int) -> None:
    bits = samples(circuit, count, seed)
    merged = merge_on_data(circuit, bits)
    values = all_nets(merged, bits).T
    values = values ^ values[:, :1]
    inverters = (merged.fanin == merged.fanin[:, :1]).all(axis=1) & np.isin(
        np.arange(merged.first_gate, merged.nets), merged.outputs
    )
    kept = values[merged.first_gate :][~inverters]
    earlier = values[: merged.first_gate]
    distinct = {row.tobytes() for row in kept}
    assert len(distinct) == len(kept), "two gates have one value"
    assert not distinct & {row.tobytes() for row in earlier}, "a gate has the value of an input or a constant"


def test_on_every_row_nothing_but_what_is_equal_is_merged() -> None:
    for seed in range(20):
        circuit = random_circuit(np.random.default_rng(seed), 8, 100, outputs=20)
        merged = merge_on_data(circuit, every_row(8))
        assert_equal_bits(simulate(merged, every_row(8)), simulate(circuit, every_row(8)))
        shown = {row.tobytes() for row in all_nets(merged, every_row(8)).T[merged.first_gate :]}
        assert len(shown) == merged.gates, "each gate is another function of the inputs"


def test_constant_equal_and_inverse_gates_merge_into_the_earliest_net() -> None:
    circuit = parse("""\
circuit inputs=3 k=2
5 = and 2 3       # 0 on the samples
6 = or 2 3        # net 4 on the samples
7 = xor 2 4
8 = xnor 2 4      # the inverse of 7
9 = xor 8 3
10 = or 5 9
11 = and 6 7
outputs 10 11 5 8
""")
    bits = np.array([[0, 0, 0], [1, 0, 1], [0, 1, 1], [0, 1, 1]], bool)
    after = "circuit inputs=3 k=2\n5 = ~a 3 3\noutputs 1 3 0 5\n"
    merged = merge_on_data(circuit, bits)
    assert_equal_bits(simulate(merged, bits), simulate(circuit, bits))
    assert str(merged) == after


def test_inputs_that_are_shown_stay_whatever_the_samples_say() -> None:
    circuit = Circuit(3, [], np.zeros((0, 2)), [2, 3, 4])
    assert merge_on_data(circuit, [[0, 1, 0], [1, 0, 0]]) == circuit


def test_it_is_lossy_beyond_the_samples() -> None:
    circuit = Circuit(2, [1], [[2, 3]], [4])
    merged = merge_on_data(circuit, [[0, 0], [1, 1]])
    assert merged.gates == 0
    with pytest.raises(AssertionError, match="bits differ"):
        assert_equal_bits(simulate(merged, every_row(2)), simulate(circuit, every_row(2)))


@pytest.mark.parametrize("count", [2, 63, 64, 65, 128, 300])
def test_one_sample_more_tells_gates_apart(count: int) -> None:
    circuit = Circuit(8, [1, 6], [[2, 3], [2, 3]], [10, 11])
    bits = np.zeros((count, 8), bool)
    assert merge_on_data(circuit, bits).gates == 0
    bits[-1, 0] = True
    assert str(merge_on_data(circuit, bits)).splitlines()[-1] == "outputs 0 2"


def test_hashes_that_collide_merge_nothing_that_differs(monkeypatch: pytest.MonkeyPatch) -> None:
    module = sys.modules["gatewise.circuit.dontcares"]
    circuit = random_circuit(np.random.default_rng(1), 10, 200, outputs=40)
    bits = samples(circuit, 100, 2)
    monkeypatch.setattr(module, "_first_alike", lambda nets: np.zeros(circuit.nets, np.int32))
    merged = merge_on_data(circuit, bits)
    assert_equal_bits(simulate(merged, bits), simulate(circuit, bits))


def test_samples_taken_in_blocks_give_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    circuit = random_circuit(np.random.default_rng(3), 10, 300, outputs=40)
    bits = samples(circuit, 1000, 4)
    expected = merge_on_data(circuit, bits)
    for words in (1, 3, 16):
        monkeypatch.setattr(sys.modules["gatewise.circuit.simulate"], "_BLOCK_WORDS", words)
        assert merge_on_data(circuit, bits) == expected
    assert merge_on_words(circuit, pack(bits), 1000) == expected


def test_what_fills_the_last_word_tells_nothing_apart() -> None:
    circuit = Circuit(2, [1, 7], [[2, 3], [2, 3]], [4, 5])
    bits = np.ones((65, 2), bool)
    assert str(merge_on_data(circuit, bits)).splitlines()[-1] == "outputs 1 1"


def test_no_samples_and_samples_of_another_width_are_refused() -> None:
    circuit = Circuit(2, [1], [[2, 3]], [4])
    with pytest.raises(CircuitError, match="no samples"):
        merge_on_data(circuit, np.zeros((0, 2), bool))
    with pytest.raises(CircuitError, match=r"shape \(3, 1\): expected \(2, 1\)"):
        merge_on_data(circuit, np.zeros((5, 3), bool))
    with pytest.raises(CircuitError, match=r"expected \(2, 2\), for 65 samples"):
        merge_on_words(circuit, np.zeros((2, 1), np.uint64), 65)
