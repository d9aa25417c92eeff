"""A circuit and its popcount as a program of the C core, which runs hundreds of samples at a time.

A program is planned when it is made, in milliseconds: gates are ordered by level and operation, and each value gets a
slot of a state that is as small as what is alive at a time. Nothing is compiled.

B samples, D features, M outputs.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gatewise import core
from gatewise.circuit.handover import arrays, describe, sizes
from gatewise.circuit.ir import Circuit

WIDEST = 512
"""Samples in the widest word."""

MAX_K = 3
"""Inputs of a gate that a program can run; wider ones are to be expanded first."""

_NOT_FINITE = -4
_RESULTS = {"classes": 0, "counts": 1, "bits": 2}
_KINDS = {"packed": 0, "uint8": 1, "float32": 2, "float64": 3}


class _Program(ctypes.Structure):
    _fields_ = [
        *sizes("inputs", "outputs", "classes", "gates", "runs", "code_length", "slots"),
        *arrays("run", "code", "input_slot", "output_slot"),
    ]


class _Source(ctypes.Structure):
    _fields_ = [*sizes("kind", "planes", "features"), *arrays("threshold", "always")]


@functools.cache
def _entry(name: str) -> Callable[..., int]:
    function = getattr(core.library(), name)
    size, pointer, number = ctypes.c_int64, ctypes.c_void_p, ctypes.c_int
    function.argtypes = {
        "gw_plan": [pointer, pointer],
        "gw_state_bytes": [pointer],
        "gw_run": [pointer, pointer, pointer, size, size, pointer, number, pointer, number],
    }[name]
    function.restype = size if name == "gw_state_bytes" else number
    return function  # type: ignore[no-any-return]


class Source:
    """What the rows given to a program are, and how they become bits.

    >>> program.run(Source.bits(784), bits.view(np.uint8), "classes")
    """

    def __init__(self, kind: str, threshold: NDArray[Any], always: NDArray[np.bool_]) -> None:
        """`threshold` [planes, D] has the dtype of the rows: bit plane * D + f is x[f] > threshold[plane, f], or 1."""
        planes, self.features = threshold.shape
        filled = ((0, 0), (0, -self.features % 64))
        self._threshold = np.ascontiguousarray(np.pad(threshold, filled))
        self._always = np.packbits(np.pad(always, filled), axis=1, bitorder="little")
        self.inputs = planes * self.features
        addresses = (self._threshold.ctypes.data, self._always.ctypes.data)
        self.struct = _Source(_KINDS[kind], planes, self.features, *addresses)

    @classmethod
    def bits(cls, inputs: int) -> Source:
        """Rows [B, inputs] of bits, a byte (0 or 1) each."""
        return cls("uint8", np.zeros((1, inputs), np.uint8), np.zeros((1, inputs), np.bool_))

    @classmethod
    def packed(cls, inputs: int) -> Source:
        """Rows [B, ⌈inputs / 8⌉] of bytes with eight bits each, the first in the lowest place."""
        return cls("packed", np.zeros((1, inputs), np.uint8), np.zeros((1, inputs), np.bool_))

    @classmethod
    def above(cls, thresholds: NDArray[np.float64], dtype: np.dtype[Any]) -> Source | None:
        """Exactly x > thresholds [planes, D] for rows [B, D] of `dtype`; None for one that the core does not know."""
        if dtype.name not in ("uint8", "float32", "float64") or not dtype.isnative:
            return None
        if dtype.kind == "u":
            floor = np.floor(thresholds)
            return cls(dtype.name, floor.clip(0, 255).astype(np.uint8), floor < 0)
        with np.errstate(over="ignore"):
            below = thresholds.astype(dtype)
        # The largest number of the rows' dtype that is not above a threshold decides as the threshold does.
        below = np.where(below > thresholds, np.nextafter(below, dtype.type(-np.inf)), below)
        return cls(dtype.name, below, np.zeros(below.shape, np.bool_))


class NotFiniteError(ValueError):
    """A number among the rows is not finite."""


class Program:
    """A circuit of gates with up to three inputs, and how many classes its outputs are counted for.

    >>> Program(circuit, classes=10).run(Source.bits(circuit.inputs), bits.view(np.uint8), "classes")
    """

    def __init__(self, circuit: Circuit, classes: int = 1) -> None:
        assert circuit.k <= MAX_K, circuit.k
        self.inputs, self.outputs, self.classes = circuit.inputs, len(circuit.outputs), classes
        run, code = np.empty((circuit.gates, 2), np.int32), np.empty(4 * circuit.gates, np.uint32)
        input_slot, output_slot = np.empty(self.inputs, np.int32), np.empty(self.outputs, np.int32)
        self._struct = _Program(0, 0, classes)
        self._hold(run, code, input_slot, output_slot)
        core.check(_entry("gw_plan")(ctypes.byref(describe(circuit)), ctypes.byref(self._struct)))
        self.gates, self.runs, self.slots = self._struct.gates, self._struct.runs, self._struct.slots
        self._hold(run[: self.runs].copy(), code[: self._struct.code_length].copy(), input_slot, output_slot)
        self.state_bytes = _entry("gw_state_bytes")(ctypes.addressof(self._struct))
        self._states: list[NDArray[np.uint8]] = []

    gates: int
    """Gates that run: those that outputs need, wires and constants folded."""
    runs: int
    """Loops over gates of one operation."""
    slots: int
    """Values that the state holds."""
    state_bytes: int
    """Memory that a thread works in."""

    def _hold(self, *arrays: NDArray[Any]) -> None:
        """Keep the arrays of the program alive and tell the core where they are."""
        self._arrays = arrays
        for name, array in zip(("run", "code", "input_slot", "output_slot"), arrays, strict=True):
            setattr(self._struct, name, array.ctypes.data)

    def run(self, source: Source, rows: NDArray[Any], result: str) -> NDArray[Any]:
        """Rows, as the source says they are, to one of these results; on all threads that the core has.

        "classes": int64 [B], the class of the highest count, the lowest of equal ones. "counts": int32 [B, classes].
        "bits": bool [B, M].
        """
        assert source.inputs == self.inputs, (source.inputs, self.inputs)
        if rows.ndim != 2 or rows.strides[1] != rows.itemsize or rows.strides[0] < 0:
            rows = np.ascontiguousarray(rows)
        samples = len(rows)
        shapes = {"classes": (samples,), "counts": (samples, self.classes), "bits": (samples, -(-self.outputs // 64))}
        out: NDArray[Any] = np.empty(shapes[result], {"classes": "i8", "counts": "i4", "bits": "u8"}[result])
        first_row, first_out, row_bytes, out_bytes = rows.ctypes.data, out.ctypes.data, rows.strides[0], out.strides[0]
        given = (ctypes.addressof(self._struct), ctypes.addressof(source.struct))

        def samples_of(start: int, stop: int) -> int:
            begin, to = first_row + start * row_bytes, first_out + start * out_bytes
            # Memory to work in, which is kept for later calls; each thread takes its own.
            try:
                memory = self._states.pop()
            except IndexError:
                memory = np.empty(self.state_bytes + 64, np.uint8)
            aligned = -(-memory.ctypes.data // 64) * 64
            call = (begin, row_bytes, stop - start, aligned, _RESULTS[result], to, core.level())
            status = _entry("gw_run")(*given, *call)
            self._states.append(memory)
            if status == _NOT_FINITE:
                raise NotFiniteError
            return status

        core.run_spans(samples_of, core.split(samples, WIDEST) if samples > WIDEST else [(0, samples)])
        return _unpacked(out, self.outputs) if result == "bits" else out


def _unpacked(words: NDArray[Any], outputs: int) -> NDArray[np.bool_]:
    octets = words.astype("<u8", copy=False).view(np.uint8)
    return np.unpackbits(octets, axis=1, count=outputs, bitorder="little").view(np.bool_)
