"""Images a second on one core, packing and popcount included: gatewise, straight-line C (gcc -O1) and numpy.

python benchmarks/inference.py [MODEL …] [--limit 600] [--largest 2000000] [--widths 2000 8000 42667 166667]

Models are trained networks (files that `gatewise train` or `gatewise compile` wrote). Besides them: mnist-conv-s with
random weights, and random layered nets of 784 inputs and six layers of these widths: once of all sixteen gates, of
which wires and constants leave a third to run, and once of the ten that read both inputs, all of which run. Every
evaluator gets the same rows of bits, a byte each, and all must give the same classes. The floor is what the gates that
run have to move, two words read and one written each, at the speed of one core on three arrays as large as the state.
Once gcc has passed its limit, circuits of as many gates or more are not given to it, nor are those above --largest.
"""

from __future__ import annotations

import argparse
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial

import numpy as np
import torch
from rich.console import Console
from rich.table import Table
from straight_line import StraightLine

import gatewise
from gatewise import core
from gatewise.circuit import Circuit, Program, Simulator, Source, map_luts, optimize, prune
from gatewise.engine import count
from gatewise.presets import build_network, preset
from gatewise.speed import best_seconds

CLASSES = 10
STRAIGHT = "straight-line C"
WORD = 64  # bytes: 512 samples


ALL = range(16)
PROPER = (1, 2, 4, 6, 7, 8, 9, 11, 13, 14)
"""The gates that depend on both inputs."""


def layered(width: int, tables: Sequence[int], inputs: int = 784, layers: int = 6, seed: int = 0) -> Circuit:
    """Layers of random gates with these tables; each layer reads all of the one before equally often."""
    rng = np.random.default_rng(seed)
    fanin, before = [], np.arange(2, 2 + inputs)
    for layer in range(layers):
        reads = np.concatenate([rng.permutation(before) for _ in range(-(-2 * width // len(before)))])
        fanin.append(reads[: 2 * width].reshape(width, 2))
        before = 2 + inputs + layer * width + np.arange(width)
    return Circuit(inputs, rng.choice(tables, layers * width), np.concatenate(fanin), before)


def untrained(name: str, shape: tuple[int, ...]) -> Circuit:
    """A preset's network with random weights."""
    torch.manual_seed(0)
    network = build_network(preset(name), shape, CLASSES).eval()
    with torch.no_grad():
        for weight in network.parameters():
            weight.normal_()
    return gatewise.discretize(network, shape)


def circuits(models: list[str], widths: list[int]) -> Iterator[tuple[str, Circuit]]:
    for path in models:
        yield path, gatewise.load(path).circuit
    yield "mnist-conv-s, random weights", prune(untrained("mnist-conv-s", (1, 28, 28)))
    for width in widths:
        yield f"random, 6 × {width:,}, all gates", layered(width, ALL)
        yield f"random, 6 × {width:,}, all run", layered(width, PROPER)


def planned(circuit: Circuit) -> tuple[Callable[[np.ndarray], np.ndarray], float]:
    """The circuit on the engine, and the seconds it took to plan."""
    begin = time.perf_counter()
    run, source = Program(circuit, CLASSES).run, Source.bits(circuit.inputs)
    return lambda x: run(source, x, "classes"), time.perf_counter() - begin


def floor_seconds(circuit: Circuit) -> float:
    """The least seconds that 512 samples take, by the words that the gates of the circuit's program read and write."""
    program = Program(circuit, CLASSES)
    a, b, c = np.zeros((3, max(1, program.slots * WORD // 24)), np.uint64)
    seconds = best_seconds(partial(np.bitwise_and, a, b, out=c), 0.2)[0]
    return 3 * WORD * program.gates / (3 * a.nbytes) * seconds


def compiled(circuit: Circuit) -> tuple[Callable[[np.ndarray], np.ndarray], float]:
    """The circuit after our passes and mapped to LUTs of three, on the engine."""
    begin = time.perf_counter()
    best = map_luts(optimize(circuit).circuit, 3)
    seconds = time.perf_counter() - begin
    return planned(best)[0], seconds


def straight(circuit: Circuit, limit: float) -> tuple[Callable[[np.ndarray], np.ndarray], float]:
    line = StraightLine(circuit, CLASSES, limit)
    return line.classes, line.seconds


def simulated(circuit: Circuit) -> tuple[Callable[[np.ndarray], np.ndarray], float]:
    begin = time.perf_counter()
    simulator = Simulator(circuit)
    return lambda x: count(simulator(x), CLASSES).argmax(axis=1), time.perf_counter() - begin


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*")
    parser.add_argument("--limit", type=float, default=600, help="seconds that gcc may take")
    parser.add_argument("--largest", type=int, default=2_000_000, help="gates of the largest circuit given to gcc")
    parser.add_argument("--widths", type=int, nargs="*", default=[2_000, 8_000, 42_667, 166_667])
    args = parser.parse_args()
    core.set_threads(1)
    console = Console(width=140)
    too_large = args.largest + 1  # gates
    for name, circuit in circuits(args.models, args.widths):
        samples = 512 * max(2, min(64, 20_000_000 // circuit.gates))
        x = (np.random.default_rng(1).random((samples, circuit.inputs)) < 0.5).view(np.uint8)
        expected, rows, base = None, [], 0.0
        evaluators = {
            "gatewise, as it is": planned, "gatewise, compiled": compiled,
            STRAIGHT: partial(straight, limit=args.limit), "numpy simulator": simulated,
        }  # fmt: skip
        for label, make in evaluators.items():
            if label == STRAIGHT and circuit.gates >= too_large:
                rows.append((label, "not tried", None))
                continue
            try:
                run, seconds = make(circuit)
            except subprocess.TimeoutExpired:
                rows.append((label, f"over {args.limit:.0f} s", None))
                too_large = circuit.gates
                continue
            some = x[:2_048] if make is simulated else x  # it would take minutes
            found = run(some)
            expected = found if expected is None else expected
            assert np.array_equal(found, expected[: len(some)]), f"{label} gives other classes for {name}"
            rate = len(some) / best_seconds(partial(run, some), 2.0)[0]
            alone = best_seconds(partial(run, x[:1]), 0.5)[0]
            base = rate if label == STRAIGHT else base
            rows.append((label, f"{seconds:.3f} s", (rate, alone)))
        console.print(table_of(name, circuit, rows, base))


Row = tuple[str, str, tuple[float, float] | None]


def table_of(name: str, circuit: Circuit, rows: list[Row], base: float) -> Table:
    """A row an evaluator: how it was made, and its images a second and seconds for one sample, where it was."""
    runs = Program(circuit, CLASSES).gates
    title = f"{name}: {circuit.gates:,} gates, of which {runs:,} run"
    columns = ("made in", "images/s", "ns a gate and 512", "times straight-line C", "times its floor", "one sample, µs")
    table = Table("evaluator", *columns, title=title, title_justify="left")
    for column in table.columns[1:]:
        column.justify = "right"
    floor = floor_seconds(circuit)
    for label, made, measured in rows:
        figures = ("", "", "", "", "")
        if measured is not None:
            rate, alone = measured
            ratio = f"{rate / base:.1f}" if base else ""
            nanoseconds = f"{512e9 / rate / circuit.gates:.2f}"
            figures = (f"{rate:,.0f}", nanoseconds, ratio, f"{512 / rate / floor:.1f}", f"{1e6 * alone:,.1f}")
        table.add_row(label, made, *figures)
    return table


if __name__ == "__main__":
    main()
