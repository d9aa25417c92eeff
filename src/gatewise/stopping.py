"""A user who stops a run: Ctrl-C and requests to terminate become a flag that the loop looks at between steps."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterator


class Interrupted(Exception):
    """The user stopped the run, which has been saved."""


class StopRequest:
    """Turns the first Ctrl-C, or a request to terminate, into a flag; a second one stops at once."""

    def __init__(self) -> None:
        self.asked = False

    def _ask(self, number: int, frame: object) -> None:
        if self.asked:
            raise KeyboardInterrupt
        self.asked = True

    @contextlib.contextmanager
    def listening(self) -> Iterator[None]:
        """Listen within the block, if this is the main thread (others get no signals)."""
        try:
            before = {number: signal.signal(number, self._ask) for number in (signal.SIGINT, signal.SIGTERM)}
        except ValueError:
            before = {}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
