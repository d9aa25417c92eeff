"""The invariant of the house: the hard network equals simulate(discretize(network)), bit for bit, on every sample."""

import itertools

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

import gatewise
from gatewise.circuit import Circuit, count_bops, prune, simulate
from gatewise.errors import CircuitError
from gatewise.layers import GroupSum, LogicConv2d, LogicDense


def assert_same(network: nn.Sequential, circuit: Circuit, bits: torch.Tensor) -> None:
    """The network up to GroupSum, and the circuit, give the same bits for [B, *shape]."""
    body = nn.Sequential(*[stage for stage in network if not isinstance(stage, GroupSum)]).eval()
    with torch.no_grad():
        expected = body(bits.float()).flatten(1).numpy()
    assert set(np.unique(expected)) <= {0.0, 1.0}
    np.testing.assert_array_equal(simulate(circuit, bits.flatten(1).numpy()), expected != 0)


def dense_and_conv(seed: int, channels: int, side: int, stride: int, padding: int, group: int | None) -> nn.Sequential:
    torch.manual_seed(seed)
    first = LogicConv2d(channels, 4, 3, stride=stride, padding=padding, channels_per_kernel=group)
    inside = first.output_size(side)
    second = LogicConv2d(4, 6, 1, channels_per_kernel=None, init="residual")
    third = LogicConv2d(6, 6, 3, padding=1)
    inputs = 6 * inside**2
    dense = (LogicDense(inputs, inputs), LogicDense(inputs, 31, wiring="fixed"))
    return nn.Sequential(first, second, third, nn.Flatten(), *dense, GroupSum(4))


@settings(max_examples=25, deadline=None)
@given(
    seed=st.integers(0, 10_000),
    side=st.integers(2, 5),
    stride=st.integers(1, 2),
    padding=st.integers(1, 2),
    group=st.sampled_from([1, 2, None]),
)
def test_convolutional_networks_equal_their_circuits(seed, side, stride, padding, group):
    try:
        network = dense_and_conv(seed, 2, side, stride, padding, group)
    except gatewise.GatewiseError:
        return  # 31 neurons cannot cover the inputs
    circuit = gatewise.discretize(network, input_shape=(2, side, side))
    bits = torch.randint(2, (200, 2, side, side), dtype=torch.bool)
    assert_same(network, circuit, bits)
    assert_same(network, prune(circuit), bits)


def test_a_dense_network_equals_its_circuit_on_every_input_there_is():
    torch.manual_seed(0)
    network = nn.Sequential(LogicDense(10, 40), nn.Dropout(0.5), LogicDense(40, 30), nn.Sequential(LogicDense(30, 20)))
    circuit = gatewise.discretize(network, input_shape=(10,))
    everything = torch.tensor(list(itertools.product((0, 1), repeat=10)), dtype=torch.bool)
    assert_same(network, circuit, everything)
    assert circuit.gates == 90
    assert len(circuit.outputs) == 20


def test_the_comparison_would_notice_one_wrong_gate():
    torch.manual_seed(0)
    network = nn.Sequential(LogicDense(8, 20))
    circuit = gatewise.discretize(network, input_shape=(8,))
    table = circuit.table.copy()
    table[19] ^= np.uint64(15)
    wrong = Circuit(circuit.inputs, table, circuit.fanin, circuit.outputs)
    with pytest.raises(AssertionError):
        assert_same(network, wrong, torch.randint(2, (50, 8), dtype=torch.bool))


def test_padding_becomes_the_constant_zero():
    network = nn.Sequential(LogicConv2d(1, 1, 3, padding=1, candidates=1))
    network[0].fanin[:] = 0
    circuit = gatewise.discretize(network, input_shape=(1, 2, 2))
    assert circuit.fanin.tolist() == [[0, 0], [0, 0], [0, 0], [2, 2]]


def test_a_network_that_was_trained_and_frozen_in_part_equals_its_circuit():
    torch.manual_seed(0)
    network = dense_and_conv(3, 2, 4, 2, 1, 1)
    optimizer = torch.optim.Adam(network.parameters(), lr=0.1)
    resampler = gatewise.Resampler(network, optimizer, patience=2, stability=0.1)
    x, y = torch.randint(2, (64, 2, 4, 4)).float(), torch.randint(4, (64,))
    for step in range(30):
        optimizer.zero_grad()
        nn.functional.cross_entropy(network(x), y).backward()
        optimizer.step()
        resampler.step()
        if step == 20:
            network[0].freeze()
    assert_same(network, gatewise.discretize(network, (2, 4, 4)), torch.randint(2, (300, 2, 4, 4), dtype=torch.bool))


def test_bops_of_a_network_are_counted_as_in_the_paper():
    network = nn.Sequential(LogicDense(2, 4, candidates=1), LogicDense(4, 2, candidates=1))
    network[0].gate[:, 0] = torch.tensor([1, 3, 12, 6], dtype=torch.uint8)  # and, a, not a, xor
    network[0].fanin[:, 0] = torch.tensor([0, 1], dtype=torch.int32)
    network[1].gate[:, 0] = torch.tensor([7, 1], dtype=torch.uint8)
    network[1].fanin[0, 0] = torch.tensor([0, 2])
    network[1].fanin[1, 0] = torch.tensor([1, 2])
    circuit = gatewise.discretize(network, (2,))
    assert count_bops(circuit) == 3  # both outputs and the one AND they need; the XOR is not reached


@pytest.mark.parametrize(
    ("network", "shape", "sentence"),
    [
        (nn.Sequential(nn.Linear(4, 4)), (4,), "a Linear cannot become gates"),
        (nn.Sequential(GroupSum(2), LogicDense(4, 4)), (4,), "GroupSum must come last, but LogicDense follows"),
        (nn.Sequential(LogicDense(4, 4)), (5,), r"4 inputs cannot follow a shape of \[5\]"),
        (nn.Sequential(LogicConv2d(2, 4, 3)), (1, 5, 5), r"2 channels cannot follow a shape of \[1, 5, 5\]"),
        (nn.Sequential(LogicDense(4, 4)), (1, 2, 2), r"4 inputs cannot follow a shape of \[1, 2, 2\]"),
    ],
)
def test_networks_that_are_no_circuits_are_explained(network, shape, sentence):
    with pytest.raises(CircuitError, match=sentence):
        gatewise.discretize(network, shape)
