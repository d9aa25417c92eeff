"""A captured training step on a GPU: milliseconds, memory, the floor its bytes set, and where its time goes.

    python benchmarks/gpu_step.py [PRESET …] [--data DIR|FILE] [--precision float16] [--steps 400] [--profile]

Resampling is active. Times are of replays of the graph, between events, the median of blocks of 20 steps; memory is the
peak of what PyTorch has allocated, the dataset included. Without --data, or where it holds too few levels, images are
random. The floor counts each byte that the kernels cannot do without: the rows of x that candidates name, read in the
forward and again in the backward pass and added to in the latter, and for convolutions each image once a kernel that
reads it; over the speed at which random rows of one layer's input are summed in the same run, out of the L2 cache.
"""

from __future__ import annotations

import argparse
import dataclasses
import gc
import json
import statistics
from pathlib import Path
from typing import Any

import numpy as np
import torch
import triton
import triton.language as tl
from torch import nn
from train_step import rows_named

from gatewise.batches import Batches, Bits
from gatewise.captured import CapturedStep
from gatewise.data import DATASETS, check_levels, load_dataset
from gatewise.encode import Thermometer
from gatewise.errors import GatewiseError
from gatewise.layers import LogicConv2d, logic_layers
from gatewise.presets import PRECISIONS, Options, Preset, preset
from gatewise.train import begin

# Of the paper's own code on an H200: milliseconds a step, and MiB at the peak; then the goal in milliseconds.
PUBLISHED = {
    "mnist-regular-s": (6.4, 96, 0.30),
    "cifar-regular-s": (4.1, 367, 0.30),
    "cifar-regular-m": (23.1, 1088, 2.0),
    "cifar-conv-t": (11.0, 470, 0.60),
    "cifar-conv-s": (18.6, 649, 1.1),
    "cifar-conv-m": (28.4, 1382, 2.2),
    "cifar-conv-l": (109.0, 8873, 9.0),
}
BLOCK_STEPS = 20


@triton.jit
def row_sum(x, rows, out, B: tl.constexpr, ROWS: tl.constexpr):
    """Sum ROWS rows of x [.., B] that `rows` names."""
    i, s = tl.program_id(0), tl.arange(0, B)
    row = tl.load(rows + i * ROWS + tl.arange(0, ROWS)).to(tl.int64)
    tl.store(out + i * B + s, tl.sum(tl.load(x + row[:, None] * B + s[None, :]).to(tl.float32), 0))


def row_bandwidth(rows: int, batch: int, dtype: torch.dtype) -> float:
    """Bytes a second at which random rows of an array [rows, batch] are summed."""
    width = triton.next_power_of_2(batch)
    x = torch.rand(rows, width, device="cuda").to(dtype)
    programs, each = 40_000, 16
    chosen = torch.randint(rows, (programs * each,), dtype=torch.int32, device="cuda")
    out = torch.empty(programs, width, device="cuda")
    ms = triton.testing.do_bench(
        lambda: row_sum[(programs,)](x, chosen, out, B=width, ROWS=each, num_warps=1), return_mode="median"
    )
    return programs * each * width * x.element_size() / ms * 1e3


def bytes_moved(network: nn.Module, row: Preset, shape: tuple[int, ...], size: int) -> int:
    """What a step's kernels cannot do without, with values of `size` bytes."""
    moved, image = 0, shape[-2:]
    for i, layer in enumerate(logic_layers(network)):
        neurons, candidates = layer.weight.shape
        moved += neurons * candidates * (4 * 4 + 3 * 4)  # gradient, weight and moments
        if isinstance(layer, LogicConv2d):
            out = tuple(map(layer.output_size, image))
            read, written = neurons * image[0] * image[1], neurons * out[0] * out[1]
            rows = 2 * (read + written) + (0 if i == 0 else read + written)
            image = out
        else:
            named = rows_named(layer)
            rows = named + neurons + named + neurons + (0 if i == 0 else named)
        moved += rows * row.batch * size
    return moved


def training_set(row: Preset, data: Path | None) -> tuple[Bits, str]:
    """The preset's training samples on the GPU, and what they are."""
    dataset = DATASETS[row.dataset]
    assert dataset.low is not None
    assert dataset.high is not None
    encoder = Thermometer.equal(row.thresholds, dataset.low, dataset.high, dataset.shape)
    try:
        splits = load_dataset(row.dataset, data)
        check_levels(row.dataset, splits, encoder.arrays()["thresholds"])
        x, y, what = splits.train_x, splits.train_y, "real"
    except GatewiseError:
        numbers = np.random.default_rng(0)
        x = numbers.integers(256, size=(10_000, *dataset.shape), dtype=np.uint8)
        y, what = numbers.integers(dataset.classes, size=10_000), "random"
    return Bits(x, y, encoder, torch.device("cuda")), what


def measure(row: Preset, options: Options, data: Path | None, steps: int, profile: bool) -> dict[str, Any]:
    """One preset's figures."""
    gc.collect()
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    samples, what = training_set(row, data)
    dataset = DATASETS[row.dataset]
    network, optimizer, resampler, hardener = begin(
        row, options, samples.bit_shape, dataset.classes, torch.device("cuda")
    )
    network.train()
    train = Batches(samples, row.batch, 0, dataset.augmentation)
    loss = torch.zeros((), device="cuda")
    learn = CapturedStep(network, train, row, options, optimizer, resampler, hardener, loss)
    for step in range(steps):  # also time for neurons to become stable, so that some are redrawn
        learn(step)
    before = sum(int(count) for count in resampler.redrawn)
    times = []
    for block in range(0, steps, BLOCK_STEPS):
        started, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        started.record()
        for step in range(block, block + BLOCK_STEPS):
            learn(steps + step)
        end.record()
        end.synchronize()
        times.append(started.elapsed_time(end) / BLOCK_STEPS)
    redrawn = (sum(int(count) for count in resampler.redrawn) - before) / (len(times) * BLOCK_STEPS)
    mib = torch.cuda.max_memory_allocated() / 2**20
    size = torch.empty((), dtype=getattr(torch, options.precision)).element_size()
    inputs = network[-2].in_features if hasattr(network[-2], "in_features") else 40_000
    speed = row_bandwidth(inputs, row.batch, getattr(torch, options.precision))
    floor = 1e3 * bytes_moved(network, row, samples.bit_shape, size) / speed
    result = {
        "preset": row.name, "precision": options.precision, "images": what, "ms": statistics.median(times),
        "ms_least": min(times), "ms_most": max(times), "floor_ms": floor, "row_tb_s": speed / 1e12, "redrawn": redrawn,
        "mib": mib, "finite": bool(loss.isfinite()),
    }  # fmt: skip
    if profile:
        result["kernels"] = kernel_times(learn)
    return result


def kernel_times(learn: CapturedStep, steps: int = 5) -> dict[str, tuple[float, int]]:
    """Microseconds and launches a step of each kernel, of steps that are not captured."""
    activities = [torch.profiler.ProfilerActivity.CUDA, torch.profiler.ProfilerActivity.CPU]
    with torch.profiler.profile(activities=activities) as profiler:
        for _ in range(steps):
            learn._learn(True)
        torch.cuda.synchronize()
    on_device = (e for e in profiler.key_averages() if e.device_type == torch.autograd.DeviceType.CUDA)
    rows = [(e.key, e.self_device_time_total / steps, e.count // steps) for e in on_device]
    return {name[:60]: (us, count) for name, us, count in sorted(rows, key=lambda r: -r[1])[:24] if us > 0}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("presets", nargs="*", default=list(PUBLISHED))
    parser.add_argument("--data", type=Path)
    parser.add_argument("--precision", choices=PRECISIONS, default="float16")
    parser.add_argument("--deterministic", action="store_true")
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--profile", action="store_true", help="also the time of each kernel")
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    args = parser.parse_args()
    options = Options(device="cuda", precision=args.precision, deterministic=args.deterministic)
    print(f"{torch.cuda.get_device_name()}, PyTorch {torch.__version__}, Triton {triton.__version__}, {args.precision}")
    print("preset           images      ms (least..most)   published  times   goal   floor  share     MiB  redrawn")
    results = []
    for name in args.presets:
        row = dataclasses.replace(preset(name), resample_steps=10**9)
        found = measure(row, options, args.data, args.steps - args.steps % BLOCK_STEPS, args.profile)
        results.append(found)
        published, mib, goal = PUBLISHED.get(name, (float("nan"),) * 3)
        print(
            f"{name:16} {found['images']:6} {found['ms']:7.3f} ({found['ms_least']:.3f}..{found['ms_most']:.3f})"
            f"  {published:8.1f}  {published / found['ms']:5.1f}  {goal:5.2f}  {found['floor_ms']:6.3f}"
            f"  {found['floor_ms'] / found['ms']:4.0%}  {found['mib']:5.0f} (published {mib})  {found['redrawn']:.1f}",
            flush=True,
        )
        for kernel, (us, count) in found.get("kernels", {}).items():
            print(f"    {us:8.1f} µs  {count:3} launches  {kernel}")
        if args.json:
            args.json.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
