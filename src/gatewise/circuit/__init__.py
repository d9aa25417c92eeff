"""Circuits: the netlist, what it computes, and passes over it. numpy only."""

from gatewise.circuit.cuts import expand_luts, map_luts, rewrite
from gatewise.circuit.ir import Circuit, parse
from gatewise.circuit.passes import count_bops, prune
from gatewise.circuit.simulate import Simulator, pack, simulate, unpack

__all__ = [
    "Circuit",
    "Simulator",
    "count_bops",
    "expand_luts",
    "map_luts",
    "pack",
    "parse",
    "prune",
    "rewrite",
    "simulate",
    "unpack",
]
