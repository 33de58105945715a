"""The command line: what it prints where, what it refuses, and how it is stopped."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from engram.app.runs import Store
from processes import started

HERE = Path(__file__).parent


@pytest.fixture
def ask(tmp_path, engram, laboratory, executor):  # noqa: ARG001
    """Train what is asked for; return the exit code and what was printed."""

    def ask(*methods, **options):
        path = tmp_path / "results" / "store.sqlite"
        options = {"tasks": 2, "device": "cpu", "store": path, **options}
        return engram("run", "permuted-mnist", *methods, **options)

    return ask


def test_a_run_ends_with_the_table_and_the_plot(ask, tmp_path):
    code, out, err = ask("van", "mega-i", seeds=2)
    assert code == 0
    lines = out.splitlines()
    assert lines[0].strip() == "permuted-mnist, 2 tasks of 55,000 examples"
    assert "van 84.50±0.50 0.100±0.000 0.350±0.000 2 1.5" in [
        " ".join(line.split()) for line in lines
    ]
    label, path = lines[-1].split(": ")
    assert label == "Plot"
    assert Path(path).parent == tmp_path / "results"
    assert Path(path).is_file()
    assert "mega-i, seed 1: stored, " in err
    assert "steps/s" in err


def test_json_is_one_object_and_nothing_else(ask):
    code, out, err = ask("van", "mega-i", seeds=2, json=True)
    assert code == 0
    answer = json.loads(out)
    assert list(answer) == ["benchmark", "results"]
    assert [entry["method"] for entry in answer["results"]] == ["van", "mega-i"]
    assert answer["results"][0]["average_accuracy"]["values"] == pytest.approx([85.0, 84.0])
    assert "Plot: " in err


def test_a_second_call_computes_nothing(ask, tmp_path):
    trace = tmp_path / "trace"
    first = ask("van", seeds=2, settings=(f"trace={trace}",), json=True)
    second = ask("van", seeds=2, settings=(f"trace={trace}",), json=True)
    assert first[1] == second[1]
    assert "in the store already" in second[2]
    assert len(trace.read_text().splitlines()) == 2
    ask("van", seeds=2, settings=(f"trace={trace}",), again=True)
    assert len(trace.read_text().splitlines()) == 4


def test_a_failed_seed_is_told_and_the_rest_is_shown(ask):
    code, out, err = ask("van", seeds=2, json=True, settings=("fault=raise",))
    assert code == 1
    assert json.loads(out)["results"][0]["seeds"] == 1
    assert "van, seed 0 failed: two lines" in err
    assert "Traceback" not in err


def test_a_method_whose_seeds_all_fail_has_no_line(ask):
    code, out, err = ask("van", seeds=1, json=True, settings=("fault=raise",))
    assert (code, json.loads(out)["results"]) == (1, [])
    assert "van, seed 0 failed" in err


def test_a_diverged_run_is_a_result(ask):
    code, out, err = ask("van", seeds=1, settings=("fault=diverge",))
    assert code == 0
    assert "1 (1 failed)" in out
    assert "van fault=diverge: 1 of 1 seed diverged: the weights became non-finite." in err


def test_the_stored_command_makes_the_numbers_again(ask, tmp_path):
    ask("van", seeds=1, examples=7, settings=("fault=a b",))
    with Store(tmp_path / "results" / "store.sqlite") as store:
        assert store.rows()[0].command == (
            "engram run permuted-mnist van --seeds 1 --tasks 2 --examples 7 "
            "--set 'fault=a b' --device cpu"
        )


def test_a_setting_goes_to_the_methods_that_know_it(ask, tmp_path):
    ask("van", "mega-i", seeds=1, settings=("epsilon=0.5",))
    with Store(tmp_path / "results" / "store.sqlite") as store:
        settings = {row.identity["method"]: row.identity["settings"] for row in store.rows()}
    assert "epsilon" not in settings["van"]
    assert settings["mega-i"]["epsilon"] == 0.5


@pytest.mark.parametrize(
    ("methods", "changes", "sentence"),
    [
        (["van", "van"], {}, "'van' is named twice"),
        (["vam"], {}, "did you mean 'van'"),
        (["van"], {"seeds": 0}, "seeds must be at least 1, not 0"),
        (["van"], {"seeds": -5}, "seeds must be at least 1, not -5"),
        (["van"], {"seeds": 10**15}, "the disk of"),
        (["van"], {"tasks": 0}, "tasks must be at least 1"),
        (["van"], {"tasks": 10**9}, "the disk of"),
        (["van"], {"device": "gpu"}, "device must be"),
        (["van"], {"settings": ("epsilon=1",)}, "There is no setting 'epsilon'"),
        (["van", "mega-i"], {"settings": ("epsilom=1",)}, "did you mean 'epsilon'"),
        (["van"], {"settings": ("epsilon",)}, "KEY=VALUE, not 'epsilon'"),
        (["van"], {"settings": ("=1",)}, "KEY=VALUE, not '=1'"),
        (["van"], {"settings": ("",)}, "KEY=VALUE, not ''"),
        (["van"], {"settings": ("fault=a", "fault=b")}, "'fault' twice"),
        (["\x1b[2J\n"], {}, r"There is no method '\x1b[2J\n'"),
    ],
)
def test_mistakes_are_refused_before_anything_is_made(ask, tmp_path, methods, changes, sentence):
    code, out, err = ask(*methods, **changes)
    assert (code, out) == (2, "")
    assert sentence in err
    assert err.removesuffix("\n").isprintable()
    assert list(tmp_path.iterdir()) == []


def test_results_are_shown_exported_and_merged(ask, engram, tmp_path):
    ask("van", seeds=2)
    ask("van", seeds=1, tasks=3)
    source, lines = tmp_path / "results" / "store.sqlite", tmp_path / "all.jsonl"
    _, out, err = engram("results", "--store", source, "--export", lines)
    assert "2 tasks of 55,000" in out
    assert "3 tasks of 55,000" in out
    assert "3 results and 0 choices are in" in err
    target = tmp_path / "other.sqlite"
    for new in (3, 0):
        _, out, err = engram("results", "--store", target, "--merge", lines, "--json")
        assert f"{new} of 3 results were new" in err
        entries = json.loads(out)["results"]
        assert [(entry["tasks"], entry["seeds"]) for entry in entries] == [(2, 2), (3, 1)]
        assert entries[0]["settings"]["learning_rate"] == 0.1


def test_nothing_is_merged_where_the_export_is_refused(ask, engram, tmp_path):
    ask("van")
    lines, target = tmp_path / "all.jsonl", tmp_path / "new.sqlite"
    engram("results", "--store", tmp_path / "results" / "store.sqlite", "--export", lines)
    code, _, err = engram("results", "--store", target, "--merge", lines, "--export", lines)
    assert (code, "exists already" in err) == (2, True)
    assert not target.exists()


def test_a_bad_file_to_merge_leaves_no_store(engram, tmp_path):
    (tmp_path / "bad.jsonl").write_text("{}\n")
    words = ["--store", tmp_path / "new.sqlite", "--merge", tmp_path / "bad.jsonl"]
    code, _, err = engram("results", *words)
    assert (code, "Line 1" in err) == (2, True)
    assert not (tmp_path / "new.sqlite").exists()


def test_help_loads_neither_the_laboratory_nor_the_reports(engram):
    code = (
        "import sys; from engram.app.cli import main; sys.argv = ['engram', '--help']\n"
        "try: main()\n"
        "except SystemExit: pass\n"
        "heavy = {'engram.lab.protocol', 'engram.app.report'}\n"
        "sys.exit(bool(heavy & set(sys.modules)))"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    assert "results" in run.stdout
    assert engram("--version").out.startswith("engram 0.")


_COMMAND = """
import sys
sys.path.insert(0, sys.argv.pop(1))
import engram.app.cli, fake_laboratory
engram.lab.protocol = sys.modules["engram.lab.protocol"] = fake_laboratory
engram.app.cli.main()
"""


@pytest.mark.slow
def test_ctrl_c_keeps_what_is_finished_and_the_next_call_does_the_rest(tmp_path, ask):
    path, trace = tmp_path / "store.sqlite", tmp_path / "trace"
    settings = ("fault=talk", "sleep=0.5", f"trace={trace}")
    options = ["--seeds", "6", "--tasks", "2", "--device", "cpu", "--store", str(path), "--json"]
    words = ["run", "permuted-mnist", "van", *options]
    words += [word for setting in settings for word in ("--set", setting)]
    with started([sys.executable, "-c", _COMMAND, str(HERE), *words]) as process:
        while not trace.exists() or len(trace.read_text().splitlines()) < 3:
            assert process.poll() is None
            time.sleep(0.02)
        os.killpg(process.pid, signal.SIGINT)  # as a terminal does: to the workers too
        out, err = process.communicate(timeout=30)
    assert (process.returncode, out) == (130, "")
    assert "Traceback" not in err
    assert "a library that talks" in err  # and nothing of it in the JSON
    assert err.splitlines()[-1].startswith("Stopped: what is finished is stored")
    with Store(path) as store:
        finished = {row.seed for row in store.rows()}
    assert 1 <= len(finished) < 6
    before = len(trace.read_text().splitlines())
    code, out, _ = ask("van", seeds=6, settings=settings, json=True, store=path)
    assert code == 0
    assert len(trace.read_text().splitlines()) == before + 6 - len(finished)
    assert "average_accuracy" in out


def test_the_real_thing_end_to_end(tmp_path):
    words = ["run", "permuted-mnist", "van", "mega-ii", "--tasks", "2", "--examples", "50"]
    options = ["--seeds", "2", "--device", "cpu", "--json", "--set", "curve_images=100"]
    command = [Path(sys.executable).parent / "engram", *words, *options]
    first = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    answer = json.loads(first.stdout)
    assert [entry["method"] for entry in answer["results"]] == ["van", "mega-ii"]
    for entry in answer["results"]:
        assert entry["seeds"] == len(entry["average_accuracy"]["values"]) == 2
        assert 5 < entry["average_accuracy"]["mean"] < 100
        assert entry["forgetting"] is not None
        assert entry["lca_10"] is None  # five batches a task are fewer than ten
    assert sorted(path.suffix for path in (tmp_path / "engram-results").iterdir()) == [
        *(".png", ".sqlite", ".svg")
    ]


def test_a_mistake_is_one_sentence_and_exit_code_2(tmp_path, monkeypatch, engram):
    monkeypatch.chdir(tmp_path)
    for words in (["run", "permuted-mnist", "mega-iii"], ["results"], ["run", "mnist", "van"]):
        code, out, err = engram(*words)
        assert (code, out) == (2, "")
        assert err.startswith("engram: There is no ")
        assert len(err.splitlines()) == 1
    assert list(tmp_path.iterdir()) == []
