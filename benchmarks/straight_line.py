"""What other compilers of Boolean networks do, to compare with: a circuit as straight-line C on 64-bit words.

One function holds all gates as local variables; a loop around it packs 64 rows of bytes into words, calls it and counts
the outputs of each class in bit-sliced counters. Compiled with `gcc -O1`, as the code generators of the field are.
"""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import tempfile
import time
from pathlib import Path

import numpy as np

from gatewise.circuit import Circuit

EXPRESSIONS = (
    "0", "{a} & {b}", "{a} & ~{b}", "{a}", "~{a} & {b}", "{b}", "{a} ^ {b}", "{a} | {b}",
    "~({a} | {b})", "~({a} ^ {b})", "~{b}", "{a} | ~{b}", "~{a}", "~{a} | {b}", "~({a} & {b})", "~(uint64_t)0",
)  # fmt: skip

DRIVER = """
void predict(const uint8_t *rows, int64_t samples, int64_t *classes) {
  static uint64_t in[INPUTS], out[OUTPUTS];
  for (int64_t first = 0; first < samples; first += 64) {
    const int64_t count = samples - first < 64 ? samples - first : 64;
    for (int64_t i = 0; i < INPUTS; i++) in[i] = 0;
    for (int64_t s = 0; s < count; s++)
      for (int64_t i = 0; i < INPUTS; i++) in[i] |= (uint64_t)rows[(first + s) * INPUTS + i] << s;
    gates(in, out);
    int64_t most[64];
    for (int64_t c = 0; c < CLASSES; c++) {
      uint64_t digit[DIGITS] = {0};
      for (int64_t i = c * SIZE; i < (c + 1) * SIZE && i < OUTPUTS; i++) {
        uint64_t carry = out[i];
        for (int d = 0; d < DIGITS; d++) {
          const uint64_t next = digit[d] & carry;
          digit[d] ^= carry;
          carry = next;
        }
      }
      for (int64_t s = 0; s < count; s++) {
        int64_t ones = 0;
        for (int d = 0; d < DIGITS; d++) ones |= (int64_t)(digit[d] >> s & 1) << d;
        if (c == 0 || ones > most[s]) most[s] = ones, classes[first + s] = c;
      }
    }
  }
}
"""


def source(circuit: Circuit, classes: int) -> str:
    """The circuit, k = 2, as a C file."""
    first = circuit.first_gate
    name = ["(uint64_t)0", "~(uint64_t)0", *(f"in[{i}]" for i in range(circuit.inputs))]
    name += [f"v{g}" for g in range(circuit.gates)]
    rows = zip(circuit.table.tolist(), circuit.fanin.tolist(), strict=True)
    lines = [
        f"const uint64_t {name[first + g]} = {EXPRESSIONS[table].format(a=name[a], b=name[b])};"
        for g, (table, (a, b)) in enumerate(rows)
    ]
    lines += [f"out[{i}] = {name[net]};" for i, net in enumerate(circuit.outputs.tolist())]
    sizes = {"INPUTS": circuit.inputs, "OUTPUTS": len(circuit.outputs), "CLASSES": classes}
    sizes["SIZE"] = -(-len(circuit.outputs) // classes)
    sizes["DIGITS"] = sizes["SIZE"].bit_length()
    defines = "".join(f"#define {key} {value}\n" for key, value in sizes.items())
    body = "\n".join(lines)
    return (
        f"#include <stdint.h>\n{defines}static void gates(const uint64_t *in, uint64_t *out) {{\n{body}\n}}\n{DRIVER}"
    )


class StraightLine:
    """A circuit compiled with gcc; `seconds` is how long that took. Raises subprocess.TimeoutExpired past `limit`."""

    def __init__(self, circuit: Circuit, classes: int, limit: float) -> None:
        with tempfile.TemporaryDirectory() as folder:
            file, library = Path(folder, "circuit.c"), Path(folder, "circuit.so")
            file.write_text(source(circuit, classes))
            begin = time.perf_counter()
            command = ["gcc", "-O1", "-march=native", "-shared", "-fPIC", str(file), "-o", str(library)]
            with subprocess.Popen(command, start_new_session=True) as gcc:
                try:
                    status = gcc.wait(limit)
                except subprocess.TimeoutExpired:
                    os.killpg(gcc.pid, signal.SIGKILL)  # the compiler proper is a child of the driver
                    raise
            if status:
                raise subprocess.CalledProcessError(status, command)
            self.seconds = time.perf_counter() - begin
            self._library = ctypes.CDLL(str(library))

    def classes(self, rows: np.ndarray) -> np.ndarray:
        """The classes [B] of rows of bits [B, inputs], a byte each."""
        rows = np.ascontiguousarray(rows, np.uint8)
        found = np.empty(len(rows), np.int64)
        arguments = (ctypes.c_void_p(rows.ctypes.data), ctypes.c_int64(len(rows)), ctypes.c_void_p(found.ctypes.data))
        self._library.predict(*arguments)
        return found
