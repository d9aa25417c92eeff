"""What follows training: discretize, prune, check that nothing changed, save, and say what came out."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table
from torch import nn

from gatewise import kernels
from gatewise.circuit import Circuit, Simulator, count_bops, prune
from gatewise.discretization import discretize
from gatewise.errors import CircuitError
from gatewise.files import write_atomically
from gatewise.model import BooleanModel, Head, load
from gatewise.train import Trained, accuracy

RANDOM_SAMPLES = 1_024
CHECK_BATCH = 128


@dataclass(frozen=True)
class Report:
    """A run in numbers; report.json holds the same."""

    preset: str
    dataset: str
    seed: int
    best_step: int
    best_picked_on: str
    """`validation` or `test`: the part whose hard accuracy chose the checkpoint."""
    test_relaxed: float
    test_hard: float
    """Accuracy on the test set: of the hard network on bits, and of the saved file on raw features."""
    input_bits: int
    neurons: int
    """Gates of the circuit before anything is removed, convolutions unrolled."""
    bops: int
    """The paper's count: gates that matter to an output, without constants, identities and negations; no encoder,
    no popcount."""
    gates: int
    """Gates in the saved circuit: `bops` and a negation for each inverted output."""
    samples_checked: int
    """Samples on which network, circuit and pruned circuit gave the same bits."""
    settings: dict[str, Any]
    """The preset as it was run, and the options."""


def finish(trained: Trained, out: Path) -> Report:
    """Turn a trained network into out/model.gatewise and out/report.json."""
    network, task = trained.network, trained.task
    circuit = discretize(network, task.encoder.bit_shape)
    pruned = prune(circuit)
    checked = check_same(network, [circuit, pruned], trained)
    head = Head(task.classes, trained.preset.tau)
    model = BooleanModel(task.encoder, pruned, head, notes={"dataset": trained.preset.dataset})
    model.save(out / "model.gatewise")
    with kernels.own_threads():
        relaxed, hard = (accuracy(network, task.test, hard=hard) for hard in (False, True))
    labels = task.test.y.cpu().numpy()
    right = int((load(out / "model.gatewise").predict(task.raw_test) == labels).sum())
    if right != round(hard * len(labels)):
        raise CircuitError(f"the saved model is right {right} times, the network {hard:.2%}: please report this")
    report = Report(
        preset=trained.preset.name,
        dataset=trained.preset.dataset,
        seed=trained.options.seed,
        best_step=trained.run.best_step,
        best_picked_on="test" if trained.options.protocol == "paper" else "validation",
        test_relaxed=relaxed,
        test_hard=hard,
        input_bits=circuit.inputs,
        neurons=circuit.gates,
        bops=count_bops(circuit),
        gates=pruned.gates,
        samples_checked=checked,
        settings={**dataclasses.asdict(trained.preset), **dataclasses.asdict(trained.options)},
    )
    write_atomically(out / "report.json", (json.dumps(dataclasses.asdict(report), indent=2) + "\n").encode())
    return report


@torch.no_grad()
def check_same(network: nn.Sequential, circuits: list[Circuit], trained: Trained) -> int:
    """Compare the hard network, bit for bit, with circuits on the test set and on random bits; → samples compared."""
    network.eval()
    body = nn.Sequential(*list(network)[:-1])
    simulators = [Simulator(circuit) for circuit in circuits]
    generator = torch.Generator().manual_seed(trained.options.seed)
    shape = trained.task.encoder.bit_shape
    noise = torch.randint(2, (RANDOM_SAMPLES, *shape), generator=generator).float()
    device = trained.task.test.y.device
    batches = [noise[i : i + CHECK_BATCH].to(device) for i in range(0, RANDOM_SAMPLES, CHECK_BATCH)]
    compared = 0
    with kernels.own_threads():
        for x in [*batches, *(x for x, _ in trained.task.test.in_order(CHECK_BATCH))]:
            bits, expected = _bool(x), _bool(body(x))
            for simulator in simulators:
                if not np.array_equal(simulator(bits), expected):
                    raise CircuitError("the circuit does not compute what the network computes: please report this")
            compared += len(x)
    return compared


def _bool(x: torch.Tensor) -> NDArray[np.bool_]:
    flat: NDArray[np.bool_] = (x.flatten(1) != 0).cpu().numpy()
    return flat


def show(report: Report, out: Path, console: Console) -> None:
    """Print a report as a table."""
    table = Table(title=f"{report.preset}, seed {report.seed}", show_header=False, title_justify="left")
    table.add_column(style="dim")
    table.add_column(justify="right")
    table.add_row("test accuracy, relaxed network", f"{report.test_relaxed:.2%}")
    table.add_row("test accuracy, circuit", f"[bold]{report.test_hard:.2%}[/bold]")
    table.add_row("checkpoint", f"step {report.best_step:,}, picked on the {report.best_picked_on} set")
    table.add_row("input bits", f"{report.input_bits:,}")
    table.add_row("neurons", f"{report.neurons:,}")
    table.add_row("BOPs (paper's count; no encoder, no popcount)", f"{report.bops:,}")
    table.add_row("circuit equal to the network, bit for bit, on", f"{report.samples_checked:,} samples")
    console.print(table)
    console.print(f"model, metrics and report: {out}", highlight=False, markup=False, soft_wrap=True)
