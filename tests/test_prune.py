"""Pruning and the paper's count of Boolean operations, against Algorithm 3 followed word for word."""

from __future__ import annotations

import time
from collections import deque

import numpy as np
import pytest
from circuits import assert_equal_bits, circuits, every_row, random_circuit
from hypothesis import given, settings
from hypothesis import strategies as st

from gatewise import gates
from gatewise.circuit import Circuit, count_bops, parse, prune, simulate

TWO_INPUTS = circuits(st.just(2), max_inputs=5, max_gates=40)
CONSTANTS, NEGATIONS = (gates.CONST0, gates.CONST1), (gates.NOT_FIRST, gates.NOT_SECOND)


def bops_by_algorithm_3(circuit: Circuit) -> int:
    """The paper's procedure, one neuron at a time; inputs and constants are no operations."""
    first = circuit.first_gate
    queue = deque(dict.fromkeys(circuit.outputs.tolist()))
    pruned, bops = {*queue, 0, 1}, 0
    while queue:
        current = queue.popleft()
        if current < first:
            continue
        table, (left, right) = int(circuit.table[current - first]), circuit.fanin[current - first].tolist()
        if table in CONSTANTS:
            continue
        if table in (gates.FIRST, gates.NOT_FIRST):
            needed = [left]
        elif table in (gates.SECOND, gates.NOT_SECOND):
            needed = [right]
        else:
            bops += 1
            needed = [left, right]
        for net in needed:
            if net not in pruned:
                pruned.add(net)
                queue.append(net)
    return bops


def chain(table: int, size: int) -> Circuit:
    """Gates of one table, each reading the one before twice."""
    fanin = np.repeat(np.arange(2, 2 + size)[:, None], 2, axis=1)
    return Circuit(1, np.full(size, table), fanin, [1 + size, 2 + size])


def assert_prunes_to(before: str, after: str) -> None:
    assert str(prune(parse(before))) == after


@given(TWO_INPUTS)
@settings(max_examples=300, deadline=None)
def test_pruning_counts_what_algorithm_3_counts(circuit: Circuit) -> None:
    assert count_bops(circuit) == bops_by_algorithm_3(circuit)


@given(circuits(max_inputs=6, max_gates=40))
@settings(max_examples=300, deadline=None)
def test_pruning_leaves_the_function_and_the_count_as_they_are(circuit: Circuit) -> None:
    pruned, rows = prune(circuit), every_row(circuit.inputs)
    assert_equal_bits(simulate(pruned, rows), simulate(circuit, rows))
    assert count_bops(pruned) == count_bops(circuit)
    assert prune(pruned) == pruned


@given(circuits(max_inputs=6, max_gates=40))
@settings(max_examples=200, deadline=None)
def test_only_gates_that_count_and_shared_inverters_at_outputs_are_left(circuit: Circuit) -> None:
    pruned = prune(circuit)
    bops, k = count_bops(circuit), circuit.k
    inverters = pruned.fanin[bops:]
    assert pruned.gates == bops + len(inverters)
    assert (pruned.table[bops:] == gates.negate(gates.ones(0, k), k)).all()
    assert (inverters == inverters[:, :1]).all()
    assert len(np.unique(inverters[:, 0])) == len(inverters)
    assert set(range(pruned.first_gate + bops, pruned.nets)) <= set(pruned.outputs.tolist())
    assert (pruned.fanin < pruned.first_gate + bops).all(), "no gate reads an inverter"


@pytest.mark.parametrize("trivial", [0.0, 0.3, 0.8, 1.0])
def test_larger_circuits_are_counted_and_computed_alike(trivial: float) -> None:
    rng = np.random.default_rng(7)
    circuit = random_circuit(rng, 30, 5000, outputs=200, trivial=trivial)
    assert count_bops(circuit) == bops_by_algorithm_3(circuit)
    bits = rng.random((65_536, 30)) < 0.5
    assert_equal_bits(simulate(prune(circuit), bits), simulate(circuit, bits))


def test_a_fault_in_a_pruned_circuit_is_noticed() -> None:
    circuit = Circuit(2, [gates.NOT_FIRST, gates.AND], [[2, 3], [4, 3]], [5])
    pruned = prune(circuit)
    careless = Circuit(2, [gates.AND], pruned.fanin, pruned.outputs)  # the negation forgotten
    with pytest.raises(AssertionError, match="bits differ"):
        assert_equal_bits(simulate(careless, every_row(2)), simulate(circuit, every_row(2)))


def test_identities_are_wired_through_and_negations_move_into_their_readers() -> None:
    before = """\
circuit inputs=2 k=2
4 = a 2 0
5 = ~b 1 3
6 = and 4 5
7 = xor 5 6
outputs 6 7
"""
    after = """\
circuit inputs=2 k=2
4 = a&~b 2 3
5 = xnor 3 4
outputs 4 5
"""
    assert_prunes_to(before, after)


def test_constant_gates_become_the_constant_nets_and_nothing_is_folded() -> None:
    before = """\
circuit inputs=1 k=2
3 = 1 2 2
4 = and 2 3
5 = 0 4 4
6 = or 5 4
7 = and 6 6
outputs 7 3
"""
    after = """\
circuit inputs=1 k=2
3 = and 2 1
4 = or 0 3
5 = and 4 4
outputs 5 1
"""
    assert_prunes_to(before, after)


def test_what_no_output_needs_is_dropped_and_output_order_stays() -> None:
    before = """\
circuit inputs=2 k=2
4 = and 2 3
5 = or 2 3
6 = xor 2 4
7 = nor 2 3
outputs 7 2 5 0 7
"""
    after = """\
circuit inputs=2 k=2
4 = or 2 3
5 = nor 2 3
outputs 5 2 4 0 5
"""
    assert_prunes_to(before, after)


def test_inverted_outputs_share_one_uncounted_inverter_a_net() -> None:
    before = """\
circuit inputs=2 k=2
4 = and 2 3
5 = ~a 4 2
6 = ~b 3 4
7 = ~a 2 2
8 = ~a 7 7
outputs 5 7 6 4 8
"""
    after = """\
circuit inputs=2 k=2
4 = and 2 3
5 = ~a 2 2
6 = ~a 4 4
outputs 6 5 6 4 2
"""
    assert_prunes_to(before, after)
    assert count_bops(parse(before)) == count_bops(parse(after)) == 1


def test_the_negation_of_a_constant_is_the_other_constant() -> None:
    before = """\
circuit inputs=1 k=2
3 = 0 2 2
4 = ~a 3 2
5 = ~b 2 1
6 = and 4 2
7 = and 5 2
outputs 4 5 6 7
"""
    after = """\
circuit inputs=1 k=2
3 = and 1 2
4 = and 0 2
outputs 1 0 3 4
"""
    assert_prunes_to(before, after)


def test_whether_a_gate_is_a_wire_its_table_alone_decides() -> None:
    assert count_bops(parse("circuit inputs=1 k=2\n3 = xor 2 0\n4 = or 3 3\n5 = and 4 0\noutputs 5\n")) == 3


def test_gates_of_three_inputs_are_pruned_by_the_same_rules() -> None:
    before = """\
circuit inputs=3 k=3
5 = 0xcc 2 3 4  # not net 3
6 = 0x0f 2 3 4  # net 2
7 = 0x01 5 6 4  # and
outputs 7
"""
    assert_prunes_to(before, "circuit inputs=3 k=3\n5 = 0x10 3 2 4\noutputs 5\n")


@pytest.mark.parametrize(
    ("table", "outputs", "left"), [(gates.FIRST, [2, 2], 0), (gates.NOT_FIRST, [3, 2], 1), (gates.SECOND, [2, 2], 0)]
)
def test_a_chain_of_a_million_wires_takes_seconds(table: int, outputs: list[int], left: int) -> None:
    circuit = chain(table, 1_000_000)
    begin = time.perf_counter()
    pruned = prune(circuit)
    assert time.perf_counter() - begin < 10
    assert (pruned.gates, pruned.outputs.tolist(), count_bops(circuit)) == (left, outputs, 0)


def test_a_long_chain_of_gates_is_kept() -> None:
    circuit = chain(gates.AND, 20_000)
    assert prune(circuit) == circuit
    assert count_bops(circuit) == 20_000
