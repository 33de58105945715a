"""``engram reproduce``: what is missing is run, once, whatever happens, and a report ends it."""

import json
import os
import re
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import fake_laboratory
import pytest
from fake_laboratory import STUDY

from engram.app import runs
from engram.app.runs import Store, execute, step_records
from engram.errors import EngramError
from engram.lab import protocol
from processes import started

HERE = Path(__file__).parent
pytestmark = pytest.mark.usefixtures("quick_figures")
WANTED = {("van", 2), ("mega-ii", 3), ("a-gem", 3)}


def trained(folder):
    """Every run that was trained, in order: its method and its seed."""
    trace = folder / "trace"
    lines = trace.read_text().splitlines() if trace.exists() else []
    return [(method, seed) for method, seeds, *_ in map(json.loads, lines) for seed in seeds]


def page(folder):
    return re.sub(r"\d{4}-\d\d-\d\d", "today", (folder / "report.html").read_text("utf-8"))


def test_what_is_missing_is_run_once_and_the_report_ends_it(ask_study, study, tmp_path):
    code, out, err = ask_study(study())
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
    assert ask_study(study())[2].startswith("Mine: 0 of 8 runs to do.")
    assert len(trained(tmp_path)) == 8
    assert page(report.parent) == before
    ask_study(study(), seeds=4)  # in place of what the study says
    assert len(trained(tmp_path)) == 12


@pytest.fixture
def missing(laboratory, monkeypatch):  # noqa: ARG001
    """Let there be a benchmark more, whose data is missing until this list is empty."""
    missing = [True]

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

    monkeypatch.setattr(protocol, "specify", specify)
    monkeypatch.setattr(protocol, "settings_help", settings_help)
    return missing


def test_what_has_no_data_is_told_and_the_rest_goes_on(ask_study, missing, study, tmp_path):
    target = study(STUDY.replace('"permuted-mnist"', '"split-cifar"', 1))
    code, out, err = ask_study(target)
    assert code == 1
    assert {method for method, _ in trained(tmp_path)} == {"a-gem", "mega-ii"}
    assert err.count("Left out, split-cifar: CIFAR-100 is not here: run `engram data fetch") == 1
    assert "Report: " in out
    _, out, _ = ask_study(target, dry_run=True)
    assert "Cannot be run: CIFAR-100 is not here" in out
    missing.clear()
    assert ask_study(target)[0] == 0
    assert len(trained(tmp_path)) == 10
    missing.append(True)  # and gone again: what was made with it is still there
    code, _, err = ask_study(target)
    assert (code, "Left out" in err) == (0, False)


@pytest.mark.usefixtures("missing")
def test_a_study_without_any_data_leaves_nothing_behind(ask_study, study, tmp_path):
    code, out, err = ask_study(study(STUDY.replace("permuted-mnist", "split-cifar")))
    assert (code, out) == (1, "")
    assert "CIFAR-100 is not here" in err
    assert [path.name for path in tmp_path.iterdir()] == ["mine.toml"]


def test_the_disk_must_hold_what_is_missing_and_nothing_is_asked_of_it_for_a_dry_run(
    ask_study, study, tmp_path, monkeypatch
):
    """The results of a run of two tasks are counted as 4.3 KiB, and 16 MiB are to stay free."""
    free = [2**20]
    monkeypatch.setattr("shutil.disk_usage", lambda _: SimpleNamespace(free=free[0]))
    assert ask_study(study(), dry_run=True)[0] == 0
    code, out, err = ask_study(study())
    assert (code, out) == (2, "")
    assert "results of 8 runs of 2 tasks take about 16 MiB, but" in err
    assert [path.name for path in tmp_path.iterdir()] == ["mine.toml"]
    free[0] = 2**24 + 8 * 4500
    assert ask_study(study())[0] == 0
    free[0] = 2**24 + 4 * 4500
    assert ask_study(study(), seeds=4)[0] == 0  # 12 runs, of which 4 are missing
    free[0] = 0
    assert ask_study(study(), seeds=4)[0] == 0


@pytest.mark.parametrize("seeds", [2**63 - 1, 10**400])
@pytest.mark.parametrize("dry_run", [False, True])
def test_more_runs_than_can_be_listed_are_refused(ask_study, study, tmp_path, seeds, dry_run):
    code, out, err = ask_study(study(), seeds=seeds, dry_run=dry_run)
    assert (code, out) == (2, "")
    assert re.search(r"at most 100,000 runs|must be below 2\^63", err)
    target = study(STUDY.replace("seeds = 2", "seeds = 9223372036854775807"))
    code, _, err = ask_study(target, dry_run=dry_run)
    assert (code, "this one has 18,446,744,073,709,551,620: lower" in err) == (2, True)
    assert [path.name for path in tmp_path.iterdir()] == ["mine.toml"]


@pytest.mark.parametrize(
    ("options", "sentence"),
    [({"seeds": 0}, "seeds must be at least 1"), ({"device": "gpu"}, "device must be auto")],
)
def test_mistakes_are_refused_before_anything_is_made(
    ask_study, study, tmp_path, options, sentence
):
    target = study()
    code, _, err = ask_study(target, **options)
    assert (code, sentence in err) == (2, True)
    assert [path.name for path in tmp_path.iterdir()] == ["mine.toml"]


def test_results_without_step_records_are_made_again_where_these_are_asked_for(
    ask_study, study, tmp_path, monkeypatch
):
    plain = STUDY.split("[[runs]]")[0] + "[[runs]]" + STUDY.split("[[runs]]")[1]
    ask_study(study(plain))
    assert len(trained(tmp_path)) == 4
    path, target = tmp_path / "results" / "store.sqlite", study(plain + "record_every = 3\n")
    with monkeypatch.context() as patched:
        patched.setattr(runs, "execute", execute)
        assert ask_study(target)[0] == 0
    assert len(trained(tmp_path)) == 8
    with Store(path) as store:
        rows = [row for row in store.rows() if "recorded_steps" in row.outcome["facts"]]
    assert len(rows) == 4
    for row in rows:
        assert step_records(row.address, path)["k2"].tolist() == [3.0, 3.0]
    assert ask_study(target)[2].startswith("Mine: 0 of 4 runs to do.")
    with pytest.raises(EngramError, match=r"no step records of 'abc' beside .*--record steps"):
        step_records("abc", path)


def test_a_failure_is_the_exit_code_and_the_report_is_written(ask_study, study):
    code, out, err = ask_study(study(STUDY.replace("trace = ", 'fault = "raise", trace = ')))
    assert code == 1
    assert "failed: two lines" in err
    assert "Report: " in out


_COMMAND = """
import sys
sys.path.insert(0, sys.argv.pop(1))
import engram.app.cli, fake_laboratory
from engram.app.report.html import page as html_page
html_page.save_figure = lambda *_: []
engram.app.runs.executor._STORING = 0  # at once, however busy the disk is
engram.lab.protocol = sys.modules["engram.lab.protocol"] = fake_laboratory
engram.app.cli.main()
"""


@pytest.mark.slow
def test_a_kill_at_any_moment_loses_the_runs_in_flight_and_ends_with_the_same_report(
    ask_study, study, tmp_path, monkeypatch
):
    target = study(STUDY.replace("trace = ", "sleep = 0.3, trace = "))
    ask_study(target, store=tmp_path / "whole" / "store.sqlite")
    (tmp_path / "trace").unlink()
    path, words = tmp_path / "killed" / "store.sqlite", ["reproduce", target, "--device", "cpu"]
    with started(
        [sys.executable, "-c", _COMMAND, str(HERE), *words, "--store", str(path)]
    ) as process:
        while len(trained(tmp_path)) < 4:
            assert process.poll() is None
            time.sleep(0.02)
        process.kill()
        process.communicate(timeout=30)
    with Store(path) as store:
        stored = {(row.identity["method"], row.seed) for row in store.rows()}
    begun = trained(tmp_path)
    assert stored < set(begun)
    assert len(begun) - len(stored) <= len(os.sched_getaffinity(0))

    def stop(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr("engram.app.report.PaperDefaults", stop)  # and again, before the report
        code, _, err = ask_study(target, store=path)
    assert (code, err.splitlines()[-1]) == (
        130,
        "Stopped: what is finished is stored, and the same command writes the report.",
    )
    assert ask_study(target, store=path)[2].startswith("Mine: 0 of 8 runs to do.")
    again = trained(tmp_path)[len(begun) :]
    assert not stored & set(again)
    assert {*stored, *again} == {(method, seed) for method, n in WANTED for seed in range(n)}
    assert page(path.parent) == page(tmp_path / "whole")


def test_what_is_searched_is_chosen_before_it_is_run(ask_study, study, tmp_path):
    text = STUDY.split("[[runs]]")[0] + (
        '[[runs]]\nbenchmark = "permuted-mnist"\nmethods = ["mega-ii", "mega-i"]\nseeds = 2\n'
        'tasks = 2\nsettings = { trace = "TRACE" }\nsearch = { epsilon = [0.1, 0.01] }\n'
        "search_seeds = 2\n"
    )
    target = study(text)
    code, out, _ = ask_study(target, dry_run=True)
    assert code == 0
    assert "8 of 8 runs to do" in out
    assert "mega-i 2 settings on tuning tasks" in " ".join(out.split())
    code, _, err = ask_study(target)
    assert code == 0
    assert "Mine: 8 of 8 runs to do." in err
    with Store(tmp_path / "results" / "store.sqlite") as store:
        rows = store.rows()
    tried = [row for row in rows if row.identity.get("split") == "tuning"]
    made = [row for row in rows if row.identity.get("split") is None]
    assert sorted(row.identity["settings"]["epsilon"] for row in tried) == [0.01, 0.01, 0.1, 0.1]
    assert {row.identity["method"] for row in tried} == {"mega-i"}
    used = {row.identity["settings"].get("epsilon") for row in made}
    assert used == {None, 0.01}  # the better one, in the fake laboratory
    assert len(trained(tmp_path)) == 8
    assert ask_study(target)[2].startswith("Mine: 0 of 8 runs to do.")
    assert len(trained(tmp_path)) == 8
    assert ask_study(target, only="mega-ii")[2].startswith("Mine: 0 of 2 runs to do.")


def test_what_was_chosen_is_run_again_with_one_setting_after_the_other_left_out(
    ask_study, study, tmp_path
):
    text = STUDY.split("[[runs]]")[0] + (
        '[[runs]]\nbenchmark = "permuted-mnist"\nmethods = ["mega-ii", "mega-i"]\nseeds = 2\n'
        'tasks = 2\nsettings = { trace = "TRACE" }\nsearch = { epsilon = [0.1, 0.01] }\n'
        "search_seeds = 1\nwithout = { epsilon = 0.1, lead = 0.3 }\nwithout_seeds = 1\n"
    )
    target = study(text)
    assert ask_study(target)[0] == 0
    with Store(tmp_path / "results" / "store.sqlite") as store:
        rows = [row for row in store.rows() if row.identity.get("split") is None]
    made = [
        (row.identity["method"], row.seed, *map(row.identity["settings"].get, ("epsilon", "lead")))
        for row in rows
    ]
    usual = fake_laboratory.specify("permuted-mnist", "mega-i").settings["lead"]
    assert sorted(each for each in made if each[0] == "mega-i") == sorted(
        [
            ("mega-i", 0, 0.01, usual),
            ("mega-i", 1, 0.01, usual),
            ("mega-i", 0, 0.1, usual),
            ("mega-i", 0, 0.01, 0.3),
        ]
    )
    assert len([each for each in made if each[0] == "mega-ii"]) == 2 + 1  # which has no epsilon
    assert ask_study(target)[2].startswith("Mine: 0 of 9 runs to do.")


def test_a_study_with_a_table_writes_it_beside_the_store_and_keeps_what_was_chosen(
    ask_study, study, tmp_path
):
    head = STUDY.split("[[runs]]")[0] + "table = true\n\n"
    text = head + (
        '[[runs]]\nbenchmark = "permuted-mnist"\nmethods = ["mega-i"]\nseeds = 1\n'
        'tasks = 2\nsettings = { trace = "TRACE" }\neach = { lead = [0.1, 0.2] }\n'
        "search = { epsilon = [0.1, 0.01] }\nsearch_seeds = 1\n"
    )
    code, out, _ = ask_study(study(text), only="lead=0.1")
    assert code == 0
    assert "Table: " in out
    table = (tmp_path / "results" / "mine.md").read_text("utf-8")
    assert "1 of 1 cells were run." in table  # two values of what is no memory: one line
    with Store(tmp_path / "results" / "store.sqlite") as store:
        (choice,) = store.choices()
    assert choice.chosen == {"epsilon": 0.01}
