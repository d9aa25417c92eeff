"""The C core as C: no warnings, no undefined behaviour, no out-of-bounds access, and a library that can be missing."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SOURCES = ROOT / "src" / "gatewise" / "csrc"
LEVELS = {"baseline": [], "avx2": ["-mavx2", "-mfma"]}
LEVELS["avx512"] = ["-mavx512f", "-mavx512dq", "-mavx512vl", "-mavx512bw", "-mfma", "-mprefer-vector-width=512"]
PROGRAMS = ["core_test.c", "engine_test.c"]
STRICT = ["-std=gnu11", "-Wall", "-Wextra", "-Werror"]

needs_gcc = pytest.mark.skipif(shutil.which("gcc") is None, reason="no gcc")


def build(folder: Path, *flags: str, compiler: str = "gcc", levels: dict[str, list[str]] = LEVELS) -> list[str]:
    """Compile the core with these flags, its kernels for these levels; → the object files."""
    jobs = [(source, source.stem, []) for source in SOURCES.glob("*.c") if not source.stem.endswith("_kernels")]
    for source in SOURCES.glob("*_kernels.c"):
        jobs += [(source, f"{source.stem}_{name}", [f"-DGW_LEVEL={name}", *wide]) for name, wide in levels.items()]
    objects = []
    for source, target, wide in jobs:
        objects.append(str(folder / f"{target}.o"))
        command = [compiler, *STRICT, *flags, *wide, "-fPIC", "-c", str(source), "-o", objects[-1]]
        subprocess.run(command, check=True, capture_output=True, text=True)
    return objects


@needs_gcc
@pytest.mark.parametrize("optimisation", ["-O0", "-O3"])
def test_the_core_compiles_without_a_warning(tmp_path, optimisation):
    assert build(tmp_path, optimisation)


@needs_gcc
@pytest.mark.skipif(os.uname().machine != "x86_64", reason="the sanitizer test names x86 levels")
def test_the_core_is_clean_under_address_and_undefined_behaviour_sanitizers(tmp_path):
    checked = ["-O0", "-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=all"]
    objects = build(tmp_path, *checked)
    for test in PROGRAMS:
        program = link(tmp_path, test, objects, *checked)
        done = subprocess.run([program], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        assert "cases checked" in done.stdout
        # The same program reads past an array when told to, to show that this would be caught.
        faulty = subprocess.run([program, "overrun"], capture_output=True, text=True, check=False)
        assert faulty.returncode != 0
        assert "heap-buffer-overflow" in faulty.stderr


ARM = "aarch64-linux-gnu-gcc"


@pytest.mark.skipif(shutil.which(ARM) is None, reason=f"no {ARM} (Debian: gcc-aarch64-linux-gnu)")
def test_the_core_builds_for_arm_and_computes_the_same_there(tmp_path):
    objects = build(tmp_path, "-O3", compiler=ARM, levels={"baseline": []})
    programs = [link(tmp_path, test, objects, "-O1", "-static", compiler=ARM) for test in PROGRAMS]
    code = subprocess.run([ARM.replace("gcc", "objdump"), "-d", *objects], capture_output=True, text=True, check=True)
    assert re.search(r"\band\s+v\d+\.16b", code.stdout), "gates run on NEON registers"
    emulator = shutil.which("qemu-aarch64") or shutil.which("qemu-aarch64-static")
    if emulator is None:
        pytest.skip("it builds; no qemu-aarch64 to run it (Debian: qemu-user)")
    for program in programs:
        done = subprocess.run([emulator, program], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        assert "cases checked" in done.stdout


def link(folder: Path, test: str, objects: list[str], *flags: str, compiler: str = "gcc") -> str:
    """A test program linked with the core; → where it is."""
    program = folder / Path(test).stem
    source = str(Path(__file__).with_name(test))
    command = [compiler, *STRICT, *flags, f"-I{SOURCES}", source, *objects, "-o", str(program), "-lm"]
    subprocess.run(command, check=True, capture_output=True, text=True)
    return str(program)


def test_without_the_library_the_reference_runs_and_one_line_says_so(tmp_path):
    copy = tmp_path / "gatewise"
    shutil.copytree(ROOT / "src" / "gatewise", copy, ignore=shutil.ignore_patterns("*.so", "__pycache__"))
    code = (
        "import torch, gatewise\n"
        "layer = gatewise.LogicDense(8, 16)\n"
        "for _ in range(3): layer(torch.rand(4, 8)).sum().backward()\n"
        "print('trained', layer.weight.grad.abs().sum() > 0)\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert "trained tensor(True)" in done.stdout
    assert done.stderr.count("the plain PyTorch kernels run") == 1
    assert "make core" in done.stderr
