"""`gatewise compile`: the file it leaves, what it prints, and that don't-cares see the training set alone."""

from __future__ import annotations

import json
import os
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
from circuits import assert_equal_bits, random_circuit
from runs import assert_one_sentence, contents, flags, gatewise, monks_files
from test_equivalence import multiplier

from gatewise import compilation
from gatewise.circuit import PIPELINE, Circuit, count_bops, simulate
from gatewise.compilation import check, compile_model, training_samples
from gatewise.data import load_dataset
from gatewise.encode import Thermometer
from gatewise.errors import CircuitError
from gatewise.model import BooleanModel, Head, load

pytestmark = pytest.mark.skipif(os.name != "posix", reason="processes are forked, so that each is cheap")


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a short run."""
    folder = tmp_path_factory.mktemp("trained")
    done = gatewise("train", "digits", *flags(), "--out", "run", cwd=folder)
    assert done.code == 0, done.err
    return folder / "run"


@pytest.fixture
def run(trained: Path, tmp_path: Path) -> Path:
    """A copy of it."""
    return Path(shutil.copytree(trained, tmp_path / "run"))


def number(printed: str, row: str) -> list[int]:
    """The numbers in a row of a printed table."""
    (line,) = [line for line in printed.splitlines() if row in line]
    return [int(text.replace(",", "")) for text in re.findall(r"│ +([\d,]+) (?=│)", line)]


# The command


def test_names_are_printed_as_they_are_brackets_too(run: Path, tmp_path: Path) -> None:
    done = gatewise("compile", run, "-o", "small [bold].gatewise", cwd=tmp_path)
    assert (done.code, done.err) == (0, "")
    assert "compiled model: small [bold].gatewise\n" in done.out


def test_a_run_is_compiled_into_another_file_of_the_same_function(run: Path, tmp_path: Path) -> None:
    before = contents(run)
    done = gatewise("compile", run, cwd=tmp_path)
    assert (done.code, done.err) == (0, "")
    assert contents(run).items() > before.items(), "nothing that was there may change"
    model, compiled = load(run / "model.gatewise"), load(run / "compiled.gatewise")
    assert compiled.circuit.gates < model.circuit.gates
    bits = np.random.default_rng(0).random((65_536, model.circuit.inputs)) < 0.5
    assert_equal_bits(simulate(compiled.circuit, bits), simulate(model.circuit, bits))
    x = load_dataset("digits").test_x
    assert np.array_equal(compiled.predict_scores(x), model.predict_scores(x))


def test_what_it_prints_is_what_it_did(run: Path, tmp_path: Path) -> None:
    printed = gatewise("compile", run, cwd=tmp_path).out
    model, compiled = load(run / "model.gatewise"), load(run / "compiled.gatewise")
    gates = [model.circuit.gates, compiled.circuit.gates]
    assert number(printed, "gates, NOTs") == gates
    assert number(printed, "BOPs") == [count_bops(model.circuit), count_bops(compiled.circuit)]
    passes = [apply.__name__ for apply in PIPELINE]
    assert sum(number(printed, f"│ {name} ")[1] for name in passes) == gates[0] - gates[1]
    assert "before and optimised: Proved equal in " in printed
    assert f"compiled model: {run / 'compiled.gatewise'}" in printed
    noted = compiled.notes["compiled"]
    assert noted["sizes"]["optimised"]["gates"] == gates[1]
    assert noted["verdict"].startswith("Proved equal in ")


@pytest.mark.parametrize("k", [3, 6])
def test_gates_of_more_inputs_are_fewer_and_predict_the_same(run: Path, tmp_path: Path, k: int) -> None:
    done = gatewise("compile", run, "--luts", str(k), cwd=tmp_path)
    assert (done.code, done.err) == (0, "")
    assert len(number(done.out, "gates, NOTs")) == 3
    assert "In LUTs: Proved equal in " in done.out
    model, compiled = load(run / "model.gatewise"), load(run / "compiled.gatewise")
    assert compiled.circuit.k == k
    assert compiled.circuit.gates < compiled.notes["compiled"]["sizes"]["optimised"]["gates"]
    assert compiled.program is not None, "the engine runs it, not the simulator"
    x = load_dataset("digits").test_x
    assert np.array_equal(compiled.predict_scores(x), model.predict_scores(x))


def test_what_is_too_hard_to_prove_in_time_is_said_to_be_open() -> None:
    verdict = check(*(multiplier(12, by_columns=by) for by in (False, True)), time_limit=0.5)
    assert verdict.startswith("Undecided after ")


def test_a_model_file_is_compiled_beside_itself_or_where_it_is_told(run: Path, tmp_path: Path) -> None:
    shutil.move(run / "model.gatewise", tmp_path / "my.gatewise")
    assert gatewise("compile", "my.gatewise", cwd=tmp_path).code == 0
    assert gatewise("compile", "my.gatewise", "-o", "small.gatewise", "--no-check", cwd=tmp_path).code == 0
    one, other = load(tmp_path / "my.compiled.gatewise"), load(tmp_path / "small.gatewise")
    assert one.circuit == other.circuit
    assert other.notes["compiled"]["verdict"] == "not checked"


def test_a_compiled_model_is_evaluated_as_the_model_was(run: Path, tmp_path: Path) -> None:
    assert gatewise("compile", run, cwd=tmp_path).code == 0
    before, after = (gatewise("eval", run / name, cwd=tmp_path) for name in ("model.gatewise", "compiled.gatewise"))
    assert after.code == 0
    assert after.out == before.out


def test_the_model_itself_is_never_overwritten(run: Path, tmp_path: Path) -> None:
    before = contents(run)
    for out in ("run/model.gatewise", "run/../run/model.gatewise"):
        done = gatewise("compile", run, "-o", out, cwd=tmp_path)
        assert_one_sentence(done, "is the model itself", "another name with -o")
    assert contents(run) == before


def test_mistakes_are_one_sentence(run: Path, tmp_path: Path) -> None:
    (tmp_path / "text.gatewise").write_text("text")
    assert_one_sentence(gatewise("compile", "none", cwd=tmp_path), "none", "cannot be read")
    assert_one_sentence(gatewise("compile", tmp_path, cwd=tmp_path), "model.gatewise", "cannot be read")
    assert_one_sentence(gatewise("compile", "text.gatewise", cwd=tmp_path), "text.gatewise is no gatewise file")
    assert_one_sentence(gatewise("compile", run, "-o", "no/folder", cwd=tmp_path), "no/folder cannot be written")
    (run / "report.json").write_text('{"settings": {"dataset": "digits"}}')
    assert_one_sentence(gatewise("compile", run, "--dont-cares", cwd=tmp_path), "report.json does not say")
    (run / "report.json").unlink()
    assert_one_sentence(gatewise("compile", run, "--dont-cares", cwd=tmp_path), "--dont-cares needs", "report.json")


# Don't-cares


def test_dont_cares_are_asked_for_measured_and_called_lossy(run: Path, tmp_path: Path) -> None:
    done = gatewise("compile", run, "--dont-cares", cwd=tmp_path)
    assert (done.code, done.err) == (0, "")
    before, optimised, with_them = number(done.out, "gates, NOTs")
    assert with_them < optimised < before
    assert load(run / "compiled.gatewise").circuit.gates == with_them
    assert re.search(r"│ merge_on_data +│ +1 │ .*│ lossy │", done.out)
    assert re.search(
        r"don't-cares are lossy: accuracy [\d.]+% without, [\d.]+% with them, on 143 training samples of digits, "
        r"which the run held out",
        done.out,
    )


def test_dont_cares_keep_every_training_sample_and_report_the_held_out_ones(run: Path) -> None:
    model = load(run / "model.gatewise")
    samples = training_samples(model, run / "report.json", None)
    compiled = compile_model(model, samples=samples)
    splits = load_dataset("digits")
    assert samples.count + len(samples.held_y) == len(splits.train_y)
    held = {row.tobytes() for row in samples.held_x}
    used = np.array([row.tobytes() not in held for row in splits.train_x])
    assert abs(int(used.sum()) - samples.count) < 10, "but for samples that are equal"
    x = splits.train_x[used]
    assert np.array_equal(compiled.model.predict_scores(x), model.predict_scores(x))
    without, with_them = compiled.accuracy or (0, 0)
    assert without == (model.predict(samples.held_x) == samples.held_y).mean()
    assert with_them == (compiled.model.predict(samples.held_x) == samples.held_y).mean()


def test_the_held_out_samples_are_those_that_picked_the_checkpoint(run: Path) -> None:
    model = load(run / "model.gatewise")
    samples = training_samples(model, run / "report.json", None)
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    picked = max(line["hard"] for line in lines)
    assert (model.predict(samples.held_x) == samples.held_y).mean() == pytest.approx(picked, abs=1e-6)


def test_dont_cares_do_not_depend_on_the_test_set(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = load(run / "model.gatewise")
    expected = compile_model(model, samples=training_samples(model, run / "report.json", None))
    splits = load_dataset("digits")
    splits.test_x[:] = 0
    splits.test_y[:] = 0
    monkeypatch.setattr("gatewise.data.load_dataset", lambda *arguments: splits)
    found = compile_model(model, samples=training_samples(model, run / "report.json", None))
    assert found.model.circuit == expected.model.circuit
    assert found.accuracy == expected.accuracy


def test_a_run_of_the_papers_protocol_keeps_training_samples_from_merging(tmp_path: Path) -> None:
    data = monks_files(tmp_path / "monks")
    words = ["--data", data, "--protocol", "paper", "--batch", "16", "--dense", "48,24", "--tau", "1"]
    done = gatewise("train", "monks-1", *flags(), *words, "--out", "run", cwd=tmp_path)
    assert done.code == 0, done.err
    done = gatewise("compile", "run", "--dont-cares", "--data", data, cwd=tmp_path)
    assert done.code == 0, done.err
    assert "training samples of monks-1, which the run was trained on, but nothing was merged on" in done.out


# The check


@pytest.mark.parametrize("inputs", [2, 7, 16, 40])
def test_one_flipped_row_is_found_and_shown(inputs: int) -> None:
    pair = [[2, 3]]
    one, other = Circuit(inputs, [1], pair, [2 + inputs]), Circuit(inputs, [3], pair, [2 + inputs])
    assert check(one, one).startswith("Proved equal in ")
    with pytest.raises(CircuitError, match=r"the circuits differ on the bits 10[01]*: please report this"):
        check(one, other)


def test_circuits_of_other_shapes_are_not_compared() -> None:
    with pytest.raises(CircuitError, match="only circuits with as many compare"):
        check(Circuit(2, [1], [[2, 3]], [4]), Circuit(2, [1], [[2, 3]], [4, 4]))


def test_a_pipeline_that_breaks_the_circuit_does_not_get_past_the_check(monkeypatch: pytest.MonkeyPatch) -> None:
    circuit = random_circuit(np.random.default_rng(1), 12, 60, outputs=8)
    model = BooleanModel(Thermometer.equal(3, 0, 255, (2, 2)), circuit, Head(2))
    broken = Circuit(12, circuit.table, circuit.fanin, circuit.outputs[::-1])
    optimized = compilation.optimize(broken)
    monkeypatch.setattr(compilation, "optimize", lambda circuit: optimized)
    with pytest.raises(CircuitError, match="the circuits differ"):
        compile_model(model)
    assert compile_model(model, checked=False).verdict == "not checked"
