"""The C core on the CPU: loading it, splitting work over threads, and a torch operator around it.

A forward pass is split by neurons. A backward pass is split by samples, so that no two threads add to the same
gradient; each piece has its own sums for the weights, which are then added in order.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path

import torch
from torch import Tensor

from gatewise.errors import KernelError
from gatewise.kernels.reference import ResampleRule, conv_output_size
from gatewise.wiring import Source

LEVELS = {"baseline": 0, "avx2": 1, "avx512": 2}
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


@functools.cache
def _library() -> ctypes.CDLL | str:
    """The loaded core, or why there is none."""
    folder = Path(__file__).parent
    found = sorted(folder.glob("*gatewise_core.*"))
    if not found:
        return "the C core is not built (pip install builds it; in a source tree, `make core` does)"
    try:
        return ctypes.CDLL(str(found[0]))
    except OSError as error:
        return f"the C core cannot be loaded ({error})"


def available() -> bool:
    """Whether the C core is there."""
    return isinstance(_library(), ctypes.CDLL)


def why_not() -> str:
    """One clause that says why `available()` is false."""
    library = _library()
    return library if isinstance(library, str) else "it is available"


def library() -> ctypes.CDLL:
    """The C core, or a KernelError that says why there is none."""
    loaded = _library()
    if isinstance(loaded, str):
        raise KernelError(loaded)
    return loaded


_level = -1


def set_level(name: str | None) -> None:
    """Use the named vector width, or the widest this processor has. For tests and benchmarks."""
    global _level
    _level = -1 if name is None else LEVELS[name]


def levels() -> list[str]:
    """The vector widths this processor has."""
    best = library().gw_best_level()
    return [name for name, level in LEVELS.items() if level <= best]


_threads: int | None = None


def set_threads(count: int | None) -> None:
    """How many threads the C core gets; None follows torch.get_num_threads()."""
    global _threads
    _threads = count


def threads() -> int:
    """How many threads the C core gets."""
    return _threads or torch.get_num_threads()


@contextlib.contextmanager
def own_threads() -> Iterator[None]:
    """Give all of torch's threads to the C core within the block, and leave torch one. Put it around a training loop.

    Torch's idle workers spin for a while after each operation, on the cores that the C core then needs.
    """
    count, before = torch.get_num_threads(), _threads
    set_threads(before or count)
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(count)
        set_threads(before)


@functools.cache
def _pool(workers: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(workers, thread_name_prefix="gatewise")


if hasattr(os, "register_at_fork"):  # a forked process has the pool, but none of its threads
    os.register_at_fork(after_in_child=_pool.cache_clear)


def run_spans(call: Callable[[int, int], int], spans: list[tuple[int, int]]) -> None:
    """Call `call(start, stop)` on each span: the first here, each other one on a thread of its own."""
    others = [_pool(len(spans) - 1).submit(call, *span) for span in spans[1:]]
    try:
        statuses = [call(*spans[0])]
    finally:
        wait(others)  # whatever happens, nobody may still write when the caller lets go of the arrays
    statuses += [other.result() for other in others]
    for status in statuses:
        if status != 0:
            raise KernelError(f"the C core refused its arguments with status {status}")


def split(size: int, grain: int = 1) -> list[tuple[int, int]]:
    """Spans that cover `size`: at most one a thread, each a multiple of `grain` long, but the last."""
    length = max(1, -(-size // (threads() * grain))) * grain
    return [(start, min(start + length, size)) for start in range(0, max(size, 1), length)]


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
        status: int = forward(ctypes.byref(layer), piece, _pointer(x), _pointer(y), _level)
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
        status: int = backward(ctypes.byref(layer), piece, _pointer(x), _pointer(dy), inputs, sums, _level)
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
    x: Tensor, weight: Tensor, fanin: Tensor, gate: Tensor, kernel_size: int, stride: int, padding: int
) -> Tensor:
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
        status: int = resample(ctypes.byref(parameters), *span, *arrays, _level)
        return status

    run_spans(neurons, split(len(weight)))
    for changed in (weight, fanin, gate):  # a backward pass that still needs the old ones must not use the new
        torch.autograd.graph.increment_version(changed)
    return redrawn
