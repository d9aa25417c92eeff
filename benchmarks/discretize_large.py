"""Seconds and peak memory to discretize, prune and count cifar-conv-l, 2.3 million neurons, with random weights.

python benchmarks/discretize_large.py [--preset cifar-conv-l]
"""

from __future__ import annotations

import argparse
import resource
import time

import torch
from torch import nn

from gatewise import discretize
from gatewise.circuit import count_bops, prune
from gatewise.data import DATASETS
from gatewise.presets import Preset, build_network, preset


def peak_gib() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20


def random_network(row: Preset) -> tuple[nn.Sequential, tuple[int, ...]]:
    """The preset's network with normal random weights, and the shape of its bits."""
    dataset = DATASETS[row.dataset]
    shape = (dataset.shape[0] * row.thresholds, *dataset.shape[1:])
    torch.manual_seed(0)
    network = build_network(row, shape, dataset.classes).eval()
    with torch.no_grad():
        for weight in network.parameters():
            weight.normal_()
    return network, shape


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--preset", default="cifar-conv-l")
    row = preset(parser.parse_args().preset)
    start = time.perf_counter()
    network, shape = random_network(row)
    print(f"{row.name}: network made in {time.perf_counter() - start:.1f} s, {peak_gib():.2f} GiB so far")

    start = time.perf_counter()
    circuit = discretize(network, shape)
    middle = time.perf_counter()
    pruned = prune(circuit)
    bops = count_bops(circuit)
    end = time.perf_counter()
    print(f"discretize  {middle - start:5.2f} s   {circuit.gates:,} neurons, {circuit.inputs:,} inputs")
    print(f"prune+count {end - middle:5.2f} s   {pruned.gates:,} gates, {bops:,} BOPs (random weights)")
    print(f"peak memory {peak_gib():5.2f} GiB, network and torch included")


if __name__ == "__main__":
    main()
