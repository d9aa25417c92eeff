"""The passes that make circuits smaller: golden text for each rule, and every row of random circuits of any k."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable

import numpy as np
import pytest
from circuits import assert_equal_bits, circuits, every_row, random_circuit
from hypothesis import given, settings
from hypothesis import strategies as st

from gatewise import gates
from gatewise.circuit import (
    Circuit,
    absorb_inverters,
    drop_unreachable,
    fold_constants,
    merge_two_levels,
    parse,
    prune,
    share_equal_gates,
    simulate,
)
from gatewise.circuit.levels import depths
from gatewise.circuit.normal import normal_form

Pass = Callable[[Circuit], Circuit]
PASSES = [drop_unreachable, fold_constants, absorb_inverters, share_equal_gates, merge_two_levels]
each_pass = pytest.mark.parametrize("apply", PASSES, ids=lambda apply: apply.__name__)


def assert_becomes(apply: Pass, before: str, after: str) -> None:
    circuit = parse(before)
    rows = every_row(circuit.inputs)
    assert_equal_bits(simulate(apply(circuit), rows), simulate(circuit, rows))
    assert str(apply(circuit)) == after


def depth(circuit: Circuit) -> int:
    return int(depths(circuit).max(initial=-1)) + 1


# All passes


@each_pass
@given(circuit=circuits(max_inputs=6, max_gates=40))
@settings(max_examples=100, deadline=None)
def test_the_function_stays_and_no_gate_is_added(apply: Pass, circuit: Circuit) -> None:
    smaller, rows = apply(circuit), every_row(circuit.inputs)
    assert_equal_bits(simulate(smaller, rows), simulate(circuit, rows))
    assert smaller.gates <= circuit.gates
    assert (smaller.inputs, smaller.k) == (circuit.inputs, circuit.k)


@pytest.mark.parametrize("k", range(1, 7))
@each_pass
def test_large_random_circuits_stay_the_same(apply: Pass, k: int) -> None:
    rng = np.random.default_rng(k)
    circuit = random_circuit(rng, 30, 1_000, k, outputs=50, trivial=0.3)
    bits = rng.random((65_536, 30)) < 0.5
    assert_equal_bits(simulate(apply(circuit), bits), simulate(circuit, bits))


@pytest.mark.parametrize("apply", [p for p in PASSES if p is not share_equal_gates], ids=lambda apply: apply.__name__)
@given(circuit=circuits(max_inputs=6, max_gates=40))
@settings(max_examples=60, deadline=None)
def test_a_second_time_changes_nothing(apply: Pass, circuit: Circuit) -> None:
    once = apply(circuit)
    assert apply(once) == once


@given(circuits(max_inputs=6, max_gates=40))
@settings(max_examples=100, deadline=None)
def test_sharing_a_second_time_changes_nothing_where_nothing_can_be_folded(circuit: Circuit) -> None:
    once = share_equal_gates(absorb_inverters(fold_constants(circuit)))
    if once == absorb_inverters(fold_constants(once)):
        assert share_equal_gates(once) == once


@each_pass
def test_a_fault_in_what_a_pass_returns_is_noticed(apply: Pass) -> None:
    circuit = random_circuit(np.random.default_rng(1), 8, 60)
    smaller, rows = apply(circuit), every_row(8)
    shown = int(smaller.outputs.max()) - smaller.first_gate
    table = smaller.table.copy()
    table[shown] = gates.negate(int(table[shown]), 2)
    faulty = Circuit(8, table, smaller.fanin, smaller.outputs)
    with pytest.raises(AssertionError, match="bits differ"):
        assert_equal_bits(simulate(faulty, rows), simulate(circuit, rows))


@each_pass
def test_circuits_without_gates_inputs_or_outputs_are_left_as_they_are(apply: Pass) -> None:
    for inputs, outputs in ((0, []), (0, [1, 0]), (3, [4, 2, 2, 1])):
        empty = Circuit(inputs, [], np.zeros((0, 2)), outputs)
        assert apply(empty) == empty


@each_pass
def test_a_million_gates_take_seconds(apply: Pass) -> None:
    rng = np.random.default_rng(2)
    size, first, fanin = 200_000, 2, []
    for below in (10_000, *[size] * 4):
        fanin.append(rng.integers(first, first + below, (size, 2)))
        first += below
    circuit = Circuit(10_000, rng.integers(0, 16, 5 * size), np.concatenate(fanin), np.arange(first, first + size))
    begin = time.perf_counter()
    apply(circuit)
    assert time.perf_counter() - begin < 15


@functools.cache
def deep_chain() -> tuple[Circuit, np.ndarray, np.ndarray]:
    """A circuit of 20,000 levels, bits for it, and its outputs."""
    rng, size = np.random.default_rng(3), 20_000
    table = rng.choice([gates.AND, gates.OR, gates.XOR, gates.NAND], size)
    circuit = Circuit(38, table, np.stack([39 + np.arange(size), 2 + np.arange(size) % 30], 1), [39 + size])
    bits = rng.random((100, 38)) < 0.5
    return circuit, bits, simulate(circuit, bits)


@pytest.mark.parametrize("apply", [fold_constants, share_equal_gates, merge_two_levels])
def test_a_chain_of_twenty_thousand_levels_takes_seconds(apply: Pass) -> None:
    circuit, bits, expected = deep_chain()
    begin = time.perf_counter()
    smaller = apply(circuit)
    assert time.perf_counter() - begin < 20
    assert_equal_bits(simulate(smaller, bits), expected)


def test_gates_no_output_needs_are_dropped_and_all_others_stay_as_they_are() -> None:
    before = "circuit inputs=2 k=2\n4 = a 3 2\n5 = or 2 3\n6 = ~a 4 4\n7 = and 5 1\noutputs 6 0 6\n"
    after = "circuit inputs=2 k=2\n4 = a 3 2\n5 = ~a 4 4\noutputs 5 0 5\n"
    assert_becomes(drop_unreachable, before, after)


# Normal form


@given(circuits(max_inputs=6, max_gates=24))
@settings(max_examples=200, deadline=None)
def test_gates_in_normal_form_compute_the_same_and_read_what_matters_once_in_order(circuit: Circuit) -> None:
    table, fanin = normal_form(circuit.table, circuit.fanin)
    everything = np.arange(circuit.nets)
    rows, k = every_row(circuit.inputs), circuit.k
    normal = Circuit(circuit.inputs, table, fanin, everything)
    before = Circuit(circuit.inputs, circuit.table, circuit.fanin, everything)
    assert_equal_bits(simulate(normal, rows), simulate(before, rows))
    for gate, nets in zip(table.tolist(), fanin.tolist(), strict=True):
        matters = [gates.restrict(gate, j, 0, k) != gates.restrict(gate, j, 1, k) for j in range(k)]
        live = sum(matters)
        assert matters == [j < live for j in range(k)], "inputs that matter come first"
        assert all(net > 1 for net in nets[:live])
        assert sorted(set(nets[:live])) == nets[:live]
        assert nets[live:] == ([nets[0]] if live == 1 else [0]) * (k - live)


# Folding


def test_inputs_that_are_constant_restrict_the_gate_and_constants_travel_on() -> None:
    before = """\
circuit inputs=2 k=2
4 = and 2 1
5 = or 4 1
6 = xor 5 3
7 = nor 5 6
8 = xnor 7 0
9 = or 4 3
outputs 4 5 6 7 8 9
"""
    after = """\
circuit inputs=2 k=2
4 = ~a 3 3
5 = or 2 3
outputs 2 1 4 0 1 5
"""
    assert_becomes(fold_constants, before, after)


def test_constant_gates_and_identities_become_the_nets_they_are() -> None:
    before = "circuit inputs=2 k=2\n4 = 1 2 3\n5 = b 4 3\n6 = and 4 5\n7 = 0 5 6\noutputs 4 5 6 7\n"
    assert_becomes(fold_constants, before, "circuit inputs=2 k=2\noutputs 1 3 3 0\n")


def test_a_gate_that_reads_one_net_twice_is_reduced() -> None:
    before = "circuit inputs=1 k=2\n3 = and 2 2\n4 = xor 2 3\n5 = nand 3 2\n6 = xnor 4 0\noutputs 3 4 5 6\n"
    assert_becomes(fold_constants, before, "circuit inputs=1 k=2\n3 = ~a 2 2\noutputs 2 0 3 1\n")


def test_a_gate_that_reads_a_net_and_its_inverter_is_reduced() -> None:
    before = "circuit inputs=2 k=2\n4 = ~b 3 2\n5 = or 2 4\n6 = and 4 2\n7 = a&~b 2 4\n8 = and 4 3\noutputs 5 6 7 8\n"
    after = "circuit inputs=2 k=2\n4 = ~a 2 2\n5 = and 3 4\noutputs 1 0 2 5\n"
    assert_becomes(fold_constants, before, after)


def test_two_inverters_in_a_row_are_a_wire() -> None:
    before = "circuit inputs=1 k=2\n3 = ~a 2 2\n4 = ~b 2 3\n5 = ~a 4 4\n6 = xor 4 3\noutputs 4 5 6\n"
    assert_becomes(fold_constants, before, "circuit inputs=1 k=2\n3 = ~a 2 2\noutputs 2 3 1\n")


def test_a_wide_gate_reads_only_what_matters_to_it() -> None:
    before = "circuit inputs=3 k=3\n5 = 0x80 4 1 2\n6 = 0x14 4 3 4\n7 = 0x3c 2 3 4\noutputs 5 6 7\n"
    after = "circuit inputs=3 k=3\n5 = 0x30 3 4 0\n6 = 0x3c 2 3 0\noutputs 0 5 6\n"
    assert_becomes(fold_constants, before, after)


# Absorbing inverters


def test_inverters_move_into_the_gates_that_read_them_and_wires_are_looked_through() -> None:
    before = "circuit inputs=2 k=2\n4 = ~a 2 2\n5 = b 0 4\n6 = and 5 3\n7 = xor 6 4\noutputs 7\n"
    after = "circuit inputs=2 k=2\n4 = ~a&b 2 3\n5 = xnor 4 2\noutputs 5\n"
    assert_becomes(absorb_inverters, before, after)


def test_a_gate_shown_only_inverted_is_negated_together_with_its_readers() -> None:
    before = "circuit inputs=2 k=2\n4 = and 2 3\n5 = ~a 4 4\n6 = or 4 2\noutputs 5 6 5\n"
    after = "circuit inputs=2 k=2\n4 = nand 2 3\n5 = ~a|b 4 2\noutputs 4 5 4\n"
    assert_becomes(absorb_inverters, before, after)


def test_a_gate_shown_both_ways_and_an_inverted_input_keep_one_inverter_each() -> None:
    before = """\
circuit inputs=2 k=2
4 = ~a 2 2
5 = and 2 3
6 = ~a 5 5
7 = ~b 3 2
8 = ~b 3 5
outputs 5 6 4 7 8
"""
    after = "circuit inputs=2 k=2\n4 = and 2 3\n5 = ~a 2 2\n6 = ~a 4 4\noutputs 4 6 5 5 6\n"
    assert_becomes(absorb_inverters, before, after)


# Sharing


def test_equal_gates_become_one_whatever_the_order_of_their_inputs() -> None:
    before = "circuit inputs=2 k=2\n4 = a&~b 2 3\n5 = ~a&b 3 2\n6 = or 4 2\n7 = or 2 5\n8 = xor 6 3\noutputs 7 8 5\n"
    after = "circuit inputs=2 k=2\n4 = a&~b 2 3\n5 = or 2 4\n6 = xor 3 5\noutputs 5 6 4\n"
    assert_becomes(share_equal_gates, before, after)


def test_inputs_are_put_in_order_again_after_they_were_shared() -> None:
    before = "circuit inputs=3 k=2\n5 = and 2 3\n6 = xor 3 4\n7 = and 3 2\n8 = or 5 6\n9 = or 6 7\noutputs 8 9\n"
    after = "circuit inputs=3 k=2\n5 = and 2 3\n6 = xor 3 4\n7 = or 5 6\noutputs 7 7\n"
    assert_becomes(share_equal_gates, before, after)


def test_a_gate_and_its_inverse_become_one_and_the_readers_take_the_negation() -> None:
    before = "circuit inputs=3 k=2\n5 = and 2 3\n6 = nand 3 2\n7 = or 5 4\n8 = and 6 4\noutputs 7 8\n"
    after = "circuit inputs=3 k=2\n5 = and 2 3\n6 = or 4 5\n7 = a&~b 4 5\noutputs 6 7\n"
    assert_becomes(share_equal_gates, before, after)


def test_negations_travel_so_that_gates_of_inverted_gates_are_shared_too() -> None:
    before = """\
circuit inputs=3 k=2
5 = and 2 3
6 = nand 2 3
7 = xor 5 4
8 = xor 4 6
9 = xnor 7 2
10 = xor 8 2
outputs 9 10
"""
    after = "circuit inputs=3 k=2\n5 = and 2 3\n6 = xor 4 5\n7 = xnor 2 6\noutputs 7 7\n"
    assert_becomes(share_equal_gates, before, after)


def test_inverse_outputs_share_a_gate_and_an_inverter() -> None:
    before = "circuit inputs=2 k=2\n4 = or 2 3\n5 = nor 2 3\noutputs 5 4\n"
    assert_becomes(share_equal_gates, before, "circuit inputs=2 k=2\n4 = or 2 3\n5 = ~a 4 4\noutputs 5 4\n")


def test_wide_gates_that_ignore_an_input_are_equal_to_those_that_never_had_it() -> None:
    before = "circuit inputs=4 k=3\n6 = 0x11 5 2 3\n7 = 0x05 3 4 2\n8 = 0x01 2 3 1\noutputs 6 7 8\n"
    assert_becomes(share_equal_gates, before, "circuit inputs=4 k=3\n6 = 0x03 2 3 0\noutputs 6 6 6\n")


# Merging two levels


def test_two_gates_of_the_same_two_nets_merge_into_their_reader() -> None:
    before = "circuit inputs=2 k=2\n4 = or 2 3\n5 = nand 3 2\n6 = and 4 5\noutputs 6\n"
    assert_becomes(merge_two_levels, before, "circuit inputs=2 k=2\n4 = xor 2 3\noutputs 4\n")


def test_a_gate_merges_into_a_reader_that_reads_one_of_its_nets() -> None:
    before = "circuit inputs=2 k=2\n4 = or 2 3\n5 = a&~b 4 3\n6 = or 5 2\n7 = xor 6 4\noutputs 5 6 7 4\n"
    after = "circuit inputs=2 k=2\n4 = or 2 3\n5 = a&~b 2 3\n6 = a 2 2\n7 = ~a&b 2 3\noutputs 5 6 7 4\n"
    assert_becomes(merge_two_levels, before, after)


def test_an_inverter_does_not_become_a_gate_of_two_nets() -> None:
    circuit = "circuit inputs=2 k=2\n4 = and 2 3\n5 = ~a 4 4\noutputs 4 5\n"
    assert_becomes(merge_two_levels, circuit, circuit)


def test_merges_travel_up_a_chain_in_one_application() -> None:
    size = 50
    fanin = np.stack([np.arange(3, 3 + size), np.full(size, 2)], 1)
    chain = Circuit(2, np.full(size, gates.XOR), fanin, [3 + size])
    merged = merge_two_levels(chain)
    assert str(merged) == "circuit inputs=2 k=2\n4 = a 3 3\noutputs 4\n"


def test_wide_gates_take_in_the_gates_they_have_room_for() -> None:
    before = "circuit inputs=4 k=3\n6 = 0x03 2 3 0\n7 = 0x3f 6 4 0\n8 = 0x3c 7 5 0\noutputs 8\n"
    after = "circuit inputs=4 k=3\n6 = 0x57 2 3 4\n7 = 0x3c 5 6 0\noutputs 7\n"
    assert_becomes(merge_two_levels, before, after)


@given(circuits(st.sampled_from([2, 3]), max_inputs=6, max_gates=40))
@settings(max_examples=100, deadline=None)
def test_merging_makes_nothing_deeper(circuit: Circuit) -> None:
    assert depth(merge_two_levels(circuit)) <= depth(circuit)


def test_pruning_first_leaves_nothing_for_absorbing_but_inverted_outputs() -> None:
    circuit = prune(random_circuit(np.random.default_rng(4), 12, 400, outputs=60, trivial=0.5))
    absorbed = absorb_inverters(circuit)
    inverter = circuit.table == gates.NOT_FIRST
    assert 0 < circuit.gates - absorbed.gates <= np.count_nonzero(inverter)
