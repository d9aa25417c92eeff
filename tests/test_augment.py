"""Augmentation: each image against a plain definition, one pixel at a time, with exact equality."""

import math

import numpy as np
import pytest
import torch

from gatewise.data import DATASETS
from gatewise.data.augment import AUGMENTATIONS, ONE, _sin_cos, augment
from gatewise.errors import ConfigError, DataError

MIDDLE, LAST = 1 << 31, (1 << 32) - 1


def images(shape, seed=0):
    return np.random.default_rng(seed).integers(1, 256, shape, dtype=np.uint8)


def draws_for(count, seed=1):
    """Random draws, the first few of them at the ends and in the middle of their range."""
    draws = np.random.default_rng(seed).integers(0, 1 << 32, (count, 4), dtype=np.int64)
    for i, value in enumerate([0, LAST, MIDDLE, MIDDLE - 1][:count]):
        draws[i] = value
    return draws


def turned(image, degrees):
    """Each pixel of the result is the nearest pixel of where it came from; the frame cuts off what leaves it."""
    _, H, W = image.shape
    result = np.zeros_like(image)
    sin, cos = math.sin(math.radians(degrees)), math.cos(math.radians(degrees))
    for r in range(H):
        for c in range(W):
            down, right = r - (H - 1) / 2, c - (W - 1) / 2
            row = math.floor(cos * down + sin * right + (H - 1) / 2 + 0.5)
            col = math.floor(cos * right - sin * down + (W - 1) / 2 + 0.5)
            if 0 <= row < H and 0 <= col < W:
                result[:, r, c] = image[:, row, col]
    return result


def shifted(image, down, right):
    _, H, W = image.shape
    result = np.zeros_like(image)
    for r in range(H):
        for c in range(W):
            if 0 <= r - down < H and 0 <= c - right < W:
                result[:, r, c] = image[:, r - down, c - right]
    return result


def rotate_shift_by_hand(image, draw):
    _, H, W = image.shape
    angle, *places = (float(d) / 2**32 for d in draw[:3])
    down, right = (round(size * 0.1 * (2 * u - 1)) for size, u in zip((H, W), places, strict=True))
    return shifted(turned(image, 30 * angle - 15), down, right)


def flip_crop_by_hand(image, draw, padding):
    _, H, W = image.shape
    if draw[0] >= MIDDLE:
        image = image[:, :, ::-1]
    padded = np.pad(image, ((0, 0), (padding, padding), (padding, padding)), mode="edge")
    top, left = (int(d) * (2 * padding + 1) // 2**32 for d in draw[1:3])
    return padded[:, top : top + H, left : left + W]


BY_HAND = {
    "none": lambda image, draw: image,
    "rotate_shift": rotate_shift_by_hand,
    "flip_crop_2": lambda image, draw: flip_crop_by_hand(image, draw, 2),
    "flip_crop_4": lambda image, draw: flip_crop_by_hand(image, draw, 4),
}


def check(name, x, draws):
    got = augment(name, torch.from_numpy(x), torch.from_numpy(draws))
    assert got.dtype == torch.uint8
    expected = np.stack([BY_HAND[name](image, draw) for image, draw in zip(x, draws, strict=True)])
    np.testing.assert_array_equal(got.numpy(), expected)


@pytest.mark.parametrize("name", AUGMENTATIONS)
@pytest.mark.parametrize("shape", [(40, 1, 28, 28), (12, 3, 32, 32), (9, 2, 7, 10), (5, 1, 1, 1), (4, 1, 2, 5)])
def test_every_image_equals_the_definition(name, shape):
    check(name, images(shape), draws_for(shape[0]))


@pytest.mark.parametrize("name", [name for name in AUGMENTATIONS if name != "none"])
def test_the_comparison_notices_one_wrong_pixel(name, monkeypatch):
    def one_off(image, draw, by_hand=BY_HAND[name]):
        result = by_hand(image, draw).copy()
        result[0, 3, 3] += 1
        return result

    monkeypatch.setitem(BY_HAND, name, one_off)
    with pytest.raises(AssertionError, match="Mismatched elements: 4 /"):
        check(name, images((4, 1, 9, 9)), draws_for(4))


@pytest.mark.parametrize("padding", [2, 4])
def test_every_crop_and_both_mirrorings_equal_the_definition(padding):
    size = 2 * padding + 1
    steps = [-(-(i << 32) // size) for i in range(size)]
    draws = np.array([[flip, r, c, 0] for flip in (0, LAST) for r in steps for c in steps], dtype=np.int64)
    check(f"flip_crop_{padding}", images((len(draws), 1, 6, 5)), draws)


def test_every_shift_equals_the_definition():
    edges = [0, LAST, MIDDLE] + [round((k / 2.8 + 1) / 2 * 2**32) + d for k in (-2.5, -0.5, 1.5) for d in (-9, 9)]
    draws = np.array([[MIDDLE, r, c, 0] for r in edges for c in edges], dtype=np.int64)
    check("rotate_shift", images((len(draws), 1, 28, 28)), draws)


def test_the_middle_draws_leave_the_image_alone():
    x = torch.from_numpy(images((3, 2, 9, 8)))
    draws = torch.full((3, 4), MIDDLE)
    assert torch.equal(augment("rotate_shift", x, draws), x)


def test_a_large_angle_draw_turns_counter_clockwise():
    x = np.zeros((1, 1, 29, 29), dtype=np.uint8)
    x[0, 0, 14, 28] = 1  # the right end of the middle row
    got = augment("rotate_shift", torch.from_numpy(x), torch.tensor([[LAST, MIDDLE, MIDDLE, 0]]))
    assert got[0, 0, :14].sum() > 0
    assert got[0, 0, 14:].sum() == 0


def test_sine_and_cosine_are_right_to_the_last_place_of_their_fixed_point():
    draws = torch.arange(0, 1 << 32, 1 << 20)
    angles = [math.radians(30 * d / 2**32 - 15) for d in draws.tolist()]
    sin, cos = _sin_cos(draws)
    assert (sin - torch.tensor([round(math.sin(a) * ONE) for a in angles])).abs().max() <= 1
    assert (cos - torch.tensor([round(math.cos(a) * ONE) for a in angles])).abs().max() <= 1


def test_draws_spread_shifts_crops_and_mirrorings_as_they_should():
    count = 20_000
    draws = torch.from_numpy(np.random.default_rng(3).integers(0, 1 << 32, (count, 4), dtype=np.int64))
    x = torch.arange(1, 26, dtype=torch.uint8).reshape(1, 1, 5, 5).expand(count, 1, 5, 5)
    seen = augment("flip_crop_2", x, draws)[:, 0, 2, 2].bincount(minlength=26)[1:] / count
    assert (seen - 0.04).abs().max() < 0.01
    row = torch.arange(1, 29, dtype=torch.uint8).reshape(1, 1, 1, 28).expand(count, 1, 1, 28)
    draws[:, :2] = MIDDLE
    shift = 15 - augment("rotate_shift", row, draws)[:, 0, 0, 14].long()
    share = (shift + 3).bincount(minlength=7) / count
    expected = torch.tensor([0.3, 1, 1, 1, 1, 1, 0.3]) / 5.6
    assert (share - expected).abs().max() < 0.015


def test_an_image_depends_on_its_own_draws_only():
    x, draws = torch.from_numpy(images((16, 1, 28, 28))), torch.from_numpy(draws_for(16))
    whole = augment("rotate_shift", x, draws)
    assert torch.equal(whole[5:9], augment("rotate_shift", x[5:9], draws[5:9]))


def test_samples_may_lie_innermost_in_memory():
    x, draws = torch.from_numpy(images((6, 3, 8, 8))), torch.from_numpy(draws_for(6))
    innermost = x.permute(1, 2, 3, 0).contiguous().permute(3, 0, 1, 2)
    for name in AUGMENTATIONS:
        assert torch.equal(augment(name, innermost, draws), augment(name, x, draws))


def test_the_input_is_left_as_it_was():
    x, draws = torch.from_numpy(images((6, 3, 8, 8))), torch.from_numpy(draws_for(6))
    before = x.clone(), draws.clone()
    for name in AUGMENTATIONS:
        augment(name, x, draws)
    assert torch.equal(x, before[0])
    assert torch.equal(draws, before[1])


def test_rounding_to_bits_before_or_after_is_the_same():
    x, draws = torch.from_numpy(images((32, 1, 28, 28))), torch.from_numpy(draws_for(32))
    bits = (x > 127).to(torch.uint8)
    assert torch.equal(augment("rotate_shift", bits, draws), (augment("rotate_shift", x, draws) > 127).to(torch.uint8))


def test_every_dataset_names_an_augmentation_there_is():
    assert {row.augmentation for row in DATASETS.values()} <= set(AUGMENTATIONS)


def test_an_unknown_augmentation_is_refused_with_those_there_are():
    with pytest.raises(ConfigError, match=r"'spin', expected one of: none, rotate_shift, flip_crop_2, flip_crop_4"):
        augment("spin", torch.zeros(1, 1, 2, 2, dtype=torch.uint8), torch.zeros(1, 4, dtype=torch.int64))


@pytest.mark.parametrize(
    ("x", "draws", "message"),
    [
        (torch.zeros(1, 1, 2, 2), torch.zeros(1, 4, dtype=torch.int64), r"torch.float32 of shape \(1, 1, 2, 2\)"),
        (torch.zeros(1, 2, 2, dtype=torch.uint8), torch.zeros(1, 4, dtype=torch.int64), r"expected images uint8"),
        (torch.zeros(2, 1, 2, 2, dtype=torch.uint8), torch.zeros(1, 4, dtype=torch.int64), r"int64 \(2, 4\)"),
        (torch.zeros(2, 1, 2, 2, dtype=torch.uint8), torch.zeros(2, 4), r"draws torch.float32"),
    ],
)
def test_wrong_tensors_are_refused(x, draws, message):
    with pytest.raises(DataError, match=message):
        augment("flip_crop_2", x, draws)


@pytest.mark.parametrize("name", AUGMENTATIONS)
def test_nothing_waits_for_a_value_on_the_device(name):
    x = torch.empty(6, 3, 8, 8, dtype=torch.uint8, device="meta")  # which has no values to wait for
    assert augment(name, x, torch.empty(6, 4, dtype=torch.int64, device="meta")).shape == x.shape


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device")
@pytest.mark.parametrize("name", AUGMENTATIONS)
def test_the_gpu_computes_the_same_bits(name):
    x, draws = torch.from_numpy(images((64, 3, 32, 32))), torch.from_numpy(draws_for(64))
    assert torch.equal(augment(name, x.cuda(), draws.cuda()).cpu(), augment(name, x, draws))
