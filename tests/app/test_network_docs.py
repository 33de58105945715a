"""The page on networks is true: its files and its commands are run, in one folder."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from engram.app.runs import Store
from engram.app.studies import read_study
from engram.lab.benchmarks import benchmark

PAGE = Path(__file__).parents[2] / "docs" / "networks.md"
TEXT = PAGE.read_text("utf-8")
EVERY = re.findall(r"(?m)^    engram (.+)$", TEXT)
COMMANDS = [command for command in EVERY if "examples/" not in command]  # those need CIFAR-100
MODULE, SCRIPT = re.findall(r"(?s)```python\n(.+?)```", TEXT)
(STUDY,) = re.findall(r"(?s)```toml\n(.+?)```", TEXT)


@pytest.fixture
def place(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tiny.py").write_text(MODULE)
    (tmp_path / "networks.toml").write_text(STUDY)
    return tmp_path


@pytest.mark.slow
def test_every_command_does_what_it_says(place, engram, quick_figures):  # noqa: ARG001
    assert len(COMMANDS) == 6
    for command in COMMANDS:
        code, _, err = engram(*shlex.split(command), "--device", "cpu")
        assert code == 0, err
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


def test_whole_runs_are_those_of_the_study_beside_the_networks():
    examples = PAGE.parents[1] / "examples"
    files = [examples / "resnet18.py", examples / "vit.py"]
    study = read_study(str(examples / "networks.toml"), files)
    given = [(runs.network, dict(runs.network_settings)) for runs in study.runs]
    asked = [command for command in EVERY if command.startswith("run split-cifar")]
    assert len(asked) == 2
    for command, (network, arguments) in zip(asked, given, strict=False):
        words = [f"--network-set {name}={value}" for name, value in arguments.items()]
        known = " ".join(["--network", f"examples/{network}", *words])
        assert command == f"run split-cifar mega-ii {known} --seeds 5 --device cuda"
    assert given[2:] == [(None, {})]
    assert {(runs.benchmark, runs.methods, runs.seeds) for runs in study.runs} == {
        ("split-cifar", ("mega-ii",), 5)
    }


def test_shapes_are_those_of_the_streams():
    for name, shape, outputs in (("permuted-mnist", (784,), 10),):
        stream = benchmark(name).build([0], 1, 10)
        assert (stream.shape, stream.classes) == (shape, outputs)
        assert f"| Permuted MNIST | {shape} | {outputs} |" in TEXT
