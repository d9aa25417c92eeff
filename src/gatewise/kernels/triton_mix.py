"""Candidates mixed row by row on the GPU: dense layers, and convolutions whose kernels see several channels.

A program serves one neuron: a tile of K candidates by a block of samples, each candidate reading two rows of x. What a
gate ignores is not fetched. Sizes: B samples, N neurons, K candidates (KP: the next power of two), P positions.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import triton
import triton.language as tl
from torch import Tensor

from gatewise.kernels.reference import conv_output_size

TILE = 2048  # candidates by samples that a warp holds at a time
PART = 8  # candidates at a time in a backward pass, which holds more of each
PROGRAMS = 4096  # of one warp, to keep a GPU busy; a convolution's positions are split until there are so many
FIXED_BITS = 38  # of the largest gradient, where sums are taken in fixed point


@triton.jit
def largest_and_sum(weight, n, K: tl.constexpr, KP: tl.constexpr):
    """What the softmax of a neuron's weights subtracts and divides by."""
    i = tl.arange(0, KP)
    w = tl.load(weight + n * K + i, mask=i < K, other=float("-inf"))
    largest = tl.max(w, 0)
    return largest, tl.sum(tl.exp(w - largest), 0)


@triton.jit
def mixture(weight, gate, at, there, largest, whole):
    """Probabilities, those times the gates' coefficients, and whether a gate looks at its inputs; all like `at`."""
    p = tl.exp(tl.load(weight + at, mask=there, other=float("-inf")) - largest) / whole
    g = tl.load(gate + at, mask=there, other=0).to(tl.int32)
    f00, f01, f10, f11 = g >> 3 & 1, g >> 2 & 1, g >> 1 & 1, g & 1
    looks_a, looks_b = (f00 != f10) | (f01 != f11), (f00 != f01) | (f10 != f11)
    return p, p * f00, p * (f10 - f00), p * (f01 - f00), p * (f00 - f01 - f10 + f11), looks_a, looks_b


@triton.jit
def rows_read(fanin, at, side, position, there, H, W, OW, STRIDE, PADDING, CONV: tl.constexpr):
    """The row of x that each candidate reads, and whether there is one to fetch."""
    if CONV:
        fanin += (at * 2 + side) * 3
        y = position // OW * STRIDE - PADDING + tl.load(fanin + 1, mask=there, other=0)
        x = position % OW * STRIDE - PADDING + tl.load(fanin + 2, mask=there, other=0)
        row = (tl.load(fanin, mask=there, other=0) * H + y) * W + x
        there = there & (y >= 0) & (y < H) & (x >= 0) & (x < W)
    else:
        row = tl.load(fanin + at * 2 + side, mask=there, other=0)
    return row.to(tl.int64), there


@triton.jit
def _forward(
    x, weight, fanin, gate, y, B, P, H, W, OW, STRIDE, PADDING,
    K: tl.constexpr, KP: tl.constexpr, CONV: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    n, position = tl.program_id(0), tl.program_id(1)
    s = tl.program_id(2) * BLOCK + tl.arange(0, BLOCK)
    at = n * K + tl.arange(0, KP)
    there = tl.arange(0, KP) < K
    largest, whole = largest_and_sum(weight, n, K, KP)
    _, c0, ca, cb, cab, looks_a, looks_b = mixture(weight, gate, at, there, largest, whole)
    row_a, there_a = rows_read(fanin, at, 0, position, there & looks_a, H, W, OW, STRIDE, PADDING, CONV)
    row_b, there_b = rows_read(fanin, at, 1, position, there & looks_b, H, W, OW, STRIDE, PADDING, CONV)
    inside = (s < B)[None, :]
    a = tl.load(x + row_a[:, None] * B + s[None, :], mask=there_a[:, None] & inside, other=0).to(tl.float32)
    b = tl.load(x + row_b[:, None] * B + s[None, :], mask=there_b[:, None] & inside, other=0).to(tl.float32)
    mixed = a * (cab[:, None] * b + ca[:, None]) + cb[:, None] * b  # [KP, BLOCK]
    out = tl.sum(mixed, 0) + tl.sum(c0, 0)
    tl.store(y + (n.to(tl.int64) * P + position) * B + s, out.to(y.dtype.element_ty), mask=s < B)


@triton.jit
def _add(dx, row, there, s, value, end, B, scale, FIXED: tl.constexpr):
    """Add values to rows of dx; in fixed point, where sums do not depend on their order."""
    to = dx + row[:, None] * B + s[None, :]
    mask = there[:, None] & (s < end)[None, :]
    if FIXED:
        tl.atomic_add(to, (value.to(tl.float64) * scale).to(tl.int64), mask=mask, sem="relaxed")
    else:
        tl.atomic_add(to, value.to(dx.dtype.element_ty), mask=mask, sem="relaxed")


@triton.jit
def _backward(
    dy, x, weight, fanin, gate, dx, dw, fixed_scale, unit, B, P, SHARED, H, W, OW, STRIDE, PADDING,
    K: tl.constexpr, KP: tl.constexpr, PART: tl.constexpr, CONV: tl.constexpr, WANT_DX: tl.constexpr,
    FIXED: tl.constexpr, FINISH: tl.constexpr, SPAN: tl.constexpr, BLOCK: tl.constexpr, BLOCKS: tl.constexpr,
):  # fmt: skip
    """dw [N, K], or [spans, N, K] of what each span of positions adds to p times the gradient for p.

    Candidates are taken PART at a time, so that what is known of them stays in registers.
    """
    n, span = tl.program_id(0), tl.program_id(1)
    largest, whole = largest_and_sum(weight, n, K, KP)
    scale = tl.load(fixed_scale) if FIXED else 1.0
    ps, rs = (), ()
    total = 0.0
    for part in tl.static_range(KP // PART):
        i = part * PART + tl.arange(0, PART)
        at, there = n * K + i, i < K
        p, c0, ca, cb, cab, looks_a, looks_b = mixture(weight, gate, at, there, largest, whole)
        r, db_sum = tl.zeros([PART], tl.float32), tl.zeros([PART], tl.float32)
        dy_sum = 0.0
        for j in range(SPAN):
            position = span * SPAN + j
            row_a, there_a = rows_read(fanin, at, 0, position, there & looks_a, H, W, OW, STRIDE, PADDING, CONV)
            row_b, there_b = rows_read(fanin, at, 1, position, there & looks_b, H, W, OW, STRIDE, PADDING, CONV)
            for block in range(BLOCKS):
                s = block * BLOCK + tl.arange(0, BLOCK)
                # A last span may reach beyond the last position: no sample is inside there.
                end = tl.where(position < P, B, 0)
                inside = (s < end)[None, :]
                row = (n // SHARED).to(tl.int64) * P + position
                d = tl.load(dy + row * B + s, mask=s < end, other=0).to(tl.float32)
                a = tl.load(x + row_a[:, None] * B + s[None, :], mask=there_a[:, None] & inside, other=0).to(tl.float32)
                b = tl.load(x + row_b[:, None] * B + s[None, :], mask=there_b[:, None] & inside, other=0).to(tl.float32)
                slope_a = d[None, :] * (cab[:, None] * b + ca[:, None])
                r += tl.sum(a * slope_a, 1)
                db_sum += tl.sum(d[None, :] * b, 1)
                dy_sum += tl.sum(d, 0)
                if WANT_DX:
                    _add(dx, row_a, there_a, s, slope_a, end, B, scale, FIXED)
                    slope_b = d[None, :] * (cab[:, None] * a + cb[:, None])
                    _add(dx, row_b, there_b, s, slope_b, end, B, scale, FIXED)
        r = unit * (r + cb * db_sum + c0 * dy_sum)
        total += tl.sum(r, 0)
        ps, rs = ps + (p,), rs + (r,)
    for part in tl.static_range(KP // PART):
        i = part * PART + tl.arange(0, PART)
        r = rs[part] - ps[part] * total if FINISH else rs[part]
        tl.store(dw + (span * tl.num_programs(0) + n) * K + i, r, mask=i < K)


@dataclass(frozen=True)
class Geometry:
    """How windows lie on an image; a dense layer has one position on an image of one pixel."""

    height: int = 1
    width: int = 1
    kernel_size: int = 1
    stride: int = 1
    padding: int = 0

    @property
    def out(self) -> tuple[int, int]:
        """Positions down and across."""
        size = (conv_output_size(s, self.kernel_size, self.stride, self.padding) for s in (self.height, self.width))
        return next(size), next(size)

    @property
    def arguments(self) -> tuple[int, ...]:
        """H, W, OW, STRIDE, PADDING, as the kernels take them."""
        return self.height, self.width, self.out[1], self.stride, self.padding


def block_of(batch: int, most: int) -> int:
    """How many samples a program takes at a time."""
    return max(16, min(most, triton.next_power_of_2(batch)))


def spans_of(positions: int, neurons: int) -> tuple[int, int]:
    """How many positions a program takes, and how many programs share a neuron's."""
    span = triton.cdiv(positions, min(positions, triton.cdiv(PROGRAMS, max(neurons, 1))))
    return span, triton.cdiv(positions, span)


def rows_forward(x: Tensor, weight: Tensor, fanin: Tensor, gate: Tensor, geometry: Geometry, y: Tensor) -> None:
    """Fill y [N, P, B] (any shape of that size) from x [rows, B]."""
    batch, positions = x.shape[-1], geometry.out[0] * geometry.out[1]
    if not y.numel():
        return
    padded = triton.next_power_of_2(weight.shape[1])
    block = block_of(batch, TILE // padded)
    _forward[(len(weight), positions, triton.cdiv(batch, block))](
        x, weight, fanin, gate, y, batch, positions, *geometry.arguments,
        K=weight.shape[1], KP=padded, CONV=fanin.ndim == 4, BLOCK=block, num_warps=1, enable_fp_fusion=True,
    )  # fmt: skip


def rows_backward(
    dy: Tensor, x: Tensor, weight: Tensor, fanin: Tensor, gate: Tensor, geometry: Geometry, dx: Tensor | None,
    dw: Tensor, scale: Tensor | None = None, *, shared: int = 1, unit: float = 1.0,
) -> None:  # fmt: skip
    """Fill dw [N, K] and add to dx, which is 0 at the start and of x's shape: in a float type, or, as int64, in fixed
    point, times `scale`. A row of dy serves `shared` neurons in turn; dw is taken times `unit`."""
    (neurons, candidates), batch, positions = weight.shape, x.shape[-1], geometry.out[0] * geometry.out[1]
    padded = triton.next_power_of_2(candidates)
    part = min(padded, PART)
    block = block_of(batch, TILE // part)
    span, spans = spans_of(positions, neurons)
    parts = dw if spans == 1 else dw.new_empty(spans, neurons, candidates)
    if not parts.numel():
        return
    _backward[(neurons, spans)](
        dy, x, weight, fanin, gate, dx, parts, scale, unit, batch, positions, shared,
        *geometry.arguments, K=candidates, KP=padded, PART=part, CONV=fanin.ndim == 4, WANT_DX=dx is not None,
        FIXED=scale is not None, FINISH=spans == 1, SPAN=span, BLOCK=block, BLOCKS=triton.cdiv(batch, block),
        num_warps=1, enable_fp_fusion=True,
    )  # fmt: skip
    if spans > 1:
        r = parts.sum(0)
        dw.copy_(r - torch.softmax(weight, 1) * r.sum(1, keepdim=True))


def fixed_scale(dy: Tensor) -> Tensor:
    """The power of two by which gradients become whole numbers, from the largest of them."""
    one = torch.ones((), dtype=torch.float64, device=dy.device)
    return torch.ldexp(one, FIXED_BITS - torch.frexp(dy.abs().max().double())[1]) if dy.numel() else one
