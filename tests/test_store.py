"""Circuit files: what is saved comes back, and of what is damaged or hostile nothing but a FileError comes."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from circuits import circuits, random_circuit
from fuzz_files import Draft, circuits_to_damage, fuzz, models_to_damage, refusal
from hypothesis import HealthCheck, example, given, settings

from gatewise.circuit import Circuit, load_circuit, save_circuit
from gatewise.encode import Category, Numeric, TableEncoder
from gatewise.errors import FileError
from gatewise.files import MAX_HEADER, MAX_PARTS, write_arrays
from gatewise.model import BooleanModel, Head
from gatewise.model import load as load_model


@given(circuits())
@example(Circuit(2**31 - 3, [], np.zeros((0, 1)), [2**31 - 2]))
@settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_circuit_comes_back_as_it_was(tmp_path: Path, circuit: Circuit) -> None:
    save_circuit(circuit, tmp_path / "c")
    assert load_circuit(tmp_path / "c") == circuit


@pytest.mark.parametrize(("k", "bytes_a_gate"), [(1, 5), (2, 9), (3, 13), (4, 18), (5, 24), (6, 32)])
def test_a_table_takes_the_fewest_bytes_that_hold_its_rows(tmp_path: Path, k: int, bytes_a_gate: int) -> None:
    sizes = []
    for gates in (1000, 2000):
        save_circuit(random_circuit(np.random.default_rng(k), 4, gates, k), tmp_path / "c")
        sizes.append(len((tmp_path / "c").read_bytes()))
    assert abs(sizes[1] - sizes[0] - 1000 * bytes_a_gate) <= 16  # the header's own numbers get longer too


def test_a_model_is_no_circuit_file_and_a_circuit_no_model_file(tmp_path: Path) -> None:
    save_circuit(circuits_to_damage()[0], tmp_path / "c")
    models_to_damage()[0].save(tmp_path / "m")
    with pytest.raises(FileError, match="m has format 'gatewise-model' version 1: expected 'gatewise-circuit' version"):
        load_circuit(tmp_path / "m")
    with pytest.raises(FileError, match="c has format 'gatewise-circuit' version 1: expected 'gatewise-model' version"):
        load_model(tmp_path / "c")


def draft(tmp_path: Path) -> Draft:
    save_circuit(Circuit(2, [6, 1], [[2, 3], [2, 3]], [4, 5]), tmp_path / "c")
    return Draft.of((tmp_path / "c").read_bytes())


@pytest.mark.parametrize(
    ("header", "message"),
    [
        ({"inputs": True}, "c holds no sound circuit: inputs is True: expected a whole number"),
        ({"inputs": 2.0}, "inputs is 2.0: expected a whole number"),
        ({"inputs": float("nan")}, "inputs is nan"),
        ({"inputs": 2**31 - 3}, "the circuit has 2147483649 nets: expected at most 2147483647"),
        ({"inputs": 10**4000}, "inputs is 1000.* …$"),
        ({"version": True}, "c has format 'gatewise-circuit' version True: expected"),
        ({"version": 1.0}, "version 1.0: expected"),
        ({"format": "x" * 10_000}, "c has format 'x{399} …: expected"),
        ({"note": "\ud800"}, "c is no gatewise file"),
    ],
)
def test_a_header_that_fits_no_circuit_is_refused(tmp_path: Path, header: dict[str, Any], message: str) -> None:
    found = draft(tmp_path)
    found.header |= header
    (tmp_path / "c").write_bytes(found.seal())
    with pytest.raises(FileError, match=message):
        load_circuit(tmp_path / "c")


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"table": ("I8", [2], b"\6\1")}, "table has dtype int8: expected uint8"),
        ({"table": ("U16", [2], b"\6\0\1\0")}, "table has dtype uint16: expected uint8"),
        ({"fanin": ("U8", [2, 2], b"\2\3\2\3")}, "fanin has dtype uint8: expected int32"),
        ({"fanin": ("I32", [0, 10**18], b"")}, r"fanin has shape \(0, 1000000000000000000\): expected a row of 1 to 6"),
        ({"fanin": ("I32", [10**18, 0], b"")}, r"fanin has shape \(1000000000000000000, 0\)"),
        ({"outputs": ("I32", [], b"\4\0\0\0")}, r"outputs has shape \(\)"),
        ({"outputs": ("I32", [1], b"\6\0\0\0")}, "output 0 is net 6: expected 0 to 5"),
        ({"more": ("U8", [0], b"")}, "there are the arrays fanin, more, outputs, table: expected table"),
    ],
)
def test_arrays_that_are_no_circuit_are_refused(tmp_path: Path, arrays: dict[str, Any], message: str) -> None:
    found = draft(tmp_path)
    kept = [array for array in found.arrays if array[0] not in arrays]
    found.arrays = kept + [(name, *array) for name, array in arrays.items()]
    (tmp_path / "c").write_bytes(found.seal())
    with pytest.raises(FileError, match=f"c holds no sound circuit: {message}"):
        load_circuit(tmp_path / "c")


@pytest.mark.parametrize(
    ("part", "key", "value", "message"),
    [
        ("head", "classes", 10**18, "the head has 1000000000000000000 classes: expected 1 to 1048576"),
        ("head", "classes", True, "the head has classes=True"),
        ("head", "tau", True, "the head has classes=3 and tau=True"),
        ("encoder", "input_shape", [10**4000] * 400, "the shape of a sample is .* …$"),  # a product of hours
        ("encoder", "input_shape", [1] * 17, "the shape of a sample is .*, expected 1 to 16 whole numbers"),
        ("encoder", "input_shape", [2, True], "the shape of a sample is .2, True., expected"),
        ("circuit", "inputs", True, "inputs is True: expected a whole number"),
    ],
)
def test_a_model_of_absurd_size_is_refused_at_once(
    tmp_path: Path, part: str, key: str, value: Any, message: str
) -> None:
    models_to_damage()[0].save(tmp_path / "m")
    found = Draft.of((tmp_path / "m").read_bytes())
    found.header[part][key] = value
    (tmp_path / "m").write_bytes(found.seal())
    begin = time.perf_counter()
    with pytest.raises(FileError, match=f"m holds no sound model: {message}"):
        load_model(tmp_path / "m")
    assert time.perf_counter() - begin < 5


@pytest.mark.parametrize(
    ("header", "reason"),
    [
        ({1: "a", "1": "b"}, "a key is there twice"),
        ({"name": "\ud800"}, "surrogates not allowed"),
        ({"lists": [[]] * MAX_PARTS}, "more than 65,536 lists and tables"),
        ({"text": "x" * MAX_HEADER}, r"its header takes 4,194,\d\d\d bytes .* expected 4,194,304 bytes"),
        ({"lists": [[]] * (MAX_PARTS - 3)}, "and 65,536 lists and tables at most"),  # with the file's own too many
    ],
)
def test_a_header_that_could_not_be_read_again_is_not_written(tmp_path: Path, header: Any, reason: str) -> None:
    with pytest.raises(FileError, match=f"c cannot be written: .*{reason}"):
        write_arrays(tmp_path / "c", {}, header)
    assert os.listdir(tmp_path) == []


@pytest.mark.skipif(os.name != "posix", reason="pipes and devices have no names in the file system")
def test_what_is_no_file_is_refused_before_it_is_opened(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")  # opening it would wait for somebody to write
    for path in (tmp_path / "pipe", Path("/dev/zero")):
        with pytest.raises(FileError, match=f"{path} cannot be read: expected a file, not a device or a pipe"):
            load_circuit(path)


REASONS = [
    "no gatewise file", "bytes, but its header says", "checksum does not match", "is damaged: .*deserializ", "too big",
    "has format", "version", "inputs is", "there are the arrays", "table has dtype", "table has shape",
    "fanin has shape", "fanin has dtype", "outputs has dtype", "outputs has shape", "output . is net", "reads net",
    "gate .* has table", "nets: expected", "the head has", "class_names is", "the saved encoder", "thresholds have",
    "the encoder makes", "shape of a sample", "is missing",
]  # fmt: skip


def test_ten_thousand_damaged_files_are_loaded_or_refused_and_nothing_else() -> None:
    refusals = fuzz(10_000, seed=0)
    assert len(refusals) == 10_000
    assert 100 < refusals.count("") < 5_000
    text = "\n".join(refusals)
    unseen = [reason for reason in REASONS if not re.search(reason, text)]
    assert not unseen, f"no file got as far as {unseen}"


def with_extra(text: str) -> Callable[[Path], bytes]:
    """A sound model whose header has this JSON in it, too."""

    def make(path: Path) -> bytes:
        models_to_damage()[0].save(path)
        found = Draft.of(path.read_bytes())
        return found.seal(f"{json.dumps(found.header)[:-1]}, {text}}}")

    return make


def saved(encoder: TableEncoder) -> Callable[[Path], bytes]:
    """A sound model with this encoder and no gates."""

    def make(path: Path) -> bytes:
        BooleanModel(encoder, Circuit(*encoder.bit_shape, [], np.zeros((0, 2)), [0]), Head(1)).save(path)
        return path.read_bytes()

    return make


NESTED = "[" * 800 + "]" * 800
BOMBS = {
    "lists": with_extra(f'"x": [{"[]," * 100_000}0]'),
    "tables": with_extra(f'"x": [{"{}," * 60_000}0]'),
    "nested lists": with_extra(f'"x": [{",".join([NESTED] * 80)}]'),
    "far too nested lists": with_extra(f'"x": {"[" * 60_000}{"]" * 60_000}'),
    "numbers": with_extra(f'"x": [{"1.5," * 200_000}0]'),
    "a wide character": with_extra(f'"x": "{"a" * 1_000_000}\U0001f600"'),
    "a long name for many thresholds": saved(
        TableEncoder([Numeric("n" * 100_000, 50_000, tuple(np.arange(50_000.0)))])  # type: ignore[arg-type]
    ),
    "many values": saved(TableEncoder([Category("v", tuple(map(str, range(50_000))))])),  # type: ignore[arg-type]
}


@pytest.mark.parametrize("bomb", BOMBS)
def test_a_file_made_to_swell_takes_a_small_multiple_of_its_size(tmp_path: Path, bomb: str) -> None:
    data = BOMBS[bomb](tmp_path / "m")
    assert len(data) > 100_000
    refusal(load_model, tmp_path / "m", data)


@pytest.mark.parametrize("k", range(1, 7))
def test_a_large_circuit_takes_a_small_multiple_of_its_file(tmp_path: Path, k: int) -> None:
    save_circuit(random_circuit(np.random.default_rng(k), 9, 200_000, k), tmp_path / "c")
    data = (tmp_path / "c").read_bytes()
    assert refusal(load_circuit, tmp_path / "c", data, factor=6, constant=0) == ""
    with pytest.raises(AssertionError, match="bytes of memory for a file of"):
        refusal(load_circuit, tmp_path / "c", data, factor=1.5, constant=0)


CONFINED = """
import resource, sys
from gatewise.circuit import load_circuit
from gatewise.errors import FileError
used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + 64 * 2**20,) * 2)
{plant}
for path in sys.argv[1:]:
    try:
        load_circuit(path)
    except FileError as error:
        print(error)
"""


def confined(folder: Path, plant: str = "") -> subprocess.CompletedProcess[str]:
    """Load hostile files in a process that gets 64 MiB more than it starts with, native code included."""
    sound = draft(folder)
    lies: dict[str, bytes] = {"length": (2**60).to_bytes(8, "little") + sound.seal()[8:]}
    sound.arrays[0] = ("fanin", "I32", [2**33, 2], sound.arrays[0][3])
    lies["shape"] = sound.seal()
    sound.arrays[0] = ("fanin", "I32", [0, 2**60], b"")
    lies["empty"] = sound.seal()
    lies["offsets"] = sound.seal(offsets=lambda place: [place[0], 2**60])
    for name, data in lies.items():
        (folder / name).write_bytes(data)
    with open(folder / "sparse", "wb") as file:  # 16 GiB that take no room on the disk
        file.truncate(2**34)
    program = CONFINED.replace("{plant}", plant)
    words = [sys.executable, "-c", program, *(str(folder / name) for name in (*lies, "sparse"))]
    return subprocess.run(words, capture_output=True, text=True, check=False, timeout=60)


@pytest.mark.skipif(sys.platform != "linux", reason="how much memory a process has is read from /proc")
def test_a_lie_about_a_size_allocates_nothing(tmp_path: Path) -> None:
    done = confined(tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert len(done.stdout.splitlines()) == 5


@pytest.mark.skipif(sys.platform != "linux", reason="how much memory a process has is read from /proc")
def test_a_loader_that_believes_a_file_would_be_noticed(tmp_path: Path) -> None:
    done = confined(tmp_path, "load_circuit = lambda path: open(path, 'rb').read()")
    assert "MemoryError" in done.stderr
