"""Augmentation of uint8 images on the device that holds them, reproducible to the bit from given random numbers.

B images a batch, C channels, H rows, W columns. Each image gets four draws, uniform in 0..2**32-1. From them on all
geometry is integer arithmetic; the two trigonometric values are polynomials of separately rounded float64 operations,
so that every device and every library version computes the same bits. There is no loop over images, and nothing waits
for the device.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from gatewise.errors import ConfigError, DataError

DRAWS = 4
"""How many random numbers an image gets, whether or not its augmentation uses them all."""

DEGREES = 15.0
RADIANS = math.radians(DEGREES) / (1 << 31)
"""The largest angle, divided by what is drawn for it at most."""
ONE = 1 << 30
"""The number 1 in the fixed-point arithmetic of the rotation."""

SIN_TERMS = tuple((-1) ** i / math.factorial(2 * i + 1) for i in range(6))
COS_TERMS = tuple((-1) ** i / math.factorial(2 * i) for i in range(7))


def none(x: Tensor, draws: Tensor) -> Tensor:
    """The images as they are."""
    return x


def rotate_shift(x: Tensor, draws: Tensor) -> Tensor:
    """Turn by up to 15 degrees about the centre, then shift by up to a tenth of the size; nearest pixel, 0 outside.

    Draw 0 is the angle (uniform, positive turns counter-clockwise), draws 1 and 2 are the shifts down and right:
    uniform within a tenth of the height or width, then rounded to whole pixels.
    """
    H, W = x.shape[2:]
    sin, cos = _sin_cos(draws[:, 0, None, None])  # [B, 1, 1]
    # Where a pixel of the result lies in the turned image, which ends at its frame.
    row = torch.arange(H, device=x.device)[None, :, None] - _shift(draws[:, 1, None, None], H)  # [B, H, 1]
    col = torch.arange(W, device=x.device)[None, None, :] - _shift(draws[:, 2, None, None], W)  # [B, 1, W]
    inside = (row >= 0) & (row < H) & (col >= 0) & (col < W)
    # Twice the offset from the centre is whole for odd and even sizes.
    down, right = 2 * row - (H - 1), 2 * col - (W - 1)
    row = (cos * down + sin * right + H * ONE) >> 31  # [B, H, W]: half of that, plus the centre, rounded
    col = (cos * right - sin * down + W * ONE) >> 31
    inside &= (row >= 0) & (row < H) & (col >= 0) & (col < W)
    index = torch.where(inside, row * W + col, 0)
    return _gather(x, index) * inside[:, None]


def flip_crop_2(x: Tensor, draws: Tensor) -> Tensor:
    """Mirror every second image, then crop the original size at random after padding 2 edge pixels."""
    return _flip_crop(x, draws, 2)


def flip_crop_4(x: Tensor, draws: Tensor) -> Tensor:
    """Mirror every second image, then crop the original size at random after padding 4 edge pixels."""
    return _flip_crop(x, draws, 4)


AUGMENTATIONS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "none": none,
    "rotate_shift": rotate_shift,
    "flip_crop_2": flip_crop_2,
    "flip_crop_4": flip_crop_4,
}


def augment(name: str, x: Tensor, draws: Tensor) -> Tensor:
    """Augment images uint8 [B, C, H, W] as `name` says, with draws int64 [B, 4], each in 0..2**32-1."""
    if name not in AUGMENTATIONS:
        raise ConfigError(f"there is no augmentation {name!r}, expected one of: {', '.join(AUGMENTATIONS)}")
    if name == "none":
        return x
    if x.dtype != torch.uint8 or x.ndim != 4:
        raise DataError(f"{name} got {x.dtype} of shape {tuple(x.shape)}, expected images uint8 [B, C, H, W]")
    if draws.dtype != torch.int64 or draws.shape != (len(x), DRAWS):
        raise DataError(
            f"{name} got draws {draws.dtype} of shape {tuple(draws.shape)}, expected int64 {(len(x), DRAWS)}"
        )
    return AUGMENTATIONS[name](x, draws)


def _sin_cos(draw: Tensor) -> tuple[Tensor, Tensor]:
    """Sine and cosine of the angle, as whole multiples of 1 / ONE."""
    angle = (draw - (1 << 31)).double() * RADIANS
    square = angle * angle
    sin, cos = angle * _polynomial(square, SIN_TERMS), _polynomial(square, COS_TERMS)
    return torch.floor(sin * ONE + 0.5).long(), torch.floor(cos * ONE + 0.5).long()


def _polynomial(x: Tensor, terms: tuple[float, ...]) -> Tensor:
    value = torch.full_like(x, terms[-1])
    for term in reversed(terms[:-1]):
        value = value * x + term
    return value


def _shift(draw: Tensor, size: int) -> Tensor:
    """A tenth of `size`, times a number uniform in -1..1, rounded (halves up)."""
    numerator, denominator = size * (2 * draw - (1 << 32)), 10 << 32
    return torch.div(numerator + denominator // 2, denominator, rounding_mode="floor")


def _flip_crop(x: Tensor, draws: Tensor, padding: int) -> Tensor:
    """Draw 0 decides on mirroring (its top bit), draws 1 and 2 where the crop begins: row and column, uniform."""
    H, W = x.shape[2:]
    begin = ((draws[:, 1:3] * (2 * padding + 1)) >> 32) - padding  # [B, 2]
    row = (torch.arange(H, device=x.device) + begin[:, :1]).clamp(0, H - 1)  # [B, H]
    col = (torch.arange(W, device=x.device) + begin[:, 1:]).clamp(0, W - 1)  # [B, W]
    col = torch.where(draws[:, :1] >= 1 << 31, W - 1 - col, col)
    return _gather(x, row[:, :, None] * W + col[:, None, :])


def _gather(x: Tensor, index: Tensor) -> Tensor:
    """The pixels of each image at index [B, H, W], the same in all channels."""
    B, C, H, W = x.shape
    return x.reshape(B, C, H * W).gather(2, index.reshape(B, 1, H * W).expand(B, C, H * W)).reshape(B, C, H, W)
