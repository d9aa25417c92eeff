"""Small circuits as a drawing, in the language of Graphviz."""

from __future__ import annotations

import numpy as np

from gatewise.circuit.ir import Circuit, gate_name
from gatewise.errors import CircuitError

MAX_DRAWN = 4000
"""Gates and outputs; of more, nobody has seen the end of the layout, and no eye finds its way."""


def to_dot(circuit: Circuit) -> str:
    """The circuit as DOT: inputs are boxes, gates ellipses with an arrow from each net they read (a is the first).

    >>> Path("adder.dot").write_text(to_dot(adder))  # dot -Tsvg adder.dot
    """
    size = circuit.gates + len(circuit.outputs)
    if size > MAX_DRAWN:
        raise CircuitError(
            f"the circuit has {size} gates and outputs: expected {MAX_DRAWN} at most, so draw a cone of it"
        )
    lines = ["digraph circuit {", "  rankdir=LR;"]
    fanin, outputs = circuit.fanin.tolist(), circuit.outputs.tolist()
    read = np.unique(np.concatenate([circuit.fanin.ravel(), circuit.outputs]))
    for net in read[read < circuit.first_gate].tolist():
        look = f'label="{net}", shape=plaintext' if net < 2 else f'label="input {net - 2}", shape=box'
        lines.append(f"  n{net} [{look}];")
    for net, table in enumerate(circuit.table.tolist(), circuit.first_gate):
        lines.append(f'  n{net} [label="{gate_name(table, circuit.k)}"];')
    for net, nets in enumerate(fanin, circuit.first_gate):
        lines += [f'  n{source} -> n{net} [label="{letter}"];' for letter, source in zip("abcdef", nets, strict=False)]
    for place, net in enumerate(outputs):
        lines += [f'  out{place} [label="output {place}", shape=cds];', f"  n{net} -> out{place};"]
    return "\n".join([*lines, "}", ""])
