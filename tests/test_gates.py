"""The derived operations on tables, against the definition of a gate."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gatewise import gates

CASES = [(k, table) for k in (1, 2) for table in range(2**2**k)]
CASES += [(3, table) for table in range(256)]


@st.composite
def tables(draw: st.DrawFn) -> tuple[int, int]:
    k = draw(st.integers(1, 6))
    return k, draw(st.integers(0, gates.full(k)))


def rows(k: int) -> list[tuple[int, ...]]:
    return list(itertools.product((0, 1), repeat=k))


def values(table: int, k: int) -> list[int]:
    return [gates.evaluate(table, row) for row in rows(k)]


def assert_operations_fit_the_definition(k: int, table: int) -> None:
    assert values(gates.full(k), k) == [1] * 2**k
    assert values(gates.negate(table, k), k) == [1 - value for value in values(table, k)]
    for j in range(k):
        assert values(gates.ones(j, k), k) == [row[j] for row in rows(k)]
        flipped = [gates.evaluate(table, (*row[:j], 1 - row[j], *row[j + 1 :])) for row in rows(k)]
        assert values(gates.negate_input(table, j, k), k) == flipped
        for value in (0, 1):
            held = [gates.evaluate(table, (*row[:j], value, *row[j + 1 :])) for row in rows(k)]
            assert values(gates.restrict(table, j, value, k), k) == held


@pytest.mark.parametrize(("k", "table"), CASES)
def test_operations_fit_the_definition_for_every_table_of_up_to_three_inputs(k: int, table: int) -> None:
    assert_operations_fit_the_definition(k, table)


@given(tables())
def test_operations_fit_the_definition_for_up_to_six_inputs(case: tuple[int, int]) -> None:
    assert_operations_fit_the_definition(*case)


@given(tables())
def test_arrays_of_tables_give_what_ints_give(case: tuple[int, int]) -> None:
    k, table = case
    array = np.array([table, 0, gates.full(k)], np.uint64)

    def assert_alike(found: np.ndarray, expected: list[int]) -> None:
        assert found.dtype == np.uint64
        assert found.tolist() == expected

    ints = array.tolist()
    assert_alike(gates.negate(array, k), [gates.negate(t, k) for t in ints])
    for j in range(k):
        assert_alike(gates.negate_input(array, j, k), [gates.negate_input(t, j, k) for t in ints])
        for value in (0, 1):
            assert_alike(gates.restrict(array, j, value, k), [gates.restrict(t, j, value, k) for t in ints])
    for i, j in itertools.combinations(range(k), 2):
        assert_alike(gates.swap_inputs(array, i, j, k), [gates.swap_inputs(t, i, j, k) for t in ints])
        assert_alike(gates.tie_inputs(array, i, j, k), [gates.tie_inputs(t, i, j, k) for t in ints])


@pytest.mark.parametrize("table", range(16))
def test_swapping_inputs_exchanges_them_for_ints_and_arrays(table: int) -> None:
    expected = [gates.evaluate(table, (b, a)) for a, b in rows(2)]
    assert values(gates.swap_inputs(table), 2) == expected
    assert gates.swap_inputs(np.array([table], np.uint64)).tolist() == [gates.swap_inputs(table)]


@given(tables())
def test_any_two_inputs_are_swapped_and_tied(case: tuple[int, int]) -> None:
    k, table = case
    for i, j in itertools.combinations(range(k), 2):
        order = [j if n == i else i if n == j else n for n in range(k)]
        swapped = [gates.evaluate(table, tuple(row[n] for n in order)) for row in rows(k)]
        assert values(gates.swap_inputs(table, i, j, k), k) == swapped
        tied = [gates.evaluate(table, (*row[:j], row[i], *row[j + 1 :])) for row in rows(k)]
        assert values(gates.tie_inputs(table, i, j, k), k) == tied


@pytest.mark.parametrize("table", range(16))
def test_coefficients_reproduce_the_table_at_its_corners(table: int) -> None:
    c0, ca, cb, cab = gates.COEFFICIENTS[table].tolist()
    assert [c0 + ca * a + cb * b + cab * a * b for a, b in rows(2)] == values(table, 2)


def test_names_belong_to_their_tables() -> None:
    spelled = [eval(name.replace("~", "1^"), {}, {"a": 0, "b": 0}) for name in ("~a", "a&~b", "~a|b")]
    assert spelled == [1, 0, 1]
    words = {"and": "a&b", "or": "a|b", "xor": "a^b", "nor": "1^(a|b)", "xnor": "1^a^b", "nand": "1^(a&b)"}
    for table, name in enumerate(gates.NAMES):
        formula = words.get(name, name.replace("~a", "(1^a)").replace("~b", "(1^b)"))
        assert [eval(formula, {}, {"a": a, "b": b}) for a, b in rows(2)] == values(table, 2)


def test_named_tables_are_those_of_their_names() -> None:
    pairs = {"0": gates.CONST0, "and": gates.AND, "a": gates.FIRST, "b": gates.SECOND, "xor": gates.XOR}
    pairs |= {"or": gates.OR, "~b": gates.NOT_SECOND, "~a": gates.NOT_FIRST, "nand": gates.NAND, "1": gates.CONST1}
    assert {name: gates.NAMES.index(name) for name in pairs} == pairs
