"""Gates that data cannot tell apart become one. This is lossy: other data may tell them apart.

B samples, W words of 64 samples.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import ArrayLike, NDArray

from gatewise.circuit.ir import Circuit
from gatewise.circuit.passes import negate_inputs
from gatewise.circuit.simplify import rebuild
from gatewise.circuit.simulate import Simulator, Words, block_words, pack
from gatewise.errors import CircuitError

Nets = NDArray[np.int32]
Mask = NDArray[np.bool_]

_ODD = np.uint64(0x9E3779B97F4A7C15)
"""2**64 over the golden ratio: multiplying by it spreads the bits of a word."""


def merge_on_data(circuit: Circuit, bits: ArrayLike) -> Circuit:
    """Merge each gate with the earliest net that has its value, or the inverse, on all the samples `bits` [B, inputs].

    On these samples the outputs stay as they are; on others they may change, so measure the accuracy on samples that
    were not among them.

    >>> smaller = merge_on_data(circuit, training_bits)
    """
    array = np.asarray(bits)
    return merge_on_words(circuit, pack(array), len(array))


def merge_on_words(circuit: Circuit, words: Words, samples: int) -> Circuit:
    """The same for samples that are packed already, [inputs, W]."""
    if samples < 1:
        raise CircuitError("there are no samples to merge gates on: expected at least 1")
    expected = (circuit.inputs, -(-samples // 64))
    if words.shape != expected:
        raise CircuitError(f"the packed samples have shape {words.shape}: expected {expected}, for {samples} samples")
    nets = _Nets(circuit, words, samples)
    root = _first_alike(nets)
    root[: circuit.first_gate] = np.arange(circuit.first_gate)
    root = np.where(_differ(nets, root), np.arange(circuit.nets, dtype=np.int32), root)
    inverted = nets.negated != nets.negated[root]
    root[inverted & (root == 0)] = 1
    inverted &= root > 1
    table = negate_inputs(circuit.table, inverted[circuit.fanin])
    return rebuild(circuit, table, root[circuit.fanin], root, inverted)


class _Nets:
    """The values of all nets on the samples; those `negated` are negated, so that the first sample gives 0."""

    def __init__(self, circuit: Circuit, words: Words, samples: int) -> None:
        self._simulator = Simulator(Circuit(circuit.inputs, circuit.table, circuit.fanin, np.arange(circuit.nets)))
        self._words, self._samples = words, samples
        self.negated: Mask = (self._simulator.words(words[:, :1])[:, 0] & np.uint64(1)).astype(np.bool_)

    def blocks(self) -> Iterator[Words]:
        """[nets, W] for some W at a time; what pads the last word is 0."""
        step = block_words(self._simulator.circuit)
        flip = -self.negated[:, None].astype(np.uint64)
        for begin in range(0, -(-self._samples // 64), step):
            values = self._simulator.words(self._words[:, begin : begin + step]) ^ flip
            left = self._samples - 64 * begin
            if left < 64 * values.shape[1]:
                values[:, -1] &= np.uint64((1 << left % 64) - 1)
            yield values


def _first_alike(nets: _Nets) -> Nets:
    """For each net the first of the same hash."""
    rng = np.random.default_rng(0)
    total = np.zeros(len(nets.negated), np.uint64)
    for values in nets.blocks():
        values *= _ODD
        values ^= values >> np.uint64(32)
        values *= rng.integers(2**64, size=values.shape[1], dtype=np.uint64) | np.uint64(1)
        total += values.sum(axis=1)
    _, first, which = np.unique(total, return_index=True, return_inverse=True)
    alike: Nets = first[which].astype(np.int32)
    return alike


def _differ(nets: _Nets, root: Nets) -> Mask:
    """Which nets differ from their roots on some sample: hashes may collide."""
    differ = np.zeros(len(root), np.bool_)
    for values in nets.blocks():
        differ |= (values != values[root]).any(axis=1)
    return differ
