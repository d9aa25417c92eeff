"""Datasets as rows of one table, loaded as numpy arrays. Augmentation (which needs torch) is in `augment`."""

from gatewise.data.dataset import Dataset, File, Progress, Splits
from gatewise.data.packed import check_levels, load_packed, save_packed
from gatewise.data.rows import DATASETS, find_row, load_dataset

__all__ = [
    "DATASETS",
    "Dataset",
    "File",
    "Progress",
    "Splits",
    "check_levels",
    "find_row",
    "load_dataset",
    "load_packed",
    "save_packed",
]
