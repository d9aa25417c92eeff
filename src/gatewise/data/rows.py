"""Every dataset gatewise knows, as rows of one table."""

from __future__ import annotations

from pathlib import Path

from gatewise.data.cifar import load_cifar10
from gatewise.data.dataset import Dataset, File, Progress, Splits, check_splits
from gatewise.data.imagenet import load_tiny_imagenet
from gatewise.data.images import load_digits, load_mnist
from gatewise.data.packed import find_packed, is_packed, load_packed
from gatewise.data.source import open_source
from gatewise.data.tables import load_adult, load_breast_cancer, load_ecg, load_monks
from gatewise.errors import DataError

_UCI = "https://archive.ics.uci.edu/ml/machine-learning-databases"
_MNIST = "https://ossci-datasets.s3.amazonaws.com/mnist"
_CC_BY = "CC BY 4.0"


def _mnist_file(name: str, md5: str) -> File:
    return File(name, ("mnist", "MNIST/raw", ""), f"{_MNIST}/{name}", f"md5:{md5}", name.removesuffix(".gz"))


def _uci_file(folder: str, name: str, sha256: str) -> File:
    return File(name, ("uci", ""), f"{_UCI}/{folder}/{name}", f"sha256:{sha256}")


def _table(columns: dict[str, str]) -> tuple[tuple[str, ...], tuple[tuple[str, ...] | None, ...]]:
    """Column names, and their values in the publisher's list; a column without a list is numeric."""
    return tuple(columns), tuple(tuple(values.split()) or None for values in columns.values())


_BREAST_CANCER = _table(
    {
        "age": "10-19 20-29 30-39 40-49 50-59 60-69 70-79 80-89 90-99",
        "menopause": "lt40 ge40 premeno",
        "tumor-size": "0-4 5-9 10-14 15-19 20-24 25-29 30-34 35-39 40-44 45-49 50-54 55-59",
        "inv-nodes": "0-2 3-5 6-8 9-11 12-14 15-17 18-20 21-23 24-26 27-29 30-32 33-35 36-39",
        "node-caps": "yes no",
        "deg-malig": "1 2 3",
        "breast": "left right",
        "breast-quad": "left_up left_low right_up right_low central",
        "irradiat": "yes no",
    }
)

_ADULT = _table(
    {
        "age": "",
        "workclass": "Private Self-emp-not-inc Self-emp-inc Federal-gov Local-gov State-gov Without-pay Never-worked",
        "fnlwgt": "",
        "education": "Preschool 1st-4th 5th-6th 7th-8th 9th 10th 11th 12th HS-grad Some-college Assoc-voc Assoc-acdm "
        "Bachelors Masters Prof-school Doctorate",
        "education-num": "",
        "marital-status": "Married-civ-spouse Divorced Never-married Separated Widowed Married-spouse-absent "
        "Married-AF-spouse",
        "occupation": "Tech-support Craft-repair Other-service Sales Exec-managerial Prof-specialty Handlers-cleaners "
        "Machine-op-inspct Adm-clerical Farming-fishing Transport-moving Priv-house-serv Protective-serv Armed-Forces",
        "relationship": "Wife Own-child Husband Not-in-family Other-relative Unmarried",
        "race": "White Asian-Pac-Islander Amer-Indian-Eskimo Other Black",
        "sex": "Female Male",
        "capital-gain": "",
        "capital-loss": "",
        "hours-per-week": "",
        "native-country": "United-States Cambodia Canada China Columbia Cuba Dominican-Republic Ecuador El-Salvador "
        "England France Germany Greece Guatemala Haiti Holand-Netherlands Honduras Hong Hungary India Iran Ireland "
        "Italy Jamaica Japan Laos Mexico Nicaragua Outlying-US(Guam-USVI-etc) Peru Philippines Poland Portugal "
        "Puerto-Rico Scotland South Taiwan Thailand Trinadad&Tobago Vietnam Yugoslavia",
    }
)

_MONKS = _table(
    {
        "head-shape": "1 2 3",
        "body-shape": "1 2 3",
        "is-smiling": "1 2",
        "holding": "1 2 3",
        "jacket-color": "1 2 3 4",
        "has-tie": "1 2",
    }
)


def _monks(number: int, train: str, test: str) -> Dataset:
    names = (f"monks-{number}.train", train), (f"monks-{number}.test", test)
    return Dataset(
        name=f"monks-{number}",
        kind="table",
        shape=(6,),
        classes=2,
        load=load_monks,
        source="J. Wnek, MONK's Problems, UCI Machine Learning Repository, DOI 10.24432/C5R30R",
        licence=_CC_BY,
        files=tuple(_uci_file("monks-problems", name, sha256) for name, sha256 in names),
        columns=_MONKS[0],
        categories=_MONKS[1],
    )


_ROWS = (
    Dataset(
        name="digits",
        kind="image",
        shape=(1, 8, 8),
        classes=10,
        load=load_digits,
        source="E. Alpaydin, C. Kaynak, Optical Recognition of Handwritten Digits (its test file of 1,797 samples), "
        "UCI Machine Learning Repository, DOI 10.24432/C50P49",
        licence=_CC_BY,
        low=0.0,
        high=16.0,
    ),
    Dataset(
        name="mnist",
        kind="image",
        shape=(1, 28, 28),
        classes=10,
        load=load_mnist,
        source="Y. LeCun, C. Cortes, C. Burges, The MNIST database of handwritten digits",
        licence="none stated by the publisher; commonly given as CC BY-SA 3.0",
        files=(
            _mnist_file("train-images-idx3-ubyte.gz", "f68b3c2dcbeaaa9fbdd348bbdeb94873"),
            _mnist_file("train-labels-idx1-ubyte.gz", "d53e105ee54ea40749a09fcbcd1e9432"),
            _mnist_file("t10k-images-idx3-ubyte.gz", "9fb629c4189551a2d022fa330f9573f3"),
            _mnist_file("t10k-labels-idx1-ubyte.gz", "ec29112dd5afa0611ce80d1b7f02629c"),
        ),
        low=0.0,
        high=255.0,
        augmentation="rotate_shift",
    ),
    Dataset(
        name="cifar10",
        kind="image",
        shape=(3, 32, 32),
        classes=10,
        load=load_cifar10,
        source="A. Krizhevsky, Learning Multiple Layers of Features from Tiny Images, 2009",
        licence="none stated; the publisher asks to cite the report",
        files=(
            File(
                "cifar-10-python.tar.gz",
                url="https://www.cs.toronto.edu/~kriz/cifar-10-python.tar.gz",
                checksum="md5:c58f30108f718f92721af3b95e74349a",
                unpacked="cifar-10-batches-py",
            ),
        ),
        low=0.0,
        high=255.0,
        augmentation="flip_crop_2",
    ),
    Dataset(
        name="ecg",
        kind="signal",
        shape=(187,),
        classes=5,
        load=load_ecg,
        source="MIT-BIH Arrhythmia Database (G. Moody, R. Mark, PhysioNet) in the Kaggle layout of S. Fazeli, "
        "ECG Heartbeat Categorization Dataset",
        licence="ODC-By 1.0",
        files=tuple(File(f"mitbih_{part}.csv", ("mitbih", "")) for part in ("train", "test")),
        low=0.0,
        high=1.0,
        fetch="fetch mitbih_train.csv and mitbih_test.csv from https://www.kaggle.com/datasets/shayanfazeli/heartbeat "
        "(it needs a login) and put them into a folder named mitbih there",
    ),
    Dataset(
        name="breast-cancer",
        kind="table",
        shape=(9,),
        classes=2,
        load=load_breast_cancer,
        source="M. Zwitter, M. Soklic, Breast Cancer (Ljubljana), UCI Machine Learning Repository, DOI 10.24432/C51P4M",
        licence=_CC_BY,
        files=(
            _uci_file(
                "breast-cancer",
                "breast-cancer.data",
                "ca7d3fa97b62ff967b6894ffbb3acaaf4a51062e0149e5950b3ad6f685970b65",
            ),
        ),
        columns=_BREAST_CANCER[0],
        categories=_BREAST_CANCER[1],
    ),
    Dataset(
        name="adult",
        kind="table",
        shape=(14,),
        classes=2,
        load=load_adult,
        source="B. Becker, R. Kohavi, Adult, UCI Machine Learning Repository, DOI 10.24432/C5XW20",
        licence=_CC_BY,
        files=(
            _uci_file("adult", "adult.data", "5b00264637dbfec36bdeaab5676b0b309ff9eb788d63554ca0a249491c86603d"),
            _uci_file("adult", "adult.test", "a2a9044bc167a35b2361efbabec64e89d69ce82d9790d2980119aac5fd7e9c05"),
        ),
        columns=_ADULT[0],
        categories=_ADULT[1],
    ),
    _monks(
        1,
        "d9c328b6f0e095ab10f7bc8468f1d2141f3d08be73e665c3bf0a62994c922606",
        "e501ada3b21d876ab86f3e1614747bd2edc443a685f229a25e480aa1dea629f6",
    ),
    _monks(
        2,
        "7ebcc278005737caad0cd52e6aa31256a2c3174da8047faf4ac3a9d35edbdaa8",
        "945650affde377c27f6218c8b17893e339ea831f4bee9f9d7123020699cfbf40",
    ),
    _monks(
        3,
        "726f258f80be06af4bb2d8831789514a663f5813e47429211fe19dcd367966f8",
        "1d816ae7347afaf895050667adc3f382904c6ed2332d0a2d09353f5e6cb54612",
    ),
    Dataset(
        name="tiny-imagenet",
        kind="image",
        shape=(3, 64, 64),
        classes=200,
        load=load_tiny_imagenet,
        source="Stanford CS231n, Tiny ImageNet, a subset of ImageNet",
        licence="ImageNet's terms of access: research that is not commercial",
        files=(
            File(
                "tiny-imagenet-200.zip",
                url="http://cs231n.stanford.edu/tiny-imagenet-200.zip",
                checksum="md5:90528d7ca1a48142e341f4ef8d21d0de",
                unpacked="tiny-imagenet-200",
            ),
        ),
        low=0.0,
        high=255.0,
        augmentation="flip_crop_4",
    ),
)

DATASETS: dict[str, Dataset] = {row.name: row for row in _ROWS}


def load_dataset(name: str, folder: Path | None = None, *, progress: Progress | None = None) -> Splits:
    """Load a dataset of `DATASETS` from `folder`: from the publisher's files, else from a packed one.

    Without a folder the user's cache is used (the environment variable GATEWISE_DATA names another place), and what
    is not there yet is downloaded into it and compared with the publisher's checksum. In the place of a folder a
    packed file will do. `progress` is called with (done, total) during downloads, in bytes, and while images are
    decoded or unpacked.
    """
    row = find_row(name)
    if folder is not None and is_packed(Path(folder)):
        return check_splits(row, load_packed(row, folder, progress=progress))
    source = open_source(row, folder, progress)
    packed = None if source.has_originals() else find_packed(row, source.root)
    splits = row.load(row, source) if packed is None else load_packed(row, packed, progress=progress)
    return check_splits(row, splits)


def find_row(name: str) -> Dataset:
    """The row of that name."""
    if name not in DATASETS:
        raise DataError(f"there is no dataset {name!r}, expected one of: {', '.join(DATASETS)}")
    return DATASETS[name]
