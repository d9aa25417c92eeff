"""`gatewise inspect`: every number it shows, what else it writes, and what it refuses."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from circuits import random_circuit
from runs import Ascii, Done, assert_one_sentence, gatewise

from gatewise.circuit import Circuit, parse, save_circuit, statistics, to_dot
from gatewise.encode import Encoder, TableEncoder, Thermometer
from gatewise.files import write_arrays
from gatewise.model import BooleanModel, Head

pytestmark = pytest.mark.skipif(os.name != "posix", reason="processes are forked, so that each is cheap")

CIRCUIT = random_circuit(np.random.default_rng(0), 18, 60, outputs=13)


def model(encoder: Encoder | None = None, circuit: Circuit = CIRCUIT, **notes: Any) -> BooleanModel:
    return BooleanModel(encoder or Thermometer.equal(3, 0, 255, (2, 3)), circuit, Head(4, 2.5), notes=notes)


def words(done: Done) -> str:
    """What was printed, in one line without the lines of tables."""
    assert (done.code, done.err) == (0, "")
    return " ".join(re.sub("[│┌┐└┘─┬┴█]", " ", done.out).split())


def inspected(tmp_path: Path, found: BooleanModel | Circuit) -> str:
    if isinstance(found, Circuit):
        save_circuit(found, tmp_path / "file")
    else:
        found.save(tmp_path / "file")
    return words(gatewise("inspect", tmp_path / "file", cwd=tmp_path))


def test_a_model_is_shown_with_its_counts_its_encoder_and_its_head(tmp_path: Path) -> None:
    counts = statistics(CIRCUIT)
    shown = inspected(tmp_path, model(dataset="digits"))
    assert 0 < counts.bops < counts.reachable < counts.gates
    for expected in (
        "file: a model",
        "circuit, without encoder and popcount",
        "gates in the file, of 2 inputs each 60",
        f"gates that an output depends on {counts.reachable}",
        f"BOPs, the paper's count: those without constants, identities and negations {counts.bops}",
        "inputs (bits) 18",
        f"inputs that an output depends on {counts.inputs_used}",
        "outputs (bits) 13",
        f"depth: gates on the longest path {counts.depth}",
        f"mean, largest {counts.fan_out_mean:.2f}, {counts.fan_out_max}",
        "encoder thermometer of 3 levels, the same for all values",
        "shape of a sample, and of its bits (2, 3), (6, 3)",
        "head popcount for each class, the largest wins",
        "classes 4",
        "outputs counted for a class 4",
        "tau: a score is the count divided by it 2.5",
        "trained on digits",
        "gates by level " + " ".join(f"{level} {size}" for level, size in enumerate(counts.level_sizes, 1)),
        "gates by what they compute",
    ):
        assert expected in shown, f"{expected!r} not in {shown!r}"
    assert "neurons" not in shown
    gates = {int(table): int(count) for table, count in zip(counts.tables, counts.table_counts, strict=True)}
    assert f" xor {gates[6]} " in shown
    assert f" ~a|b {gates[13]} " in shown


def test_a_circuit_file_is_shown_without_what_it_has_not(tmp_path: Path) -> None:
    shown = inspected(
        tmp_path, parse("circuit inputs=3 k=3\n5 = 0x3c 2 3 4\n6 = 0x01 5 2 3\n7 = 0x01 2 3 4\noutputs 6\n")
    )
    for expected in (
        "file: a circuit",
        "of 3 inputs each 3",
        "gates that an output depends on 2",
        "gates by level 1 2 2 1",
        "how often they are read 0 1 1 2 2 to 3 3",
        "depends on 3 of 3 2 depends on 2 of 3 1",
    ):
        assert expected in shown, f"{expected!r} not in {shown!r}"
    assert "encoder thermometer" not in shown
    assert "head" not in shown


def test_other_encoders_are_told_apart(tmp_path: Path) -> None:
    own = Thermometer(np.random.default_rng(0).random((3, 6)), (6,))
    assert "thermometer of 3 levels, its own for each value" in inspected(tmp_path, model(own))
    rows = [[i, i * i, "abcd"[i % 4]] for i in range(20)]
    table = TableEncoder.mixed(["x", "y", "z"], [None, None, ()], 7).fit(rows)
    assert "encoder table of 2 numeric and 1 category columns" in inspected(tmp_path, model(table))


@pytest.mark.parametrize(
    ("report", "notes", "neurons"),
    [
        ({"gates": 60, "neurons": 1234}, {}, "1,234"),
        ({"gates": 61, "neurons": 1234}, {}, None),  # the report of another circuit
        ({"gates": 60, "neurons": "many"}, {}, None),
        ([], {}, None),
        ({"gates": 61, "neurons": 1234}, {"neurons": 5678}, "5,678"),
    ],
)
def test_neurons_are_shown_where_they_are_known(tmp_path: Path, report: Any, notes: Any, neurons: str | None) -> None:
    model(**notes).save(tmp_path / "model.gatewise")
    (tmp_path / "report.json").write_text(json.dumps(report))
    shown = words(gatewise("inspect", tmp_path, cwd=tmp_path))
    text = "neurons: gates before anything was removed, convolutions unrolled"
    assert (f"{text} {neurons} " in shown) if neurons else (text not in shown)


def test_a_report_that_cannot_be_read_says_nothing(tmp_path: Path) -> None:
    model().save(tmp_path / "model.gatewise")
    for data in (b"", b"\xff", b"[" * 100_000):
        (tmp_path / "report.json").write_bytes(data)
        assert "neurons" not in words(gatewise("inspect", tmp_path, cwd=tmp_path))


def test_many_levels_are_shown_in_few_rows(tmp_path: Path) -> None:
    chain = Circuit(1, np.full(1000, 1), np.arange(2, 1002)[:, None].repeat(2, axis=1), [1002])
    shown = inspected(tmp_path, chain)
    assert "depth: gates on the longest path 1,000" in shown
    assert "gates by level 1 to 42 42 43 to 84 42 " in shown
    assert "967 to 1000 34 " in shown


def test_nothing_but_an_empty_circuit_is_shown_too(tmp_path: Path) -> None:
    assert "gates in the file, of 1 input each 0" in inspected(tmp_path, Circuit(2**31 - 3, [], np.zeros((0, 1)), []))


def test_the_text_is_the_circuit_and_nothing_else(tmp_path: Path) -> None:
    model().save(tmp_path / "m")
    done = gatewise("inspect", "m", "--text", cwd=tmp_path)
    assert (done.code, done.out, done.err) == (0, str(CIRCUIT), "")
    assert parse(done.out) == CIRCUIT


def test_the_drawing_goes_to_a_file(tmp_path: Path) -> None:
    model().save(tmp_path / "m")
    assert "60" in words(gatewise("inspect", "m", "--dot", "m.dot", cwd=tmp_path))
    assert (tmp_path / "m.dot").read_text() == to_dot(CIRCUIT)
    assert_one_sentence(gatewise("inspect", "m", "--dot", "none/m.dot", cwd=tmp_path), "none/m.dot cannot be written")
    save_circuit(random_circuit(np.random.default_rng(0), 9, 5000), tmp_path / "large")
    large = gatewise("inspect", "large", "--dot", "large.dot", cwd=tmp_path)
    assert_one_sentence(large, "5005 gates and outputs", "draw a cone of it")
    assert not (tmp_path / "large.dot").exists()


def test_what_a_file_says_cannot_drive_the_terminal(tmp_path: Path) -> None:
    shown = inspected(tmp_path, model(dataset="\x1b[2J[bold]§"))
    assert "trained on \\x1b[2J[bold]\\xa7" in shown


def test_a_terminal_that_knows_only_ascii_is_enough(tmp_path: Path) -> None:
    model().save(tmp_path / "möbius")
    done = gatewise("inspect", "möbius", cwd=tmp_path, trap=Ascii())
    assert (done.code, done.err) == (0, "")
    assert done.out.isascii()
    assert "#####" in done.out
    assert "m\\xf6bius: a model" in done.out


def test_a_circuit_as_text_is_shown_as_its_file_is(tmp_path: Path) -> None:
    (tmp_path / "file").write_text(str(CIRCUIT))
    assert words(gatewise("inspect", tmp_path / "file", cwd=tmp_path)) == inspected(tmp_path, CIRCUIT)


def test_what_is_neither_model_nor_circuit_is_refused(tmp_path: Path) -> None:
    model().save(tmp_path / "m")
    (tmp_path / "cut").write_bytes((tmp_path / "m").read_bytes()[:-50])
    (tmp_path / "text").write_text("hello")
    (tmp_path / "latin").write_bytes(b"circuit \xff")
    (tmp_path / "empty").mkdir()
    write_arrays(tmp_path / "other", {}, {"format": "\x1b[2J", "version": 1})
    for name, *expected in (
        ("none", "none cannot be read: No such file"),
        ("empty", "empty/model.gatewise cannot be read"),
        ("cut", "cut is damaged"),
        ("text", "the text is no circuit"),
        ("latin", "latin is neither a model nor a circuit"),
        ("other", "other has format '\\x1b[2J': expected 'gatewise-model' or 'gatewise-circuit'"),
        ("/dev/zero", "not a device"),
    ):
        assert_one_sentence(gatewise("inspect", name, cwd=tmp_path), *expected)
