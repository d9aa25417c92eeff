"""Circuits: the netlist, what it computes, and passes over it. numpy only."""

from gatewise.circuit.collapse import merge_two_levels
from gatewise.circuit.dontcares import merge_on_data
from gatewise.circuit.ir import Circuit, parse
from gatewise.circuit.passes import count_bops, drop_unreachable, prune
from gatewise.circuit.pipeline import PIPELINE, Optimized, optimize
from gatewise.circuit.simplify import absorb_inverters, fold_constants, share_equal_gates
from gatewise.circuit.simulate import Simulator, pack, simulate, unpack

__all__ = ["PIPELINE", "Circuit", "Optimized", "Simulator", "absorb_inverters", "count_bops", "drop_unreachable"]
__all__ += ["fold_constants", "merge_on_data", "merge_two_levels", "optimize", "pack", "parse", "prune"]
__all__ += ["share_equal_gates", "simulate", "unpack"]
