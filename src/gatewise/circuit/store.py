"""Circuits as files: three arrays and a number, checked when they are read.

G gates, k inputs a gate, M outputs.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gatewise.circuit.ir import MAX_K, Circuit
from gatewise.errors import CircuitError, FileError
from gatewise.files import Arrays, brief, read_arrays, write_arrays

FORMAT, VERSION = "gatewise-circuit", 1


def save_circuit(circuit: Circuit, path: str | os.PathLike[str]) -> None:
    """Write a circuit to one file, which `load_circuit` reads; a file at `path` is replaced at once or not at all.

    >>> save_circuit(circuit, "adder.circuit")
    """
    write_arrays(path, arrays_of(circuit), {"format": FORMAT, "version": VERSION, "inputs": circuit.inputs})


def load_circuit(path: str | os.PathLike[str]) -> Circuit:
    """The circuit that `save_circuit` wrote to `path`; a FileError says what is wrong with anything else."""
    arrays, header = read_arrays(path, FORMAT, VERSION)
    try:
        return circuit_from(header.get("inputs"), arrays)
    except CircuitError as error:
        raise FileError(f"{os.fspath(path)} holds no sound circuit: {brief(str(error))}") from error


def arrays_of(circuit: Circuit) -> Arrays:
    """What a file keeps: table [G], as narrow as 2**k rows allow, fanin [G, k] and outputs [M]."""
    table = circuit.table.astype(_table_type(circuit.k))
    return {"table": table, "fanin": circuit.fanin, "outputs": circuit.outputs}


def circuit_from(inputs: Any, arrays: Mapping[str, NDArray[Any]]) -> Circuit:
    """The circuit of these `arrays_of` it, or a CircuitError."""
    if type(inputs) is not int:
        raise CircuitError(f"inputs is {inputs!r}: expected a whole number")
    if set(arrays) != {"table", "fanin", "outputs"}:
        raise CircuitError(
            f"there are the arrays {', '.join(sorted(arrays)) or 'none'}: expected table, fanin, outputs"
        )
    table, fanin, outputs = (arrays[name] for name in ("table", "fanin", "outputs"))
    if fanin.ndim != 2 or not 1 <= fanin.shape[1] <= MAX_K:
        raise CircuitError(f"fanin has shape {fanin.shape}: expected a row of 1 to {MAX_K} nets for each gate")
    for name, array, expected in (
        ("table", table, _table_type(fanin.shape[1])),
        ("fanin", fanin, np.dtype(np.int32)),
        ("outputs", outputs, np.dtype(np.int32)),
    ):
        if array.dtype != expected:
            raise CircuitError(f"{name} has dtype {array.dtype}: expected {expected}")
    return Circuit(inputs, table, fanin, outputs)


def _table_type(k: int) -> np.dtype[Any]:
    """The smallest unsigned type of 2**k bits or more."""
    return np.dtype(f"u{max(1, 2**k // 8)}")
