"""What importing costs, and what there is to import."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = sorted((Path(__file__).parents[1] / "examples").glob("*.py"))


def test_the_core_needs_torch_and_numpy_alone():
    code = (
        "import sys, engram; "
        "heavy = {'typer', 'click', 'rich', 'matplotlib', 'safetensors', 'scipy'}; "
        "sys.exit(', '.join(heavy & set(sys.modules)) or 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.name)
def test_an_example_needs_public_names_alone(example):
    imports = re.findall(r"(?m)^\s*(?:from|import) engram.*", example.read_text("utf-8"))
    assert [line for line in imports if re.search(r"\b_\w", line)] == []
