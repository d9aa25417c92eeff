"""Several processes: together they learn what one learns from the joint batch, agree bit for bit, and end as one."""

from __future__ import annotations

import contextlib
import hashlib
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from runs import (
    Done,
    SignalAtStep,
    SmallFiles,
    Trap,
    assert_one_sentence,
    assert_same_run,
    contents,
    flags,
    gatewise,
    metrics,
    start,
    tiny,
)  # fmt: skip
from torch import nn

from gatewise import checkpoint, parallel
from gatewise.batches import Batches, Bits
from gatewise.encode import Thermometer
from gatewise.errors import ConfigError
from gatewise.files import read_arrays
from gatewise.harden import Hardener
from gatewise.kernels import own_threads
from gatewise.layers import logic_layers
from gatewise.presets import Options, Preset, build_network
from gatewise.resample import Resampler
from gatewise.train import prepare

pytestmark = pytest.mark.skipif(
    not torch.distributed.is_available() or not torch.distributed.is_gloo_available() or os.name != "posix",
    reason="this torch has no Gloo, or processes cannot be forked",
)


@dataclass(frozen=True)
class Rank:
    """What torchrun tells a process, and a trap in it."""

    rank: int
    port: int
    trap: Trap | None = None
    ranks: int = 2

    def __call__(self) -> None:
        told = {"RANK": self.rank, "LOCAL_RANK": self.rank, "WORLD_SIZE": self.ranks, "MASTER_PORT": self.port}
        os.environ |= {name: str(value) for name, value in told.items()}
        os.environ |= {"MASTER_ADDR": "127.0.0.1", "TORCHELASTIC_USE_AGENT_STORE": "True"}
        os.environ |= {
            "TORCHELASTIC_RESTART_COUNT": "0",
            "GLOO_SOCKET_IFNAME": "lo" if sys.platform == "linux" else "lo0",
        }
        one_thread()
        if self.trap is not None:
            self.trap()


def one_thread() -> None:
    torch.set_num_threads(1)


def processes(*words: str | Path, cwd: Path, traps: Sequence[Trap | None] = (None, None)) -> list[Done]:
    """The command in as many processes as there are traps, as torchrun would start them, but forked."""
    store = torch.distributed.TCPStore("127.0.0.1", 0, is_master=True, timeout=timedelta(seconds=30))
    all_words = [str(word) for word in words]
    running = [start(*all_words, cwd=cwd, trap=Rank(i, store.port, trap, len(traps))) for i, trap in enumerate(traps)]
    return [one.wait() for one in running]


@dataclass(frozen=True)
class Watch:
    """Write a digest of all that a process has learned, a line a step, and of what it returns, to a file of its own."""

    folder: Path
    then: Trap | None = None

    def __call__(self) -> None:
        import gatewise.train

        learn, file = gatewise.train._learn, (self.folder / f"rank-{os.environ['RANK']}").open("w", buffering=1)

        def watched(network, train, preset, options, optimizer, resampler, hardener, loss_sum, step) -> None:
            learn(network, train, preset, options, optimizer, resampler, hardener, loss_sum, step)
            state = gatewise.train._state(network, optimizer, resampler, hardener, loss_sum)
            del state["loss"]  # of a process's own part of the batch
            print(step, _digest(state), file=file)

        def ended(*arguments):
            trained = run(*arguments)
            print("trained", _digest({"network": trained.network.state_dict()}), trained.run, file=file)
            return trained

        run, gatewise.train._train = gatewise.train._train, ended
        gatewise.train._learn = watched
        if self.then is not None:
            self.then()


def _digest(state: dict[str, Any]) -> str:
    digest = hashlib.sha256()
    for part, value in state.items():
        for name, tensor in checkpoint._flatten(part, value):
            digest.update(name.encode() + tensor.detach().numpy().tobytes())
    return digest.hexdigest()


@dataclass(frozen=True)
class KeepOwnGradients:
    """The fault: each process learns from its own part alone; and a run may be made not to notice."""

    unnoticed: bool = False

    def __call__(self) -> None:
        parallel.average = lambda gradients, ranks: None
        if self.unnoticed:
            import gatewise.train

            gatewise.train._check_same = lambda network, step, place: None


def watched(folder: Path) -> list[list[str]]:
    """The lines that `Watch` wrote, a list a process."""
    return [file.read_text().splitlines() for file in sorted(folder.glob("rank-*"))]


# What is learned

CONV = {"k": 6, "init": "residual", "dense": (60,)}
SETTINGS: dict[str, dict[str, Any]] = {
    "dense": {},
    "freezing": {**CONV, "resample_steps": 8, "harden_patience": 2, "rate": 1e-4},
    "redrawing, then freezing": {"k": 6, "dense": (60,), "resample_steps": 12, "harden_every": 4},
}


@contextlib.contextmanager
def single_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    one_thread()
    try:
        with own_threads():
            yield
    finally:
        torch.set_num_threads(before)


def by_hand(row: Preset, ranks: int) -> tuple[nn.Sequential, Resampler]:
    """A run of `row` by several processes, in one: each part of a batch after the other."""
    task = prepare(row, Options(), None)
    parts = [Batches(task.train.samples, row.batch, 0, "none", rank, ranks) for rank in range(ranks)]
    torch.manual_seed(0)
    network = build_network(row, task.encoder.bit_shape, task.classes)
    optimizer = torch.optim.Adam(network.parameters(), lr=row.rate, fused=True)
    resampler = Resampler(network, optimizer, patience=row.patience, restart=row.restart)
    hardener = Hardener(network, patience=row.harden_patience, every=row.harden_every or None)
    for step in range(row.steps):
        optimizer.zero_grad()
        for x, y in (part.take(step) for part in parts):
            nn.functional.cross_entropy(network(x), y).backward()
        for weight in network.parameters():
            if weight.grad is not None:
                weight.grad /= ranks
        nn.utils.clip_grad_norm_(network.parameters(), row.clip)
        optimizer.step()
        if step < row.resample_steps:
            resampler.step()
        else:
            hardener.step()
    return network, resampler


def state_of(run: Path) -> dict[str, np.ndarray]:
    return read_arrays(run / "last.safetensors", checkpoint.FORMAT, checkpoint.VERSION)[0]


def assert_learned(run: Path, other: Path) -> None:
    """Two runs have the same circuit and the same redraws, and weights that are equal up to rounding."""
    one, two = state_of(run), state_of(other)
    weights = 0.0
    for name in one:
        if name.endswith((".fanin", ".gate", "frozen")) or ".redrawn." in name or name == "hardener.count":
            assert np.array_equal(one[name], two[name]), f"{name} differs"
        elif name.startswith("network.") and name.endswith("weight"):
            weights = max(weights, float(np.abs(one[name] - two[name]).max()))
    # Sums over 128 samples are rounded elsewhere than two over 64; some 1e-5 after 30 steps at a rate of 0.02.
    assert weights < 1e-4, f"weights differ by {weights}"
    for line, same in zip(metrics(run), metrics(other), strict=True):
        assert line["loss"] == pytest.approx(same["loss"], abs=1e-6)
        assert (line["redrawn"], line["frozen"]) == (same["redrawn"], same["frozen"])


@pytest.mark.parametrize("name", SETTINGS)
def test_two_processes_equal_one_with_the_joint_batch(name: str, tmp_path: Path) -> None:
    fields = SETTINGS[name]
    two = processes("train", "digits", *flags(**fields), "--out", "two", cwd=tmp_path, traps=[Watch(tmp_path)] * 2)
    assert [done.code for done in two] == [0, 0], two
    first, second = watched(tmp_path)
    assert first == second
    assert len(first) == 31

    one = gatewise("train", "digits", *flags(**fields | {"batch": 128}), "--out", "one", cwd=tmp_path, trap=one_thread)
    assert one.code == 0
    assert_learned(tmp_path / "two", tmp_path / "one")

    with single_thread():
        network, resampler = by_hand(tiny(**fields), 2)
    state = state_of(tmp_path / "two")
    for key, tensor in network.state_dict().items():
        assert np.array_equal(state[f"network.{key}"], tensor.numpy()), f"{key} differs from the method by hand"
    assert [int(state[f"resampler.redrawn.{i}"]) for i in range(len(resampler.redrawn))] == [
        int(count) for count in resampler.redrawn
    ]
    assert any(layer.frozen for layer in logic_layers(network)) == (name != "dense")
    assert any(map(int, resampler.redrawn)) == (name != "freezing")


def test_gradients_that_are_not_averaged_are_noticed(tmp_path: Path) -> None:
    words = ("train", "digits", *flags())
    done = processes(*words, "--out", "run", cwd=tmp_path, traps=[Watch(tmp_path, KeepOwnGradients())] * 2)
    assert_one_voice(done, "no longer have the same weights at step 10", trained=True)
    first, second = watched(tmp_path)
    assert first[0] != second[0]
    processes(*words, "--out", "two", cwd=tmp_path, traps=[KeepOwnGradients(unnoticed=True)] * 2)
    gatewise(*words, "--batch", "128", "--out", "one", cwd=tmp_path, trap=one_thread)
    with pytest.raises(AssertionError, match="differ"):
        assert_learned(tmp_path / "two", tmp_path / "one")


def test_three_processes_agree_bit_for_bit(tmp_path: Path) -> None:
    done = processes("train", "digits", *flags(steps=12), "--out", "run", cwd=tmp_path, traps=[Watch(tmp_path)] * 3)
    assert [one.code for one in done] == [0, 0, 0], done
    first, second, third = watched(tmp_path)
    assert first == second == third


@pytest.mark.parametrize("ranks", [2, 3])
def test_the_parts_are_the_joint_batch_augmented_as_one_would_be(ranks: int) -> None:
    x = np.random.default_rng(0).integers(0, 256, (50, 2, 6, 5), dtype=np.uint8)
    samples = Bits(x, np.arange(50), Thermometer.equal(3, 0, 255, (2, 6, 5)), torch.device("cpu"))
    whole = Batches(samples, 8 * ranks, 3, "flip_crop_2")
    parts = [Batches(samples, 8, 3, "flip_crop_2", rank, ranks) for rank in range(ranks)]
    for step in (0, 1, 2, 7):
        bits, labels = zip(*(part.take(step) for part in parts), strict=True)
        assert torch.equal(torch.cat(bits), whole.take(step)[0])
        assert torch.equal(torch.cat(labels), whole.take(step)[1])
    assert parts[1].steps_an_epoch == whole.steps_an_epoch


# Stopping, going on and failing


def assert_one_voice(done: list[Done], *words: str, trained: bool = False) -> None:
    """All processes have failed; one said why in a sentence (after what a run prints), the others nothing."""
    assert [one.code for one in done] == [2] * len(done), done
    spoken = [line for one in done for line in one.err.splitlines()]
    if trained:
        spoken = [line for line in spoken if not line.startswith(("digits: ", "step "))]
    [sentence] = spoken
    assert_one_sentence(Done(2, "".join(one.out for one in done), sentence), *words)


TORCHRUN = (sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2")


@pytest.mark.parametrize(
    "traps",
    [[None, SignalAtStep(13)], [SignalAtStep(13, (signal.SIGTERM,))] * 2],
    ids=["Ctrl-C in one", "SIGTERM to both"],
)
def test_a_run_of_two_processes_is_stopped_and_goes_on_bit_for_bit(traps: list[Trap | None], tmp_path: Path) -> None:
    words = ("train", "digits", *flags(**SETTINGS["redrawing, then freezing"]))
    assert [one.code for one in processes(*words, "--out", "whole", cwd=tmp_path)] == [0, 0]
    words += ("--out", "parts")
    stopped = processes(*words, cwd=tmp_path, traps=traps)
    assert sorted(one.code for one in stopped) == [2, 130]
    said = [line for one in stopped for line in one.err.splitlines() if not line.startswith(("digits: ", "step "))]
    assert said == ["stopped at step 14 of 30; --resume goes on from there (run folder: parts)"]

    before = contents(tmp_path / "parts")
    refused = gatewise(*words, "--resume", cwd=tmp_path)
    assert_one_sentence(refused, "was made by 2 processes, not 1: resume with as many")
    assert_one_voice(processes(*words, "--resume", cwd=tmp_path, traps=[None] * 3), "by 2 processes, not 3")
    assert contents(tmp_path / "parts") == before

    if traps[0] is None:
        assert [one.code for one in processes(*words, "--resume", cwd=tmp_path)] == [0, 0]
    else:
        goes_on_by_torchrun(*words, cwd=tmp_path)
    assert_same_run(tmp_path / "whole", tmp_path / "parts")


def goes_on_by_torchrun(*words: str, cwd: Path) -> None:
    """What is printed is printed once, and nothing is added by torch as the processes end."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "NO_COLOR": "1", "COLUMNS": "120"}
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = str(server.getsockname()[1])
    command = [*TORCHRUN, "--master-port", port, "-m", "gatewise", *words, "--resume"]
    done = subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("circuit equal to the network") == 1
    first, *lines = done.stderr.splitlines()
    assert first.endswith("; on the CPU; 2 processes"), done.stderr
    assert [line.split()[:2] for line in lines] == [["step", "20"], ["step", "30"]], done.stderr


def test_what_one_process_began_several_do_not_go_on_with(tmp_path: Path) -> None:
    assert gatewise("train", "digits", *flags(steps=2), "--out", "run", cwd=tmp_path).code == 0
    before = contents(tmp_path / "run")
    assert_one_voice(processes("train", "digits", "--out", "run", "--resume", cwd=tmp_path), "by 1 processes, not 2")
    assert_one_voice(processes("train", "digits", "--out", "run", cwd=tmp_path), "run holds a run already")
    assert contents(tmp_path / "run") == before


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--out", "new", "--resume"], ["there is nothing to resume in new"]),
        (["--out", "file/run"], ["file/run cannot be used"]),
        (["--device", "abacus"], ["device 'abacus' cannot be used"]),
        (["--data", "nowhere", "--validation", "0.9999"], ["there are no training samples"]),
    ],
)
def test_processes_that_cannot_begin_say_so_once(words: list[str], said: list[str], tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert_one_voice(processes("train", "digits", *words, cwd=tmp_path), *said)


@dataclass(frozen=True)
class OtherSeed:
    """Start this process with another seed than it was given."""

    def __call__(self) -> None:
        sys.argv += ["--seed", "1"]


def test_processes_that_were_started_differently_do_not_begin(tmp_path: Path) -> None:
    done = processes("train", "digits", *flags(), cwd=tmp_path, traps=[None, OtherSeed()])
    assert_one_voice(done, "the processes differ in settings, data or checkpoint")


def test_a_process_that_ends_does_not_leave_the_other_waiting(tmp_path: Path) -> None:
    words = ("train", "digits", *flags())
    full = processes(*words, "--out", "full", cwd=tmp_path, traps=[SmallFiles(1_000), None])
    assert_one_voice(full, "last.safetensors cannot be written")
    alive, killed = processes(*words, "--out", "killed", cwd=tmp_path, traps=[None, SignalAtStep(5, (signal.SIGKILL,))])
    assert killed.code == -signal.SIGKILL
    assert_one_voice([alive], "one of them may have ended", trained=True)


def test_processes_that_cannot_meet_say_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.delenv("MASTER_ADDR", raising=False)
    with pytest.raises(ConfigError, match="the 2 processes cannot meet: start them with torchrun"), parallel.meeting():
        pass
    monkeypatch.setenv("WORLD_SIZE", "two")
    with pytest.raises(ConfigError, match="WORLD_SIZE, which torchrun sets, must be a number"), parallel.meeting():
        pass
