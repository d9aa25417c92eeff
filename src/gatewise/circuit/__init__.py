"""Circuits: the netlist, what it computes, and passes over it. numpy only."""

from gatewise.circuit.equivalence import Verdict, find_difference, prove
from gatewise.circuit.ir import Circuit, parse
from gatewise.circuit.passes import count_bops, prune
from gatewise.circuit.simulate import Simulator, pack, simulate, unpack

__all__ = [
    "Circuit",
    "Simulator",
    "Verdict",
    "count_bops",
    "find_difference",
    "pack",
    "parse",
    "prove",
    "prune",
    "simulate",
    "unpack",
]
