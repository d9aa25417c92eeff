"""Batches from a dataset that lies in memory: chosen, augmented and turned into bits on its device.

Which samples a step sees, and how they are augmented, is a function of the seed and the step alone.
Sizes: n samples, B samples a batch, N thresholds, C channels, H rows, W columns.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gatewise import draws
from gatewise.data.augment import DRAWS, augment
from gatewise.encode import Encoder, Thermometer
from gatewise.errors import ConfigError


class Bits:
    """Raw samples, or bits, as a tensor on a device, and how they become bits there."""

    def __init__(self, x: NDArray[np.generic], y: NDArray[np.int64], encoder: Encoder, device: torch.device) -> None:
        self.thresholds: Tensor | None = None
        if x.dtype == np.uint8 and isinstance(encoder, Thermometer) and encoder.thresholds.ndim == 1:
            # A whole number lies above a threshold exactly if it lies above the threshold rounded down.
            levels = np.clip(np.floor(encoder.thresholds), -1, 255).astype(np.int16)
            self.thresholds = torch.from_numpy(levels).to(device)
        else:
            x = encoder.transform(x).astype(np.uint8)
        self.bit_shape = encoder.bit_shape
        self.x = torch.from_numpy(np.ascontiguousarray(x)).to(device)
        self.y = torch.from_numpy(y).to(device)

    def __len__(self) -> int:
        return len(self.y)

    def encode(self, x: Tensor) -> Tensor:
        """Raw samples [B, …] → float32 bits [B, *bit_shape], whose samples are innermost in memory."""
        rows = x.movedim(0, -1).contiguous()
        if self.thresholds is not None:
            rows = rows > self.thresholds.view(-1, *(1,) * rows.ndim)  # [N, C, H, W, B]
        return rows.float().view(*self.bit_shape, len(x)).movedim(-1, 0)

    def in_order(self, size: int, *, whole_batches: bool = False) -> Iterator[tuple[Tensor, Tensor]]:
        """All samples as (bits, labels), `size` at a time; `whole_batches` drops a last one that is smaller."""
        stop = len(self) - len(self) % size if whole_batches else len(self)
        for start in range(0, stop, size):
            end = min(start + size, stop)
            yield self.encode(self.x[start:end]), self.y[start:end]


@dataclass
class Batches:
    """Shuffled batches without end; each epoch leaves out the samples that do not fill a batch."""

    samples: Bits
    batch: int
    seed: int
    augmentation: str = "none"

    def __post_init__(self) -> None:
        if not len(self.samples):
            raise ConfigError("there are no training samples: ask for a smaller validation split")
        self.batch = min(self.batch, len(self.samples))
        self._epoch, self._order = -1, torch.empty(0, dtype=torch.int64)

    def take(self, step: int) -> tuple[Tensor, Tensor]:
        """The bits and labels of one step."""
        epoch, position = divmod(step, len(self.samples) // self.batch)
        device = self.samples.y.device
        if epoch != self._epoch:
            self._order = draws.permutation(self.seed, epoch, draws.PERMUTATION, len(self.samples), device)
            self._epoch = epoch
        chosen = self._order[position * self.batch :][: self.batch]
        x, y = self.samples.x[chosen], self.samples.y[chosen]
        if self.augmentation != "none":
            index = torch.arange(len(x), device=device)
            words = draws.philox(self.seed, step, draws.AUGMENTATION, index)
            x = augment(self.augmentation, x, torch.stack(words[:DRAWS], 1))
        return self.samples.encode(x), y
