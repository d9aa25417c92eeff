"""The command line: a function a command, each a few lines around the function that does the work."""

from __future__ import annotations

import contextlib
import dataclasses
import inspect
import itertools
import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

import typer
from rich.console import Console
from rich.table import Table

from gatewise import __version__
from gatewise.errors import ConfigError, DataError, GatewiseError

if TYPE_CHECKING:
    from gatewise.train import Trained

app = typer.Typer(
    help="Learn compact Boolean networks from data and turn them into circuits equal to what was trained.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
)

DataFolder = Annotated[
    Path | None,
    typer.Option("--data", help="Folder with the dataset's files, or a packed file; without it they are downloaded."),
]

TRAIN_EXAMPLES = """[bold]Examples[/bold]

gatewise train digits

gatewise train mnist-regular-s --data DIR --steps 4000

gatewise train mnist-regular-s --data DIR --steps 4000 --resume

gatewise train cifar-conv-t --data DIR --protocol paper --seed 1 --out runs/t-seed1

torchrun --nproc-per-node 2 -m gatewise train cifar-conv-l --data DIR --batch 64
"""

INSPECT_EXAMPLES = """[bold]Examples[/bold]

gatewise inspect runs/digits

gatewise inspect runs/digits/model.gatewise --text

gatewise inspect adder.circuit --dot adder.dot
"""


@app.callback(invoke_without_command=True)
def _root(version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False) -> None:
    if version:
        print(__version__)
        raise typer.Exit


def _flags() -> dict[str, tuple[str, str, type]]:
    """Name, group, help and type of each flag that sets a field of a preset or of the run's options."""
    from gatewise.presets import Options, Preset

    flags = {}
    for owner in (Options, Preset):
        hints = get_type_hints(owner)
        for field in dataclasses.fields(owner):
            if "help" in field.metadata:
                kind = hints[field.name] if hints[field.name] in (int, float, bool) else str
                flags[field.name] = (owner.__name__, field.metadata["help"], kind)
    return flags


def _train(name: str, data: Path | None, out: Path | None, resume: bool, **given: Any) -> None:
    """Train a preset, turn it into a circuit, check that both are equal, and save.

    Every field of a preset is a flag, and what is not given is the preset's.
    `gatewise presets` lists them.
    A run that was stopped, however it was, goes on with --resume.
    """
    from gatewise import parallel
    from gatewise.finish import finish, show
    from gatewise.stopping import Interrupted

    try:
        with parallel.meeting():
            trained, out = _trained(name, data, out, resume, **given)
    except Interrupted as stopped:
        print(stopped, file=sys.stderr)
        raise typer.Exit(130) from None
    except parallel.Silent:
        time.sleep(0.5)  # torchrun ends all processes as soon as one has ended: let the other speak first
        raise typer.Exit(2) from None
    if trained.place.leads:
        show(finish(trained, out), out, Console())


def _trained(name: str, data: Path | None, out: Path | None, resume: bool, **given: Any) -> tuple[Trained, Path]:
    """Train, or go on; → what came out, and the run's folder."""
    from gatewise import checkpoint
    from gatewise.presets import Options, preset
    from gatewise.train import holds_run, train

    given = {key: value for key, value in given.items() if value is not None}
    if "dense" in given:
        given["dense"] = _widths(given["dense"])
    row, options = preset(name), Options()
    out = out or _folder(name, resume)
    if resume and holds_run(out) and (out / "last.safetensors").exists():  # what is not given stays as it was
        row, options = checkpoint.settings(out / "last.safetensors")
        if row.name != name:
            raise ConfigError(f"{out} holds a run of {row.name}, not of {name}: choose its folder with --out")
    own = {field.name for field in dataclasses.fields(Options)}
    row = dataclasses.replace(row, **{k: v for k, v in given.items() if k not in own})
    options = dataclasses.replace(options, **{k: v for k, v in given.items() if k in own})
    return train(row, out, options=options, data=data, resume=resume), out


def _folder(name: str, resume: bool) -> Path:
    """The first folder of that preset that holds no run, or the last that does."""
    from gatewise.train import holds_run

    before = folder = Path("runs") / name
    for number in itertools.count(2):
        if not holds_run(folder):
            break
        before, folder = folder, folder.with_name(f"{name}-{number}")
    return before if resume else folder


def _widths(text: str) -> tuple[int, ...]:
    try:
        return tuple(int(part) for part in text.split(",")) if text else ()
    except ValueError:
        raise ConfigError(f"dense is a list of whole numbers such as 8000,8000, not {text!r}") from None


def _with_flags() -> Any:
    """`_train` with a typed, documented flag for each field."""
    keyword = inspect.Parameter.KEYWORD_ONLY
    argument = Annotated[str, typer.Argument(metavar="PRESET", help="A name from `gatewise presets`.")]
    folder = Annotated[
        Path | None,
        typer.Option(
            "--out",
            help="The run's folder; without it runs/PRESET, or runs/PRESET-2 and so on. Resuming takes the last.",
        ),
    ]
    again = Annotated[bool, typer.Option("--resume", help="Go on with the run in the folder.")]
    parameters = [
        inspect.Parameter("name", keyword, annotation=argument),
        inspect.Parameter("data", keyword, annotation=DataFolder, default=None),
        inspect.Parameter("out", keyword, annotation=folder, default=None),
        inspect.Parameter("resume", keyword, annotation=again, default=False),
    ]
    for name, (owner, text, kind) in _flags().items():
        word = name.replace("_", "-")
        names = f"--{word}/--no-{word}" if kind is bool else f"--{word}"
        option = typer.Option(names, help=text, rich_help_panel=owner, show_default=False)
        parameters.append(inspect.Parameter(name, keyword, annotation=Annotated[kind | None, option], default=None))

    def command(**values: Any) -> None:
        _train(**values)

    command.__doc__ = _train.__doc__
    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    command.__annotations__ = {p.name: p.annotation for p in parameters}
    return command


@app.command("eval", epilog="[bold]Example[/bold]\n\ngatewise eval runs/digits/model.gatewise")
def evaluate(
    model: Annotated[Path, typer.Argument(help="A model file, or the folder of a run.")],
    data: DataFolder = None,
    dataset: Annotated[str | None, typer.Option(help="Dataset, if not the one it was trained on.")] = None,
) -> None:
    """Accuracy of a saved model on a dataset's test set."""
    from gatewise.data import DATASETS, check_levels, load_dataset
    from gatewise.model import load

    loaded = load(model)
    name = dataset or loaded.notes.get("dataset")
    if name is None:
        raise ConfigError("the model does not say which dataset it is for: name one with --dataset")
    if name not in DATASETS:
        raise ConfigError(f"there is no dataset {name!r}; there are {', '.join(DATASETS)}")
    splits = load_dataset(name, data)
    if splits.test_x.shape[1:] != tuple(loaded.encoder.input_shape):
        raise DataError(
            f"{name} has samples of shape {splits.test_x.shape[1:]}, but the model expects {loaded.encoder.input_shape}"
        )
    check_levels(name, splits, loaded.encoder.arrays()["thresholds"])
    right = int((loaded.predict(splits.test_x) == splits.test_y).sum())
    packed = "" if splits.levels is None else f", packed at {splits.levels} levels"
    print(f"{right / len(splits.test_y):.2%} ({right:,} of {len(splits.test_y):,} test samples of {name}{packed})")


@app.command("presets", epilog="[bold]Example[/bold]\n\ngatewise presets")
def list_presets() -> None:
    """The architectures and schedules there are."""
    from gatewise.presets import PRESETS

    table = Table("preset", "dataset", "bits a value", "convolutions", "dense layers", "tau", "patience", "steps")
    for row in PRESETS.values():
        convolutions = f"k = {row.k}" if row.k else ""
        dense = " ".join(f"{n:,}" for n in row.dense)
        numbers = (f"{row.tau:g}", f"{row.patience:,}", f"{row.steps:,}")
        table.add_row(row.name, row.dataset, str(row.thresholds), convolutions, dense, *numbers)
    Console().print(table)


@app.command("bench", epilog="[bold]Example[/bold]\n\ngatewise bench runs/digits --threads 2")
def bench(
    model: Annotated[Path, typer.Argument(help="A model file, or the folder of a run.")],
    threads: Annotated[int, typer.Option(help="Threads of the C core.")] = 1,
    seconds: Annotated[float, typer.Option(help="About how long to time each batch size.")] = 0.5,
) -> None:
    """How fast a saved model predicts here: samples a second by batch size, and the latency of one sample."""
    from gatewise import speed
    from gatewise.model import load

    loaded = load(model)
    timings = speed.measure(loaded, threads=threads, seconds=seconds)
    Console().print(speed.table_of(timings, threads))
    print(speed.describe(loaded))


@app.command("inspect", epilog=INSPECT_EXAMPLES)
def inspect_file(
    model: Annotated[Path, typer.Argument(help="A model file, a circuit file, or the folder of a run.")],
    dot: Annotated[
        Path | None, typer.Option(help="Write a drawing of the circuit, for Graphviz, to this file.")
    ] = None,
    text: Annotated[bool, typer.Option("--text", help="Print the circuit itself, a line a gate, instead.")] = False,
) -> None:
    """What is in a model or a circuit: gates by every way to count them, depth, fan-out, head and encoder."""
    from gatewise.circuit import to_dot
    from gatewise.files import write_atomically
    from gatewise.inspection import circuit_of, load_any, show
    from gatewise.model import file_of

    path, found = file_of(model), load_any(model)
    if dot is not None:
        write_atomically(dot, to_dot(circuit_of(found)).encode())
    if text:
        print(circuit_of(found), end="")
    else:
        show(found, path, Console())


COMPILE_EXAMPLES = """[bold]Examples[/bold]

gatewise compile runs/digits

gatewise compile model.gatewise -o small.gatewise

gatewise compile runs/mnist-regular-s --luts 3 -o fast.gatewise

gatewise compile runs/mnist-regular-s --data DIR --dont-cares
"""


@app.command("compile", epilog=COMPILE_EXAMPLES)
def compile_(
    source: Annotated[Path, typer.Argument(metavar="RUN|MODEL", help="The folder of a run, or a model file.")],
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", help="The compiled model; else RUN/compiled.gatewise or MODEL.compiled.gatewise."),
    ] = None,
    data: DataFolder = None,
    dont_cares: Annotated[
        bool,
        typer.Option("--dont-cares", help="Also merge what the training samples cannot tell apart, which is lossy."),
    ] = False,
    luts: Annotated[
        int,
        typer.Option(
            help="Map to gates of so many inputs, 2 to 6; 3 is what predicts fastest. Without it gates have two.",
            show_default=False,
        ),
    ] = 0,
    check: Annotated[bool, typer.Option("--check/--no-check", help="Prove that the circuit stays the same.")] = True,
    time_limit: Annotated[float, typer.Option(help="Seconds that the proof may take.")] = 60.0,
) -> None:
    """Make a model's circuit smaller, prove that it is the same, and save it beside the model."""
    from gatewise.compilation import compile_file

    compile_file(source, out, data, dont_cares, luts, check, time_limit)


VERIFY_EXAMPLES = """[bold]Examples[/bold]

gatewise verify runs/digits smaller.gatewise

gatewise verify before.txt after.txt --time-limit 300 --witness differ.npy
"""


@app.command("verify", epilog=VERIFY_EXAMPLES)
def verify_circuits(
    first: Annotated[Path, typer.Argument(help="A model file, the folder of a run, or a circuit, as a file or text.")],
    second: Annotated[Path, typer.Argument(help="What to compare it with.")],
    time_limit: Annotated[float, typer.Option(help="Seconds to spend at most.")] = 60.0,
    seed: Annotated[int, typer.Option(help="Seed of the random vectors.")] = 0,
    witness: Annotated[Path | None, typer.Option(help="File for inputs on which they differ (.npy).")] = None,
) -> None:
    """Whether two circuits compute the same. Exit code 0: proved; 1: they differ; 3: not found out in time."""
    from gatewise.verification import verify

    raise typer.Exit(verify(first, second, time_limit=time_limit, seed=seed, witness=witness))


PACK_EXAMPLES = """[bold]Examples[/bold]

gatewise data pack mnist

gatewise data pack cifar10 --levels 8 --data DIR --out cifar10-8.gatewise-data

gatewise train cifar-conv-m --data cifar10-8.gatewise-data
"""

datasets = typer.Typer(
    help="Datasets as single files.", epilog=PACK_EXAMPLES, no_args_is_help=True, rich_markup_mode="rich"
)
app.add_typer(datasets, name="data")


@datasets.command("pack", epilog=PACK_EXAMPLES)
def pack_dataset(
    name: Annotated[str, typer.Argument(metavar="DATASET", help="A dataset of images, such as mnist or cifar10.")],
    levels: Annotated[
        int | None,
        typer.Option(
            help="Levels a value, a power of two: one more than a preset's thresholds. "
            "Without it the fewest that any preset of the dataset needs.",
            show_default=False,
        ),
    ] = None,
    data: DataFolder = None,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="The packed file; without it DATASET-LEVELS.gatewise-data here.")
    ] = None,
) -> None:
    """Write a dataset to one small file, for a machine without the originals: `--data FILE` trains from it there."""
    from gatewise.packing import pack_file

    pack_file(name, levels, data, out)


def main() -> None:
    """Run the command line; a user's mistake is one sentence and exit code 2."""
    if "train" in sys.argv[1:2]:  # its flags are read off the trainer, which loads torch
        app.command("train", epilog=TRAIN_EXAMPLES)(_with_flags())
    else:
        app.command("train", epilog=TRAIN_EXAMPLES)(_train_later)
    try:
        try:
            app()
        finally:
            sys.stdout.flush()
    except GatewiseError as error:
        print(f"gatewise: {error}", file=sys.stderr)
        sys.exit(2)
    except (MemoryError, RuntimeError) as error:
        # Where memory runs out while a graph is captured, ending the capture fails as well, and that is what is raised.
        if any("CUDA out of memory" in str(cause) for cause in (error, error.__context__)):
            less = "--batch, --k or --dense, or --precision float16"
            print(f"gatewise: the GPU has not enough memory: ask for a smaller {less}", file=sys.stderr)
            sys.exit(2)
        if not isinstance(error, MemoryError) and "allocate memory" not in str(error):
            raise
        print("gatewise: there is not enough memory: ask for a smaller network or batch", file=sys.stderr)
        sys.exit(2)
    except OSError as error:
        if error.filename is not None:
            raise
        # What reads and writes files has errors of its own, so this is what the command prints.
        _close_output()
        with contextlib.suppress(OSError):
            print(f"gatewise: the output cannot be written: {error.strerror}", file=sys.stderr)
        sys.exit(2)


def _close_output() -> None:
    """Let what is still to be printed go nowhere, so that Python does not fail on it once more as it ends."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)


def _train_later() -> None:
    """Train a preset, turn it into a circuit, check that both are equal, and save."""


if __name__ == "__main__":
    main()
