"""Datasets as rows of one table, loaded as numpy arrays. Augmentation (which needs torch) is in `augment`."""

from gatewise.data.dataset import Dataset, File, Progress, Splits
from gatewise.data.rows import DATASETS, load_dataset

__all__ = ["DATASETS", "Dataset", "File", "Progress", "Splits", "load_dataset"]
