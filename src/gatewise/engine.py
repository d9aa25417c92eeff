"""What a model predicts with: the C core's program for its circuit, or, where there is no core, the simulator.

n samples, M circuit outputs.
"""

from __future__ import annotations

import functools
import logging
import math
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gatewise import core
from gatewise.circuit import Circuit, Program, Simulator, Source, map_luts
from gatewise.circuit.program import MAX_K, NotFiniteError
from gatewise.encode import Encoder, Thermometer
from gatewise.errors import CircuitError

log = logging.getLogger("gatewise")

_BLOCK_BITS = 1 << 27
"""Bits that are not made by the core itself are made in blocks of about this many."""

Counts = NDArray[np.int32]
Classes = NDArray[np.int64]


def count(bits: NDArray[np.bool_], classes: int) -> NDArray[np.int64]:
    """Outputs [n, M] to counts [n, classes] over equal groups, in order; where outputs end early, zeros are counted."""
    samples, outputs = bits.shape
    size = -(-outputs // classes)
    padded = np.pad(bits, ((0, 0), (0, size * classes - outputs)))
    counts: NDArray[np.int64] = padded.reshape(samples, classes, size).sum(axis=2, dtype=np.int64)
    return counts


class Engine:
    """Counts and classes of a circuit's outputs, from the features of an encoder or from bits."""

    def __init__(self, encoder: Encoder, circuit: Circuit, classes: int) -> None:
        self.encoder, self.inputs, self.classes_count = encoder, circuit.inputs, classes
        self.program = None
        if core.available():
            self.program = Program(circuit if circuit.k <= MAX_K else map_luts(circuit, MAX_K, rounds=1), classes)
        self._simulator = Simulator(circuit) if self.program is None else None
        if not core.available():
            _say_why_not()
        self._sources: dict[np.dtype[Any], Source | None] = {}
        self._bits, self._packed = Source.bits(circuit.inputs), Source.packed(circuit.inputs)

    def classes(self, features: NDArray[Any]) -> Classes:
        """The class of the highest count, the lowest of equal ones, [n]."""
        return self._of_features(features, "classes")

    def counts(self, features: NDArray[Any]) -> Counts:
        """How many outputs of each class are 1, [n, classes]."""
        return self._of_features(features, "counts")

    def classes_of_bits(self, bits: NDArray[Any], packed: bool) -> Classes:
        """Classes from bits [n, …], or from packed rows."""
        if not packed:
            return self._of_bits(self._checked_bits(bits), "classes")
        rows = self._checked_packed(bits)
        if self.program is not None:
            return self.program.run(self._packed, rows, "classes")
        return self._of_bits(np.unpackbits(rows, axis=1, count=self.inputs, bitorder="little"), "classes")

    def _of_features(self, features: NDArray[Any], result: str) -> NDArray[Any]:
        source = self._source(features.dtype)
        if source is not None and self.program is not None:
            try:
                return self.program.run(source, features.reshape(len(features), source.features), result)
            except NotFiniteError:
                self.encoder.transform(features)  # says which one
                raise
        blocks = (features[part] for part in self._blocks(len(features)))
        return np.concatenate([self._of_bits(self._encoded(block), result) for block in blocks])

    def _of_bits(self, bits: NDArray[np.uint8], result: str) -> NDArray[Any]:
        if self.program is not None:
            return self.program.run(self._bits, bits, result)
        assert self._simulator is not None
        counts = count(self._simulator(bits), self.classes_count)
        return counts if result == "counts" else counts.argmax(axis=1)

    def _source(self, dtype: np.dtype[Any]) -> Source | None:
        """How the core itself turns features of this dtype into bits; None if it cannot."""
        if dtype not in self._sources:
            self._sources[dtype] = None
            if isinstance(self.encoder, Thermometer):
                t = self.encoder.thresholds
                planes = t if t.ndim == 2 else np.repeat(t[:, None], math.prod(self.encoder.input_shape), axis=1)
                self._sources[dtype] = Source.above(planes, dtype)
        return self._sources[dtype]

    def _encoded(self, features: NDArray[Any]) -> NDArray[np.uint8]:
        return self.encoder.transform(features).reshape(len(features), self.inputs).view(np.uint8)

    def _checked_bits(self, bits: NDArray[Any]) -> NDArray[np.uint8]:
        """Bits [n, …] as bytes [n, inputs]."""
        if bits.ndim < 1 or math.prod(bits.shape[1:]) != self.inputs:
            raise CircuitError(f"the bits have shape {bits.shape}: expected {self.inputs} bits for each sample")
        if bits.dtype.kind not in "biu":
            raise CircuitError(f"the bits have dtype {bits.dtype}: expected bool, or integers 0 and 1")
        if bits.dtype.kind != "b" and bits.size and not (bits.min() >= 0 and bits.max() <= 1):
            raise CircuitError(f"the bits hold numbers from {bits.min()} to {bits.max()}: expected 0 and 1")
        return bits.reshape(len(bits), self.inputs).astype(np.bool_, copy=False).view(np.uint8)

    def _checked_packed(self, rows: NDArray[Any]) -> NDArray[np.uint8]:
        size = -(-self.inputs // 8)
        if rows.dtype != np.uint8 or rows.ndim != 2 or rows.shape[1] != size:
            raise CircuitError(
                f"the packed bits are {rows.dtype} of shape {rows.shape}: expected uint8 of shape (n, {size}), "
                f"for {self.inputs} bits a sample"
            )
        return rows

    def _blocks(self, samples: int) -> Iterator[slice]:
        step = 64 * max(1, _BLOCK_BITS // (64 * max(1, self.inputs)))
        return (slice(begin, begin + step) for begin in range(0, max(samples, 1), step))


@functools.cache
def _say_why_not() -> None:
    log.warning("predictions run on numpy, some 50 times slower: %s", core.why_not())
