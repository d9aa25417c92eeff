"""Runs of the command line in processes of their own: forked from one that has loaded torch, so that each is cheap.

A run can be given a `trap`, a function called in its process before it starts, which is where a test plants a crash.
"""

from __future__ import annotations

import dataclasses
import json
import multiprocessing
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from gatewise.presets import Preset, preset

PATIENCE_SECONDS = 60
Trap = Callable[[], object]

# Three small layers, neurons redrawn every few steps, a last batch that is smaller, evaluations that do not divide.
TINY = {"dense": (240, 120, 60), "patience": 3, "batch": 64, "eval_every": 10, "steps": 30}


def tiny(name: str = "digits", **fields: Any) -> Preset:
    """A row that trains in a fraction of a second."""
    return dataclasses.replace(preset(name), **(TINY | fields))


def flags(**fields: Any) -> list[str]:
    """The command line's flags for `tiny(**fields)`."""
    words = []
    for name, value in (TINY | fields).items():
        text = ",".join(map(str, value)) if isinstance(value, tuple) else str(value)
        words += [f"--{name.replace('_', '-')}", text]
    return words


@dataclass(frozen=True)
class Done:
    """What a finished process left: its exit code (negative: the signal that killed it) and what it printed."""

    code: int
    out: str
    err: str


@dataclass
class Running:
    """A process on its way."""

    process: BaseProcess
    printed: Path

    @property
    def pid(self) -> int:
        assert self.process.pid is not None
        return self.process.pid

    def wait(self) -> Done:
        self.process.join(PATIENCE_SECONDS)
        if self.process.exitcode is None:
            self.process.kill()
            self.process.join()
            raise AssertionError(f"still running after {PATIENCE_SECONDS} s: {self.text('err')}")
        return Done(self.process.exitcode, self.text("out"), self.text("err"))

    def text(self, stream: str) -> str:
        return (self.printed / stream).read_text()


def start(*arguments: str | Path, cwd: Path, trap: Trap | None = None, **environment: str) -> Running:
    """`gatewise` with these arguments, in a process of its own, working in `cwd`."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["gatewise.cli", "gatewise.finish"])
    printed = cwd / ".printed" / str(len(list(cwd.glob(".printed/*"))))
    printed.mkdir(parents=True)
    words = [str(argument) for argument in arguments]
    process = context.Process(target=_command, args=(words, cwd, printed, trap, environment))
    process.start()
    return Running(process, printed)


def gatewise(*arguments: str | Path, cwd: Path, trap: Trap | None = None, **environment: str) -> Done:
    """The same, until it has ended."""
    return start(*arguments, cwd=cwd, trap=trap, **environment).wait()


def _command(words: list[str], cwd: Path, printed: Path, trap: Trap | None, environment: dict[str, str]) -> None:
    os.chdir(cwd)
    os.environ.update({"COLUMNS": "120", "NO_COLOR": "1"} | environment)
    for number, name in ((1, "out"), (2, "err")):
        descriptor = os.open(printed / name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o666)
        os.dup2(descriptor, number)
        os.close(descriptor)
    sys.argv = ["gatewise", *words]
    if trap is not None:
        trap()
    from gatewise.cli import main

    main()


def metrics(folder: Path) -> list[dict[str, Any]]:
    """The lines of a run's metrics.jsonl, without the one number that is a matter of the clock."""
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return [{name: value for name, value in line.items() if name != "step_ms"} for line in lines]


def assert_same_run(folder: Path, other: Path, *files: str) -> None:
    """Two run folders hold the same bytes in `files`, and the same metrics but for the time a step took."""
    for name in files or ("last.safetensors", "best.safetensors", "model.gatewise", "report.json"):
        assert (folder / name).read_bytes() == (other / name).read_bytes(), f"{name} differs"
    assert metrics(folder) == metrics(other)


def assert_one_sentence(done: Done, *words: str) -> None:
    """The command refused with exit code 2 and one sentence, which has these words in it, and nothing else."""
    assert done.code == 2, f"exit code {done.code}: {done.err}"
    assert done.out == ""
    lines = done.err.splitlines()
    assert len(lines) == 1, done.err
    assert lines[0].startswith("gatewise: ")
    missing = [word for word in words if word not in lines[0]]
    assert not missing, f"{missing} not in {lines[0]!r}"


def contents(folder: Path) -> dict[str, bytes]:
    """Every file below a folder, by name."""
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}
