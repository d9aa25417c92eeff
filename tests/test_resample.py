"""Algorithms 1 and 2 against literal transcriptions of the paper's pseudocode, neuron by neuron."""

import math

import pytest
import torch
from torch import nn

from gatewise import kernels
from gatewise.errors import ConfigError
from gatewise.harden import Hardener, add_gumbel_noise
from gatewise.layers import GroupSum, LogicConv2d, LogicDense
from gatewise.resample import Resampler


def normalised_entropy(w: list[float]) -> float:
    largest = max(w)
    p = [math.exp(v - largest) for v in w]
    p = [v / sum(p) for v in p]
    return -sum(v * math.log(v) for v in p if v > 0) / math.log(len(p))


class Transcript:
    """Algorithm 1 for one neuron, as the design has it: EMA from the first entropy, counter reset when ready."""

    def __init__(self, momentum: float, stability: float, patience: int) -> None:
        self.momentum, self.stability, self.patience = momentum, stability, patience
        self.mean: float | None = None
        self.count = 0

    def step(self, w: list[float]) -> str:
        h = normalised_entropy(w)
        self.mean = h if self.mean is None else self.mean
        self.count = self.count + 1 if abs(self.mean - h) <= self.stability else 0
        self.mean = self.momentum * self.mean + (1 - self.momentum) * h
        if self.count < self.patience:
            return "kept"
        self.count = 0
        p = torch.softmax(torch.tensor(w, dtype=torch.float64), 0).max().item()
        return "dominated" if p >= 0.95 else "dispersed" if p <= 0.4 else "kept"


def test_neurons_are_redrawn_when_the_pseudocode_says_so():
    torch.manual_seed(0)
    network = nn.Sequential(LogicDense(30, 60))
    layer = network[0]
    layer.weight.data *= torch.linspace(0.2, 9, 60)[:, None]
    resampler = Resampler(network, patience=5, stability=2e-3, momentum=0.9)
    transcripts = [Transcript(0.9, 2e-3, 5) for _ in range(60)]
    outcomes = {"kept": 0, "dominated": 0, "dispersed": 0}
    for _ in range(40):
        with torch.no_grad():
            drift = torch.randn_like(layer.weight) * 0.01 * (torch.arange(60) % 3)[:, None]
            layer.weight += drift
        before = layer.weight.detach().clone()
        fanin, gate = layer.fanin.clone(), layer.gate.clone()
        expected = [t.step(row) for t, row in zip(transcripts, before.tolist(), strict=True)]
        resampler.step()
        for n, outcome in enumerate(expected):
            outcomes[outcome] += 1
            best = int(before[n].argmax())
            if outcome == "kept":
                assert torch.equal(layer.weight[n], before[n])
                assert torch.equal(layer.fanin[n], fanin[n])
            elif outcome == "dominated":
                p = torch.softmax(layer.weight[n].detach(), 0)
                assert p[best].item() == pytest.approx(0.9, abs=1e-5)
                assert torch.allclose(p[torch.arange(16) != best], torch.tensor(0.1 / 15))
                assert torch.equal(layer.fanin[n, best], fanin[n, best])
                assert layer.gate[n, best] == gate[n, best]
                assert not torch.equal(layer.fanin[n], fanin[n])
            else:
                assert not torch.equal(layer.weight[n], before[n])
                assert not torch.equal(layer.fanin[n], fanin[n])
        assert layer.fanin.min() >= 0
        assert layer.fanin.max() < 30
    assert min(outcomes.values()) > 5, outcomes


def test_redrawn_fanins_and_gates_are_uniform():
    torch.manual_seed(0)
    network = nn.Sequential(LogicDense(10, 5_000))
    network[0].weight.data.zero_()
    Resampler(network, patience=1).step()
    counts = torch.bincount(network[0].fanin.reshape(-1), minlength=10)
    assert (counts / counts.sum() - 0.1).abs().max() < 0.005
    counts = torch.bincount(network[0].gate.reshape(-1).int(), minlength=16)
    assert (counts / counts.sum() - 1 / 16).abs().max() < 0.005
    weight = network[0].weight.detach()
    assert abs(weight.mean().item()) < 0.02
    assert weight.std().item() == pytest.approx(1, abs=0.02)


def test_a_convolution_redraws_the_position_and_keeps_the_channel():
    torch.manual_seed(0)
    network = nn.Sequential(LogicConv2d(4, 400, 3))
    layer = network[0]
    layer.weight.data.zero_()
    before = layer.fanin.clone()
    Resampler(network, patience=1).step()
    assert torch.equal(layer.fanin[..., 0], before[..., 0])
    for i in (1, 2):
        counts = torch.bincount(layer.fanin[..., i].reshape(-1), minlength=3)
        assert (counts / counts.sum() - 1 / 3).abs().max() < 0.02


def test_a_one_by_one_convolution_redraws_the_channel_within_its_group():
    torch.manual_seed(0)
    network = nn.Sequential(LogicConv2d(6, 300, 1, channels_per_kernel=2))
    layer = network[0]
    layer.weight.data.zero_()
    before = layer.fanin.clone()
    Resampler(network, patience=1).step()
    assert not torch.equal(layer.fanin, before)
    assert torch.equal(layer.fanin[..., 0] // 2, (torch.arange(300) % 3)[:, None, None].expand(300, 16, 2))
    assert (layer.fanin[..., 1:] == 0).all()


def train_some(network: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    for _ in range(3):
        optimizer.zero_grad()
        network(torch.rand(8, 6)).square().sum().backward()
        optimizer.step()


@pytest.mark.parametrize(
    ("make", "moments"),
    [
        (lambda w: torch.optim.Adam(w, lr=0.01), ["exp_avg", "exp_avg_sq"]),
        (lambda w: torch.optim.AdamW(w, lr=0.01, amsgrad=True), ["exp_avg", "exp_avg_sq", "max_exp_avg_sq"]),
        (lambda w: torch.optim.SGD(w, lr=0.01, momentum=0.9), ["momentum_buffer"]),
    ],
)
def test_the_moments_of_redrawn_neurons_are_zeroed_and_no_others(make, moments):
    torch.manual_seed(0)
    network = nn.Sequential(LogicDense(6, 50), GroupSum(2))
    layer = network[0]
    layer.weight.data *= torch.linspace(0, 8, 50)[:, None]
    optimizer = make(network.parameters())
    resampler = Resampler(network, optimizer, patience=1)
    train_some(network, optimizer)
    before = layer.weight.detach().clone()
    resampler.step()
    redrawn = (layer.weight != before).any(1)
    assert 0 < redrawn.sum() < 50
    assert resampler.redrawn[0] == redrawn.sum()
    for name in moments:
        moment = optimizer.state[layer.weight][name]
        assert (moment[redrawn] == 0).all()
        assert (moment[~redrawn] != 0).any(1).float().mean() > 0.9
    assert optimizer.state[layer.weight].get("step", torch.tensor(3.0)) == 3


def test_fixed_wiring_and_frozen_layers_are_left_alone():
    network = nn.Sequential(LogicDense(6, 50, wiring="fixed"), LogicDense(50, 40))
    network[1].freeze()
    for layer in network:
        layer.weight.data.zero_()
    before = {k: v.clone() for k, v in network.state_dict().items()}
    Resampler(network, patience=1).step()
    assert all(torch.equal(v, before[k]) for k, v in network.state_dict().items())


def test_a_resampler_goes_on_from_its_state():
    def run(steps: int, restart_at: int | None) -> torch.Tensor:
        torch.manual_seed(0)
        network = nn.Sequential(LogicDense(20, 100))
        network[0].weight.data *= 0.3
        resampler = Resampler(network, patience=2, momentum=0.1, stability=0.02)
        for step in range(steps):
            if step == restart_at:
                state = resampler.state_dict()
                resampler = Resampler(network, patience=2, momentum=0.1, stability=0.02)
                resampler.load_state_dict(state)
            resampler.step()
        return network[0].fanin

    assert torch.equal(run(9, None), run(9, 5))
    assert not torch.equal(run(9, None), run(5, None))


def test_unknown_options_are_explained():
    network = nn.Sequential(LogicDense(4, 4))
    with pytest.raises(ConfigError, match="'normal' or 'uniform', not 'zero'"):
        Resampler(network, restart="zero")
    with pytest.raises(ConfigError, match="at least 1 step"):
        Resampler(network, patience=0)
    with pytest.raises(ConfigError, match="at least 1 step"):
        Hardener(network, every=0)
    with pytest.raises(ConfigError, match="must be positive"):
        add_gumbel_noise(network, 0)


def test_algorithm_2_freezes_convolutions_in_order_when_their_mean_entropy_is_stable():
    torch.manual_seed(0)
    network = nn.Sequential(LogicConv2d(2, 4, 3), LogicConv2d(4, 4, 3), nn.Flatten(), LogicDense(64, 40))
    hardener = Hardener(network, patience=4, stability=1e-3, momentum=0.9)
    mean, count, frozen_at = None, 0, []
    layers = [network[0], network[1]]
    for step in range(40):
        with torch.no_grad():
            for layer in layers:
                layer.weight += torch.randn_like(layer.weight) * (0.2 if step < 10 else 0)
        if layers:
            h = sum(normalised_entropy(row) for row in layers[0].weight.tolist()) / 4
            mean = h if mean is None else mean
            count = count + 1 if abs(mean - h) <= 1e-3 else 0
            mean = 0.9 * mean + 0.1 * h
        expected = None
        if layers and count >= 4:
            expected, mean, count = layers.pop(0), None, 0
            frozen_at.append(step)
        assert hardener.step() is expected
    assert len(frozen_at) == 2
    assert frozen_at[0] > 10
    assert [network[0].frozen, network[1].frozen, network[3].frozen] == [True, True, False]


def test_the_fixed_schedule_freezes_a_layer_every_n_steps():
    network = nn.Sequential(LogicConv2d(2, 4, 3), LogicConv2d(4, 4, 3), nn.Flatten(), LogicDense(64, 40))
    hardener = Hardener(network, every=3)
    assert [hardener.step() for _ in range(7)] == [None, None, network[0], None, None, network[1], None]
    dense = Hardener(network, layers=[network[3]], every=1)
    assert dense.step() is network[3]


def test_entropy_is_one_when_spread_and_zero_when_settled():
    weight = torch.zeros(2, 16)
    weight[1, 3] = 1e4
    assert kernels.entropy(weight).tolist() == pytest.approx([1.0, 0.0], abs=1e-6)
