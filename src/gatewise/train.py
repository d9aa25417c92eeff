"""Training: one loop, top to bottom, and what it leaves in the run's folder.

    metrics.jsonl      a line an evaluation
    last.safetensors   where the run stands; `resume` goes on from it
    best.safetensors   the network with the best hard accuracy so far

Every random number comes from (seed, step), so a resumed run on a CPU equals one that was never stopped, bit for bit,
given the same number of threads. On a GPU the step of the loop is captured once and replayed: see captured.py. Started
by torchrun, several processes share each batch: see parallel.py.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import hashlib
import json
import math
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from gatewise import captured, checkpoint, draws, kernels, parallel
from gatewise.batches import Batches, Bits
from gatewise.data import DATASETS, check_levels, load_dataset
from gatewise.encode import Encoder, TableEncoder, Thermometer
from gatewise.errors import ConfigError, FileError
from gatewise.files import lock_folder, remove_parts
from gatewise.harden import Hardener, add_gumbel_noise
from gatewise.layers import LogicConv2d, logic_layers, relaxed
from gatewise.metrics import append_metrics, trim_metrics
from gatewise.parallel import Place
from gatewise.presets import PRECISIONS, Options, Preset, build_network, check
from gatewise.progress import Progress, loading, say
from gatewise.resample import Resampler
from gatewise.stopping import Interrupted, StopRequest

PROTOCOLS = ("validation", "paper")
SAVE_SECONDS = 60.0
EVALUATION_BATCH = {"cpu": 256, "cuda": 512}
ASK_EVERY = {"cpu": 1, "cuda": 16}
"""Steps after which processes ask each other whether to save or to stop, for which each waits for all."""


@dataclass(frozen=True)
class Task:
    """A preset's data, as bits on the device."""

    encoder: Encoder
    classes: int
    train: Batches
    held_out: Bits
    """What picks the best checkpoint."""
    test: Bits
    raw_test: NDArray[Any]
    """The test samples as they came, for the saved model."""

    @functools.cached_property
    def fingerprint(self) -> str:
        """Of the labels, in their order, and of the encoder, which a table's training part decides."""
        digest = hashlib.sha256()
        for array in (self.train.samples.y.cpu().numpy(), self.held_out.y.cpu().numpy()):
            digest.update(array.tobytes())
        for name, array in sorted(self.encoder.arrays().items()):
            digest.update(name.encode() + np.ascontiguousarray(array).tobytes())
        return digest.hexdigest()


@dataclass
class Run:
    """Where a run stands."""

    step: int = 0
    evaluated: int = 0
    """The step of the last evaluation, since which the loss is gathered."""
    best_accuracy: float = -1.0
    best_step: int = -1


@dataclass(frozen=True)
class Trained:
    """A finished run: the network of the best checkpoint, in eval mode."""

    network: nn.Sequential
    task: Task
    preset: Preset
    options: Options
    run: Run
    place: Place


def prepare(preset: Preset, options: Options, data: Path | None, place: Place | None = None) -> Task:
    """Load the preset's dataset, fit its encoder on the training part and split off what picks the checkpoint."""
    row, place = DATASETS[preset.dataset], place or parallel.place(options.device)
    device = place.device
    if place.local:  # what is missing is downloaded once a machine
        parallel.wait(place)
    with loading(preset.dataset, quiet=not place.leads) as progress:
        splits = load_dataset(preset.dataset, data, progress=progress)
    if not place.local:
        parallel.wait(place)
    n = len(splits.train_y)
    trained_on, held = split(n, options)
    train_x, train_y = splits.train_x[trained_on], splits.train_y[trained_on]
    encoder: Encoder
    if row.kind == "table":
        encoder = TableEncoder.mixed(row.columns, row.categories, preset.thresholds).fit(train_x)
    else:
        assert row.low is not None, row.name
        assert row.high is not None, row.name
        encoder = Thermometer.equal(preset.thresholds, row.low, row.high, row.shape)
    if splits.levels is not None:
        check_levels(preset.dataset, splits, encoder.arrays()["thresholds"])
        if place.leads:
            say(f"{preset.dataset}: packed data, {splits.levels} levels a value")
    test = Bits(splits.test_x, splits.test_y, encoder, device)
    held_out = Bits(splits.train_x[held], splits.train_y[held], encoder, device) if len(held) else test
    if not len(held) and options.protocol == "validation":
        raise ConfigError(f"validation={options.validation} holds out none of {n} samples: ask for a larger share")
    samples = Bits(train_x, train_y, encoder, device)
    train = Batches(samples, preset.batch, options.seed, row.augmentation, place.rank, place.ranks)
    if options.protocol == "paper" and train.batch > len(test):
        raise ConfigError(
            f"protocol=paper measures on whole batches, but batch={train.batch} is more than the {len(test)} test "
            f"samples: ask for a smaller batch"
        )
    return Task(encoder, row.classes, train, held_out, test, splits.test_x)


def split(n: int, options: Options) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Which of n training samples are trained on, and which are held out to pick the checkpoint."""
    order = draws.permutation(options.seed, 0, draws.VALIDATION, n, torch.device("cpu")).numpy()
    held = round(options.validation * n) if options.protocol == "validation" else 0
    return order[held:], order[:held]


def train(
    preset: Preset, out: Path, *, options: Options | None = None, data: Path | None = None, resume: bool = False
) -> Trained:
    """Train `preset` into the folder `out`; with `resume`, go on where it stands.

    >>> trained = train(preset("digits"), Path("runs/digits"))
    """
    options = options or Options()
    with parallel.meeting(), contextlib.ExitStack() as stack:
        _check(preset, options)
        place = parallel.place(options.device)
        parallel.wait(place)  # all have looked what is in the folder
        if place.leads and (lock := _claim(out, resume)) is not None:
            stack.callback(os.close, lock)
        return _train(preset, out, options, prepare(preset, options, data, place), place, resume)


def _train(preset: Preset, out: Path, options: Options, task: Task, place: Place, resume: bool) -> Trained:
    network, optimizer, resampler, hardener = begin(preset, options, task.encoder.bit_shape, task.classes, place.device)
    run, loss_sum = Run(), torch.zeros((), device=place.device)
    if resume:
        run = _restore(out, preset, options, task, network, optimizer, resampler, hardener, loss_sum, place)
    if not parallel.same(json.dumps(_header(preset, options, run, task, place)), place):
        raise ConfigError("the processes differ in settings, data or checkpoint: start all in the same way")
    parts = (network, task.train, preset, options, optimizer, resampler, hardener, loss_sum)
    learn: Callable[[int], None] = functools.partial(_learn, *parts)
    reason = captured.why_not(network, task.train, preset)
    if reason is not None and (options.precision != "float32" or options.deterministic):
        raise ConfigError(f"precision and deterministic need steps captured on a GPU, which these cannot be: {reason}")
    closing: contextlib.AbstractContextManager[Any] = contextlib.nullcontext()
    if reason is None:
        learn = captured.CapturedStep(*parts)
        closing = contextlib.closing(learn)

    def save() -> None:
        losses = parallel.all_of(loss_sum, place)
        _check_finite(losses, run.step)
        if place.leads:
            state = _state(network, optimizer, resampler, hardener, losses)
            checkpoint.save(out / "last.safetensors", state, _header(preset, options, run, task, place))

    if place.leads:
        trim_metrics(out / "metrics.jsonl", run.step)
    if not resume:
        save()
    stop, ask_every = StopRequest(), ASK_EVERY.get(place.device.type, 1) if place.ranks > 1 else 1
    bar = Progress(preset.name, preset.steps, run.step, quiet=not place.leads)
    with kernels.own_threads(), bar as progress, stop.listening(), closing:
        progress.begin(f"{_schedule(preset, network, task)}; on {_machinery(options, place, reason)}")
        network.train()
        last_save = interval_start = time.monotonic()
        interval_first = run.step
        while run.step < preset.steps:
            learn(run.step)
            run.step += 1
            progress.advance(run.step)

            if run.step % preset.eval_every == 0 or run.step == preset.steps:
                losses = parallel.all_of(loss_sum, place)
                _check_finite(losses, run.step)  # which waits for the steps, where they run on a GPU
                milliseconds = 1e3 * (time.monotonic() - interval_start) / (run.step - interval_first)
                _check_same(network, run.step, place)
                metrics = _metrics(network, task, options, resampler, run, losses.mean())
                loss_sum.zero_()
                metrics["step_ms"] = round(milliseconds, 3)
                if metrics["hard"] >= run.best_accuracy:  # of equals, the one that has learned for longer
                    run.best_accuracy, run.best_step = metrics["hard"], run.step
                    best = {"network": dict(network.state_dict())}
                    if place.leads:
                        checkpoint.save(out / "best.safetensors", best, _header(preset, options, run, task, place))
                if place.leads:
                    append_metrics(out / "metrics.jsonl", metrics)
                progress.report(metrics)
                save()
                network.train()
                last_save = interval_start = time.monotonic()
                interval_first = run.step
            if run.step % ask_every:
                continue
            asked, due = parallel.any_of([stop.asked, time.monotonic() - last_save > SAVE_SECONDS], place)
            if asked or due:
                save()
                last_save = time.monotonic()
            if asked and run.step < preset.steps:
                at = f"step {run.step:,} of {preset.steps:,}"
                raise Interrupted(f"stopped at {at}; --resume goes on from there (run folder: {out})")
    best = {"network": dict(network.state_dict())}
    if place.leads:
        best = checkpoint.load(out / "best.safetensors", best)
    parallel.share(best["network"].values(), place)
    network.load_state_dict(best["network"])
    return Trained(network.eval(), task, preset, options, run, place)


def begin(
    preset: Preset, options: Options, bit_shape: tuple[int, ...], classes: int, device: torch.device
) -> tuple[nn.Sequential, torch.optim.Optimizer, Resampler, Hardener]:
    """The network as a run begins with it, drawn from the seed, and what changes it after each step."""
    torch.manual_seed(options.seed)
    network = build_network(preset, bit_shape, classes).to(device)
    if preset.gumbel:
        add_gumbel_noise(network, preset.gumbel)
    weights = [layer.weight for layer in logic_layers(network)]
    optimizer = torch.optim.Adam(weights, lr=preset.rate, fused=True)
    start_optimizer(optimizer)
    resampler = Resampler(network, optimizer, patience=preset.patience, restart=preset.restart, seed=options.seed)
    hardener = Hardener(network, patience=preset.harden_patience, every=preset.harden_every or None)
    return network, optimizer, resampler, hardener


def _learn(
    network: nn.Sequential, train: Batches, preset: Preset, options: Options, optimizer: torch.optim.Optimizer,
    resampler: Resampler, hardener: Hardener, loss_sum: Tensor, step: int,
) -> None:  # fmt: skip
    """One step: learn from a batch, redraw neurons or freeze a layer."""
    x, y = train.take(step)
    if preset.gumbel:
        torch.manual_seed(_noise_seed(options.seed, step))
    loss = nn.functional.cross_entropy(network(x), y)
    optimizer.zero_grad(set_to_none=True)
    if loss.requires_grad:  # not once every layer is frozen
        loss.backward()  # type: ignore[no-untyped-call]
        weights = optimizer.param_groups[0]["params"]
        parallel.average((weight.grad for weight in weights), train.ranks)
        nn.utils.clip_grad_norm_(weights, preset.clip)
        optimizer.step()
    if step < preset.resample_steps:
        resampler.step()
    else:
        hardener.step()
    loss_sum += loss.detach()


def _machinery(options: Options, place: Place, reason: str | None) -> str:
    """Where the steps run, and how."""
    where = "the CPU"
    if place.device.type == "cuda":
        where = torch.cuda.get_device_name(place.device)
        where += (
            f", {options.precision}, each step a replayed graph" if reason is None else f", without a graph: {reason}"
        )
    return f"{where}; {place.ranks} processes" if place.ranks > 1 else where


def _schedule(preset: Preset, network: nn.Sequential, task: Task) -> str:
    """What was derived from the preset, in a line."""
    frozen = [layer for layer in logic_layers(network) if isinstance(layer, LogicConv2d)]
    line = f"{len(task.train.samples):,} training samples, {math.prod(task.encoder.bit_shape):,} bits each; redrawing "
    if preset.resample_steps >= preset.steps:
        line += "to the end"
        return f"{line}, so no convolution is frozen (--resample-steps)" if frozen else line
    how = f"every {preset.harden_every:,} steps" if preset.harden_every else "as their entropy settles"
    return line + f"to step {preset.resample_steps:,}" + (f", then convolutions are frozen {how}" if frozen else "")


@torch.no_grad()
def accuracy(network: nn.Module, samples: Bits, *, hard: bool, whole_batches: int = 0) -> float:
    """The share of samples whose class the network finds, relaxed or hard.

    `whole_batches=n` drops a last batch of fewer than n samples.
    """
    network.eval()
    counted = len(samples) - len(samples) % (whole_batches or 1)
    right = torch.zeros((), dtype=torch.int64, device=samples.y.device)  # which the host asks for once
    with contextlib.nullcontext() if hard else relaxed(network):
        for x, y in samples.in_order(EVALUATION_BATCH.get(samples.y.device.type, 256), first=counted):
            right += (network(x).argmax(1) == y).sum()
    return int(right) / max(counted, 1)


def _metrics(
    network: nn.Sequential, task: Task, options: Options, resampler: Resampler, run: Run, loss_sum: Tensor
) -> dict[str, Any]:
    """A line of metrics.jsonl; `loss_sum` has gathered since the last one."""
    dropped = task.train.batch if options.protocol == "paper" else 0
    top = [torch.softmax(layer.weight.detach(), 1).amax(1) for layer in logic_layers(network)]
    metrics = {
        "step": run.step,
        "loss": float(loss_sum) / (run.step - run.evaluated),
        "soft": accuracy(network, task.held_out, hard=False, whole_batches=dropped),
        "hard": accuracy(network, task.held_out, hard=True, whole_batches=dropped),
        "measured_on": "test" if options.protocol == "paper" else "validation",
        "entropy": [float(kernels.entropy(layer.weight.detach()).mean()) for layer in logic_layers(network)],
        "dominated": [float((t >= resampler.rule.dominant).float().mean()) for t in top],
        "dispersed": [float((t <= resampler.rule.dispersed).float().mean()) for t in top],
        "redrawn": [int(count) for count in resampler.redrawn],
        "redrawn_share": sum(map(int, resampler.redrawn)) / sum(map(len, top)),
        "frozen": [layer.frozen for layer in logic_layers(network)],
    }
    run.evaluated = run.step
    return metrics


def _check_finite(losses: Tensor, step: int) -> None:
    """Nothing is written of a run that has diverged."""
    if not losses.isfinite().all():
        raise ConfigError(
            f"the loss is no longer a number at step {step:,}: the run has diverged, ask for a smaller rate"
        )


def _check_same(network: nn.Module, step: int, place: Place) -> None:
    """All processes have the same network: processors that round differently would part without a word."""
    if place.ranks == 1:
        return
    digest = hashlib.sha256()
    for tensor in network.state_dict().values():
        digest.update(tensor.cpu().numpy().tobytes())
    if not parallel.same(digest.hexdigest(), place):
        raise ConfigError(
            f"the processes no longer have the same weights at step {step:,}: start them on machines of one kind"
        )


def _check(preset: Preset, options: Options) -> None:
    check(preset)
    if options.protocol not in PROTOCOLS:
        raise ConfigError(f"protocol is one of {', '.join(PROTOCOLS)}, not {options.protocol!r}")
    if not 0 < options.validation < 1:
        raise ConfigError(f"validation is a share between 0 and 1, not {options.validation}")
    if not 0 <= options.seed < 2**63:
        raise ConfigError(f"seed is a whole number from 0 to 2**63 - 1, not {options.seed}")
    if options.precision not in PRECISIONS:
        raise ConfigError(f"precision is one of {', '.join(PRECISIONS)}, not {options.precision!r}")


def holds_run(out: Path) -> bool:
    """Whether there is a run in the folder."""
    try:
        return any((out / name).exists() for name in ("last.safetensors", "best.safetensors", "model.gatewise"))
    except OSError as error:
        raise FileError(f"the folder {out} cannot be used: {error.strerror}") from error


def _claim(out: Path, resume: bool) -> int | None:
    """Make the folder and lock it while the returned descriptor is open; never start anew over a run that is there."""
    there = holds_run(out)
    if resume and not (there and (out / "last.safetensors").exists()):
        raise FileError(f"there is nothing to resume in {out}: it has no last.safetensors")
    if not resume and there:
        raise FileError(f"{out} holds a run already: add --resume to go on, or choose another folder with --out")
    try:
        out.mkdir(parents=True, exist_ok=True)
        lock = lock_folder(out)
    except OSError as error:
        raise FileError(f"the folder {out} cannot be used: {error.strerror}") from error
    remove_parts(out)
    return lock


def _noise_seed(seed: int, step: int) -> int:
    first, second, *_ = draws.philox(seed, step, draws.NOISE, torch.zeros((), dtype=torch.int64))
    return int(first) << 31 | int(second) >> 1


def start_optimizer(optimizer: torch.optim.Optimizer) -> None:
    """Let Adam make its moments now: without a gradient nothing moves, and a checkpoint always holds the same names."""
    for group in optimizer.param_groups:
        for weight in group["params"]:
            zeros = torch.zeros_like(weight)
            step = torch.zeros((), dtype=torch.float32, device=weight.device)
            optimizer.state[weight] = {"step": step, "exp_avg": zeros, "exp_avg_sq": zeros.clone()}


def _state(
    network: nn.Module, optimizer: torch.optim.Optimizer, resampler: Resampler, hardener: Hardener, losses: Tensor
) -> dict[str, Any]:
    return {
        "network": dict(network.state_dict()),
        "optimizer": checkpoint.optimizer_state(optimizer),
        "resampler": resampler.state_dict(),
        "hardener": hardener.state_dict(),
        "loss": {"sum": losses},
    }


def _header(preset: Preset, options: Options, run: Run, task: Task, place: Place) -> dict[str, Any]:
    return {
        "preset": dataclasses.asdict(preset),
        "options": dataclasses.asdict(options),
        "run": dataclasses.asdict(run),
        "data": task.fingerprint,
        "ranks": place.ranks,
    }


def _restore(
    out: Path, preset: Preset, options: Options, task: Task, network: nn.Module, optimizer: torch.optim.Optimizer,
    resampler: Resampler, hardener: Hardener, loss_sum: Tensor, place: Place,
) -> Run:  # fmt: skip
    """Fill everything from last.safetensors; a run may be given more steps, but no other field may differ."""
    path = out / "last.safetensors"
    header = checkpoint.header(path)
    for name, now, then in _differences(header, preset, options):
        raise ConfigError(f"{path} was made with {name}={then!r}, not {now!r}: resume with the same settings")
    if header.get("data") != task.fingerprint:
        raise FileError(f"{path} was made with other data: give the run the data that it began with")
    if (ranks := header.get("ranks", 1)) != place.ranks:  # the batch of all together would not be what it was
        raise ConfigError(f"{path} was made by {ranks} processes, not {place.ranks}: resume with as many")
    losses = parallel.all_of(loss_sum, place)
    saved = checkpoint.load(path, _state(network, optimizer, resampler, hardener, losses))
    network.load_state_dict(saved["network"])
    checkpoint.load_optimizer_state(optimizer, saved["optimizer"])
    resampler.load_state_dict(saved["resampler"])
    hardener.load_state_dict(saved["hardener"])
    loss_sum.copy_(saved["loss"]["sum"].view(-1)[place.rank])
    run = Run(**header["run"])
    if run.step > preset.steps:
        raise ConfigError(f"the run in {out} has done {run.step:,} steps already, which is more than {preset.steps:,}")
    if run.best_step >= 0:
        checkpoint.header(out / "best.safetensors")  # better to miss it now than at the end
    return run


def _differences(header: dict[str, Any], preset: Preset, options: Options) -> Iterator[tuple[str, Any, Any]]:
    for part, now in (("preset", preset), ("options", options)):
        then = header.get(part)
        for name, value in json.loads(json.dumps(dataclasses.asdict(now))).items():
            old = then.get(name) if isinstance(then, dict) else None
            if name not in ("steps", "device") and old != value:
                yield name, value, old
