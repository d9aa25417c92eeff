"""Every dataset from files in its publisher's layout: tiny ones made here, and the real ones where they are at hand."""

import gzip
import io
import os
import pickle
import re
import struct
import sys
import tarfile
import zipfile
from pathlib import Path

import numpy as np
import pytest

from gatewise.data import DATASETS, load_dataset
from gatewise.data.cifar import read_pickle
from gatewise.errors import DataError, EncodingError

REAL = os.environ.get("GATEWISE_TEST_DATA")
needs_real_data = pytest.mark.skipif(not REAL, reason="GATEWISE_TEST_DATA names no folder with the real datasets")


def fails(*words):
    """The one-sentence DataError that says all these words, in this order."""
    return pytest.raises(DataError, match=".*".join(map(re.escape, words)))


def random_bytes(shape, seed=0):
    return np.random.default_rng(seed).integers(0, 256, shape, dtype=np.uint8)


# digits


def test_the_digits_are_inside_the_package_and_need_no_folder():
    splits = load_dataset("digits")
    assert splits.train_x.shape == (1433, 1, 8, 8)
    assert splits.test_x.shape == (364, 1, 8, 8)
    assert splits.train_x.dtype == splits.test_x.dtype == np.uint8
    assert splits.train_y.dtype == splits.test_y.dtype == np.int64
    assert (splits.train_x.min(), splits.train_x.max()) == (0, 16)
    assert splits.test_x[0, 0].sum() == 294  # the very first digit of the file, a 0
    assert splits.test_y[0] == 0


def test_a_fifth_of_each_digit_is_in_the_test_split():
    splits = load_dataset("digits")
    train, test = np.bincount(splits.train_y), np.bincount(splits.test_y)
    assert (train + test).tolist() == [178, 182, 177, 183, 181, 182, 181, 179, 174, 180]
    assert test.tolist() == (-(-(train + test) // 5)).tolist()


def test_the_digits_ship_with_their_licence_and_stay_small():
    folder = Path(sys.modules["gatewise.data"].__file__).parent
    assert "CC BY 4.0" in (folder / "digits.LICENSE.md").read_text()
    assert (folder / "digits.npz").stat().st_size < 60_000


# MNIST


def idx(array, magic):
    return struct.pack(f">{1 + array.ndim}I", magic, *array.shape) + array.tobytes()


def mnist_files():
    images, labels = random_bytes((30, 28, 28)), (np.arange(30) % 10).astype(np.uint8)
    return {
        "train-images-idx3-ubyte": idx(images[:20], 0x803),
        "train-labels-idx1-ubyte": idx(labels[:20], 0x801),
        "t10k-images-idx3-ubyte": idx(images[20:], 0x803),
        "t10k-labels-idx1-ubyte": idx(labels[20:], 0x801),
    }


def write_mnist(folder, zipped=True, **changes):
    """MNIST's files, with some contents replaced: `train_images=…` and so on."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in mnist_files().items():
        content = changes.get("_".join(name.split("-")[:2]), content)
        (folder / f"{name}.gz" if zipped else folder / name).write_bytes(
            gzip.compress(content, mtime=0) if zipped else content
        )


@pytest.mark.parametrize("zipped", [True, False])
@pytest.mark.parametrize("place", ["", "MNIST/raw", "mnist"])
def test_mnist_is_read_from_idx_files(tmp_path, place, zipped):
    write_mnist(tmp_path / place, zipped)
    splits = load_dataset("mnist", tmp_path)
    images = random_bytes((30, 28, 28))
    np.testing.assert_array_equal(splits.train_x, images[:20, None])
    np.testing.assert_array_equal(splits.test_x, images[20:, None])
    assert splits.train_y.tolist() == [*range(10)] * 2
    assert (splits.train_x.dtype, splits.train_y.dtype, splits.columns) == (np.uint8, np.int64, ())


def test_a_missing_file_is_named_with_the_places_that_were_tried(tmp_path):
    write_mnist(tmp_path)
    (tmp_path / "t10k-images-idx3-ubyte.gz").unlink()
    with fails("mnist/t10k-images-idx3-ubyte.gz", "MNIST/raw/t10k", str(tmp_path), "not there", "put it there"):
        load_dataset("mnist", tmp_path)
    with fails("in the folder", "no such folder"):
        load_dataset("mnist", tmp_path / "nowhere")


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", ["only 0 bytes", "0x00000803"]),
        (struct.pack(">I", 0x801), ["0x00000801", "expected the IDX magic 0x00000803"]),
        (struct.pack(">2I", 0x803, 20), ["8 bytes"]),
        (struct.pack(">4I", 0x803, 20, 28, 28) + bytes(9), ["25 bytes", "expected 15696"]),
        (struct.pack(">4I", 0x803, 1, 28, 28) + bytes(785), ["801 bytes", "expected 800"]),
        (struct.pack(">4I", 0x803, 20, 8, 8) + bytes(1280), ["shape (1, 8, 8)", "expected shape (1, 28, 28)"]),
        (struct.pack(">4I", 0x803, 19, 28, 28) + bytes(19 * 784), ["20 labels for 19 samples"]),
        (struct.pack(">4I", 0x803, 0, 28, 28), ["train split of mnist is empty"]),
    ],
)
def test_a_damaged_idx_file_is_refused(tmp_path, content, words):
    write_mnist(tmp_path, train_images=content)
    with fails(*words):
        load_dataset("mnist", tmp_path)


def test_a_label_out_of_range_is_refused(tmp_path):
    write_mnist(tmp_path, t10k_labels=idx(np.array([0] * 9 + [10], dtype=np.uint8), 0x801))
    with fails("label 10 of sample 9 in the test split", "expected 0..9"):
        load_dataset("mnist", tmp_path)


@pytest.mark.parametrize("keep", [0, 5, 30, -8, -1])
def test_a_truncated_gzip_file_is_refused(tmp_path, keep):
    write_mnist(tmp_path)
    path = tmp_path / "train-images-idx3-ubyte.gz"
    path.write_bytes(path.read_bytes()[:keep])
    with fails(path.name):
        load_dataset("mnist", tmp_path)


def test_a_flipped_byte_in_a_gzip_file_is_noticed(tmp_path):
    write_mnist(tmp_path)
    path = tmp_path / "train-images-idx3-ubyte.gz"
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    with fails(path.name, "fetch it again"):
        load_dataset("mnist", tmp_path)


# CIFAR-10


def python2_pickle(images, labels):
    """What Python 2 and its numpy wrote: byte strings for all text, and names of modules that have moved since."""

    def text(s):
        return b"U" + bytes([len(s)]) + s

    raw = images.tobytes()
    ints = b"".join(b"K" + bytes([v]) for v in labels)
    dtype = b"cnumpy\ndtype\n" + text(b"u1") + b"K\x00K\x01\x87R" + b"(K\x03" + text(b"|") + b"NNNJ\xff\xff\xff\xff" * 1
    dtype += b"J\xff\xff\xff\xffK\x00tb"
    array = b"cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85" + text(b"b") + b"\x87R"
    array += b"(K\x01K" + bytes([len(images)]) + b"M" + struct.pack("<H", 3072) + b"\x86" + dtype
    array += b"\x89T" + struct.pack("<i", len(raw)) + raw + b"tb"
    return b"\x80\x02}(" + text(b"data") + array + text(b"labels") + b"](" + ints + b"eu."


def python3_pickle(images, labels):
    return pickle.dumps({b"data": images, b"labels": [int(v) for v in labels], b"filenames": [b"a.png"]}, 2)


def cifar_batches(write=python3_pickle):
    x, y = random_bytes((60, 3072)), np.arange(60) % 10
    names = [*(f"data_batch_{i}" for i in range(1, 6)), "test_batch"]
    return {name: write(x[10 * i : 10 * i + 10], y[10 * i : 10 * i + 10].tolist()) for i, name in enumerate(names)}


def write_cifar(folder, batches):
    (folder / "cifar-10-batches-py").mkdir()
    for name, content in batches.items():
        (folder / "cifar-10-batches-py" / name).write_bytes(content)


def write_cifar_archive(folder, batches):
    with tarfile.open(folder / "cifar-10-python.tar.gz", "w:gz") as archive:
        for name, content in batches.items():
            member = tarfile.TarInfo(f"cifar-10-batches-py/{name}")
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return folder / "cifar-10-python.tar.gz"


@pytest.mark.parametrize("write", [python2_pickle, python3_pickle])
@pytest.mark.parametrize("put", [write_cifar, write_cifar_archive])
def test_cifar10_is_read_from_folder_and_archive_by_python_2_and_3(tmp_path, put, write):
    put(tmp_path, cifar_batches(write))
    splits = load_dataset("cifar10", tmp_path)
    x = random_bytes((60, 3, 32, 32))
    np.testing.assert_array_equal(splits.train_x, x[:50])
    np.testing.assert_array_equal(splits.test_x, x[50:])
    assert splits.train_y.tolist() == [*range(10)] * 5
    assert (splits.train_x.dtype, splits.train_y.dtype) == (np.uint8, np.int64)


class Hostile:
    def __init__(self, call, *arguments):
        self.call, self.arguments = call, arguments

    def __reduce__(self):
        return self.call, self.arguments


def test_a_hostile_pickle_is_refused_and_does_not_run(tmp_path):
    mark = tmp_path / "ran"
    attack = pickle.dumps({b"data": Hostile(os.system, f"touch {mark}")}, 2)
    assert os.system.__name__.encode() in attack
    write_cifar(tmp_path, cifar_batches() | {"data_batch_3": attack})
    with fails("data_batch_3", f"names {os.name}.system", "do not use this file"):
        load_dataset("cifar10", tmp_path)
    assert not mark.exists()
    pickle.loads(attack)
    assert mark.exists()  # so the attack would have worked


@pytest.mark.parametrize(
    ("attack", "name"),
    [
        (Hostile(eval, "1"), "eval"),
        (Hostile(getattr, "", "join"), "getattr"),
        (Hostile(__import__, "os"), "__import__"),
        (Hostile(np.load, "x"), "numpy.load"),
        (Hostile(np.array, [1]), "numpy.array"),
    ],
)
@pytest.mark.parametrize("protocol", [0, 2, 4, 5])
def test_every_name_that_arrays_do_not_need_is_refused(attack, name, protocol):
    with fails("names", name):
        read_pickle(pickle.dumps(attack, protocol), "a batch")


@pytest.mark.parametrize(
    "data",
    [
        pickle.dumps({b"data": np.ndarray, b"labels": np.dtype}, 2),
        pickle.dumps(Hostile(np.ndarray, 1 << 40), 2),
        pickle.dumps({b"data": Hostile(np.ndarray, (1 << 40,), "O", b"x"), b"labels": []}, 2),
        pickle.dumps({b"data": np.zeros((2, 3072), dtype=object), b"labels": [0, 0]}, 2),
        pickle.dumps({b"data": np.zeros((2, 3072)), b"labels": [0, 0]}, 2),
        b"\x80\x02}(U\x04datacnumpy\nndarray\n)\x81}(U\x05stateK\x01ubu.",
        b"\x80\x02c_codecs\nencode\nU\x01aU\x03hex\x86R.",
        b"\x80\x02](e.",
        b"",
        b"\x80\x02",
        b"\xff" * 40,
        b"not a pickle at all",
    ],
)
def test_what_is_no_batch_is_refused_with_one_sentence(tmp_path, data):
    write_cifar(tmp_path, cifar_batches() | {"test_batch": data})
    with fails("test_batch", "expected"):
        load_dataset("cifar10", tmp_path)


@pytest.mark.parametrize(
    ("images", "labels", "words"),
    [
        (random_bytes((2, 3071)), [0, 1], ["shape (2, 3071)", "3072"]),
        (random_bytes((2, 3072)), [0], ["a list of 1 as `labels`", "expected 2"]),
        (random_bytes((2, 3072)), [0, 10], ["label 10", "expected 0..9"]),
    ],
)
def test_a_batch_of_another_shape_is_refused(tmp_path, images, labels, words):
    write_cifar(tmp_path, cifar_batches() | {"data_batch_1": python3_pickle(images, labels)})
    with fails("data_batch_1", *words):
        load_dataset("cifar10", tmp_path)


def test_a_missing_batch_is_named(tmp_path):
    batches = cifar_batches()
    del batches["data_batch_4"]
    write_cifar(tmp_path, batches)
    with fails("cifar10 needs cifar-10-batches-py/data_batch_4"):
        load_dataset("cifar10", tmp_path)


def test_cifar10_names_both_layouts_when_neither_is_there(tmp_path):
    with fails("cifar-10-python.tar.gz or cifar-10-batches-py"):
        load_dataset("cifar10", tmp_path)


@pytest.mark.parametrize("keep", [0, 20, 40_000, -20])
def test_a_truncated_archive_is_refused(tmp_path, keep):
    path = write_cifar_archive(tmp_path, cifar_batches())
    path.write_bytes(path.read_bytes()[:keep])
    with fails("cifar-10-python.tar.gz", "fetch"):
        load_dataset("cifar10", tmp_path)


def test_a_flipped_byte_in_an_archive_is_noticed(tmp_path):
    path = write_cifar_archive(tmp_path, cifar_batches())
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    with fails("cifar-10-python.tar.gz", "fetch it again"):
        load_dataset("cifar10", tmp_path)


def test_an_archive_without_a_batch_is_refused(tmp_path):
    write_cifar_archive(tmp_path, {"readme.html": b""})
    with fails("lacks cifar-10-batches-py/data_batch_1"):
        load_dataset("cifar10", tmp_path)


# ECG


def ecg_lines(count=6):
    x = np.random.default_rng(0).random((count, 187)).round(6)
    return [",".join([*(f"{v:.18e}" for v in row), f"{i % 5}.0"]) for i, row in enumerate(x)], x


def write_ecg(folder, train, test=None):
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "mitbih_train.csv").write_text(train if isinstance(train, str) else "\n".join(train) + "\n")
    (folder / "mitbih_test.csv").write_text("\n".join(test or ecg_lines(3)[0]) + "\n")


@pytest.mark.parametrize("place", ["", "mitbih"])
def test_ecg_is_read_from_csv_files(tmp_path, place):
    lines, x = ecg_lines()
    write_ecg(tmp_path / place, lines)
    splits = load_dataset("ecg", tmp_path)
    np.testing.assert_array_equal(splits.train_x, x)
    assert splits.train_y.tolist() == [0, 1, 2, 3, 4, 0]
    assert splits.test_x.shape == (3, 187)
    assert (splits.train_x.dtype, splits.train_y.dtype) == (np.float64, np.int64)


def cell(line, column, text):
    cells = line.split(",")
    cells[column] = text
    return ",".join(cells)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda s: s + ",1", ["line 3 of", "189 columns", "187"]),
        (lambda s: s.partition(",")[2], ["line 3 of", "187 columns"]),
        (lambda s: cell(s, 4, "x"), ["line 3, column 5 of", "'x'", "finite number"]),
        (lambda s: cell(s, 4, ""), ["line 3, column 5 of", "''"]),
        (lambda s: cell(s, 0, "nan"), ["line 3, column 1 of", "'nan'"]),
        (lambda s: cell(s, 0, "inf"), ["line 3, column 1 of", "'inf'"]),
        (lambda s: cell(s, 187, "5"), ["line 3 of", "label 5", "0..4"]),
        (lambda s: cell(s, 187, "0.5"), ["line 3 of", "label 0.5"]),
        (lambda s: cell(s, 187, "-1"), ["line 3 of", "label -1"]),
    ],
)
def test_a_bad_csv_line_is_named(tmp_path, change, words):
    lines = ecg_lines()[0]
    write_ecg(tmp_path, [*lines[:2], change(lines[2]), *lines[3:]])
    with fails(words[0], *words[1:], "fetch the file again") as caught:
        load_dataset("ecg", tmp_path)
    assert "mitbih_train.csv" in str(caught.value)


@pytest.mark.parametrize("text", ["", "\n\n", "a,b\n", "\x00\x01", "1_0," * 187 + "0\n"])
def test_a_file_that_is_no_csv_is_refused(tmp_path, text):
    write_ecg(tmp_path, text)
    with fails("mitbih_train.csv"):
        load_dataset("ecg", tmp_path)


def test_bytes_that_are_no_text_are_refused(tmp_path):
    write_ecg(tmp_path, ecg_lines()[0])
    (tmp_path / "mitbih_test.csv").write_bytes(b"\xff\xfe\xff")
    with fails("mitbih_test.csv", "not text"):
        load_dataset("ecg", tmp_path)


def test_all_columns_missing_alike_is_noticed(tmp_path):
    write_ecg(tmp_path, ["1,2,3", "1,2,3"])
    with fails("line 1 of", "3 columns"):
        load_dataset("ecg", tmp_path)


def test_ecg_says_what_to_fetch_and_where_to_put_it(tmp_path):
    with fails("ecg needs mitbih/mitbih_train.csv", "kaggle.com", "login", "folder named mitbih"):
        load_dataset("ecg", tmp_path)


# UCI tables

BREAST = ["no-recurrence-events,30-39,premeno,30-34,0-2,no,3,left,left_low,no"] * 5
BREAST += ["no-recurrence-events,40-49,premeno,20-24,0-2,?,2,right,right_up,no"]
BREAST += ["recurrence-events,50-59,ge40,10-14,0-2,yes,1,left,central,yes"] * 5


def write_uci(folder, **files):
    (folder / "uci").mkdir(exist_ok=True)
    for name, lines in files.items():
        (folder / "uci" / name.replace("__", "-").replace("_", ".")).write_text("\n".join([*lines, ""]))


def test_breast_cancer_drops_missing_values_and_splits_each_class(tmp_path):
    write_uci(tmp_path, breast__cancer_data=BREAST)
    splits = load_dataset("breast-cancer", tmp_path)
    assert splits.train_y.tolist() == [0, 0, 0, 1, 1, 1]
    assert splits.test_y.tolist() == [0, 0, 1, 1]
    assert splits.train_x.dtype == object
    assert splits.test_x[0].tolist() == ["30-39", "premeno", "30-34", "0-2", "no", "3", "left", "left_low", "no"]
    assert splits.columns[0] == "age"
    assert len(splits.columns) == 9


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("no-recurrence-events,30-39", ["line 12 of", "2 columns", "expected 10"]),
        ("maybe" + BREAST[0][20:], ["line 12 of", "label 'maybe'", "no-recurrence-events, recurrence-events"]),
        (BREAST[0].replace("left_low", "middle"), ["line 12, column breast-quad of", "'middle'", "left_up"]),
    ],
)
def test_a_bad_table_line_is_named(tmp_path, line, words):
    write_uci(tmp_path, breast__cancer_data=[*BREAST, line])
    with fails(*words, "fetch the file again"):
        load_dataset("breast-cancer", tmp_path)


ADULT = "39, State-gov, 77516, Bachelors, 13, Never-married, Adm-clerical, Not-in-family, White, Male, 2174, 0, 40, "


def test_adult_has_numbers_and_text_and_copes_with_the_test_file(tmp_path):
    missing = ADULT.replace("State-gov", "?") + "Cuba, <=50K"
    write_uci(
        tmp_path,
        adult_data=[ADULT + "Cuba, <=50K", missing, ADULT + "South, >50K", ""],
        adult_test=["|1x3 Cross validator", ADULT + "Cuba, >50K.", missing + "."],
    )
    splits = load_dataset("adult", tmp_path)
    assert splits.train_y.tolist() == [0, 1]
    assert splits.test_y.tolist() == [1]
    assert splits.test_x[0].tolist()[:5] == [39.0, "State-gov", 77516.0, "Bachelors", 13.0]
    assert {type(v) for v in splits.train_x[:, 0]} == {float}
    assert {type(v) for v in splits.train_x[:, 1]} == {str}


def test_a_number_that_is_none_is_named_by_line_and_column(tmp_path):
    bad = ADULT.replace("77516", "many") + "Cuba, <=50K"
    write_uci(tmp_path, adult_data=[ADULT + "Cuba, <=50K", bad], adult_test=[ADULT + "Cuba, <=50K."])
    with fails("line 2, column fnlwgt of", "'many'", "finite number"):
        load_dataset("adult", tmp_path)


@pytest.mark.parametrize("number", [1, 2, 3])
def test_monks_keep_their_coded_values_as_categories(tmp_path, number):
    for part, lines in (("train", [" 1 1 2 2 3 4 1 data_5", " 0 3 1 1 1 1 2 data_6"]), ("test", ["1 1 1 1 1 1 1 d"])):
        (tmp_path / f"monks-{number}.{part}").write_text("\n".join(lines))
    splits = load_dataset(f"monks-{number}", tmp_path)
    assert splits.train_x.tolist() == [["1", "2", "2", "3", "4", "1"], ["3", "1", "1", "1", "1", "2"]]
    assert splits.train_y.tolist() == [1, 0]


def test_a_table_without_rows_is_refused(tmp_path):
    write_uci(tmp_path, breast__cancer_data=["", ""])
    with fails("breast-cancer.data", "no complete rows"):
        load_dataset("breast-cancer", tmp_path)


# Tiny ImageNet


def jpeg(colour, size=(64, 64), mode="RGB"):
    image = pytest.importorskip("PIL.Image").new(mode, size, colour)
    content = io.BytesIO()
    image.save(content, "JPEG", quality=95)
    return content.getvalue()


def imagenet_files():
    files = {"wnids.txt": b"n02\nn01\n", "words.txt": b"n01\tfish\n"}
    for wnid, colour in (("n01", (250, 0, 0)), ("n02", (0, 250, 0))):
        for i in range(2):
            files[f"train/{wnid}/images/{wnid}_{i}.JPEG"] = jpeg(colour)
        files[f"train/{wnid}/{wnid}_boxes.txt"] = b""
    files["val/val_annotations.txt"] = b"val_1.JPEG\tn02\t0\t0\t1\t1\nval_0.JPEG\tn01\t0\t0\t1\t1\n"
    files["val/images/val_0.JPEG"], files["val/images/val_1.JPEG"] = jpeg(128, mode="L"), jpeg((0, 250, 0))
    return files


def write_imagenet(folder, files):
    for name, content in files.items():
        path = folder / "tiny-imagenet-200" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)


def write_imagenet_zip(folder, files):
    with zipfile.ZipFile(folder / "tiny-imagenet-200.zip", "w") as archive:
        for name, content in files.items():
            archive.writestr(f"tiny-imagenet-200/{name}", content)


@pytest.mark.parametrize("put", [write_imagenet, write_imagenet_zip])
def test_tiny_imagenet_is_read_from_folders_and_from_the_zip(tmp_path, put):
    put(tmp_path, imagenet_files())
    steps = []
    splits = load_dataset("tiny-imagenet", tmp_path, progress=lambda done, total: steps.append((done, total)))
    assert splits.train_x.shape == (4, 3, 64, 64)
    assert splits.train_y.tolist() == [0, 0, 1, 1]
    assert splits.test_y.tolist() == [0, 1]
    assert (splits.train_x.mean((2, 3)).argmax(1) == splits.train_y).all()
    assert np.ptp(splits.test_x[0].mean((1, 2))) == 0  # grey images get three equal channels
    assert steps == [(4, 6), (6, 6)]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"wnids.txt": None}, ["lacks wnids.txt"]),
        ({"val/val_annotations.txt": None}, ["lacks val/val_annotations.txt"]),
        ({"wnids.txt": b""}, ["0 class ids"]),
        ({"wnids.txt": b"n01\n"}, ["train/n02 is no class"]),
        ({"wnids.txt": b"n01\nn02\nn03\n"}, ["train/n03/images holds no JPEG"]),
        ({"val/val_annotations.txt": b"val_1.JPEG n02\n"}, ["line 1 of", "between tabs"]),
        ({"val/val_annotations.txt": b"val_9.JPEG\tn02\n"}, ["line 1 of", "val_9.JPEG", "not in val/images"]),
        ({"val/images/val_0.JPEG": b"no image"}, ["val_0.JPEG cannot be decoded"]),
        ({"val/images/val_0.JPEG": "cut"}, ["val_0.JPEG cannot be decoded"]),
        ({"val/images/val_0.JPEG": "small"}, ["val_0.JPEG has 32×64 pixels, expected 64×64"]),
    ],
)
@pytest.mark.parametrize("put", [write_imagenet, write_imagenet_zip])
def test_a_damaged_tiny_imagenet_is_refused(tmp_path, put, change, words):
    files = imagenet_files()
    made = {"cut": files["val/images/val_0.JPEG"][:-200], "small": jpeg(1, (32, 64), "L")}
    files |= {k: made.get(v, v) if isinstance(v, str) else v for k, v in change.items()}
    put(tmp_path, {k: v for k, v in files.items() if v is not None})
    with fails(*words):
        load_dataset("tiny-imagenet", tmp_path)


def test_a_truncated_zip_is_refused(tmp_path):
    (tmp_path / "tiny-imagenet-200.zip").write_bytes(b"PK\x03\x04 and then nothing")
    with fails("tiny-imagenet-200.zip is truncated or no zip archive"):
        load_dataset("tiny-imagenet", tmp_path)


def test_without_pillow_the_command_that_installs_it_is_named(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "PIL", None)
    with fails("Pillow", "pip install 'gatewise[images]'"):
        load_dataset("tiny-imagenet", tmp_path)


# The table


def test_an_unknown_dataset_is_refused_with_those_there_are():
    with fails("'minst'", "digits, mnist, cifar10, ecg, breast-cancer, adult, monks-1"):
        load_dataset("minst")


def test_every_row_says_what_its_encoder_needs():
    for name, row in DATASETS.items():
        assert row.name == name
        assert row.source
        assert row.licence
        if row.kind == "table":
            assert (len(row.columns),) == (len(row.categories),) == row.shape
        else:
            assert row.kind in ("image", "signal")
            assert row.low < row.high


def test_the_errors_of_data_and_encoding_are_told_apart():
    assert not issubclass(DataError, EncodingError)


# The real datasets

EXPECTED = {
    "mnist": (60000, 10000, [980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009]),
    "cifar10": (50000, 10000, [1000] * 10),
    "ecg": (87554, 21892, [18118, 556, 1448, 162, 1608]),
    "breast-cancer": (207, 70, [49, 21]),
    "adult": (30162, 15060, [11360, 3700]),
    "monks-1": (124, 432, [216, 216]),
    "monks-2": (169, 432, [290, 142]),
    "monks-3": (122, 432, [204, 228]),
}


@needs_real_data
@pytest.mark.parametrize("name", EXPECTED)
def test_a_real_dataset_has_its_published_sizes(name):
    splits = load_dataset(name, Path(REAL))
    train, test, counts = EXPECTED[name]
    assert (len(splits.train_x), len(splits.test_x)) == (train, test)
    assert np.bincount(splits.test_y).tolist() == counts


@needs_real_data
def test_real_images_have_their_published_means():
    x = load_dataset("mnist", Path(REAL)).train_x
    assert x.mean() / 255 == pytest.approx(0.13066, abs=1e-5)
    x = load_dataset("cifar10", Path(REAL)).train_x
    assert x.mean((0, 2, 3)) == pytest.approx([125.307, 122.950, 113.865], abs=1e-3)
