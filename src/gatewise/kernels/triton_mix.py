"""Candidates mixed row by row on the GPU: dense layers, and convolutions whose kernels see several channels.

A plan is made of the weights once a step: for each candidate its probability times the coefficients of its gate, and
the rows of x that it reads. Then a program serves one neuron: a tile of candidates by a block of samples, each
candidate reading two rows. Sizes: B samples, N neurons, K candidates (KP: the next power of two), P positions.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import triton
import triton.language as tl
from torch import Tensor

from gatewise.kernels.reference import conv_output_size

WORDS = 3  # of a candidate in the plan, int64: rows of a and b, ca and cb, cab and p; the first in the low half
PLANNED = 16  # neurons that a program makes the plan of
TILE = 2048  # candidates by samples that a warp holds at a time
PART, PART_TILE = 4, 512  # candidates at a time in a backward pass, which holds more of each
PROGRAMS = 4096  # of one warp, to keep a GPU busy; a convolution's positions are split until there are so many
QUEUED = 8192  # programs are made to serve several neurons each while there are more of them: starting one takes time
MOST_EACH = 8
FIXED_BITS = 38  # of the largest gradient, where sums are taken in fixed point
OFFSETS = 2**31  # values that 32 bits can address


@triton.jit
def mixture(weight, gate, at, there, AXIS: tl.constexpr):
    """Probabilities, those times the gates' coefficients, and whether a gate looks at its inputs; all like `at`, whose
    candidates are that axis."""
    w = tl.load(weight + at, mask=there, other=-3.0e38)  # less than any other, and finite
    e = tl.exp(w - tl.max(w, AXIS, keep_dims=True))
    p = e / tl.sum(e, AXIS, keep_dims=True)
    g = tl.load(gate + at, mask=there, other=0).to(tl.int32)
    f00, f01, f10, f11 = g >> 3 & 1, g >> 2 & 1, g >> 1 & 1, g & 1
    looks_a, looks_b = (f00 != f10) | (f01 != f11), (f00 != f01) | (f10 != f11)
    return p, p * f00, p * (f10 - f00), p * (f01 - f00), p * (f00 - f01 - f10 + f11), looks_a, looks_b


@triton.jit
def _join(low, high):
    """Two values of 32 bits in a word."""
    return high.to(tl.int32, bitcast=True).to(tl.int64) << 32 | low.to(tl.uint32, bitcast=True).to(tl.int64)


@triton.jit
def _low(word, DTYPE: tl.constexpr):
    return word.to(tl.int32).to(DTYPE, bitcast=True)


@triton.jit
def _high(word, DTYPE: tl.constexpr):
    return (word >> 32).to(tl.int32).to(DTYPE, bitcast=True)


@triton.jit
def _plan(
    weight, fanin, gate, plan, N, K: tl.constexpr, KP: tl.constexpr, WORDS: tl.constexpr, DENSE: tl.constexpr,
    ROWS: tl.constexpr,
):  # fmt: skip
    """plan [N, K, WORDS]. An input that a gate ignores is taken from the row of the other, so that no row is fetched
    for nothing and none has to be left out. p is negative where the gate is 1 of two zeros."""
    n, i = tl.program_id(0) * ROWS + tl.arange(0, ROWS), tl.arange(0, KP)
    at, there = n[:, None] * K + i[None, :], (n < N)[:, None] & (i < K)[None, :]
    p, c0, ca, cb, cab, looks_a, looks_b = mixture(weight, gate, at, there, 1)
    to = plan + at.to(tl.int64) * WORDS
    if DENSE:
        a, b = tl.load(fanin + at * 2, mask=there, other=0), tl.load(fanin + at * 2 + 1, mask=there, other=0)
        first = tl.where(looks_a, a, tl.where(looks_b, b, 0))
        tl.store(to, _join(first, tl.where(looks_b, b, first)), mask=there)
    tl.store(to + 1, _join(ca, cb), mask=there)
    tl.store(to + 2, _join(cab, tl.where(c0 > 0, -p, p)), mask=there)


@triton.jit
def _planned(plan, n, i, K: tl.constexpr, WORDS: tl.constexpr):
    """The rows of candidates i of neuron n, the coefficients c0, ca, cb, cab, the probability, and which inputs matter.

    Where all coefficients of an input are 0, so are its gradient and what it adds.
    """
    at = plan + (n.to(tl.int64) * K + i) * WORDS
    rows = tl.load(at, mask=i < K, other=0)
    linear, rest = tl.load(at + 1, mask=i < K, other=0), tl.load(at + 2, mask=i < K, other=0)
    ca, cb = _low(linear, tl.float32), _high(linear, tl.float32)
    cab, p = _low(rest, tl.float32), _high(rest, tl.float32)
    looks_a, looks_b = (ca != 0) | (cab != 0), (cb != 0) | (cab != 0)
    return rows, tl.maximum(-p, 0.0), ca, cb, cab, tl.abs(p), looks_a, looks_b


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
    return row, there


@triton.jit
def _offsets(
    rows, fanin, at, position, looks_a, looks_b, H, W, OW, STRIDE, PADDING, B, CONV: tl.constexpr, WIDE: tl.constexpr
):
    """Where the rows of a and of b begin in x, and which of them are there to be read."""
    index: tl.constexpr = tl.int64 if WIDE else tl.int32
    if CONV:
        a, looks_a = rows_read(fanin, at, 0, position, looks_a, H, W, OW, STRIDE, PADDING, CONV)
        b, looks_b = rows_read(fanin, at, 1, position, looks_b, H, W, OW, STRIDE, PADDING, CONV)
    else:
        a, b = _low(rows, tl.int32), _high(rows, tl.int32)
    return (a.to(index) * B)[:, None], (b.to(index) * B)[:, None], looks_a[:, None], looks_b[:, None]


@triton.jit
def _read(x, offset, there, inside, CONV: tl.constexpr, EVEN: tl.constexpr):
    """Values of rows, as float32; x points to the samples. Only a convolution's padding has to be left out."""
    if CONV:
        value = tl.load(x + offset, mask=there & inside, other=0)
    elif EVEN:
        value = tl.load(x + offset)
    else:
        value = tl.load(x + offset, mask=inside, other=0)
    return value.to(tl.float32)


@triton.jit
def _forward(
    x, plan, fanin, y, N, B, P, H, W, OW, STRIDE, PADDING,
    K: tl.constexpr, KP: tl.constexpr, WORDS: tl.constexpr, CONV: tl.constexpr, WIDE: tl.constexpr, EVEN: tl.constexpr,
    EACH: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    position = tl.program_id(0) % P
    s = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    i, inside = tl.arange(0, KP), (s < B)[None, :]
    first = tl.program_id(0) // P * EACH
    for own in range(tl.minimum(N - first, EACH)):
        n = first + own
        rows, c0, ca, cb, cab, _, looks_a, looks_b = _planned(plan, n, i, K, WORDS)
        to_a, to_b, there_a, there_b = _offsets(
            rows, fanin, n * K + i, position, looks_a, looks_b, H, W, OW, STRIDE, PADDING, B, CONV, WIDE
        )
        a = _read((x + s)[None, :], to_a, there_a, inside, CONV, EVEN)
        b = _read((x + s)[None, :], to_b, there_b, inside, CONV, EVEN)
        # Two sums, each of products, so that every term is one fused multiply-add.
        out = tl.sum(a * (cab[:, None] * b + ca[:, None]), 0) + tl.sum(cb[:, None] * b, 0) + tl.sum(c0, 0)
        tl.store(y + (n.to(tl.int64) * P + position) * B + s, out.to(y.dtype.element_ty), mask=s < B)


@triton.jit
def add(to, value, mask, scale, FIXED: tl.constexpr):
    """Add values atomically; in fixed point, where sums do not depend on their order."""
    if FIXED:
        tl.atomic_add(to, (value.to(tl.float64) * scale).to(tl.int64), mask=mask, sem="relaxed")
    else:
        tl.atomic_add(to, value.to(to.dtype.element_ty), mask=mask, sem="relaxed")


@triton.jit
def _backward(
    dy, x, plan, fanin, dx, dw, fixed_scale, unit, N, B, P, SHARED, H, W, OW, STRIDE, PADDING,
    K: tl.constexpr, KP: tl.constexpr, PART: tl.constexpr, WORDS: tl.constexpr, CONV: tl.constexpr, WIDE: tl.constexpr,
    EVEN: tl.constexpr, WANT_DX: tl.constexpr, FIXED: tl.constexpr, FINISH: tl.constexpr, EACH: tl.constexpr,
    SPAN: tl.constexpr, BLOCK: tl.constexpr, BLOCKS: tl.constexpr, VECTOR: tl.constexpr,
):  # fmt: skip
    """dw [N, K], or [spans, N, K] of what each span of positions adds to p times the gradient for p.

    Candidates are taken PART at a time, so that what is known of them stays in registers.
    """
    span = tl.program_id(1)
    ONE: tl.constexpr = SPAN * BLOCKS == 1  # whose gradients are read once, and not for each part
    scale = tl.load(fixed_scale) if FIXED else 1.0
    first = tl.program_id(0) * EACH
    for own in range(tl.minimum(N - first, EACH)):
        n = first + own
        d = tl.zeros([BLOCK], tl.float32)
        if ONE:
            s = tl.arange(0, BLOCK)
            row = (n // SHARED).to(tl.int64) * P + span
            d = tl.load(dy + row * B + s, mask=s < B, other=0).to(tl.float32)
        ps, rs = (), ()
        total = 0.0
        for part in tl.static_range(KP // PART):
            i = part * PART + tl.arange(0, PART)
            rows, c0, ca, cb, cab, p, looks_a, looks_b = _planned(plan, n, i, K, WORDS)
            r, dy_sum = tl.zeros([PART], tl.float32), 0.0
            for j in range(SPAN):
                position = span * SPAN + j
                to_a, to_b, there_a, there_b = _offsets(
                    rows, fanin, n * K + i, position, looks_a, looks_b, H, W, OW, STRIDE, PADDING, B, CONV, WIDE
                )
                for block in range(BLOCKS):
                    s = block * BLOCK + tl.arange(0, BLOCK)
                    # A last span may reach beyond the last position: no sample is inside there.
                    end = tl.where(position < P, B, 0)
                    inside = (s < end)[None, :]
                    if not ONE:
                        row = (n // SHARED).to(tl.int64) * P + position
                        d = tl.load(dy + row * B + s, mask=s < end, other=0).to(tl.float32)
                    a = _read((x + s)[None, :], to_a, there_a, inside, CONV, EVEN)
                    b = _read((x + s)[None, :], to_b, there_b, inside, CONV, EVEN)
                    slope_a = d[None, :] * (cab[:, None] * b + ca[:, None])
                    # Within a thread first: what crosses threads is one number a candidate.
                    sum_a = tl.sum(tl.reshape(slope_a * a, [PART, BLOCK // VECTOR, VECTOR]), 2)
                    sum_b = tl.sum(tl.reshape(d[None, :] * b, [PART, BLOCK // VECTOR, VECTOR]), 2)
                    r += tl.sum(sum_a + cb[:, None] * sum_b, 1)
                    dy_sum += tl.sum(d, 0)
                    if WANT_DX:
                        slope_b = d[None, :] * (cab[:, None] * a + cb[:, None])
                        mask_a, mask_b = there_a, there_b
                        if CONV or not EVEN:
                            mask_a, mask_b = there_a & inside, there_b & inside
                        add((dx + s)[None, :] + to_a, slope_a, mask_a, scale, FIXED)
                        add((dx + s)[None, :] + to_b, slope_b, mask_b, scale, FIXED)
            r = unit * (r + c0 * dy_sum)
            total += tl.sum(r, 0)
            ps, rs = ps + (p,), rs + (r,)
        for part in tl.static_range(KP // PART):
            i = part * PART + tl.arange(0, PART)
            r = rs[part] - ps[part] * total if FINISH else rs[part]
            tl.store(dw + (span * N + n) * K + i, r, mask=i < K)


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


def neurons_each(neurons: int, others: int) -> int:
    """How many neurons a program serves, of which each has so many other programs."""
    return max(1, min(MOST_EACH, neurons * others // QUEUED))


def rows_plan(weight: Tensor, fanin: Tensor, gate: Tensor, plan: Tensor) -> None:
    """Fill plan, int64 [N, K, WORDS], with what a step's kernels want to know of the candidates."""
    neurons, candidates = weight.shape
    if plan.numel():
        _plan[(triton.cdiv(neurons, PLANNED),)](
            weight, fanin, gate, plan, neurons, K=candidates, KP=triton.next_power_of_2(candidates), WORDS=WORDS,
            DENSE=fanin.ndim == 3, ROWS=PLANNED, num_warps=4,
        )  # fmt: skip


def rows_forward(x: Tensor, plan: Tensor, fanin: Tensor, geometry: Geometry, y: Tensor) -> None:
    """Fill y [N, P, B] (any shape of that size) from x [rows, B]."""
    (neurons, candidates), batch, positions = plan.shape[:2], x.shape[-1], geometry.out[0] * geometry.out[1]
    if not y.numel():
        return
    padded = triton.next_power_of_2(candidates)
    block = block_of(batch, TILE // padded)
    blocks = triton.cdiv(batch, block)
    each = neurons_each(neurons, positions * blocks)
    _forward[(triton.cdiv(neurons, each) * positions, blocks)](
        x, plan, fanin, y, neurons, batch, positions, *geometry.arguments, K=candidates, KP=padded, WORDS=WORDS,
        CONV=fanin.ndim == 4, WIDE=x.numel() >= OFFSETS, EVEN=batch % block == 0, EACH=each, BLOCK=block,
        num_warps=1, enable_fp_fusion=True,
    )  # fmt: skip


def rows_backward(
    dy: Tensor, x: Tensor, weight: Tensor, plan: Tensor, fanin: Tensor, geometry: Geometry, dx: Tensor | None,
    dw: Tensor, scale: Tensor | None = None, *, shared: int = 1, unit: float = 1.0,
) -> None:  # fmt: skip
    """Fill dw [N, K] and add to dx, which is 0 at the start and of x's shape: in a float type, or, as int64, in fixed
    point, times `scale`. A row of dy serves `shared` neurons in turn; dw is taken times `unit`."""
    (neurons, candidates), batch, positions = weight.shape, x.shape[-1], geometry.out[0] * geometry.out[1]
    padded = triton.next_power_of_2(candidates)
    part = min(padded, PART)
    block = block_of(batch, PART_TILE // part)
    span, spans = spans_of(positions, neurons)
    parts = dw if spans == 1 else dw.new_empty(spans, neurons, candidates)
    if not parts.numel():
        return
    each = neurons_each(neurons, spans)
    _backward[(triton.cdiv(neurons, each), spans)](
        dy, x, plan, fanin, dx, parts, scale, unit, neurons, batch, positions, shared, *geometry.arguments,
        K=candidates, KP=padded, PART=part, WORDS=WORDS, CONV=fanin.ndim == 4, WIDE=x.numel() >= OFFSETS,
        EVEN=batch % block == 0, WANT_DX=dx is not None, FIXED=scale is not None, FINISH=spans == 1, EACH=each,
        SPAN=span, BLOCK=block, BLOCKS=triton.cdiv(batch, block), VECTOR=min(block, 16 // x.element_size()),
        num_warps=1, enable_fp_fusion=True,
    )  # fmt: skip
    if spans > 1:
        r = parts.sum(0)
        dw.copy_(r - torch.softmax(weight, 1) * r.sum(1, keepdim=True))


def fixed_scale(dy: Tensor) -> Tensor:
    """The power of two by which gradients become whole numbers, from the largest of them."""
    one = torch.ones((), dtype=torch.float64, device=dy.device)
    return torch.ldexp(one, FIXED_BITS - torch.frexp(dy.abs().max().double())[1]) if dy.numel() else one
