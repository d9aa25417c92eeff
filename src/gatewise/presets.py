"""Every architecture and schedule of the paper, and a few of our own, as rows of one table."""

from __future__ import annotations

import dataclasses
import difflib
import math
from dataclasses import dataclass
from typing import Any

from torch import nn

from gatewise.errors import ConfigError
from gatewise.layers import GroupSum, LogicConv2d, LogicDense

ALWAYS = 1_000_000_000
"""Steps of resampling where it goes on to the end."""
PRECISIONS = ("float32", "float16", "bfloat16")
INITS, WIRINGS, RESTARTS = ("normal", "residual"), ("learned", "fixed"), ("normal", "uniform")

CONV_STRIDES = (2, 1, 2, 1)
CONV_WIDTHS = (1, 1, 4, 4)  # output channels, times k


def flag(text: str, **default: Any) -> Any:
    """A field that is also a flag of the command line, with its help."""
    return dataclasses.field(metadata={"help": text}, **default)


@dataclass(frozen=True)
class Preset:
    """What is trained on what, and how; each field is a flag of `gatewise train` and a key of a checkpoint."""

    name: str
    dataset: str
    thresholds: int = flag("bits a numeric value: equal thresholds for images and signals, quantiles for tables")
    k: int = flag("width of the four convolutions (k, k, 4k, 4k); 0 for dense layers alone")
    dense: tuple[int, ...] = flag("neurons of each dense layer, as 8000,8000")
    tau: float = flag("temperature of the group sum")
    patience: int = flag("steps for which a neuron's entropy has to be stable before it may be redrawn")
    steps: int = flag("training steps")
    resample_steps: int = flag("neurons are redrawn for so many steps; after them, convolutions are frozen in order")
    eval_every: int = flag("steps between evaluations, each of which saves a checkpoint")
    rate: float = flag("Adam's learning rate")
    init: str = flag("initial weights: normal, or residual (0.9 on passing the first input on)")
    batch: int = flag("samples a step", default=128)
    candidates: int = flag("candidates a neuron", default=16)
    wiring: str = flag(
        "learned, or fixed (each neuron keeps one random pair of inputs: DiffLogicNet)", default="learned"
    )
    clip: float = flag("largest norm of the gradient", default=10.0)
    restart: str = flag("weights of a dispersed neuron that is redrawn: normal or uniform", default="normal")
    harden_patience: int = flag("steps for which a layer's entropy has to be stable before it is frozen", default=200)
    harden_every: int = flag("freeze a layer each so many steps instead; 0: when its entropy is stable", default=0)
    gumbel: float = flag("temperature of Gumbel noise on the weights; 0: none", default=0.0)


@dataclass(frozen=True)
class Options:
    """How a preset is run; fields are flags of `gatewise train`."""

    seed: int = flag("the source of everything random", default=0)
    protocol: str = flag(
        "validation: a part of the training set picks the best checkpoint; paper: the test set does, without its last "
        "partial batch, and all of the training set is trained on",
        default="validation",
    )
    validation: float = flag("share of the training set that is held out to pick the checkpoint", default=0.1)
    device: str = flag("auto (a GPU where there is one), cpu, cuda, or cuda:1 and so on", default="auto")
    precision: str = flag(
        "values and their gradients on a GPU: float32, float16 or bfloat16; weights are float32 always",
        default="float32",
    )
    deterministic: bool = flag(
        "on a GPU, sum gradients in fixed point, so that runs of one seed agree bit for bit (slower)", default=False
    )


def _regular(
    name: str, dataset: str, thresholds: int, dense: tuple[int, ...], tau: float, patience: int, steps: int = 300_000
) -> Preset:
    return Preset(
        name, dataset, thresholds, 0, dense, tau, patience, steps, ALWAYS, eval_every=1_000, rate=0.01, init="normal"
    )


def _conv(
    name: str, dataset: str, thresholds: int, k: int, tau: float, patience: int,
    steps: int = 600_000, resample_steps: int = 400_000, dense: int = 625,
) -> Preset:  # fmt: skip
    return Preset(
        name, dataset, thresholds, k, (dense * k, dense * k), tau, patience, steps, resample_steps,
        eval_every=2_000, rate=0.02, init="residual",
    )  # fmt: skip


def _small(
    name: str, dense: tuple[int, ...], tau: float, steps: int, rate: float = 0.01, thresholds: int = 3
) -> Preset:
    row = _regular(name, name, thresholds, dense, tau, patience=100, steps=steps)
    return dataclasses.replace(row, rate=rate, eval_every=max(1, steps // 20))


_ROWS = (
    _small("digits", (6_000, 3_000), tau=20, steps=1_000, rate=0.02, thresholds=7),
    _regular("mnist-regular-s", "mnist", 1, (8_000,) * 6, tau=10, patience=100),
    _regular("mnist-regular-m", "mnist", 1, (64_000,) * 6, tau=45, patience=1_000),
    _regular("cifar-regular-s", "cifar10", 3, (12_000,) * 4, tau=33, patience=100),
    _regular("cifar-regular-m", "cifar10", 3, (128_000,) * 4, tau=100, patience=500),
    _regular("cifar-regular-l", "cifar10", 31, (256_000,) * 5, tau=100, patience=1_000),
    _conv("mnist-conv-s", "mnist", 1, k=128, tau=40, patience=100),
    _conv("mnist-conv-m", "mnist", 1, k=256, tau=63, patience=100),
    _conv("cifar-conv-t", "cifar10", 3, k=64, tau=20, patience=100),
    _conv("cifar-conv-s", "cifar10", 3, k=128, tau=40, patience=100),
    _conv("cifar-conv-m", "cifar10", 7, k=256, tau=63, patience=100),
    # The paper's text says 31 thresholds; the code behind its table has 63.
    _conv("cifar-conv-l", "cifar10", 63, 1_024, 160, 15_000, steps=700_000, resample_steps=500_000),
    _conv("tiny-imagenet-m", "tiny-imagenet", 7, 256, 20, 100, steps=200_000, resample_steps=150_000, dense=1_250),
    _conv("tiny-imagenet-l", "tiny-imagenet", 63, 1_024, 40, 500, steps=200_000, resample_steps=150_000, dense=1_250),
    _regular("ecg", "ecg", 7, (12_000,) * 4, tau=33, patience=100, steps=100_000),
    _small("breast-cancer", (128,) * 3, tau=20, steps=2_000),
    _small("adult", (256,) * 5, tau=20, steps=20_000),
    _small("monks-1", (24,) * 6, tau=1, steps=10_000),
    _small("monks-2", (12,) * 6, tau=1, steps=10_000),
    _small("monks-3", (12,) * 6, tau=1, steps=10_000),
)

PRESETS: dict[str, Preset] = {row.name: row for row in _ROWS}


def preset(name: str) -> Preset:
    """The row of that name."""
    if name not in PRESETS:
        near = difflib.get_close_matches(name, PRESETS, 3) or PRESETS
        raise ConfigError(f"there is no preset {name!r}; did you mean {', '.join(near)}?")
    return PRESETS[name]


def check(row: Preset) -> Preset:
    """The preset, if its numbers make sense."""
    for field in ("thresholds", "patience", "steps", "eval_every", "batch", "candidates", "harden_patience"):
        if getattr(row, field) < 1:
            raise ConfigError(f"{field} must be at least 1, not {getattr(row, field)}")
    if not row.dense and not row.k:
        raise ConfigError("dense names no layer and k is 0, but at least one layer has to come before the group sum")
    for field, names in (("init", INITS), ("wiring", WIRINGS), ("restart", RESTARTS)):
        if getattr(row, field) not in names:
            raise ConfigError(f"{field} is {' or '.join(map(repr, names))}, not {getattr(row, field)!r}")
    for field in ("k", "resample_steps", "harden_every", "gumbel"):
        if getattr(row, field) < 0:
            raise ConfigError(f"{field} must not be negative, but is {getattr(row, field)}")
    for field in ("tau", "rate", "clip"):
        if not (math.isfinite(getattr(row, field)) and getattr(row, field) > 0):
            raise ConfigError(f"{field} must be a positive number, not {getattr(row, field)}")
    return row


def build_network(row: Preset, bit_shape: tuple[int, ...], classes: int) -> nn.Sequential:
    """The preset's network for bits of that shape, drawn from torch's random numbers."""
    stages: list[nn.Module] = []
    if row.k:
        if len(bit_shape) != 3:
            raise ConfigError(f"convolutions (k={row.k}) need images, but {row.dataset} has bits of shape {bit_shape}")
        channels, *sides = bit_shape
        for width, stride in zip(CONV_WIDTHS, CONV_STRIDES, strict=True):
            conv = LogicConv2d(
                channels, width * row.k, 3, stride=stride, padding=1,
                candidates=row.candidates, wiring=row.wiring, init=row.init,
            )  # fmt: skip
            channels, sides = width * row.k, [conv.output_size(side) for side in sides]
            stages.append(conv)
        bit_shape = (channels, *sides)
    stages.append(nn.Flatten())
    inputs = math.prod(bit_shape)
    for neurons in row.dense:
        stages.append(LogicDense(inputs, neurons, candidates=row.candidates, wiring=row.wiring, init=row.init))
        inputs = neurons
    return nn.Sequential(*stages, GroupSum(classes, row.tau))
