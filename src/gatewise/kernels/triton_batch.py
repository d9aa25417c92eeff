"""A training batch on the GPU in one kernel: choose the samples, augment them, and compare with the thresholds.

The same integers as data/augment.py, sample for sample; float64 is used where it is, with each operation rounded.
"""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

from gatewise import draws
from gatewise.data.augment import COS_TERMS, RADIANS, SIN_TERMS
from gatewise.errors import ConfigError

BLOCK = 128
PADDINGS = {"none": 0, "rotate_shift": 0, "flip_crop_2": 2, "flip_crop_4": 4}


@triton.jit
def _polynomial(x, TERMS: tl.constexpr):
    LAST: tl.constexpr = len(TERMS) - 1
    value = tl.zeros_like(x) + TERMS[LAST]
    for i in tl.static_range(LAST):
        value = value * x + TERMS[LAST - 1 - i]
    return value


@triton.jit
def _shift(word, size):
    """A tenth of `size`, times a number uniform in -1..1, rounded (halves up)."""
    size = tl.zeros_like(word) + size  # int64
    numerator, denominator = size * (2 * word - (1 << 32)), 10 * (1 << 32)
    # Division truncates, so it is kept above 0.
    return ((numerator + denominator // 2 + size * denominator) // denominator - size).to(tl.int32)


@triton.jit
def _turned(first, second, third, row, column, H, W, RADIANS: tl.constexpr, SIN: tl.constexpr, COS: tl.constexpr):
    """Where a pixel of the turned and shifted image comes from, and whether that is inside."""
    angle = (first - (1 << 31)).to(tl.float64) * RADIANS
    square = angle * angle
    sin = tl.floor(angle * _polynomial(square, SIN) * 1073741824.0 + 0.5).to(tl.int64)
    cos = tl.floor(_polynomial(square, COS) * 1073741824.0 + 0.5).to(tl.int64)
    row, column = row - _shift(second, H), column - _shift(third, W)
    inside = (row >= 0) & (row < H) & (column >= 0) & (column < W)
    down, right = (2 * row - (H - 1)).to(tl.int64), (2 * column - (W - 1)).to(tl.int64)
    height, width = tl.zeros_like(first) + H, tl.zeros_like(first) + W
    row = ((cos * down + sin * right + height * (1 << 30)) >> 31).to(tl.int32)
    column = ((cos * right - sin * down + width * (1 << 30)) >> 31).to(tl.int32)
    return row, column, inside & (row >= 0) & (row < H) & (column >= 0) & (column < W)


@triton.jit
def _crop(first, second, third, row, column, H, W, PADDING: tl.constexpr):
    top = ((second * (2 * PADDING + 1)) >> 32).to(tl.int32) - PADDING
    left = ((third * (2 * PADDING + 1)) >> 32).to(tl.int32) - PADDING
    row = tl.minimum(tl.maximum(row + top, 0), H - 1)
    column = tl.minimum(tl.maximum(column + left, 0), W - 1)
    return row, tl.where(first >= 1 << 31, W - 1 - column, column)


@triton.jit(do_not_specialize=["stream", "rank", "batches"])
def _batch(
    store, order, labels, thresholds, step, seed, x, y, stream, rank, ranks, batches, B, C, H, W, ROW, N,
    BITS: tl.constexpr, TURN: tl.constexpr, PADDING: tl.constexpr, RADIANS: tl.constexpr, SIN: tl.constexpr,
    COS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    pixel, s = tl.program_id(0), tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    there = s < B
    now = tl.load(step)
    place = rank * B + s  # in the batch of all ranks together
    sample = tl.load(order + now % batches * (ranks * B) + place, mask=there, other=0)
    if pixel == 0:
        tl.store(y + s, tl.load(labels + sample, mask=there, other=0), mask=there)
    row, column = pixel // W + tl.zeros([BLOCK], tl.int32), pixel % W + tl.zeros([BLOCK], tl.int32)
    inside = there
    if TURN or PADDING > 0:
        zero = tl.zeros([BLOCK], tl.uint32)
        first, second, third, _ = tl.philox(
            tl.load(seed), place.to(tl.uint32), zero + stream.to(tl.uint32), zero + now.to(tl.uint32),
            zero + (now >> 32).to(tl.uint32),
        )  # fmt: skip
        first, second, third = first.to(tl.int64), second.to(tl.int64), third.to(tl.int64)
        if TURN:
            row, column, turned_inside = _turned(first, second, third, row, column, H, W, RADIANS, SIN, COS)
            inside = there & turned_inside
        else:
            row, column = _crop(first, second, third, row, column, H, W, PADDING)
    for channel in range(C):
        value = (channel * H + row) * W + column
        byte = tl.load(store + sample * ROW + value * BITS // 8, mask=inside, other=0).to(tl.int32)
        level = byte >> (8 - BITS - value * BITS % 8) & ((1 << BITS) - 1)
        level = tl.where(inside, level << (8 - BITS), 0)
        for i in range(N):
            to = ((i * C + channel) * H * W + pixel).to(tl.int64) * B + s
            tl.store(x + to, (level > tl.load(thresholds + i)).to(x.dtype.element_ty), mask=there)


def encode_batch(
    data: Tensor, labels: Tensor, shape: tuple[int, int, int], bits: int, thresholds: Tensor, augmentation: str,
    order: Tensor, batches: int, seed: Tensor, step: Tensor, x: Tensor, y: Tensor, *, rank: int = 0, ranks: int = 1,
) -> None:  # fmt: skip
    """Fill x [N, C, H, W, B] with the bits, and y [B] with the labels, of a step's batch: those of `rank` of `ranks`.

    data [n, bytes] are images of `shape` at `bits` a value (see `batches.pack_levels`); bit i of a value is whether it
    is greater than thresholds[i], int16. `order` is the epoch's permutation, of which each of `batches` steps takes the
    next ranks·B samples.
    """
    if augmentation not in PADDINGS:
        raise ConfigError(f"there is no augmentation {augmentation!r}, expected one of: {', '.join(PADDINGS)}")
    channels, height, width = shape
    _batch[(height * width, triton.cdiv(len(y), BLOCK))](
        data, order, labels, thresholds, step, seed, x, y, draws.AUGMENTATION, rank, ranks, batches, len(y), channels,
        height, width, data.shape[1], len(thresholds), BITS=bits,
        TURN=augmentation == "rotate_shift", PADDING=PADDINGS[augmentation], RADIANS=RADIANS, SIN=SIN_TERMS,
        COS=COS_TERMS, BLOCK=BLOCK, num_warps=4, enable_fp_fusion=False,
    )  # fmt: skip
