"""The first steps of a preset in each precision over several seeds, beside the published code's accuracies.

    python experiments/precision.py --data FILE                      # cifar-conv-t on a GPU: 9 runs of 18,000 steps
    python experiments/precision.py --preset digits --steps 500 --precisions float32 --device cpu

Accuracy on the test set, relaxed (soft) and as a circuit (hard), by the paper's protocol. Runs lie in --out and go on
where they were stopped. Expected: float32 within a point (soft) of the published code, and the mean over seeds of each
16-bit type within half a point of float32's.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
from pathlib import Path
from statistics import mean

from gatewise.presets import PRECISIONS, Options, preset
from gatewise.train import holds_run, train

# Of the paper's own code, seed 0: soft and hard by step.
PUBLISHED = {
    "cifar-conv-t": {2_000: (52.9, 38.4), 6_000: (58.6, 51.0), 10_000: (61.2, 51.5), 18_000: (62.7, 54.5)},
    "mnist-regular-s": {2_000: (94.7, 92.9), 4_000: (96.1, 94.6), 6_000: (96.6, 95.1), 10_000: (97.0, 96.1)},
}


def accuracies(name: str, options: Options, steps: int, data: Path | None, out: Path) -> dict[int, tuple[float, float]]:
    """Soft and hard accuracy, in per cent, at each step that was evaluated."""
    row = dataclasses.replace(preset(name), steps=steps)
    train(row, out, options=options, data=data, resume=holds_run(out))
    lines = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    return {line["step"]: (100 * line["soft"], 100 * line["hard"]) for line in lines}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--preset", default="cifar-conv-t")
    parser.add_argument("--data", type=Path)
    parser.add_argument("--steps", type=int, default=18_000)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--precisions", nargs="+", choices=PRECISIONS, default=list(PRECISIONS))
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--out", type=Path, default=Path("runs/precision"))
    parser.add_argument("--json", type=Path, help="also write the accuracies to this file")
    args = parser.parse_args()
    found: dict[str, dict[int, dict[int, tuple[float, float]]]] = {}
    for precision in args.precisions:
        for seed in args.seeds:
            options = Options(seed=seed, protocol="paper", precision=precision, device=args.device)
            out = args.out / f"{args.preset}-{precision}-{seed}"
            found.setdefault(precision, {})[seed] = accuracies(args.preset, options, args.steps, args.data, out)
            if args.json:
                args.json.write_text(json.dumps(found, indent=1) + "\n")
    published = PUBLISHED.get(args.preset, {})
    shared = sorted(set.intersection(*(set(run) for runs in found.values() for run in runs.values())))
    shown = [step for step in shared if step in published] or shared[-4:]
    print(f"{args.preset}, test accuracy, soft / hard, in per cent: mean of seeds {args.seeds} (soft least..most)")
    print(f"{'':16}" + "".join(f"{step:>28,}" for step in shown))
    if cells := [f"{soft:.1f} / {hard:.1f}" for soft, hard in (published[step] for step in shown if step in published)]:
        print(f"{'published code':16}" + "".join(f"{cell:>28}" for cell in cells))
    for precision, runs in found.items():
        cells = []
        for step in shown:
            soft, hard = zip(*(run[step] for run in runs.values()), strict=True)
            cells.append(f"{mean(soft):7.2f} / {mean(hard):5.2f} ({min(soft):.1f}..{max(soft):.1f})")
        print(f"{precision:16}" + "".join(f"{cell:>28}" for cell in cells))


if __name__ == "__main__":
    main()
