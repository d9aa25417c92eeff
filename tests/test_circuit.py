"""What a circuit is: its checks, its text, its equality, and its levels."""

from __future__ import annotations

import re
import time
from typing import Any

import numpy as np
import pytest
from circuits import circuits, random_circuit
from hypothesis import example, given, settings
from hypothesis import strategies as st

from gatewise.circuit import Circuit, parse
from gatewise.circuit.levels import depths, level_order
from gatewise.errors import CircuitError

HALF_ADDER = """\
circuit inputs=2 k=2
4 = xor 2 3
5 = and 2 3
outputs 4 5
"""


def half_adder(**changed: Any) -> Circuit:
    fields: dict[str, Any] = {"inputs": 2, "table": [6, 1], "fanin": [[2, 3], [2, 3]], "outputs": [4, 5]}
    return Circuit(**fields | changed)


def test_a_circuit_knows_its_sizes() -> None:
    circuit = half_adder()
    assert (circuit.inputs, circuit.gates, circuit.k, circuit.first_gate, circuit.nets) == (2, 2, 2, 4, 6)
    assert (circuit.table.dtype, circuit.fanin.dtype, circuit.outputs.dtype) == (np.uint64, np.int32, np.int32)


def test_a_circuit_may_have_no_gates_and_no_outputs() -> None:
    circuit = Circuit(0, [], np.zeros((0, 3)), [])
    assert (circuit.gates, circuit.k, circuit.nets) == (0, 3, 2)


def test_a_circuit_cannot_be_changed_by_who_made_it_or_who_has_it() -> None:
    table = np.array([6, 1], np.uint64)
    circuit = half_adder(table=table)
    table[0] = 7
    assert circuit.table.tolist() == [6, 1]
    with pytest.raises(ValueError, match="read-only"):
        circuit.table[0] = 7
    with pytest.raises(AttributeError):
        circuit.inputs = 3  # type: ignore[misc]


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"fanin": [[2, 3], [2, 5]]}, "gate 1 .net 5. reads net 5 as its input 1: expected 0 to 4"),
        ({"fanin": [[9, 3], [2, 3]]}, "gate 0 .net 4. reads net 9 as its input 0: expected 0 to 3"),
        ({"fanin": [[2, 3], [-1, 3]]}, "gate 1 .net 5. reads net -1 as its input 0"),
        ({"fanin": [[2, 3], [2**40, 3]]}, r"fanin\[1, 0\] is 1099511627776: expected a whole number that fits int32"),
        ({"fanin": [[2, 3], [2.5, 3]]}, r"fanin\[1, 0\] is 2.5: expected a whole number"),
        ({"fanin": [[2, 3], [float("nan"), 3]]}, r"fanin\[1, 0\] is nan"),
        ({"fanin": [[2, 3]]}, "table has 2 gates and fanin has 1: expected one row"),
        ({"fanin": [2, 3]}, r"fanin has shape \(2,\): expected 2 dimensions"),
        ({"fanin": [[2, 3], [2]]}, "fanin is no array"),
        ({"fanin": np.zeros((2, 0), int)}, "a gate reads 1 to 6 nets"),
        ({"fanin": np.zeros((2, 7), int)}, "a gate reads 1 to 6 nets"),
        ({"table": [6, 16]}, "gate 1 has table 0x10: expected at most 0xf, since 2 inputs have 4 rows"),
        ({"table": [6, -1]}, r"table\[1\] is -1: expected a whole number that fits uint64"),
        ({"table": [6, 2**64]}, r"table\[1\] is 18446744073709551616"),
        ({"table": [6, 2.0**64]}, r"table\[1\] is 1.8446744073709552e\+19"),
        ({"table": ["6", "1"]}, "table has dtype <U1: expected whole numbers"),
        ({"table": [6, None]}, "table has dtype object"),
        ({"table": [[6, 1]]}, r"table has shape \(1, 2\): expected 1 dimension$"),
        ({"outputs": [4, 6]}, "output 1 is net 6: expected 0 to 5"),
        ({"outputs": [-1]}, "output 0 is net -1"),
        ({"outputs": 4}, r"outputs has shape \(\): expected 1 dimension"),
        ({"inputs": -1}, "inputs is -1"),
        ({"inputs": 2.0}, "inputs is 2.0: expected a whole number"),
        ({"inputs": 2**31}, "inputs is 2147483648"),
        ({"inputs": 2**31 - 4}, "the circuit has 2147483648 nets: expected at most"),
    ],
)
def test_what_is_no_circuit_is_refused_with_the_place_and_the_reason(changed: dict[str, Any], message: str) -> None:
    with pytest.raises(CircuitError, match=message):
        half_adder(**changed)


@pytest.mark.parametrize("dtype", [np.int64, np.uint8, np.float32, np.float64, object])
def test_numbers_of_any_type_that_convert_exactly_are_taken(dtype: Any) -> None:
    assert half_adder(table=np.array([6, 1], dtype), fanin=np.array([[2, 3], [2, 3]], dtype)) == half_adder()


def test_the_largest_table_of_six_inputs_fits() -> None:
    circuit = Circuit(1, [2**64 - 1], [[2] * 6], [3])
    assert int(circuit.table[0]) == 2**64 - 1


@pytest.mark.parametrize(
    "changed",
    [{"inputs": 3}, {"table": [6, 2]}, {"fanin": [[3, 2], [2, 3]]}, {"outputs": [5, 4]}, {"outputs": [4]}],
)
def test_circuits_are_equal_when_all_they_hold_is(changed: dict[str, Any]) -> None:
    assert half_adder() == half_adder()
    assert hash(half_adder()) == hash(half_adder())
    assert half_adder() != half_adder(**changed)
    assert half_adder() != "a half adder"


def test_a_circuit_prints_one_line_a_gate() -> None:
    assert str(half_adder()) == HALF_ADDER
    assert repr(half_adder()) == "<Circuit: 2 inputs, 2 gates of 2 inputs, 2 outputs>"
    assert str(Circuit(1, [2], [[2, 0, 1]], [3])) == "circuit inputs=1 k=3\n3 = 0x02 2 0 1\noutputs 3\n"


@pytest.mark.parametrize(
    ("circuit", "text"),
    [
        (Circuit(0, [], np.zeros((0, 2)), []), "circuit inputs=0 k=2\noutputs\n"),
        (Circuit(1, [], np.zeros((0, 4)), [2, 1, 0, 2]), "circuit inputs=1 k=4\noutputs 2 1 0 2\n"),
        (
            Circuit(1, [2, 0, 3], [[2], [3], [1]], [3]),
            "circuit inputs=1 k=1\n3 = 0x2 2\n4 = 0x0 3\n5 = 0x3 1\noutputs 3\n",
        ),
        (
            Circuit(6, [1, 2**64 - 2], [range(2, 8), [8, 1, 0, 2, 3, 8]], [9]),
            "circuit inputs=6 k=6\n8 = 0x0000000000000001 2 3 4 5 6 7\n9 = 0xfffffffffffffffe 8 1 0 2 3 8\noutputs 9\n",
        ),
        (Circuit(0, [8, 15], [[0, 1], [2, 2]], [0, 3]), "circuit inputs=0 k=2\n2 = nor 0 1\n3 = 1 2 2\noutputs 0 3\n"),
    ],
)
def test_any_circuit_has_a_text(circuit: Circuit, text: str) -> None:
    assert str(circuit) == text
    assert parse(text) == circuit
    assert parse(text.replace("\n", "\r\n")) == circuit


@given(circuits())
@example(Circuit(0, [], np.zeros((0, 6)), []))
@example(Circuit(2**31 - 3, [], np.zeros((0, 1)), [2**31 - 2]))
def test_text_parses_back_to_the_same_circuit(circuit: Circuit) -> None:
    assert parse(str(circuit)) == circuit


def test_parsing_ignores_blank_lines_and_comments() -> None:
    assert parse("# sum and carry\n\n" + HALF_ADDER.replace("3\n", "3  # both\n")) == half_adder()


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (HALF_ADDER, "", "no circuit"),
        ("circuit", "module", "line 1 is 'module inputs=2 k=2'"),
        ("k=2", "k=9", "a gate reads 1 to 6 nets"),
        ("inputs=2", "inputs=two", "line 1 is"),
        ("5 =", "7 =", "line 3 is '7 = and 2 3': expected `5 = gate` and 2 nets"),
        ("and 2 3", "and 2", "line 3"),
        ("and", "nandy", "line 3 has the gate 'nandy': expected one of 0, and"),
        ("and", "0x10", "line 3 has the gate '0x10'"),
        ("and", "0xg", "line 3 has the gate '0xg'"),
        ("xor 2 3", "xor 2 x", "line 2 has 'x' where a net from 0 to 3 was expected"),
        ("xor 2 3", "xor 2 -1", "line 2 has '-1' where a net from 0 to 3 was expected"),
        ("xor 2 3", "xor 2 ٣", "line 2 has '٣' where a net"),
        ("and 2 3", "and 2 5", "line 3 has '5' where a net from 0 to 4 was expected"),
        ("and", "0x_1", "line 3 has the gate '0x_1'"),
        ("and", "0x", "line 3 has the gate '0x'"),
        ("and", "0x" + "f" * 5000, "line 3 has the gate '0xf{78}…': expected one of"),
        ("outputs 4 5", "outputs 4 6", "line 4 has '6' where a net from 0 to 5 was expected"),
        ("inputs=2", "inputs=2147483646", "line 1 is .*: expected 0 to 2147483645 inputs"),
        ("inputs=2", "inputs=2147483645", "line 2 is one gate too many: expected at most 2147483647 nets"),
        ("inputs=2", "k=2", "line 1 is 'circuit k=2 k=2'"),
        ("inputs=2", "inputs=2 inputs=2", "line 1 is"),
        ("outputs 4 5\n", "", "line 3 is '5 = and 2 3': expected the last line to be `outputs`"),
        ("4 =", "4 = " + "x " * 99, "line 2 is .4 =( x)+ ?….: expected `4 = gate` and 2 nets"),
        ("outputs", "show", "line 4 is 'show 4 5': expected the last line"),
        ("xor 2", "xor 9", "line 2 has '9' where a net from 0 to 3 was expected"),
    ],
)
def test_text_that_is_no_circuit_is_refused_with_its_line(old: str, new: str, message: str) -> None:
    with pytest.raises(CircuitError, match=message):
        parse(HALF_ADDER.replace(old, new))


@given(circuits(), st.data())
@settings(max_examples=500, deadline=None)
def test_changed_text_is_another_circuit_or_refused_with_its_line(circuit: Circuit, data: st.DataObject) -> None:
    text = str(circuit)
    for _ in range(data.draw(st.integers(1, 3))):
        begin = data.draw(st.integers(0, len(text)))
        end = begin + data.draw(st.integers(0, 4))
        text = (
            text[:begin]
            + data.draw(st.sampled_from([*"0123456789 =x#\n\r-ab~&|\0²٣", "\n\n", "", "9" * 40]))
            + text[end:]
        )
    try:
        found = parse(text)
    except CircuitError as refused:
        message = str(refused)
    else:
        assert parse(str(found)) == found
        return
    assert re.match(r"line \d+ (is|has) |the text is no circuit", message)
    assert len(message) < 300


@given(st.text(alphabet="circuit nputsko=0123456789xaβ²\n", max_size=80))
def test_arbitrary_text_is_refused_with_our_own_error(text: str) -> None:
    with pytest.raises(CircuitError):
        parse("circuit inputs=2 k=2\n" + text + "\n4 =")


@given(circuits())
def test_a_gate_is_one_level_after_the_latest_gate_it_reads(circuit: Circuit) -> None:
    depth = [-1] * circuit.first_gate
    for reads in circuit.fanin.tolist():
        depth.append(1 + max(depth[net] for net in reads))
    expected = depth[circuit.first_gate :]
    assert depths(circuit).tolist() == expected
    order, start = level_order(circuit)
    assert order.tolist() == sorted(range(circuit.gates), key=lambda gate: (expected[gate], gate))
    assert start.tolist() == [0, *np.cumsum(np.bincount(expected)).tolist()] if expected else [0]


def test_a_chain_of_twenty_thousand_gates_is_put_in_levels_in_seconds() -> None:
    size = 20_000
    chain = Circuit(1, np.full(size, 6), np.stack([np.arange(2, 2 + size), np.full(size, 2)], 1), [size + 2])
    begin = time.perf_counter()
    assert np.array_equal(depths(chain), np.arange(size))
    assert time.perf_counter() - begin < 10


def test_a_wide_circuit_is_put_in_levels_in_seconds() -> None:
    circuit = random_circuit(np.random.default_rng(0), 1000, 300_000)
    begin = time.perf_counter()
    order, start = level_order(circuit)
    assert time.perf_counter() - begin < 10
    assert np.array_equal(np.sort(order), np.arange(circuit.gates))
    assert len(start) < 100
