"""The command line: what it prints, where runs go, and that a mistake is one sentence and exit code 2."""

from __future__ import annotations

import errno
import json
import os
import re
import select
import subprocess
import sys
from pathlib import Path

import pytest
from runs import (
    Ascii,
    Done,
    FullDisk,
    SignalAtStep,
    Terminal,
    assert_one_sentence,
    contents,
    flags,
    gatewise,
    metrics,
    monks_files,
    start,
)

import gatewise as package
from gatewise import cli
from gatewise.presets import PRESETS

pytestmark = pytest.mark.skipif(os.name != "posix", reason="processes are forked, so that each is cheap")

COMMANDS = sorted({"train", "data", *(row.name or row.callback.__name__ for row in cli.app.registered_commands)})
LINE = re.compile(
    r"step +[\d,]+  loss \d+\.\d{4}  soft +\d+\.\d\d%  hard +\d+\.\d\d%  redrawn +[\d,]+  [\d.]+ ms a step"
    r"  \d+:\d\d:\d\d left"
)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Done]:
    """A run's folder, and what the run printed."""
    folder = tmp_path_factory.mktemp("finished")
    done = gatewise("train", "digits", *flags(), "--out", "run", cwd=folder)
    assert done.code == 0, done.err
    return folder / "run", done


def assert_plain(text: str) -> None:
    """No control characters but the ends of lines: what a log file or a pipe wants."""
    control = re.findall(r"[\x00-\x09\x0b-\x1f\x7f-\x9f]", text)
    assert not control, f"control characters {sorted(set(control))} in {text[:200]!r}"


# Help


@pytest.mark.parametrize("command", [*COMMANDS, "data pack"])
def test_every_command_explains_itself_with_examples(command: str, tmp_path: Path) -> None:
    done = gatewise(*command.split(), "--help", cwd=tmp_path)
    assert (done.code, done.err) == (0, "")
    assert f"Usage: gatewise {command}" in done.out
    assert re.search(rf"^ Examples?\n\n gatewise {command}\b", re.sub(" +\n", "\n", done.out), re.MULTILINE)
    assert_plain(done.out)


def test_the_help_lists_every_command(tmp_path: Path) -> None:
    done = gatewise("--help", cwd=tmp_path)
    assert done.code == 0
    for command in COMMANDS:
        assert re.search(rf"^│ {command} +\w", done.out, re.MULTILINE), command


def test_the_help_of_train_has_a_flag_for_each_field_of_a_preset(tmp_path: Path) -> None:
    out = gatewise("train", "--help", cwd=tmp_path).out
    for flag in (*flags()[::2], "--data", "--out", "--resume", "--seed", "--protocol", "--device", "--restart"):
        assert f" {flag} " in out, flag
    for name in re.findall(r"gatewise train ([a-z-]+)", out):
        assert name in PRESETS


def test_the_version_is_printed(tmp_path: Path) -> None:
    assert gatewise("--version", cwd=tmp_path).out.strip() == package.__version__


def test_it_runs_as_a_module_of_its_own() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "gatewise.cli", "train", "digit"], capture_output=True, text=True, check=False
    )
    assert_one_sentence(Done(done.returncode, done.stdout, done.stderr), "'digit'", "did you mean digits")


def test_the_presets_are_listed(tmp_path: Path) -> None:
    done = gatewise("presets", cwd=tmp_path)
    assert done.code == 0
    assert_plain(done.out)
    for name in PRESETS:
        assert name in done.out


def test_a_terminal_that_knows_only_ascii_is_enough(tmp_path: Path) -> None:
    for words in (["presets"], ["train", "digits", *flags(steps=1)]):
        done = gatewise(*words, cwd=tmp_path, trap=Ascii())
        assert (done.code, "Traceback" in done.err) == (0, False), done.err
        assert done.out.isascii()


# Output


def test_a_run_that_writes_to_no_terminal_prints_plain_lines(finished: tuple[Path, Done]) -> None:
    _, done = finished
    first, *lines = done.err.splitlines()
    assert first == "digits: 1,290 training samples, 448 bits each; redrawing to the end; on the CPU"
    assert len(lines) == 3
    for line in lines:
        assert LINE.fullmatch(line), line
    assert_plain(done.err + done.out)


@pytest.mark.skipif(sys.platform != "linux", reason="a pseudo-terminal is read to its end")
def test_a_terminal_gets_a_bar_with_an_estimate(tmp_path: Path) -> None:
    keyboard, terminal = os.openpty()
    run = start("train", "digits", *flags(), "--out", "run", cwd=tmp_path, trap=Terminal(os.ttyname(terminal)))
    text = b""
    while b"model, metrics and report" not in text:
        assert select.select([keyboard], [], [], 30)[0], text
        text += os.read(keyboard, 10_000)
    os.close(terminal)
    os.close(keyboard)
    assert run.wait().code == 0
    shown = text.decode()
    assert "━" in shown
    assert "30/30" in shown
    assert shown.count("loss") == 3
    with pytest.raises(AssertionError, match="control characters"):
        assert_plain(shown)


def test_the_summary_says_what_the_report_says(finished: tuple[Path, Done]) -> None:
    folder, done = finished
    report = json.loads((folder / "report.json").read_text())
    words = " ".join(re.sub("[│┌┐└┘─┬┴]", " ", done.out).split())
    for shown in (
        "digits, seed 0",
        f"test accuracy, relaxed network {report['test_relaxed']:.2%}",
        f"test accuracy, circuit {report['test_hard']:.2%}",
        f"checkpoint step {report['best_step']:,}, picked on the validation set",
        "input bits 448",
        "neurons 420",
        f"{report['bops']:,}",
        f"{report['samples_checked']:,} samples",
        "model, metrics and report: run",
    ):
        assert shown in words, f"{shown!r} not in {words!r}"
    assert (report["preset"], report["neurons"], report["best_picked_on"]) == ("digits", 420, "validation")


def test_eval_finds_the_accuracy_that_the_report_has(finished: tuple[Path, Done], tmp_path: Path) -> None:
    folder, _ = finished
    hard = json.loads((folder / "report.json").read_text())["test_hard"]
    expected = f"{hard:.2%} ({round(hard * 364)} of 364 test samples of digits)\n"
    for place in (folder, folder / "model.gatewise"):
        done = gatewise("eval", place, cwd=tmp_path)
        assert (done.code, done.out, done.err) == (0, expected, "")


def test_eval_refuses_what_does_not_fit(finished: tuple[Path, Done], tmp_path: Path) -> None:
    folder, _ = finished
    assert_one_sentence(gatewise("eval", tmp_path / "none", cwd=tmp_path), "none", "cannot be read")
    assert_one_sentence(gatewise("eval", tmp_path, cwd=tmp_path), "model.gatewise", "cannot be read")
    assert_one_sentence(gatewise("eval", folder / "last.safetensors", cwd=tmp_path), "last.safetensors")
    assert_one_sentence(gatewise("eval", folder, "--dataset", "digit", cwd=tmp_path), "'digit'", "digits")
    data = monks_files(tmp_path / "monks")
    wrong = gatewise("eval", folder, "--dataset", "monks-1", "--data", data, cwd=tmp_path)
    assert_one_sentence(wrong, "monks-1 has samples of shape (6,)", "(1, 8, 8)")
    (tmp_path / "cut").write_bytes((folder / "model.gatewise").read_bytes()[:-50])
    assert_one_sentence(gatewise("eval", tmp_path / "cut", cwd=tmp_path), "cut")


@pytest.mark.skipif(sys.platform != "linux", reason="/dev/full is Linux's")
@pytest.mark.parametrize("words", [["presets"], ["--version"], ["train", "digits", *flags(steps=5), "--out", "run"]])
def test_output_that_cannot_be_written_is_one_sentence(words: list[str], tmp_path: Path) -> None:
    done = gatewise(*words, cwd=tmp_path, trap=FullDisk((1,)))
    assert done.code == 2
    said = done.err.splitlines()
    assert said[-1] == f"gatewise: the output cannot be written: {os.strerror(errno.ENOSPC)}"
    assert not [line for line in said if "Traceback" in line or "Exception" in line]
    assert words[0] != "train" or (tmp_path / "run" / "model.gatewise").exists(), "what was trained is saved"


@pytest.mark.skipif(sys.platform != "linux", reason="/dev/full is Linux's")
def test_a_run_whose_log_cannot_be_written_can_be_resumed(tmp_path: Path) -> None:
    words = ["train", "digits", *flags(steps=12), "--out", "run"]
    assert gatewise(*words, cwd=tmp_path, trap=FullDisk((1, 2))).code == 2
    assert gatewise(*words, "--resume", cwd=tmp_path).code == 0


# Where runs go


def test_a_run_without_a_folder_takes_the_next_free_one_and_resuming_takes_the_last(tmp_path: Path) -> None:
    words = ["train", "digits", *flags(steps=12)]
    assert gatewise(*words, cwd=tmp_path).code == 0
    first = contents(tmp_path / "runs" / "digits")
    assert gatewise(*words, "--seed", "1", cwd=tmp_path).code == 0
    assert gatewise(*words, cwd=tmp_path, trap=SignalAtStep(4)).code == 130
    assert {p.name for p in (tmp_path / "runs").iterdir()} == {"digits", "digits-2", "digits-3"}
    assert contents(tmp_path / "runs" / "digits") == first
    assert contents(tmp_path / "runs" / "digits-2")["report.json"] != first["report.json"]
    done = gatewise(*words, "--resume", cwd=tmp_path)
    assert done.code == 0
    assert done.out.endswith("report: runs/digits-3\n")
    third = contents(tmp_path / "runs" / "digits-3")
    assert all(third[name] == first[name] for name in first if name != "metrics.jsonl")
    assert metrics(tmp_path / "runs" / "digits-3") == metrics(tmp_path / "runs" / "digits")
    assert {p.name for p in (tmp_path / "runs").iterdir()} == {"digits", "digits-2", "digits-3"}


def test_a_folder_that_is_named_is_taken_as_it_is(tmp_path: Path) -> None:
    words = ["train", "digits", *flags(steps=1), "--out", "some/where"]
    assert gatewise(*words, cwd=tmp_path).code == 0
    before = contents(tmp_path / "some")
    assert_one_sentence(gatewise(*words, cwd=tmp_path), "some/where holds a run already")
    assert contents(tmp_path / "some") == before
    assert not (tmp_path / "runs").exists()


def test_resuming_without_a_folder_where_there_is_none_is_refused(tmp_path: Path) -> None:
    assert_one_sentence(gatewise("train", "digits", "--resume", cwd=tmp_path), "nothing to resume in runs/digits")


def test_a_run_that_never_saved_leaves_its_folder_to_the_next(tmp_path: Path) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()
    assert_one_sentence(gatewise("train", "monks-1", *flags(steps=5), "--data", empty, cwd=tmp_path), "monks-1.train")
    data = monks_files(tmp_path / "monks")
    assert gatewise("train", "monks-1", *flags(steps=5), "--data", data, cwd=tmp_path).code == 0
    assert [p.name for p in (tmp_path / "runs").iterdir()] == ["monks-1"]


# Mistakes


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("digit", "digits"),
        ("mnist-regular", "mnist-regular-s"),
        ("cifar-conv-xl", "cifar-conv-l"),
        ("Ecg", "ecg"),
        ("", "digits"),
        ("§", "digits"),
    ],
)
def test_a_preset_that_is_not_there_is_answered_with_those_like_it(name: str, words: str, tmp_path: Path) -> None:
    assert_one_sentence(gatewise("train", name, cwd=tmp_path), f"there is no preset {name!r}", "did you mean", words)
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize(
    ("words", "answer"),
    [
        (["--dense", "8000;8000"], "dense is a list of whole numbers such as 8000,8000, not '8000;8000'"),
        (["--dense", "60"], "60 neurons with two inputs each cannot read all 448 inputs: use at least 224"),
        (["--dense", "-5"], "not -5"),
        (["--dense", ""], "dense names no layer and k is 0"),
        (["--steps", "-1"], "steps must be at least 1, not -1"),
        (["--rate", "-0.1"], "rate must be a positive number, not -0.1"),
        (["--candidates", "3", "--init", "residual"], "at least 4 candidates, not 3"),
        (["--init", "zero"], "init is 'normal' or 'residual', not 'zero'"),
        (["--wiring", "none"], "wiring is 'learned' or 'fixed', not 'none'"),
        (["--protocol", "test"], "protocol is one of validation, paper, not 'test'"),
        (["--device", "cuda:99"], "device 'cuda:99' cannot be used"),
        (["--protocol", "paper", "--batch", "365"], "batch=365 is more than the 364 test samples"),
    ],
)
def test_a_setting_without_sense_is_one_sentence(words: list[str], answer: str, tmp_path: Path) -> None:
    assert_one_sentence(gatewise("train", "digits", *flags(), *words, cwd=tmp_path), answer)


@pytest.mark.parametrize(
    "words", [["train"], ["train", "digits", "--stesp", "3"], ["trian"], ["train", "digits", "--rate"]]
)
def test_words_that_are_no_command_are_explained_without_a_traceback(words: list[str], tmp_path: Path) -> None:
    done = gatewise(*words, cwd=tmp_path)
    assert (done.code, done.out) == (2, "")
    assert "╭─ Error ─" in done.err
    assert "Traceback" not in done.err


def test_missing_data_is_named_with_the_folder(tmp_path: Path) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()
    for folder in (empty, tmp_path / "none"):
        done = gatewise("train", "mnist-regular-s", "--data", folder, "--out", "run", cwd=tmp_path)
        assert_one_sentence(done, "mnist", "train-images", str(folder))
    assert not list(tmp_path.glob("run/*.safetensors"))


def test_damaged_data_is_named(tmp_path: Path) -> None:
    data = monks_files(tmp_path / "monks")
    (data / "monks-1.train").write_text(" 1 1 1 1 1 3\n")
    done = gatewise("train", "monks-1", *flags(), "--data", data, cwd=tmp_path)
    assert_one_sentence(done, "monks-1.train", "line 1")


@pytest.mark.parametrize("capturing", [False, True])
def test_a_gpu_without_enough_memory_is_one_sentence(capturing, monkeypatch, capsys):
    """PyTorch's own errors; where a graph was being captured, ending the capture raises another one."""

    def fail() -> None:
        try:
            raise RuntimeError("CUDA out of memory. Tried to allocate 2.00 GiB.")
        finally:
            if capturing:
                raise RuntimeError("capture_end: unjoined work")

    monkeypatch.setattr(cli, "app", fail)
    monkeypatch.setattr(cli.sys, "argv", ["gatewise", "presets"])
    fail.command = lambda *args, **options: lambda function: function
    with pytest.raises(SystemExit, match="2"):
        cli.main()
    assert capsys.readouterr().err == (
        "gatewise: the GPU has not enough memory: ask for a smaller --batch, --k or --dense, or --precision float16\n"
    )
