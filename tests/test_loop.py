"""The loop: a run against the method written down once more, step by step, and what a step gets to see."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from runs import tiny
from torch import nn

from gatewise import draws
from gatewise.batches import Batches, Bits
from gatewise.data import DATASETS
from gatewise.data.augment import augment
from gatewise.encode import Thermometer
from gatewise.harden import Hardener
from gatewise.kernels import own_threads
from gatewise.layers import logic_layers
from gatewise.presets import Preset, build_network, preset
from gatewise.resample import Resampler
from gatewise.train import Options, prepare, train


def test_a_step_sees_augmented_samples_and_an_evaluation_sees_them_as_they_are() -> None:
    x = np.random.default_rng(0).integers(0, 256, (40, 2, 6, 5), dtype=np.uint8)
    samples = Bits(x, np.arange(40), Thermometer.equal(3, 0, 255, (2, 6, 5)), torch.device("cpu"))
    plain, augmented = (Batches(samples, batch=16, seed=3, augmentation=name) for name in ("none", "flip_crop_2"))
    for step in (0, 3):
        chosen = augmented.take(step)[1]
        assert torch.equal(chosen, plain.take(step)[1])
        words = draws.philox(3, step, draws.AUGMENTATION, torch.arange(16))
        moved = augment("flip_crop_2", torch.from_numpy(x)[chosen], torch.stack(words, 1))
        assert torch.equal(augmented.take(step)[0], samples.encode(moved))
        assert not torch.equal(augmented.take(step)[0], plain.take(step)[0])
    assert torch.equal(next(samples.in_order(40))[0], samples.encode(torch.from_numpy(x)))


def write_idx(path: Path, array: np.ndarray) -> None:
    """One of MNIST's files."""
    head = np.array([0x800 + array.ndim, *array.shape], dtype=">u4").tobytes()
    path.write_bytes(head + array.astype(np.uint8).tobytes())


def test_a_run_augments_as_the_dataset_says(tmp_path: Path) -> None:
    for part in ("train", "t10k"):
        write_idx(tmp_path / f"{part}-images-idx3-ubyte", np.zeros((20, 28, 28)))
        write_idx(tmp_path / f"{part}-labels-idx1-ubyte", np.arange(20) % 10)
    assert prepare(preset("mnist-regular-s"), Options(), tmp_path).train.augmentation == "rotate_shift"
    assert prepare(tiny(), Options(), None).train.augmentation == "none"
    rows = {"mnist": "rotate_shift", "cifar10": "flip_crop_2", "tiny-imagenet": "flip_crop_4"}
    assert {name: row.augmentation for name, row in DATASETS.items() if row.augmentation != "none"} == rows


@own_threads()
def by_hand(row: Preset, options: Options) -> nn.Sequential:
    """What a run of `row` does, step by step, without all that it does besides."""
    task = prepare(row, options, None)
    torch.manual_seed(options.seed)
    network = build_network(row, task.encoder.bit_shape, task.classes)
    optimizer = torch.optim.Adam(network.parameters(), lr=row.rate, fused=True)
    resampler = Resampler(network, optimizer, patience=row.patience, restart=row.restart, seed=options.seed)
    hardener = Hardener(network, patience=row.harden_patience, every=row.harden_every or None)
    for step in range(row.steps):
        x, y = task.train.take(step)
        loss = nn.functional.cross_entropy(network(x), y)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(network.parameters(), row.clip)
        optimizer.step()
        if step < row.resample_steps:
            resampler.step()
        else:
            hardener.step()
    return network


LOOP = {"k": 6, "dense": (60,), "steps": 20, "eval_every": 20, "rate": 3e-4, "clip": 1e-3, "patience": 2}
LOOP |= {"resample_steps": 9, "harden_patience": 3, "tau": 6.0, "batch": 48}
OTHER = {"rate": 2e-4, "clip": 10.0, "patience": 3, "resample_steps": 10, "harden_patience": 4, "tau": 7.0, "batch": 49}
OTHER |= {"restart": "uniform", "init": "residual", "candidates": 15, "wiring": "fixed", "harden_every": 2}


def differing(one: nn.Sequential, two: nn.Sequential) -> list[str]:
    """Names of the tensors that differ."""
    a, b = one.state_dict(), two.state_dict()
    return [name for name in a if a[name].shape != b[name].shape or not torch.equal(a[name], b[name])]


@pytest.mark.parametrize("fields", [{}, {"harden_every": 4}], ids=["adaptive", "on schedule"])
def test_a_run_is_the_loop_that_the_method_describes(fields: dict[str, int], tmp_path: Path) -> None:
    row, options = tiny(**LOOP | fields), Options(seed=3)
    network = by_hand(row, options)
    assert any(layer.frozen for layer in logic_layers(network))
    assert differing(train(row, tmp_path / "run", options=options).network, network) == []


@pytest.mark.parametrize("field", OTHER)
def test_every_setting_of_the_loop_makes_a_difference(field: str) -> None:
    options = Options(seed=3)
    assert differing(by_hand(tiny(**LOOP), options), by_hand(tiny(**LOOP | {field: OTHER[field]}), options))
