"""Circuits as drawings."""

from __future__ import annotations

import re
import shutil
import subprocess

import numpy as np
import pytest
from circuits import circuits, random_circuit
from hypothesis import given

from gatewise.circuit import Circuit, parse, to_dot
from gatewise.circuit.dot import MAX_DRAWN
from gatewise.errors import CircuitError

DRAWN = """\
digraph circuit {
  rankdir=LR;
  n1 [label="1", shape=plaintext];
  n2 [label="input 0", shape=box];
  n4 [label="input 2", shape=box];
  n5 [label="a&~b"];
  n6 [label="xnor"];
  n2 -> n5 [label="a"];
  n4 -> n5 [label="b"];
  n5 -> n6 [label="a"];
  n1 -> n6 [label="b"];
  out0 [label="output 0", shape=cds];
  n6 -> out0;
  out1 [label="output 1", shape=cds];
  n2 -> out1;
}
"""


def test_a_circuit_is_drawn_with_its_constants_inputs_gates_and_outputs() -> None:
    assert to_dot(parse("circuit inputs=3 k=2\n5 = a&~b 2 4\n6 = xnor 5 1\noutputs 6 2\n")) == DRAWN


def test_gates_of_other_than_two_inputs_are_named_by_their_table() -> None:
    text = to_dot(parse("circuit inputs=1 k=3\n3 = 0x1b 2 0 2\noutputs 3\n"))
    assert '  n3 [label="0x1b"];\n  n2 -> n3 [label="a"];\n  n0 -> n3 [label="b"];\n  n2 -> n3 [label="c"];\n' in text


@given(circuits())
def test_every_net_that_is_read_is_drawn_once_and_every_wire_too(circuit: Circuit) -> None:
    text = to_dot(circuit)
    drawn = [int(net) for net in re.findall(r"^  n(\d+) \[", text, re.MULTILINE)]
    read = {*circuit.fanin.ravel().tolist(), *circuit.outputs.tolist()}
    assert sorted(drawn) == sorted(read | set(range(circuit.first_gate, circuit.nets)))
    wires = [(int(a), int(b)) for a, b in re.findall(r"^  n(\d+) -> n(\d+) ", text, re.MULTILINE)]
    assert wires == [(s, g) for g, reads in enumerate(circuit.fanin.tolist(), circuit.first_gate) for s in reads]
    shown = re.findall(r"^  n(\d+) -> out\d+;", text, re.MULTILINE)
    assert [int(net) for net in shown] == circuit.outputs.tolist()


def test_a_circuit_too_large_to_be_looked_at_is_not_drawn() -> None:
    largest = random_circuit(np.random.default_rng(0), 9, MAX_DRAWN - 5)
    assert to_dot(largest).count("\n") > MAX_DRAWN
    message = f"has {MAX_DRAWN + 1} gates and outputs: expected {MAX_DRAWN} at most, so draw a cone of it"
    with pytest.raises(CircuitError, match=message):
        to_dot(random_circuit(np.random.default_rng(0), 9, MAX_DRAWN - 4))


@pytest.mark.skipif(shutil.which("dot") is None, reason="Graphviz (`dot`) is not installed")
def test_graphviz_draws_it() -> None:
    text = to_dot(random_circuit(np.random.default_rng(0), 5, 30))
    done = subprocess.run(["dot", "-Tsvg"], input=text, capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.count('class="node"') >= 30
