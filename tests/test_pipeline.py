"""The pipeline: what it applies, when it stops, and the rows it leaves."""

from __future__ import annotations

import numpy as np
import pytest
from circuits import assert_equal_bits, circuits, every_row, random_circuit
from hypothesis import given, settings

from gatewise import gates
from gatewise.circuit import PIPELINE, Circuit, count_bops, fold_constants, merge_two_levels, optimize, parse, simulate
from gatewise.circuit.pipeline import Applied, removed_by_pass
from gatewise.errors import CircuitError, ConfigError


@given(circuits(max_inputs=6, max_gates=40))
@settings(max_examples=150, deadline=None)
def test_the_function_stays_and_no_pass_changes_the_result_again(circuit: Circuit) -> None:
    optimized = optimize(circuit)
    rows = every_row(circuit.inputs)
    assert_equal_bits(simulate(optimized.circuit, rows), simulate(circuit, rows))
    assert optimized.settled
    for apply in PIPELINE:
        assert apply(optimized.circuit) == optimized.circuit, apply.__name__


@given(circuits(max_inputs=6, max_gates=40))
@settings(max_examples=100, deadline=None)
def test_rows_follow_one_another_and_never_add_a_gate(circuit: Circuit) -> None:
    optimized = optimize(circuit)
    counts = [row.gates_before for row in optimized.rows] + [optimized.circuit.gates]
    assert counts[0] == circuit.gates
    assert counts[1:] == [row.gates_after for row in optimized.rows]
    assert counts == sorted(counts, reverse=True)
    names = [apply.__name__ for apply in PIPELINE]
    assert [row.name for row in optimized.rows] == [names[i % len(names)] for i in range(len(optimized.rows))]
    assert [row.round for row in optimized.rows] == [1 + i // len(names) for i in range(len(optimized.rows))]


def test_gates_that_the_papers_count_leaves_in_are_removed() -> None:
    circuit = parse("""\
circuit inputs=3 k=2
5 = and 2 3       # shared with 6
6 = nand 3 2
7 = or 5 6        # so 1
8 = and 7 4       # so net 4
9 = xor 8 5
10 = xor 9 4      # so net 5
11 = ~a 10 10
outputs 9 11
""")
    assert count_bops(circuit) == 6
    assert str(optimize(circuit).circuit) == "circuit inputs=3 k=2\n5 = nand 2 3\n6 = xnor 4 5\noutputs 6 5\n"


def test_a_large_circuit_keeps_its_function() -> None:
    rng = np.random.default_rng(1)
    circuit = random_circuit(rng, 40, 20_000, outputs=400, trivial=0.1)
    smaller = optimize(circuit).circuit
    assert smaller.gates < count_bops(circuit)
    bits = rng.random((65_536, 40)) < 0.5
    assert_equal_bits(simulate(smaller, bits), simulate(circuit, bits))


def test_the_check_sees_each_change_and_its_answer_is_kept() -> None:
    circuit = random_circuit(np.random.default_rng(2), 8, 200, outputs=20)
    seen: list[tuple[Circuit, Circuit]] = []

    def check(before: Circuit, after: Circuit) -> int:
        seen.append((before, after))
        return len(seen)

    optimized = optimize(circuit, check=check)
    assert seen[0][0] == circuit
    assert seen[-1][1] == optimized.circuit
    assert all(before != after for before, after in seen)
    answers = [row.verdict for row in optimized.rows if row.verdict != "unchanged"]
    assert answers == [str(1 + i) for i in range(len(seen))]
    assert {row.verdict for row in optimize(circuit).rows} == {""}


def test_a_pass_that_breaks_the_circuit_is_caught_by_the_check() -> None:
    circuit = random_circuit(np.random.default_rng(3), 8, 200, outputs=20)

    def negate_last_gate(circuit: Circuit) -> Circuit:
        table = circuit.table.copy()
        table[circuit.outputs.max() - circuit.first_gate] ^= np.uint64(gates.full(2))
        return Circuit(circuit.inputs, table, circuit.fanin, circuit.outputs)

    def check(before: Circuit, after: Circuit) -> str:
        if not np.array_equal(simulate(before, every_row(8)), simulate(after, every_row(8))):
            raise CircuitError("they differ")
        return "equal"

    assert all(row.verdict in ("equal", "unchanged") for row in optimize(circuit, check=check).rows)
    with pytest.raises(CircuitError, match="they differ"):
        optimize(circuit, passes=(*PIPELINE, negate_last_gate), check=check)


def test_passes_that_undo_each_other_stop_after_the_rounds_they_were_given() -> None:
    circuit = Circuit(2, [gates.AND], [[2, 3]], [4])

    def swap(circuit: Circuit) -> Circuit:
        return Circuit(circuit.inputs, circuit.table, circuit.fanin[:, ::-1], circuit.outputs)

    optimized = optimize(circuit, passes=(swap,), max_rounds=7)
    assert not optimized.settled
    assert len(optimized.rows) == 7


def test_a_circuit_that_cannot_change_is_looked_at_once_by_each_pass() -> None:
    circuit = Circuit(2, [gates.AND], [[2, 3]], [4])
    optimized = optimize(circuit)
    assert optimized.circuit == circuit
    assert len(optimized.rows) == len(PIPELINE)


def test_other_passes_may_be_named() -> None:
    circuit = parse("circuit inputs=2 k=2\n4 = or 2 3\n5 = nand 3 2\n6 = and 4 5\n7 = and 6 1\noutputs 7\n")
    assert optimize(circuit, passes=(fold_constants,)).circuit.gates == 3
    assert optimize(circuit, passes=(fold_constants, merge_two_levels)).circuit.gates == 1


@pytest.mark.parametrize("arguments", [{"passes": ()}, {"max_rounds": 0}])
def test_no_passes_or_no_rounds_are_refused(arguments: dict) -> None:
    with pytest.raises(ConfigError, match="expected at least 1 of each"):
        optimize(Circuit(0, [], np.zeros((0, 2)), []), **arguments)


def test_rows_are_summed_up_by_pass() -> None:
    rows = [
        Applied(1, "prune", 10, 8, 0.5, "equal"),
        Applied(1, "fold_constants", 8, 8, 0.25, "unchanged"),
        Applied(2, "prune", 8, 7, 0.5, "equal"),
        Applied(2, "fold_constants", 7, 3, 0.25, "equal"),
    ]
    prune, fold = removed_by_pass(rows)
    assert (prune.name, prune.times, prune.gates, prune.seconds, prune.verdicts) == ("prune", 2, 3, 1.0, ("equal",))
    assert (fold.name, fold.times, fold.gates, fold.seconds) == ("fold_constants", 2, 4, 0.5)
    assert fold.verdicts == ("unchanged", "equal")
