"""The page on networks is true: its files and its commands are run, in one folder."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from engram.app.runs import Store
from engram.lab.benchmarks import benchmark

PAGE = Path(__file__).parents[2] / "docs" / "networks.md"
TEXT = PAGE.read_text("utf-8")
COMMANDS = re.findall(r"(?m)^    engram (.+)$", TEXT)
MODULE, SCRIPT = re.findall(r"(?s)```python\n(.+?)```", TEXT)
(STUDY,) = re.findall(r"(?s)```toml\n(.+?)```", TEXT)


@pytest.fixture
def place(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tiny.py").write_text(MODULE)
    (tmp_path / "networks.toml").write_text(STUDY)
    return tmp_path


QUICK = ["--tasks", "2", "--examples", "20", "--seeds", "1", "--set", "curve_images=100"]


def run_all(engram, *more):
    for command in COMMANDS:
        words = shlex.split(command)
        reduced = more if words[0] != "reproduce" else ()
        code, _, err = engram(*words, *reduced, "--device", "cpu")
        assert code == 0, err


def test_every_command_is_accepted(place, engram, executor, quick_figures):  # noqa: ARG001
    assert len(COMMANDS) == 6
    (place / "networks.toml").write_text(STUDY.replace("examples = 100", "examples = 20"))
    run_all(engram, *QUICK)


@pytest.mark.slow
def test_every_command_does_what_it_says(place, engram, quick_figures):  # noqa: ARG001
    run_all(engram)
    with Store(place / "engram-results" / "store.sqlite", read_only=True) as store:
        rows = store.rows()
    networks = [row.outcome["facts"].get("network") for row in rows]
    assert {"tiny.py:Tiny", "tiny.py:Tiny width=64", "mlp", None} < set(networks)
    assert {row.identity["settings"].get("optimizer") for row in rows} == {None, "adamw"}


@pytest.mark.slow
def test_the_script_trains_the_network(place):
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT], cwd=place, capture_output=True, text=True, check=True
    )
    assert done.stdout.startswith("tiny:Tiny width=16 [0.")


def test_shapes_are_those_of_the_streams():
    for name, shape, outputs in (("permuted-mnist", (784,), 10),):
        stream = benchmark(name).build([0], 1, 10)
        assert (stream.shape, stream.classes) == (shape, outputs)
        assert f"| Permuted MNIST | {shape} | {outputs} |" in TEXT
