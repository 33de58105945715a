"""Faults that are made, not imagined: what was killed, cut off or starved ends as if it was not."""

import json
import os
import resource
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest
from harness import SUBJECTS, in_a_process, result, train

from engram.app.runs import Store
from engram.lab.methods import names
from processes import started
from tools.docs import reliability

HERE = Path(__file__).parent


def test_the_page_has_the_counts():
    counts = json.loads(reliability.COUNTS.read_text())
    assert reliability.PAGE.read_text() == reliability.filled(reliability.PAGE.read_text(), counts)
    assert counts["cpu"]["identical"] == counts["cpu"]["kills"] >= 100
    assert all(each["percent"] < 1 for each in counts["cost"]["stacked"].values())


@pytest.mark.slow
def test_a_hundred_kills_end_with_the_same_bits(tmp_path):
    command = [sys.executable, str(HERE / "harness.py"), str(tmp_path / "counts.json"), "100"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    # Not all of the hundred lines: what stands at the end of a long log is cut off at times.
    told = [line for line in done.stdout.splitlines() if " same: " not in line]
    assert done.returncode == 0, "\n".join([*told, done.stderr])
    counts = json.loads((tmp_path / "counts.json").read_text())["cpu"]
    assert (counts["kills"], counts["identical"]) == (100, 100)
    assert set(names()) <= set(counts["methods"])
    assert len(counts["methods"]) == len(SUBJECTS)
    assert counts["places"].pop("a random moment") == 50
    assert min(counts["places"].values()) >= 7


@pytest.fixture
def expected(tmp_path):
    def of(subject):
        with tempfile.TemporaryDirectory(dir=tmp_path) as folder:
            return result(subject, Path(folder), None)

    return of


@pytest.mark.slow
def test_two_processes_that_do_the_same_in_one_store_disturb_nobody(tmp_path, expected):
    subject = ("tiny", "mega-ii")
    (tmp_path / "both").mkdir()
    both = [in_a_process(lambda: train(subject, tmp_path / "both", 0.0)) for _ in range(2)]
    assert [os.waitpid(process, 0)[1] for process in both] == [0, 0]
    with Store(tmp_path / "both" / "store.sqlite", read_only=True) as store:
        rows = [(row.address, row.seed, row.outcome) for row in store.rows()]
    alone, _ = expected(subject)
    assert len(rows) in (2, 4)  # the slower one may have found the results of the other
    assert all(row in alone for row in rows)


@pytest.mark.slow
def test_a_disk_that_is_full_when_the_results_come_loses_nothing(tmp_path, expected):
    subject, folder = ("tiny", "rwalk"), tmp_path / "full"
    folder.mkdir()

    def starved():
        add = Store.add

        def fill_up(self, rows, **more):
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))
            return add(self, rows, **more)

        Store.add = fill_up
        train(subject, folder, 0.0)

    _, status = os.waitpid(in_a_process(starved), 0)
    assert os.waitstatus_to_exitcode(status) == 1  # one sentence, and the checkpoint stays
    assert any((folder / "store-checkpoints").iterdir())
    assert result(subject, folder) == expected(subject)


def engram(folder, *more):
    words = ["run", "permuted-mnist", "mega-ii", "--tasks", "3", "--examples", "2000"]
    options = ["--seeds", "2", "--device", "cpu", "--json", "--set", "curve_images=500"]
    command = [Path(sys.executable).parent / "engram", *words, *options, *more]
    return started(command, cwd=folder)


def workers_of(parent):
    """Return the processes that train for a command."""
    children = Path(f"/proc/{parent}/task/{parent}/children").read_text().split()
    return [
        int(child)
        for child in children
        if "spawn_main" in Path(f"/proc/{child}/cmdline").read_text()
    ]


def values(output):
    (entry,) = json.loads(output)["results"]
    return entry["average_accuracy"]["values"], entry["forgetting"]["values"]


@pytest.mark.slow
def test_a_command_that_is_stopped_and_loses_a_worker_ends_the_same(tmp_path):
    for name in ("left-alone", "stopped"):
        (tmp_path / name).mkdir()
    with engram(tmp_path / "left-alone") as process:
        undisturbed = process.communicate()[0]
    folder = tmp_path / "stopped" / "engram-results" / "store-checkpoints"
    with engram(tmp_path / "stopped", "--checkpoint-every", "0.5") as stopped:
        while not (folder.exists() and any(folder.glob("*.previous.safetensors"))):
            assert stopped.poll() is None
            time.sleep(0.05)
        stopped.send_signal(signal.SIGTERM)
        out, err = stopped.communicate(timeout=120)
    assert (stopped.returncode, out) == (75, "")
    assert err.splitlines()[-1].startswith("Stopped: ")
    assert any(folder.iterdir())
    with engram(tmp_path / "stopped", "--checkpoint-every", "0.5") as again:
        while not (workers := workers_of(again.pid)):
            assert again.poll() is None
            time.sleep(0.05)
        time.sleep(1)
        os.kill(workers[0], signal.SIGKILL)
        out, err = again.communicate()
    assert "It is run again." in err
    assert "Traceback" not in err
    assert values(out) == values(undisturbed)
    assert not folder.exists()
