"""Seconds to prove a circuit equal to what passes make of it, and to refute it with one gate flipped.

    python benchmarks/equivalence.py [--width 36000] [--model runs/…/model.gatewise] [--flips 40]

The circuit is six layers of `width` random gates over 784 inputs, pruned, or that of a trained model. It is compared
with itself after the passes, and after rewriting at random as the tests do it. A flip inverts a random row of the
table of a random gate in what a pass made; where no output shows it, "proved" is the right answer, and whether any of
2**18 vectors shows it is looked up independently.
"""

from __future__ import annotations

import argparse
import collections
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from prune_large import layered

from gatewise.circuit import Circuit, find_difference, map_luts, optimize, prove, prune, rewrite
from gatewise.model import load

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from rewrites import collapsed, flipped, rewritten


def ways(rng: np.random.Generator) -> dict[str, Callable[[Circuit], Circuit]]:
    """Everything that rewrites a circuit: the tests' own ways, and the passes."""
    return {
        "rewritten": lambda c: rewritten(c, rng),
        "collapsed, k = 4": lambda c: collapsed(c, 4, rng),
        "rewritten, collapsed, k = 6": lambda c: collapsed(rewritten(c, rng, 0.2), 6, rng),
        "optimize": lambda c: optimize(c).circuit,
        "rewrite": rewrite,
        **{f"map_luts({k})": lambda c, k=k: map_luts(c, k) for k in (3, 4, 6)},
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--width", type=int, default=36_000)
    parser.add_argument("--model", type=Path)
    parser.add_argument("--flips", type=int, default=40)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--time-limit", type=float, default=60.0)
    options = parser.parse_args()

    rng = np.random.default_rng(options.seed)
    raw = load(options.model).circuit if options.model else Circuit(*layered(784, [options.width] * 6, options.seed))
    circuit = prune(raw)
    print(f"{raw!r}\n  pruned: {prove(raw, circuit, time_limit=options.time_limit)}")
    made = {}
    for name, way in ways(rng).items():
        made[name] = way(circuit)
        verdict = prove(circuit, made[name], time_limit=options.time_limit)
        print(f"{circuit.gates:,} gates, {name}: {made[name].gates:,} gates of {made[name].k}\n  {verdict}", flush=True)

    outcomes: collections.Counter[str] = collections.Counter()
    seconds = []
    for _ in range(options.flips):
        other = made[list(made)[rng.integers(len(made))]]
        wrong = flipped(other, int(rng.integers(other.gates)), int(rng.integers(2**other.k)))
        start = time.perf_counter()
        verdict = prove(circuit, wrong, time_limit=options.time_limit)
        seconds.append(time.perf_counter() - start)
        seen = "seen" if find_difference(circuit, wrong, 1 << 18, seed=1) is not None else "not seen"
        outcomes[f"{verdict.outcome}, {seen} on 2**18 vectors"] += 1
    print(f"{options.flips} flips of one row of one gate: {dict(outcomes)}")
    if seconds:
        print(f"  median {np.median(seconds):.1f} s, longest {max(seconds):.1f} s")


if __name__ == "__main__":
    main()
