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

    def ended(self, unit, failure):
        super().ended(unit, failure)
        done = len(self.ends)
        if done == 24:
            self.nodes.remove_node(self.nodes.engram_nodes.pop(), allow_graceful=False)
            self.killed.append("node")
        elif done % 8 == 0 and done <= 56:
            kind = "trainer" if done % 32 == 8 else "agent"  # too few for two under one run
            holders = agents()
            among = trainers(holders) if kind == "trainer" else holders
            os.kill(self.source.choice(among), signal.SIGKILL)
            self.killed.append(kind)


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
    assert heard.killed.count("node") == 1
    assert len(heard.killed) == 7
    assert any("It is run again." in line for _, line in heard.lines)
    assert max(nodes for _, nodes in heard.staff) == 2
    assert not list((tmp_path / "shared").glob("*-checkpoints/*"))
    until(lambda: not agents())


def engram(*words):
    return [sys.executable, "-m", "engram", *map(str, words)]


def command(table, folder, address, seeds):
    return engram(
        *("run", f"table:{table}", "mega-ii", "--seeds", seeds, "--device", "cpu"),
        *("--set", "target=kind", "--set", "task=part", "--set", "batch_size=2"),
        *("--executor", f"ray:{address}", "--workers", 2, "--shared", folder / "shared"),
        *("--store", folder / "store.sqlite", "--checkpoint-every", "0.5"),
    )


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 75), (signal.SIGKILL, -9)])
def test_no_worker_outlives_its_driver_and_the_same_command_goes_on(
    two_nodes, table, tmp_path, number, code
):
    saved = tmp_path / "shared"
    with started(command(table, tmp_path, two_nodes.address, 2), cwd=tmp_path) as driver:
        until(lambda: list(saved.glob("*/*/*.safetensors")) or driver.poll() is not None)
        workers = trainers(agents())
        assert workers
        driver.send_signal(number)
        _, err = driver.communicate(timeout=60)
    assert driver.returncode == code, err
    until(lambda: not agents() and not any(map(alive, workers)))
    if number is signal.SIGKILL:
        return
    assert "goes on from where the rest was saved" in err
    assert list(saved.glob("*/*/*.safetensors"))
    with started(command(table, tmp_path, two_nodes.address, 2), cwd=tmp_path) as driver:
        _, err = driver.communicate(timeout=120)
    assert driver.returncode == 0, err
    assert not list(saved.glob("*/*"))
    local = trained([long_spec(table)], 2, tmp_path / "local.sqlite")
    with Store(tmp_path / "store.sqlite") as store:
        assert compared(store.rows()) == local[0]


def long_spec(table):
    settings = {"target": "kind", "task": "part", "batch_size": "2"}
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
    with pytest.raises(EngramError, match=r"There is no Ray cluster at '127\.0\.0\.1:1'"):
        trained(grid(table), 1, tmp_path / "s.sqlite", cluster=Cluster("ray:127.0.0.1:1"))


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


def test_a_plugin_travels_where_it_is_trusted(two_nodes, table, tmp_path):
    folder = tmp_path / "mine"
    folder.mkdir()
    (folder / "halves.py").write_text(PLUGIN)
    (folder / "helping.py").write_text("SHARE = 0.5\n")
    words = ["run", f"table:{table}", "half", "--seeds", 2, "--device", "cpu"]
    words += ["--set", "target=kind", "--set", "task=part", "--plugin", folder / "halves.py"]
    there = ["--executor", f"ray:{two_nodes.address}", "--workers", 2]

    def answer(store, *more):
        command = engram(*words, "--store", tmp_path / store, *more)
        with started(command, cwd=tmp_path) as driver:
            _, err = driver.communicate(timeout=120)
        return driver.returncode, err

    code, err = answer("none.sqlite", *there)
    assert code == 2
    assert "unless you trust it to be run there: --trust-plugins" in err
    assert answer("local.sqlite")[0] == 0
    code, err = answer("ray.sqlite", *there, "--trust-plugins")
    assert code == 0, err
    found = []
    for name in ("local.sqlite", "ray.sqlite"):
        with Store(tmp_path / name) as store:
            found.append(compared(store.rows()))
    assert found[0] == found[1]
    assert len(found[0]) == 2
    assert all("rules/half" in identity["plugins"] for _, identity, _, _ in found[0].values())
