"""`gatewise verify`: what it prints, its exit codes, and that a mistake is one sentence."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path

import numpy as np
import pytest
from circuits import random_circuit
from rewrites import flipped, rewritten
from runs import assert_one_sentence, gatewise
from test_equivalence import multiplier

from gatewise.circuit import Circuit, parse, prune, save_circuit, simulate
from gatewise.encode import Thermometer
from gatewise.model import BooleanModel, Head

pytestmark = pytest.mark.skipif(os.name != "posix", reason="processes are forked, so that each is cheap")


@pytest.fixture
def model() -> BooleanModel:
    circuit = prune(random_circuit(np.random.default_rng(0), 12, 80, outputs=10))
    return BooleanModel(Thermometer.equal(3, low=0, high=1, shape=(4,)), circuit, Head(5, 2.0))


def changed(model: BooleanModel, **fields: object) -> BooleanModel:
    return dataclasses.replace(model, **fields)


def wrong(circuit: Circuit) -> Circuit:
    """The circuit with its first output inverted."""
    inverter = [circuit.outputs[0]] * circuit.k
    table, fanin = [*circuit.table.tolist(), 12], [*circuit.fanin.tolist(), inverter]
    return Circuit(circuit.inputs, table, fanin, [circuit.nets, *circuit.outputs[1:].tolist()])


def test_equal_models_circuits_and_run_folders_are_proved(model: BooleanModel, tmp_path: Path) -> None:
    other = changed(model, circuit=rewritten(model.circuit, np.random.default_rng(1)), notes={"dataset": "digits"})
    (tmp_path / "run").mkdir()
    model.save(tmp_path / "run" / "model.gatewise")
    other.save(tmp_path / "other.gatewise")
    (tmp_path / "text.txt").write_text(f"# as text\n{other.circuit}")
    save_circuit(other.circuit, tmp_path / "other.circuit")
    for pair in (["run", "other.gatewise"], ["text.txt", "run"], ["other.circuit", "run"]):
        done = gatewise("verify", *pair, cwd=tmp_path)
        assert done.code == 0, done.err
        assert done.out.startswith("Proved equal in ")
        assert len(done.out.splitlines()) == 1
        assert done.err.startswith("bringing both into one graph, ")
        assert " s left\n" in done.err


def test_different_circuits_are_refuted_and_the_witness_is_written(model: BooleanModel, tmp_path: Path) -> None:
    model.save(tmp_path / "a.gatewise")
    (tmp_path / "b.txt").write_text(str(wrong(model.circuit)))
    done = gatewise("verify", "a.gatewise", "b.txt", "--witness", "differ.npy", cwd=tmp_path)
    assert done.code == 1, done.err
    first, second, third = done.out.splitlines()
    assert first.startswith("Refuted in ")
    assert "output 0 differs" in first
    assert second.startswith("witness: of 12 inputs, these are 1: ")
    assert third == "written to differ.npy"
    witness = np.load(tmp_path / "differ.npy")
    assert witness.dtype == np.bool_
    shown = [simulate(c, witness[None])[0, 0] for c in (model.circuit, parse((tmp_path / "b.txt").read_text()))]
    assert shown[0] != shown[1]


@pytest.mark.parametrize(
    ("fields", "what"),
    [
        ({"head": Head(5, 3.0)}, "heads"),
        ({"encoder": Thermometer.equal(3, low=0, high=2, shape=(4,))}, "encoders"),
        ({"encoder": Thermometer.equal(3, low=0, high=2, shape=(4,)), "head": Head(2)}, "encoders and heads"),
        ({"class_names": ("a", "b", "c", "d", "e")}, "class names"),
    ],
)
def test_models_that_differ_around_the_circuit_are_refuted(
    model: BooleanModel, fields: dict[str, object], what: str, tmp_path: Path
) -> None:
    model.save(tmp_path / "a.gatewise")
    changed(model, **fields).save(tmp_path / "b.gatewise")
    done = gatewise("verify", "a.gatewise", "b.gatewise", cwd=tmp_path)
    assert (done.code, done.out) == (1, f"Refuted: the models have different {what}.\n")


def test_what_is_too_hard_is_undecided(tmp_path: Path) -> None:
    for name, by_columns in (("a.txt", False), ("b.txt", True)):
        (tmp_path / name).write_text(str(multiplier(12, by_columns=by_columns)))
    done = gatewise("verify", "a.txt", "b.txt", "--time-limit", "0.5", cwd=tmp_path)
    assert done.code == 3
    assert done.out.startswith("Undecided after ")


def test_mistakes_are_one_sentence(model: BooleanModel, tmp_path: Path) -> None:
    model.save(tmp_path / "a.gatewise")
    (tmp_path / "one.txt").write_text("circuit inputs=1 k=2\noutputs 2\n")
    (tmp_path / "empty.txt").write_text("")
    (tmp_path / "picture.png").write_bytes(b"\x89PNG\r\n\x1a\n\0\0\0")
    (tmp_path / "latin.txt").write_bytes(b"circuit \xff")
    (tmp_path / "folder").mkdir()
    for words, parts in (
        (["a.gatewise", "missing"], ("missing cannot be read",)),
        (["a.gatewise", "folder"], ("folder/model.gatewise cannot be read",)),
        (["a.gatewise", "one.txt"], ("12 inputs", "1")),
        (["a.gatewise", "empty.txt"], ("no circuit",)),
        (["picture.png", "a.gatewise"], ("picture.png is neither a model nor a circuit",)),
        (["latin.txt", "a.gatewise"], ("latin.txt is neither a model nor a circuit, nor one as text",)),
        (["a.gatewise", "a.gatewise", "--time-limit", "0"], ("time_limit is 0.0",)),
        (["a.gatewise", "a.gatewise", "--seed", "-1"], ("seed is -1",)),
    ):
        assert_one_sentence(gatewise("verify", *words, cwd=tmp_path), *parts)


def test_a_flipped_gate_is_seen(model: BooleanModel, tmp_path: Path) -> None:
    """A flip is refuted just when it changes an output for some input, all of which are tried here."""
    model.save(tmp_path / "a.gatewise")
    rows = np.arange(2**12)[:, None] >> np.arange(12) & 1
    shown = simulate(model.circuit, rows)
    for gate in (0, model.circuit.gates - 1):
        other = flipped(model.circuit, gate, 0)
        (tmp_path / "b.txt").write_text(str(other))
        done = gatewise("verify", "a.gatewise", "b.txt", cwd=tmp_path)
        assert done.code == int((simulate(other, rows) != shown).any())
