"""Rewriting, LUT mapping and expansion: the function stays, and the gates become fewer."""

from __future__ import annotations

import itertools
import shutil
import time
from pathlib import Path

import numpy as np
import pytest
from circuits import assert_equal_bits, circuits, every_row, random_circuit
from hypothesis import given, settings
from hypothesis import strategies as st

from gatewise import gates
from gatewise.circuit import Circuit, expand_luts, map_luts, parse, prune, rewrite, simulate
from gatewise.circuit.cuts import FUNCTIONS, library
from gatewise.circuit.levels import depths
from gatewise.errors import ConfigError

ABC = shutil.which("berkeley-abc") or shutil.which("abc")
INPUTS = [gates.ones(j, 4) for j in range(4)]
USEFUL = np.array([t for t in range(16) if t not in (0, 15, 3, 5, 10, 12)], np.uint64)


def layered(rng: np.random.Generator, inputs: int, layers: int, size: int) -> Circuit:
    """Each gate reads two of the layer before; the last layer is shown."""
    first = 2 + np.cumsum([0, inputs, *[size] * (layers - 1)])
    width = [inputs, *[size] * (layers - 1)]
    fanin = np.concatenate([rng.integers(begin, begin + n, (size, 2)) for begin, n in zip(first, width, strict=False)])
    shown = 2 + inputs + size * (layers - 1) + np.arange(size)
    return Circuit(inputs, rng.choice(USEFUL, layers * size), fanin, shown)


def deep(rng: np.random.Generator, inputs: int, size: int, reach: int) -> Circuit:
    """Each gate reads the one before it and another of the last `reach` nets."""
    own = 2 + inputs + np.arange(size)
    back = rng.integers(1, np.minimum(reach, own - 1))
    return Circuit(inputs, rng.choice(USEFUL, size), np.stack([own - 1, own - back], 1), own[-20:])


def depth(circuit: Circuit) -> int:
    return int(depths(circuit).max(initial=-1)) + 1


def assert_tidy(mapped: Circuit) -> None:
    """An input that does not matter reads net 0 and comes after those that do."""
    for j in range(mapped.k):
        needed = gates.restrict(mapped.table, j, 0, mapped.k) != mapped.table
        assert np.array_equal(needed, mapped.fanin[:, j] > 1)
        assert j == 0 or not (needed & (mapped.fanin[:, j - 1] == 0)).any()


@given(circuits(max_inputs=6, max_gates=40))
@settings(max_examples=150, deadline=None)
def test_any_small_circuit_computes_the_same_after_each_pass(circuit: Circuit) -> None:
    rows = every_row(circuit.inputs)
    expected = simulate(circuit, rows)
    expanded, rewritten = expand_luts(circuit), rewrite(circuit)
    assert_equal_bits(simulate(expanded, rows), expected)
    assert_equal_bits(simulate(rewritten, rows), expected)
    assert rewritten.gates <= expanded.gates
    for k in range(2, 7):
        mapped = map_luts(circuit, k)
        assert_equal_bits(simulate(mapped, rows), expected)
        assert mapped.k == k
        assert mapped.gates <= expanded.gates


@given(circuits(st.just(2), max_inputs=6, max_gates=40))
@settings(max_examples=150, deadline=None)
def test_no_pass_gives_back_more_gates_than_it_was_given(circuit: Circuit) -> None:
    assert expand_luts(circuit).gates <= circuit.gates
    assert rewrite(circuit).gates <= circuit.gates
    assert all(map_luts(circuit, k).gates <= circuit.gates for k in range(2, 7))


@pytest.mark.parametrize("k", range(1, 7))
def test_sixteen_inputs_are_compared_exhaustively(k: int) -> None:
    circuit = random_circuit(np.random.default_rng(k), 16, 150, k, outputs=40, trivial=0.1)
    rows = every_row(16)
    expected = simulate(circuit, rows)
    for made in (expand_luts(circuit), rewrite(circuit), *(map_luts(circuit, wide) for wide in range(2, 7))):
        assert_equal_bits(simulate(made, rows), expected)


@pytest.mark.parametrize("shape", ["layered", "deep"])
def test_large_circuits_compute_the_same_in_fewer_gates_and_no_more_levels(shape: str) -> None:
    rng = np.random.default_rng(3)
    circuit = layered(rng, 200, 5, 2000) if shape == "layered" else deep(rng, 200, 10_000, 300)
    bits = rng.random((65_536, circuit.inputs), np.float32) < 0.5
    expected = simulate(circuit, bits)
    rewritten, pruned = rewrite(circuit), prune(circuit)
    assert_equal_bits(simulate(rewritten, bits), expected)
    assert rewritten.gates < pruned.gates
    count = rewritten.gates
    for k in (3, 4, 6):
        mapped = map_luts(rewritten, k, rounds=1)
        assert_equal_bits(simulate(mapped, bits), expected)
        assert mapped.gates < count, "a wider gate holds more"
        assert depth(mapped) <= depth(rewritten)
        count = mapped.gates


def test_a_flipped_table_bit_in_a_mapped_circuit_is_noticed() -> None:
    circuit = random_circuit(np.random.default_rng(5), 10, 60, outputs=20)
    rows = every_row(10)
    expected, mapped = simulate(circuit, rows), map_luts(circuit, 4)
    shown = int(mapped.outputs.max()) - mapped.first_gate
    table = mapped.table.copy()
    table[shown] ^= np.uint64(gates.full(4))
    with pytest.raises(AssertionError, match="bits differ"):
        assert_equal_bits(simulate(Circuit(10, table, mapped.fanin, mapped.outputs), rows), expected)


@pytest.mark.parametrize("k", range(3, 7))
def test_inputs_that_a_gate_does_not_need_come_last_and_read_net_0(k: int) -> None:
    assert_tidy(map_luts(layered(np.random.default_rng(1), 60, 5, 500), k))


def test_mapping_a_mapped_circuit_or_expanding_it_keeps_the_function() -> None:
    circuit = layered(np.random.default_rng(2), 16, 4, 60)
    rows = every_row(16)
    expected = simulate(circuit, rows)
    for k, again in itertools.product(range(3, 7), repeat=2):
        assert_equal_bits(simulate(map_luts(map_luts(circuit, k), again), rows), expected)
    assert_equal_bits(simulate(rewrite(map_luts(circuit, 6)), rows), expected)


def test_outputs_may_be_constants_inputs_inverted_repeated_and_both_ways_round() -> None:
    before = """\
circuit inputs=2 k=2
4 = and 2 3
5 = nand 3 2
6 = ~a 2 2
7 = ~b 0 6
8 = xnor 4 4
outputs 4 5 6 7 2 8 0 4 5
"""
    after = """\
circuit inputs=2 k=3
4 = 0x03 2 3 0
5 = 0xf0 4 0 0
6 = 0xf0 2 0 0
outputs 4 5 6 2 2 1 0 4 5
"""
    assert str(map_luts(parse(before), 3)) == after


def test_an_output_shown_only_inverted_needs_no_inverter() -> None:
    circuit = parse("circuit inputs=2 k=2\n4 = and 2 3\n5 = xor 4 2\n6 = ~a 4 4\noutputs 5 6\n")
    mapped = map_luts(circuit, 3)
    assert_equal_bits(simulate(mapped, every_row(2)), simulate(circuit, every_row(2)))
    assert mapped.gates == expand_luts(circuit).gates == 2


def test_a_full_adder_of_nine_nands_becomes_the_five_gates_it_needs() -> None:
    pairs = [(2, 3), (2, 5), (3, 5), (6, 7), (8, 4), (8, 9), (4, 9), (10, 11), (5, 9)]
    nands = Circuit(3, [gates.NAND] * 9, pairs, [12, 13])
    rows = every_row(3)
    total = rows.sum(1)
    assert_equal_bits(simulate(nands, rows), np.stack([total % 2 == 1, total >= 2], 1))
    small = rewrite(nands)
    assert_equal_bits(simulate(small, rows), simulate(nands, rows))
    assert small.gates == 5
    assert map_luts(nands, 3).gates == 2


@pytest.mark.parametrize("k", [3, 4, 5, 6])
def test_a_parity_of_many_inputs_takes_the_fewest_gates_there_can_be(k: int) -> None:
    inputs = (k - 1) * 20 + 1
    chain = [(2, 3)] + [(1 + inputs + i, 3 + i) for i in range(1, inputs - 1)]
    parity = Circuit(inputs, [gates.XOR] * len(chain), chain, [2 * inputs])
    assert map_luts(parity, k).gates == 20


def fewest_gates() -> dict[int, int]:
    """The fewest gates for each function of three inputs that is 0 on zeros, by trying circuits in order of size."""
    start = frozenset(gates.ones(j, 3) for j in range(3))
    fewest, level, count = {0: 0, **dict.fromkeys(start, 0)}, {start}, 0
    while len(fewest) < 128:
        reached, count = set(), count + 1
        for made in level:
            for a, b in itertools.combinations(made, 2):
                for f in (a & b, a & ~b, ~a & b, a | b, a ^ b):
                    fewest.setdefault(f, count)
                    reached.add(made | {f})
        level = reached
    return fewest


def test_the_library_is_exact_for_three_inputs() -> None:
    costs = (library()[:, 0] >> np.uint64(40)).astype(int)
    for function, fewest in fewest_gates().items():
        wide = sum((function >> row & 1) * 0b11 << 2 * row for row in range(8))  # the last of four inputs not read
        assert costs[wide] == fewest, f"{function:08b}"


def test_each_way_in_the_library_makes_its_function_at_its_cost() -> None:
    ways = library()
    cost = (ways[:, 0] >> np.uint64(40)).astype(int)
    assert sorted(np.flatnonzero(cost == 0)) == sorted([0, *INPUTS])
    assert cost.max() == 7

    def cost_of(table: np.ndarray) -> np.ndarray:
        return cost[np.where(table >= FUNCTIONS, table ^ 0xFFFF, table)]

    for way in ways.T:
        function = np.flatnonzero(way)
        entry = way[function].astype(np.int64)
        a, b = entry & 0xFFFF, entry >> 16 & 0xFFFF
        made = np.where(entry >> 32 & 1, a ^ b, a & b) ^ np.where(entry >> 33 & 1, 0xFFFF, 0)
        assert np.array_equal(made, function)
        assert np.array_equal(cost_of(a) + cost_of(b) + 1, cost[function])
        assert np.array_equal(entry >> 40, cost[function])


def test_all_functions_of_four_inputs_are_expanded_to_themselves() -> None:
    tables = np.arange(1 << 16)
    circuit = Circuit(4, tables, np.tile([2, 3, 4, 5], (1 << 16, 1)), 6 + tables)
    rows = every_row(4)
    expected = (tables >> np.arange(15, -1, -1)[:, None] & 1).astype(bool)
    assert_equal_bits(simulate(expand_luts(circuit), rows), expected)


def test_a_million_gates_take_seconds_however_deep() -> None:
    rng, size = np.random.default_rng(8), 1_000_000
    chain = np.stack([1001 + np.arange(size), rng.integers(2, 1002, size)], 1)
    alternating = np.where(np.arange(size) % 2, gates.XOR, gates.AND)
    for circuit in (Circuit(1000, alternating, chain, [1001 + size]), deep(rng, 500, size, 4000)):
        begin = time.perf_counter()
        assert 0 < map_luts(circuit, 3, rounds=1).gates < rewrite(circuit, rounds=1).gates <= size
        assert time.perf_counter() - begin < 60


@pytest.mark.parametrize("k", [-1, 0, 1, 7])
def test_a_width_that_no_gate_has_is_refused(k: int) -> None:
    with pytest.raises(ConfigError, match=f"k is {k}: expected 2 to 6 inputs a gate"):
        map_luts(Circuit(2, [1], [[2, 3]], [4]), k)


@pytest.mark.skipif(ABC is None, reason="no abc or berkeley-abc on the path to compare with")
@pytest.mark.parametrize("k", [3, 6])
def test_abc_finds_hardly_fewer_gates(k: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).parents[1] / "benchmarks"))
    from lut_mapping import SCRIPTS, run_abc

    circuit = prune(layered(np.random.default_rng(9), 100, 5, 400))
    theirs = run_abc(str(ABC), SCRIPTS["dch, if -a"], circuit, k, limit=60)
    bits = np.random.default_rng(0).random((65_536, 100), np.float32) < 0.5
    assert_equal_bits(simulate(theirs, bits), simulate(circuit, bits))
    assert map_luts(circuit, k).gates < 1.03 * prune(theirs).gates
