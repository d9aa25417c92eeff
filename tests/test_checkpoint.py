"""A run that is killed, stopped or out of disk at any moment goes on as if nothing had happened."""

from __future__ import annotations

import errno
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from runs import (
    STAGES,
    Both,
    DieWhileSaving,
    Done,
    ListWrites,
    SaveEachStep,
    SignalAtStep,
    SmallFiles,
    Trap,
    assert_one_sentence,
    assert_same_run,
    contents,
    flags,
    gatewise,
    metrics,
    monks_files,
    respect_permissions,
)

from gatewise import checkpoint
from gatewise.errors import FileError
from gatewise.files import PART, lock_folder, read_arrays
from gatewise.presets import Options

pytestmark = pytest.mark.skipif(os.name != "posix", reason="signals and process limits are those of POSIX")

# 20 steps, the last save of which is no multiple of anything: evaluations at 10, 20, 25.
STEPS = 25


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a run that nothing disturbed."""
    folder = tmp_path_factory.mktemp("whole")
    assert gatewise("train", "digits", *flags(steps=STEPS), "--out", "run", cwd=folder).code == 0
    return folder / "run"


@pytest.fixture
def begun(whole: Path, tmp_path: Path) -> Path:
    """The folder of a run that was killed at step 15 of 25, its last save at step 10."""
    done = gatewise("train", "digits", *flags(steps=STEPS), "--out", "run", cwd=tmp_path, trap=KILL_AT_15)
    assert done.code == -signal.SIGKILL
    assert checkpoint.header(tmp_path / "run" / "last.safetensors")["run"]["step"] == 10
    return tmp_path / "run"


KILL_AT_15 = SignalAtStep(15, (signal.SIGKILL,))


def resume(folder: Path, *more: str | Path, steps: int = STEPS, trap: Trap | None = None) -> Done:
    """`gatewise train digits --resume` on a run's folder."""
    words = ["train", "digits", *flags(steps=steps), "--out", folder, "--resume", *more]
    return gatewise(*words, cwd=folder.parent, trap=trap)


def test_a_killed_run_goes_on_as_if_it_had_not_stopped(whole: Path, begun: Path) -> None:
    assert resume(begun).code == 0
    assert_same_run(begun, whole)


def test_two_runs_of_different_seeds_are_told_apart(whole: Path, tmp_path: Path) -> None:
    assert gatewise("train", "digits", *flags(steps=STEPS, seed=1), "--out", "run", cwd=tmp_path).code == 0
    with pytest.raises(AssertionError, match=r"best\.safetensors differs"):
        assert_same_run(tmp_path / "run", whole)


def test_a_run_killed_at_random_moments_ends_like_one_that_was_not(tmp_path: Path) -> None:
    words = ["train", "digits", *flags(steps=600, eval_every=40, dense=(300, 300))]
    command = [sys.executable, "-m", "gatewise.cli", *words, "--out", "run"]
    lines = tmp_path / "run" / "metrics.jsonl"

    def written() -> int:
        return lines.read_bytes().count(b"\n") if lines.exists() else 0

    killed = []
    for _ in range(3):
        again = ["--resume"] if (tmp_path / "run" / "last.safetensors").exists() else []
        process = subprocess.Popen([*command, *again], cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        before, deadline = written(), time.monotonic() + 60
        while written() <= before and process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.005)
        time.sleep(random.uniform(0, 0.3))
        process.kill()
        process.communicate()
        killed.append(process.returncode)
    assert killed.count(-signal.SIGKILL) >= 2, f"the run was over too soon: {killed}"
    last = subprocess.run([*command, "--resume"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert last.returncode == 0, last.stderr
    assert gatewise(*words, "--out", "undisturbed", cwd=tmp_path).code == 0
    shutil.rmtree(tmp_path / ".printed")
    assert_same_run(tmp_path / "run", tmp_path / "undisturbed")


@pytest.fixture(scope="module")
def writes(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The files that a run writes, in order."""
    folder = tmp_path_factory.mktemp("writes")
    names = folder / "names"
    done = gatewise("train", "digits", *flags(steps=STEPS), "--out", "run", cwd=folder, trap=ListWrites(names))
    assert done.code == 0
    return names.read_text().splitlines()


@pytest.mark.parametrize("stage", STAGES)
def test_a_run_killed_in_the_middle_of_any_save_goes_on(
    stage: str, whole: Path, writes: list[str], tmp_path: Path
) -> None:
    assert {"metrics.jsonl", "best.safetensors", "last.safetensors", "model.gatewise", "report.json"} == set(writes)
    last = len(writes) - 1 - writes[::-1].index("last.safetensors")
    first = writes.index("best.safetensors")
    chosen = [first, first + 1, last - 1, last, len(writes) - 2, len(writes) - 1]
    for file in chosen:
        run = tmp_path / f"run-{file}"
        words = ["train", "digits", *flags(steps=STEPS), "--out", run]
        done = gatewise(*words, cwd=tmp_path, trap=DieWhileSaving(file, stage))
        assert done.code == -signal.SIGKILL, f"{file}: {done.err}"
        left_over = list(run.glob(PART))
        assert len(left_over) == (stage != "renamed"), f"killed while saving {writes[file]}"
        for saved in run.glob("*.safetensors"):
            assert checkpoint.header(saved)["run"]["step"] >= 0
        again = ["--resume"] if (run / "last.safetensors").exists() else []
        assert again or file <= first + 1
        assert gatewise(*words, *again, cwd=tmp_path).code == 0
        assert_same_run(run, whole)


@pytest.mark.slow
def test_a_run_that_is_killed_in_every_save_of_every_step_goes_on(whole: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    for attempt in range(100):
        again = ["--resume"] if (run / "last.safetensors").exists() else []
        # Writes 0 and 1 are metrics.jsonl being started and trimmed: let the run do one save, then die in the next.
        trap = Both(SaveEachStep(), DieWhileSaving(3 if again else 4, STAGES[attempt % 3]))
        done = gatewise("train", "digits", *flags(steps=STEPS), "--out", run, *again, cwd=tmp_path, trap=trap)
        if done.code == 0:
            break
        assert done.code == -signal.SIGKILL, done.err
    assert attempt > 10
    assert_same_run(run, whole)


def test_saving_between_evaluations_changes_nothing(whole: Path, tmp_path: Path) -> None:
    words = ["train", "digits", *flags(steps=STEPS), "--out", tmp_path / "run"]
    assert gatewise(*words, cwd=tmp_path, trap=SaveEachStep()).code == 0
    assert_same_run(tmp_path / "run", whole)


@pytest.mark.parametrize("step", [3, 9, 10, 17])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=["ctrl-c", "terminate"])
def test_a_run_that_is_stopped_saves_says_how_to_go_on_and_goes_on(
    number: int, step: int, whole: Path, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    words = ["train", "digits", *flags(steps=STEPS), "--out", "run"]
    done = gatewise(*words, cwd=tmp_path, trap=SignalAtStep(step, (number,)))
    assert done.code == 130
    assert done.err.splitlines()[-1] == (
        f"stopped at step {step + 1} of {STEPS}; --resume goes on from there (run folder: run)"
    )
    assert done.out == ""
    assert checkpoint.header(run / "last.safetensors")["run"]["step"] == step + 1
    assert gatewise(*words, "--resume", cwd=tmp_path).code == 0
    assert_same_run(run, whole)


def test_ctrl_c_in_the_last_step_lets_the_run_end(whole: Path, tmp_path: Path) -> None:
    words = ["train", "digits", *flags(steps=STEPS), "--out", "run"]
    assert gatewise(*words, cwd=tmp_path, trap=SignalAtStep(STEPS - 1)).code == 0
    assert_same_run(tmp_path / "run", whole)


def test_a_second_ctrl_c_stops_at_once_and_loses_no_more_than_a_kill(whole: Path, tmp_path: Path) -> None:
    words = ["train", "digits", *flags(steps=STEPS), "--out", "run"]
    done = gatewise(*words, cwd=tmp_path, trap=SignalAtStep(15, (signal.SIGINT, signal.SIGINT)))
    assert done.code not in (0, 2)
    assert "Traceback" not in done.err
    assert checkpoint.header(tmp_path / "run" / "last.safetensors")["run"]["step"] == 10
    assert gatewise(*words, "--resume", cwd=tmp_path).code == 0
    assert_same_run(tmp_path / "run", whole)


def test_a_finished_run_can_be_resumed_and_stays_as_it_is(whole: Path) -> None:
    before = contents(whole)
    assert resume(whole).code == 0
    assert contents(whole) == before


def test_a_metrics_line_that_was_cut_off_or_is_later_than_the_checkpoint_is_written_again(
    whole: Path, begun: Path
) -> None:
    lines = (whole / "metrics.jsonl").read_text().splitlines(keepends=True)
    (begun / "metrics.jsonl").write_text("".join(lines[:2]) + lines[2][:40])
    assert resume(begun).code == 0
    assert_same_run(begun, whole)


@pytest.mark.parametrize(
    ("flag", "value", "words"),
    [
        ("--rate", "0.03", "rate=0.02, not 0.03"),
        ("--seed", "5", "seed=0, not 5"),
        ("--dense", "240,120,70", "dense=[240, 120, 60], not [240, 120, 70]"),
        ("--protocol", "paper", "protocol='validation', not 'paper'"),
        ("--eval-every", "5", "eval_every=10, not 5"),
        ("--resample-steps", "7", "resample_steps=1000, not 7"),
    ],
)
def test_resuming_with_another_setting_is_refused(flag: str, value: str, words: str, begun: Path) -> None:
    before = contents(begun)
    assert_one_sentence(resume(begun, flag, value), "last.safetensors", words, "resume with the same settings")
    assert contents(begun) == before


def test_resuming_with_the_checkpoint_of_another_preset_is_refused(begun: Path, tmp_path: Path) -> None:
    data = monks_files(tmp_path / "monks")
    done = gatewise("train", "monks-1", *flags(), "--data", data, "--out", "other", cwd=tmp_path)
    assert done.code == 0, done.err
    shutil.copy(tmp_path / "other" / "last.safetensors", begun)
    before = contents(begun)
    assert_one_sentence(resume(begun), "holds a run of monks-1, not of digits")
    assert contents(begun) == before


def test_resuming_with_fewer_steps_than_are_done_is_refused(begun: Path) -> None:
    before = contents(begun)
    assert_one_sentence(resume(begun, steps=9), "has done 10 steps already", "more than 9")
    assert contents(begun) == before


def test_resuming_where_there_is_no_run_is_refused(tmp_path: Path) -> None:
    assert_one_sentence(resume(tmp_path / "run"), "nothing to resume", "last.safetensors")
    assert not (tmp_path / "run").exists()


def test_starting_over_a_run_is_refused(begun: Path) -> None:
    before = contents(begun)
    done = gatewise("train", "digits", *flags(), "--out", begun, cwd=begun.parent)
    assert_one_sentence(done, "holds a run already", "--resume", "--out")
    assert contents(begun) == before


def _cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-100])


def _empty(path: Path) -> None:
    path.write_bytes(b"")


def _flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[-1000] ^= 1
    path.write_bytes(content)


def _replace(path: Path) -> None:
    path.write_bytes(b"PK\x03\x04" + os.urandom(5000))


def _remove(path: Path) -> None:
    path.unlink()
    path.mkdir()


@pytest.mark.parametrize("damage", [_cut, _empty, _flip, _replace, _remove])
@pytest.mark.parametrize("name", ["last.safetensors", "best.safetensors"])
def test_a_damaged_checkpoint_is_named_and_nothing_is_touched(name: str, damage: object, begun: Path) -> None:
    damage(begun / name)  # type: ignore[operator]
    before = contents(begun)
    assert_one_sentence(resume(begun), name)
    assert contents(begun) == before


def test_the_best_network_is_no_checkpoint_to_go_on_from(begun: Path) -> None:
    shutil.copy(begun / "best.safetensors", begun / "last.safetensors")
    assert_one_sentence(resume(begun), "last.safetensors has no optimizer.0")


def test_a_state_of_another_shape_or_type_or_with_a_part_missing_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "some.safetensors"
    state = {"a": {"weight": torch.ones(2, 3)}, "b": [torch.tensor(4), 5]}
    checkpoint.save(path, state, {"preset": None})
    loaded = checkpoint.load(path, {"a": {"weight": torch.zeros(2, 3)}, "b": [torch.tensor(0), 0]})
    torch.testing.assert_close(loaded, {"a": {"weight": torch.ones(2, 3)}, "b": [torch.tensor(4), 5]}, rtol=0, atol=0)
    with pytest.raises(FileError, match=r"has a\.weight of torch\.float32 \[2, 3\], but this run needs .* \[3, 2\]"):
        checkpoint.load(path, {"a": {"weight": torch.zeros(3, 2)}})
    with pytest.raises(FileError, match=r"but this run needs torch\.float64"):
        checkpoint.load(path, {"a": {"weight": torch.zeros(2, 3, dtype=torch.float64)}})
    with pytest.raises(FileError, match=r"has no b\.2: it was made by another network"):
        checkpoint.load(path, {"b": [0, 0, 0]})
    with pytest.raises(FileError, match="does not say what it was trained with"):
        checkpoint.settings(path)


def test_a_checkpoint_says_which_preset_it_was_trained_with(whole: Path) -> None:
    row, options = checkpoint.settings(whole / "best.safetensors")
    assert options == Options()
    assert (row.name, row.dense, row.steps) == ("digits", (240, 120, 60), STEPS)


@pytest.mark.parametrize("size", [3_000, 60_000])
def test_a_file_that_cannot_grow_stops_the_run_and_leaves_the_last_good_checkpoint(
    size: int, whole: Path, begun: Path
) -> None:
    assert size < (begun / "best.safetensors").stat().st_size
    before = contents(begun)
    assert_one_sentence_at_the_end(resume(begun, trap=SmallFiles(size)), "cannot be written", os.strerror(errno.EFBIG))
    after = contents(begun)
    for name in ("last.safetensors", "best.safetensors"):
        assert after[name] == before[name]
    assert not list(begun.glob(PART))
    assert resume(begun).code == 0
    assert_same_run(begun, whole)


def assert_one_sentence_at_the_end(done: Done, *words: str) -> None:
    """As `assert_one_sentence`, after the lines that the run printed while all was well."""
    lines = done.err.splitlines()
    assert all(line.startswith(("step ", "digits: ")) for line in lines[:-1]), done.err
    assert_one_sentence(Done(done.code, done.out, lines[-1]), *words)


def test_a_run_that_diverges_stops_and_writes_nothing_of_it(tmp_path: Path) -> None:
    done = gatewise("train", "digits", *flags(rate=1e300), "--out", "run", cwd=tmp_path)
    assert_one_sentence_at_the_end(done, "the loss is no longer a number at step 10: the run has diverged")
    assert checkpoint.header(tmp_path / "run" / "last.safetensors")["run"]["step"] == 0


def test_resuming_keeps_the_settings_that_are_not_given_again(begun: Path, whole: Path, tmp_path: Path) -> None:
    done = gatewise("train", "digits", "--out", begun, "--resume", cwd=tmp_path)
    assert done.code == 0, done.err
    assert_same_run(begun, whole)


def test_two_runs_do_not_share_a_folder(begun: Path, tmp_path: Path) -> None:
    before = contents(begun)
    lock = lock_folder(begun)
    assert lock is not None
    try:
        assert_one_sentence(resume(begun), "another process is at work in")
    finally:
        os.close(lock)
    assert contents(begun) == before
    assert resume(begun).code == 0


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A folder that is a disk of its own, of 2 MB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    try:
        done = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", folder], capture_output=True)
    except FileNotFoundError:
        pytest.skip("there is no mount command")
    if done.returncode:
        pytest.skip("only root may mount a disk")
    yield folder
    subprocess.run(["umount", "-l", folder], check=True)


def test_a_run_whose_disk_is_full_stops_and_goes_on_once_there_is_room(whole: Path, small_disk: Path) -> None:
    run = small_disk / "run"
    words = ["train", "digits", *flags(steps=STEPS), "--out", run]
    assert gatewise(*words, cwd=small_disk, trap=KILL_AT_15).code == -signal.SIGKILL
    free = shutil.disk_usage(small_disk).free
    (small_disk / "filler").write_bytes(bytes(free - 80_000))
    before = contents(run)
    assert_one_sentence_at_the_end(gatewise(*words, "--resume", cwd=small_disk), os.strerror(errno.ENOSPC))
    for name in ("last.safetensors", "best.safetensors"):
        assert contents(run)[name] == before[name]
    assert not list(run.glob(PART))
    (small_disk / "filler").unlink()
    assert gatewise(*words, "--resume", cwd=small_disk).code == 0
    assert_same_run(run, whole)


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for folder in ("file", "file/below", "n" * 300, f"{'n' * 300}/below", "/proc/run"):
        done = gatewise("train", "digits", *flags(), "--out", folder, cwd=tmp_path)
        assert_one_sentence(done, f"the folder {folder} cannot be used")
        assert_one_sentence(gatewise("train", "digits", *flags(), "--out", folder, "--resume", cwd=tmp_path), folder)


def test_a_folder_without_permission_is_named(begun: Path) -> None:
    try:
        begun.chmod(0o555)
        assert_one_sentence(resume(begun, trap=respect_permissions), str(begun), os.strerror(errno.EACCES))
        begun.chmod(0o000)
        for again in ([], ["--resume"]):
            words = ["train", "digits", *flags(), "--out", begun / "below", *again]
            done = gatewise(*words, cwd=begun.parent, trap=respect_permissions)
            assert_one_sentence(done, str(begun / "below"), os.strerror(errno.EACCES))
    finally:
        begun.chmod(0o755)


def test_more_steps_on_resume_equal_a_run_that_had_them_from_the_start(tmp_path: Path) -> None:
    for steps, again in ((20, []), (40, ["--resume"])):
        done = gatewise("train", "digits", *flags(steps=steps), "--out", "run", *again, cwd=tmp_path)
        assert done.code == 0, done.err
    assert gatewise("train", "digits", *flags(steps=40), "--out", "straight", cwd=tmp_path).code == 0
    run, straight = tmp_path / "run", tmp_path / "straight"
    assert metrics(run) == metrics(straight)
    for name in ("last.safetensors", "model.gatewise", "report.json"):
        assert (run / name).read_bytes() == (straight / name).read_bytes()
    # Had the best come before step 20, its header would say steps=20.
    (arrays, header), (expected, expected_header) = (
        read_arrays(folder / "best.safetensors", checkpoint.FORMAT, checkpoint.VERSION) for folder in (run, straight)
    )
    assert {name: array.tobytes() for name, array in arrays.items()} == {
        name: array.tobytes() for name, array in expected.items()
    }
    assert header["run"] == expected_header["run"]


def test_a_loss_is_a_mean_over_the_steps_since_the_last_evaluation(tmp_path: Path) -> None:
    """Also where a run ended between two evaluations, and was then given more steps."""
    for steps, again in ((15, []), (30, ["--resume"])):
        assert gatewise("train", "digits", *flags(steps=steps), "--out", "run", *again, cwd=tmp_path).code == 0
    assert gatewise("train", "digits", *flags(steps=30, eval_every=5), "--out", "fine", cwd=tmp_path).code == 0
    loss = {line["step"]: line["loss"] for line in metrics(tmp_path / "run")}
    fine = {line["step"]: line["loss"] for line in metrics(tmp_path / "fine")}
    assert list(loss) == [10, 15, 20, 30]
    assert loss[10] == pytest.approx((fine[5] + fine[10]) / 2, rel=1e-5)
    assert loss[15] == pytest.approx(fine[15], rel=1e-5)
    assert loss[20] == pytest.approx(fine[20], rel=1e-5)
    assert loss[30] == pytest.approx((fine[25] + fine[30]) / 2, rel=1e-5)
    assert json.loads((tmp_path / "run" / "report.json").read_text())["best_step"] in loss
