"""Units run in parallel processes; what fails, dies or is stopped takes nothing else with it."""

import json
import os
import re
import sqlite3
import sys
import time
from pathlib import Path

import pytest
from fake_laboratory import unit_of

from engram.app.runs import (
    Store,
    Unit,
    check_disk,
    check_seeds,
    execute,
    plan_units,
    resolve_device,
)
from engram.errors import EngramError
from engram.lab import protocol
from listeners import Heard
from processes import started

HERE = Path(__file__).parent


@pytest.fixture
def specs(laboratory):
    """Make a spec of the fake laboratory with the given settings."""

    def make(method="van", **settings):
        texts = {key: str(value) for key, value in settings.items()}
        return laboratory.specify("permuted-mnist", method, tasks=2, overrides=texts)

    return make


def test_every_seed_of_every_method_is_trained_once_on_all_cores(store, laboratory, specs):
    before = os.environ.get("OMP_NUM_THREADS")
    chosen = [specs("van", sleep=0.2), specs("mega-i", sleep=0.2)]
    units = plan_units(chosen, range(3), store, device="cpu")
    heard = Heard()
    arguments = {"device": "cpu", "command": "engram run", "listener": heard}
    assert execute(units, store, laboratory.run, **arguments) == 0
    names = {f"{method}, seed {seed}" for method in ("van", "mega-i") for seed in range(3)}
    assert set(heard.stored) == names == {name for name, _ in heard.progress}
    assert len(heard.stored) == 6
    for row in store.rows():
        spec = laboratory.specify("permuted-mnist", row.identity["method"], tasks=2)
        assert row.outcome["accuracy"] == laboratory.accuracies(spec, row.seed)
        assert row.outcome["facts"]["threads"] == "1"
        assert (
            {"engram", "python", "torch"}
            <= set(row.versions)
            <= {"engram", "python", "torch", "commit"}
        )
    workers = {row.outcome["facts"]["pid"] for row in store.rows()}
    assert len(workers) == min(6, len(os.sched_getaffinity(0)))
    assert os.getpid() not in workers
    assert os.environ.get("OMP_NUM_THREADS") == before


def test_a_store_that_takes_no_results_is_told_before_anything_is_trained(
    tmp_path, laboratory, specs, make_row
):
    path = tmp_path / "store.sqlite"
    with Store(path) as made:
        made.add([make_row("van", 0, tasks=2)])
        units = plan_units([specs()], range(2), made, device="cpu")
    heard = Heard()
    arguments = {"device": "cpu", "command": "engram run", "listener": heard}
    with Store(path) as store:
        store._connection.close()  # as SQLite opens a file that may only be read, by root too
        store._connection = sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True)
        store._connection.isolation_level = None
        with pytest.raises(EngramError, match="cannot be used: attempt to write a readonly"):
            execute(units, store, laboratory.run, **arguments)
        assert execute([], store, laboratory.run, **arguments) == 0  # there is nothing to write
    assert heard.progress == heard.failed == []


def test_what_the_store_has_is_left_out_unless_asked_for(store, specs, make_row):
    store.add([make_row("van", 1, tasks=2)])

    def planned(**options):
        units = plan_units([specs()], range(3), store, device="cpu", **options)
        return [unit.seeds for unit in units]

    assert planned() == [(0,), (2,)]
    assert planned(again=True) == [(0,), (1,), (2,)]


def test_seeds_are_one_unit_where_they_stack(store, specs, make_row):
    store.add([make_row("van", 1, tasks=2)])
    units = plan_units([specs()], range(5), store, device="cuda")
    assert [unit.seeds for unit in units] == [(0, 2, 3, 4)]


def test_runs_that_may_differ_in_a_setting_are_one_unit_up_to_what_a_device_takes(
    store, laboratory
):
    trials = laboratory.tuning_specs("permuted-mnist", "mega-i")
    others = laboratory.tuning_specs("permuted-mnist", "mega-i", examples=100)
    units = plan_units([*trials, *others], range(2), store, device="cuda")
    planned = [(spec, seed) for spec in trials for seed in range(2)]
    assert len(planned) > 5
    assert [run for unit in units for run in unit.runs] == [
        *planned,
        *((spec, seed) for spec in others for seed in range(2)),
    ]
    assert max(len(unit.runs) for unit in units) - min(len(unit.runs) for unit in units) <= 1
    assert len(units) == 2 * -(-len(planned) // 5)
    assert all(len({spec.examples for spec in unit.specs}) == 1 for unit in units)
    assert units[0].name == f"mega-i, {len(units[0].runs)} runs"
    assert len(plan_units(trials, range(2), store, device="cpu")) == len(planned)


@pytest.mark.parametrize("most", range(1, 9))
def test_what_is_left_of_a_search_is_cut_as_it_was(most, store, specs, monkeypatch):
    """Or else what was saved of the current unit is not found again."""
    monkeypatch.setattr(protocol, "stacking", lambda *_: (most, "as a test wants it"))
    spec = specs()

    def parts(seeds):
        units = plan_units([spec], seeds, store, device="cuda")
        return [[seed for _, seed in unit.runs] for unit in units]

    for count in range(60):
        cut = parts(range(count))
        assert [seed for part in cut for seed in part] == [*range(count)]
        assert len(cut) == -(-count // most)
        if cut:
            sizes = [len(part) for part in cut]
            assert max(sizes) - min(sizes) <= 1 <= max(sizes) <= most
            assert parts(range(sizes[0], count)) == cut[1:]


def test_every_run_of_a_unit_is_filed_under_its_own_settings(store, laboratory):
    trials = laboratory.tuning_specs("permuted-mnist", "mega-i")
    unit = Unit(tuple((spec, seed) for spec in trials for seed in (1, 0)))
    arguments = {"device": "cpu", "command": "engram tune", "listener": Heard()}
    assert execute([unit], store, laboratory.run, **arguments) == 0
    filed = [(dict(row.identity), row.seed, row.outcome["accuracy"]) for row in store.rows()]
    made = [
        (json.loads(json.dumps(spec.identity())), seed, laboratory.accuracies(spec, seed))
        for spec, seed in unit.runs
    ]
    assert filed == made
    assert len({identity["settings"]["epsilon"] for identity, _, _ in filed}) == len(trials) > 1


@pytest.mark.slow
def test_a_unit_that_goes_wrong_leaves_the_others_alone(store, laboratory, specs):
    reasons = {
        "raise": r"^RuntimeError at fake_laboratory\.py:\d+: two lines .\[31m$",
        "exit": "exit code 3",  # after a second try, as the next one
        "kill": "SIGKILL",
        "nonsense": "finite numbers only",
    }
    units = [unit_of(specs(fault=fault), (seed,)) for seed in (0, 1) for fault in reasons]
    heard = Heard()
    arguments = {"device": "cpu", "command": "engram run", "listener": heard}
    assert execute(units, store, laboratory.run, **arguments) == len(heard.failed) == 5
    failed = {(unit.specs[0].settings["fault"], *unit.seeds) for unit, _ in heard.failed}
    assert failed == {*((fault, 0) for fault in reasons), ("nonsense", 1)}
    tried_again = {(name, line.endswith("It is run again.")) for name, line in heard.lines}
    assert (len(heard.lines), tried_again) == (2, {("van, seed 0", True)})
    for unit, reason in heard.failed:
        assert re.search(reasons[unit.specs[0].settings["fault"]], reason)
        assert reason.isprintable()
    assert {row.identity["settings"]["fault"] for row in store.rows()} == {"raise", "exit", "kill"}
    assert {row.seed for row in store.rows()} == {1}


_PARENT = """
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
import fake_laboratory
import engram
engram.lab.protocol = sys.modules["engram.lab.protocol"] = fake_laboratory
from engram.app.runs import Store, execute, plan_units
class Deaf:
    def advanced(self, unit, progress): pass
    def ended(self, unit, failure): pass
texts = {"trace": sys.argv[3], "sleep": "60"}
spec = fake_laboratory.specify("permuted-mnist", "van", tasks=2, overrides=texts)
with Store(Path(sys.argv[2])) as store:
    units = plan_units([spec], range(2), store, device="cpu")
    execute(units, store, fake_laboratory.run, device="cpu", command="c", listener=Deaf())
"""


def _alive(pid):
    try:
        os.kill(pid, 0)
        return "Z" not in Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except (ProcessLookupError, FileNotFoundError):
        return False


def _until(condition, seconds=60):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.02)


def _workers(trace):
    return (
        [json.loads(line)[2] for line in trace.read_text().splitlines()] if trace.exists() else []
    )


@pytest.mark.slow
def test_workers_die_with_a_parent_that_is_killed(tmp_path):
    trace, path = tmp_path / "trace", tmp_path / "store.sqlite"
    with started([sys.executable, "-c", _PARENT, str(HERE), str(path), str(trace)]) as parent:
        _until(lambda: len(_workers(trace)) == min(2, len(os.sched_getaffinity(0))))
        workers = _workers(trace)
        assert all(map(_alive, workers))
        parent.kill()
        parent.wait(timeout=10)
        _until(lambda: not any(map(_alive, workers)), 30)
    with Store(path) as store:
        assert store.rows() == []


def test_seeds_are_at_least_one():
    check_seeds(1)
    for count in (0, -1):
        with pytest.raises(EngramError, match=f"at least 1, not {count}"):
            check_seeds(count)


def test_a_full_disk_is_refused_before_training(tmp_path):
    path = tmp_path / "not" / "yet" / "store.sqlite"
    check_disk(path, tasks=20, runs=20)
    with pytest.raises(EngramError, match=r"5,000 tasks .* has 1 GiB left"):
        check_disk(path, tasks=5000, runs=20, free=lambda _: 2**30)
    with pytest.raises(EngramError, match="has 1 MiB left"):
        check_disk(path, tasks=1, runs=1, free=lambda _: 2**20)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["gpu", "", "cpu:x", "meta", "mps", "cuda:99", "CPU\n"])
def test_a_device_that_is_not_there_is_refused(name):
    with pytest.raises(EngramError, match="device "):
        resolve_device(name)


def test_devices_that_are_there():
    assert resolve_device("cpu") == "cpu"
    assert resolve_device("auto") in ("cpu", "cuda")
