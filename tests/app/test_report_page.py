"""A page of results has ours beside the paper's, receipts, and what became of every seed."""

import dataclasses
import json

import pytest

from engram.app.report import PaperDefaults, failure_message, save_plot, summarise
from engram.app.runs import Choice, Row, Trial, write_lines
from tools.docs.__main__ import main
from tools.docs.method_page import method_results
from tools.docs.results_page import GENERATED, results_page


@pytest.fixture
def defaults(laboratory):
    return PaperDefaults(laboratory.specify)


def _with_final(row, accuracy):
    """The same row with a last line of one accuracy for every task."""
    fields = json.loads(row.line)
    tasks = fields["identity"]["tasks"]
    fields["outcome"]["accuracy"][-1] = [accuracy] * tasks
    return Row.of(fields)


def test_seeds_that_diverged_alike_are_told_together(make_row):
    def told(*reasons):
        rows = [make_row(seed=seed) for seed in range(len(reasons))]
        outcomes = [
            {**row.outcome, "failure": reason} for row, reason in zip(rows, reasons, strict=True)
        ]
        failed = [
            dataclasses.replace(row, outcome=outcome)
            for row, outcome in zip(rows, outcomes, strict=True)
        ]
        return failure_message(summarise(failed)[0])

    early, late = "The weights became NaN in task 2.", "The weights became NaN in task 3."
    assert told(None, None) is None
    assert told(early) == "1 of 1 seed diverged: the weights became NaN in task 2"
    assert told(early, early) == "all 2 seeds diverged: the weights became NaN in task 2"
    assert told(early, late, early) == (
        "all 3 seeds diverged: seeds 0, 2: the weights became NaN in task 2; "
        "seed 1: the weights became NaN in task 3"
    )
    assert told(None, late) == "1 of 2 seeds diverged: seed 1: the weights became NaN in task 3"
    assert told("GPU lost.") == "1 of 1 seed diverged: GPU lost"


def test_a_cpu_is_told_by_its_model_where_the_runs_tell_it(make_row, defaults):
    def page(*facts, device="cpu"):
        rows = [
            dataclasses.replace(row, device=device, outcome={**row.outcome, "facts": fact})
            for row, fact in ((make_row(seed=seed), fact) for seed, fact in enumerate(facts))
        ]
        return results_page(rows, defaults, "make docs")

    some, other = {"cpu": "Some CPU (AVX2)"}, {"cpu": "Another (SVE256)"}
    assert "| cpu |" in page({}, {})  # as runs of before do not
    assert "| Some CPU (AVX2) |" in page(some, some)
    assert "| Another (SVE256), Some CPU (AVX2), cpu |" in page(some, other, {})
    assert "| NVIDIA H200 |" in page(some, device="NVIDIA H200")


def _tuning(row):
    return dataclasses.replace(row, identity={**row.identity, "split": "tuning"})


def test_on_tuning_tasks_all_that_is_tried_is_told(make_row, defaults):
    rows = [_tuning(make_row("mega-i", seed, epsilon=e)) for e in (0.001, 0.01) for seed in (0, 1)]
    rows.append(_tuning(make_row("van")))
    labels = defaults.labels(summarise(rows))
    assert labels == ["mega-i epsilon=0.001", "mega-i epsilon=0.01", "van"]


def test_a_page_of_tuning_tasks_says_so_and_names_the_best(tmp_path, make_row, defaults):
    trials = {0.001: 0.8, 0.01: 0.9, 0.1: 0.95}
    rows = [_tuning(_with_final(make_row("mega-i", epsilon=e), a)) for e, a in trials.items()]
    diverged = {**rows[2].outcome, "failure": "The weights became non-finite."}
    rows[2] = dataclasses.replace(rows[2], outcome=diverged)
    page = results_page(rows, defaults, "c")
    assert "# Results: permuted-mnist, 3 tuning tasks of 55,000 examples" in page.splitlines()
    assert "The best average accuracy without a seed that diverged: mega-i epsilon=0.01." in page
    plot = save_plot(summarise(rows), defaults, tmp_path)
    assert plot.name.startswith("permuted-mnist-tuning-3x55000-")
    assert "3 tuning tasks of 55,000 examples" in plot.with_suffix(".svg").read_text()


def choice(tried, method="mega-i", examples=55000, **known):
    """What was chosen of trials in this setting: from their values and their accuracies."""
    places = {"benchmark": "permuted-mnist", "tasks": 3, "examples": examples, "split": "tuning"}
    identity = {**places, "method": method, "settings": {"batch_size": 10}, **known}
    trials = tuple(Trial(settings, values) for settings, values in tried)
    made = {"created": "2026-01-02T03:04:05.678901Z", "versions": {}, "command": "engram tune"}
    return Choice(identity=identity, trials=trials, device="cpu", **made)


@pytest.mark.parametrize(
    ("tried", "sentence"),
    [
        ([({"ridge": 0.1}, (8,)), ({"ridge": 0.2}, (9,)), ({"ridge": 0.3}, (7,))], "ridge=0.2."),
        ([({"ridge": 0.1}, (8,)), ({"ridge": 0.2}, (9,))], "ridge=0.2 (the largest tried)."),
        ([({"ridge": 0.1}, (8,))], "ridge=0.1."),
        (
            [({"a_b": 1, "rule": "x"}, (7, 9)), ({"a_b": 2, "rule": "y"}, (9, 8))],
            r"a\_b=1 (the smallest tried), rule=x, "
            "within a [standard error](../tuning.md) of the best.",
        ),
    ],
)
def test_a_page_of_tuning_tasks_says_what_was_chosen_at_which_end(
    tried, sentence, make_row, defaults
):
    rows = [_tuning(make_row("mega-i", epsilon=e)) for e in (0.1, 0.2)]
    others = [choice(tried, examples=600), choice(tried, split="training")]
    lines = results_page(rows, defaults, "c", choices=[choice(tried), *others]).splitlines()
    assert [line for line in lines if "hosen" in line] == [f"Chosen for mega-i: {sentence}"]


def test_a_busy_machine_is_named_beside_its_seconds(make_row, defaults):
    rows = [make_row("van")]
    assert "shared their device" in results_page(rows, defaults, "c", busy=True)
    assert "shared their device" not in results_page(rows, defaults, "c")
    (_, _, receipt, _) = method_results(summarise(rows), ["van"], defaults, "x.md", busy=True)
    assert "seconds each on cpu beside other runs, " in receipt


def test_the_page_has_ours_the_papers_and_the_receipts(make_row, defaults):
    rows = [make_row(m, s, tasks=17) for m in ("van", "mega-ii") for s in (0, 1)]
    rows.append(make_row("van", command="engram run other"))
    page = results_page(rows, defaults, "the command", [("mega-ii", "van")])
    lines = page.splitlines()
    assert lines[0] == GENERATED
    assert "    the command" in lines
    assert "| van | 35.97 ± 0.50 | 47.55 ± 2.37 | -11.58 |" in lines
    assert "| van | 0.569 ± 0.000 | 0.520 ± 0.026 | +0.049 |" in lines
    assert "| van | 0.350 ± 0.000 | 0.259 ± 0.005 | +0.091 |" in lines
    day = rows[0].created[:10]
    assert any(line.startswith(f"| van | 2 | 1.5 | cpu | {day} | ") for line in lines)
    assert any(line.startswith("| mega-ii minus van | 2 | -0.300 | 0.000 |") for line in lines)
    assert "    engram run" in lines
    assert "    engram run other" in lines
    assert "# Results: permuted-mnist" in lines
    assert "## permuted-mnist, 3 tasks of 55,000 examples" in lines
    assert "| van | 80.00 | 0.150 | 0.350 |" in lines  # one seed, and not the paper's


def test_text_in_a_page_is_only_text(make_row, defaults):
    row = make_row(fault="a|b`<i>", command="x ``` | <b>")
    page = results_page([row], defaults, "c")
    assert r"fault=a\|b\`\<i\>" in page
    assert "    x ``` | <b>" in page.splitlines()


@pytest.mark.usefixtures("laboratory")
def test_the_page_is_made_again_from_committed_lines(tmp_path, make_row, capsys):
    lines, page = tmp_path / "r.jsonl", tmp_path / "docs" / "r.md"
    write_lines([make_row(m, s) for m in ("van", "mega-i") for s in (0, 1, 2)], lines)
    command = [str(lines), "--out", str(page), "--compare", "mega-i:van"]
    assert main(command) == 0
    first = page.read_text()
    assert main(command) == 0
    assert page.read_text() == first
    assert f"python -m tools.docs {lines} --out {page} --compare mega-i:van" in first
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["none.jsonl", "--out", "x.md"], "'none.jsonl' cannot be read"),
        (["r.jsonl", "--out", "x.md", "--compare", "van"], "two methods as ONE:OTHER"),
        (["r.jsonl", "--out", "x.md", "--compare", "van:van"], "two methods as ONE:OTHER"),
        (["r.jsonl", "--out", "x.md", "--compare", "van:er"], "both 'van' and 'er'"),
        (["r.jsonl", "--out", "mine.md"], "was not generated"),
        (["r.jsonl", "--out", "r.jsonl/x.md"], "cannot be written"),
    ],
)
@pytest.mark.usefixtures("laboratory")
def test_mistakes_get_one_sentence(tmp_path, monkeypatch, make_row, capsys, arguments, sentence):
    monkeypatch.chdir(tmp_path)
    write_lines([make_row()], tmp_path / "r.jsonl")
    (tmp_path / "mine.md").write_text("mine")
    before = sorted(tmp_path.iterdir())
    assert main(arguments) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert sentence in err
    assert len(err.splitlines()) == 1
    assert (tmp_path / "mine.md").read_text() == "mine"
    assert sorted(tmp_path.iterdir()) == before
