"""`gatewise data pack`: load a dataset, write it to one small file, and say what came out."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console
from rich.table import Table

from gatewise.data import Dataset, Splits, find_row, load_dataset, save_packed
from gatewise.data.packed import check_packable, file_name, levels_needed
from gatewise.encode import Thermometer
from gatewise.errors import FileError
from gatewise.progress import loading, working


def pack_file(name: str, levels: int | None, data: Path | None, out: Path | None) -> None:
    """Pack a dataset from `data`, or from the user's cache, and print what came out."""
    row = find_row(name)
    check_packable(row, 256)
    levels = default_levels(row) if levels is None else levels
    check_packable(row, levels)
    target = place(row, levels, data, out)
    with loading(name) as progress:
        splits = load_dataset(name, data, progress=progress)
    with working(f"packing {name}") as progress:
        save_packed(row, splits, levels, target, progress=progress)
    show(row, splits, levels, target, Console())


def default_levels(row: Dataset) -> int:
    """The fewest levels that any preset of this dataset of images can be trained from."""
    from gatewise.presets import PRESETS

    assert row.low is not None, row.name
    assert row.high is not None, row.name
    counts = {preset.thresholds for preset in PRESETS.values() if preset.dataset == row.name}
    encoders = [Thermometer.equal(count, row.low, row.high, row.shape) for count in counts]
    return min(levels_needed(encoder.thresholds) for encoder in encoders)


def place(row: Dataset, levels: int, data: Path | None, out: Path | None) -> Path:
    """Where the packed file goes, checked before minutes are spent on it: never onto what it is made of."""
    target = out or Path(file_name(row.name, levels))
    if target.is_dir():
        target = target / file_name(row.name, levels)
    if not target.parent.is_dir():
        raise FileError(f"{target} cannot be written: there is no folder {target.parent}")
    if data is not None and data.is_file() and target.resolve() == data.resolve():
        raise FileError(f"{target} is the data to be packed itself: give the packed file another name with --out")
    return target


def show(row: Dataset, splits: Splits, levels: int, path: Path, console: Console) -> None:
    """Print a packed file as a table."""
    table = Table(title=f"{row.name}, packed", show_header=False, title_justify="left")
    table.add_column(style="dim")
    table.add_column(justify="right")
    table.add_row("training samples", f"{len(splits.train_y):,}")
    table.add_row("test samples", f"{len(splits.test_y):,}")
    table.add_row("levels a value", str(levels))
    table.add_row("size", f"{path.stat().st_size / 2**20:.2f} MiB")
    console.print(table)
    console.print(f"packed data: {path}", highlight=False, markup=False, soft_wrap=True)
