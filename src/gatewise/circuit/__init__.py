"""Circuits: the netlist, what it computes, and passes over it. numpy only."""

from gatewise.circuit.ir import Circuit, parse
from gatewise.circuit.passes import count_bops, prune
from gatewise.circuit.program import Program, Source
from gatewise.circuit.simulate import Simulator, pack, simulate, unpack

__all__ = ["Circuit", "Program", "Simulator", "Source", "count_bops", "pack", "parse", "prune", "simulate", "unpack"]
