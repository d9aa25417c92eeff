"""The step that is captured on a GPU against the loop's own: on a GPU where there is one, else in the interpreter."""

import dataclasses

import numpy as np
import pytest
import torch
from interpreter import DEVICE, interpreted

from gatewise import captured, kernels
from gatewise.batches import Batches, Bits
from gatewise.encode import Thermometer
from gatewise.harden import Hardener
from gatewise.layers import LogicConv2d, logic_layers
from gatewise.presets import Options, Preset, build_network, preset
from gatewise.resample import Resampler
from gatewise.train import _learn, start_optimizer

__all__ = ["interpreted"]


SMALL = dataclasses.replace(
    preset("cifar-conv-t"), k=2, dense=(12, 11), tau=2.0, patience=2, batch=8, resample_steps=1_000, clip=0.3
)  # fmt: skip
"""A class count that does not divide the last layer, and convolutions with and without stride."""


def parts_of(row: Preset, options: Options, augmentation: str = "flip_crop_2"):
    """What both steps take, made anew from the seed."""
    torch.manual_seed(options.seed)
    numbers = np.random.default_rng(0)
    images = numbers.integers(256, size=(20, 3, 4, 4), dtype=np.uint8)
    encoder = Thermometer.equal(3, 0, 255, (3, 4, 4))
    samples = Bits(images, numbers.integers(10, size=20), encoder, DEVICE)
    network = build_network(row, encoder.bit_shape, 10).to(DEVICE).train()
    with torch.no_grad():  # so that some neurons are dominated and some dispersed, and are redrawn
        for layer in logic_layers(network):
            layer.weight.copy_(torch.randn_like(layer.weight) * torch.rand(len(layer.weight), 1, device=DEVICE) * 6)
    optimizer = torch.optim.Adam([layer.weight for layer in logic_layers(network)], lr=row.rate)
    start_optimizer(optimizer)
    resampler = Resampler(network, optimizer, patience=row.patience, seed=options.seed)
    hardener = Hardener(network, patience=row.harden_patience, every=row.harden_every or None)
    train = Batches(samples, row.batch, options.seed, augmentation)
    return network, train, row, options, optimizer, resampler, hardener, torch.zeros((), device=DEVICE)


def run(step, parts, steps: int, start: int = 0):
    with kernels.use("auto"):
        for at in range(start, start + steps):
            step(at)
    return parts


def both(row: Preset, options: Options, steps: int, augmentation: str = "flip_crop_2"):
    mine, theirs = parts_of(row, options, augmentation), parts_of(row, options, augmentation)
    run(captured.CapturedStep(*mine), mine, steps)
    run(lambda at: _learn(*theirs, at), theirs, steps)
    return mine, theirs


def assert_close(mine, theirs, tolerance: float = 1e-4) -> None:
    """The same wiring, gates and counts; numbers that differ by rounding alone."""
    for a, b in zip(logic_layers(mine[0]), logic_layers(theirs[0]), strict=True):
        assert torch.equal(a.fanin, b.fanin)
        assert torch.equal(a.gate, b.gate)
        assert a.frozen == b.frozen
        error = (a.weight - b.weight).norm() / b.weight.norm()
        assert error <= tolerance, f"{error:.2e}"
        for name in ("step", "exp_avg", "exp_avg_sq"):
            one, other = (parts[4].state[layer.weight][name].float() for parts, layer in ((mine, a), (theirs, b)))
            assert torch.allclose(one, other, rtol=1e-2, atol=1e-5)
    for a, b in zip(mine[5].redrawn, theirs[5].redrawn, strict=True):
        assert int(a) == int(b)
    assert torch.allclose(mine[7], theirs[7], rtol=1e-4)
    assert mine[5].steps == theirs[5].steps


def test_a_captured_step_learns_and_redraws_what_the_loops_own_does():
    mine, theirs = both(SMALL, Options(seed=3), 3)
    assert_close(mine, theirs)
    assert sum(int(count) for count in mine[5].redrawn) > 0


def test_the_comparison_would_notice_another_seed():
    mine, theirs = (parts_of(SMALL, Options(seed=seed)) for seed in (3, 4))
    for parts in (mine, theirs):
        _learn(*parts, 0)
    with pytest.raises(AssertionError):
        assert_close(mine, theirs)


def test_frozen_layers_run_on_packed_words_and_the_others_go_on_learning():
    row = dataclasses.replace(SMALL, resample_steps=1, harden_every=1)
    mine, theirs = both(row, Options(), 4)
    assert [layer.frozen for layer in logic_layers(mine[0])] == [True, True, True, False, False, False]
    assert_close(mine, theirs)


def test_layers_freeze_at_the_same_step_whether_or_not_the_host_asks_each_time():
    """Entropy settles at once where nothing is learned: after `patience` steps the next layer is frozen."""
    row = dataclasses.replace(SMALL, resample_steps=0, harden_patience=2, rate=1e-12)
    mine, theirs = parts_of(row, Options()), parts_of(row, Options())
    step = captured.CapturedStep(*mine)
    for at in range(5):
        step(at)
        _learn(*theirs, at)
        frozen = [[layer.frozen for layer in logic_layers(parts[0])] for parts in (mine, theirs)]
        assert frozen[0] == frozen[1]
        assert sum(frozen[0]) == (at + 1) // 2


@pytest.mark.parametrize("precision", ["float16", "bfloat16"])
def test_sixteen_bits_learn_nearly_the_same(precision):
    if precision == "bfloat16" and DEVICE.type == "cpu":
        pytest.skip("Triton's interpreter cannot add bfloat16 atomically")
    mine, theirs = both(SMALL, Options(precision=precision), 2)
    for a, b in zip(logic_layers(mine[0]), logic_layers(theirs[0]), strict=True):
        assert (a.weight - b.weight).norm() / b.weight.norm() < 0.02
    assert torch.allclose(mine[7], theirs[7], rtol=0.02)


def test_a_run_that_goes_on_equals_one_that_was_not_stopped():
    """In deterministic mode, bit for bit: a new captured step picks up where the device's counters stood."""
    options = Options(deterministic=True)
    whole = parts_of(SMALL, options)
    run(captured.CapturedStep(*whole), whole, 3)
    halves = parts_of(SMALL, options)
    run(captured.CapturedStep(*halves), halves, 2)
    run(captured.CapturedStep(*halves), halves, 1, start=2)
    for a, b in zip(logic_layers(whole[0]), logic_layers(halves[0]), strict=True):
        assert torch.equal(a.weight, b.weight)
        assert torch.equal(a.fanin, b.fanin)


def test_dense_networks_of_turned_images_are_captured_too():
    row = dataclasses.replace(SMALL, k=0, dense=(72, 40), init="normal")
    assert_close(*both(row, Options(), 2, "rotate_shift"))


def test_what_cannot_be_captured_is_named():
    network, train, row, *_ = parts_of(SMALL, Options())
    assert captured.why_not(network, train, row) is None
    assert "Gumbel" in captured.why_not(network, train, dataclasses.replace(row, gumbel=1.0))
    assert "candidates" in captured.why_not(network, train, dataclasses.replace(row, candidates=129))
    network[-1] = torch.nn.Identity()
    assert "group sum" in captured.why_not(network, train, row)
    assert isinstance(network[0], LogicConv2d)
