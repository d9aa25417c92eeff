"""Runs of the command line in processes of their own: forked from one that has loaded torch, so that each is cheap.

A run can be given a `trap`, called in its process before it starts: that is where a test plants a crash.
"""

from __future__ import annotations

import ctypes
import dataclasses
import functools
import json
import multiprocessing
import os
import signal
import stat
import sys
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from gatewise.presets import Preset, preset

PATIENCE_SECONDS = 60
Trap = Callable[[], object]

# Three small layers whose neurons are redrawn every few steps.
TINY = {
    "thresholds": 7,
    "dense": (240, 120, 60),
    "tau": 8.0,
    "patience": 3,
    "steps": 30,
    "resample_steps": 1_000,
    "eval_every": 10,
    "rate": 0.02,
    "batch": 64,
}


def tiny(name: str = "digits", **fields: Any) -> Preset:
    """A row that trains in a fraction of a second."""
    return dataclasses.replace(preset(name), **(TINY | fields))


def flags(**fields: Any) -> list[str]:
    """`tiny(**fields)`, and fields of the options, as flags of the command line."""
    words = []
    for name, value in (TINY | fields).items():
        text = ",".join(map(str, value)) if isinstance(value, tuple) else str(value)
        words += [f"--{name.replace('_', '-')}", text]
    return words


@dataclass(frozen=True)
class Done:
    """What a process left: its exit code (negative: the signal that killed it) and what it printed."""

    code: int
    out: str
    err: str


@dataclass
class Running:
    """A process on its way."""

    process: BaseProcess
    printed: Path

    def wait(self) -> Done:
        self.process.join(PATIENCE_SECONDS)
        code = self.process.exitcode
        if code is None:
            self.process.kill()
            self.process.join()
            raise AssertionError(f"still running after {PATIENCE_SECONDS} s: {self.text('err')[-1000:]}")
        self.process.close()
        return Done(code, self.text("out"), self.text("err"))

    def text(self, stream: str) -> str:
        return (self.printed / stream).read_text()


def start(*arguments: str | Path, cwd: Path, trap: Trap | None = None) -> Running:
    """`gatewise` with these arguments, in a process of its own that works in `cwd`."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["gatewise.cli", "gatewise.finish", "torch._dynamo"])  # optimizers load the last
    printed = cwd / ".printed" / str(len(list(cwd.glob(".printed/*"))))
    printed.mkdir(parents=True)
    process = context.Process(target=_command, args=([str(a) for a in arguments], cwd, printed, trap))
    process.start()
    return Running(process, printed)


def gatewise(*arguments: str | Path, cwd: Path, trap: Trap | None = None) -> Done:
    """The same, until it has ended."""
    return start(*arguments, cwd=cwd, trap=trap).wait()


def _command(words: list[str], cwd: Path, printed: Path, trap: Trap | None) -> None:
    os.chdir(cwd)
    os.environ |= {"COLUMNS": "120", "NO_COLOR": "1"}
    for number, name in ((1, "out"), (2, "err")):
        _redirect(number, printed / name)
    sys.argv = ["gatewise", *words]
    if trap is not None:
        trap()
    from gatewise.cli import main

    main()


def _redirect(number: int, path: str | Path) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT, 0o666)
    os.dup2(descriptor, number)
    os.close(descriptor)


STAGES = ("torn", "written", "renamed")


@dataclass(frozen=True)
class DieWhileSaving:
    """Kill the process in the course of its `file`-th write (from 0), at one of STAGES.

    `torn` leaves half of the bytes, as a power cut may; `written` stops before the file has its name.
    """

    file: int
    stage: str

    def __call__(self) -> None:
        flush, rename = os.fsync, os.replace
        file = -1

        def dying_fsync(descriptor: int) -> None:
            nonlocal file
            if stat.S_ISREG(os.fstat(descriptor).st_mode):  # or it is the folder
                file += 1
                if (file, "torn") == (self.file, self.stage):
                    os.ftruncate(descriptor, os.fstat(descriptor).st_size // 2)
                    die()
            flush(descriptor)

        def dying_replace(source: str, target: str) -> None:
            if (file, "written") == (self.file, self.stage):
                die()
            rename(source, target)
            if (file, "renamed") == (self.file, self.stage):
                die()

        os.fsync, os.replace = dying_fsync, dying_replace


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


@dataclass(frozen=True)
class ListWrites:
    """Write the name of each file that is saved, in order, into `names`."""

    names: Path

    def __call__(self) -> None:
        rename = os.replace

        def listing_replace(source: str, target: str) -> None:
            rename(source, target)
            with self.names.open("a") as file:
                print(Path(target).name, file=file)

        os.replace = listing_replace


@dataclass(frozen=True)
class SignalAtStep:
    """Send the process these signals as it takes the batch of a step."""

    step: int
    numbers: tuple[int, ...] = (signal.SIGINT,)

    def __call__(self) -> None:
        from gatewise.batches import Batches

        take = Batches.take

        @functools.wraps(take)
        def signalling_take(batches: Batches, step: int) -> Any:
            for number in self.numbers if step == self.step else ():
                os.kill(os.getpid(), number)
            return take(batches, step)

        Batches.take = signalling_take  # type: ignore[method-assign]


@dataclass(frozen=True)
class SmallFiles:
    """No file may grow beyond so many bytes; the attempt is an OSError, as on a full disk."""

    size: int

    def __call__(self) -> None:
        import resource

        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (self.size, self.size))


@dataclass(frozen=True)
class SaveEachStep:
    """Save a checkpoint at every step, not every minute."""

    def __call__(self) -> None:
        import gatewise.train

        gatewise.train.SAVE_SECONDS = -1.0


@dataclass(frozen=True)
class Both:
    """Two traps."""

    first: Trap
    second: Trap

    def __call__(self) -> None:
        self.first()
        self.second()


@dataclass(frozen=True)
class Terminal:
    """Print to this terminal."""

    name: str

    def __call__(self) -> None:
        os.environ["TERM"] = "xterm"
        _redirect(1, self.name)
        _redirect(2, self.name)


@dataclass(frozen=True)
class Ascii:
    """Print in an encoding that has no more than ASCII."""

    def __call__(self) -> None:
        for stream in (sys.stdout, sys.stderr):
            stream.reconfigure(encoding="ascii")  # type: ignore[union-attr]


@dataclass(frozen=True)
class FullDisk:
    """What the process prints to these descriptors (1 is the output, 2 the errors) goes to a disk that is full."""

    descriptors: tuple[int, ...]

    def __call__(self) -> None:
        for number in self.descriptors:
            _redirect(number, "/dev/full")


def respect_permissions() -> None:
    """Give up what lets root read and write everything, should the tests run as root (on Linux)."""
    if os.getuid() == 0:
        version, no_capabilities = (ctypes.c_uint32 * 2)(0x20080522, 0), (ctypes.c_uint32 * 6)()
        if ctypes.CDLL(None).capset(version, no_capabilities):
            raise OSError("capset failed")


def metrics(folder: Path) -> list[dict[str, Any]]:
    """The lines of a run's metrics.jsonl, without the one number that is a matter of the clock."""
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return [{name: value for name, value in line.items() if name != "step_ms"} for line in lines]


def assert_same_run(folder: Path, other: Path) -> None:
    """Two finished run folders hold files of the same names and bytes, but for the time a step took."""
    one, two = contents(folder), contents(other)
    assert list(one) == list(two)
    for name in one:
        assert name == "metrics.jsonl" or one[name] == two[name], f"{name} differs"
    assert metrics(folder) == metrics(other)
    finished = {"best.safetensors", "last.safetensors", "metrics.jsonl", "model.gatewise", "report.json"}
    assert finished <= set(one), f"{folder} has no {finished - set(one)}"


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


def monks_files(folder: Path) -> Path:
    """A folder with a small monks-1 dataset, its label a function of two columns."""
    folder.mkdir()
    rows = [
        f" {int(a == b)} {a} {b} {c} {d} {e} {f} data_{a}{b}{c}{d}{e}{f}"
        for a in (1, 2, 3) for b in (1, 2, 3) for c in (1, 2) for d in (1, 2, 3) for e in (1, 2, 3, 4) for f in (1, 2)
    ]  # fmt: skip
    (folder / "monks-1.test").write_text("\n".join(rows) + "\n")
    (folder / "monks-1.train").write_text("\n".join(rows[::3]) + "\n")
    return folder
