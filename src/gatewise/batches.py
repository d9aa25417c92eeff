"""Batches from a dataset that lies in memory: chosen, augmented and turned into bits on its device.

Which samples a step sees, and how they are augmented, is a function of the seed and the step alone.
Sizes: n samples, B samples a batch, N thresholds, C channels, H rows, W columns.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gatewise import draws
from gatewise.data.augment import DRAWS, augment
from gatewise.data.packed import bits_of, levels_needed, pack_rows, quantise
from gatewise.encode import Encoder, Thermometer
from gatewise.errors import ConfigError


def pack_levels(x: NDArray[np.uint8], bits: int) -> NDArray[np.uint8]:
    """uint8 values [n, …] → bytes [n, ⌈values·bits/8⌉] that keep the highest `bits` of each, the first value first."""
    values = x.reshape(len(x), math.prod(x.shape[1:]))
    return values if bits == 8 else pack_rows(quantise(values, 1 << bits), bits)


def unpack_levels(packed: Tensor, bits: int, shape: tuple[int, ...]) -> Tensor:
    """What `pack_levels` kept, as uint8 [n, *shape] whose lower bits are 0."""
    if bits == 8:
        return packed.view(-1, *shape)
    levels = torch.stack([packed >> (8 - bits * (i + 1)) << (8 - bits) for i in range(8 // bits)], -1)
    return levels.flatten(1)[:, : math.prod(shape)].reshape(-1, *shape)


class Bits:
    """Raw samples, or bits, as a tensor on a device, and how they become bits there.

    On a GPU, bytes are kept at as few bits a value (`level_bits`) as the thresholds can tell apart.
    """

    def __init__(self, x: NDArray[np.generic], y: NDArray[np.int64], encoder: Encoder, device: torch.device) -> None:
        self.thresholds: Tensor | None = None
        self.level_bits, self.shape = 8, x.shape[1:]
        if x.dtype == np.uint8 and isinstance(encoder, Thermometer) and encoder.thresholds.ndim == 1:
            # A whole number lies above a threshold exactly if it lies above the threshold rounded down.
            levels = np.clip(np.floor(encoder.thresholds), -1, 255).astype(np.int16)
            self.thresholds = torch.from_numpy(levels).to(device)
            if device.type != "cpu":
                self.level_bits = bits_of(levels_needed(encoder.thresholds))
        else:
            x = encoder.transform(x)
            self.shape = x.shape[1:]
        self.bit_shape = encoder.bit_shape
        self.data = torch.from_numpy(
            np.ascontiguousarray(pack_levels(x.astype(np.uint8, copy=False), self.level_bits))
        ).to(device)
        self.y = torch.from_numpy(y).to(device)

    def __len__(self) -> int:
        return len(self.y)

    def raw(self, chosen: Tensor | slice = slice(None)) -> Tensor:
        """Raw samples [B, …]."""
        return unpack_levels(self.data[chosen], self.level_bits, self.shape)

    def encode(self, x: Tensor) -> Tensor:
        """Raw samples [B, …] → float32 bits [B, *bit_shape], whose samples are innermost in memory."""
        rows = x.movedim(0, -1).contiguous()
        if self.thresholds is not None:
            rows = rows > self.thresholds.view(-1, *(1,) * rows.ndim)  # [N, C, H, W, B]
        return rows.float().view(*self.bit_shape, len(x)).movedim(-1, 0)

    def in_order(self, size: int, *, first: int | None = None) -> Iterator[tuple[Tensor, Tensor]]:
        """All samples, or the first so many, as (bits, labels), `size` at a time."""
        stop = len(self) if first is None else first
        for start in range(0, stop, size):
            end = min(start + size, stop)
            yield self.encode(self.raw(slice(start, end))), self.y[start:end]


@dataclass
class Batches:
    """Shuffled batches without end; each epoch leaves out the samples that do not fill a batch.

    Of several processes, `rank` of `ranks`, each takes its part of a batch that is `ranks` times as large.
    """

    samples: Bits
    batch: int
    seed: int
    augmentation: str = "none"
    rank: int = 0
    ranks: int = 1

    def __post_init__(self) -> None:
        if len(self.samples) < self.ranks:
            raise ConfigError("there are no training samples: ask for a smaller validation split")
        self.batch = min(self.batch, len(self.samples) // self.ranks)
        self._epoch, self._order = -1, torch.empty(0, dtype=torch.int64)

    @property
    def steps_an_epoch(self) -> int:
        """How many batches there are before the samples are shuffled anew."""
        return len(self.samples) // (self.batch * self.ranks)

    def order(self, step: int) -> Tensor:
        """The order of the samples in the epoch of that step."""
        epoch = step // self.steps_an_epoch
        if epoch != self._epoch:
            device = self.samples.y.device
            self._order = draws.permutation(self.seed, epoch, draws.PERMUTATION, len(self.samples), device)
            self._epoch = epoch
        return self._order

    def take(self, step: int) -> tuple[Tensor, Tensor]:
        """The bits and labels of one step."""
        start = (step % self.steps_an_epoch * self.ranks + self.rank) * self.batch
        chosen = self.order(step)[start : start + self.batch]
        x, y = self.samples.raw(chosen), self.samples.y[chosen]
        if self.augmentation != "none":
            index = torch.arange(len(x), device=y.device) + self.rank * self.batch
            words = draws.philox(self.seed, step, draws.AUGMENTATION, index)
            x = augment(self.augmentation, x, torch.stack(words[:DRAWS], 1))
        return self.samples.encode(x), y
