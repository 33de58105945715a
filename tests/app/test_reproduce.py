"""``engram reproduce``: what is missing is run, once, whatever happens, and a report ends it."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import fake_laboratory
import pytest

from engram.cli import _reproduce
from engram.cli._reproduce import reproduce
from engram.errors import EngramError
from engram.report.html import _page
from engram.runs import Store, step_records
from engram.studies._published import Taken

HERE = Path(__file__).parent
STUDY = """
title = "Mine"

[[runs]]
benchmark = "permuted-mnist"
methods = ["van", "mega-ii"]
seeds = 2
tasks = 2
settings = { trace = "TRACE" }

[[runs]]
benchmark = "permuted-mnist"
methods = ["a-gem", "mega-ii"]
seeds = 3
tasks = 2
settings = { trace = "TRACE" }
"""
WANTED = {("van", 2), ("mega-ii", 3), ("a-gem", 3)}


@pytest.fixture(autouse=True)
def quick_figures(monkeypatch):
    monkeypatch.setattr(_page, "save_figure", lambda *_: [])  # they have tests of their own


@pytest.fixture
def study(tmp_path):
    """Write a study of ours to a file, with the trace of what is trained beside it."""

    def write(text=STUDY):
        path = tmp_path / "mine.toml"
        path.write_text(text.replace("TRACE", str(tmp_path / "trace")), "utf-8")
        return str(path)

    return write


@pytest.fixture
def ask(tmp_path, executor, capsys):
    """Reproduce a study; return the exit code and what was printed."""

    def ask(target, laboratory=fake_laboratory, **options):
        options = {"store": tmp_path / "results" / "store.sqlite", "device": "cpu", **options}
        code = reproduce(target, laboratory, executor=executor, **options)
        return code, *capsys.readouterr()

    return ask


def trained(folder):
    """Every run that was trained, in order: its method and its seed."""
    trace = folder / "trace"
    lines = trace.read_text().splitlines() if trace.exists() else []
    return [(method, seed) for method, seeds, *_ in map(json.loads, lines) for seed in seeds]


def page(folder):
    return re.sub(r"\d{4}-\d\d-\d\d", "today", (folder / "report.html").read_text("utf-8"))


def test_what_is_missing_is_run_once_and_the_report_ends_it(ask, study, tmp_path):
    code, out, err = ask(study())
    assert code == 0
    assert sorted(trained(tmp_path)) == sorted((m, seed) for m, n in WANTED for seed in range(n))
    assert "Mine: 8 of 8 runs to do." in err
    report = tmp_path / "results" / "report.html"
    assert out.splitlines()[0] == f"Report: {report}"
    assert "A-GEM" in report.read_text("utf-8")
    with Store(tmp_path / "results" / "store.sqlite") as store:
        assert {row.command for row in store.rows()} == {
            f"engram reproduce {tmp_path / 'mine.toml'} --device cpu"
        }
    before = page(report.parent)
    assert ask(study())[2].startswith("Mine: 0 of 8 runs to do.")
    assert len(trained(tmp_path)) == 8
    assert page(report.parent) == before
    ask(study(), seeds=4)  # in place of what the study says
    assert len(trained(tmp_path)) == 12


@pytest.fixture
def unpublished(monkeypatch):
    monkeypatch.setattr("engram.cli._study_table.published", list)


@pytest.mark.usefixtures("unpublished")
def test_a_dry_run_says_what_would_run_and_makes_nothing(ask, study, tmp_path):
    code, out, _ = ask(study(), dry_run=True)
    assert code == 0
    lines = [" ".join(line.split()) for line in out.splitlines()]
    assert lines[0] == "Mine"
    assert "permuted-mnist 2 55,000 mega-ii 3 3 unknown unknown" in lines
    assert re.search(r"8 of 8 runs to do on cpu.*: how long is unknown, as nothing", out)
    assert "*" not in out
    assert [path.name for path in tmp_path.iterdir()] == ["mine.toml"]


def test_what_no_store_can_tell_is_told_by_what_was_published(ask, study, monkeypatch):
    monkeypatch.setattr("os.sched_getaffinity", lambda _: {0})
    known = [
        Taken("NVIDIA H200", "permuted-mnist", "mega-ii", 2, 55_000, 1.0),
        Taken("cpu", "permuted-mnist", "mega-ii", 6, 55_000, 90.0),
        Taken("cpu", "permuted-mnist", "mega-ii", 20, 55_000, 9000.0),
        Taken("cpu", "permuted-mnist", "a-gem", 20, 55_000, 300.0),  # too far to tell
    ]
    monkeypatch.setattr("engram.cli._study_table.published", lambda: known)
    _, out, _ = ask(study(), dry_run=True)
    lines = [" ".join(line.split()) for line in out.splitlines()]
    assert "permuted-mnist 2 55,000 mega-ii 3 3 30 s* 90 s*" in lines
    assert "permuted-mnist 2 55,000 a-gem 3 3 unknown unknown" in lines
    assert "* Nothing like it is in the store; so long it took on a core of ours." in lines


@pytest.mark.usefixtures("unpublished")
def test_times_are_estimated_from_results_like_them(ask, study, monkeypatch):
    monkeypatch.setattr("os.sched_getaffinity", lambda _: {0, 1})
    ask(study(), seeds=1)
    # A run took 1.5 seconds, and three times as many tasks take three times as long.
    text = STUDY.replace(
        '["van", "mega-ii"]\nseeds = 2\ntasks = 2', '["van"]\nseeds = 9\ntasks = 6'
    )
    _, out, _ = ask(study(text.replace('"mega-ii"]', '"multi-task"]')), dry_run=True)
    lines = [" ".join(line.split()) for line in out.splitlines()]
    assert "permuted-mnist 6 55,000 van 9 9 4 s 40 s" in lines
    assert "permuted-mnist 2 55,000 a-gem 3 2 2 s 3 s" in lines
    assert "permuted-mnist 2 55,000 multi-task 3 3 unknown unknown" in lines
    told = "14 of 15 runs to do on cpu, 2 side by side: about 22 s, and an unknown time for 3 runs."
    assert told in lines


def without_data(missing):
    """The fake laboratory with a benchmark more, whose data is missing until somebody has it."""

    class Spec(fake_laboratory.Spec):
        def identity(self):
            if missing:
                raise EngramError("CIFAR-100 is not here: run `engram data fetch cifar-100`.")
            return super().identity()

    def specify(benchmark, method, **options):
        spec = fake_laboratory.specify("permuted-mnist", method, **options)
        if benchmark == "permuted-mnist":
            return spec
        return Spec(**{**vars(spec), "benchmark": benchmark})

    def settings_help(benchmark, method):  # noqa: ARG001
        return fake_laboratory.settings_help("permuted-mnist", method)

    return SimpleNamespace(
        **{**vars(fake_laboratory), "specify": specify, "settings_help": settings_help}
    )


def test_what_has_no_data_is_told_and_the_rest_goes_on(ask, study, tmp_path):
    target = study(STUDY.replace('"permuted-mnist"', '"split-cifar"', 1))
    missing = [True]
    code, out, err = ask(target, without_data(missing))
    assert code == 1
    assert {method for method, _ in trained(tmp_path)} == {"a-gem", "mega-ii"}
    assert err.count("Left out, split-cifar: CIFAR-100 is not here: run `engram data fetch") == 1
    assert "Report: " in out
    _, out, _ = ask(target, without_data(missing), dry_run=True)
    assert "Cannot be run: CIFAR-100 is not here" in out
    missing.clear()
    assert ask(target, without_data(missing))[0] == 0
    assert len(trained(tmp_path)) == 10
    missing.append(True)  # and gone again: what was made with it is still there
    code, _, err = ask(target, without_data(missing))
    assert (code, "Left out" in err) == (0, False)


def test_a_study_without_any_data_leaves_nothing_behind(ask, study, tmp_path):
    code, out, err = ask(study(STUDY.replace("permuted-mnist", "split-cifar")), without_data([1]))
    assert (code, out) == (1, "")
    assert "CIFAR-100 is not here" in err
    assert [path.name for path in tmp_path.iterdir()] == ["mine.toml"]


def test_the_disk_must_hold_what_is_missing_and_nothing_is_asked_of_it_for_a_dry_run(
    ask, study, tmp_path, monkeypatch
):
    """The results of a run of two tasks are counted as 4.3 KiB, and 16 MiB are to stay free."""
    free = [2**20]
    monkeypatch.setattr("shutil.disk_usage", lambda _: SimpleNamespace(free=free[0]))
    assert ask(study(), dry_run=True)[0] == 0
    with pytest.raises(EngramError, match="results of 8 runs of 2 tasks take about 16 MiB, but"):
        ask(study())
    assert [path.name for path in tmp_path.iterdir()] == ["mine.toml"]
    free[0] = 2**24 + 8 * 4500
    assert ask(study())[0] == 0
    free[0] = 2**24 + 4 * 4500
    assert ask(study(), seeds=4)[0] == 0  # 12 runs, of which 4 are missing
    free[0] = 0
    assert ask(study(), seeds=4)[0] == 0


@pytest.mark.parametrize("seeds", [2**63 - 1, 10**400])
@pytest.mark.parametrize("dry_run", [False, True])
def test_more_runs_than_can_be_listed_are_refused(ask, study, tmp_path, seeds, dry_run):
    with pytest.raises(EngramError, match=r"at most 100,000 runs|must be below 2\^63"):
        ask(study(), seeds=seeds, dry_run=dry_run)
    target = study(STUDY.replace("seeds = 2", "seeds = 9223372036854775807"))
    with pytest.raises(EngramError, match="this one has 18,446,744,073,709,551,620: lower"):
        ask(target, dry_run=dry_run)
    assert [path.name for path in tmp_path.iterdir()] == ["mine.toml"]


@pytest.mark.parametrize(
    ("options", "sentence"),
    [({"seeds": 0}, "seeds must be at least 1"), ({"device": "gpu"}, "device must be auto")],
)
def test_mistakes_are_refused_before_anything_is_made(ask, study, tmp_path, options, sentence):
    target = study()
    with pytest.raises(EngramError, match=sentence):
        ask(target, **options)
    assert [path.name for path in tmp_path.iterdir()] == ["mine.toml"]


def test_results_without_step_records_are_made_again_where_these_are_asked_for(
    ask, study, tmp_path, capsys
):
    plain = STUDY.split("[[runs]]")[0] + "[[runs]]" + STUDY.split("[[runs]]")[1]
    ask(study(plain))
    assert len(trained(tmp_path)) == 4
    path, target = tmp_path / "results" / "store.sqlite", study(plain + "record_every = 3\n")
    assert reproduce(target, fake_laboratory, store=path, device="cpu") == 0
    assert len(trained(tmp_path)) == 8
    with Store(path) as store:
        rows = [row for row in store.rows() if "recorded_steps" in row.outcome["facts"]]
    assert len(rows) == 4
    for row in rows:
        assert step_records(row.address, path)["k2"].tolist() == [3.0, 3.0]
    capsys.readouterr()
    assert ask(target)[2].startswith("Mine: 0 of 4 runs to do.")
    with pytest.raises(EngramError, match=r"no step records of 'abc' beside .*--record steps"):
        step_records("abc", path)


def test_a_failure_is_the_exit_code_and_the_report_is_written(ask, study):
    code, out, err = ask(study(STUDY.replace("trace = ", 'fault = "raise", trace = ')))
    assert code == 1
    assert "failed: two lines" in err
    assert "Report: " in out


_COMMAND = """
import sys
sys.path.insert(0, sys.argv.pop(1))
import engram.cli, fake_laboratory
from engram.report.html import _page
_page.save_figure = lambda *_: []
engram.protocol = sys.modules["engram.protocol"] = fake_laboratory
engram.cli.main()
"""


@pytest.mark.slow
def test_a_kill_at_any_moment_loses_the_runs_in_flight_and_ends_with_the_same_report(
    ask, study, tmp_path, monkeypatch, capsys
):
    target = study(STUDY.replace("trace = ", "sleep = 0.3, trace = "))
    ask(target, store=tmp_path / "whole" / "store.sqlite")
    (tmp_path / "trace").unlink()
    path, words = tmp_path / "killed" / "store.sqlite", ["reproduce", target, "--device", "cpu"]
    command = [sys.executable, "-c", _COMMAND, str(HERE), *words, "--store", str(path)]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, start_new_session=True)
    while len(trained(tmp_path)) < 4:
        assert process.poll() is None
        time.sleep(0.02)
    os.kill(process.pid, signal.SIGKILL)
    process.communicate(timeout=10)
    with Store(path) as store:
        stored = {(row.identity["method"], row.seed) for row in store.rows()}
    started = trained(tmp_path)
    assert stored < set(started)
    assert len(started) - len(stored) <= len(os.sched_getaffinity(0))

    def stop(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(_reproduce._report, "write", stop)  # and again, before the report
    with pytest.raises(KeyboardInterrupt):
        ask(target, store=path)
    monkeypatch.undo()
    monkeypatch.setattr(_page, "save_figure", lambda *_: [])
    capsys.readouterr()
    assert ask(target, store=path)[2].startswith("Mine: 0 of 8 runs to do.")
    again = trained(tmp_path)[len(started) :]
    assert not stored & set(again)
    assert {*stored, *again} == {(method, seed) for method, n in WANTED for seed in range(n)}
    assert page(path.parent) == page(tmp_path / "whole")
