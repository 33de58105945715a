"""Where commands run: a folder with a bit of everything, and nothing slow."""

import os
import shutil

import pytest
import typer
from fuzz_files import furnish

from engram.app import report, runs
from engram.app.cli import app
from engram.lab import bench, protocol
from engram.lab.data import download

COMMAND = typer.main.get_command(app.app)  # once: it takes longer than most commands


def _no_training(units, store, run, *, command, checkpoint_every=60.0, **_):  # noqa: ARG001
    """Store what training would; of more than a few tasks, fail."""
    runs.check_interval(checkpoint_every)
    failures = 0
    for unit in units:
        size = unit.specs[0].tasks
        if size > 20 or len(unit.seeds) > 20:
            failures += 1
            continue
        matrix = [[0.5] * (task + 1) + [None] * (size - task - 1) for task in range(size)]
        made = [
            protocol.Outcome(seed, matrix, [[0.1]] * size, 1.0, "cpu", {}) for seed in unit.seeds
        ]
        store.add(
            [
                runs.record(spec, outcome, command)
                for spec, outcome in zip(unit.specs, made, strict=True)
            ]
        )
    return failures


def _no_network(*_, **__):
    raise OSError("there is no network")


@pytest.fixture(scope="module")
def template(tmp_path_factory):
    """A folder with a store, files of results, a study and a table in it."""
    folder = tmp_path_factory.mktemp("template")
    furnish(folder)
    (folder / "empty").write_bytes(b"")
    rows = [f"{'ab'[n % 2]},{n // 6},{n}" for n in range(24)]
    (folder / "table.csv").write_text("\n".join(["y,t,x", *rows]))
    (folder / "study.toml").write_text(
        'title = "Mine"\n[[runs]]\nbenchmark = "permuted-mnist"\nmethods = ["van"]\n'
        "seeds = 1\ntasks = 2\nexamples = 10\n"
    )
    with runs.Store(folder / "store.sqlite") as store:
        spec = protocol.specify("permuted-mnist", "van", tasks=2, examples=10)
        units = runs.plan_units([spec], range(2), store, device="cpu")
        _no_training(units, store, None, command="engram run")
        runs.write_lines(store.rows(), folder / "lines.jsonl")
    return folder


@pytest.fixture
def world(template, tmp_path, monkeypatch):
    """Where a command runs, with nothing slow in it; a call makes it anew."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("ENGRAM_DATA", "")
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr(app, "app", COMMAND)
    monkeypatch.setattr(runs, "execute", _no_training)
    monkeypatch.setattr(report, "save_plot", lambda *_: None)
    monkeypatch.setattr("engram.app.report.html.write_report", lambda *_: "figures")
    monkeypatch.setattr(bench, "measure", lambda *_: iter([("steps", [{"method": "van"}])]))
    monkeypatch.setattr(download, "_opener", _no_network)
    monkeypatch.setattr(download, "_PAUSE", 0)
    folder = tmp_path / "world"

    def make():
        os.environ["ENGRAM_DATA"] = ""
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(template, folder, symlinks=True)
        monkeypatch.chdir(folder)
        return folder

    return make
