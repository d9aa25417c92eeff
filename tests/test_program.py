"""Programs of the C core compute what the simulator computes, at every vector width, for every kind of row."""

from __future__ import annotations

import time
from collections.abc import Iterator

import numpy as np
import pytest
from circuits import assert_equal_bits, circuits, every_row, random_circuit
from hypothesis import given, settings
from hypothesis import strategies as st

from gatewise import core
from gatewise.circuit import Circuit, Program, Source, parse, simulate
from gatewise.circuit.program import NotFiniteError
from gatewise.engine import count

pytestmark = pytest.mark.skipif(not core.available(), reason="the C core is not built")

UP_TO_THREE = circuits(st.integers(1, 3), max_inputs=9, max_gates=60)
ODD_BATCHES = (1, 2, 63, 64, 65, 129, 511, 512, 513, 1_100)


@pytest.fixture(params=core.LEVELS, autouse=True)
def level(request: pytest.FixtureRequest) -> Iterator[str]:
    if request.param not in core.levels():
        pytest.skip(f"this processor has no {request.param}")
    core.set_level(request.param)
    yield request.param
    core.set_level(None)


def bits(rng: np.random.Generator, samples: int, inputs: int) -> np.ndarray:
    return rng.random((samples, inputs)) < 0.5


def assert_computes(program: Program, circuit: Circuit, x: np.ndarray) -> None:
    """Outputs, counts and classes of the program are those of the simulator, from bytes and from packed rows."""
    expected = simulate(circuit, x)
    counts = count(expected, program.classes)
    packed = np.packbits(x, axis=1, bitorder="little")
    for source, rows in ((Source.bits(circuit.inputs), x.view(np.uint8)), (Source.packed(circuit.inputs), packed)):
        assert_equal_bits(program.run(source, rows, "bits"), expected)
        assert np.array_equal(program.run(source, rows, "counts"), counts)
        assert np.array_equal(program.run(source, rows, "classes"), counts.argmax(axis=1))


@settings(max_examples=150, deadline=None)
@given(circuit=UP_TO_THREE, classes=st.integers(1, 12))
def test_a_program_computes_its_circuit_on_every_row(circuit: Circuit, classes: int) -> None:
    assert_computes(Program(circuit, classes), circuit, every_row(circuit.inputs))


@pytest.mark.parametrize("samples", ODD_BATCHES)
@pytest.mark.parametrize("k", [2, 3])
def test_any_number_of_samples_is_run(samples: int, k: int) -> None:
    rng = np.random.default_rng(samples)
    circuit = random_circuit(rng, 150, 2_000, k, outputs=203)
    assert_computes(Program(circuit, 10), circuit, bits(rng, samples, 150))


def test_every_table_of_three_inputs_is_computed() -> None:
    tables = np.arange(256, dtype=np.uint64)
    for fanin in ([2, 3, 4], [4, 2, 3], [3, 3, 2], [2, 2, 2], [0, 3, 1], [4, 1, 2]):
        circuit = Circuit(3, tables, np.tile(fanin, (256, 1)), 5 + np.arange(256))
        assert_computes(Program(circuit, 256), circuit, every_row(3))


def test_a_larger_circuit_is_run_on_65536_samples() -> None:
    rng = np.random.default_rng(3)
    circuit = random_circuit(rng, 300, 20_000, outputs=1_000, trivial=0.2)
    assert_computes(Program(circuit, 10), circuit, bits(rng, 65_536, 300))


def test_a_wrong_table_would_be_noticed() -> None:
    x = every_row(2)
    circuit, other = (Circuit(2, [table], [[2, 3]], [4]) for table in (0b0111, 0b0110))
    with pytest.raises(AssertionError):
        assert_computes(Program(other), circuit, x)


def test_wires_constants_and_gates_that_nobody_needs_cost_nothing() -> None:
    circuit = parse(
        "circuit inputs=2 k=2\n"
        "4 = ~a 2 0\n5 = ~b 2 4\n6 = and 5 1\n7 = 1 2 3\n8 = and 7 3\n9 = xor 6 8\n10 = or 9 2\n11 = nand 3 3\n"
        "outputs 9 5 7 0 11 3\n"
    )
    program = Program(circuit, 2)
    assert program.gates == 1
    assert_computes(program, circuit, every_row(2))


def test_slots_are_used_again() -> None:
    chain = Circuit(2, np.full(1_000, 6), np.stack([np.arange(2, 1_002), np.full(1_000, 2)], 1), [1_003])
    assert Program(chain).slots <= 5


def test_a_circuit_without_gates_inputs_outputs_or_samples_is_run() -> None:
    empty = np.zeros((0, 2), np.int32)
    for circuit in (Circuit(0, [], empty, []), Circuit(0, [], empty, [1, 0, 1]), Circuit(3, [], empty, [4, 4, 0])):
        for samples in (0, 3):
            assert_computes(Program(circuit, 2), circuit, bits(np.random.default_rng(0), samples, circuit.inputs))


def test_rows_may_lie_in_memory_in_any_way() -> None:
    rng = np.random.default_rng(5)
    circuit = random_circuit(rng, 70, 300, outputs=40)
    program, source = Program(circuit, 4), Source.bits(70)
    wide = bits(rng, 400, 200)
    views = (wide[:, 30:100], wide[::2, :70], wide[::-1, :70], wide[:, ::-1][:, :70], np.asfortranarray(wide)[:, :70])
    for view in (*views, np.broadcast_to(wide[:1, :70], (300, 70))):
        assert_equal_bits(program.run(source, view.view(np.uint8), "bits"), simulate(circuit, view))


@pytest.mark.parametrize("dtype", ["uint8", "float32", "float64"])
@pytest.mark.parametrize("features", [1, 63, 64, 65, 1_100])
def test_thresholds_are_compared_exactly(dtype: str, features: int) -> None:
    rng = np.random.default_rng(features)
    thresholds = rng.choice([-1e300, -1.0, -0.5, 0.0, 0.1, 99.5, 100.0, 254.999, 255.0, 256.0, 1e300], (3, features))
    exact = rng.choice([0.0, 1.0, 99.0, 100.0, 254.0, 255.0], (70, features))
    near = np.nextafter(thresholds[rng.integers(0, 3, (70, features)), np.arange(features)], rng.choice([-1e9, 1e9]))
    x = exact if dtype == "uint8" else np.where(rng.random(near.shape) < 0.5, near.clip(-1e30, 1e30), exact)
    x = x.astype(dtype)
    wires = Circuit(3 * features, [], np.zeros((0, 2), np.int32), 2 + np.arange(3 * features))
    source = Source.above(thresholds, x.dtype)
    assert source is not None
    expected = (x.astype(np.float64)[:, None] > thresholds).reshape(70, -1)
    assert_equal_bits(Program(wires).run(source, x, "bits"), expected)
    if dtype != "uint8":
        for odd in (np.nan, np.inf, -np.inf):
            spoiled = x.copy()
            spoiled[69, -1] = odd
            with pytest.raises(NotFiniteError):
                Program(wires).run(source, spoiled, "bits")


def test_dtypes_that_the_core_does_not_know_are_left_to_the_encoder() -> None:
    swapped = (np.dtype(name).newbyteorder() for name in ("float32", "float64"))
    for dtype in ("int8", "uint16", "int64", "float16", "longdouble", "bool", *swapped):
        assert Source.above(np.zeros((1, 2)), np.dtype(dtype)) is None


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_threads_share_the_samples(threads: int) -> None:
    rng = np.random.default_rng(6)
    circuit = random_circuit(rng, 40, 400, outputs=30)
    core.set_threads(threads)
    try:
        assert_computes(Program(circuit, 3), circuit, bits(rng, 5_000, 40))
    finally:
        core.set_threads(None)


def test_a_program_of_250000_gates_is_planned_in_a_tenth_of_a_second(level: str) -> None:
    if level != "baseline":
        pytest.skip("planning does not depend on the vector width")
    circuit = layered(np.random.default_rng(7), 784, [50_000] * 5)
    seconds = []
    for _ in range(5):
        begin = time.perf_counter()
        program = Program(circuit, 10)
        seconds.append(time.perf_counter() - begin)
    assert program.gates > 50_000
    assert min(seconds) < 0.1


def layered(rng: np.random.Generator, inputs: int, widths: list[int]) -> Circuit:
    """Layers of random gates, each reading the layer before."""
    fanin, begin, end = [], 2, 2 + inputs
    for width in widths:
        fanin.append(rng.integers(begin, end, (width, 2)))
        begin, end = end, end + width
    return Circuit(inputs, rng.integers(0, 16, sum(widths)), np.concatenate(fanin), np.arange(begin, end))
