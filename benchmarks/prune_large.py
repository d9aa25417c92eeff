"""Seconds and memory to build, prune and count a random layered circuit the size of the paper's largest network."""

from __future__ import annotations

import argparse
import resource
import sys
import time

import numpy as np

from gatewise.circuit import Circuit, count_bops, prune
from gatewise.circuit.levels import level_order
from gatewise.circuit.simulate import Simulator


def layered(inputs: int, layers: list[int], seed: int) -> tuple[int, np.ndarray, np.ndarray, np.ndarray]:
    """The arrays of a circuit of uniformly random gates, each reading two nets of the layer before."""
    rng = np.random.default_rng(seed)
    first, fanin = 2, []
    for below, size in zip([inputs, *layers[:-1]], layers, strict=True):
        fanin.append(rng.integers(first, first + below, (size, 2), dtype=np.int32))
        first += below
    table = rng.integers(0, 16, sum(layers), dtype=np.uint64)
    return inputs, table, np.concatenate(fanin), np.arange(first, first + layers[-1], dtype=np.int32)


def peak_gib() -> float:
    """The largest resident memory of this process so far."""
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 2**30


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--inputs", type=int, default=193_000)
    parser.add_argument("--layers", default="262144,262144,262144,262144,640000,640000", help="gates in each layer")
    parser.add_argument("--samples", type=int, default=0, help="also put the circuit in levels and simulate this many")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()

    arrays = layered(options.inputs, [int(size) for size in options.layers.split(",")], options.seed)
    begin = last = time.perf_counter()

    def report(what: str, result: object = "") -> None:
        nonlocal last
        now = time.perf_counter()
        print(f"{what:12} {now - last:8.2f} s  peak {peak_gib():.2f} GiB  {result}")
        last = now

    circuit = Circuit(*arrays)
    report("construct", repr(circuit))
    pruned = prune(circuit)
    report("prune", repr(pruned))
    bops = count_bops(circuit)
    report("count_bops", f"{bops} BOPs")
    print(f"{'together':12} {last - begin:8.2f} s")

    if options.samples:
        order, start = level_order(circuit)
        report("level_order", f"{len(order)} gates in {len(start) - 1} levels")
        simulator = Simulator(circuit)
        report("prepare")
        bits = np.random.default_rng(options.seed).random((options.samples, options.inputs), np.float32) < 0.5
        report("make bits")
        ones = int(np.count_nonzero(simulator(bits)))
        report("simulate", f"{ones} ones")


if __name__ == "__main__":
    main()
