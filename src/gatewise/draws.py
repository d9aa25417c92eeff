"""Random numbers by counting: a draw is a function of (seed, step, stream, index) and of nothing else.

So a run that resumes at step 1,000 draws what it would have drawn, whatever device, thread or launch shape does it.
The generator is Philox4x32 with 10 rounds (Salmon et al., 2011), written in int64 tensors; the C core and GPU
kernels have the same one. Streams keep purposes apart.
"""

from __future__ import annotations

import torch
from torch import Tensor

PERMUTATION, AUGMENTATION, VALIDATION, NOISE, LAYERS = 1, 2, 3, 4, 16
"""Streams; the layers of a network have LAYERS, LAYERS + 1, …"""

MASK = 0xFFFFFFFF
MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
KEY_STEPS = (0x9E3779B9, 0xBB67AE85)
ROUNDS = 10


def philox(seed: int, step: int | Tensor, stream: int, index: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Four words in [0, 2**32) for each index (int64, below 2**32): the counter is (index, stream, step)."""
    zero = torch.zeros_like(index)
    c0, c1, c2, c3 = index & MASK, zero + stream, zero + (step & MASK), zero + (step >> 32 & MASK)
    k0, k1 = seed & MASK, (seed >> 32) & MASK
    for _ in range(ROUNDS):
        first, second = c0 * MULTIPLIERS[0], c2 * MULTIPLIERS[1]
        c0, c1, c2, c3 = (
            (second >> 32 & MASK) ^ c1 ^ k0,
            second & MASK,
            (first >> 32 & MASK) ^ c3 ^ k1,
            first & MASK,
        )
        k0, k1 = (k0 + KEY_STEPS[0]) & MASK, (k1 + KEY_STEPS[1]) & MASK
    return c0, c1, c2, c3


def below(word: Tensor, size: int) -> Tensor:
    """A word turned into a number in [0, size)."""
    return word * size >> 32


def permutation(seed: int, step: int, stream: int, size: int, device: torch.device) -> Tensor:
    """The numbers 0 … size-1, shuffled."""
    words = philox(seed, step, stream, torch.arange(size, device=device))
    return torch.argsort(words[0] << 31 | words[1] >> 1, stable=True)
