"""`gatewise bench`: what it prints, and what it refuses."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from circuits import random_circuit
from runs import assert_one_sentence, gatewise

from gatewise import core, speed
from gatewise.encode import Category, Numeric, TableEncoder, Thermometer
from gatewise.model import BooleanModel, Head


def model(encoder: Thermometer | TableEncoder) -> BooleanModel:
    inputs = int(np.prod(encoder.bit_shape))
    return BooleanModel(encoder, random_circuit(np.random.default_rng(0), inputs, 200, outputs=20), Head(4))


def test_a_saved_model_is_timed_from_features_and_from_bits(tmp_path: Path) -> None:
    model(Thermometer.equal(3, 0, 255, (1, 4, 4))).save(tmp_path / "m.gatewise")
    done = gatewise("bench", "m.gatewise", "--seconds", "0.01", "--threads", "2", cwd=tmp_path)
    assert done.code == 0, done.err
    for kind in ("uint8 features", "bits", "packed bits"):
        assert kind in done.out
    rows = re.findall(r"│ +([\d,]+) │ +([\d.,]+) µs │ +([\d,]+) │", done.out)
    assert [row[0] for row in rows] == [f"{batch:,}" for batch in speed.BATCHES] * 3
    for batch, microseconds, rate in rows:
        expected = 1e6 * int(batch.replace(",", "")) / float(microseconds.replace(",", ""))
        assert abs(int(rate.replace(",", "")) / expected - 1) < 0.1
    assert re.search(r"\d+ gates in \d+ runs on [\d,]+ slots", done.out)


def test_a_table_is_timed_from_bits_alone() -> None:
    table = TableEncoder((Numeric("age", 2, (3.0, 5.0)), Category("kind", ("a", "b"))))
    kinds = {timing.rows for timing in speed.measure(model(table), seconds=0.001)}
    assert kinds == {"bits", "packed bits"}


def test_the_number_of_threads_is_put_back() -> None:
    before = core.fixed_threads()
    speed.measure(model(Thermometer.equal(1, 0, 1, (9,))), threads=3, seconds=0.001)
    assert core.fixed_threads() == before


@pytest.mark.parametrize("flags", [("--threads", "0"), ("--seconds", "0"), ("--seconds", "nan")])
def test_what_cannot_be_timed_is_refused(tmp_path: Path, flags: tuple[str, str]) -> None:
    model(Thermometer.equal(1, 0, 1, (9,))).save(tmp_path / "m.gatewise")
    assert_one_sentence(gatewise("bench", "m.gatewise", *flags, cwd=tmp_path), "expected at least 1 thread")


def test_a_file_that_is_no_model_is_refused(tmp_path: Path) -> None:
    (tmp_path / "m.gatewise").write_bytes(b"nothing")
    assert_one_sentence(gatewise("bench", "m.gatewise", cwd=tmp_path), "m.gatewise")
