"""The table of methods at equal memory: against numpy and scipy, and what is not run."""

import csv
import io
import json

import numpy as np
import pytest
from scipy import stats

from engram.app.report import PaperDefaults
from engram.app.runs import Choice, Row, Store, Trial, address, canonical, stamp
from engram.app.studies import against, cells, markdown, read_study, write_table
from engram.lab import protocol
from tools.docs.which_method import which_method

STUDY = """
title = "Budgets"
table = true

[[runs]]
benchmark = "permuted-mnist-200"
methods = ["er", "mega-ii", "van", "gdumb"]
seeds = 4
tasks = 2
each = { memory_per_class = [1, 5], memory = ["ring", "reservoir"] }
search = { learning_rate = [0.1, 0.03] }
"""
LEVELS = {"er": 0.80, "mega-ii": 0.85, "van": 0.5}


@pytest.fixture
def study(tmp_path):
    path = tmp_path / "budgets.toml"
    path.write_text(STUDY, "utf-8")
    return read_study(str(path))


def row(spec, seed, rate, level):
    identity = json.loads(canonical(spec.identity()))
    identity["settings"]["learning_rate"] = rate
    last = [level + 0.01 * seed, level + 0.02 * (seed % 2)]
    outcome = {"accuracy": [[0.9, None], last], "curve": [[0.1] * 11] * 2, "facts": {}}
    return Row.of(
        {
            "address": address(identity, seed),
            "seed": seed,
            "identity": identity,
            "outcome": {**outcome, "failure": None},
            "device": "cpu",
            "seconds": 1.0,
            **stamp("engram reproduce budgets.toml"),
        }
    )


@pytest.fixture
def held(study):
    """Results with the chosen rate, 0.03, with another one, and the choices of two methods."""
    entry = study.runs[1]  # one example a class, a reservoir
    assert entry.settings == {"memory_per_class": 1, "memory": "reservoir"}
    rows, choices = [], []
    for place, method in enumerate(entry.methods[:3]):
        spec, trials = entry.specs[place], entry.trials[place]
        count = 3 if method == "van" else 4
        rows += [row(spec, seed, 0.03, LEVELS[method]) for seed in range(count)]
        rows += [row(spec, seed, 0.1, 0.1) for seed in range(count)]
        identity = json.loads(canonical(trials[0].identity()))
        del identity["settings"]["learning_rate"]
        scores = ((60.0, 61.0), (70.0, 73.0))
        made = [Trial({"learning_rate": r}, s) for r, s in zip((0.1, 0.03), scores, strict=True)]
        choices.append(Choice(identity, tuple(made), "cpu", **stamp("engram reproduce")))
    return rows, choices


def test_a_cell_is_of_the_settings_that_were_chosen_and_says_what_is_missing(study, held):
    found = cells(study, *held)
    assert len(found) == 3 * 4 + 1  # VAN has no memory, and one cell
    done = {cell.name: cell for cell in found if cell.summary is not None}
    assert set(done) == {"er, reservoir", "mega-ii, reservoir", "van"}
    accuracies = [np.mean([0.8 + 0.01 * s, 0.8 + 0.02 * (s % 2)]) * 100 for s in range(4)]
    number = f"{np.mean(accuracies):.2f} ± {np.std(accuracies):.2f}"
    assert done["er, reservoir"].text == number
    assert done["er, reservoir"].chosen == {"learning_rate": 0.03}
    assert done["van"].text.endswith("(3 of 4 seeds)")
    assert {cell.text for cell in found if cell.summary is None} == {"not run"}
    assert {cell.passes for cell in found if cell.method == "gdumb"} == {30}
    text = markdown(found)
    assert "3 of 13 cells were run." in text
    assert done["er, reservoir"].summary.address in text


def test_results_of_another_setting_than_the_chosen_are_not_taken(study, held):
    rows, _ = held
    assert all(cell.summary is None for cell in cells(study, rows, []))


def test_methods_are_compared_seed_by_seed_with_the_same_memory(study, held):
    (found,) = against(cells(study, *held))
    assert (found.cell.name, found.than) == ("mega-ii, reservoir", "er")
    assert found.difference.mean == pytest.approx(5.0)
    noisy = [row(study.runs[1].specs[1], s, 0.03, 0.8 + 0.01 * s * s) for s in range(4)]
    others = [each for each in held[0] if each.identity["method"] != "mega-ii"]
    (found,) = against(cells(study, [*others, *noisy], held[1]))
    points = [100 * 0.01 * s * s for s in range(4)]
    expected = stats.t.interval(0.95, 3, np.mean(points), stats.sem(points))
    assert (found.difference.low, found.difference.high) == pytest.approx(expected)
    assert found.sure == (stats.ttest_1samp(points, 0).pvalue < 0.05)


def test_the_files_are_written_and_say_the_same(study, held, tmp_path):
    with Store(tmp_path / "store.sqlite") as store:
        store.add([*held[0], *held[1]])
        files = write_table(study, store, tmp_path)
    assert [file.suffix for file in files] == [".md", ".csv", ".pdf"]
    lines = list(csv.DictReader(io.StringIO(files[1].read_text())))
    assert len(lines) == 13
    done = {(each["method"], each["memory"]): each for each in lines if each["seeds"] != "0"}
    assert len(done) == 3
    er = done["er", "reservoir"]
    assert (er["per_class"], er["seeds"], json.loads(er["chosen"])) == (
        "1",
        "4",
        {"learning_rate": 0.03},
    )
    assert files[2].read_bytes().startswith(b"%PDF")
    assert "not run" in files[0].read_text()


def test_the_answer_names_the_best_and_what_the_seeds_do_not_tell_from_it(study, held):
    rows, choices = held
    close = [row(study.runs[1].specs[1], s, 0.03, 0.8 + 0.001 * (s % 2)) for s in range(4)]
    others = [each for each in rows if each.identity["method"] != "mega-ii"]
    found = cells(study, [*others, *close], choices)
    answer = which_method("matched", [], PaperDefaults(protocol.specify), found)
    line = answer.splitlines()[2]
    assert "mega-ii, reservoir" in line
    points = [0.1 * (s % 2) for s in range(4)]
    low, high = stats.t.interval(0.95, 3, np.mean(points), stats.sem(points))
    assert f"as good: -0.1 \\[{-high:+.1f}, {-low:+.1f}\\]" in line
    assert "better than 1 of 2, 4 seeds" in line or "better than 1 of 2, 3 seeds" in line
    assert which_method("matched", [], PaperDefaults(protocol.specify), []) == (
        "Nothing of it was run yet."
    )
