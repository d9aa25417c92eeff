"""Convolutions on the GPU whose kernels see one channel: a window is loaded once, and all candidates are one form.

The candidates of a neuron, weighted, are together one quadratic form in the S = kernel_size² values w of its window:
y = C + Σ_j w_j (L_j + Σ_{l ≥ j} Q_jl w_l). Its TERMS coefficients are made once a step and serve all positions; its
gradient is the matrix of moments Σ dy · h hᵀ with h = (w, 1). Kernel n sees channel n mod C.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from gatewise.kernels.reference import interpreted
from gatewise.kernels.triton_mix import Geometry, block_of, largest_and_sum, mixture, spans_of

FACTORS = {torch.float32: tl.float32, torch.float16: tl.float16, torch.bfloat16: tl.bfloat16}
"""Types that matrix units multiply for each type of x."""
if interpreted():  # which cannot multiply the last
    FACTORS[torch.bfloat16] = tl.float32
TERMS = 128  # room for 1 + S + S²
LARGEST_WINDOW = 9
SIDE = 16  # of the matrix of moments: S + 1, padded to what matrix units take
BLOCK = 128


@triton.jit
def _candidates(weight, fanin, gate, n, K: tl.constexpr, KP: tl.constexpr, SIZE: tl.constexpr):
    """[KP] each: probabilities, those times the gates' coefficients, and which of the window's values are read."""
    i = tl.arange(0, KP)
    largest, whole = largest_and_sum(weight, n, K, KP)
    p, c0, ca, cb, cab, _, _ = mixture(weight, gate, n * K + i, i < K, largest, whole)
    at = fanin + (n * K + i) * 6  # two inputs of three coordinates
    a = tl.load(at + 1, mask=i < K, other=0) * SIZE + tl.load(at + 2, mask=i < K, other=0)
    b = tl.load(at + 4, mask=i < K, other=0) * SIZE + tl.load(at + 5, mask=i < K, other=0)
    return p, c0, ca, cb, cab, a, b


@triton.jit
def _form(weight, fanin, gate, form, K: tl.constexpr, KP: tl.constexpr, SIZE: tl.constexpr, TERMS: tl.constexpr):
    """form [N, TERMS]: C, then L, then Q by rows, nothing below its diagonal."""
    n = tl.program_id(0)
    S: tl.constexpr = SIZE * SIZE
    _, c0, ca, cb, cab, a, b = _candidates(weight, fanin, gate, n, K, KP, SIZE)
    pair = 1 + S + tl.minimum(a, b) * S + tl.maximum(a, b)
    t = tl.arange(0, TERMS)[None, :]
    terms = tl.where(t == 0, c0[:, None], 0.0) + tl.where(t == 1 + a[:, None], ca[:, None], 0.0)
    terms += tl.where(t == 1 + b[:, None], cb[:, None], 0.0) + tl.where(t == pair[:, None], cab[:, None], 0.0)
    tl.store(form + n * TERMS + tl.arange(0, TERMS), tl.sum(terms, 0))


@triton.jit
def _window_forward(
    x, form, y, B, P, C, H, W, OW, STRIDE, PADDING,
    SIZE: tl.constexpr, TERMS: tl.constexpr, POSITIONS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    n = tl.program_id(0)
    S: tl.constexpr = SIZE * SIZE
    position = tl.program_id(1) * POSITIONS + tl.arange(0, POSITIONS)
    s = tl.program_id(2) * BLOCK + tl.arange(0, BLOCK)
    q = form + n * TERMS
    top, left = position // OW * STRIDE - PADDING, position % OW * STRIDE - PADDING
    w = ()
    for j in tl.static_range(S):
        row, column = top + j // SIZE, left + j % SIZE
        there = (position < P) & (row >= 0) & (row < H) & (column >= 0) & (column < W)
        at = (((n % C) * H + row) * W + column).to(tl.int64)[:, None] * B + s[None, :]
        value = tl.load(x + at, mask=there[:, None] & (s < B)[None, :], other=0).to(tl.float32)
        w = w + (value,)
    out = tl.zeros([POSITIONS, BLOCK], tl.float32) + tl.load(q)
    for j in tl.static_range(S):
        slope = tl.zeros([POSITIONS, BLOCK], tl.float32) + tl.load(q + 1 + j)
        for l in tl.static_range(j, S):
            slope += tl.load(q + 1 + S + j * S + l) * w[l]
        out += slope * w[j]
    to = (n.to(tl.int64) * P + position)[:, None] * B + s[None, :]
    tl.store(y + to, out.to(y.dtype.element_ty), mask=(position < P)[:, None] & (s < B)[None, :])


@triton.jit
def _window_moments(
    dy, x, moments, B, P, SPAN, C, H, W, OW, STRIDE, PADDING,
    SIZE: tl.constexpr, SIDE: tl.constexpr, BLOCK: tl.constexpr, FACTOR: tl.constexpr,
):  # fmt: skip
    """moments [spans, N, SIDE, SIDE]: Σ dy · h hᵀ over a span of positions and all samples."""
    n, span = tl.program_id(0), tl.program_id(1)
    S: tl.constexpr = SIZE * SIZE
    j = tl.arange(0, SIDE)
    sums = tl.zeros([SIDE, SIDE], tl.float32)
    for position in range(span * SPAN, tl.minimum(span * SPAN + SPAN, P)):
        row, column = position // OW * STRIDE - PADDING + j // SIZE, position % OW * STRIDE - PADDING + j % SIZE
        there = (j < S) & (row >= 0) & (row < H) & (column >= 0) & (column < W)
        at = (((n % C) * H + row) * W + column).to(tl.int64)
        for start in range(0, B, BLOCK):
            s = start + tl.arange(0, BLOCK)
            d = tl.load(dy + (n.to(tl.int64) * P + position) * B + s, mask=s < B, other=0).to(tl.float32)
            w = tl.load(x + at[:, None] * B + s[None, :], mask=there[:, None] & (s < B)[None, :], other=0)
            h = tl.where((j == S)[:, None], 1.0, w.to(tl.float32))
            hd = (h * d[None, :]).to(w.dtype).to(FACTOR)
            sums = tl.dot(hd, tl.trans(h.to(FACTOR)), sums, input_precision="tf32x3")
    k = tl.arange(0, SIDE)
    to = moments + ((span * tl.num_programs(0) + n) * SIDE + j[:, None]) * SIDE + k[None, :]
    tl.store(to, sums)


@triton.jit
def _window_finish(
    moments,
    weight,
    fanin,
    gate,
    dw,
    unit,
    spans,
    N,
    K: tl.constexpr,
    KP: tl.constexpr,
    SIZE: tl.constexpr,
    SIDE: tl.constexpr,
):
    """dw [N, K] from the moments of all spans."""
    n = tl.program_id(0)
    S: tl.constexpr = SIZE * SIZE
    i = tl.arange(0, KP)
    p, c0, ca, cb, cab, a, b = _candidates(weight, fanin, gate, n, K, KP, SIZE)
    r = tl.zeros([KP], tl.float32)
    for span in range(spans):
        m = moments + (span * N + n) * SIDE * SIDE
        r += c0 * tl.load(m + S * SIDE + S) + ca * tl.load(m + S * SIDE + a)
        r += cb * tl.load(m + S * SIDE + b) + cab * tl.load(m + a * SIDE + b)
    tl.store(dw + n * K + i, unit * (r - p * tl.sum(r, 0)), mask=i < K)


@triton.jit
def _window_inputs(
    dy,
    x,
    form,
    dx,
    B,
    N,
    C,
    H,
    W,
    OH,
    OW,
    STRIDE,
    PADDING,
    SIZE: tl.constexpr,
    TERMS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """dx [C, H, W, B]: for one pixel, what each window that it lies in has to say.

    All of these windows lie within REACH of the pixel, whose surroundings are loaded once.
    """
    c, row, column = tl.program_id(0) // H, tl.program_id(0) % H, tl.program_id(1)
    S: tl.constexpr = SIZE * SIZE
    REACH: tl.constexpr = 2 * SIZE - 1
    s = tl.program_id(2) * BLOCK + tl.arange(0, BLOCK)
    around = ()
    for j in tl.static_range(REACH * REACH):
        y, z = row + j // REACH - (SIZE - 1), column + j % REACH - (SIZE - 1)
        end = tl.where((y >= 0) & (y < H) & (z >= 0) & (z < W), B, 0)
        at = ((c * H + y) * W + z).to(tl.int64) * B + s
        value = tl.load(x + at, mask=s < end, other=0).to(tl.float32)
        around = around + (value,)
    sums = tl.zeros([BLOCK], tl.float32)
    for n in range(c, N, C):
        q = form + n * TERMS
        for j in tl.static_range(S):
            top, left = row + PADDING - j // SIZE, column + PADDING - j % SIZE
            oy, ox = top // STRIDE, left // STRIDE
            if (top >= 0) & (left >= 0) & (oy * STRIDE == top) & (ox * STRIDE == left) & (oy < OH) & (ox < OW):
                slope = tl.zeros([BLOCK], tl.float32) + tl.load(q + 1 + j)
                for l in tl.static_range(S):
                    coefficient = tl.load(q + 1 + S + (l * S + j if l < j else j * S + l))
                    w = around[(SIZE - 1 + l // SIZE - j // SIZE) * REACH + SIZE - 1 + l % SIZE - j % SIZE]
                    slope += (2 * coefficient if j == l else coefficient) * w
                out = ((n * OH + oy) * OW + ox).to(tl.int64)
                sums += tl.load(dy + out * B + s, mask=s < B, other=0).to(tl.float32) * slope
    to = ((c * H + row) * W + column).to(tl.int64) * B + s
    tl.store(dx + to, sums.to(dx.dtype.element_ty), mask=s < B)


def window_form(weight: Tensor, fanin: Tensor, gate: Tensor, kernel_size: int) -> Tensor:
    """The coefficients [N, TERMS] of every neuron's form."""
    form = weight.new_empty(len(weight), TERMS)
    padded = triton.next_power_of_2(weight.shape[1])
    _form[(len(weight),)](
        weight, fanin, gate, form, K=weight.shape[1], KP=padded, SIZE=kernel_size, TERMS=TERMS,
        num_warps=1, enable_fp_fusion=True,
    )  # fmt: skip
    return form


def window_forward(x: Tensor, form: Tensor, geometry: Geometry, y: Tensor) -> None:
    """Fill y [N, OH, OW, B] from x [C, H, W, B]."""
    channels, batch, positions = x.shape[0], x.shape[-1], geometry.out[0] * geometry.out[1]
    if not y.numel():
        return
    block = block_of(batch, BLOCK)
    together = min(4, triton.next_power_of_2(positions))
    _window_forward[(len(form), triton.cdiv(positions, together), triton.cdiv(batch, block))](
        x, form, y, batch, positions, channels, *geometry.arguments,
        SIZE=geometry.kernel_size, TERMS=TERMS, POSITIONS=together, BLOCK=block, num_warps=2, enable_fp_fusion=True,
    )  # fmt: skip


def window_backward(
    dy: Tensor, x: Tensor, weight: Tensor, fanin: Tensor, gate: Tensor, form: Tensor, geometry: Geometry,
    dx: Tensor | None, dw: Tensor, *, unit: float = 1.0,
) -> None:  # fmt: skip
    """Fill dw [N, K], times `unit`, and dx [C, H, W, B]. No sum depends on an order that may vary."""
    channels, batch, size = x.shape[0], x.shape[-1], geometry.kernel_size
    (neurons, candidates), (out_height, out_width) = weight.shape, geometry.out
    positions, padded = out_height * out_width, triton.next_power_of_2(candidates)
    (span, spans), block = spans_of(positions, neurons), block_of(batch, BLOCK)
    factors = min(block, BLOCK * 2 // x.element_size())  # of four bytes half as many fit into registers
    moments = weight.new_empty(spans, neurons, SIDE, SIDE)
    _window_moments[(neurons, spans)](
        dy, x, moments, batch, positions, span, channels, *geometry.arguments,
        SIZE=size, SIDE=SIDE, BLOCK=factors, FACTOR=FACTORS[x.dtype], num_warps=1, num_stages=1, enable_fp_fusion=True,
    )  # fmt: skip
    _window_finish[(neurons,)](
        moments, weight, fanin, gate, dw, unit, spans, neurons, K=candidates, KP=padded, SIZE=size, SIDE=SIDE,
        num_warps=1, enable_fp_fusion=True,
    )  # fmt: skip
    if dx is not None and dx.numel():
        _window_inputs[(channels * geometry.height, geometry.width, triton.cdiv(batch, block))](
            dy, x, form, dx, batch, neurons, channels, geometry.height, geometry.width, out_height, out_width,
            geometry.stride, geometry.padding, SIZE=size, TERMS=TERMS, BLOCK=block, num_warps=1, enable_fp_fusion=True,
        )  # fmt: skip
