"""Gates and BOPs after each pass on trained networks, each change checked; and what the pipeline costs at 2.3 million.

python benchmarks/passes.py runs/digits runs/mnist-regular-s/model.gatewise
python benchmarks/passes.py --large

Of a run's folder the network of the best checkpoint is taken as it was discretized, before any pruning; of a model file
the circuit in it. Gates are all gates, the NOTs that outputs show among them; BOPs are the paper's count.
"""

from __future__ import annotations

import argparse
import functools
import time
from pathlib import Path

from discretize_large import peak_gib, random_network

from gatewise import checkpoint, discretize
from gatewise.circuit import PIPELINE, Circuit, count_bops, optimize
from gatewise.circuit.pipeline import Pass
from gatewise.compilation import check, measure
from gatewise.model import load
from gatewise.presets import build_network, preset


def circuit_of(source: Path) -> Circuit:
    """The circuit of a model file, or of the best checkpoint in a run's folder."""
    model = load(source / "model.gatewise" if source.is_dir() else source)
    if not source.is_dir():
        return model.circuit
    row, _ = checkpoint.settings(source / "best.safetensors")
    network = build_network(row, model.encoder.bit_shape, model.head.classes)
    network.load_state_dict(
        checkpoint.load(source / "best.safetensors", {"network": dict(network.state_dict())})["network"]
    )
    return discretize(network.eval(), model.encoder.bit_shape)


def report(circuit: Circuit, checked: bool) -> None:
    """Optimize a circuit and print a line for each time a pass was applied."""
    made: list[Circuit] = []

    def kept(apply: Pass) -> Pass:
        @functools.wraps(apply)
        def keeping(circuit: Circuit) -> Circuit:
            made.append(apply(circuit))
            return made[-1]

        return keeping

    before = measure(circuit)
    print(f"{'':27}{before.gates:>10,} gates {before.bops:>10,} BOPs  depth {before.depth}")
    optimized = optimize(circuit, [kept(apply) for apply in PIPELINE], check if checked else None)
    for row, result in zip(optimized.rows, made, strict=True):
        print(
            f"round {row.round} {row.name:18} {row.gates_after:>10,} gates {count_bops(result):>10,} BOPs "
            f"{row.seconds:7.2f} s  {row.verdict}"
        )
    after = measure(optimized.circuit)
    print(f"{'in the end':27}{after.gates:>10,} gates {after.bops:>10,} BOPs  depth {after.depth}")
    if checked:
        print(f"{'before and in the end':27}{check(circuit, optimized.circuit)}")


def large(name: str) -> None:
    """Time and memory from a network of random weights to its optimised circuit."""
    network, shape = random_network(preset(name))
    print(f"{name} with random weights: {peak_gib():.2f} GiB with the network made")
    start = time.perf_counter()
    circuit = discretize(network, shape)
    del network
    middle = time.perf_counter()
    print(f"discretize {middle - start:6.2f} s  {circuit.gates:,} gates, {circuit.inputs:,} inputs")
    optimized = optimize(circuit)
    end = time.perf_counter()
    for row in optimized.rows:
        print(f"round {row.round} {row.name:18} {row.gates_before:>10,} → {row.gates_after:>10,} {row.seconds:6.2f} s")
    print(f"pipeline   {end - middle:6.2f} s  {optimized.circuit.gates:,} gates, settled: {optimized.settled}")
    print(f"peak memory {peak_gib():.2f} GiB, network and torch included")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sources", nargs="*", type=Path, metavar="RUN|MODEL")
    parser.add_argument("--large", action="store_true")
    parser.add_argument("--preset", default="cifar-conv-l", help="what --large makes")
    parser.add_argument("--no-check", action="store_true")
    options = parser.parse_args()
    for source in options.sources:
        print(source)
        report(circuit_of(source), not options.no_check)
    if options.large:
        large(options.preset)


if __name__ == "__main__":
    main()
