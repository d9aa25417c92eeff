"""Damaged circuit and model files, made at random; for more of them than the tests take:

python tests/fuzz_files.py --files 1000000 --seed 7
"""

from __future__ import annotations

import argparse
import json
import os
import random
import tempfile
import tracemalloc
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from circuits import random_circuit

from gatewise.circuit import Circuit, load_circuit, save_circuit
from gatewise.encode import Encoder, TableEncoder, Thermometer
from gatewise.errors import FileError
from gatewise.files import _checksum
from gatewise.model import BooleanModel, Head
from gatewise.model import load as load_model

Load = Callable[[Path], object]

TYPES = {
    "BOOL": "?", "U8": "u1", "I8": "i1", "U16": "u2", "I16": "i2", "F16": "f2", "U32": "u4", "I32": "i4", "F32": "f4",
    "U64": "u8", "I64": "i8", "F64": "f8",
}  # fmt: skip
STRANGE_TYPES = ("BF16", "F8_E4M3", "F4", "C64", "u8", "", "object", None, 3, ["U8"])
NUMBERS = (0, 1, -1, 2, 7, 64, 2**16, 2**31 - 3, 2**31 - 2, 2**31, 2**32, 2**53 + 1, 10**18, 2**63, 2**64, 10**400)
OTHERS = (
    True, False, None, 0.0, 1.0, -0.5, 1e300, float("nan"), float("inf"), "", "1", "\ud800", "é\U0001f600", "x" * 5000,
    [], {}, [[]], [0, 10**18], [10**18, 0], [2**32, 2**32], [-1, -1], [1.5], [True, True], {"": {}}, [2] * 500,
    json.loads("[" * 60 + "]" * 60), json.loads("[" * 600 + "]" * 600),
)  # fmt: skip


@dataclass
class Draft:
    """A file in parts: the JSON header and, for each array, its name, type, shape and bytes."""

    header: Any
    arrays: list[tuple[str, Any, Any, bytes]]

    @staticmethod
    def of(data: bytes) -> Draft:
        length = int.from_bytes(data[:8], "little")
        entries = json.loads(data[8 : 8 + length])
        header = json.loads(entries.pop("__metadata__")["gatewise"])["header"]
        body = data[8 + length :]
        arrays = [(n, e["dtype"], e["shape"], body[slice(*e["data_offsets"])]) for n, e in entries.items()]
        return Draft(header, sorted(arrays, key=lambda array: array[0]))

    def seal(self, text: str | None = None, offsets: Callable[[list[int]], list[Any]] = list) -> bytes:
        """The bytes of the file, its checksum made to fit as far as these parts have one."""
        text = json.dumps(self.header) if text is None else text
        entries, begin = [], 0
        for name, kind, shape, data in self.arrays:
            place = offsets([begin, begin + len(data)])
            begin += len(data)
            entry = json.dumps({"dtype": kind, "shape": shape, "data_offsets": place})
            entries.append(f"{json.dumps(name)}:{entry}")
        sealed = f'{{"sha256": "{self._digest(text)}", "header": {text}}}'
        head = "{" + ",".join([f'"__metadata__":{{"gatewise":{json.dumps(sealed)}}}', *entries]) + "}"
        head += " " * (-len(head) % 8)
        return len(head).to_bytes(8, "little") + head.encode() + b"".join(data for *_, data in self.arrays)

    def _digest(self, text: str) -> str:
        try:
            arrays = {n: np.frombuffer(data, TYPES[kind]).reshape(shape) for n, kind, shape, data in self.arrays}
            return _checksum(json.dumps(json.loads(text)), arrays)
        except (KeyError, TypeError, ValueError, RecursionError):
            return "0" * 64


def places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Each container in a JSON value, and a key into it."""
    for key in list(value) if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ():
        yield value, key
        yield from places(value[key])


def change_bytes(rng: random.Random, data: bytes) -> bytes:
    """Bytes flipped, set, cut off, added, moved, or a length that is a lie."""
    changed, size = bytearray(data), len(data)
    match rng.randrange(8):
        case 0:
            for _ in range(rng.randint(1, 4)):
                changed[rng.randrange(size)] ^= 1 << rng.randrange(8)
        case 1:
            begin = rng.randrange(size)
            changed[begin : begin + rng.randint(1, 16)] = rng.randbytes(rng.randint(0, 16))
        case 2:
            del changed[rng.randrange(size) :]
        case 3:
            changed += rng.choice([b"\0", b"\0" * 4096, rng.randbytes(rng.randint(1, 64)), data])
        case 4:
            begin, end = sorted(rng.choices(range(size), k=2))
            changed[begin:begin] = data[begin:end]
        case 5:
            length = rng.choice([0, 1, 7, size, 2**31, 2**60, 2**63, 2**64 - 1, rng.randrange(size)])
            changed[:8] = length.to_bytes(8, "little")
        case 6:
            length = int.from_bytes(data[:8], "little") + rng.choice([-8, -1, 1, 8])
            changed[:8] = (length % 2**64).to_bytes(8, "little")
        case 7:
            begin = rng.randrange(8, size)
            changed[begin] = rng.choice(b'0123456789-.eE"[]{},:\\ntf')
    return bytes(changed)


def strange(rng: random.Random) -> Any:
    """A JSON value that hardly belongs where it is put."""
    return rng.choice(NUMBERS if rng.random() < 0.5 else OTHERS)


def change_header(rng: random.Random, draft: Draft) -> bytes:
    """A value exchanged, removed, added, or there twice, in the header of an otherwise sound file."""
    container, key = rng.choice(list(places(draft.header)))
    match rng.randrange(6):
        case 0:
            del container[key]
        case 1 if isinstance(container, dict):
            container[rng.choice(["", "extra", "__class__", "inputs"])] = strange(rng)
        case 2:
            text = json.dumps(draft.header)
            return draft.seal(text[:1] + text[1:-1] + "," + text[1:] if text[:1] == "{" and len(text) > 2 else text)
        case 3:
            levels = rng.choice([10, 900, 20_000])
            return draft.seal(rng.choice(["[" * levels + "]" * levels, '{"":' * levels + "0" + "}" * levels]))
        case 4:
            text = json.dumps(draft.header)
            return draft.seal(text.replace(rng.choice("0123456789"), rng.choice(["9" * 5000, "1e999", "NaN", "-0"])))
        case _:
            container[key] = strange(rng)
    return draft.seal()


def change_arrays(rng: random.Random, draft: Draft) -> bytes:
    """An array of another type, shape, place, name or content, or one too few or too many."""
    which = rng.randrange(len(draft.arrays))
    name, kind, shape, data = draft.arrays[which]
    match rng.randrange(9):
        case 0:
            kind = rng.choice([*TYPES, *STRANGE_TYPES])
        case 1:
            kind = rng.choice(list(TYPES))
            shape = [len(data) // np.dtype(TYPES[kind]).itemsize]
        case 2:
            shape = rng.choice([[*shape, 1], [1, *shape], shape[:-1], shape[::-1], [0, *shape], [*shape, 0]])
        case 3:
            shape = [strange(rng) if rng.random() < 0.7 else size for size in shape]
        case 4:
            shape, data = rng.choice([[0], [0, 2], [0, 10**18], [10**18, 0], [2**62, 0, 4], [0, 0, 0]]), b""
        case 5:
            step = np.dtype(TYPES[kind]).itemsize
            numbers = np.frombuffer(data, f"u{step}").copy()
            if numbers.size:
                extreme = rng.choice([0, 1, 2**7, 2**15, 2**31 - 1, 2**31, 2**63, 2**64 - 1]) % 2 ** (8 * step)
                numbers[rng.randrange(numbers.size)] = extreme
            data = numbers.tobytes()
        case 6:
            name = rng.choice(["", "table", "circuit.table", "encoder.thresholds", "__metadata__", "é", name + ".x"])
        case 7:
            del draft.arrays[which]
            return draft.seal()
        case 8:
            draft.arrays.insert(which, (rng.choice([name, "extra", "circuit.extra"]), kind, shape, data))
            return draft.seal()
    draft.arrays[which] = (name, kind, shape, data)
    return draft.seal()


def change_offsets(rng: random.Random, draft: Draft) -> bytes:
    """Places of arrays that overlap, leave holes, run backwards or lie outside."""

    def lie(place: list[int]) -> list[Any]:
        begin, end = place
        other = [0, end], [begin, end + 8], [begin + 1, end + 1], [end, begin], [begin], [begin, end, end], [-8, end]
        return rng.choice([place, place, *other, [begin, strange(rng)], [2**63, 2**63]])

    return draft.seal(offsets=lie)


def damaged_files(seeds: list[bytes], rng: random.Random) -> Iterator[bytes]:
    """Without end: each of these files, changed in one to three ways."""
    drafts = [(json.dumps(draft.header), draft.arrays) for draft in map(Draft.of, seeds)]
    while True:
        which = rng.randrange(len(seeds))
        text, arrays = drafts[which]
        draft = Draft(json.loads(text), list(arrays))
        way = rng.choice([change_bytes, change_header, change_header, change_arrays, change_arrays, change_offsets])
        data = seeds[which] if way is change_bytes else way(rng, draft)
        for _ in range(rng.randint(way is change_bytes, 1 + (rng.random() < 0.2))):
            data = change_bytes(rng, data) if rng.random() < 0.3 or way is change_bytes else data
        yield data


def circuits_to_damage() -> list[Circuit]:
    rng = np.random.default_rng(0)
    return [random_circuit(rng, 5, 30, k, 4) for k in range(1, 7)] + [Circuit(0, [], np.zeros((0, 2)), [])]


def models_to_damage() -> list[BooleanModel]:
    rng = np.random.default_rng(1)
    table = TableEncoder.mixed(["age", "member", "sum"], [None, (), None], 3)
    encoders: list[Encoder] = [
        Thermometer.equal(3, 0, 255, (2, 3)),
        Thermometer(rng.random((2, 6)), (6,)),
        table.fit([[20, "yes", 0.5], [30, "no", 1.5], [40, "yes", 2.5], [50, "no", 3]]),
    ]
    names = ("one", "two", "three")
    models = []
    for k, encoder in enumerate(encoders, 2):
        circuit = random_circuit(rng, int(np.prod(encoder.bit_shape)), 40, k, outputs=9)
        models.append(BooleanModel(encoder, circuit, Head(3, 2.5), names, {"dataset": "digits", "hard": [0.5, None]}))
    return models


def files_to_damage(folder: Path) -> dict[Load, list[bytes]]:
    """Sound files, by the function that loads them."""
    found: dict[Load, list[bytes]] = {load_circuit: [], load_model: []}
    path = folder / "sound"
    for circuit in circuits_to_damage():
        save_circuit(circuit, path)
        found[load_circuit].append(path.read_bytes())
    for model in models_to_damage():
        model.save(path)
        found[load_model].append(path.read_bytes())
    return found


FACTOR, CONSTANT = 16, 8 << 20
"""Memory a load may take at most: so often the file's size, and what 65,536 lists and tables take."""


def refusal(load: Load, path: Path, data: bytes, *, factor: float = FACTOR, constant: int = CONSTANT) -> str:
    """Why a file is refused, "" if it isn't. It may be in no other way, and takes no more memory than it should."""
    path.write_bytes(data)
    tracemalloc.start()
    try:
        found = load(path)
    except FileError as error:
        found, message = None, str(error)
        assert message.startswith(str(path)), message
        assert len(message) < 1000, message
    finally:
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert peak <= factor * len(data) + constant, f"{peak:,} bytes of memory for a file of {len(data):,}"
    if found is None:
        return message
    assert_sound(found)
    return ""


def assert_sound(found: object) -> None:
    """It is a circuit or a model, and its circuit is one still when it is checked again."""
    circuit = found.circuit if isinstance(found, BooleanModel) else found
    assert isinstance(circuit, Circuit)
    assert Circuit(circuit.inputs, circuit.table, circuit.fanin, circuit.outputs) == circuit
    if isinstance(found, BooleanModel) and circuit.inputs < 1000 and found.head.classes < 1000:
        assert found.predict_bits(np.zeros((1, circuit.inputs), bool)).shape == (1,)


def fuzz(files: int, seed: int) -> list[str]:
    """Load so many damaged files, half of them circuits, from memory if that has a folder; → why each was refused."""
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory(dir=memory) as folder:
        return _fuzz(files, random.Random(seed), Path(folder))


def _fuzz(files: int, rng: random.Random, folder: Path) -> list[str]:
    refusals = []
    sources = [(load, damaged_files(data, rng)) for load, data in files_to_damage(folder).items()]
    path = folder / "damaged"
    for number in range(files):
        load, source = sources[number % 2]
        data = next(source)
        try:
            refusals.append(refusal(load, path, data, constant=400_000).removeprefix(str(path)))
        except BaseException as error:
            error.add_note(f"file {number}, which begins {data[:2000]!r}")
            raise
    return refusals


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--files", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    found = fuzz(options.files, options.seed)
    print(f"{len(found):,} damaged files: {found.count(''):,} loaded, the others were refused")
