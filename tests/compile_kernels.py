"""Compile for compute capability 9.0 what a captured step launches, without a GPU; prints the kernels, a line each.

The launchers run on tensors of the CPU and launch nothing: what Triton would launch is compiled with the types, sizes
and specialisations that it would have. Run by a test, in a process of its own.
"""

import dataclasses
import sys

import numpy as np
import torch
from triton.backends.compiler import GPUTarget
from triton.runtime import driver
from triton.runtime.jit import JITFunction

from gatewise import kernels
from gatewise.batches import Batches, Bits
from gatewise.captured import CapturedStep
from gatewise.encode import Thermometer
from gatewise.harden import Hardener
from gatewise.layers import logic_layers
from gatewise.presets import Options, build_network, preset
from gatewise.resample import Resampler
from gatewise.train import start_optimizer


class NoGpu:
    """As much of a driver as compiling asks for."""

    def get_current_device(self):
        return 0

    def get_current_stream(self, device=None):
        return 0

    def get_current_target(self):
        return GPUTarget("cuda", 90, 32)


compiled = {}
launch = JITFunction.run


def compile_only(self, *args, grid, warmup, **options):
    kernel = launch(self, *args, grid=grid, warmup=True, **options)
    assert all(1 <= n <= limit for n, limit in zip(grid, (2**31 - 1, 65_535, 65_535), strict=False)), (self, grid)
    compiled[kernel.hash] = (self.__name__, kernel.metadata.shared)
    return kernel


def steps(row, options, augmentation, side, channels, count):
    """Take `count` captured steps of a preset on random images."""
    numbers = np.random.default_rng(0)
    images = numbers.integers(256, size=(2 * row.batch, channels, side, side), dtype=np.uint8)
    encoder = Thermometer.equal(row.thresholds, 0, 255, (channels, side, side))
    samples = Bits(images, numbers.integers(10, size=len(images)), encoder, torch.device("cpu"))
    network = build_network(row, encoder.bit_shape, 10).train()
    optimizer = torch.optim.Adam([layer.weight for layer in logic_layers(network)], lr=row.rate)
    start_optimizer(optimizer)
    hardener = Hardener(network, every=row.harden_every or None)
    train = Batches(samples, row.batch, 0, augmentation)
    parts = (network, train, row, options, optimizer, Resampler(network, optimizer), hardener, torch.zeros(()))
    learn = CapturedStep(*parts)
    for step in range(count):
        learn(step)


def main() -> None:
    driver.set_active(NoGpu())
    JITFunction.run = compile_only
    kernels.choose = lambda *args: "triton"
    conv = dataclasses.replace(preset("cifar-conv-t"), k=2, dense=(80, 40), resample_steps=1, harden_every=1)
    dense = dataclasses.replace(preset("mnist-regular-s"), dense=(80, 40))
    for precision in sys.argv[1:]:
        steps(conv, Options(precision=precision), "flip_crop_2", 16, 3, 4)
        steps(dense, Options(precision=precision), "rotate_shift", 9, 1, 1)
    steps(dense, Options(deterministic=True), "none", 9, 1, 1)
    steps(dataclasses.replace(conv, k=1, batch=1), Options(), "flip_crop_4", 16, 3, 4)  # ones are treated specially
    for name, shared in sorted(compiled.values()):
        print(name, shared)


if __name__ == "__main__":
    main()
