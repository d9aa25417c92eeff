"""The netlist: what a circuit is, how it is checked, and how it reads as text.

G gates, k inputs a gate, M outputs.
"""

from __future__ import annotations

import operator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from gatewise import gates
from gatewise.errors import CircuitError

MAX_K = 6
"""A table of six inputs has 64 rows: one uint64."""

_MAX_NETS = 2**31 - 1


@dataclass(frozen=True, init=False, eq=False, repr=False)
class Circuit:
    """An immutable Boolean circuit.

    A net is an int: 0 and 1 are the constants, then come `inputs` inputs, then the gates in topological
    order; so "each fanin is smaller than its gate's own net" is the proof that there is no cycle.
    `table[g]` is what gate g computes (see `gatewise.gates`), `fanin[g]` the nets it reads, `outputs`
    the nets the circuit shows. The arrays are copies and cannot be written to.
    """

    inputs: int
    table: NDArray[np.uint64]  # [G]
    fanin: NDArray[np.int32]  # [G, k]
    outputs: NDArray[np.int32]  # [M]

    def __init__(self, inputs: int, table: ArrayLike, fanin: ArrayLike, outputs: ArrayLike) -> None:
        fields = {
            "inputs": _input_count(inputs),
            "table": _exact("table", table, np.uint64, ndim=1),
            "fanin": _exact("fanin", fanin, np.int32, ndim=2),
            "outputs": _exact("outputs", outputs, np.int32, ndim=1),
        }
        for name, value in fields.items():
            object.__setattr__(self, name, value)
        _check_shapes(self)
        _check_tables(self)
        _check_fanins(self)
        _check_outputs(self)

    @property
    def gates(self) -> int:
        """How many gates there are."""
        return len(self.table)

    @property
    def k(self) -> int:
        """How many nets a gate reads."""
        return int(self.fanin.shape[1])

    @property
    def first_gate(self) -> int:
        """The net of gate 0: two constants and the inputs come before it."""
        return 2 + self.inputs

    @property
    def nets(self) -> int:
        """How many nets there are: constants, inputs and gates."""
        return self.first_gate + self.gates

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Circuit):
            return NotImplemented
        pairs = ((self.table, other.table), (self.fanin, other.fanin), (self.outputs, other.outputs))
        return self.inputs == other.inputs and all(np.array_equal(mine, theirs) for mine, theirs in pairs)

    def __hash__(self) -> int:
        return hash((self.inputs, self.k, self.table.tobytes(), self.fanin.tobytes(), self.outputs.tobytes()))

    def __repr__(self) -> str:
        return f"<Circuit: {self.inputs} inputs, {self.gates} gates of {self.k} inputs, {len(self.outputs)} outputs>"

    def __str__(self) -> str:
        """One line a gate, `net = gate fanin…`, in a form that `parse` reads back."""
        lines = [f"circuit inputs={self.inputs} k={self.k}"]
        rows = zip(self.table.tolist(), self.fanin.tolist(), strict=True)
        for net, (table, fanin) in enumerate(rows, self.first_gate):
            lines.append(" ".join([f"{net} =", gate_name(table, self.k), *map(str, fanin)]))
        lines.append(" ".join(["outputs", *map(str, self.outputs.tolist())]))
        return "\n".join(lines) + "\n"


def parse(text: str) -> Circuit:
    """The circuit that `str(circuit)` printed. Blank lines and what follows a # are ignored."""
    lines = [(number, line.split("#")[0].split()) for number, line in enumerate(text.split("\n"), 1)]
    lines = [(number, words) for number, words in lines if words]
    if len(lines) < 2:
        raise CircuitError("the text is no circuit: expected `circuit inputs=… k=…` first and `outputs …` last")
    inputs, k = _parse_header(*lines[0])
    table: list[int] = []
    fanin: list[list[int]] = []
    for net, (number, words) in enumerate(lines[1:-1], 2 + inputs):
        if net == _MAX_NETS:
            raise CircuitError(f"line {number} is one gate too many: expected at most {_MAX_NETS} nets")
        if words[:2] != [str(net), "="] or len(words) != 3 + k:
            raise CircuitError(f"line {number} is {_quote(words)}: expected `{net} = gate` and {k} nets")
        table.append(_parse_table(number, words[2], k))
        fanin.append([_parse_net(number, word, net) for word in words[3:]])
    number, words = lines[-1]
    if words[0] != "outputs":
        raise CircuitError(f"line {number} is {_quote(words)}: expected the last line to be `outputs` and its nets")
    outputs = [_parse_net(number, word, 2 + inputs + len(table)) for word in words[1:]]
    rows = np.array(fanin, np.int64).reshape(-1, k)
    return Circuit(inputs, np.array(table, np.uint64), rows, np.array(outputs, np.int64))


def _parse_header(number: int, words: list[str]) -> tuple[int, int]:
    fields = dict(word.partition("=")[::2] for word in words[1:])
    if words[0] != "circuit" or len(words) != 3 or fields.keys() != {"inputs", "k"}:
        raise CircuitError(f"line {number} is {_quote(words)}: expected `circuit inputs=… k=…`")
    inputs, k = (_parse_number(fields[name]) for name in ("inputs", "k"))
    if not 0 <= inputs <= _MAX_NETS - 2:
        raise CircuitError(f"line {number} is {_quote(words)}: expected 0 to {_MAX_NETS - 2} inputs")
    if not 1 <= k <= MAX_K:
        raise CircuitError(f"line {number} is {_quote(words)}: a gate reads 1 to {MAX_K} nets")
    return inputs, k


def _parse_table(number: int, word: str, k: int) -> int:
    if k == 2 and word in gates.NAMES:
        return gates.NAMES.index(word)
    digits = word.removeprefix("0x")
    if digits == word or not digits or set(digits) - set("0123456789abcdefABCDEF") or int(digits, 16) > gates.full(k):
        names = f"one of {', '.join(gates.NAMES)}" if k == 2 else f"a table 0x0 to {gates.full(k):#x}"
        raise CircuitError(f"line {number} has the gate {_quote([word])}: expected {names}")
    return int(digits, 16)


def _parse_net(number: int, word: str, end: int) -> int:
    net = _parse_number(word)
    if not 0 <= net < end:
        raise CircuitError(f"line {number} has {_quote([word])} where a net from 0 to {end - 1} was expected")
    return net


def _parse_number(word: str) -> int:
    """A number of decimal digits, as many as a net has at most; -1 for anything else."""
    return int(word) if word.isascii() and word.isdecimal() and len(word) <= len(str(_MAX_NETS)) else -1


def _quote(words: list[str]) -> str:
    text = " ".join(words)
    return repr(text if len(text) <= 80 else f"{text[:80]}…")


def gate_name(table: int, k: int) -> str:
    """What a circuit's text calls a gate: its name, or for other than two inputs its table in hexadecimal."""
    return gates.NAMES[table] if k == 2 else f"{table:#0{2 + max(1, 2**k // 4)}x}"


def _input_count(inputs: Any) -> int:
    try:
        count = operator.index(inputs)
    except TypeError:
        raise CircuitError(f"inputs is {inputs!r}: expected a whole number") from None
    if not 0 <= count <= _MAX_NETS - 2:
        raise CircuitError(f"inputs is {count}: expected 0 to {_MAX_NETS - 2}")
    return count


def _exact(name: str, value: ArrayLike, dtype: type[np.integer[Any]], ndim: int) -> NDArray[Any]:
    """A read-only copy of `value` as `dtype`, or an error if that would change a single number."""
    try:
        array = np.asarray(value)
    except ValueError as error:
        raise CircuitError(f"{name} is no array ({error}): expected {ndim} dimensions of equal rows") from None
    if array.dtype.kind == "f" and not isinstance(value, np.ndarray):  # numpy makes [1, 2**64 - 1] floats
        objects = np.asarray(value, object)
        array = objects if all(type(v) is int for v in objects.flat) else array
    if array.ndim != ndim:
        raise CircuitError(f"{name} has shape {array.shape}: expected {ndim} dimension{'s' * (ndim > 1)}")
    if array.dtype.kind not in "biuf" and not (array.dtype.kind == "O" and all(type(v) is int for v in array.flat)):
        raise CircuitError(f"{name} has dtype {array.dtype}: expected whole numbers")
    if array.dtype != dtype:
        low, high = int(np.iinfo(dtype).min), int(np.iinfo(dtype).max)
        if array.dtype.kind == "f":  # float(2**64 - 1) is 2**64, so the bound above is compared as "less than"
            lost = ~((array >= float(low)) & (array < float(high + 1)) & (array == np.floor(array)))
        else:
            lost = (array < low) | (array > high)
        if lost.any():
            place = np.argwhere(lost)[0].tolist()
            came, fitting = array[tuple(place)], dtype.__name__
            raise CircuitError(f"{name}{place} is {came}: expected a whole number that fits {fitting}")
    copy = np.array(array, dtype=dtype, order="C", copy=True)
    copy.flags.writeable = False
    return copy


def _check_shapes(circuit: Circuit) -> None:
    rows, k = circuit.fanin.shape
    if not 1 <= k <= MAX_K:
        raise CircuitError(f"fanin has shape {circuit.fanin.shape}: a gate reads 1 to {MAX_K} nets")
    if rows != circuit.gates:
        raise CircuitError(f"table has {circuit.gates} gates and fanin has {rows}: expected one row of fanin a gate")
    if circuit.nets > _MAX_NETS:
        raise CircuitError(f"the circuit has {circuit.nets} nets: expected at most {_MAX_NETS}")


def _check_tables(circuit: Circuit) -> None:
    wrong = circuit.table > np.uint64(gates.full(circuit.k))
    if wrong.any():
        gate, k = int(np.argmax(wrong)), circuit.k
        raise CircuitError(
            f"gate {gate} has table {int(circuit.table[gate]):#x}: "
            f"expected at most {gates.full(k):#x}, since {k} inputs have {2**k} rows"
        )


def _check_fanins(circuit: Circuit) -> None:
    own = np.arange(circuit.first_gate, circuit.nets, dtype=np.int32)
    wrong = (circuit.fanin < 0) | (circuit.fanin >= own[:, None])
    if wrong.any():
        gate, place = divmod(int(np.argmax(wrong)), circuit.k)
        raise CircuitError(
            f"gate {gate} (net {own[gate]}) reads net {circuit.fanin[gate, place]} as its input {place}: "
            f"expected 0 to {own[gate] - 1}, nets before its own"
        )


def _check_outputs(circuit: Circuit) -> None:
    wrong = (circuit.outputs < 0) | (circuit.outputs >= circuit.nets)
    if wrong.any():
        place = int(np.argmax(wrong))
        raise CircuitError(f"output {place} is net {circuit.outputs[place]}: expected 0 to {circuit.nets - 1}")
