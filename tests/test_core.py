"""The C core as C: no warnings, no undefined behaviour, no out-of-bounds access, and a library that can be missing."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SOURCES = ROOT / "src" / "gatewise" / "csrc"
LEVELS = {"baseline": [], "avx2": ["-mavx2", "-mfma"]}
LEVELS["avx512"] = ["-mavx512f", "-mavx512dq", "-mavx512vl", "-mavx512bw", "-mfma", "-mprefer-vector-width=512"]
STRICT = ["-std=gnu11", "-Wall", "-Wextra", "-Werror"]

needs_gcc = pytest.mark.skipif(shutil.which("gcc") is None, reason="no gcc")


def build(folder: Path, *flags: str) -> list[str]:
    """Compile the core for every level with these flags; → the object files."""
    jobs = [(f"{name}.c", f"{name}.o", []) for name in ("train", "xag", "cuts", "rewrite")]
    jobs += [("train_kernels.c", f"{name}.o", [f"-DGW_LEVEL={name}", *wide]) for name, wide in LEVELS.items()]
    for source, target, wide in jobs:
        command = ["gcc", *STRICT, *flags, *wide, "-fPIC", "-c", str(SOURCES / source), "-o", str(folder / target)]
        subprocess.run(command, check=True, capture_output=True, text=True)
    return [str(folder / target) for _, target, _ in jobs]


@needs_gcc
@pytest.mark.parametrize("optimisation", ["-O0", "-O3"])
def test_the_core_compiles_without_a_warning(tmp_path, optimisation):
    assert build(tmp_path, optimisation)


@needs_gcc
@pytest.mark.skipif(os.uname().machine != "x86_64", reason="the sanitizer test names x86 levels")
def test_the_kernels_are_clean_under_address_and_undefined_behaviour_sanitizers(tmp_path):
    checked = ["-O1", "-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=all"]
    objects = build(tmp_path, *checked)
    program = str(tmp_path / "core_test")
    test = str(Path(__file__).with_name("core_test.c"))
    subprocess.run(["gcc", *STRICT, *checked, f"-I{SOURCES}", test, *objects, "-o", program, "-lm"], check=True)
    done = subprocess.run([program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "cases checked" in done.stdout
    # The same program reads one float past an array when told to, to show that this would be caught.
    faulty = subprocess.run([program, "overrun"], capture_output=True, text=True, check=False)
    assert faulty.returncode != 0
    assert "heap-buffer-overflow" in faulty.stderr


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
