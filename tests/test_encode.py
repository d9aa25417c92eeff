"""Features → bits: the thermometer, one-hot and table encoders, and how they are saved."""

import json
import re
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gatewise.encode import (
    Category,
    Numeric,
    OneHot,
    Rounding,
    TableEncoder,
    Thermometer,
    encoder_from,
    quantile_thresholds,
)
from gatewise.errors import EncodingError

TABLE = np.array([[39.0, "State", 1.0], [50.0, "Self", 0.0], [38.0, "State", 0.0], [28.0, "Never", 0.0]], dtype=object)


def fails(*words):
    """The one-sentence EncodingError that says all these words, in this order."""
    return pytest.raises(EncodingError, match=".*".join(map(re.escape, words)))


def bit_by_bit(thermometer, x):
    """The definition, one bit at a time with Python's numbers."""
    planes, shape = len(thermometer.thresholds), thermometer.input_shape
    bits = np.zeros((len(x), planes, *shape), dtype=bool)
    for n, i, *feature in np.ndindex(bits.shape):
        at = thermometer.thresholds[i]
        t = at if at.ndim == 0 else at.reshape(shape)[tuple(feature)]
        bits[(n, i, *feature)] = x[(n, *feature)].item() > float(t)
    return bits.reshape(len(x), planes * shape[0], *shape[1:])


def saved_and_made_again(encoder):
    header = json.loads(json.dumps(encoder.header()))
    return encoder_from(header, {k: v.copy() for k, v in encoder.arrays().items()})


def test_equal_thresholds_lie_at_i_over_n_plus_one():
    assert Thermometer.equal(3, 0, 255, (1,)).thresholds.tolist() == [63.75, 127.5, 191.25]
    assert Thermometer.equal(2, 0, 255, (1,)).thresholds.tolist() == [85.0, 170.0]
    assert Thermometer.equal(1, -1, 2, (1,)).thresholds.tolist() == [0.5]


@pytest.mark.parametrize("levels", [1, 3, 7, 31, 63])
def test_the_number_of_thresholds_a_byte_passes_is_a_shift(levels):
    x = np.arange(256, dtype=np.uint8).reshape(-1, 1)
    passed = Thermometer.equal(levels, 0, 255, (1,)).transform(x).sum(1)
    assert passed.tolist() == (x[:, 0] >> (8 - (levels + 1).bit_length() + 1)).tolist()


def test_a_value_on_a_threshold_is_not_above_it():
    encoder = Thermometer.equal(2, 0, 255, (1,))
    assert encoder.transform(np.array([[85], [86], [170], [171]], dtype=np.uint8)).tolist() == [
        [False, False],
        [True, False],
        [True, False],
        [True, True],
    ]


def test_planes_follow_each_other_with_their_channels_together():
    encoder = Thermometer.equal(3, 0, 255, (2, 1, 2))
    assert encoder.bit_shape == (6, 1, 2)
    x = np.array([[[[0, 100]], [[150, 255]]]], dtype=np.uint8)
    assert encoder.transform(x)[0, :, 0].astype(int).tolist() == [[0, 1], [1, 1], [0, 0], [1, 1], [0, 0], [0, 1]]


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_a_thermometer_equals_its_definition_for_every_type_of_number(data):
    dtype = data.draw(st.sampled_from(["bool", "uint8", "int8", "int16", "int64", "float32", "float64"]))
    shape = data.draw(st.sampled_from([(1,), (3,), (2, 2, 1)]))
    size = int(np.prod(shape))
    low, high = (0, 1) if dtype == "bool" else (0, 255) if dtype == "uint8" else (-128, 127)
    values = data.draw(st.lists(st.integers(low, high), min_size=3 * size, max_size=3 * size))
    x = np.array(values).reshape(3, *shape).astype(dtype)
    x = x / np.asarray(3, dtype) if dtype.startswith("float") else x
    number = st.one_of(st.integers(-300, 300), st.integers(-900, 900).map(lambda v: v / 3))
    features = data.draw(st.sampled_from([None, size]))
    count = 2 * (features or 1)
    thresholds = np.array(data.draw(st.lists(number, min_size=count, max_size=count)), dtype=np.float64)
    encoder = Thermometer(thresholds.reshape(2, features) if features else thresholds, shape)
    np.testing.assert_array_equal(encoder.transform(x), bit_by_bit(encoder, x))


def test_a_float32_value_is_compared_exactly():
    third = np.array([[1 / 3]], dtype=np.float32)
    assert float(third[0, 0]) > 1 / 3
    assert Thermometer(np.array([1 / 3]), (1,)).transform(third).all()


def test_rounding_asks_which_of_two_values_is_nearer():
    x = np.array([[127], [128]], dtype=np.uint8)
    assert Rounding(0, 255, (1,)).transform(x).tolist() == [[False], [True]]


def test_quantile_thresholds_part_each_column_evenly():
    x = np.column_stack([np.arange(800.0)[::-1], np.arange(800.0) ** 2])
    encoder = Thermometer.quantile(3, (2,)).fit(x)
    assert encoder.thresholds.tolist() == [[199.0, 199.0**2], [399.0, 399.0**2], [599.0, 599.0**2]]
    assert encoder.transform(x).sum(0).tolist() == [600, 600, 400, 400, 200, 200]


def test_a_frequent_value_does_not_take_the_bits_of_a_rare_tail():
    amounts = np.concatenate([np.zeros(9000), np.arange(1.0, 1001.0)])
    found = quantile_thresholds(amounts, 7)
    assert len(found) == 7
    assert found[0] == 0
    assert (np.diff(found) > 0).all()


@settings(max_examples=200, deadline=None)
@given(st.lists(st.integers(0, 40), min_size=1, max_size=120), st.integers(1, 9))
def test_quantile_thresholds_are_distinct_values_that_each_part_the_column(values, levels):
    column = np.array(values, dtype=np.float64)
    found = quantile_thresholds(column, levels)
    assert len(found) == min(levels, len(set(values)) - 1)
    assert set(found) <= set(values) - {max(values)}
    assert sorted(set(found)) == found.tolist()


def test_a_feature_with_few_values_repeats_its_highest_threshold():
    encoder = Thermometer.quantile(3, (2,)).fit(np.array([[0, 5], [1, 5], [2, 5]]))
    assert encoder.thresholds.tolist() == [[0, 5], [1, 5], [1, 5]]


def test_a_mixed_table_becomes_thresholds_and_one_bit_a_category():
    encoder = TableEncoder.mixed(["age", "work", "gain"], [None, (), None], 7).fit(TABLE)
    assert encoder.bit_names() == (
        *("age > 28", "age > 38", "age > 39"),
        *("work = Never", "work = Self", "work = State"),
        "gain > 0",
    )
    assert encoder.input_shape == (3,)
    assert encoder.bit_shape == (7,)
    assert encoder.transform(TABLE).astype(int).tolist() == [
        [1, 1, 0, 0, 0, 1, 1],
        [1, 1, 1, 0, 1, 0, 0],
        [1, 0, 0, 0, 0, 1, 0],
        [0, 0, 0, 1, 0, 0, 0],
    ]


def test_rows_given_as_lists_keep_their_numbers():
    encoder = TableEncoder.mixed(["age", "work", "gain"], [None, (), None], 7).fit(TABLE)
    np.testing.assert_array_equal(encoder.transform(TABLE.tolist()), encoder.transform(TABLE))


def test_known_categories_keep_their_order_and_stay_when_fitted():
    encoder = OneHot(["size"], [("small", "big")])
    x = np.array([["big"], ["big"]])
    assert encoder.fit(x) == encoder
    assert encoder.transform(x).tolist() == [[False, True]] * 2


def test_one_hot_learns_categories_in_sorted_order():
    encoder = OneHot(["a", "b"]).fit(np.array([["y", "u"], ["x", "u"]]))
    assert encoder.columns == (Category("a", ("x", "y")), Category("b", ("u",)))
    assert encoder.transform(np.array([["x", "u"]])).tolist() == [[True, False, True]]


def test_fitting_leaves_the_open_encoder_as_it_was():
    encoder = OneHot(["a"])
    encoder.fit(np.array([["x"]]))
    assert encoder.columns[0].values is None


@pytest.mark.parametrize(
    ("encoder", "x"),
    [
        (Thermometer.equal(3, 0, 1, (2, 1, 2)), np.random.default_rng(0).random((5, 2, 1, 2))),
        (Thermometer.quantile(4, (3,)).fit(np.eye(3)), np.eye(3)),
        (OneHot(["a"]).fit([["ä"], ["?"]]), [["?"], ["ä"]]),
        (TableEncoder.mixed(["age", "work", "gain"], [None, (), None], 2).fit(TABLE), TABLE),
    ],
)
def test_an_encoder_is_made_again_from_its_header_and_arrays(encoder, x):
    again = saved_and_made_again(encoder)
    assert (again.input_shape, again.bit_shape) == (encoder.input_shape, encoder.bit_shape)
    np.testing.assert_array_equal(again.transform(x), encoder.transform(x))
    assert again.header() == encoder.header()
    assert all(a.dtype in (np.float64, np.int64, np.uint8) for a in encoder.arrays().values())


def test_a_planted_difference_would_be_noticed():
    encoder = Thermometer.equal(3, 0, 255, (1,))
    other = Thermometer(encoder.thresholds + np.array([0, 1, 0]), (1,))
    x = np.arange(256, dtype=np.uint8).reshape(-1, 1)
    assert (encoder.transform(x) != other.transform(x)).sum() == 1


def test_thresholds_cannot_be_changed_behind_the_encoder():
    with pytest.raises(ValueError, match="read-only"):
        Thermometer.equal(3, 0, 255, (1,)).thresholds[0] = 9


def test_no_samples_give_no_bits():
    assert Thermometer.equal(3, 0, 1, (2,)).transform(np.empty((0, 2))).shape == (0, 6)
    assert OneHot(["a"], [("x",)]).transform(np.empty((0, 1), dtype=object)).shape == (0, 1)


MIXED = TableEncoder.mixed(["age", "work", "gain"], [None, (), None], 2)
FITTED = MIXED.fit(TABLE)


def changed(row, column, value):
    table = TABLE.copy()
    table[row, column] = value
    return table


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
def test_a_number_that_is_not_finite_is_named_by_row_and_column(bad):
    with fails("row 2, column 'age'", str(bad), "finite"):
        FITTED.transform(changed(2, 0, bad))
    with fails("row 2, column 'age'", "finite"):
        MIXED.fit(changed(2, 0, bad))
    x = np.zeros((3, 1, 2, 2))
    x[1, 0, 1, 0] = bad
    with fails("row 1, column (0, 1, 0)", str(bad), "finite"):
        Thermometer.equal(3, 0, 1, (1, 2, 2)).transform(x)
    with fails("row 0, column 1", "finite"):
        Thermometer.quantile(3, (2,)).fit([[1.0, bad]])


def test_an_unseen_category_is_named_with_those_that_were_seen():
    with fails("row 1, column 'work' is 'Martian', expected one of Never, Self, State"):
        FITTED.transform(changed(1, 1, "Martian"))


def test_a_long_list_of_categories_is_cut_short():
    encoder = OneHot(["a"], [[f"v{i}" for i in range(99)]])
    with pytest.raises(EncodingError) as caught:
        encoder.transform([["w"]])
    assert len(str(caught.value)) < 150


@pytest.mark.parametrize("value", ["39", None, 3 + 1j])
def test_what_is_no_number_in_a_numeric_column_is_named(value):
    with fails("row 3, column 'age' is", repr(value), "expected a number"):
        FITTED.transform(changed(3, 0, value))


@pytest.mark.parametrize("value", [3.0, None, float("nan")])
def test_what_is_no_text_in_a_category_is_named(value):
    with fails("row 3, column 'work' is", repr(value), "expected text"):
        FITTED.transform(changed(3, 1, value))


def test_cells_of_a_text_array_are_quoted_plainly():
    with fails("row 0, column 'age' is '39', expected a number"):
        FITTED.transform(np.array([["39", "State", "0"]]))
    with fails("row 1, column 'a' is 'y', expected one of x"):
        OneHot(["a"], [("x",)]).transform(np.array([["x"], ["y"]]))


def test_a_wrong_number_of_columns_says_what_came_and_what_was_expected():
    with fails("(4, 2)", "(rows, 3)"):
        FITTED.transform(TABLE[:, :2])
    with fails("(4, 2)", "(n, 3)"):
        Thermometer.equal(1, 0, 1, (3,)).transform(np.zeros((4, 2)))
    with fails("(3,)", "(rows, 3)"):
        FITTED.transform(TABLE[0])
    with fails("shape", "(rows, 2)"):
        OneHot(["a", "b"], [("x",), ("y",)]).transform([["x"], ["x", "y"]])


@pytest.mark.parametrize("x", [np.array([["a"]]), np.array([[1 + 1j]]), np.array([[None]])])
def test_a_thermometer_takes_numbers_only(x):
    with fails("dtype", "expected numbers"):
        Thermometer.equal(1, 0, 1, (1,)).transform(x)


def test_a_table_of_bytes_is_refused():
    with fails("dtype |S1", "expected"):
        FITTED.transform(np.array([[b"a", b"b", b"c"]]))


@pytest.mark.parametrize(
    "use",
    [
        lambda: Thermometer.quantile(3, (2,)).transform(np.zeros((1, 2))),
        lambda: Thermometer.quantile(3, (2,)).header(),
        lambda: Thermometer.quantile(3, (2,)).arrays(),
        lambda: MIXED.transform(TABLE),
        lambda: MIXED.bit_shape,
        lambda: MIXED.header(),
        lambda: MIXED.arrays(),
        lambda: OneHot(["a"]).transform([["x"]]),
    ],
)
def test_an_encoder_that_was_not_fitted_says_so(use):
    with fails("has not seen samples yet", "call fit"):
        use()


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Thermometer.equal(0, 0, 1, (1,)), ["0 levels", "from 1 up"]),
        (lambda: Thermometer.quantile(1.5, (1,)), ["1.5 levels"]),
        (lambda: Thermometer.equal(3, 1, 1, (1,)), ["1..1", "lower first"]),
        (lambda: Thermometer.equal(3, 0, float("nan"), (1,)), ["0..nan"]),
        (lambda: Thermometer.equal(3, 0, 1, ()), ["shape of a sample is ()"]),
        (lambda: Thermometer.equal(3, 0, 1, (0, 4)), ["shape of a sample is (0, 4)"]),
        (lambda: Thermometer(np.zeros((2, 3)), (2,)), ["(2, 3)", "(levels, 2)"]),
        (lambda: Thermometer(np.array([np.nan]), (2,)), ["not finite"]),
        (lambda: OneHot([]), ["at least one"]),
        (lambda: OneHot(["a", "a"]), ["each name once"]),
        (lambda: OneHot(["a", "b"], [("x",)]), ["2 names for 1 columns"]),
        (lambda: TableEncoder((Category("a", ("x", "x")),)), ["'a'", "each once"]),
        (lambda: TableEncoder((Numeric("a", 2, (2.0, 1.0)),)), ["'a'", "increasing"]),
        (lambda: MIXED.fit(TABLE[:0]), ["no samples"]),
        (lambda: Thermometer.quantile(1, (2,)).fit(np.zeros((0, 2))), ["no samples"]),
        (lambda: TableEncoder.mixed(["a"], [None], 3).fit([[1.0], [1.0]]), ["no bits"]),
    ],
)
def test_an_encoder_that_makes_no_sense_cannot_be_made(make, words):
    with fails(*words):
        make()


@pytest.mark.parametrize(
    ("header", "arrays", "words"),
    [
        ({}, {"thresholds": np.zeros(1)}, ["kind None"]),
        ([], {"thresholds": np.zeros(1)}, ["kind None"]),
        ({"kind": "pickle"}, {"thresholds": np.zeros(1)}, ["'pickle'", "thermometer or table"]),
        ({"kind": "thermometer", "input_shape": [1]}, {}, ["no float64 array"]),
        ({"kind": "thermometer", "input_shape": [1]}, {"thresholds": np.zeros(1, "f4")}, ["no float64 array"]),
        ({"kind": "thermometer"}, {"thresholds": np.zeros(1)}, ["input_shape"]),
        ({"kind": "thermometer", "input_shape": [-1]}, {"thresholds": np.zeros(1)}, ["(-1,)"]),
        ({"kind": "thermometer", "input_shape": ["1"]}, {"thresholds": np.zeros(1)}, ["('1',)"]),
        ({"kind": "thermometer", "input_shape": [2]}, {"thresholds": np.zeros((1, 3))}, ["(1, 3)"]),
        ({"kind": "thermometer", "input_shape": [2]}, {"thresholds": np.full(2, np.inf)}, ["not finite"]),
        ({"kind": "table"}, {"thresholds": np.zeros(0)}, ["columns"]),
        ({"kind": "table", "columns": []}, {"thresholds": np.zeros(0)}, ["at least one"]),
        ({"kind": "table", "columns": ["age"]}, {"thresholds": np.zeros(0)}, ["name"]),
        ({"kind": "table", "columns": [{"name": "a", "values": [1]}]}, {"thresholds": np.zeros(0)}, ["(1,)", "texts"]),
        ({"kind": "table", "columns": [{"name": "a", "values": ["x"]}]}, {"thresholds": np.zeros(2)}, ["expected 0"]),
        (
            {"kind": "table", "columns": [{"name": "a", "levels": 2, "thresholds": 5}]},
            {"thresholds": np.zeros(2)},
            ["'a'", "5 thresholds"],
        ),
        (
            {"kind": "table", "columns": [{"name": "a", "levels": 2, "thresholds": 2}]},
            {"thresholds": np.zeros(2)},
            ["'a'", "increasing"],
        ),
    ],
)
def test_a_malformed_saved_encoder_is_refused(header, arrays, words):
    with fails(*words):
        encoder_from(header, arrays)


def run(code):
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)


def test_encoding_loads_no_torch():
    check = "import sys, gatewise.data, gatewise.encode; sys.exit('torch' in sys.modules)"
    assert run(check).returncode == 0


def test_the_check_that_no_torch_is_loaded_can_fail():
    check = "import sys, gatewise.data.augment; sys.exit('torch' in sys.modules)"
    assert run(check).returncode == 1
