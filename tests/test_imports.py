"""What importing costs: no torch for circuits and models, next to nothing for the package itself."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

MEASURE = """
import time
begin = time.perf_counter()
import gatewise
print(time.perf_counter() - begin)
"""


def output_of(program: str, *folders: Path) -> str:
    """What a fresh interpreter prints that finds modules in `folders` first."""
    known = [*map(str, folders), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(known)}
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True)
    return done.stdout


def assert_loads_no_torch(module: str, *folders: Path) -> None:
    program = f"import sys, {module}; print(sorted(m for m in sys.modules if m.split('.')[0] == 'torch'))"
    loaded = output_of(program, *folders).strip()
    assert loaded == "[]", f"importing {module} loads {loaded}"


@pytest.mark.parametrize("module", ["gatewise", "gatewise.circuit", "gatewise.model", "gatewise.compilation"])
def test_importing_loads_no_torch(module: str) -> None:
    assert_loads_no_torch(module)


def test_a_module_that_loads_torch_would_be_noticed(tmp_path: Path) -> None:
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch" / "__init__.py").write_text("")  # stands in for the real one, which takes seconds
    (tmp_path / "planted.py").write_text("import gatewise.circuit\nimport torch\n")
    with pytest.raises(AssertionError, match=r"importing planted loads .*torch"):
        assert_loads_no_torch("planted", tmp_path)


def test_importing_gatewise_takes_next_to_no_time() -> None:
    assert min(float(output_of(MEASURE)) for _ in range(5)) < 0.2
