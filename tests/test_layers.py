"""Layers: wiring, the relaxed and the hard network, gradients, saving, and what they say to wrong arguments."""

import itertools

import numpy as np
import pytest
import torch
from torch import nn

import gatewise
from gatewise import gates, kernels, wiring
from gatewise.errors import GatewiseError, WiringError
from gatewise.harden import add_gumbel_noise
from gatewise.layers import GroupSum, LogicConv2d, LogicDense, logic_layers, relaxed


def network() -> nn.Sequential:
    return nn.Sequential(
        LogicConv2d(2, 6, 3, stride=2, padding=1, init="residual"),
        LogicConv2d(6, 8, 1, channels_per_kernel=None),
        nn.Flatten(),
        LogicDense(8 * 16, 90),
        LogicDense(90, 50, wiring="fixed"),
        GroupSum(5, tau=2.0),
    )


@pytest.mark.parametrize(("inputs", "neurons"), [(1, 1), (10, 5), (10, 17), (7, 100)])
def test_coverage_uses_every_input_equally_often_in_each_assignment(inputs, neurons):
    fanin = wiring.coverage(inputs, neurons, 16)
    assert fanin.shape == (neurons, 16, 2)
    assert fanin.dtype == torch.int32
    for candidate in range(16):
        counts = torch.bincount(fanin[:, candidate].reshape(-1), minlength=inputs)
        assert counts.min() >= 2 * neurons // inputs
        assert counts.sum() == 2 * neurons


def test_too_few_neurons_for_the_inputs_is_a_clear_error():
    with pytest.raises(WiringError, match=r"4 neurons .* cannot read all 9 inputs: use at least 5"):
        LogicDense(9, 4)


def test_fixed_wiring_gives_all_candidates_of_a_neuron_one_pair():
    layer = LogicDense(12, 30, wiring="fixed")
    assert (layer.fanin == layer.fanin[:, :1]).all()
    assert layer.source is None
    assert torch.bincount(layer.fanin[:, 0].reshape(-1)).min() == 5


@pytest.mark.parametrize(("group", "expected"), [(1, {0: {0}, 1: {1}, 7: {1}}), (2, {0: {0, 1}, 1: {2, 3}, 4: {2, 3}})])
def test_a_kernel_sees_its_group_of_channels(group, expected):
    layer = LogicConv2d(6, 200, 3, channels_per_kernel=group, candidates=64)
    seen = {n: set(layer.fanin[n, ..., 0].reshape(-1).tolist()) for n in expected}
    assert seen == expected
    everything = LogicConv2d(6, 1, 3, channels_per_kernel=None, candidates=250)
    assert set(everything.fanin[..., 0].reshape(-1).tolist()) == set(range(6))
    assert set(everything.fanin[..., 1:].reshape(-1).tolist()) == {0, 1, 2}


def test_gates_start_as_the_sixteen_in_order():
    assert LogicDense(2, 3).gate.tolist() == [list(range(16))] * 3
    assert LogicDense(2, 3, candidates=20).gate[0].tolist() == [*range(16), 0, 1, 2, 3]


def test_residual_initialisation_puts_nine_tenths_on_passing_the_first_input_on():
    p = torch.softmax(LogicDense(4, 5, init="residual").weight, 1)
    assert torch.allclose(p[:, gates.FIRST], torch.tensor(0.9))
    assert torch.allclose(p.sum(1) - p[:, gates.FIRST], torch.tensor(0.1))
    with pytest.raises(WiringError, match="at least 4 candidates"):
        LogicDense(4, 5, init="residual", candidates=3)


def test_the_relaxation_is_the_gate_on_bits_and_multilinear_between_them():
    layer = LogicDense(2, 1, candidates=1)
    layer.fanin[0, 0] = torch.tensor([0, 1])
    for gate in range(16):
        layer.gate[0, 0] = gate
        for a, b in itertools.product((0, 1), repeat=2):
            assert layer(torch.tensor([[float(a), float(b)]])).item() == gates.evaluate(gate, (a, b))
        a, b = 0.3, 0.6
        weights = {(0, 0): 0.7 * 0.4, (0, 1): 0.7 * 0.6, (1, 0): 0.3 * 0.4, (1, 1): 0.3 * 0.6}
        expected = sum(w * gates.evaluate(gate, bits) for bits, w in weights.items())
        assert layer(torch.tensor([[a, b]])).item() == pytest.approx(expected, abs=1e-6)


def test_padding_reads_zero():
    layer = LogicConv2d(1, 1, 3, padding=1, candidates=1)
    layer.fanin[:] = 0  # upper left of the window, twice
    layer.gate[:] = gates.FIRST
    image = torch.ones(1, 1, 3, 3)
    assert layer(image)[0, 0].tolist() == [[0, 0, 0], [0, 1, 1], [0, 1, 1]]


def test_eval_mode_is_the_candidate_of_largest_weight_on_bits_and_ties_go_to_the_first():
    torch.manual_seed(0)
    layer = LogicDense(6, 40).eval()
    layer.weight.data[7] = 0
    bits = torch.randint(2, (50, 6)).float()
    got = layer(bits)
    for n in range(40):
        best = next(i for i in range(16) if layer.weight[n, i] == layer.weight[n].max())
        a, b = layer.fanin[n, best].tolist()
        expected = [gates.evaluate(int(layer.gate[n, best]), (int(x[a]), int(x[b]))) for x in bits]
        assert got[:, n].tolist() == expected
    assert set(got.unique().tolist()) <= {0.0, 1.0}


def test_bits_may_come_as_bool_or_bytes():
    layer = LogicDense(6, 40).eval()
    bits = torch.randint(2, (9, 6))
    assert torch.equal(layer(bits.bool()), layer(bits.float()))
    assert torch.equal(layer(bits.to(torch.uint8)), layer(bits.float()))


def test_float64_networks_pass_torchs_numerical_gradient_check():
    torch.manual_seed(0)
    stages = nn.Sequential(LogicConv2d(2, 3, 2, padding=1, candidates=5), nn.Flatten(), LogicDense(27, 14)).double()
    assert torch.autograd.gradcheck(stages, torch.rand(2, 2, 2, 2, dtype=torch.float64, requires_grad=True))


def test_layers_hand_on_views_whose_samples_are_innermost():
    x = torch.rand(7, 2, 8, 8)
    stages = list(network())
    for stage in stages[:-1]:
        x = stage(x)
        assert x.stride(0) == 1, stage
    assert stages[-1](x).shape == (7, 5)


def test_group_sum_counts_equal_groups_and_pads_with_zeros():
    x = torch.tensor([[1.0, 0, 1, 1, 1], [0, 0, 0, 1, 1]])
    assert GroupSum(2, tau=2.0)(x).tolist() == [[1.0, 1.0], [0.0, 1.0]]


def test_a_state_dict_reloads_a_network_whole():
    torch.manual_seed(1)
    first = network()
    next(iter(first)).freeze()
    torch.manual_seed(2)
    second = network()
    bits = torch.randint(2, (20, 2, 8, 8)).float()
    assert not torch.equal(first.eval()(bits), second.eval()(bits))
    second.load_state_dict(first.state_dict())
    assert torch.equal(first(bits), second(bits))
    with relaxed(first), relaxed(second):
        assert torch.equal(first(bits), second(bits))
    assert [layer.frozen for layer in logic_layers(second)] == [True, False, False, False]


def test_a_frozen_layer_runs_hard_in_training_and_learns_nothing():
    layer = LogicDense(6, 40)
    layer.freeze()
    bits = torch.randint(2, (50, 6)).float()
    assert torch.equal(layer.train()(bits), layer.eval()(bits))
    assert not layer.weight.requires_grad


def test_relaxed_evaluates_without_noise_and_restores_what_was():
    torch.manual_seed(0)
    net = network().eval()
    add_gumbel_noise(net, 0.5)
    x = torch.rand(4, 2, 8, 8)
    with relaxed(net):
        assert torch.equal(net(x), net(x))
    assert not net.training
    net.train()
    assert not torch.equal(net(x), net(x))


def test_gumbel_noise_draws_candidates_by_their_probability():
    torch.manual_seed(0)
    layer = LogicDense(2, 20_000, candidates=2)
    layer.gate[:] = torch.tensor([gates.CONST0, gates.CONST1], dtype=torch.uint8)
    layer.weight.data[:] = torch.tensor([0.0, 1.0])
    add_gumbel_noise(nn.Sequential(layer), 1.0, straight_through=True)
    y = layer(torch.rand(1, 2))
    assert set(y.unique().tolist()) == {0.0, 1.0}
    assert y.mean().item() == pytest.approx(torch.sigmoid(torch.tensor(1.0)).item(), abs=0.02)
    y.sum().backward()
    assert layer.weight.grad.abs().sum() > 0


@pytest.mark.parametrize(
    ("saved", "other"),
    [
        (lambda: LogicDense(100, 60), lambda: LogicDense(10, 60)),
        (lambda: LogicConv2d(4, 60, 3), lambda: LogicConv2d(1, 60, 3)),
        (lambda: LogicConv2d(1, 60, 5), lambda: LogicConv2d(1, 60, 3)),
    ],
)
def test_wiring_of_a_layer_with_more_inputs_is_refused_and_changes_nothing(saved, other):
    layer = other()
    before = {name: tensor.clone() for name, tensor in layer.state_dict().items()}
    with pytest.raises(WiringError, match="saved from another network"):
        layer.load_state_dict(saved().state_dict())
    assert all(torch.equal(tensor, before[name]) for name, tensor in layer.state_dict().items())


def test_a_gradient_left_from_before_does_not_move_a_frozen_layer():
    layer = LogicDense(6, 40)
    optimizer = torch.optim.Adam(layer.parameters(), lr=0.1)
    layer(torch.rand(4, 6)).sum().backward()
    optimizer.step()
    before = layer.weight.detach().clone()
    layer.freeze()
    optimizer.step()
    assert torch.equal(layer.weight, before)


def test_an_empty_batch_passes_through():
    assert network()(torch.rand(0, 2, 8, 8)).shape == (0, 5)


def test_one_candidate_is_a_fixed_gate_without_entropy():
    layer = LogicDense(4, 5, candidates=1)
    assert kernels.entropy(layer.weight).tolist() == [0.0] * 5
    gatewise.Resampler(nn.Sequential(layer), patience=1).step()


def test_numpy_sizes_are_numbers_too():
    assert LogicDense(np.int64(4), np.int32(5))(torch.rand(2, 4)).shape == (2, 5)


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: LogicDense(0, 5), "in_features must be a positive whole number, not 0"),
        (lambda: LogicDense(4, 5, wiring="random"), "'learned' or 'fixed'"),
        (lambda: LogicDense(4, 5, init="zeros"), "'normal' or 'residual'"),
        (lambda: LogicConv2d(6, 5, 3, channels_per_kernel=4), "does not divide the 6 input channels"),
        (lambda: LogicConv2d(6, 5, 3, padding=-1), "padding"),
        (lambda: GroupSum(3, tau=0), "tau must be a positive number"),
        (lambda: LogicDense(4, 5)(torch.rand(3, 5)), r"expects \[batch, 4\], not \[3, 5\]"),
        (lambda: LogicConv2d(2, 5, 3)(torch.rand(3, 1, 9, 9)), r"expects \[batch, 2, height, width\]"),
        (lambda: LogicConv2d(1, 5, 3)(torch.rand(3, 1, 2, 9)), "smaller than the 3-wide window"),
        (lambda: GroupSum(3)(torch.rand(3, 5, 2)), r"expects \[batch, features\]"),
    ],
)
def test_wrong_arguments_are_explained(make, sentence):
    with pytest.raises(GatewiseError, match=sentence):
        make()


def test_public_names_resolve_and_others_do_not():
    assert gatewise.LogicDense is LogicDense
    assert set(gatewise.__all__) <= set(dir(gatewise))
    assert callable(gatewise.discretize)
    with pytest.raises(AttributeError, match="no attribute 'Nothing'"):
        _ = gatewise.Nothing
