"""Circuits: the netlist, what it computes, and passes over it. numpy only."""

from gatewise.circuit.collapse import merge_two_levels
from gatewise.circuit.compose import beside, cascade, cone, drop_unused_inputs, widen
from gatewise.circuit.cuts import expand_luts, map_luts, rewrite
from gatewise.circuit.dontcares import merge_on_data
from gatewise.circuit.dot import to_dot
from gatewise.circuit.equivalence import Verdict, find_difference, prove
from gatewise.circuit.ir import Circuit, parse
from gatewise.circuit.passes import count_bops, drop_unreachable, prune
from gatewise.circuit.pipeline import PIPELINE, Optimized, optimize
from gatewise.circuit.program import Program, Source
from gatewise.circuit.simplify import absorb_inverters, fold_constants, share_equal_gates
from gatewise.circuit.simulate import Simulator, pack, simulate, unpack
from gatewise.circuit.statistics import Statistics, statistics
from gatewise.circuit.store import load_circuit, save_circuit

__all__ = [
    "PIPELINE",
    "Circuit",
    "Optimized",
    "Program",
    "Simulator",
    "Source",
    "Statistics",
    "Verdict",
    "absorb_inverters",
    "beside",
    "cascade",
    "cone",
    "count_bops",
    "drop_unreachable",
    "drop_unused_inputs",
    "expand_luts",
    "find_difference",
    "fold_constants",
    "load_circuit",
    "map_luts",
    "merge_on_data",
    "merge_two_levels",
    "optimize",
    "pack",
    "parse",
    "prove",
    "prune",
    "rewrite",
    "save_circuit",
    "share_equal_gates",
    "simulate",
    "statistics",
    "to_dot",
    "unpack",
    "widen",
]
