"""Slurm's jobs, as submitit runs them on a machine without Slurm."""

import os
import signal
import sys
from dataclasses import replace

import pytest
from grids import compared, grid, trained
from processes_of import alive, command, pids, trainers, until

from engram.app.runs import Cluster, Store
from engram.errors import EngramError
from listeners import Heard
from processes import started


def jobs(folder):
    """Return the processes of the jobs whose files lie below a folder."""
    return [
        pid
        for pid in pids()
        if "submitit.core._submit" in command(pid) and str(folder) in command(pid)
    ]


@pytest.fixture
def cluster(tmp_path):
    shared = tmp_path / "shared"
    return Cluster("slurm", workers=2, shared=shared, slurm={"cluster": "local"})


class Disturbing(Heard):
    """Takes a job's machine away, as Slurm tells it to, and kills another's process."""

    def __init__(self, folder):
        super().__init__()
        self.folder, self.done, self.submitted = folder, [], set()

    def ended(self, unit, failure):
        super().ended(unit, failure)
        self.submitted |= {*self.folder.glob("shared/*/jobs/*submitted.pkl")}
        if len(self.ends) >= 3 and not self.done:
            os.kill(jobs(self.folder)[0], signal.SIGUSR2)
            self.done.append("pre-empted")
        elif len(self.ends) >= 6 and len(self.done) == 1 and trainers(jobs(self.folder)):
            os.kill(trainers(jobs(self.folder))[0], signal.SIGKILL)
            self.done.append("killed")


def test_runs_of_jobs_that_are_preempted_and_killed_are_those_of_a_local_run(
    cluster, table, tmp_path
):
    specs = grid(table, ("van", "mega-ii"))
    undisturbed = trained(specs, 5, tmp_path / "local.sqlite")
    heard = Disturbing(tmp_path)
    path = tmp_path / "slurm.sqlite"
    assert trained(specs, 5, path, cluster=cluster, heard=heard, every=0.1) == undisturbed
    assert heard.done == ["pre-empted", "killed"]
    assert len(heard.submitted) == 2  # a job that is pre-empted is started again by Slurm
    until(lambda: not jobs(tmp_path))
    assert not list((tmp_path / "shared").iterdir())


def test_no_job_outlives_a_driver_that_is_killed(table, tmp_path):
    code = (
        "import sys; from engram.app.runs import agent; "
        "usual = agent.Orders.__init__.__defaults__; "
        "agent.Orders.__init__.__defaults__ = (1.0, 15.0, *usual[2:]); "
        "from engram.app.cli import main; main()"
    )
    words = ["run", f"table:{table}", "van", "--seeds", "2", "--device", "cpu"]
    words += ["--set", "target=kind", "--set", "task=part", "--set", "batch_size=1"]
    words += ["--executor", "slurm", "--workers", "2", "--shared", tmp_path / "shared"]
    words += ["--slurm", "cluster=local", "--store", tmp_path / "store.sqlite"]
    with started([sys.executable, "-c", code, *map(str, words)], cwd=tmp_path) as driver:
        held = until(lambda: trainers(jobs(tmp_path)) or driver.poll() is not None)
        driver.kill()
        driver.wait(timeout=180)
    assert held is not True, "the driver ended by itself"
    until(lambda: not jobs(tmp_path) and not any(map(alive, held)))
    with Store(tmp_path / "store.sqlite") as store:
        assert compared(store.rows()) == {}


def test_no_slurm_is_one_sentence(table, tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    cluster = Cluster("slurm", workers=1, shared=tmp_path)
    with pytest.raises(EngramError, match="There is no Slurm on this machine"):
        trained(grid(table), 1, tmp_path / "s.sqlite", cluster=cluster)


def test_an_option_that_cannot_be_is_one_sentence_and_leaves_nothing(cluster, table, tmp_path):
    for name, value in (("acount", "physics"), ("timeout_min", "ten")):
        given = replace(cluster, slurm={"cluster": "local", name: value})
        with pytest.raises(EngramError, match=f"slurm has an option that cannot be: .*{name}"):
            trained(grid(table), 1, tmp_path / "s.sqlite", cluster=given)
    assert not list((tmp_path / "shared").iterdir())


def test_data_that_jobs_have_not_is_sent_once_for_all(cluster, table, tmp_path):
    specs = grid(table, ("van",))
    local = trained(specs, 1, tmp_path / "local.sqlite")
    away = table.with_name("away.csv")

    class Hidden(Heard):
        def staffed(self, workers, nodes):
            super().staffed(workers, nodes)
            if table.exists():
                table.rename(away)

    heard = Hidden()
    assert trained(specs, 1, tmp_path / "s.sqlite", cluster=cluster, heard=heard) == local
    assert not table.exists()
