"""LUTs and seconds of `map_luts` and `rewrite` beside those of ABC, on trained models and random layered circuits."""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from prune_large import layered

from gatewise import gates, load
from gatewise.circuit import Circuit, map_luts, prune, rewrite, simulate

MAP = "strash; dch; if -a -K {k}"
SCRIPTS = {
    "if -a": "strash; if -a -K {k}",
    "dch, if -a": MAP,
    "dch, if -a, lutpack": f"{MAP}; lutpack",
    "3 × (dch, if -a, mfs2 -a), dch, if -a": "; ".join([f"{MAP}; mfs2 -a -L 50"] * 3 + [MAP]),
}
RESYN2 = (
    "strash; balance; rewrite; refactor; balance; rewrite; rewrite -z; balance; refactor -z; rewrite -z; balance; "
    "dch; if -a -K 2"  # LUTs of two inputs are gates of the full basis
)


def to_blif(circuit: Circuit) -> str:
    """The circuit as BLIF, net n being called n."""
    inputs = " ".join(f"n{net}" for net in range(2, circuit.first_gate))
    outputs = " ".join(f"o{i}" for i in range(len(circuit.outputs)))
    lines = [".model circuit", f".inputs {inputs}", f".outputs {outputs}", ".names n0", ".names n1", "1"]
    rows = 2**circuit.k
    read = zip(circuit.table.tolist(), circuit.fanin.tolist(), strict=True)
    for net, (table, fanin) in enumerate(read, circuit.first_gate):
        lines.append(" ".join([".names", *(f"n{source}" for source in fanin), f"n{net}"]))
        lines += [f"{row:0{circuit.k}b} 1" for row in range(rows) if table >> (rows - 1 - row) & 1]
    lines += [f".names n{net} o{i}\n1 1" for i, net in enumerate(circuit.outputs.tolist())]
    return "\n".join([*lines, ".end", ""])


def from_blif(text: str, inputs: int, outputs: int) -> Circuit:
    """The circuit that ABC wrote: .names in any order, covers of the ones or of the zeros."""
    blocks: dict[str, tuple[list[str], list[str]]] = {}
    name = ""
    for line in text.replace("\\\n", " ").splitlines():
        words = line.split()
        if words and words[0] == ".names":
            *reads, name = words[1:]
            blocks[name] = (reads, [])
        elif words and words[0][0] not in "#.":
            blocks[name][1].append(line)
    k = max(1, *(len(reads) for reads, _ in blocks.values()))
    net = {f"n{i}": i for i in range(2, 2 + inputs)}
    table: list[int] = []
    fanin: list[list[int]] = []
    waiting = [f"o{i}" for i in reversed(range(outputs))]
    while waiting:
        name = waiting[-1]
        missing = [read for read in blocks[name][0] if read not in net] if name not in net else []
        if name not in net and not missing:
            reads, cover = blocks[name]
            net[name] = 2 + inputs + len(table)
            table.append(table_of(cover, len(reads), k))
            fanin.append([net[read] for read in reads] + [0] * (k - len(reads)))
        waiting += missing
        if not missing:
            waiting.pop()
    rows = np.array(fanin, np.int64).reshape(-1, k)
    return Circuit(inputs, np.array(table, np.uint64), rows, [net[f"o{i}"] for i in range(outputs)])


def table_of(cover: list[str], size: int, k: int) -> int:
    """The table over k inputs of a BLIF cover over the first `size` of them."""
    table, value = 0, "1"
    for line in cover:
        cube, value = line.split() if size else ("", line.strip())
        product = gates.full(k)
        for j, wanted in enumerate(cube):
            ones = gates.ones(j, k)
            product &= {"1": ones, "0": gates.full(k) ^ ones, "-": gates.full(k)}[wanted]
        table |= product
    return table if value == "1" else gates.full(k) ^ table


def run_abc(abc: str, script: str, circuit: Circuit, k: int, limit: float) -> Circuit:
    with tempfile.TemporaryDirectory() as folder:
        before, after = Path(folder, "before.blif"), Path(folder, "after.blif")
        before.write_text(to_blif(circuit))
        command = f"read_blif {before}; {script.format(k=k)}; write_blif {after}"
        subprocess.run([abc, "-q", command], check=True, capture_output=True, timeout=limit)
        return from_blif(after.read_text(), circuit.inputs, len(circuit.outputs))


def report(
    name: str, circuit: Circuit, bits: np.ndarray, expected: np.ndarray, make: Callable[[Circuit], Circuit]
) -> None:
    begin = time.perf_counter()
    try:
        made = make(circuit)
    except subprocess.TimeoutExpired:
        print(f"  {name:42} more than {time.perf_counter() - begin:.0f} s")
        return
    seconds = time.perf_counter() - begin
    counted = prune(made)  # ABC writes buffers and constants as nodes
    read = sum((gates.restrict(counted.table, j, 0, made.k) != counted.table).sum() for j in range(made.k))
    equal = "equal" if np.array_equal(simulate(made, bits), expected) else "DIFFERS"
    print(f"  {name:42} {counted.gates:7} gates of {made.k} {read:8} inputs read {seconds:8.2f} s  {equal}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("circuits", nargs="+", help="model files, or numbers: gates in each of six random layers")
    parser.add_argument("--k", default="3,4,5,6", help="inputs a gate")
    parser.add_argument("--vectors", type=int, default=65_536)
    parser.add_argument("--limit", type=float, default=120, help="seconds for one run of ABC")
    options = parser.parse_args()
    abc = shutil.which("berkeley-abc") or shutil.which("abc")
    if abc is None:
        print("no abc on the path: only our own passes run", file=sys.stderr)

    def by_abc(script: str, k: int) -> Callable[[Circuit], Circuit]:
        return lambda circuit: run_abc(str(abc), script, circuit, k, options.limit)

    def by_us(k: int, first: Callable[[Circuit], Circuit] = lambda circuit: circuit) -> Callable[[Circuit], Circuit]:
        return lambda circuit: map_luts(first(circuit), k)

    for name in options.circuits:
        given = Circuit(*layered(784, [int(name)] * 6, 0)) if name.isdecimal() else load(name).circuit
        circuit = prune(given)
        bits = np.random.default_rng(0).random((options.vectors, circuit.inputs), np.float32) < 0.5
        expected = simulate(circuit, bits)
        print(f"{name}: {circuit!r}, pruned")
        report("rewrite", circuit, bits, expected, rewrite)
        if abc:
            report("ABC resyn2, dch, if -a -K 2", circuit, bits, expected, by_abc(RESYN2, 2))
        for k in map(int, options.k.split(",")):
            print(f" k = {k}")
            report("map_luts", circuit, bits, expected, by_us(k))
            report("rewrite, map_luts", circuit, bits, expected, by_us(k, rewrite))
            for label, script in SCRIPTS.items() if abc else ():
                report(f"ABC {label}", circuit, bits, expected, by_abc(script, k))


if __name__ == "__main__":
    main()
