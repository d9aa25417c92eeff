"""The kernels on a GPU, in Triton: the functions of reference.py, and what a training step asks for besides.

`mix_dense` and `mix_conv` are differentiable like the reference's. A `Layer` is the same work without autograd, for a
step that is captured once and replayed. Convolutions whose kernels see one channel take triton_window.py, all else
triton_mix.py. Sums of gradients over the readers of an input are atomic additions, whose order varies, unless
torch.use_deterministic_algorithms(True) asks for sums in fixed point.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass

import torch
from torch import Tensor

from gatewise.kernels.reference import resample_rows
from gatewise.kernels.triton_loss import class_loss
from gatewise.kernels.triton_mix import WORDS, Geometry, fixed_scale, rows_backward, rows_forward, rows_plan
from gatewise.kernels.triton_update import update_rows
from gatewise.kernels.triton_window import LARGEST_WINDOW, SIDE, window_backward, window_form, window_forward
from gatewise.kernels.triton_words import hard_words, pack, unpack

__all__ = ["Geometry", "Layer", "class_loss", "hard_words", "mix_conv", "mix_dense", "pack", "resample_rows", "unpack"]
__all__ += ["update_rows"]


@dataclass(frozen=True)
class Layer:
    """A layer's arrays and how its windows lie; x is [D, B] or [C, H, W, B]."""

    weight: Tensor
    fanin: Tensor
    gate: Tensor
    geometry: Geometry
    one_channel: bool
    """Whether kernel n reads channel n mod C alone."""

    @property
    def by_window(self) -> bool:
        return self.one_channel and self.geometry.kernel_size**2 <= LARGEST_WINDOW

    def output(self, x: Tensor, zeros: int = 0) -> Tensor:
        """Memory for the result, of x's type, and so many more rows of zeros."""
        positions = () if self.fanin.ndim == 3 else self.geometry.out
        y = torch.empty(len(self.weight) + zeros, *positions, x.shape[-1], dtype=x.dtype, device=x.device)
        y[len(self.weight) :] = 0
        return y

    def blank(self) -> Tensor:
        """Memory for what `prepare` fills."""
        if self.by_window:
            return self.weight.new_empty(len(self.weight), SIDE, SIDE)
        return self.weight.new_empty(*self.weight.shape, WORDS, dtype=torch.int64)

    def prepare(self, into: Tensor) -> None:
        """Fill in what both passes want to know of the weights: a form or a plan."""
        if self.by_window:
            window_form(self.weight, self.fanin, self.gate, self.geometry.kernel_size, into)
        else:
            rows_plan(self.weight, self.fanin, self.gate, into)

    def forward(self, x: Tensor, prepared: Tensor, y: Tensor) -> None:
        """Fill y."""
        if self.by_window:
            window_forward(x, prepared, self.geometry, y)
        else:
            rows_forward(x, prepared, self.fanin, self.geometry, y)

    def backward(
        self, dy: Tensor, x: Tensor, prepared: Tensor, dw: Tensor, dx: Tensor | None = None, *, shared: int = 1,
        unit: float = 1.0,
    ) -> Tensor | None:  # fmt: skip
        """Fill dw, times `unit`; add to dx, which is 0 at the start, and give it in a float type.

        Where dx is int64, sums are taken in fixed point. A row of dy serves `shared` neurons.
        """
        scale = fixed_scale(dy) if dx is not None and dx.dtype == torch.int64 else None
        if self.by_window:
            assert shared == 1, shared
            arrays = (dy, x, self.weight, prepared, self.fanin, self.gate)
            window_backward(*arrays, self.geometry, dx, dw, scale, unit=unit)
        else:
            rows_backward(
                dy, x, self.weight, prepared, self.fanin, self.geometry, dx, dw, scale, shared=shared, unit=unit
            )
        return dx if dx is None or scale is None else (dx / scale).to(dy.dtype)


@torch.library.custom_op("gatewise::mix_gpu", mutates_args=())
def _mix(
    x: Tensor,
    weight: Tensor,
    fanin: Tensor,
    gate: Tensor,
    kernel_size: int,
    stride: int,
    padding: int,
    one_channel: bool,
) -> tuple[Tensor, Tensor]:
    """y, and what the backward pass takes up again."""
    layer = _layer(x, weight, fanin, gate, kernel_size, stride, padding, one_channel)
    x = x.contiguous()
    y, prepared = layer.output(x), layer.blank()
    with _device_of(x):
        layer.prepare(prepared)
        layer.forward(x, prepared, y)
    return y, prepared


def _device_of(x: Tensor) -> contextlib.AbstractContextManager[object]:
    """Triton launches on the current device, which may be another one than a tensor's."""
    return torch.cuda.device(x.device) if x.is_cuda else contextlib.nullcontext()


def _layer(
    x: Tensor,
    weight: Tensor,
    fanin: Tensor,
    gate: Tensor,
    kernel_size: int,
    stride: int,
    padding: int,
    one_channel: bool,
) -> Layer:
    height, width = x.shape[1:3] if fanin.ndim == 4 else (1, 1)
    geometry = Geometry(height, width, kernel_size, stride, padding)
    return Layer(weight.contiguous(), fanin.contiguous(), gate.contiguous(), geometry, one_channel)


@torch.library.custom_op("gatewise::mix_gpu_backward", mutates_args=())
def _mix_backward(
    dy: Tensor, x: Tensor, weight: Tensor, fanin: Tensor, gate: Tensor, prepared: Tensor, kernel_size: int,
    stride: int, padding: int, one_channel: bool, want_dx: bool,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """The gradients for x (empty unless wanted), summed in float32, and for the weights."""
    layer = _layer(x, weight, fanin, gate, kernel_size, stride, padding, one_channel)
    dw, dx = torch.empty_like(layer.weight), None
    with _device_of(x):
        if want_dx:
            summed_in = torch.int64 if torch.are_deterministic_algorithms_enabled() else torch.float32
            dx = torch.zeros(x.shape, dtype=summed_in, device=x.device)
        dx = layer.backward(dy.contiguous(), x.contiguous(), prepared, dw, dx)
    return x.new_empty(0) if dx is None else dx.to(x.dtype), dw


@_mix.register_fake
def _(
    x: Tensor,
    weight: Tensor,
    fanin: Tensor,
    gate: Tensor,
    kernel_size: int,
    stride: int,
    padding: int,
    one_channel: bool,
) -> tuple[Tensor, Tensor]:
    layer = _layer(x, weight, fanin, gate, kernel_size, stride, padding, one_channel)
    return layer.output(x), layer.blank()


def _remember(ctx, inputs, output) -> None:  # type: ignore[no-untyped-def]
    x, weight, fanin, gate, *ctx.geometry = inputs
    ctx.save_for_backward(x, weight, fanin, gate, output[1])


def _differentiate(ctx, dy: Tensor, _: Tensor):  # type: ignore[no-untyped-def]
    want_dx = ctx.needs_input_grad[0]
    dx, dw = _mix_backward(dy, *ctx.saved_tensors, *ctx.geometry, want_dx)
    return dx if want_dx else None, dw, None, None, None, None, None, None


_mix.register_autograd(_differentiate, setup_context=_remember)


def mix_dense(x: Tensor, weight: Tensor, fanin: Tensor, gate: Tensor) -> Tensor:
    """x [D, B], weight [N, K], fanin int32 [N, K, 2], gate uint8 [N, K] → y [N, B] of x's type."""
    y: Tensor = _mix(x, weight, fanin, gate, 1, 1, 0, False)[0]
    return y


def mix_conv(
    x: Tensor, weight: Tensor, fanin: Tensor, gate: Tensor, kernel_size: int, stride: int, padding: int,
    one_channel: bool = False,
) -> Tensor:  # fmt: skip
    """x [C, H, W, B], weight [N, K], fanin int32 [N, K, 2, 3], gate uint8 [N, K] → y [N, OH, OW, B] of x's type."""
    y: Tensor = _mix(x, weight, fanin, gate, kernel_size, stride, padding, one_channel)[0]
    return y
