"""What a circuit is made of, counted gate by gate and by the library."""

from __future__ import annotations

import itertools
import time
from collections import Counter

import numpy as np
import pytest
from circuits import circuits, random_circuit
from hypothesis import given, settings

from gatewise import gates
from gatewise.circuit import Circuit, Statistics, count_bops, parse, statistics

EXAMPLE = parse("""\
circuit inputs=4 k=2
6 = and 2 3
7 = xor 6 6
8 = ~a 7 4
9 = 1 8 8
10 = or 2 6  # no output needs it
outputs 8 1 8
""")


def test_the_numbers_of_a_small_circuit() -> None:
    found = statistics(EXAMPLE)
    assert (found.inputs, found.inputs_used, found.outputs, found.k) == (4, 3, 3, 2)
    assert (found.gates, found.reachable, found.bops) == (5, 3, 2)
    assert (found.depth, found.level_sizes.tolist()) == (4, [1, 2, 1, 1])
    # Nobody reads input 5, gates 9 and 10; once: 3, 4, 7; twice: 2; three times: 6; four times: 8.
    assert found.fan_out.tolist() == [3, 3, 1, 1, 1]
    assert (found.fan_out_max, found.fan_out_mean) == (4, 12 / 9)
    assert (found.tables.tolist(), found.table_counts.tolist()) == ([1, 6, 7, 12, 15], [1, 1, 1, 1, 1])
    assert found.dependence.tolist() == [1, 1, 3]


def counted(circuit: Circuit) -> dict[str, object]:
    """The same numbers by plain loops over gates."""
    first, table = circuit.first_gate, circuit.table.tolist()
    fanin, outputs = circuit.fanin.tolist(), circuit.outputs.tolist()
    depth, needed = [-1] * first, set(outputs)
    for reads in fanin:
        depth.append(1 + max(depth[net] for net in reads))
    for net in range(circuit.nets - 1, first - 1, -1):
        if net in needed:
            needed |= set(fanin[net - first])
    reads = Counter(itertools.chain(outputs, *fanin))
    fan_out = Counter(reads[net] for net in range(2, circuit.nets))
    rows = list(itertools.product((0, 1), repeat=circuit.k))

    def depends(gate: int, j: int) -> bool:
        flipped = [(*row[:j], 1 - row[j], *row[j + 1 :]) for row in rows]
        return any(
            gates.evaluate(gate, row) != gates.evaluate(gate, other) for row, other in zip(rows, flipped, strict=True)
        )

    levels = Counter(depth[first:])
    dependence = Counter(sum(depends(gate, j) for j in range(circuit.k)) for gate in table)
    return {
        "inputs_used": sum(2 <= net < first for net in needed),
        "reachable": sum(net >= first for net in needed),
        "bops": count_bops(circuit),
        "level_sizes": [levels[level] for level in range(len(levels))],
        "fan_out": [fan_out[n] for n in range(max(fan_out, default=0) + 1)],
        "tables": sorted(set(table)),
        "table_counts": [Counter(table)[gate] for gate in sorted(set(table))],
        "dependence": [dependence[n] for n in range(circuit.k + 1)],
    }


def assert_counted(found: Statistics, circuit: Circuit) -> None:
    for name, expected in counted(circuit).items():
        value = getattr(found, name)
        assert (value.tolist() if isinstance(value, np.ndarray) else value) == expected, name


@given(circuits(max_gates=40))
@settings(max_examples=200, deadline=None)
def test_every_number_is_what_counting_one_by_one_gives(circuit: Circuit) -> None:
    assert_counted(statistics(circuit), circuit)


def test_a_wrong_number_would_be_noticed() -> None:
    with pytest.raises(AssertionError, match="fan_out"):
        assert_counted(statistics(parse(str(EXAMPLE).replace("xor 6 6", "xor 6 0"))), EXAMPLE)


def test_a_circuit_of_nothing_has_numbers_too() -> None:
    found = statistics(Circuit(0, [], np.zeros((0, 3)), []))
    assert (found.gates, found.depth, found.fan_out_max, found.fan_out_mean) == (0, 0, 0, 0.0)
    assert (found.fan_out.tolist(), found.dependence.tolist(), found.tables.tolist()) == ([0], [0] * 4, [])


def test_billions_of_inputs_that_nobody_reads_are_counted_without_being_listed() -> None:
    found = statistics(Circuit(2**31 - 4, [6], [[2, 2**31 - 3]], [2**31 - 2]))
    assert (found.inputs, found.inputs_used) == (2**31 - 4, 2)
    assert found.fan_out.tolist() == [2**31 - 6, 3]


def test_a_million_gates_take_seconds() -> None:
    circuit = random_circuit(np.random.default_rng(0), 1000, 1_000_000, outputs=1000)
    begin = time.perf_counter()
    found = statistics(circuit)
    assert time.perf_counter() - begin < 10
    assert found.level_sizes.sum() == found.table_counts.sum() == found.dependence.sum() == 1_000_000
    assert found.fan_out.sum() == 1_001_000
