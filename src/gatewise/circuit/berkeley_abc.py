"""ABC's combinational equivalence checker `&cec`, where an `abc` is installed (Debian: apt install berkeley-abc)."""

from __future__ import annotations

import re
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Literal

import numpy as np

from gatewise.circuit.graph import Miter
from gatewise.circuit.simulate import Bits

PROGRAMS = ("berkeley-abc", "abc")

_SCRIPT = "read_aiger miter.aig; &get; &cec -m -C 1000000000; write_cex witness"


def find() -> str | None:
    """The path of ABC, if it is there."""
    return next(filter(None, map(shutil.which, PROGRAMS)), None)


def check(program: str, miter: Miter, seconds: float) -> Literal[True] | Bits | None:
    """Whether all pairs of the miter are equal: True, the used inputs on which one differs, or None."""
    with tempfile.TemporaryDirectory(prefix="gatewise-") as folder:
        Path(folder, "miter.aig").write_bytes(emit_aiger(miter))
        try:
            done = subprocess.run(
                [program, "-q", _SCRIPT], cwd=folder, capture_output=True, text=True, timeout=seconds, check=False
            )
        except (subprocess.TimeoutExpired, OSError):
            return None
        if "Networks are equivalent" in done.stdout:
            return True
        witness = Path(folder, "witness")
        found = re.match(r"[01]*", witness.read_text()) if witness.exists() else None
    if "NOT EQUIVALENT" not in done.stdout or found is None or len(found[0]) != miter.graph.inputs:
        return None
    return np.array([bit == "1" for bit in found[0]], np.bool_)


def emit_aiger(miter: Miter) -> bytes:
    """The miter as binary AIGER: an output a pair, which is 1 where the pair differs."""
    graph = miter.graph
    first = 1 + graph.inputs
    ands: list[tuple[int, int]] = []

    def both(a: int, b: int) -> int:
        ands.append((max(a, b), min(a, b)))
        return 2 * (graph.inputs + len(ands))

    def differ(a: int, b: int) -> int:
        return both(both(a, b ^ 1) ^ 1, both(a ^ 1, b) ^ 1) ^ 1

    literal = list(range(0, 2 * first, 2))
    for node in range(first, len(graph)):
        a, b = (literal[x >> 1] ^ x & 1 for x in (graph.left[node], graph.right[node]))
        literal.append(differ(a, b) if graph.is_xor[node] else both(a, b))
    outputs = [differ(literal[a >> 1] ^ a & 1, literal[b >> 1] ^ b & 1) for a, b in miter.pairs]
    header = f"aig {graph.inputs + len(ands)} {graph.inputs} 0 {len(outputs)} {len(ands)}"
    data = bytearray("\n".join([header, *map(str, outputs), ""]).encode())
    for node, (high, low) in enumerate(ands, first):
        for delta in (2 * node - high, high - low):
            while delta > 127:
                data.append(delta & 127 | 128)
                delta >>= 7
            data.append(delta)
    return bytes(data)
