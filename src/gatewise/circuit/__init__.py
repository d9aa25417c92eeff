"""Circuits: the netlist, what it computes, and passes over it. numpy only."""

from gatewise.circuit.ir import Circuit, parse
from gatewise.circuit.passes import count_bops, prune
from gatewise.circuit.simulate import Simulator, pack, simulate, unpack
from gatewise.circuit.store import load_circuit, save_circuit

__all__ = ["Circuit", "Simulator", "count_bops", "load_circuit", "pack", "parse", "prune", "save_circuit", "simulate"]
__all__ += ["unpack"]
