"""Models from features to classes, and the files they are kept in."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from circuits import random_circuit
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import gatewise
from gatewise.circuit import Circuit, simulate
from gatewise.encode import TableEncoder, Thermometer
from gatewise.errors import CircuitError, ConfigError, EncodingError, FileError, GatewiseError
from gatewise.files import read_arrays, write_arrays, write_atomically
from gatewise.model import FORMAT, VERSION, BooleanModel, Head, load

SHAPE = (2, 3)


def model(seed: int = 0, k: int = 2, **changed: Any) -> BooleanModel:
    """A model of six features, 18 bits, 4 classes and 13 outputs, so that the last class is padded."""
    circuit = random_circuit(np.random.default_rng(seed), 18, 60, k, outputs=13)
    parts = {"encoder": Thermometer.equal(3, 0, 255, SHAPE), "circuit": circuit, "head": Head(4, 2.5)}
    return BooleanModel(**parts | changed)


def features(count: int, seed: int = 1) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (count, *SHAPE), dtype=np.uint8)


def assert_same_model(found: BooleanModel, expected: BooleanModel) -> None:
    assert found.circuit == expected.circuit
    assert (found.head, found.class_names, found.notes) == (expected.head, expected.class_names, expected.notes)
    x = features(200)
    assert np.array_equal(found.encoder.transform(x), expected.encoder.transform(x))
    assert np.array_equal(found.predict_scores(x), expected.predict_scores(x))


def damaged(path: Path, header: Any = None, **arrays: Any) -> Path:
    """The file at `path` with its header or arrays exchanged and its checksum made to fit."""
    old_arrays, old_header = read_arrays(path, FORMAT, VERSION)
    new = {name: array for name, array in (old_arrays | arrays).items() if array is not None}
    write_arrays(path, new, old_header if header is None else header)
    return path


@pytest.mark.parametrize(
    ("outputs", "classes", "counts"),
    [(6, 3, [2, 1, 1]), (5, 3, [2, 1, 0]), (5, 4, [2, 1, 0, 0]), (2, 4, [1, 1, 0, 0]), (0, 2, [0, 0]), (6, 1, [4])],
)
def test_a_head_counts_equal_groups_in_order_and_pads_the_last(outputs: int, classes: int, counts: list[int]) -> None:
    bits = np.array([[1, 1, 1, 0, 0, 1][:outputs]], bool).reshape(1, outputs)
    assert Head(classes).count(bits).tolist() == [counts]
    assert Head(classes, 4).scores(bits).tolist() == [[count / 4 for count in counts]]


def test_ties_go_to_the_lowest_class() -> None:
    wires = Circuit(6, [], np.zeros((0, 2)), np.arange(2, 8))
    tied = BooleanModel(Thermometer.equal(1, 0, 1, (6,)), wires, Head(3))
    x = np.array([[0, 1, 1, 0, 0, 1], [0, 0, 1, 1, 1, 1], [0, 0, 0, 0, 0, 0]])
    assert tied.predict(x).tolist() == [0, 1, 0]
    assert tied.predict(x).dtype == np.int64
    assert tied.predict_scores(x).tolist() == [[1, 1, 1], [0, 2, 2], [0, 0, 0]]


@pytest.mark.parametrize("count", [0, 1, 64, 300])
def test_scores_are_counts_of_what_the_circuit_shows(count: int) -> None:
    m, x = model(), features(count)
    bits = m.encoder.transform(x)
    shown = np.pad(simulate(m.circuit, bits.reshape(count, 18)), ((0, 0), (0, 3)))
    expected = np.array([shown[:, 4 * c : 4 * c + 4].sum(axis=1) for c in range(4)]).T / 2.5
    assert np.array_equal(m.predict_scores(x), expected)
    assert m.predict_scores(x).dtype == np.float64
    assert np.array_equal(m.predict(x), expected.argmax(axis=1))
    for same in (bits, bits.reshape(count, 18), bits.astype(np.int64)):
        assert np.array_equal(m.predict_bits(same), expected.argmax(axis=1))


def test_samples_taken_in_blocks_give_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    x = features(300).astype(np.int64)  # which the encoder turns into bits, not the core
    expected = model().predict_scores(x)
    monkeypatch.setattr("gatewise.engine._BLOCK_BITS", 1)
    assert np.array_equal(model().predict_scores(x), expected)
    assert np.array_equal(model().predict_scores(features(300)), expected)


DTYPES = ("uint8", "int16", "uint16", "int64", "float16", "float32", "float64")


@pytest.mark.parametrize("dtype", [*DTYPES, *(np.dtype(name).newbyteorder() for name in DTYPES[1:])], ids=str)
def test_features_may_be_of_any_type_of_number_in_any_order_of_bytes_and_place(dtype: Any) -> None:
    m, x = model(), features(130)
    expected = m.predict_scores(x)
    assert len(np.unique(expected, axis=0)) > 10
    apart = np.zeros((260, 4, 3), dtype)
    apart[::2, 1:3] = x
    for same in (x.astype(dtype), x[::-1].astype(dtype)[::-1], np.asfortranarray(x.astype(dtype)), apart[::2, 1:3]):
        assert np.array_equal(m.predict_scores(same), expected)


def test_features_of_another_shape_or_type_are_refused() -> None:
    m = model()
    with pytest.raises(
        EncodingError, match=r"shape \(2, 3\): expected \(n, 2, 3\); for one sample, pass a batch of one"
    ):
        m.predict(features(1)[0])
    with pytest.raises(EncodingError, match=r"shape \(5, 6\)"):
        m.predict(features(5).reshape(5, 6))
    with pytest.raises(EncodingError, match="dtype"):
        m.predict(features(5).astype(str))
    with pytest.raises(EncodingError, match="no array"):
        m.predict([[[1, 2, 3], [4, 5]]])
    with pytest.raises(CircuitError, match=r"shape \(5, 6\): expected 18 bits"):
        m.predict_bits(np.zeros((5, 6), bool))
    with pytest.raises(CircuitError, match="dtype float64"):
        m.predict_bits(np.zeros((5, 18)))


def test_parts_that_do_not_fit_are_refused() -> None:
    with pytest.raises(CircuitError, match=r"the encoder makes 12 bits .* the circuit has 18 inputs"):
        model(encoder=Thermometer.equal(2, 0, 255, SHAPE))
    with pytest.raises(ConfigError, match="expected 4 texts"):
        model(class_names=("yes", "no"))
    for classes, tau in ((0, 1), (2, 0), (2, float("nan")), (2, float("inf")), ("two", 1), (2.0, 1), (2, "x")):
        with pytest.raises(ConfigError, match="the head has"):
            Head(classes, tau)  # type: ignore[arg-type]


@pytest.mark.parametrize("k", range(1, 7))
def test_saving_and_loading_gives_the_same_model(tmp_path: Path, k: int) -> None:
    notes = {"accuracy": 0.9731, "protocol": "validation", "naïve": [1, None, True]}
    before = model(k=k, class_names=("a", "b", "c", "ß"), notes=notes)
    before.save(tmp_path / "model.safetensors")
    assert_same_model(load(tmp_path / "model.safetensors"), before)
    assert_same_model(gatewise.load(str(tmp_path / "model.safetensors")), before)


def test_a_model_of_a_table_takes_rows_of_numbers_and_texts(tmp_path: Path) -> None:
    rows = [[20, "yes"], [30, "no"], [40, "yes"], [50, "no"]]
    encoder = TableEncoder.mixed(["age", "member"], [None, ()], 3).fit(rows)
    wires = Circuit(5, [], np.zeros((0, 2)), [5, 6])
    BooleanModel(encoder, wires, Head(2)).save(tmp_path / "m")
    assert load(tmp_path / "m").predict(rows).tolist() == [1, 0, 1, 0]
    assert load(tmp_path / "m").predict(np.array(rows, object)).tolist() == [1, 0, 1, 0]


def test_equal_models_are_equal_files(tmp_path: Path) -> None:
    for name in "abcd":
        model(notes={"x": 1, "y": 2}).save(tmp_path / name)
    assert len({(tmp_path / name).read_bytes() for name in "abcd"}) == 1


def test_a_new_file_replaces_the_old_one_and_leaves_nothing_beside_it(tmp_path: Path) -> None:
    for seed in (0, 1):
        model(seed).save(tmp_path / "m")
        assert_same_model(load(tmp_path / "m"), model(seed))
    assert os.listdir(tmp_path) == ["m"]


def test_a_link_stays_a_link(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "real")
    write_atomically(tmp_path / "link", b"text")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "real").read_bytes() == b"text"


@pytest.mark.parametrize("function", ["fsync", "replace"])
def test_a_failure_while_writing_leaves_the_old_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, function: str
) -> None:
    model(0).save(tmp_path / "m")

    def fail(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, function, fail)
    with pytest.raises(FileError, match="m cannot be written: No space left on device"):
        model(1).save(tmp_path / "m")
    monkeypatch.undo()
    assert_same_model(load(tmp_path / "m"), model(0))
    assert os.listdir(tmp_path) == ["m"]


@pytest.mark.parametrize("error", [OSError(errno.EIO, "Input/output error"), KeyboardInterrupt(), RuntimeError("no")])
def test_whatever_stops_a_writer_half_way_leaves_the_old_file(tmp_path: Path, error: BaseException) -> None:
    (tmp_path / "f").write_bytes(b"old")

    def write_half(file: Any) -> None:
        file.write(b"ne")
        raise error

    with pytest.raises(FileError if isinstance(error, OSError) else type(error)):
        write_atomically(tmp_path / "f", write_half)
    assert (tmp_path / "f").read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["f"]


def test_a_writer_may_write_in_pieces(tmp_path: Path) -> None:
    write_atomically(tmp_path / "f", lambda file: [file.write(piece) for piece in (b"new", b"er")])
    assert (tmp_path / "f").read_bytes() == b"newer"


def test_a_place_that_cannot_be_written_or_read_is_an_error_of_ours(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    with pytest.raises(FileError, match="missing/m cannot be written: No such file or directory"):
        model().save(tmp_path / "missing" / "m")
    with pytest.raises(FileError, match="folder cannot be written: Is a directory"):
        model().save(tmp_path / "folder")
    assert os.listdir(tmp_path) == ["folder"]
    for name, reason in (("missing", "No such file"), ("folder", "No such file"), ("a\0b", "null")):
        with pytest.raises(FileError, match=f"cannot be read: .*{reason}"):
            load(tmp_path / name)


def test_a_folder_stands_for_the_model_that_a_run_left_in_it(tmp_path: Path) -> None:
    model().save(tmp_path / "model.gatewise")
    assert_same_model(load(tmp_path), model())


def test_notes_that_are_no_json_are_refused_and_write_nothing(tmp_path: Path) -> None:
    with pytest.raises(FileError, match="m cannot be written: its header is not JSON"):
        model(notes={"set": {1}}).save(tmp_path / "m")
    assert os.listdir(tmp_path) == []


def test_foreign_files_are_refused_by_name(tmp_path: Path) -> None:
    path = tmp_path / "m"
    for data in (b"", b"\0" * 7, b"\xff" * 100, b"\2\0\0\0\0\0\0\0{}", b"\x80\4pickle", b'{"format": "json"}' * 9):
        path.write_bytes(data)
        with pytest.raises(FileError, match="m is no gatewise file"):
            load(path)
    write_arrays(path, {}, {"format": "gatewise-checkpoint", "version": 1})
    with pytest.raises(FileError, match="m has format 'gatewise-checkpoint' version 1: expected 'gatewise-model'"):
        load(path)
    write_arrays(path, {}, {"format": FORMAT, "version": 2})
    with pytest.raises(FileError, match="version 2: expected 'gatewise-model' version 1"):
        load(path)


def test_every_truncation_is_noticed(tmp_path: Path) -> None:
    model().save(tmp_path / "m")
    whole = (tmp_path / "m").read_bytes()
    for length in range(0, len(whole), 7):
        (tmp_path / "m").write_bytes(whole[:length])
        with pytest.raises(FileError, match=r"cut off|damaged"):
            load(tmp_path / "m")


@given(st.data())
@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_changed_byte_is_noticed_or_changes_nothing(tmp_path: Path, data: st.DataObject) -> None:
    path, original = tmp_path / "m", model()
    original.save(path)
    content = bytearray(path.read_bytes())
    for _ in range(data.draw(st.integers(1, 3))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    path.write_bytes(content)
    try:
        found = load(path)
    except GatewiseError as error:
        message = str(error)
    else:
        assert_same_model(found, original)
        return
    assert str(path) in message


HEADERS: list[tuple[tuple[str, ...], Any]] = [
    (("encoder",), None),
    (("encoder", "kind"), "magic"),
    (("encoder", "input_shape"), [2, -3]),
    (("circuit",), []),
    (("circuit", "inputs"), "18"),
    (("circuit", "inputs"), 17),
    (("head",), 4),
    (("head", "classes"), 0),
    (("head", "tau"), None),
    (("head", "tau"), 10**400),
    (("class_names",), "abcd"),
    (("class_names",), [1, 2, 3, 4]),
    (("class_names",), ["one"]),
    (("notes",), None),
]


@pytest.mark.parametrize(("place", "value"), HEADERS)
def test_a_header_that_makes_no_sense_is_refused(tmp_path: Path, place: tuple[str, ...], value: Any) -> None:
    model().save(tmp_path / "m")
    header = json.loads(json.dumps(read_arrays(tmp_path / "m", FORMAT, VERSION)[1]))
    part = header
    for key in place[:-1]:
        part = part[key]
    part[place[-1]] = value
    with pytest.raises(FileError, match="m holds no sound model: "):
        load(damaged(tmp_path / "m", header))
    del part[place[-1]]
    with pytest.raises(FileError, match="m holds no sound model: "):
        load(damaged(tmp_path / "m", header))


@pytest.mark.parametrize(
    ("name", "array"),
    [
        ("circuit.table", None),
        ("circuit.table", np.full(60, 16)),
        ("circuit.fanin", np.full((60, 2), 999)),
        ("circuit.fanin", np.zeros(60)),
        ("circuit.outputs", np.array([0.5])),
        ("encoder.thresholds", None),
        ("encoder.thresholds", np.zeros((2, 2, 2))),
        ("encoder.thresholds", np.zeros(4)),
    ],
)
def test_arrays_that_make_no_model_are_refused(tmp_path: Path, name: str, array: Any) -> None:
    model().save(tmp_path / "m")
    with pytest.raises(FileError, match="m holds no sound model: "):
        load(damaged(tmp_path / "m", **{name: array}))


@pytest.mark.parametrize("header", [[], "text", None, 1])
def test_a_header_that_is_no_table_is_refused(tmp_path: Path, header: Any) -> None:
    write_arrays(tmp_path / "m", {}, header)
    with pytest.raises(FileError, match="has format None"):
        load(tmp_path / "m")


def test_arrays_of_any_kind_come_back_as_they_were(tmp_path: Path) -> None:
    arrays = {"scalar": np.array(2.5), "empty": np.zeros((3, 0), np.int16), "turned": np.arange(6).reshape(2, 3).T}
    arrays |= {"bits": np.array([True, False]), "swapped": np.arange(3, dtype=">i4"), "half": np.ones(2, np.float16)}
    write_arrays(tmp_path / "f", arrays, {"format": "test", "version": 3, "loss": float("inf")})
    found, header = read_arrays(tmp_path / "f", "test", 3)
    assert header == {"format": "test", "version": 3, "loss": float("inf")}
    assert found.keys() == arrays.keys()
    for name, array in arrays.items():
        assert found[name].dtype == array.dtype.newbyteorder("=")
        assert np.array_equal(found[name], array)
        assert found[name].shape == array.shape
