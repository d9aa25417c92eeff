"""Equivalence: verdicts against the truth on all inputs, each tool alone, and circuits too large for that."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from itertools import islice, pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from circuits import assert_equal_bits, circuits, every_row, random_circuit
from hypothesis import given, settings
from hypothesis import strategies as st
from rewrites import collapsed, flipped, rewritten

from gatewise import gates
from gatewise.circuit import (
    Circuit,
    Verdict,
    berkeley_abc,
    decide,
    equivalence,
    find_difference,
    prove,
    prune,
    simulate,
)
from gatewise.circuit.decide import Decider, load_solver
from gatewise.circuit.graph import Graph, as_circuit
from gatewise.circuit.simulate import unpack
from gatewise.circuit.vectors import CORNERS, blocks, every_vector
from gatewise.errors import CircuitError, ConfigError

needs_solver = pytest.mark.skipif(load_solver() is None, reason="python-sat is not installed")
needs_abc = pytest.mark.skipif(berkeley_abc.find() is None, reason="no abc on the path")

SMALL = circuits(max_inputs=6, max_gates=30)
TWO_INPUTS = circuits(st.just(2), max_inputs=7, max_gates=40)
SEEDS = st.integers(0, 2**32 - 1)


def truth(first: Circuit, second: Circuit) -> bool:
    rows = every_row(first.inputs)
    return bool((simulate(first, rows) == simulate(second, rows)).all())


def assert_sound(verdict: Verdict, first: Circuit, second: Circuit) -> None:
    """A verdict that decides is the truth, and a witness is one."""
    assert (verdict.witness is None) == (verdict.output is None) == (verdict.outcome != "refuted")
    if verdict.witness is not None:
        mine, theirs = (simulate(circuit, verdict.witness[None])[0] for circuit in (first, second))
        assert int(np.argmax(mine != theirs)) == verdict.output
        assert mine[verdict.output] != theirs[verdict.output]
    assert bool(verdict) == (verdict.outcome == "proved")


def assert_decides_rightly(first: Circuit, second: Circuit, **options: Any) -> None:
    verdict = prove(first, second, **options)
    assert_sound(verdict, first, second)
    assert verdict.outcome == ("proved" if truth(first, second) else "refuted"), str(verdict)


def multiplier(width: int, *, by_columns: bool) -> Circuit:
    """The product of two numbers, its partial products added row by row or column by column."""
    table: list[int] = []
    fanin: list[tuple[int, int]] = []

    def gate(function: int, a: int, b: int) -> int:
        table.append(function)
        fanin.append((a, b))
        return 1 + 2 * width + len(table)

    def add(a: int, b: int, c: int) -> tuple[int, int]:
        half = gate(gates.XOR, a, b)
        return gate(gates.XOR, half, c), gate(gates.OR, gate(gates.AND, a, b), gate(gates.AND, half, c))

    products = [[gate(gates.AND, 2 + i, 2 + width + j) for j in range(width)] for i in range(width)]
    outputs = [0] * (2 * width)
    if by_columns:
        columns: list[list[int]] = [[] for _ in range(2 * width + 1)]
        for i, row in enumerate(products):
            for j, net in enumerate(row):
                columns[i + j].append(net)
        for place in range(2 * width):
            column = columns[place]
            while len(column) > 1:
                total, carry = add(column.pop(0), column.pop(0), column.pop(0) if column else 0)
                column.append(total)
                columns[place + 1].append(carry)
            outputs[place] = column[0] if column else 0
    else:
        for i, row in enumerate(products):
            carry = 0
            for place in range(i, 2 * width):
                other = row[place - i] if place - i < width else 0
                outputs[place], carry = add(outputs[place], other, carry)
    return Circuit(2 * width, table, fanin, outputs)


def conjunction(polarity: np.ndarray, order: np.ndarray) -> Circuit:
    """An AND, taken in this order, of inputs that are each read as they are or inverted."""
    inputs, gate = len(polarity), 2 + len(polarity)
    table = [4 if polarity[i] else 1 for i in order.tolist()]  # ~a & b, or a & b
    fanin = [[2 + i, gate - 1 + place if place else 1] for place, i in enumerate(order.tolist())]
    return Circuit(inputs, table, fanin, [gate - 1 + len(order)])


# The truth


@given(SMALL, SMALL)
@settings(max_examples=60, deadline=None)
def test_any_two_small_circuits_are_judged_rightly(first: Circuit, second: Circuit) -> None:
    if first.inputs != second.inputs or len(first.outputs) != len(second.outputs):
        with pytest.raises(CircuitError, match="only circuits with as many compare"):
            prove(first, second)
    else:
        assert_decides_rightly(first, second)


@pytest.mark.parametrize(
    "tool", ["exhaustive", pytest.param("sat", marks=needs_solver), pytest.param("abc", marks=needs_abc)]
)
def test_each_tool_alone_tells_rewritten_from_flipped(tool: str) -> None:
    for seed in range(60 if tool != "abc" else 8):
        rng = np.random.default_rng(seed)
        circuit = prune(random_circuit(rng, int(rng.integers(1, 8)), int(rng.integers(1, 80)), outputs=6))
        other = flipped(circuit, int(rng.integers(circuit.gates)), 2) if seed % 2 and circuit.gates else circuit
        other = rewritten(other, rng)
        assert_decides_rightly(circuit, other, tools=[tool])
        assert_decides_rightly(other, collapsed(circuit, int(rng.integers(2, 7)), rng), tools=[tool])


@needs_solver
def test_sat_finds_what_simulation_has_not_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(equivalence, "FEW", 1)  # the corners alone
    monkeypatch.setattr(decide, "CUT", 1)
    monkeypatch.setattr(decide, "SMALL", 0)
    outcomes = []
    for seed in range(80):
        rng = np.random.default_rng(seed)
        circuit = prune(random_circuit(rng, 8, 60, outputs=8))
        other = rewritten(flipped(circuit, circuit.gates // 2, 3), rng) if seed % 2 else rewritten(circuit, rng)
        verdict = prove(circuit, other, tools=["sat"])
        assert_sound(verdict, circuit, other)
        assert verdict.outcome == ("proved" if truth(circuit, other) else "refuted")
        outcomes.append((verdict.outcome, verdict.how[-1].split()[0]))
    assert ("refuted", "sweeping") in outcomes


@needs_solver
@pytest.mark.parametrize(("cut", "small"), [(10, 14), (3, 0), (1, 0)])
def test_pairs_of_nets_are_decided_rightly_by_tables_and_by_sat(
    monkeypatch: pytest.MonkeyPatch, cut: int, small: int
) -> None:
    monkeypatch.setattr(decide, "CUT", cut)
    monkeypatch.setattr(decide, "SMALL", small)
    monkeypatch.setattr(decide, "WINDOWS", (3, 10))
    rng = np.random.default_rng(0)
    graph = Graph(6)
    graph.add(random_circuit(rng, 6, 60, outputs=1))
    value = simulate(as_circuit(graph), every_row(6)).T
    decider = Decider(graph, load_solver(), time.monotonic() + 60)
    for a, b in rng.integers(1, len(graph), (300, 2)).tolist():
        for inverted in (0, 1):
            answer = decider.same(2 * a, 2 * b + inverted, 10_000)
            equal = bool((value[a] == value[b] ^ bool(inverted)).all())
            assert answer is not None
            assert (answer is True) == equal
            if answer is not True:
                bits = np.array([[answer.get(node, 0) for node in range(1, 7)]], bool)
                shown = simulate(as_circuit(graph), bits)[0]
                assert shown[a] != shown[b] ^ bool(inverted)
    assert decider.by_sat > 0 or cut == 10


@given(SMALL, SEEDS)
@settings(max_examples=100, deadline=None)
def test_a_graph_shows_what_the_circuit_shows(circuit: Circuit, seed: int) -> None:
    graph = Graph(circuit.inputs)
    outputs = np.array(graph.add(circuit), np.int64)
    rows = every_row(circuit.inputs)
    shown = simulate(as_circuit(graph), rows)[:, outputs >> 1] ^ (outputs & 1 == 1)
    assert_equal_bits(shown, simulate(circuit, rows))


@given(TWO_INPUTS, SEEDS)
@settings(max_examples=60, deadline=None)
def test_the_rewrites_of_these_tests_keep_the_function(circuit: Circuit, seed: int) -> None:
    rng = np.random.default_rng(seed)
    assert truth(circuit, rewritten(circuit, rng))
    assert truth(circuit, collapsed(circuit, 2 + seed % 5, rng))


@needs_solver
def test_a_decider_that_agrees_to_everything_would_be_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(equivalence, "FEW", 1)
    polarity, order = np.arange(8) % 2 == 0, np.arange(8)
    whole, short = conjunction(polarity, order), conjunction(polarity, order[1:])
    assert_decides_rightly(whole, short, tools=["sat"])
    monkeypatch.setattr(Decider, "_by_cut", lambda *_: True)
    with pytest.raises(AssertionError, match="Proved equal"):
        assert_decides_rightly(whole, short, tools=["sat"])


# Structure


@given(TWO_INPUTS)
@settings(max_examples=60, deadline=None)
def test_pruned_circuits_are_the_same_graph(circuit: Circuit) -> None:
    verdict = prove(circuit, prune(circuit), tools=[])
    assert verdict.outcome == "proved"


def test_order_of_inputs_and_inverters_make_no_difference_to_the_graph() -> None:
    first = Circuit(3, [gates.AND, 4], [[2, 3], [5, 4]], [6, 5])  # ~(a & b) & c
    second = Circuit(3, [gates.NAND, gates.AND, gates.NOT_FIRST], [[3, 2], [4, 5], [5, 2]], [6, 7])
    assert prove(first, second, tools=[]).outcome == "proved"


def test_circuits_without_gates_inputs_or_outputs_compare() -> None:
    nothing = np.zeros((0, 2))
    assert prove(Circuit(0, [], nothing, []), Circuit(0, [], nothing, []))
    assert prove(Circuit(2, [], nothing, [0, 1, 3]), Circuit(2, [5], [[2, 3]], [0, 1, 4]))
    for tools in (equivalence.TOOLS, ["random"], ["sat"]):
        verdict = prove(Circuit(0, [], nothing, [0, 1]), Circuit(0, [], nothing, [0, 0]), tools=tools)
        assert (verdict.outcome, verdict.output) == ("refuted", 1)
        assert verdict.witness is not None
        assert verdict.witness.shape == (0,)


def test_a_verdict_is_one_sentence() -> None:
    first, second = Circuit(1, [], np.zeros((0, 2)), [2]), Circuit(1, [12], [[2, 2]], [3])
    texts = [str(prove(first, first)), str(prove(first, second)), str(prove(first, second, tools=[]))]
    for text, start in zip(texts, ("Proved equal in", "Refuted in", "Undecided after"), strict=True):
        assert text.startswith(start)
        assert text.endswith(".")
        assert "\n" not in text


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"tools": ["magic"]}, "tools is .*magic.*: expected some of exhaustive, random, sat, abc"),
        ({"tools": "sat"}, "tools is 'sat'"),
        ({"time_limit": 0}, "time_limit is 0: expected seconds above 0"),
        ({"time_limit": float("nan")}, "time_limit is nan"),
        ({"seed": -1}, "seed is -1"),
    ],
)
def test_what_cannot_be_asked_is_refused(options: dict[str, Any], message: str) -> None:
    circuit = Circuit(1, [], np.zeros((0, 2)), [2])
    with pytest.raises(ConfigError, match=message):
        prove(circuit, circuit, **options)


def test_circuits_of_other_shapes_are_refused() -> None:
    one, two = Circuit(1, [], np.zeros((0, 2)), [2]), Circuit(2, [], np.zeros((0, 2)), [2])
    with pytest.raises(CircuitError, match="first circuit has 1 inputs and the second has 2"):
        prove(one, two)
    with pytest.raises(CircuitError, match="first circuit has 1 outputs and the second has 2"):
        find_difference(one, Circuit(1, [], np.zeros((0, 2)), [2, 2]))


# Vectors


@pytest.mark.parametrize("inputs", [0, 1, 3, 5, 6, 7, 12])
def test_every_vector_is_every_vector(inputs: int) -> None:
    words = np.concatenate(list(every_vector(inputs)), axis=1)
    rows = unpack(words, 64 * words.shape[1])
    assert len(np.unique(rows @ (1 << np.arange(inputs)))) == 2**inputs
    assert len(rows) == max(64, 2**inputs)


def test_the_corners_come_first_and_each_density_after_them() -> None:
    inputs = 100
    taken = [unpack(words, 64 * words.shape[1]) for words in islice(blocks(inputs, np.random.default_rng(0)), 20)]
    rows = np.concatenate(taken)
    ones = rows[:10_000].sum(axis=1)
    for count in (0, 1, inputs - 1, inputs):
        assert len(np.unique(rows[:2048][ones[:2048] == count], axis=0)) == (inputs if 0 < count < inputs else 1)
    for density in (0.03, 0.125, 0.25, 0.5, 0.75, 0.875, 0.97):
        assert any(abs(block.mean() - density) < 0.01 for block in taken), density
    wide = next(blocks(CORNERS + 1, np.random.default_rng(0)))
    assert wide.shape[0] == CORNERS + 1


def test_a_difference_is_found_or_none() -> None:
    rng = np.random.default_rng(3)
    circuit = prune(random_circuit(rng, 40, 3_000, outputs=100))
    assert find_difference(circuit, rewritten(circuit, rng), 1 << 16) is None
    witness = find_difference(circuit, flipped(circuit, circuit.gates - 1, 0), 1 << 16)
    assert witness is not None
    shown = [simulate(c, witness[None]) for c in (circuit, flipped(circuit, circuit.gates - 1, 0))]
    assert (shown[0] != shown[1]).any()


# Large circuits


def layered(rng: np.random.Generator, inputs: int, width: int, depth: int) -> Circuit:
    """Random gates that read the layer below, as a network's do, without those that no output needs."""
    sizes = [inputs, *[width] * depth]
    first = np.cumsum([2, *sizes])
    fanin = [rng.integers(low, high, (width, 2)) for low, high in pairwise(first[:-1])]
    table = rng.integers(0, 16, width * depth, dtype=np.uint64)
    return prune(Circuit(inputs, table, np.concatenate(fanin), np.arange(first[-2], first[-1])))


@needs_solver
@pytest.mark.parametrize("k", [2, 6])
def test_twenty_thousand_gates_are_proved_in_seconds(k: int) -> None:
    rng = np.random.default_rng(1)
    circuit = layered(rng, 784, 7_500, 6)
    assert circuit.gates > 20_000
    other = rewritten(circuit, rng) if k == 2 else collapsed(circuit, k, rng)
    verdict = prove(circuit, other, tools=["random", "sat"])
    assert verdict.outcome == "proved", str(verdict)
    assert verdict.seconds < 30


@needs_solver
def test_a_flipped_gate_of_a_large_circuit_is_refuted_unless_no_output_shows_it() -> None:
    rng = np.random.default_rng(2)
    circuit = layered(rng, 100, 300, 6)
    other = collapsed(rewritten(circuit, rng), 5, rng)
    bits = rng.random((65_536, 100)) < 0.5
    shown = simulate(circuit, bits)
    outcomes = []
    for gate in rng.integers(other.gates, size=12).tolist():
        wrong = flipped(other, gate, int(rng.integers(32)))
        verdict = prove(circuit, wrong)
        assert_sound(verdict, circuit, wrong)
        outcomes.append(verdict.outcome)
        if (simulate(wrong, bits) != shown).any():
            assert verdict.outcome == "refuted"
    assert set(outcomes) == {"proved", "refuted"}


@needs_solver
def test_a_difference_that_random_vectors_do_not_reach_is_found() -> None:
    rng = np.random.default_rng(4)
    polarity, order = rng.random(40) < 0.5, rng.permutation(40)
    whole, turned, short = (conjunction(polarity, nets) for nets in (order, order[::-1], order[1:]))
    assert prove(whole, turned).outcome == "proved"
    assert find_difference(whole, short, 1 << 16) is None
    verdict = prove(whole, short)
    assert_sound(verdict, whole, short)
    assert verdict.outcome == "refuted"


# Limits


@needs_solver
@pytest.mark.parametrize("limit", [0.5, 3.0])
def test_the_time_limit_holds_on_what_is_too_hard(limit: float) -> None:
    first, second = multiplier(12, by_columns=False), multiplier(12, by_columns=True)
    assert find_difference(first, second, 1 << 12) is None
    start = time.monotonic()
    verdict = prove(first, second, time_limit=limit)
    assert time.monotonic() - start < limit + 1.5
    assert verdict.outcome == "undecided"
    assert "sweeping" in str(verdict)
    assert "SAT" in str(verdict)


def test_a_limit_that_is_too_short_to_begin_is_undecided() -> None:
    circuit = random_circuit(np.random.default_rng(0), 20, 2_000)
    verdict = prove(circuit, circuit, time_limit=1e-9)
    assert verdict.outcome == "undecided"
    assert "ran out" in str(verdict)


@needs_solver
def test_small_multipliers_of_two_kinds_are_equal_and_a_flipped_one_is_not() -> None:
    first, second = multiplier(5, by_columns=False), multiplier(5, by_columns=True)
    assert prove(first, second, tools=["sat"]).outcome == "proved"
    assert prove(first, flipped(second, second.gates - 3, 1), tools=["sat"]).outcome == "refuted"


NO_SOLVER = """
import sys
sys.modules["pysat.solvers"] = None
import numpy as np
from test_equivalence import multiplier, layered
from rewrites import rewritten
from gatewise.circuit import prove
rng = np.random.default_rng(0)
small = layered(rng, 50, 200, 4)
print(prove(small, rewritten(small, rng), tools=["random", "sat"]))
print(prove(multiplier(9, by_columns=False), multiplier(9, by_columns=True), tools=["sat"], time_limit=5))
"""


def test_without_python_sat_the_rest_runs_and_the_verdict_says_what_to_install() -> None:
    here = Path(__file__).parent
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(here), str(here.parent / "src")])}
    done = subprocess.run(
        [sys.executable, "-c", NO_SOLVER], env=environment, capture_output=True, text=True, check=True
    )
    easy, hard = done.stdout.splitlines()
    assert easy.startswith("Proved equal")
    assert hard.startswith("Undecided")
    assert "pip install 'gatewise[verify]'" in hard


def test_without_abc_the_verdict_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    first, second = multiplier(9, by_columns=False), multiplier(9, by_columns=True)
    assert "ABC is not there (to install it: apt install berkeley-abc)" in str(prove(first, second, tools=["abc"]))


@needs_abc
def test_abc_is_stopped_at_the_limit() -> None:
    start = time.monotonic()
    verdict = prove(multiplier(14, by_columns=False), multiplier(14, by_columns=True), tools=["abc"], time_limit=2)
    assert time.monotonic() - start < 4
    assert verdict.outcome == "undecided"
    assert "ABC's &cec" in str(verdict)
