"""Which inputs a neuron's candidates start with, and what they are drawn from anew.

Sizes: N neurons, K candidates, D inputs, C channels.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from gatewise import draws
from gatewise.errors import WiringError


@dataclass(frozen=True)
class Source:
    """What the fanin of a redrawn candidate is drawn from: `size` inputs, window positions or channels.

    A dense layer draws an input. A window of `width` columns draws a position and keeps the channel; a 1×1 window has
    no other position, so there the channel is drawn, from the neuron's group of `size` among `groups`.
    """

    size: int
    width: int = 0
    groups: int = 0

    def draw(self, fanin: Tensor, words: tuple[Tensor, Tensor]) -> Tensor:
        """New fanins [N, K, 2, …] from two random words a candidate; what is not drawn stays as in `fanin`."""
        drawn = torch.stack([draws.below(word, self.size) for word in words], -1)  # [N, K, 2]
        if self.groups:
            neurons = torch.arange(len(fanin), device=fanin.device)[:, None, None]
            return torch.cat([(neurons % self.groups * self.size + drawn)[..., None], fanin[..., 1:]], -1)
        if self.width:
            row, column = drawn // self.width, drawn % self.width
            return torch.stack([fanin[..., 0].to(row.dtype), row, column], -1)
        return drawn


def coverage(inputs: int, neurons: int, candidates: int) -> Tensor:
    """[N, K, 2]: in each of the K assignments every input appears ⌊2N/D⌋ times; the rest is uniform; shuffled."""
    slots = 2 * neurons
    if slots < inputs:
        raise WiringError(
            f"{neurons} neurons with two inputs each cannot read all {inputs} inputs: "
            f"use at least {-(-inputs // 2)} neurons"
        )
    repeated = torch.arange(inputs, dtype=torch.int32).repeat(slots // inputs)
    fanin = torch.empty(candidates, slots, dtype=torch.int32)
    for assignment in fanin:
        rest = torch.randint(inputs, (slots - len(repeated),), dtype=torch.int32)
        assignment.copy_(torch.cat([repeated, rest])[torch.randperm(slots)])
    return fanin.view(candidates, neurons, 2).transpose(0, 1).contiguous()


def window(channels: int, neurons: int, candidates: int, kernel_size: int, channels_per_kernel: int) -> Tensor:
    """[N, K, 2, 3]: (channel, row, column), uniform over the window and over the kernel's group of channels."""
    shape = (neurons, candidates, 2)
    group = torch.arange(neurons) % (channels // channels_per_kernel) * channels_per_kernel
    channel = group[:, None, None] + torch.randint(channels_per_kernel, shape)
    row, column = (torch.randint(kernel_size, shape) for _ in range(2))
    return torch.stack([channel, row, column], -1).int()


def share(fanin: Tensor, candidates: int) -> Tensor:
    """Fixed wiring: the one pair of each neuron, [N, 1, 2, …], for all of its candidates."""
    return fanin.expand(len(fanin), candidates, *fanin.shape[2:]).contiguous()
