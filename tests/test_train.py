"""Training: what is trained on what, which checkpoint wins, what the presets build, and loops of one's own."""

from __future__ import annotations

import dataclasses
import math
import threading
from pathlib import Path

import numpy as np
import pytest
import torch
from runs import assert_same_run, metrics, monks_files, tiny
from torch import Tensor, nn

from gatewise import checkpoint
from gatewise.batches import Batches, Bits
from gatewise.data import DATASETS, load_dataset
from gatewise.discretization import discretize
from gatewise.encode import Thermometer
from gatewise.errors import ConfigError, FileError
from gatewise.files import read_arrays
from gatewise.finish import check_same, finish
from gatewise.kernels import own_threads
from gatewise.layers import GroupSum, LogicConv2d, LogicDense, LogicLayer, logic_layers
from gatewise.presets import ALWAYS, PRESETS, Preset, build_network, preset
from gatewise.resample import Resampler
from gatewise.train import Options, Task, Trained, accuracy, prepare, train

PAPER = Options(protocol="paper")


# Which data


def rows(samples: Bits) -> list[bytes]:
    """Samples and labels as values that can be compared."""
    return sorted(x.tobytes() + bytes([y]) for x, y in zip(samples.raw().numpy(), samples.y.tolist(), strict=True))


def encoded(x: np.ndarray, y: np.ndarray, task: Task) -> list[bytes]:
    return rows(Bits(x, y, task.encoder, torch.device("cpu")))


@pytest.fixture(scope="module")
def digits():
    return load_dataset("digits")


def test_the_validation_protocol_parts_the_training_set_and_leaves_the_test_set_alone(digits) -> None:
    task = prepare(tiny(), Options(validation=0.2), None)
    assert len(task.held_out) == round(0.2 * len(digits.train_y))
    whole = sorted(rows(task.train.samples) + rows(task.held_out))
    assert whole == encoded(digits.train_x, digits.train_y, task)
    assert rows(task.test) == encoded(digits.test_x, digits.test_y, task)
    assert rows(task.held_out) != encoded(
        digits.train_x[: len(task.held_out)], digits.train_y[: len(task.held_out)], task
    )


def test_what_is_held_out_is_a_matter_of_the_seed() -> None:
    one, same, other = (prepare(tiny(), Options(seed=seed), None).held_out for seed in (0, 0, 1))
    assert torch.equal(one.raw(), same.raw())
    assert not torch.equal(one.raw(), other.raw())


def test_the_paper_protocol_trains_on_all_and_picks_on_the_test_set(digits) -> None:
    task = prepare(tiny(), PAPER, None)
    assert task.held_out is task.test
    assert rows(task.train.samples) == encoded(digits.train_x, digits.train_y, task)
    assert rows(task.test) == encoded(digits.test_x, digits.test_y, task)


def test_the_paper_protocol_drops_the_last_partial_batch(tmp_path: Path) -> None:
    trained = train(tiny(steps=10), tmp_path / "run", options=PAPER)
    [line] = metrics(tmp_path / "run")
    test = trained.task.test
    assert len(test) % 64
    scores = trained.network(test.encode(test.raw())).argmax(1) == test.y
    measured = scores[: len(test) // 64 * 64].double().mean()
    assert line["measured_on"] == "test"
    assert line["hard"] == float(measured)
    assert line["hard"] != float(scores.double().mean())
    assert finish(trained, tmp_path / "run").best_picked_on == "test"


def test_accuracy_counts_every_sample_unless_told_otherwise() -> None:
    bits = Bits(np.zeros((10, 1, 1, 1), np.uint8), np.arange(10) % 2, Thermometer.equal(1, 0, 16, (1, 1, 1)), CPU)
    zero = nn.Sequential(nn.Flatten(), _Always(0))
    assert accuracy(zero, bits, hard=True) == 0.5
    assert accuracy(zero, bits, hard=True, whole_batches=3) == 5 / 9
    assert accuracy(zero, bits, hard=True, whole_batches=11) == 0


CPU = torch.device("cpu")


class _Always(nn.Module):
    """A network of one opinion."""

    def __init__(self, label: int) -> None:
        super().__init__()
        self.label = label

    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.one_hot(torch.full((len(x),), self.label), 2).float()


def test_an_epoch_shows_each_sample_once_and_leaves_out_what_fills_no_batch() -> None:
    x = np.arange(100, dtype=np.uint8).reshape(100, 1)
    samples = Bits(x, np.arange(100), Thermometer.equal(1, 0, 255, (1,)), CPU)
    batches = Batches(samples, batch=33, seed=3)
    epochs = [torch.cat([batches.take(3 * epoch + i)[1] for i in range(3)]).tolist() for epoch in range(3)]
    assert [len(set(epoch)) for epoch in epochs] == [99, 99, 99]
    assert epochs[0] != epochs[1]
    assert set(epochs[0]) != set(epochs[1]), "the samples left out change"
    again = Batches(samples, batch=33, seed=3)
    assert [again.take(step)[1].tolist() for step in (8, 2, 5)] == [
        batches.take(step)[1].tolist() for step in (8, 2, 5)
    ]
    assert Batches(samples, batch=33, seed=4).take(0)[1].tolist() != batches.take(0)[1].tolist()
    assert len(Batches(samples, batch=500, seed=0).take(7)[1]) == 100


# Which checkpoint


@pytest.mark.parametrize("options", [Options(), PAPER], ids=["validation", "paper"])
def test_the_network_returned_is_the_last_of_the_best(options: Options, tmp_path: Path) -> None:
    trained = train(tiny(steps=60, eval_every=5), tmp_path / "run", options=options)
    lines = metrics(tmp_path / "run")
    assert [line["step"] for line in lines] == list(range(5, 61, 5))
    hard = [line["hard"] for line in lines]
    best = max(range(len(hard)), key=lambda i: (hard[i], i))
    assert (trained.run.best_step, trained.run.best_accuracy) == (lines[best]["step"], hard[best])
    dropped = 64 if options is PAPER else 0
    assert accuracy(trained.network, trained.task.held_out, hard=True, whole_batches=dropped) == hard[best]
    assert accuracy(trained.network, trained.task.held_out, hard=False, whole_batches=dropped) == lines[best]["soft"]
    assert not trained.network.training


def test_of_equally_good_checkpoints_the_one_that_learned_longest_is_kept(tmp_path: Path) -> None:
    trained = train(tiny(rate=1e-9, patience=1_000), tmp_path / "run")
    assert len({line["hard"] for line in metrics(tmp_path / "run")}) == 1
    assert trained.run.best_step == 30
    assert checkpoint.header(tmp_path / "run" / "best.safetensors")["run"]["step"] == 30


def test_what_follows_training_notices_a_circuit_that_is_another(tmp_path: Path) -> None:
    trained = train(tiny(steps=5), tmp_path / "run")
    circuit = discretize(trained.network, trained.task.encoder.bit_shape)
    assert check_same(trained.network, [circuit], trained) > 1_000
    table = circuit.table.copy()
    table[circuit.outputs[0] - 2 - circuit.inputs] ^= np.uint64(15)  # its negation
    with pytest.raises(Exception, match="does not compute what the network computes"):
        check_same(trained.network, [circuit, dataclasses.replace(circuit, table=table)], trained)


# Going on

CONV = {"k": 6, "init": "residual", "dense": (60,)}
SETTINGS = {
    "dense": {},
    "residual": {"init": "residual"},
    "conv": CONV,
    "conv from noise": {"k": 6, "dense": (60,)},
    "hardening": {**CONV, "resample_steps": 8, "harden_patience": 2, "rate": 1e-4},
    "hardening on schedule": {**CONV, "resample_steps": 8, "harden_every": 4},
    "gumbel": {"gumbel": 1.0},
    "gumbel conv": {**CONV, "gumbel": 0.5, "resample_steps": 8, "harden_every": 4},
    "fixed": {"wiring": "fixed"},
    "uniform": {"restart": "uniform"},
    "few candidates": {"candidates": 5},
    "one candidate": {"candidates": 1},
    "batch of all": {"batch": 10_000},
    "nothing left to learn": {**CONV, "dense": (), "resample_steps": 8, "harden_every": 2},
}
REDRAWN = ("dense", "conv from noise", "gumbel", "uniform", "few candidates", "batch of all")
FROZEN = ("hardening", "hardening on schedule", "gumbel conv", "nothing left to learn")


@pytest.mark.parametrize("name", SETTINGS)
def test_a_run_in_three_parts_equals_one_in_one(name: str, tmp_path: Path) -> None:
    fields = SETTINGS[name]
    whole = train(tiny(**fields), tmp_path / "whole")
    for steps in (10, 20, 30):
        parts = train(tiny(**fields | {"steps": steps}), tmp_path / "parts", resume=steps > 10)
    assert (tmp_path / "parts" / "last.safetensors").read_bytes() == (
        tmp_path / "whole" / "last.safetensors"
    ).read_bytes()
    assert metrics(tmp_path / "parts") == (lines := metrics(tmp_path / "whole"))
    assert parts.run == whole.run
    for one, two in zip(logic_layers(parts.network), logic_layers(whole.network), strict=True):
        assert torch.equal(one.weight, two.weight)
        assert torch.equal(one.fanin, two.fanin)
        assert one.frozen == two.frozen
    for field, names in (("redrawn", REDRAWN), ("frozen", FROZEN)):
        assert any(lines[-1][field]) == (name in names), f"{field} is not what the setting is for"


def test_runs_of_the_same_seed_are_equal_and_of_another_are_not(tmp_path: Path) -> None:
    for name, seed in (("one", 7), ("same", 7), ("other", 8)):
        finish(train(tiny(steps=12), tmp_path / name, options=Options(seed=seed)), tmp_path / name)
    assert_same_run(tmp_path / "one", tmp_path / "same")
    with pytest.raises(AssertionError, match="differs"):
        assert_same_run(tmp_path / "one", tmp_path / "other")


def test_a_checkpoint_holds_nothing_that_depends_on_the_clock_or_the_folder(tmp_path: Path) -> None:
    train(tiny(steps=3), tmp_path / "a")
    header = checkpoint.header(tmp_path / "a" / "last.safetensors")
    assert set(header) == {"format", "version", "preset", "options", "run", "data", "ranks"}
    assert str(tmp_path) not in str(header)
    arrays, _ = read_arrays(tmp_path / "a" / "last.safetensors", checkpoint.FORMAT, checkpoint.VERSION)
    assert {name.split(".")[0] for name in arrays} == {"network", "optimizer", "resampler", "hardener", "loss"}


def test_training_outside_the_main_thread_works(tmp_path: Path) -> None:
    done: list[Trained] = []
    thread = threading.Thread(target=lambda: done.append(train(tiny(steps=5), tmp_path / "run")))
    thread.start()
    thread.join()
    assert done[0].run.step == 5


def test_a_table_trains_and_becomes_a_circuit(tmp_path: Path) -> None:
    data = monks_files(tmp_path / "data")
    trained = train(tiny("monks-1", steps=200, eval_every=50, tau=2.0), tmp_path / "run", data=data)
    report = finish(trained, tmp_path / "run")
    assert report.test_hard > 0.6
    assert report.neurons == 420


@pytest.mark.parametrize(
    ("fields", "options", "words"),
    [
        ({"steps": 0}, {}, "steps must be at least 1, not 0"),
        ({"eval_every": 0}, {}, "eval_every must be at least 1"),
        ({"k": -1}, {}, "k must not be negative"),
        ({"rate": math.nan}, {}, "rate must be a positive number, not nan"),
        ({"tau": math.inf}, {}, "tau must be a positive number, not inf"),
        ({"gumbel": math.nan}, {}, "Gumbel noise must be positive, not nan"),
        ({"restart": "again"}, {}, "restart is 'normal' or 'uniform', not 'again'"),
        ({}, {"protocol": "papre"}, "protocol is one of validation, paper, not 'papre'"),
        ({}, {"validation": 1.0}, "validation is a share between 0 and 1, not 1.0"),
        ({}, {"validation": math.nan}, "validation is a share between 0 and 1, not nan"),
        ({}, {"validation": 1e-5}, "holds out none of 1433 samples"),
        ({}, {"validation": 0.9999}, "there are no training samples"),
        ({}, {"seed": -1}, "seed is a whole number from 0"),
        ({}, {"seed": 2**63}, "seed is a whole number from 0"),
        ({}, {"device": "abacus"}, "device 'abacus' cannot be used"),
        ({}, {"device": "meta"}, "device 'meta' cannot be used"),
        ({"batch": 500}, {"protocol": "paper"}, "batch=500 is more than the 364 test samples"),
    ],
)
def test_a_setting_without_sense_is_refused_before_anything_is_trained(fields, options, words, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=words):
        train(tiny(**fields), tmp_path / "run", options=Options(**options))
    assert not (tmp_path / "run" / "last.safetensors").exists()


def test_a_run_is_not_started_over_another_nor_resumed_where_there_is_none(tmp_path: Path) -> None:
    with pytest.raises(FileError, match="nothing to resume"):
        train(tiny(), tmp_path / "run", resume=True)
    train(tiny(steps=1), tmp_path / "run")
    with pytest.raises(FileError, match="holds a run already"):
        train(tiny(steps=1), tmp_path / "run")


# What the presets build

NEURONS = {  # the paper's tables, to three digits, some rounded and some cut
    "mnist-regular-s": 48.0e3,
    "mnist-regular-m": 384e3,
    "cifar-regular-s": 48.0e3,
    "cifar-regular-m": 512e3,
    "cifar-regular-l": 1.28e6,
    "mnist-conv-s": 260e3,
    "mnist-conv-m": 520e3,
    "cifar-conv-t": 145e3,
    "cifar-conv-s": 291e3,
    "cifar-conv-m": 582e3,
    "cifar-conv-l": 2.33e6,
    "tiny-imagenet-m": 1.68e6,
    "tiny-imagenet-l": 6.75e6,
    "ecg": 48e3,
    "breast-cancer": 384,
}
TABLE_BITS = {"breast-cancer": 51, "adult": 117, "monks-1": 17, "monks-2": 17, "monks-3": 17}


def bit_shape(row: Preset) -> tuple[int, ...]:
    data = DATASETS[row.dataset]
    if data.kind == "table":
        return (TABLE_BITS[row.dataset],)
    return Thermometer.equal(row.thresholds, data.low, data.high, data.shape).bit_shape


def neurons(network: nn.Sequential, shape: tuple[int, ...]) -> int:
    """Gates once convolutions are unrolled over their positions."""
    count, sides = 0, shape[1:]
    for layer in logic_layers(network):
        if isinstance(layer, LogicConv2d):
            sides = tuple(layer.output_size(side) for side in sides)
            count += len(layer.weight) * math.prod(sides)
        else:
            count += len(layer.weight)
    return count


def built(row: Preset) -> nn.Sequential:
    """The preset's network without its memory."""
    with torch.device("meta"):
        return build_network(row, bit_shape(row), DATASETS[row.dataset].classes)


@pytest.mark.parametrize("name", PRESETS)
def test_every_preset_builds_with_the_paper_s_number_of_neurons(name: str) -> None:
    row = preset(name)
    network = built(row)
    count = neurons(network, bit_shape(row))
    assert count == pytest.approx(NEURONS.get(name, sum(row.dense)), rel=0.006)
    assert network[-1].tau == row.tau
    assert network[-1].classes == DATASETS[row.dataset].classes
    assert logic_layers(network)[-1].weight.shape[1] == 16


HYPERPARAMETERS = {  # thresholds, tau and patience, from the paper's tables and the code that produced them
    "mnist-regular-s": (1, 10, 100),
    "mnist-regular-m": (1, 45, 1_000),
    "cifar-regular-s": (3, 33, 100),
    "cifar-regular-m": (3, 100, 500),
    "cifar-regular-l": (31, 100, 1_000),
    "mnist-conv-s": (1, 40, 100),
    "mnist-conv-m": (1, 63, 100),
    "cifar-conv-t": (3, 20, 100),
    "cifar-conv-s": (3, 40, 100),
    "cifar-conv-m": (7, 63, 100),
    "cifar-conv-l": (63, 160, 15_000),
    "tiny-imagenet-m": (7, 20, 100),
    "tiny-imagenet-l": (63, 40, 500),
    "ecg": (7, 33, 100),
}


@pytest.mark.parametrize("name", HYPERPARAMETERS)
def test_the_rows_have_the_paper_s_hyperparameters(name: str) -> None:
    row = preset(name)
    assert (row.thresholds, row.tau, row.patience) == HYPERPARAMETERS[name]
    assert row.eval_every == (2_000 if row.k else 1_000)
    assert row.init == ("residual" if row.k else "normal")
    assert (row.wiring, row.restart, row.harden_every, row.gumbel) == ("learned", "normal", 0, 0)
    if row.k:
        built_row = built(row)
        widths = [layer.out_channels for layer in logic_layers(built_row)[:4]]
        assert widths == [row.k, row.k, 4 * row.k, 4 * row.k]


def test_the_rows_are_the_paper_s_schedule() -> None:
    for row in PRESETS.values():
        if row.name in NEURONS and row.name not in ("breast-cancer", "ecg"):
            small_images = not row.name.startswith("tiny-imagenet")
            steps = {True: (600_000, 400_000), False: (200_000, 150_000)}[small_images] if row.k else (300_000, ALWAYS)
            expected = (700_000, 500_000) if row.name == "cifar-conv-l" else steps
            assert (row.steps, row.resample_steps) == expected, row.name
            assert row.rate == (0.02 if row.k else 0.01)
            assert (row.batch, row.candidates, row.clip, row.harden_patience) == (128, 16, 10.0, 200)


def test_the_count_is_that_of_the_circuit() -> None:
    row = preset("cifar-conv-t")
    shape = bit_shape(row)
    assert discretize(build_network(row, shape, 10), shape).gates == neurons(built(row), shape) == 145_536


# Loops of one's own

OPTIMIZERS = {
    "sgd": (lambda p: torch.optim.SGD(p, lr=20.0, momentum=0.9), {"momentum_buffer"}),
    "adamw": (lambda p: torch.optim.AdamW(p, lr=0.03, weight_decay=1e-3), {"exp_avg", "exp_avg_sq"}),
    "adam": (lambda p: torch.optim.Adam(p, lr=0.03, fused=True), {"exp_avg", "exp_avg_sq"}),
    "amsgrad": (lambda p: torch.optim.Adam(p, lr=0.03, amsgrad=True), {"exp_avg", "exp_avg_sq", "max_exp_avg_sq"}),
    "rmsprop": (lambda p: torch.optim.RMSprop(p, lr=0.01, momentum=0.5), {"square_avg", "momentum_buffer"}),
}


def assert_forgets(resampler: Resampler, optimizer: torch.optim.Optimizer, layer: LogicLayer, names: set[str]) -> int:
    """One step of the resampler zeroes the moments of the neurons it redraws, and no others; → how many it redrew."""
    fanin, state = layer.fanin.clone(), optimizer.state[layer.weight]
    before = {name: state[name].clone() for name in names}
    resampler.step()
    redrawn = (layer.fanin != fanin).flatten(1).any(1)
    for name in names:
        assert not state[name][redrawn].any(), f"{name} of a redrawn neuron is kept"
        assert torch.equal(state[name][~redrawn], before[name][~redrawn])
    return int(redrawn.sum())


def own_loop(make, names: set[str], *, steps: int, optimizer_known: bool = True):
    """A loop as a user would write it; → first and last losses, neurons redrawn, and the network."""
    torch.manual_seed(0)
    task = prepare(tiny(batch=128), Options(), None)
    network = nn.Sequential(nn.Flatten(), LogicDense(448, 400), LogicDense(400, 400), GroupSum(10, 8.0))
    optimizer = make(network.parameters())
    resampler = Resampler(network, optimizer if optimizer_known else None, patience=5, stability=0.01)
    losses, redrawn = [], 0
    for step in range(steps):
        x, y = task.train.take(step)
        loss = nn.functional.cross_entropy(network(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        redrawn += assert_forgets(resampler, optimizer, network[1], names)
        losses.append(loss.item())
    return np.mean(losses[:5]), np.mean(losses[-5:]), redrawn, network, task


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_a_loop_of_one_s_own_learns_with_any_optimizer_and_resampling_forgets_its_moments(name: str) -> None:
    make, names = OPTIMIZERS[name]
    with own_threads():  # on a busy machine torch's waiting threads make such a loop many times slower
        first, last, redrawn, network, task = own_loop(make, names, steps=120)
    assert last < first - 0.3
    assert redrawn > 20
    assert accuracy(network, task.test, hard=True) > 0.5
    circuit = discretize(network, task.encoder.bit_shape)
    assert circuit.gates == 800


def test_moments_that_are_kept_would_be_noticed() -> None:
    make, names = OPTIMIZERS["adam"]
    with own_threads(), pytest.raises(AssertionError, match="of a redrawn neuron is kept"):
        own_loop(make, names, steps=120, optimizer_known=False)
