"""The table of an ablation: what was chosen, each ingredient left out, and what is not run."""

import json

import numpy as np
import pytest
from scipy import stats

from engram.app.runs import Choice, Row, Trial, address, canonical, stamp
from engram.app.studies import ablations, read_study

STUDY = """
title = "An ablation"

[[runs]]
benchmark = "permuted-mnist-200"
tasks = 1
methods = ["recommended"]
seeds = 4
search = { alpha = [0.1, 0.3], updates = [1, 2] }
without = { alpha = 0.0, updates = 1, average = 0.0, masked = false }
without_seeds = 3

[[runs]]
benchmark = "permuted-mnist-200"
tasks = 1
methods = ["er"]
settings = { memory = "reservoir" }

[[runs]]
benchmark = "permuted-mnist-400"
methods = ["er"]
"""


@pytest.fixture
def study(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text(STUDY, "utf-8")
    return read_study(str(path))


def rows(spec, levels, **settings):
    identity = json.loads(canonical(spec.identity()))
    identity["settings"] |= settings
    outcome = {"curve": [[0.1] * 11], "facts": {}, "failure": None}
    return [
        Row.of(
            {
                "address": address(identity, seed),
                "seed": seed,
                "identity": identity,
                "outcome": {**outcome, "accuracy": [[level]]},
                "device": "cpu",
                "seconds": 3.0,
                **stamp("engram reproduce mine.toml"),
            }
        )
        for seed, level in enumerate(levels)
    ]


def choice_of(entry):
    identity = json.loads(canonical(entry.trials[0][0].identity()))
    names = ("alpha", "updates")
    for name in names:
        del identity["settings"][name]
    trials = [
        Trial({name: spec.settings[name] for name in names}, (60.0 + spec.settings["updates"],) * 2)
        for spec in entry.trials[0]
    ]
    return Choice(identity, tuple(trials), "cpu", **stamp("engram reproduce mine.toml"))


def test_what_is_not_run_is_said(study):
    (found,) = ablations(study, [], [])
    assert found.chosen is None
    names = ["with alpha=0", "with average=0", "er, reservoir"]  # of the presets: one update
    assert [line.name for line in found.others] == names
    text = found.markdown()
    assert "not yet run; the lines are those of the presets" in text
    assert text.count("| not yet run | 0 of ") == 4


def test_each_line_is_of_what_was_chosen_less_one_ingredient(study):
    entry, er = study.runs[:2]
    choice = choice_of(entry)
    assert choice.chosen == {"alpha": 0.1, "updates": 2}
    whole, left = [0.80, 0.82, 0.85, 0.83], [0.79, 0.78, 0.80]
    spec = entry.specs[0]
    held = [
        *rows(spec, whole, alpha=0.1, updates=2),
        *rows(spec, [0.5] * 4, alpha=0.3, updates=2),  # not what was chosen
        *rows(spec, left, alpha=0.0, updates=2),
        *rows(er.specs[0], [0.7] * 5),
    ]
    (found,) = ablations(study, held, [choice])
    assert found.chosen == "alpha=0.1, updates=2"
    lines = {line.name: line for line in found.others}
    assert [*lines] == ["with alpha=0", "with updates=1", "with average=0", "er, reservoir"]
    gradients = [line.gradients for line in (found.whole, *found.others)]
    assert gradients == [2 * 3, 2 * 2, 1 * 3, 2 * 3, 2]
    cells = {
        line.split("|")[1].strip(): [cell.strip() for cell in line.split("|")[2:-1]]
        for line in found.markdown().splitlines()
        if line.startswith("| ")
    }
    number = f"{100 * np.mean(whole):.2f} ± {100 * np.std(whole):.2f}"
    assert cells["recommended"][:2] == [number, "4"]
    apart = 100 * (np.array(whole[:3]) - np.array(left))
    low, high = stats.t.interval(0.95, 2, apart.mean(), apart.std(ddof=1) / np.sqrt(3))
    assert cells["with alpha=0"][1:3] == ["3", f"{apart.mean():+.2f}"]
    assert cells["with alpha=0"][3].replace("\\", "") == f"[{low:+.2f}, {high:+.2f}]"
    assert cells["with updates=1"][:2] == ["not yet run", "0 of 3"]
    assert cells["er, reservoir"][1] == "5"
    sure = stats.ttest_rel(whole, [0.7] * 4).pvalue < 0.05 / 2
    assert cells["er, reservoir"][4] == ("yes" if sure else "no")
