"""Circuits: the netlist, what it computes, and passes over it. numpy only."""

from gatewise.circuit.compose import beside, cascade, cone, drop_unused_inputs, widen
from gatewise.circuit.dot import to_dot
from gatewise.circuit.ir import Circuit, parse
from gatewise.circuit.passes import count_bops, prune
from gatewise.circuit.program import Program, Source
from gatewise.circuit.simulate import Simulator, pack, simulate, unpack
from gatewise.circuit.statistics import Statistics, statistics
from gatewise.circuit.store import load_circuit, save_circuit

__all__ = ["Circuit", "Program", "Simulator", "Source", "Statistics", "beside", "cascade", "cone", "count_bops"]
__all__ += ["drop_unused_inputs", "load_circuit", "pack", "parse", "prune", "save_circuit", "simulate", "statistics"]
__all__ += ["to_dot", "unpack", "widen"]
