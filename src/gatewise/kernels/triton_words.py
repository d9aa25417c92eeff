"""Layers that are hard, on packed bits: 32 samples an int32 word, sample j of a word in its bit j."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from gatewise.kernels.reference import WORD
from gatewise.kernels.triton_mix import Geometry, rows_read

BLOCK = 256


@triton.jit
def _read(x, fanin, n, side, position, word, there, M, H, W, OW, STRIDE, PADDING, CONV: tl.constexpr):
    row, there = rows_read(fanin, n, side, position, there, H, W, OW, STRIDE, PADDING, CONV)
    return tl.load(x + row.to(tl.int64) * M + word, mask=there, other=0)


@triton.jit
def _hard(x, fanin, gate, y, N, M, P, H, W, OW, STRIDE, PADDING, CONV: tl.constexpr, BLOCK: tl.constexpr):
    """y [N, P, M] from x [rows, M]: a thread serves a word."""
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    word, position, n = at % M, (at // M % P).to(tl.int32), (at // M // P).to(tl.int32)
    there = n < N
    a = _read(x, fanin, n, 0, position, word, there, M, H, W, OW, STRIDE, PADDING, CONV)
    b = _read(x, fanin, n, 1, position, word, there, M, H, W, OW, STRIDE, PADDING, CONV)
    g = tl.load(gate + n, mask=there, other=0).to(tl.int32)
    f00, f01, f10, f11 = -(g >> 3 & 1), -(g >> 2 & 1), -(g >> 1 & 1), -(g & 1)
    tl.store(y + at, (a & ((b & f11) | (~b & f10))) | (~a & ((b & f01) | (~b & f00))), mask=there)


@triton.jit
def _pack(x, words, B, M, BLOCK: tl.constexpr):
    """words [rows, M] from x [rows, B], in which what is not 0 is 1."""
    row, m = tl.program_id(0).to(tl.int64), tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    s = m[:, None] * 32 + tl.arange(0, 32)[None, :]
    bits = tl.load(x + row * B + s, mask=s < B, other=0) != 0
    tl.store(words + row * M + m, tl.sum(bits.to(tl.int32) << tl.arange(0, 32)[None, :], 1), mask=m < M)


@triton.jit
def _unpack(words, x, B, M, BLOCK: tl.constexpr):
    row, s = tl.program_id(0).to(tl.int64), tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    bits = tl.load(words + row * M + s // 32, mask=s < B, other=0) >> s % 32 & 1
    tl.store(x + row * B + s, bits.to(x.dtype.element_ty), mask=s < B)


def hard_words(x: Tensor, fanin: Tensor, gate: Tensor, geometry: Geometry, y: Tensor) -> None:
    """Fill y [N, P, M] from x [rows, M]; fanin [N, 1, 2, …] and gate [N, 1] are those of one candidate a neuron."""
    positions = geometry.out[0] * geometry.out[1]
    if y.numel():
        _hard[(triton.cdiv(y.numel(), BLOCK),)](
            x, fanin, gate, y, len(gate), x.shape[-1], positions, *geometry.arguments,
            CONV=fanin.ndim == 4, BLOCK=BLOCK, num_warps=4,
        )  # fmt: skip


def pack(x: Tensor) -> Tensor:
    """int32 words [..., ⌈B/32⌉] of bits [..., B]."""
    batch, rows = x.shape[-1], x[..., 0].numel()
    words = torch.empty(*x.shape[:-1], triton.cdiv(batch, WORD), dtype=torch.int32, device=x.device)
    if words.numel():
        _pack[(rows, triton.cdiv(words.shape[-1], 4))](x, words, batch, words.shape[-1], BLOCK=4, num_warps=1)
    return words


def unpack(words: Tensor, batch: int, dtype: torch.dtype) -> Tensor:
    """Bits [..., B] of words [..., ⌈B/32⌉]."""
    x = torch.empty(*words.shape[:-1], batch, dtype=dtype, device=words.device)
    if x.numel():
        grid = (words[..., 0].numel(), triton.cdiv(batch, 128))
        _unpack[grid](words, x, batch, words.shape[-1], BLOCK=128, num_warps=1)
    return x
