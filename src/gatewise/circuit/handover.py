"""A circuit as the C core takes it."""

from __future__ import annotations

import ctypes
from typing import Any

from gatewise.circuit.ir import Circuit


def sizes(*names: str) -> list[tuple[str, Any]]:
    """Fields of a structure that are sizes."""
    return [(name, ctypes.c_int64) for name in names]


def arrays(*names: str) -> list[tuple[str, Any]]:
    """Fields of a structure that are addresses of arrays."""
    return [(name, ctypes.c_void_p) for name in names]


class _Circuit(ctypes.Structure):
    _fields_ = [*sizes("inputs", "gates", "k", "outputs"), *arrays("table", "fanin", "output")]


def describe(circuit: Circuit) -> ctypes.Structure:
    """The sizes of a circuit and where its arrays are; the circuit has to outlive it."""
    addresses = (array.ctypes.data for array in (circuit.table, circuit.fanin, circuit.outputs))
    return _Circuit(circuit.inputs, circuit.gates, circuit.k, len(circuit.outputs), *addresses)
