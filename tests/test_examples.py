"""What the README and examples/ show is run as it stands there."""

import os
import re
import subprocess
import sys
from pathlib import Path

import gatewise

ROOT = Path(__file__).parents[1]
PACKAGE = Path(gatewise.__file__).parents[1]


def run(folder: Path, *arguments: str) -> str:
    environment = {**os.environ, "PYTHONPATH": str(PACKAGE)}
    command = [sys.executable, *arguments]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_readme_example_runs_and_reaches_nine_of_ten(tmp_path):
    (block,) = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    (tmp_path / "readme.py").write_text(block)
    assert float(run(tmp_path, "readme.py")) > 0.9


def test_the_examples_run(tmp_path):
    said = run(tmp_path, str(ROOT / "examples" / "own_loop.py"), "--steps", "120", "--out", "m.gatewise")
    assert "BOPs" in said
    said = run(tmp_path, str(ROOT / "examples" / "predict.py"), "m.gatewise")
    assert "test samples are right" in said


def test_documents_have_no_dead_links_and_nothing_left_to_fill_in():
    documents = [path for folder in (".", "docs", "experiments") for path in (ROOT / folder).glob("*.md")]
    assert len(documents) >= 5
    for document in documents:
        text = document.read_text()
        assert not re.findall(r"\b(?:TODO|MNIST_[A-Z]+|MEASURED)\b", text), document
        for link in re.findall(r"\]\(([^)#:]+)\)", text):
            assert (document.parent / link).exists(), f"{document}: {link}"
