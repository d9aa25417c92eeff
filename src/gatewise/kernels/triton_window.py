"""Convolutions on the GPU whose kernels see one channel: a window is loaded once, and all candidates are one form.

The candidates of a neuron, weighted, are together one quadratic form in the S = kernel_size² values w of its window.
With h = (w, 1) its slopes are the first S rows of F h, F being symmetric but for the row that would give the slope of
the 1, where F[S, S] is the constant:
y = F[S, S] + Σ_j w_j (F[j, S] + F[j, j] w_j / 2 + Σ_{l > j} F[j, l] w_l). F is made once a step and serves all
positions. The gradient for it is the matrix of moments Σ dy · h hᵀ, and that for the inputs F h dy: both are products
for matrix units. Kernel n sees channel n mod C.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from gatewise.kernels.reference import interpreted
from gatewise.kernels.triton_mix import Geometry, add, block_of, mixture, spans_of

FACTORS = {torch.float32: tl.float32, torch.float16: tl.float16, torch.bfloat16: tl.bfloat16}
"""Types that matrix units multiply for each type of x."""
if interpreted():  # which cannot multiply the last
    FACTORS[torch.bfloat16] = tl.float32
LARGEST_WINDOW = 9
SIDE = 16  # of F and of the matrix of moments: S + 1, padded to what matrix units take
BLOCK = 128
CHUNK = 64  # spans whose moments are summed at a time


@triton.jit
def _candidates(weight, fanin, gate, n, K: tl.constexpr, KP: tl.constexpr, SIZE: tl.constexpr):
    """[KP] each: probabilities, those times the gates' coefficients, and which of the window's values are read."""
    i = tl.arange(0, KP)
    p, c0, ca, cb, cab, _, _ = mixture(weight, gate, n * K + i, i < K, 0)
    at = fanin + (n * K + i) * 6  # two inputs of three coordinates
    a = tl.load(at + 1, mask=i < K, other=0) * SIZE + tl.load(at + 2, mask=i < K, other=0)
    b = tl.load(at + 4, mask=i < K, other=0) * SIZE + tl.load(at + 5, mask=i < K, other=0)
    return p, c0, ca, cb, cab, a, b


@triton.jit
def _form(weight, fanin, gate, form, K: tl.constexpr, KP: tl.constexpr, SIZE: tl.constexpr, SIDE: tl.constexpr):
    """form [N, SIDE, SIDE]: the matrix F of each neuron."""
    n = tl.program_id(0)
    S: tl.constexpr = SIZE * SIZE
    _, c0, ca, cb, cab, a, b = _candidates(weight, fanin, gate, n, K, KP, SIZE)
    a, b, t = a[:, None], b[:, None], tl.arange(0, SIDE * SIDE)[None, :]
    terms = tl.where(t == a * SIDE + b, cab[:, None], 0.0) + tl.where(t == b * SIDE + a, cab[:, None], 0.0)
    terms += tl.where(t == a * SIDE + S, ca[:, None], 0.0) + tl.where(t == b * SIDE + S, cb[:, None], 0.0)
    terms += tl.where(t == S * SIDE + S, c0[:, None], 0.0)
    tl.store(form + n * SIDE * SIDE + tl.arange(0, SIDE * SIDE), tl.sum(terms, 0))


@triton.jit
def _window_forward(
    x, form, y, B, P, C, H, W, OW, STRIDE, PADDING,
    SIZE: tl.constexpr, SIDE: tl.constexpr, POSITIONS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    groups = tl.cdiv(P, POSITIONS)
    n = tl.program_id(0) // groups
    S: tl.constexpr = SIZE * SIZE
    position = tl.program_id(0) % groups * POSITIONS + tl.arange(0, POSITIONS)
    s = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    f = form + n * SIDE * SIDE
    top, left = position // OW * STRIDE - PADDING, position % OW * STRIDE - PADDING
    w = ()
    for j in tl.static_range(S):
        row, column = top + j // SIZE, left + j % SIZE
        there = (position < P) & (row >= 0) & (row < H) & (column >= 0) & (column < W)
        at = (((n % C) * H + row) * W + column).to(tl.int64)[:, None] * B + s[None, :]
        value = tl.load(x + at, mask=there[:, None] & (s < B)[None, :], other=0).to(tl.float32)
        w = w + (value,)
    out = tl.zeros([POSITIONS, BLOCK], tl.float32) + tl.load(f + S * SIDE + S)
    for j in tl.static_range(S):
        slope = tl.load(f + j * SIDE + S) + 0.5 * tl.load(f + j * SIDE + j) * w[j]
        for l in tl.static_range(j + 1, S):
            slope += tl.load(f + j * SIDE + l) * w[l]
        out += slope * w[j]
    to = (n.to(tl.int64) * P + position)[:, None] * B + s[None, :]
    tl.store(y + to, out.to(y.dtype.element_ty), mask=(position < P)[:, None] & (s < B)[None, :])


@triton.jit
def _window_backward(
    dy, x, form, dx, moments, fixed_scale, B, P, SPAN, C, H, W, OW, STRIDE, PADDING,
    SIZE: tl.constexpr, SIDE: tl.constexpr, BLOCK: tl.constexpr, FACTOR: tl.constexpr, WANT_DX: tl.constexpr,
    FIXED: tl.constexpr,
):  # fmt: skip
    """Add F h dy to dx; moments [spans, N, SIDE, SIDE]: Σ dy · h hᵀ over a span of positions and all samples."""
    n, span = tl.program_id(0), tl.program_id(1)
    S: tl.constexpr = SIZE * SIZE
    j, k = tl.arange(0, SIDE), tl.arange(0, SIDE)
    scale = tl.load(fixed_scale) if FIXED else 1.0
    f = tl.load(form + (n * SIDE + j[:, None]) * SIDE + k[None, :]).to(FACTOR)
    sums = tl.zeros([SIDE, SIDE], tl.float32)
    for position in range(span * SPAN, tl.minimum(span * SPAN + SPAN, P)):
        row, column = position // OW * STRIDE - PADDING + j // SIZE, position % OW * STRIDE - PADDING + j % SIZE
        there = (j < S) & (row >= 0) & (row < H) & (column >= 0) & (column < W)
        at = (((n % C) * H + row) * W + column).to(tl.int64) * B
        for start in range(0, B, BLOCK):
            s = start + tl.arange(0, BLOCK)
            inside = there[:, None] & (s < B)[None, :]
            d = tl.load(dy + (n.to(tl.int64) * P + position) * B + s, mask=s < B, other=0).to(tl.float32)
            w = tl.load(x + at[:, None] + s[None, :], mask=inside, other=0)
            h = tl.where((j == S)[:, None], 1.0, w.to(tl.float32))
            hd = (h * d[None, :]).to(w.dtype).to(FACTOR)
            sums = tl.dot(hd, tl.trans(h.to(FACTOR)), sums, input_precision="tf32x3")
            if WANT_DX:
                slopes = tl.dot(f, hd, input_precision="tf32x3")
                add(dx + at[:, None] + s[None, :], slopes, inside, scale, FIXED)
    to = moments + ((span * tl.num_programs(0) + n) * SIDE + j[:, None]) * SIDE + k[None, :]
    tl.store(to, sums)


@triton.jit
def _window_finish(
    moments, weight, fanin, gate, dw, unit, spans, N,
    K: tl.constexpr, KP: tl.constexpr, SIZE: tl.constexpr, SIDE: tl.constexpr, CHUNK: tl.constexpr,
):  # fmt: skip
    """dw [N, K] from the moments of all spans."""
    n = tl.program_id(0)
    S: tl.constexpr = SIZE * SIZE
    i = tl.arange(0, KP)
    p, c0, ca, cb, cab, a, b = _candidates(weight, fanin, gate, n, K, KP, SIZE)
    r = tl.zeros([KP], tl.float32)
    for start in range(0, spans, CHUNK):
        span = start + tl.arange(0, CHUNK)[:, None]
        there = span < spans
        m = moments + (span * N + n) * SIDE * SIDE
        of_a = tl.load(m + (S * SIDE + a)[None, :], mask=there, other=0)
        of_b = tl.load(m + (S * SIDE + b)[None, :], mask=there, other=0)
        of_both = tl.load(m + (a * SIDE + b)[None, :], mask=there, other=0)
        r += c0 * tl.sum(tl.load(m + S * SIDE + S, mask=there, other=0))
        r += tl.sum(ca[None, :] * of_a + cb[None, :] * of_b + cab[None, :] * of_both, 0)
    tl.store(dw + n * K + i, unit * (r - p * tl.sum(r, 0)), mask=i < K)


def window_form(weight: Tensor, fanin: Tensor, gate: Tensor, kernel_size: int, form: Tensor) -> None:
    """Fill form [N, SIDE, SIDE] with every neuron's matrix F."""
    _form[(len(weight),)](
        weight, fanin, gate, form, K=weight.shape[1], KP=triton.next_power_of_2(weight.shape[1]), SIZE=kernel_size,
        SIDE=SIDE, num_warps=4, enable_fp_fusion=True,
    )  # fmt: skip


def window_forward(x: Tensor, form: Tensor, geometry: Geometry, y: Tensor) -> None:
    """Fill y [N, OH, OW, B] from x [C, H, W, B]."""
    channels, batch, positions = x.shape[0], x.shape[-1], geometry.out[0] * geometry.out[1]
    if not y.numel():
        return
    block = block_of(batch, BLOCK)
    together = min(4, triton.next_power_of_2(positions))
    _window_forward[(len(form) * triton.cdiv(positions, together), triton.cdiv(batch, block))](
        x, form, y, batch, positions, channels, *geometry.arguments,
        SIZE=geometry.kernel_size, SIDE=SIDE, POSITIONS=together, BLOCK=block, num_warps=2, enable_fp_fusion=True,
    )  # fmt: skip


def window_backward(
    dy: Tensor, x: Tensor, weight: Tensor, form: Tensor, fanin: Tensor, gate: Tensor, geometry: Geometry,
    dx: Tensor | None, dw: Tensor, scale: Tensor | None = None, *, unit: float = 1.0,
) -> None:  # fmt: skip
    """Fill dw [N, K], times `unit`, and add to dx [C, H, W, B] as `rows_backward` does."""
    channels, batch, size = x.shape[0], x.shape[-1], geometry.kernel_size
    (neurons, candidates), positions = weight.shape, geometry.out[0] * geometry.out[1]
    span, spans = spans_of(positions, neurons)
    # Of four bytes half as many fit into registers.
    block = min(block_of(batch, BLOCK), BLOCK * 2 // x.element_size())
    moments = weight.new_empty(spans, neurons, SIDE, SIDE)
    _window_backward[(neurons, spans)](
        dy, x, form, dx, moments, scale, batch, positions, span, channels, *geometry.arguments, SIZE=size, SIDE=SIDE,
        BLOCK=block, FACTOR=FACTORS[x.dtype], WANT_DX=dx is not None, FIXED=scale is not None,
        num_warps=1, num_stages=1, enable_fp_fusion=True,
    )  # fmt: skip
    _window_finish[(neurons,)](
        moments, weight, fanin, gate, dw, unit, spans, neurons, K=candidates,
        KP=triton.next_power_of_2(candidates), SIZE=size, SIDE=SIDE, CHUNK=CHUNK, num_warps=4, enable_fp_fusion=True,
    )  # fmt: skip
