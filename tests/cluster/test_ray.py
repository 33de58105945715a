"""What Ray's workers make is what this machine's make, whatever dies meanwhile."""

import os
import random
import signal
import sys
from pathlib import Path

import pytest
from grids import compared, grid, trained
from processes_of import agents, alive, trainers, until

from engram.app.runs import Cluster, Store
from engram.errors import EngramError
from engram.lab import protocol
from listeners import Heard
from processes import started

HERE = Path(__file__).parent
SEEDS = 20


@pytest.fixture
def cluster(two_nodes, tmp_path):
    return Cluster(f"ray:{two_nodes.address}", workers=4, shared=tmp_path / "shared")


class Killing(Heard):
    """Kills a worker's process, or all that holds it, and once a whole node, as runs are stored."""

    def __init__(self, nodes, seed):
        super().__init__()
        self.nodes, self.source, self.killed = nodes, random.Random(seed), []
        # After so many runs; too few of a worker's process alone for two under one run.
        kinds = ["trainer", "agent", "node", "agent", "trainer", "agent", "agent"]
        self.due = [(8 * number, kind) for number, kind in enumerate(kinds, start=1)]

    def ended(self, unit, failure):
        super().ended(unit, failure)
        if not self.due or len(self.ends) < self.due[0][0]:
            return
        kind = self.due[0][1]
        if kind == "node":
            self.nodes.remove_node(self.nodes.engram_nodes.pop(), allow_graceful=False)
        else:
            holders = agents()
            among = trainers(holders) if kind == "trainer" else holders
            if not among:  # all of them were killed, or are not there yet: after the next run
                return
            os.kill(self.source.choice(among), signal.SIGKILL)
        self.killed.append(self.due.pop(0)[1])


def test_sixty_runs_under_kills_are_those_of_a_local_run(cluster, two_nodes, table, tmp_path):
    specs = grid(table)
    undisturbed = trained(specs, SEEDS, tmp_path / "local.sqlite")
    heard = Killing(two_nodes, seed=1)
    disturbed = trained(
        specs, SEEDS, tmp_path / "ray.sqlite", cluster=cluster, heard=heard, every=0.1
    )
    assert disturbed == undisturbed
    rows, count, failures = disturbed
    assert (len(rows), count, failures) == (60, 60, 0)
    assert [heard.killed.count(kind) for kind in ("node", "agent", "trainer")] == [1, 4, 2]
    assert any("It is run again." in line for _, line in heard.lines)
    assert max(nodes for _, nodes in heard.staff) == 2
    assert not list((tmp_path / "shared").glob("*-checkpoints/*"))
    until(lambda: not agents())


def engram(*words):
    return [sys.executable, "-m", "engram", *map(str, words)]


def command(table, folder, address):
    """Three runs of seconds for two workers: however late a signal comes, one is left."""
    return engram(
        *("run", f"table:{table}", "mega-ii", "--seeds", 3, "--device", "cpu"),
        *("--set", "target=kind", "--set", "task=part", "--set", "batch_size=1"),
        *("--executor", f"ray:{address}", "--workers", 2, "--shared", folder / "shared"),
        *("--store", folder / "store.sqlite", "--checkpoint-every", "0.1"),
    )


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 75), (signal.SIGKILL, -9)])
def test_no_worker_outlives_its_driver_and_the_same_command_goes_on(
    two_nodes, table, tmp_path, number, code
):
    saved = tmp_path / "shared"
    with started(command(table, tmp_path, two_nodes.address), cwd=tmp_path) as driver:
        until(lambda: list(saved.glob("*/*/*.safetensors")) or driver.poll() is not None)
        workers = trainers(agents())
        assert workers
        driver.send_signal(number)
        _, err = driver.communicate(timeout=180)
    assert driver.returncode == code, err
    until(lambda: not agents() and not any(map(alive, workers)))
    if number is signal.SIGKILL:
        return
    assert "goes on from where the rest was saved" in err
    assert list(saved.glob("*/*/*.safetensors"))
    with started(command(table, tmp_path, two_nodes.address), cwd=tmp_path) as driver:
        _, err = driver.communicate(timeout=180)
    assert driver.returncode == 0, err
    assert not list(saved.glob("*/*"))
    local = trained([long_spec(table)], 3, tmp_path / "local.sqlite")
    with Store(tmp_path / "store.sqlite") as store:
        assert compared(store.rows()) == local[0]


def long_spec(table):
    settings = {"target": "kind", "task": "part", "batch_size": "1"}
    return protocol.specify(f"table:{table}", "mega-ii", overrides=settings)


def test_a_worker_whose_data_differs_is_refused_by_name(cluster, table, tmp_path, monkeypatch):
    monkeypatch.setattr("engram.app.runs.remote.SMALL", 0)  # nothing travels unasked
    specs = grid(table)
    for spec in specs:
        spec.identity()  # is that of the table as it is now
    table.write_text(table.read_text().replace("\n0.3", "\n0.4"))
    with pytest.raises(EngramError, match=r"No worker is left.* is refused: its data of table:.*"):
        trained(specs, 1, tmp_path / "store.sqlite", cluster=cluster)


def test_data_that_workers_have_not_travels_with_the_work(cluster, table, tmp_path):
    specs = grid(table)
    local = trained(specs, 1, tmp_path / "local.sqlite")
    away = table.with_name("away.csv")

    class Hidden(Heard):
        def staffed(self, workers, nodes):
            super().staffed(workers, nodes)
            if table.exists():
                table.rename(away)

    assert trained(specs, 1, tmp_path / "ray.sqlite", cluster=cluster, heard=Hidden()) == local
    assert not table.exists()


def test_no_cluster_is_one_sentence(tmp_path, table, ray_cluster):  # noqa: ARG001
    before = dict(os.environ)
    with pytest.raises(EngramError, match=r"No Ray cluster can be used at '127\.0\.0\.1:1'"):
        trained(grid(table), 1, tmp_path / "s.sqlite", cluster=Cluster("ray:127.0.0.1:1"))
    assert dict(os.environ) == before


def test_a_token_that_is_missing_is_one_sentence(table, tmp_path, ray_cluster):
    words = ("run", f"table:{table}", "van", "--executor", f"ray:{ray_cluster.address}")
    words += ("--set", "target=kind", "--set", "task=part", "--store", tmp_path / "s.sqlite")
    environment = {**os.environ, "RAY_AUTH_MODE": "token", "HOME": str(tmp_path)}
    with started(engram(*words), cwd=tmp_path, env=environment) as driver:
        _, err = driver.communicate(timeout=180)
    assert (driver.returncode, err.count("\n")) == (2, 1), err
    assert "no authentication token was found" in err


NETWORK = """
from torch.nn import Flatten, Linear, Sequential

from sizes import WIDTH


def small(shape, outputs):
    return Sequential(Flatten(), Linear(shape[0], WIDTH), Linear(WIDTH, outputs))
"""
PLUGIN = """
from dataclasses import dataclass

import torch

from engram.rules import Rule, register
from helping import SHARE


@dataclass(frozen=True)
class Half(Rule):
    needs_gram = False
    reference = "pooled"

    def weigh(self, losses, gram):
        return torch.full_like(losses, SHARE)


register("half", Half)
"""


STUDY = """
title = "Mine"
plugins = ["halves.py"]

[executor]
name = "ray:ADDRESS"
trust_plugins = true

[[runs]]
benchmark = "table:TABLE"
methods = ["half"]
seeds = 2
network = "nets.py:small"
settings = { target = "kind", task = "part" }
"""


def test_a_study_trains_there_with_a_plugin_and_a_network_that_travel(two_nodes, table, tmp_path):
    folder = tmp_path / "mine"  # where the commands are given too: Ray lets workers import from it
    folder.mkdir()
    (folder / "halves.py").write_text(PLUGIN)
    (folder / "helping.py").write_text("SHARE = 0.5\n")
    (folder / "nets.py").write_text(NETWORK)
    (folder / "sizes.py").write_text("WIDTH = 5\n")
    text = STUDY.replace("TABLE", str(table)).replace("ADDRESS", two_nodes.address)
    (folder / "mine.toml").write_text(text)

    def answer(*words):
        with started(engram(*words, "--device", "cpu"), cwd=folder) as driver:
            out, err = driver.communicate(timeout=180)
        assert driver.returncode == 0, err
        return " ".join(f"{out} {err}".split())

    study = ["reproduce", "mine.toml", "--trust", "nets.py", "--store", "ray.sqlite"]
    where = f"on ray:{two_nodes.address} with 4 workers"
    assert f"2 of 2 runs to do on cpu, {where}" in answer(*study, "--dry-run")
    assert f"Mine: 2 of 2 runs to do, {where}." in answer(*study)
    words = ["run", f"table:{table}", "half", "--seeds", 2, "--store", "local.sqlite"]
    words += ["--set", "target=kind", "--set", "task=part", "--plugin", "halves.py"]
    answer(*words, "--network", "nets.py:small")
    found = []
    for name in ("local.sqlite", "ray.sqlite"):
        with Store(folder / name) as store:
            found.append(compared(store.rows()))
    assert found[0] == found[1]
    assert len(found[0]) == 2
    for _, identity, _, _ in found[0].values():
        assert "rules/half" in identity["plugins"]
        assert identity["network"]["name"] == "small"
