"""The C core on the CPU: what a layer is to it, and a torch operator around it.

A forward pass is split by neurons. A backward pass is split by samples, so that no two threads add to the same
gradient; each piece has its own sums for the weights, which are then added in order.
"""

from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Iterator

import torch
from torch import Tensor

from gatewise import core
from gatewise.core import library, run_spans, split
from gatewise.kernels.reference import ResampleRule, conv_output_size
from gatewise.wiring import Source

MAX_CANDIDATES = 256
SAMPLES_A_PIECE = 16  # the least that is worth a thread: one cache line of float32

_SIZES = ("neurons", "candidates", "batch", "channels", "height", "width", "out_height", "out_width")


class _Layer(ctypes.Structure):
    _fields_ = [
        *((name, ctypes.c_int64) for name in (*_SIZES, "coordinates", "stride", "padding")),
        *((name, ctypes.c_void_p) for name in ("fanin", "gate", "weight", "p")),
    ]


class _Resample(ctypes.Structure):
    _fields_ = [
        *((name, ctypes.c_int64) for name in ("neurons", "candidates", "coordinates", "size", "width", "groups")),
        *((name, ctypes.c_uint64) for name in ("seed", "step")),
        *((name, ctypes.c_int64) for name in ("stream", "patience", "normal")),
        *((name, ctypes.c_float) for name in ("momentum", "stability", "dominant", "dispersed", "reset")),
    ]


class _Piece(ctypes.Structure):
    _fields_ = [(name, ctypes.c_int64) for name in ("n0", "n1", "b0", "b1")]


@contextlib.contextmanager
def own_threads() -> Iterator[None]:
    """Give all of torch's threads to the C core within the block, and leave torch one. Put it around a training loop.

    Torch's idle workers spin for a while after each operation, on the cores that the C core then needs.
    """
    count = torch.get_num_threads()
    before = core.fixed_threads()
    core.set_threads(before or count)
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(count)
        core.set_threads(before)


def _describe(
    x: Tensor, weight: Tensor, p: Tensor, fanin: Tensor, gate: Tensor, kernel_size: int, stride: int, padding: int
) -> _Layer:
    channels, height, width = (*x.shape[:-1], 1, 1)[:3]
    out_height, out_width = (conv_output_size(s, kernel_size, stride, padding) for s in (height, width))
    sizes = (*weight.shape, x.shape[-1], channels, height, width, out_height, out_width)
    coordinates = 1 if fanin.ndim == 3 else 3
    arrays = (fanin.data_ptr(), gate.data_ptr(), weight.data_ptr(), p.data_ptr())
    return _Layer(*sizes, coordinates, stride, padding, *arrays)


def _check(x: Tensor, weight: Tensor, fanin: Tensor, gate: Tensor) -> None:
    assert weight.shape[1] <= MAX_CANDIDATES, weight.shape
    assert x.dtype == weight.dtype == torch.float32, (x.dtype, weight.dtype)
    assert fanin.dtype == torch.int32, fanin.dtype
    assert gate.dtype == torch.uint8, gate.dtype
    assert fanin.shape[:3] == (*weight.shape, 2), (fanin.shape, weight.shape)
    assert gate.shape == weight.shape, (gate.shape, weight.shape)


@torch.library.custom_op("gatewise::mix", mutates_args=(), device_types="cpu")
def _mix(
    x: Tensor, weight: Tensor, fanin: Tensor, gate: Tensor, kernel_size: int, stride: int, padding: int
) -> tuple[Tensor, Tensor]:
    """y, and the softmax of the weights, which the backward pass takes up again."""
    _check(x, weight, fanin, gate)
    x, weight, fanin, gate = (t.contiguous() for t in (x, weight, fanin, gate))
    y, p = _outputs(x, weight, fanin, kernel_size, stride, padding)
    layer = _describe(x, weight, p, fanin, gate, kernel_size, stride, padding)
    forward, batch = library().gw_mix_forward, x.shape[-1]

    def neurons(start: int, stop: int) -> int:
        piece = ctypes.byref(_Piece(start, stop, 0, batch))
        status: int = forward(ctypes.byref(layer), piece, _pointer(x), _pointer(y), core.level())
        return status

    run_spans(neurons, split(weight.shape[0]))
    return y, p


def _outputs(
    x: Tensor, weight: Tensor, fanin: Tensor, kernel_size: int, stride: int, padding: int
) -> tuple[Tensor, Tensor]:
    positions = [conv_output_size(s, kernel_size, stride, padding) for s in x.shape[1:-1]]
    return x.new_empty([weight.shape[0], *positions, x.shape[-1]]), torch.empty_like(weight)


def _pointer(t: Tensor | None) -> ctypes.c_void_p:
    return ctypes.c_void_p(None if t is None else t.data_ptr())


@torch.library.custom_op("gatewise::mix_backward", mutates_args=(), device_types="cpu")
def _mix_backward(
    dy: Tensor,
    x: Tensor,
    p: Tensor,
    fanin: Tensor,
    gate: Tensor,
    kernel_size: int,
    stride: int,
    padding: int,
    want_dx: bool,
) -> tuple[Tensor, Tensor]:
    """The gradients for x (empty unless wanted) and for the weights."""
    dy, x, fanin, gate = (t.contiguous() for t in (dy, x, fanin, gate))
    layer = _describe(x, p, p, fanin, gate, kernel_size, stride, padding)
    dx = torch.empty_like(x) if want_dx else x.new_empty(0)
    spans = split(x.shape[-1], SAMPLES_A_PIECE)
    q, dw = p.new_empty(len(spans), *p.shape), torch.empty_like(p)
    backward = library().gw_mix_backward

    def samples(start: int, stop: int) -> int:
        piece = ctypes.byref(_Piece(0, p.shape[0], start, stop))
        sums, inputs = _pointer(q[spans.index((start, stop))]), _pointer(dx if want_dx else None)
        status: int = backward(ctypes.byref(layer), piece, _pointer(x), _pointer(dy), inputs, sums, core.level())
        return status

    run_spans(samples, spans)
    sizes = (ctypes.c_int64(n) for n in (*p.shape, len(spans)))
    library().gw_weight_gradient(*sizes, _pointer(q), _pointer(p), _pointer(dw))
    return dx, dw


@_mix.register_fake
def _(
    x: Tensor, weight: Tensor, fanin: Tensor, gate: Tensor, kernel_size: int, stride: int, padding: int
) -> tuple[Tensor, Tensor]:
    return _outputs(x, weight, fanin, kernel_size, stride, padding)


@_mix_backward.register_fake
def _(
    dy: Tensor,
    x: Tensor,
    p: Tensor,
    fanin: Tensor,
    gate: Tensor,
    kernel_size: int,
    stride: int,
    padding: int,
    want_dx: bool,
) -> tuple[Tensor, Tensor]:
    return torch.empty_like(x) if want_dx else x.new_empty(0), torch.empty_like(p)


def _remember(ctx, inputs, output) -> None:  # type: ignore[no-untyped-def]
    x, _, fanin, gate, ctx.kernel_size, ctx.stride, ctx.padding = inputs
    ctx.save_for_backward(x, output[1], fanin, gate)


def _differentiate(ctx, dy: Tensor, _: Tensor):  # type: ignore[no-untyped-def]
    want_dx = ctx.needs_input_grad[0]
    dx, dw = _mix_backward(dy, *ctx.saved_tensors, ctx.kernel_size, ctx.stride, ctx.padding, want_dx)
    return dx if want_dx else None, dw, None, None, None, None, None


_mix.register_autograd(_differentiate, setup_context=_remember)


def mix_dense(x: Tensor, weight: Tensor, fanin: Tensor, gate: Tensor) -> Tensor:
    """x [D, B], weight [N, K], fanin int32 [N, K, 2], gate uint8 [N, K] → y [N, B]."""
    y: Tensor = _mix(x, weight, fanin, gate, 1, 1, 0)[0]
    return y


def mix_conv(
    x: Tensor, weight: Tensor, fanin: Tensor, gate: Tensor, kernel_size: int, stride: int, padding: int,
    one_channel: bool = False,
) -> Tensor:  # fmt: skip
    """x [C, H, W, B], weight [N, K], fanin int32 [N, K, 2, 3], gate uint8 [N, K] → y [N, OH, OW, B]."""
    y: Tensor = _mix(x, weight, fanin, gate, kernel_size, stride, padding)[0]
    return y


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
    """One step of Algorithm 1 on a layer, in place; → uint8 [N]: 0 kept, 1 dominated, 2 dispersed."""
    _check(weight, weight, fanin, gate)
    assert all(t.is_contiguous() for t in (weight, fanin, gate, mean, count))
    sizes = (*weight.shape, 1 if fanin.ndim == 3 else 3, source.size, source.width, source.groups)
    counters = (seed & (2**64 - 1), int(step), stream, rule.patience, int(rule.restart == "normal"))
    limits = (rule.momentum, rule.stability, rule.dominant, rule.dispersed, rule.reset)
    parameters = _Resample(*sizes, *counters, *limits)
    redrawn = torch.empty(len(weight), dtype=torch.uint8)
    arrays = [_pointer(t) for t in (weight, fanin, gate, mean, count, redrawn)]
    resample = library().gw_resample_rows

    def neurons(start: int, stop: int) -> int:
        span = (ctypes.c_int64(start), ctypes.c_int64(stop))
        status: int = resample(ctypes.byref(parameters), *span, *arrays, core.level())
        return status

    run_spans(neurons, split(len(weight)))
    for changed in (weight, fanin, gate):  # a backward pass that still needs the old ones must not use the new
        torch.autograd.graph.increment_version(changed)
    return redrawn
