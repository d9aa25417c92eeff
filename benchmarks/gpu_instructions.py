"""The instructions of every kernel that a captured step launches, compiled for compute capability 9.0 without a GPU.

    python benchmarks/gpu_instructions.py cifar-conv-t --precision float16

A line a kernel and form of it: instructions in all and in its longest loop, registers a thread, bytes of stack (what
was spilled) and of shared memory, and the programs that a step starts of it with their warps. The launchers run on
tensors of the CPU and launch nothing: what Triton would launch is compiled with the types, sizes and specialisations
that it would have. Without a preset, small networks that between them launch every kernel.
"""

import argparse
import dataclasses
import math
import re
import subprocess
import tempfile
from collections import Counter
from pathlib import Path

import numpy as np
import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.runtime import driver
from triton.runtime.jit import JITFunction

from gatewise import kernels
from gatewise.batches import Batches, Bits
from gatewise.captured import CapturedStep
from gatewise.data import DATASETS
from gatewise.encode import Thermometer
from gatewise.presets import PRECISIONS, PRESETS, Options, preset
from gatewise.train import begin

TOOLS = Path(triton.__file__).parent / "backends" / "nvidia" / "bin"
INSTRUCTION = re.compile(r"\s+/\*[0-9a-f]{4,}\*/\s+(?P<text>[^;]*);")
LABEL = re.compile(r"\s*(?P<name>\.L_x_\d+):")
BACK = re.compile(r"BRA.*`\((?P<name>\.L_x_\d+)\)")


class NoGpu:
    """As much of a driver as compiling asks for."""

    def get_current_device(self):
        return 0

    def get_current_stream(self, device=None):
        return 0

    def get_current_target(self):
        return GPUTarget("cuda", 90, 32)


compiled = {}
launched: Counter = Counter()
launch = JITFunction.run


def compile_only(self, *args, grid, warmup, **options):
    kernel = launch(self, *args, grid=grid, warmup=True, **options)
    assert all(1 <= n <= limit for n, limit in zip(grid, (2**31 - 1, 65_535, 65_535), strict=False)), (self, grid)
    compiled[kernel.hash] = (self.__name__, kernel)
    launched[kernel.hash] += math.prod(grid)
    return kernel


def steps(row, options, augmentation, side, channels, count, classes=10):
    """Take `count` captured steps of a preset on random images."""
    numbers = np.random.default_rng(0)
    images = numbers.integers(256, size=(2 * row.batch, channels, side, side), dtype=np.uint8)
    encoder = Thermometer.equal(row.thresholds, 0, 255, (channels, side, side))
    samples = Bits(images, numbers.integers(classes, size=len(images)), encoder, torch.device("cpu"))
    network, *changes = begin(row, options, encoder.bit_shape, classes, torch.device("cpu"))
    train = Batches(samples, row.batch, 0, augmentation)
    learn = CapturedStep(network.train(), train, row, options, *changes, torch.zeros(()))
    for step in range(count):
        learn(step)


def small(precision: str) -> None:
    """Networks that between them launch every kernel, also in the forms for sums in fixed point and sizes of 1."""
    conv = dataclasses.replace(preset("cifar-conv-t"), k=2, dense=(80, 40), resample_steps=1, harden_every=1)
    dense = dataclasses.replace(preset("mnist-regular-s"), dense=(80, 40))
    steps(conv, Options(precision=precision), "flip_crop_2", 16, 3, 4)
    steps(dense, Options(precision=precision), "rotate_shift", 9, 1, 1)
    steps(dense, Options(deterministic=True), "none", 9, 1, 1)
    steps(dataclasses.replace(conv, k=1, batch=1), Options(), "flip_crop_4", 16, 3, 4)


def measure(cubin: bytes) -> tuple[int, int, str, str]:
    """Instructions, those of the longest loop, registers and bytes of stack."""
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        text = subprocess.run([TOOLS / "nvdisasm", "-c", file.name], capture_output=True, text=True, check=True).stdout
        usage = subprocess.run([TOOLS / "cuobjdump", "-res-usage", file.name], capture_output=True, text=True).stdout
    labels, instructions, loops = {}, [], [0]
    for line in text.splitlines():
        if found := LABEL.match(line):
            labels[found["name"]] = len(instructions)
        elif found := INSTRUCTION.match(line):
            instructions.append(found["text"])
            back = BACK.search(found["text"])
            if back and back["name"] in labels and len(instructions) - labels[back["name"]] > 1:
                loops.append(len(instructions) - labels[back["name"]])
    found = re.search(r"REG:(\d+).*?STACK:(\d+)", usage)
    registers, stack = found.groups() if found else ("?", "?")
    return sum(not text.startswith("NOP") for text in instructions), max(loops), registers, stack


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    images = [name for name, row in PRESETS.items() if len(DATASETS[row.dataset].shape) == 3]
    parser.add_argument("preset", nargs="?", choices=images)
    parser.add_argument("--precision", choices=PRECISIONS, default="float16")
    args = parser.parse_args()
    driver.set_active(NoGpu())
    JITFunction.run = compile_only
    kernels.choose = lambda *args: "triton"
    if args.preset is None:
        small(args.precision)
    else:
        row = preset(args.preset)
        data = DATASETS[row.dataset]
        channels, side, _ = data.shape
        steps(row, Options(precision=args.precision), data.augmentation, side, channels, 1, data.classes)
    print("kernel            instructions   loop  registers  stack  shared   programs  warps")
    for key, (name, kernel) in sorted(compiled.items(), key=lambda item: item[1][0]):
        count, loop, registers, stack = measure(kernel.asm["cubin"])
        shared, warps = kernel.metadata.shared, kernel.metadata.num_warps
        print(
            f"{name:18}{count:12,}  {loop:5,}  {registers:>9}  {stack:>5}  {shared:6,}  {launched[key]:9,}  {warps:5}"
        )


if __name__ == "__main__":
    main()
