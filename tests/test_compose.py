"""Circuits put together and taken apart compute what their parts do."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pytest
from circuits import assert_equal_bits, circuits, evaluate_plainly, every_row, random_circuit
from hypothesis import given, settings
from hypothesis import strategies as st

from gatewise.circuit import Circuit, beside, cascade, cone, drop_unused_inputs, parse, simulate, widen
from gatewise.errors import CircuitError

SUM = parse("circuit inputs=2 k=2\n4 = xor 2 3\n5 = and 2 3\noutputs 4 5\n")
PICK = parse("circuit inputs=2 k=3\n4 = 0x1b 2 3 1\noutputs 4 2 0 1\n")


def small_pair(data: st.DataObject, inputs_of_second: Any) -> tuple[Circuit, Circuit]:
    """A circuit and one behind or beside it, of any two widths."""
    first = data.draw(circuits())
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32 - 1)))
    shape = data.draw(st.tuples(st.integers(0, 12), st.integers(1, 6), st.integers(0, 5)))
    return first, random_circuit(rng, inputs_of_second(first), *shape)


@given(st.data())
@settings(max_examples=200, deadline=None)
def test_a_cascade_computes_the_second_of_the_first(data: st.DataObject) -> None:
    first, second = small_pair(data, lambda circuit: len(circuit.outputs))
    rows = every_row(first.inputs)
    both = cascade(first, second)
    assert_equal_bits(evaluate_plainly(both, rows), evaluate_plainly(second, evaluate_plainly(first, rows)))
    assert both.gates == first.gates + second.gates


@given(st.data())
@settings(max_examples=200, deadline=None)
def test_circuits_beside_each_other_show_the_outputs_of_both(data: st.DataObject) -> None:
    first, second = small_pair(data, lambda circuit: circuit.inputs)
    rows = every_row(first.inputs)
    expected = np.concatenate([evaluate_plainly(first, rows), evaluate_plainly(second, rows)], axis=1)
    assert_equal_bits(evaluate_plainly(beside(first, second), rows), expected)


@given(circuits(), st.integers(0, 5))
@settings(max_examples=200, deadline=None)
def test_a_widened_circuit_computes_the_same_whatever_the_new_inputs_read(circuit: Circuit, more: int) -> None:
    k = min(6, circuit.k + more)
    wide = widen(circuit, k)
    assert wide.k == k
    assert (wide.fanin[:, circuit.k :] == 0).all()
    rows = every_row(circuit.inputs)
    expected = evaluate_plainly(circuit, rows)
    assert_equal_bits(evaluate_plainly(wide, rows), expected)
    ones = np.where(np.arange(k) < circuit.k, wide.fanin, 1)
    assert_equal_bits(evaluate_plainly(Circuit(wide.inputs, wide.table, ones, wide.outputs), rows), expected)


@given(circuits(), st.data())
@settings(max_examples=200, deadline=None)
def test_a_cone_computes_the_chosen_outputs_with_the_gates_they_need(circuit: Circuit, data: st.DataObject) -> None:
    outputs = len(circuit.outputs)
    chosen = data.draw(st.lists(st.integers(0, outputs - 1), max_size=5)) if outputs else []
    part = cone(circuit, chosen)
    rows = every_row(circuit.inputs)
    assert_equal_bits(evaluate_plainly(part, rows), evaluate_plainly(circuit, rows)[:, chosen])
    assert part.inputs == circuit.inputs
    read = {*part.fanin.ravel().tolist(), *part.outputs.tolist()}
    assert read >= set(range(part.first_gate, part.nets)), "every gate is read, and the last by an output"


@given(circuits())
@settings(max_examples=200, deadline=None)
def test_without_its_unused_inputs_a_circuit_computes_the_same(circuit: Circuit) -> None:
    small, places = drop_unused_inputs(circuit)
    rows = every_row(circuit.inputs)
    assert_equal_bits(evaluate_plainly(small, rows[:, places]), evaluate_plainly(circuit, rows))
    assert set(range(2, small.first_gate)) <= {*small.fanin.ravel().tolist(), *small.outputs.tolist()}


def test_compositions_read_as_they_should() -> None:
    behind = "circuit inputs=2 k=3\n4 = 0x3c 2 3 0\n5 = 0x03 2 3 0\n6 = 0x1b 4 5 1\noutputs 6 4 0 1\n"
    assert str(cascade(SUM, PICK)) == behind
    apart = "circuit inputs=2 k=3\n4 = 0x3c 2 3 0\n5 = 0x03 2 3 0\n6 = 0x1b 2 3 1\noutputs 4 5 6 2 0 1\n"
    assert str(beside(SUM, PICK)) == apart
    assert str(cone(SUM, [1, 1])) == "circuit inputs=2 k=2\n4 = and 2 3\noutputs 4 4\n"
    small, places = drop_unused_inputs(parse("circuit inputs=4 k=2\n6 = or 3 1\n7 = xor 6 5\noutputs 7 0\n"))
    assert str(small) == "circuit inputs=2 k=2\n4 = or 2 1\n5 = xor 4 3\noutputs 5 0\n"
    assert places.tolist() == [1, 3]


def test_inputs_that_are_not_there_take_no_memory() -> None:
    huge = Circuit(2**31 - 4, [6], [[2, 2**31 - 3]], [2**31 - 2])
    small, places = drop_unused_inputs(huge)
    assert str(small) == "circuit inputs=2 k=2\n4 = xor 2 3\noutputs 4\n"
    assert places.tolist() == [0, 2**31 - 5]


@pytest.mark.parametrize(
    ("attempt", "message"),
    [
        (lambda: cascade(SUM, parse("circuit inputs=3 k=1\noutputs 2\n")), "has 2 outputs: the second reads 3"),
        (
            lambda: beside(SUM, parse("circuit inputs=3 k=1\noutputs 2\n")),
            "has 2 inputs and the second 3: expected one",
        ),
        (lambda: widen(PICK, 2), "k is 2: expected 3, which the circuit has, to 6"),
        (lambda: widen(PICK, 7), "k is 7"),
        (lambda: cone(SUM, [0, 2]), "no output 2: the circuit has 2, counted from 0"),
        (lambda: cone(SUM, [-1]), "no output -1"),
        (lambda: cone(SUM, [0.0]), "chosen by whole numbers"),  # type: ignore[list-item]
    ],
)
def test_parts_that_do_not_fit_are_refused(attempt: Any, message: str) -> None:
    with pytest.raises(CircuitError, match=message):
        attempt()


def test_a_fault_in_a_cone_would_be_noticed() -> None:
    part = cone(SUM, [0])
    careless = Circuit(2, part.table, part.fanin[:, ::-1] * 0 + 2, part.outputs)
    with pytest.raises(AssertionError, match="bits differ"):
        assert_equal_bits(evaluate_plainly(careless, every_row(2)), evaluate_plainly(SUM, every_row(2))[:, :1])


def test_circuits_of_many_inputs_are_composed_alike() -> None:
    rng = np.random.default_rng(3)
    first, second = (random_circuit(rng, 40, 1500, k, outputs=40) for k in (2, 3))
    bits = rng.random((65_536, 40)) < 0.5
    shown = [simulate(circuit, bits) for circuit in (first, second)]
    assert_equal_bits(simulate(beside(first, second), bits), np.concatenate(shown, axis=1))
    assert_equal_bits(simulate(cascade(first, second), bits), simulate(second, shown[0]))
    assert_equal_bits(simulate(cone(second, range(5, 9)), bits), shown[1][:, 5:9])


def test_circuits_of_half_a_million_gates_are_composed_in_seconds() -> None:
    circuit = random_circuit(np.random.default_rng(3), 64, 500_000, outputs=64)
    begin = time.perf_counter()
    both = cascade(beside(circuit, circuit), widen(Circuit(128, [], np.zeros((0, 2)), range(2, 130)), 3))
    part, _ = drop_unused_inputs(cone(both, range(64, 128)))
    assert time.perf_counter() - begin < 10
    assert both.gates == 1_000_000
    assert widen(drop_unused_inputs(cone(circuit, range(64)))[0], 3) == part
