"""The definition of every kernel, in plain PyTorch on any device and in any float type; autograd differentiates it.

Sizes: B samples, N neurons, K candidates, D inputs, C channels, H rows, W columns. Samples are innermost.
"""

from __future__ import annotations

import functools
import math
import os
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from gatewise import draws, gates
from gatewise.wiring import Source


def interpreted() -> bool:
    """Whether Triton's kernels run in its interpreter, on the CPU; for tests."""
    return os.environ.get("TRITON_INTERPRET") == "1"


@functools.cache
def _coefficients(device: torch.device, dtype: torch.dtype) -> Tensor:
    return torch.from_numpy(gates.COEFFICIENTS).to(device, dtype)


def _mix(a: Tensor, b: Tensor, weight: Tensor, gate: Tensor) -> Tensor:
    """Σ softmax(w)_i · B_i(a_i, b_i) over candidates, which are dimension 1 of a and b."""
    coefficients = _coefficients(a.device, a.dtype)[gate.long()]  # [N, K, 4]
    shape = (*weight.shape, *(1,) * (a.ndim - 2))
    c0, ca, cb, cab = (c.reshape(shape) for c in coefficients.unbind(-1))
    p = torch.softmax(weight, 1).reshape(shape)
    return (p * (c0 + ca * a + cb * b + cab * a * b)).sum(1).to(a.dtype)


def mix_dense(x: Tensor, weight: Tensor, fanin: Tensor, gate: Tensor) -> Tensor:
    """x [D, B], weight [N, K], fanin [N, K, 2], gate [N, K] → y [N, B]."""
    a, b = (x[fanin[..., side].long()] for side in (0, 1))  # [N, K, B]
    return _mix(a, b, weight, gate)


def conv_output_size(size: int, kernel_size: int, stride: int, padding: int) -> int:
    """How many positions a window takes along one side."""
    return (size + 2 * padding - kernel_size) // stride + 1


def mix_conv(
    x: Tensor, weight: Tensor, fanin: Tensor, gate: Tensor, kernel_size: int, stride: int, padding: int,
    one_channel: bool = False,
) -> Tensor:  # fmt: skip
    """x [C, H, W, B], weight [N, K], fanin [N, K, 2, 3], gate [N, K] → y [N, OH, OW, B].

    `one_channel` promises that kernel n reads channel n mod C alone; nothing here depends on it.
    """
    read = _windows(x, fanin, kernel_size, stride, padding)
    return _mix(read(0), read(1), weight, gate)


def _windows(x: Tensor, fanin: Tensor, kernel_size: int, stride: int, padding: int) -> Callable[[int], Tensor]:
    """What candidates read on one side at every position, [N, K, OH, OW, B]."""
    height, width = (conv_output_size(s, kernel_size, stride, padding) for s in x.shape[1:3])
    padded = torch.nn.functional.pad(x, (0, 0, padding, padding, padding, padding))
    rows = stride * torch.arange(height, device=x.device)[:, None]
    columns = stride * torch.arange(width, device=x.device)

    def read(side: int) -> Tensor:
        channel, row, column = (fanin[:, :, side, i, None, None].long() for i in range(3))
        return padded[channel, row + rows, column + columns]

    return read


WORD = 32
"""Samples a word of packed bits, the first in the lowest bit."""


def pack(x: Tensor) -> Tensor:
    """int32 words [..., ⌈B/32⌉] of x [..., B], in which what is not 0 is 1."""
    bits = torch.nn.functional.pad((x != 0).long(), (0, -x.shape[-1] % WORD))
    places = torch.arange(WORD, device=x.device)
    words: Tensor = (bits.view(*bits.shape[:-1], -1, WORD) << places).sum(-1)
    return (words - ((words >> 31) << 32)).int()  # the highest bit is the sign's


def unpack(words: Tensor, batch: int, dtype: torch.dtype) -> Tensor:
    """The bits [..., B] in words [..., ⌈B/32⌉], as 0 and 1."""
    bits = words[..., None] >> torch.arange(WORD, device=words.device, dtype=torch.int32) & 1
    return bits.flatten(-2)[..., :batch].to(dtype)


def hard_dense(words: Tensor, fanin: Tensor, gate: Tensor) -> Tensor:
    """One candidate a neuron on packed bits: words [D, M], fanin [N, 1, 2], gate [N, 1] → [N, M]."""
    a, b = (words[fanin[:, 0, side].long()] for side in (0, 1))
    return _gate_words(a, b, gate)


def hard_conv(words: Tensor, fanin: Tensor, gate: Tensor, kernel_size: int, stride: int, padding: int) -> Tensor:
    """words [C, H, W, M], fanin [N, 1, 2, 3], gate [N, 1] → [N, OH, OW, M]."""
    read = _windows(words, fanin, kernel_size, stride, padding)
    return _gate_words(read(0)[:, 0], read(1)[:, 0], gate)


def _gate_words(a: Tensor, b: Tensor, gate: Tensor) -> Tensor:
    g = gate.int().view(-1, *(1,) * (a.ndim - 1))
    f00, f01, f10, f11 = (-(g >> shift & 1) for shift in (3, 2, 1, 0))
    return a & (b & f11 | ~b & f10) | ~a & (b & f01 | ~b & f00)


@dataclass(frozen=True)
class ResampleRule:
    """When a neuron is stable, and what then becomes of it; resample.py explains the fields."""

    patience: int = 100
    momentum: float = 0.99
    stability: float = 5e-4
    dominant: float = 0.95
    dispersed: float = 0.4
    reset: float = 0.9
    restart: str = "normal"


@dataclass(frozen=True)
class Adam:
    """Adam's numbers, and the norm that the gradient of all layers together is clipped to."""

    rate: float
    clip: float
    beta1: float = 0.9
    beta2: float = 0.999
    eps: float = 1e-8


def class_loss(sums: Tensor, labels: Tensor, tau: float, scale: float, loss_sum: Tensor, dy: Tensor) -> None:
    """Add the mean cross-entropy of a batch to loss_sum, and fill dy [classes, B] with `scale` times the gradient of
    each sample's for its logits; those are sums [classes, B], what each class counts, over tau."""
    share = torch.log_softmax(sums / tau, 0)
    right = labels == torch.arange(len(sums), device=sums.device)[:, None]
    loss_sum -= share.masked_fill(~right, 0).sum() / len(labels)
    dy.copy_(scale * (share.exp() - right.to(share.dtype)))


def entropy(weight: Tensor) -> Tensor:
    """[N]: the entropy of each neuron's softmax over its candidates, divided by log K (0 where there is one)."""
    log_p = torch.log_softmax(weight, 1)
    return -(log_p.exp() * log_p).sum(1) / math.log(max(weight.shape[1], 2))


def leading_logit(probability: float, candidates: int) -> float:
    """The logit that gives one candidate this probability while all others have logit 0."""
    return math.log(probability * (candidates - 1) / (1 - probability))


def resample_rows(
    rule: ResampleRule,
    source: Source,
    seed: int,
    step: int | Tensor,
    stream: int,
    weight: Tensor,
    fanin: Tensor,
    gate: Tensor,
    mean: Tensor,
    count: Tensor,
) -> Tensor:
    """One step of Algorithm 1 on a layer, in place; → uint8 [N]: 0 kept, 1 redrawn as dominated, 2 as dispersed.

    weight [N, K], fanin [N, K, 2, …], gate [N, K], mean [N] (NaN before the first step), count int32 [N]. Masks, not
    index lists: no step depends on how many rows are redrawn.
    """
    neurons, candidates = weight.shape
    h = entropy(weight)
    mean.copy_(torch.where(mean.isnan(), h, mean))
    count.copy_(torch.where((mean - h).abs() <= rule.stability, count + 1, 0))
    mean.lerp_(h, 1 - rule.momentum)

    top, best = torch.softmax(weight, 1).max(1)
    ready = count >= rule.patience
    dominated, dispersed = ready & (top >= rule.dominant), ready & (top <= rule.dispersed)
    count.masked_fill_(ready, 0)

    index = torch.arange(neurons * candidates, device=weight.device).view(neurons, candidates)
    words = draws.philox(seed, step, stream, index)
    is_best = torch.arange(candidates, device=weight.device) == best[:, None]
    redraw = dominated[:, None] & ~is_best | dispersed[:, None]
    fanin.copy_(
        torch.where(redraw.view(*redraw.shape, *(1,) * (fanin.ndim - 2)), source.draw(fanin, words[1:3]), fanin)
    )
    gate.copy_(torch.where(redraw, words[0] & 15, gate))

    kept = torch.where(is_best, leading_logit(rule.reset, candidates), 0.0)
    fresh = normal(words[0], words[3]) if rule.restart == "normal" else torch.zeros_like(kept)
    weight.copy_(torch.where(dominated[:, None], kept, torch.where(dispersed[:, None], fresh, weight)))
    return (dominated + 2 * dispersed).to(torch.uint8)


def update_rows(
    adam: Adam,
    rule: ResampleRule | None,
    source: Source | None,
    seed: Tensor,
    step: Tensor,
    stream: int,
    norm: Tensor,
    weight: Tensor,
    grad: Tensor,
    exp_avg: Tensor,
    exp_avg_sq: Tensor,
    fanin: Tensor,
    gate: Tensor,
    mean: Tensor,
    count: Tensor,
    redrawn: Tensor,
) -> None:
    """What follows a backward pass on one layer, in place: clip, a step of Adam, and, with a rule, of Algorithm 1.

    `norm` is that of the gradient of all layers; `step` (int64, from 0) counts Adam's steps too; moments of redrawn
    neurons are zeroed and `redrawn` (int64) counts them.
    """
    g = grad * (adam.clip / (norm + 1e-6)).clamp(max=1.0)
    correction1, correction2 = (1 - beta ** (step.double() + 1) for beta in (adam.beta1, adam.beta2))
    exp_avg.lerp_(g, 1 - adam.beta1)
    exp_avg_sq.mul_(adam.beta2).addcmul_(g, g, value=1 - adam.beta2)
    denominator = (exp_avg_sq.sqrt() / correction2.sqrt()).add(adam.eps)
    weight.copy_(weight - adam.rate / correction1 * (exp_avg / denominator))
    if rule is None or source is None or weight.shape[1] < 2:
        return
    changed = resample_rows(rule, source, int(seed), step, stream, weight, fanin, gate, mean, count)
    redrawn += changed.count_nonzero()
    for moment in (exp_avg, exp_avg_sq):
        moment.masked_fill_(changed[:, None] > 0, 0)


def normal(first: Tensor, second: Tensor) -> Tensor:
    """N(0, 1) from the upper 28 bits of one word and all of another (Box and Muller)."""
    radius = torch.sqrt(-2 * torch.log(((first >> 4).double() + 0.5) / 2.0**28))
    return (radius * torch.cos(second.double() * (2 * math.pi / 2.0**32))).float()
