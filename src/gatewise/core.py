"""The C core: loading it, the vector width it uses, and work split over threads. No torch here."""

from __future__ import annotations

import ctypes
import functools
import os
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path

from gatewise.errors import KernelError

LEVELS = {"baseline": 0, "avx2": 1, "avx512": 2}


@functools.cache
def _library() -> ctypes.CDLL | str:
    """The loaded core, or why there is none."""
    found = sorted(Path(__file__).parent.glob("*gatewise_core.*"))
    if not found:
        return "the C core is not built (pip install builds it; in a source tree, `make core` does)"
    try:
        return ctypes.CDLL(str(found[0]))
    except OSError as error:
        return f"the C core cannot be loaded ({error})"


def available() -> bool:
    """Whether the C core is there."""
    return isinstance(_library(), ctypes.CDLL)


def why_not() -> str:
    """One clause that says why `available()` is false."""
    library = _library()
    return library if isinstance(library, str) else "it is available"


def library() -> ctypes.CDLL:
    """The C core, or a KernelError that says why there is none."""
    loaded = _library()
    if isinstance(loaded, str):
        raise KernelError(loaded)
    return loaded


_level = -1


def set_level(name: str | None) -> None:
    """Use the named vector width, or the widest this processor has. For tests and benchmarks."""
    global _level
    _level = -1 if name is None else LEVELS[name]


def level() -> int:
    """The vector width to ask the core for; -1 is the widest."""
    return _level


def levels() -> list[str]:
    """The vector widths this processor has."""
    best = library().gw_best_level()
    return [name for name, level in LEVELS.items() if level <= best]


_threads: int | None = None


def set_threads(count: int | None) -> None:
    """How many threads the C core gets; None follows torch where it is loaded, else OMP_NUM_THREADS or the processor.

    >>> set_threads(1)
    """
    global _threads
    _threads = count


def fixed_threads() -> int | None:
    """What `set_threads` said last."""
    return _threads


def threads() -> int:
    """How many threads the C core gets."""
    if _threads is not None:
        return _threads
    if "torch" in sys.modules:
        return int(sys.modules["torch"].get_num_threads())
    asked = os.environ.get("OMP_NUM_THREADS", "")
    if asked.isdecimal() and int(asked) > 0:
        return int(asked)
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@functools.cache
def _pool(workers: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(workers, thread_name_prefix="gatewise")


if hasattr(os, "register_at_fork"):  # a forked process has the pool, but none of its threads
    os.register_at_fork(after_in_child=_pool.cache_clear)


def run_spans(call: Callable[[int, int], int], spans: list[tuple[int, int]]) -> None:
    """Call `call(start, stop)` on each span: the first here, each other one on a thread of its own."""
    if len(spans) == 1:
        check(call(*spans[0]))
        return
    others = [_pool(len(spans) - 1).submit(call, *span) for span in spans[1:]]
    try:
        statuses = [call(*spans[0])]
    finally:
        wait(others)  # whatever happens, nobody may still write when the caller lets go of the arrays
    statuses += [other.result() for other in others]
    for status in statuses:
        check(status)


def check(status: int) -> None:
    """Raise unless a function of the core returned GW_OK."""
    if status != 0:
        raise KernelError(f"the C core refused its arguments with status {status}")


def split(size: int, grain: int = 1) -> list[tuple[int, int]]:
    """Spans that cover `size`: at most one a thread, each a multiple of `grain` long, but the last."""
    length = max(1, -(-size // (threads() * grain))) * grain
    return [(start, min(start + length, size)) for start in range(0, max(size, 1), length)]
