"""One training step (forward, backward, Adam, resampling) of a preset: native kernels against plain PyTorch.

    python benchmarks/train_step.py [--preset mnist-regular-s] [--batch 128] [--threads 2] [--rounds 3]

Each measurement runs in a process of its own, the two kinds in turn. Memory is what the steps add to the process at its
peak, over what it holds once the network is built. The floor counts the rows that candidates name (512 bytes at batch
128): once in the forward pass; read, and its gradient read and written, in the backward pass; over the speed at which
as many threads can sum random rows of one layer's input.
"""

from __future__ import annotations

import argparse
import ctypes
import dataclasses
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import torch
from torch import nn

from gatewise import core, kernels
from gatewise.data import DATASETS
from gatewise.layers import LogicLayer, logic_layers
from gatewise.presets import build_network, preset
from gatewise.resample import Resampler

ROW_SUM = """
#include <stdint.h>
typedef float lanes __attribute__((vector_size(64), aligned(4), may_alias));
void row_sum(const float *x, const int32_t *row, int64_t rows, int64_t width, float *out) {
  lanes a = {0}, b = {0}, c = {0}, d = {0};
  for (int64_t i = 0; i < rows; i++)
    for (int64_t j = 0; j < width; j += 64) {
      const lanes *at = (const lanes *)(x + row[i] * width + j);
      a += at[0], b += at[1], c += at[2], d += at[3];
    }
  *(lanes *)out = a + b + c + d;
}
"""


def status_mib(key: str) -> float:
    """A memory figure of this process, from the kernel."""
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith(key))
    return int(line.split()[1]) / 1024


def measure(kind: str, name: str, batch: int, threads: int, steps: int) -> dict[str, float]:
    """Milliseconds and MiB of steps with the named kernels, in this process."""
    torch.set_num_threads(threads)
    torch.manual_seed(0)
    row = dataclasses.replace(preset(name), patience=20)
    shape = DATASETS[row.dataset].shape
    shape = (shape[0] * row.thresholds, *shape[1:])
    network = build_network(row, shape, DATASETS[row.dataset].classes).train()
    x = torch.randint(2, (*shape, batch)).float().movedim(-1, 0)
    y = torch.randint(DATASETS[row.dataset].classes, (batch,))
    weights = list(network.parameters())
    optimizer = torch.optim.Adam(weights, lr=row.rate, fused=True)
    resampler = Resampler(network, optimizer, patience=row.patience)

    def step() -> None:
        loss = nn.functional.cross_entropy(network(x), y)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(weights, row.clip)
        optimizer.step()
        resampler.step()

    before = status_mib("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")  # forget the peak so far
    with kernels.use(kind), kernels.own_threads() if kind == "native" else torch.enable_grad():
        step()
        times = []
        for _ in range(steps):
            start = time.perf_counter()
            step()
            times.append(1e3 * (time.perf_counter() - start))
    redrawn = sum(int(count) for count in resampler.redrawn) / (steps + 1)
    return {"ms": statistics.median(times), "mib": status_mib("VmHWM") - before, "redrawn": redrawn}


def row_bandwidth(rows: int, width: int, threads: int) -> float:
    """Bytes a second at which `threads` threads sum random rows of an array of `rows` rows."""
    with tempfile.TemporaryDirectory() as folder:
        library = str(Path(folder) / "row_sum.so")
        flags = ["-O3", "-march=native", "-mprefer-vector-width=512", "-shared", "-fPIC"]
        subprocess.run(["gcc", *flags, "-xc", "-", "-o", library], input=ROW_SUM, text=True, check=True)
        row_sum = ctypes.CDLL(library).row_sum
    x = np.random.default_rng(0).random((rows, width), dtype=np.float32)
    chosen = np.random.default_rng(1).integers(rows, size=(threads, 200_000)).astype(np.int32)
    out = np.zeros((threads, width), np.float32)
    pointer = ctypes.c_void_p

    def run(i: int) -> None:
        sizes = (ctypes.c_int64(chosen.shape[1]), ctypes.c_int64(width))
        row_sum(pointer(x.ctypes.data), pointer(chosen[i].ctypes.data), *sizes, pointer(out[i].ctypes.data))

    best = float("inf")
    with ThreadPoolExecutor(threads) as pool:
        for _ in range(30):
            start = time.perf_counter()
            list(pool.map(run, range(threads)))
            best = min(best, time.perf_counter() - start)
    return chosen.size * width * 4 / best


def rows_named(layer: LogicLayer) -> int:
    """Rows that a layer's candidates read, at one position: two, one or none, as the gate needs."""
    table = layer.gate.int()
    f00, f01, f10, f11 = (table >> shift & 1 for shift in (3, 2, 1, 0))
    return int(((f00 != f10) | (f01 != f11)).sum() + ((f00 != f01) | (f10 != f11)).sum())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--preset", default="mnist-regular-s")
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--measure", choices=["native", "reference"], help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.measure:
        steps = 60 if args.measure == "native" else 2
        print(json.dumps(measure(args.measure, args.preset, args.batch, args.threads, steps)))
        return

    results: dict[str, list[dict[str, float]]] = {"native": [], "reference": []}
    for _ in range(args.rounds):
        for kind in results:
            command = [sys.executable, __file__, "--measure", kind, "--preset", args.preset]
            command += ["--batch", str(args.batch), "--threads", str(args.threads)]
            done = subprocess.run(command, check=True, capture_output=True, text=True, env=os.environ)
            results[kind].append(json.loads(done.stdout))
    best = {kind: min(runs, key=lambda run: run["ms"]) for kind, runs in results.items()}
    row, levels = preset(args.preset), core.levels()
    print(f"{row.name}, batch {args.batch}, {args.threads} threads, {levels[-1]}, best of {args.rounds} medians")
    for kind, run in best.items():
        cost = f"{run['ms']:9.1f} ms a step   {run['mib']:8.0f} MiB"
        print(f"{kind:10} {cost}   {run['redrawn']:.0f} neurons redrawn a step")
    fast, slow = best["native"], best["reference"]
    print(f"ratio      {slow['ms'] / fast['ms']:9.1f} times faster, {slow['mib'] / fast['mib']:.1f} times less memory")
    if not row.k and args.batch % 64 == 0:
        shape = (DATASETS[row.dataset].shape[0] * row.thresholds, *DATASETS[row.dataset].shape[1:])
        named = [rows_named(layer) for layer in logic_layers(build_network(row, shape, 10))]
        moved = 4 * args.batch * (sum(named) + named[0] + 3 * sum(named[1:]))
        speed = row_bandwidth(row.dense[0], args.batch, args.threads)
        floor = 1e3 * moved / speed
        print(f"floor      {floor:9.1f} ms: {moved / 1e9:.2f} GB of rows at {speed / 1e9:.0f} GB/s")
        print(f"           a step takes {fast['ms'] / floor:.1f} times that")


if __name__ == "__main__":
    main()
