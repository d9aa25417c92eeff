"""The loss of a step and its gradient on the GPU, in one kernel of one program, so that its sum has one order."""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

TILE = 4096  # classes by samples at a time


@triton.jit
def _class_loss(sums, labels, dy, loss_sum, B, C, tau, scale, CP: tl.constexpr, BLOCK: tl.constexpr):
    c = tl.arange(0, CP)
    total = 0.0
    for start in range(0, B, BLOCK):
        s = start + tl.arange(0, BLOCK)
        at, there = c[:, None] * B + s[None, :], (c < C)[:, None] & (s < B)[None, :]
        z = tl.where((c < C)[:, None], tl.load(sums + at, mask=there, other=0) / tau, float("-inf"))
        z -= tl.max(z, 0)[None, :]
        e = tl.exp(z)
        whole = tl.sum(e, 0)
        right = c[:, None] == tl.load(labels + s, mask=s < B, other=-1)[None, :]
        tl.store(dy + at, (scale * (e / whole[None, :] - right.to(tl.float32))).to(dy.dtype.element_ty), mask=there)
        total += tl.sum(tl.where(right, tl.log(whole)[None, :] - z, 0.0))
    tl.store(loss_sum, tl.load(loss_sum) + total / B)


def class_loss(sums: Tensor, labels: Tensor, tau: float, scale: float, loss_sum: Tensor, dy: Tensor) -> None:
    """As `reference.class_loss`, for float32 sums."""
    classes, batch = sums.shape
    padded = triton.next_power_of_2(classes)
    block = max(16, min(TILE // padded, triton.next_power_of_2(batch)))
    _class_loss[(1,)](
        sums, labels, dy, loss_sum, batch, classes, tau, scale, CP=padded, BLOCK=block, num_warps=8,
        enable_fp_fusion=True,
    )  # fmt: skip
