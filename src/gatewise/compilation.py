"""What `gatewise compile` does: a model's circuit made smaller, shown to be the same, and saved as another model.

Don't-cares are the exception, asked for by name: what training samples cannot tell apart is merged, and what that
costs is measured on samples held out of the training set. The test set takes no part.
"""

from __future__ import annotations

import dataclasses
import json
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

from gatewise.circuit import Circuit, count_bops, map_luts, optimize, pack, prove
from gatewise.circuit.dontcares import merge_on_words
from gatewise.circuit.ir import MAX_K
from gatewise.circuit.levels import level_order
from gatewise.circuit.pipeline import Applied, removed_by_pass
from gatewise.errors import CircuitError, ConfigError, FileError
from gatewise.model import BooleanModel, file_of, load

if TYPE_CHECKING:
    from gatewise.presets import Options

_BLOCK_BITS = 1 << 27


def check(before: Circuit, after: Circuit, time_limit: float = 60.0) -> str:
    """Raise if two circuits do not compute the same; → whether that is proved, and how.

    This is the one place that says what a compiled circuit is held against.
    """
    verdict = prove(before, after, time_limit=time_limit)
    if verdict.witness is not None:
        bits = "".join(map(str, verdict.witness.astype(int)))
        raise CircuitError(f"the circuits differ on the bits {bits}: please report this")
    return str(verdict)


@dataclass(frozen=True)
class Size:
    """A circuit in numbers."""

    gates: int
    """All gates, the NOTs that outputs show among them."""
    bops: int | None
    """The paper's count; None where gates read more than two nets."""
    depth: int
    """Levels of gates."""


def measure(circuit: Circuit) -> Size:
    """How large a circuit is."""
    bops = count_bops(circuit) if circuit.k <= 2 else None
    return Size(circuit.gates, bops, len(level_order(circuit)[1]) - 1)


@dataclass(frozen=True)
class Samples:
    """A model's training set: what it was trained on, as packed bits, and what was held out, raw."""

    words: NDArray[np.uint64]  # [inputs, W]
    count: int
    held_x: NDArray[Any]
    held_y: NDArray[np.int64]
    note: str
    """What the held out samples are."""


@dataclass(frozen=True)
class Compiled:
    """A compiled model, and how it came about."""

    model: BooleanModel
    sizes: dict[str, Size]
    """The circuit as it was, `optimised`, and `with don't-cares` and in LUTs if these were asked for."""
    rows: tuple[Applied, ...]
    verdict: str
    """What the check said of the circuit before and after; where don't-cares were asked for, apart from these."""
    held_out: str
    """What the held out samples are; empty without don't-cares."""
    accuracy: tuple[float, float] | None
    """On the held out samples, without and with don't-cares."""


def compile_model(
    model: BooleanModel,
    *,
    checked: bool = True,
    time_limit: float = 60.0,
    samples: Samples | None = None,
    luts: int = 0,
) -> Compiled:
    """The model with its circuit optimised and, within `time_limit` seconds, proved to be the same.

    With `samples`, also with the gates merged that these do not tell apart; with `luts`, in gates of so many inputs.

    >>> smaller = compile_model(gatewise.load("model.gatewise")).model
    """
    optimized = optimize(model.circuit)
    verdict = check(model.circuit, optimized.circuit, time_limit) if checked else "not checked"
    sizes = {"before": measure(model.circuit), "optimised": measure(optimized.circuit)}
    circuit, rows, accuracy = optimized.circuit, optimized.rows, None
    if samples is not None:
        started = time.perf_counter()
        merged = merge_on_words(circuit, samples.words, samples.count)
        seconds = time.perf_counter() - started
        lossy = Applied(1, "merge_on_data", circuit.gates, merged.gates, seconds, "lossy")
        again = optimize(merged)
        if checked:
            check(merged, again.circuit, time_limit)
        sizes["with don't-cares"] = measure(again.circuit)
        accuracy = (_accuracy(model, circuit, samples), _accuracy(model, again.circuit, samples))
        circuit, rows = again.circuit, (*rows, lossy, *again.rows)
    if luts:
        mapped = map_luts(circuit, luts)
        if checked:
            verdict += f" In LUTs: {check(circuit, mapped, time_limit)}"
        circuit = mapped
        sizes[f"LUTs of {luts} inputs"] = measure(mapped)
    compiled: dict[str, Any] = {"verdict": verdict}
    compiled["sizes"] = {name: dataclasses.asdict(size) for name, size in sizes.items()}
    if samples is not None:
        compiled |= {"held_out": samples.note, "accuracy": accuracy}
    small = dataclasses.replace(model, circuit=circuit, notes={**model.notes, "compiled": compiled})
    note = "" if samples is None else samples.note
    return Compiled(small, sizes, rows, verdict, note, accuracy)


def _accuracy(model: BooleanModel, circuit: Circuit, samples: Samples) -> float:
    found = dataclasses.replace(model, circuit=circuit).predict(samples.held_x)
    return float(np.mean(found == samples.held_y))


def training_samples(model: BooleanModel, report: Path, data: Path | None) -> Samples:
    """The samples a run trained on and those it held out, as the report.json of its folder says.

    A run of protocol `paper` held out none: then a share of its training samples is kept from merging.
    """
    from gatewise.data import check_levels, load_dataset
    from gatewise.train import split

    dataset, options = _settings(report)
    splits = load_dataset(dataset, data)
    expected = tuple(model.encoder.input_shape)
    if splits.train_x.shape[1:] != expected:
        raise ConfigError(
            f"{report} is of a run on {dataset}, whose samples have shape {splits.train_x.shape[1:]}, but the "
            f"model expects {expected}: compile the model that lies beside its report"
        )
    check_levels(dataset, splits, model.encoder.arrays()["thresholds"])
    own = options.protocol == "validation"
    used, held = split(len(splits.train_y), dataclasses.replace(options, protocol="validation"))
    if not len(used) or not len(held):
        raise ConfigError(
            f"{report} has validation={options.validation}: expected a share that leaves samples either side"
        )
    note = f"{len(held):,} training samples of {dataset}, " + (
        "which the run held out" if own else "which the run was trained on, but nothing was merged on"
    )
    words = _packed(model, splits.train_x, used)
    return Samples(words, len(used), splits.train_x[held], splits.train_y[held], note)


def _packed(model: BooleanModel, x: NDArray[Any], chosen: NDArray[np.int64]) -> NDArray[np.uint64]:
    """The bits of the chosen samples as words, encoded a block at a time."""
    inputs = model.circuit.inputs
    step = 64 * max(1, _BLOCK_BITS // (64 * inputs))
    blocks = [chosen[begin : begin + step] for begin in range(0, len(chosen), step)]
    return np.concatenate([pack(model.encoder.transform(x[b]).reshape(len(b), inputs)) for b in blocks], axis=1)


def _settings(report: Path) -> tuple[str, Options]:
    """The dataset and the options of the run that wrote a report."""
    from gatewise.presets import Options

    try:
        settings = json.loads(report.read_text())["settings"]
        given = {field.name: settings[field.name] for field in dataclasses.fields(Options)}
        dataset = settings["dataset"]
    except FileNotFoundError:
        raise ConfigError(
            f"--dont-cares needs {report}, which says what the model was trained on: "
            "compile a run's folder, or a model that lies in one"
        ) from None
    except (OSError, ValueError, LookupError, TypeError) as error:
        raise FileError(f"{report} does not say what the model was trained with: {error!r}") from None
    for name, value in given.items():
        if type(value) is not type(getattr(Options(), name)):
            raise FileError(f"{report} has {name}={value!r}: expected a {type(getattr(Options(), name)).__name__}")
    return dataset, Options(**given)


def places(source: Path, out: Path | None) -> tuple[Path, Path]:
    """The model file that RUN|MODEL names, and where its compiled model goes; never the same file."""
    file = file_of(source)
    if out is None:
        return file, source / "compiled.gatewise" if source.is_dir() else file.with_name(
            f"{file.stem}.compiled.gatewise"
        )
    if out.resolve() == file.resolve():
        raise ConfigError(f"{out} is the model itself: give the compiled one another name with -o")
    return file, out


def compile_file(
    source: Path, out: Path | None, data: Path | None, dont_cares: bool, luts: int, checked: bool, time_limit: float
) -> None:
    """Compile a run's model, or a model file, into another file, and print what came out."""
    if luts and not 2 <= luts <= MAX_K:
        raise ConfigError(f"luts is {luts}: expected 2 to {MAX_K} inputs a gate")
    file, target = places(source, out)
    model = load(file)
    samples = training_samples(model, file.with_name("report.json"), data) if dont_cares else None
    compiled = compile_model(model, checked=checked, time_limit=time_limit, samples=samples, luts=luts)
    compiled.model.save(target)
    show(compiled, Console())
    Console().print(f"compiled model: {target}", highlight=False, markup=False, soft_wrap=True)


def show(compiled: Compiled, console: Console) -> None:
    """Print what each pass removed, and the circuit before and after."""
    console.print(table_of(compiled.rows))
    sizes = Table("", *compiled.sizes, title="the circuit", title_justify="left")
    for name, label in (
        ("gates", "gates, NOTs at outputs among them"),
        ("bops", "BOPs (paper's count; no encoder, no popcount)"),
        ("depth", "depth, in gates"),
    ):
        counts = [getattr(size, name) for size in compiled.sizes.values()]
        sizes.add_row(label, *("" if count is None else f"{count:,}" for count in counts))
    for column in sizes.columns[1:]:
        column.justify = "right"
    console.print(sizes)
    console.print(f"before and optimised: {compiled.verdict}", highlight=False, markup=False, soft_wrap=True)
    if compiled.accuracy is not None:
        without, with_them = compiled.accuracy
        console.print(
            f"don't-cares are lossy: accuracy {without:.2%} without, {with_them:.2%} with them, on {compiled.held_out}",
            highlight=False,
            soft_wrap=True,
        )


def table_of(rows: tuple[Applied, ...]) -> Table:
    """What each pass removed, as a table to print."""
    table = Table("pass", "applied", "gates removed", "seconds", "check", title="what each pass removed")
    table.title_justify = "left"
    for column in table.columns[1:4]:
        column.justify = "right"
    for row in removed_by_pass(rows):
        table.add_row(row.name, str(row.times), f"{row.gates:,}", f"{row.seconds:.2f}", ", ".join(row.verdicts))
    return table
