"""Progress of a training run: a bar with an estimate on a terminal, a line an evaluation elsewhere."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.progress import Progress as Bar

QUIET_SECONDS = 60.0
"""The longest silence where there is no terminal."""


@contextlib.contextmanager
def working(what: str, *, quiet: bool = False) -> Iterator[Callable[[int, int], None]]:
    """A callback (done, total) for slow work: a bar with an estimate on a terminal, a line a minute elsewhere."""
    console = Console(stderr=True)
    started = said = time.monotonic()
    with Bar(console=console, transient=True, disable=quiet or not console.is_terminal) as bar:
        task = bar.add_task(what, total=None)

        def report(done: int, total: int) -> None:
            nonlocal said
            bar.update(task, completed=done, total=total)
            now = time.monotonic()
            if not quiet and not console.is_terminal and now - said > QUIET_SECONDS and 0 < done < total:
                said = now
                say(f"{what}: {done / total:.0%}  {_clock((now - started) / done * (total - done))} left")

        yield report


def loading(name: str, *, quiet: bool = False) -> contextlib.AbstractContextManager[Callable[[int, int], None]]:
    """A callback (done, total) for slow work on a dataset that is loaded."""
    return working(f"loading {name}", quiet=quiet)


def say(line: str) -> None:
    """A line beside what a command prints."""
    print(line, file=sys.stderr, flush=True)


class Progress:
    """Shows how far a run is; on a terminal the bar moves, and evaluations are printed above it."""

    def __init__(self, name: str, total: int, start: int = 0, *, quiet: bool = False) -> None:
        self.console = Console(stderr=True, quiet=quiet)
        self.total, self.start, self.started = total, start, time.monotonic()
        columns = (TextColumn("[bold]{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        self.bar = Bar(*columns, TextColumn("left"), TimeRemainingColumn(), console=self.console)
        self.live, self.quiet = self.console.is_terminal and not quiet, quiet
        self.task = self.bar.add_task(name, total=total, completed=start)
        self.name, self.said = name, time.monotonic()

    def __enter__(self) -> Progress:
        if self.live:
            self.bar.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self.live:
            self.bar.stop()

    def advance(self, step: int) -> None:
        """The run has done `step` steps."""
        if self.live:
            self.bar.update(self.task, completed=step)
        elif time.monotonic() - self.said > QUIET_SECONDS:
            self._say(f"step {step:>7,}  {self._left(step)} left")

    def begin(self, line: str) -> None:
        """What is about to happen."""
        self._say(f"{self.name}: {line}")

    def report(self, metrics: dict[str, Any]) -> None:
        """One evaluation, as a line."""
        step, left = metrics["step"], self._left(metrics["step"])
        line = (
            f"step {step:>7,}  loss {metrics['loss']:.4f}  soft {metrics['soft']:7.2%}  hard {metrics['hard']:7.2%}"
            f"  redrawn {sum(metrics['redrawn']):>8,}  {metrics['step_ms']:.1f} ms a step"
        )
        if self.live:
            self.console.print(line, highlight=False)
        else:
            self._say(f"{line}  {left} left")

    def _say(self, line: str) -> None:
        self.said = time.monotonic()
        if self.live:
            self.console.print(line, highlight=False)
        elif not self.quiet:
            say(line)

    def _left(self, step: int) -> str:
        seconds = (time.monotonic() - self.started) / max(step - self.start, 1) * (self.total - step)
        return _clock(seconds)


def _clock(seconds: float) -> str:
    minutes, seconds = divmod(round(seconds), 60)
    return f"{minutes // 60}:{minutes % 60:02}:{seconds:02}"
