"""What importing costs, and what there is to import."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

import engram

EXAMPLES = sorted((Path(__file__).parents[1] / "examples").glob("*.py"))


def run(code):
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


def test_the_core_needs_torch_and_numpy_alone():
    heavy = {"typer", "click", "rich", "matplotlib", "safetensors", "scipy"}
    loaded = set(run("import sys; from engram import *; Learner, memory; print(*sys.modules)"))
    assert "torch" in loaded
    assert loaded & heavy == set()


def test_the_command_line_answers_without_torch():
    code = "import sys; from engram.app.cli import main; sys.argv = ['engram', '--help']\n"
    told = run(f"{code}try: main()\nexcept SystemExit: print(*sys.modules)")
    assert {"Usage:", "typer"} <= set(told)
    assert "torch" not in told


def test_names_are_there_before_they_are_asked_for():
    told = run("import engram; print(*dir(engram)); assert engram.memory.Reservoir(3)")
    assert set(told) >= {*engram.__all__, "errors", "gradients"}
    assert run("import engram; print(engram.errors.EngramError.__name__)") == ["EngramError"]
    with pytest.raises(AttributeError, match="module 'engram' has no attribute 'Lerner'"):
        engram.Lerner  # noqa: B018


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.name)
def test_an_example_needs_public_names_alone(example):
    imports = re.findall(r"(?m)^\s*(?:from|import) engram.*", example.read_text("utf-8"))
    assert [line for line in imports if re.search(r"\b_\w", line)] == []
