"""Reports say mean ± std in the paper's units, with receipts, and the paper's number where due."""

import dataclasses
import json
import math
import statistics
from xml.etree import ElementTree

import pytest
from rich.console import Console
from scipy import stats

from engram.app.report import (
    PaperDefaults,
    as_json,
    compare,
    printed,
    results_table,
    save_plot,
    summarise,
    two_sided_p,
)
from engram.app.runs import Row
from engram.errors import EngramError
from tools.docs.results_page import results_page


@pytest.fixture
def defaults(laboratory):
    return PaperDefaults(laboratory.specify)


def _with_final(row, accuracy):
    """The same row with a last line of one accuracy for every task."""
    fields = json.loads(row.line)
    tasks = fields["identity"]["tasks"]
    fields["outcome"]["accuracy"][-1] = [accuracy] * tasks
    return Row.of(fields)


def test_a_hand_worked_summary(make_row):
    # Three tasks learned to 0.9, losing 0.1 with each later task: 0.7, 0.8, 0.9 at the end.
    (summary,) = summarise([make_row(seed=0), make_row(seed=1)])
    accuracy = summary.statistic("average_accuracy")
    assert accuracy.values == pytest.approx((80.0, 79.0))
    assert (accuracy.mean, accuracy.std) == pytest.approx((79.5, 0.5))
    assert summary.statistic("forgetting").values == pytest.approx((0.15, 0.15))
    # The curve rises in a line from 0.1 to 0.6: the area under it is 0.35.
    assert summary.statistic("lca_10").values == pytest.approx((0.35, 0.35))
    assert (summary.seconds, summary.device) == (1.5, "cpu")


def test_json_has_the_stated_shape(make_row):
    entry = as_json(summarise([make_row(seed=0), make_row(seed=1)])[0])
    assert list(entry) == [
        *("method", "average_accuracy", "forgetting", "lca_10", "seeds", "seconds", "device")
    ]
    assert list(entry["lca_10"]) == ["mean", "std", "values"]
    assert entry["seeds"] == 2
    json.dumps(entry, allow_nan=False)


def test_forgetting_of_one_task_and_a_short_curve_are_null(make_row):
    row = make_row(tasks=1)
    short = dataclasses.replace(row, outcome={**row.outcome, "curve": [[0.1] * 10]})
    entry = as_json(summarise([short])[0])
    assert entry["forgetting"] is None
    assert entry["lca_10"] is None
    assert entry["average_accuracy"]["values"] == pytest.approx([90.0])


def test_joint_training_has_an_average_accuracy_alone(make_row):
    row = make_row("multi-task", tasks=2)
    outcome = {**row.outcome, "accuracy": [[None, None], [0.9, 0.8]], "curve": []}
    entry = as_json(summarise([dataclasses.replace(row, outcome=outcome)])[0])
    assert entry["average_accuracy"]["mean"] == pytest.approx(85.0)
    assert entry["forgetting"] is entry["lca_10"] is None


def test_a_seed_that_diverged_has_no_numbers_and_says_why(make_row, defaults, capsys):
    rows = [make_row(seed=seed, fault="diverge") for seed in range(3)]
    (summary,) = summarise(rows)
    entry = as_json(summary)
    assert entry["average_accuracy"]["values"] == pytest.approx([None, 79.0, 78.0])
    assert entry["failures"] == {0: "The weights became non-finite."}
    assert "3 (1 failed)" in _printed_table([summary], defaults, capsys, 120)
    lines = results_page(rows, defaults, "c").splitlines()
    assert (
        "- van fault=diverge: 1 of 3 seeds diverged: seed 0: the weights became non-finite" in lines
    )


def test_the_newest_result_counts(make_row):
    old, new = make_row(), _with_final(make_row(), 0.5)
    for rows in ([old, new], [new, old]):
        (summary,) = summarise(rows)
        assert summary.rows == (new,)


def test_other_settings_are_other_lines(make_row, defaults):
    rows = [make_row("mega-i"), make_row("mega-i", epsilon=0.01), make_row("mega-i", tasks=2)]
    labels = defaults.labels(summarise(rows))
    assert labels == ["mega-i", "mega-i epsilon=0.01", "mega-i"]


def test_what_all_lines_share_is_told_once_in_the_title(make_row, defaults):
    rows = [make_row("mega-i", learning_rate=0.5), make_row("mega-ii", learning_rate=0.5)]
    title, labels = defaults.heading(summarise(rows))
    assert title.endswith("examples, learning_rate=0.5")
    assert labels == ["mega-i", "mega-ii"]


def test_a_line_that_stands_alone_tells_all_of_it(make_row, defaults):
    _, labels = defaults.heading(summarise([make_row("mega-i", epsilon=0.01)]))
    assert labels == ["mega-i epsilon=0.01"]


@pytest.mark.parametrize(
    ("method", "metric", "number"),
    [
        ("van", "average_accuracy", (47.55, 2.37)),
        ("van", "lca_10", (0.259, 0.005)),
        ("mega-ii-unbalanced", "average_accuracy", (91.15, 0.12)),
        ("mega-i-equal", "forgetting", None),
        ("multi-task", "average_accuracy", (95.3, None)),
        ("multi-task", "forgetting", None),
        ("er", "average_accuracy", (90.66, 0.09)),  # the ablation's MEGA-I with equal weights
        ("er", "forgetting", None),
    ],
)
def test_the_papers_numbers(method, metric, number):
    assert printed("permuted-mnist", method, metric) == number


def test_the_paper_stands_beside_its_own_setting_only(make_row, defaults):
    def number(**changes):
        (summary,) = summarise([make_row("mega-i", **{"tasks": 17, **changes})])
        return defaults.printed(summary, "average_accuracy")

    assert number() == (91.10, 0.08)
    assert number(tasks=16) is None
    assert number(examples=600) is None
    assert number(epsilon=0.01) is None


def test_a_method_of_another_version_is_still_shown(make_row, defaults):
    row = make_row(tasks=17)
    identity = {**row.identity, "method": "from-the-future"}
    (summary,) = summarise([dataclasses.replace(row, identity=identity)])
    assert defaults.label(summary).startswith("from-the-future fault= faulty_seed=0")
    assert defaults.printed(summary, "average_accuracy") is None


def _printed_table(summaries, defaults, capsys, width=80):
    Console(width=width).print(results_table(summaries, defaults))
    return capsys.readouterr().out


def test_the_table_fits_a_terminal(make_row, defaults, capsys):
    names = ("van", "a-gem", "mega-i", "mega-ii", "multi-task")
    rows = [make_row(name, seed, tasks=17) for name in names for seed in (0, 1)]
    text = _printed_table(summarise(rows), defaults, capsys)
    lines = [line.split() for line in text.splitlines()]
    assert "permuted-mnist, 17 tasks of 55,000 examples" in text
    line = "mega-ii 35.67±0.50 0.569±0.000 0.350±0.000 2 1.5 91.21±0.10"
    assert line in [" ".join(words) for words in lines]
    assert max(map(len, text.splitlines())) <= 80


@pytest.mark.parametrize("tasks", [17, 5])  # with the paper's numbers and without
def test_a_long_label_takes_no_number_s_place(make_row, defaults, capsys, tasks):
    rows = [make_row("van", tasks=tasks), make_row("mega-i", 0, tasks=tasks, epsilon=0.012345678)]
    rows[1] = dataclasses.replace(rows[1], seconds=9876.0)
    wide, narrow = (
        _printed_table(summarise(rows), defaults, capsys, width).splitlines() for width in (160, 80)
    )
    for method in ("van", "mega-i"):
        (whole,), (squeezed,) = (
            [line.split() for line in lines if line.startswith(f" {method} ")]
            for lines in (wide, narrow)
        )
        assert squeezed == [word for word in whole if not word.startswith("epsilon")]


def test_one_seed_tells_no_spread(make_row, defaults, capsys):
    """Neither does the only one of several that did not diverge; two that are equal do."""
    one = make_row()
    failed = make_row(seed=1)
    failed = dataclasses.replace(failed, outcome={**failed.outcome, "failure": "It diverged."})
    for rows in ([one], [one, failed]):
        table = _printed_table(summarise(rows), defaults, capsys)
        assert " ".join(table.splitlines()[-2].split()).startswith("van 80.00 0.150 0.350 ")
        assert "| van | 80.00 | 0.150 | 0.350 |" in results_page(rows, defaults, "c").splitlines()
        assert as_json(summarise(rows)[0])["average_accuracy"]["std"] is None
    equal = [make_row(), _with_final(make_row(seed=1), 0.8)]
    assert "80.00±0.00" in _printed_table(summarise(equal), defaults, capsys)


def test_no_column_for_the_paper_without_its_numbers(make_row, defaults, capsys):
    assert "paper" not in _printed_table(summarise([make_row()]), defaults, capsys)


def test_markup_in_a_label_is_only_text(make_row, defaults, capsys):
    row = make_row(fault="[red]x[/red]")
    assert "fault=[red]x[/red]" in _printed_table(summarise([row]), defaults, capsys, 120)


def test_the_plot_is_a_png_and_an_svg_with_a_line_for_each_method(tmp_path, make_row, defaults):
    rows = [make_row(name, seed) for name in ("van", "mega-i") for seed in (0, 1)]
    joint = make_row("multi-task")
    outcome = {**joint.outcome, "accuracy": [[None] * 3, [None] * 3, [0.9] * 3], "curve": []}
    rows.append(dataclasses.replace(joint, outcome=outcome))
    path = save_plot(summarise(rows), defaults, tmp_path)
    assert path.read_bytes().startswith(b"\x89PNG")
    ElementTree.parse(path.with_suffix(".svg"))
    svg = path.with_suffix(".svg").read_text()
    assert all(f"<!-- {name} -->" in svg for name in ("van", "mega-i", "multi-task"))
    assert sorted(tmp_path.iterdir()) == [path, path.with_suffix(".svg")]


def test_a_plot_overwrites_no_plot_of_other_results(tmp_path, make_row, defaults):
    paths = {save_plot(summarise([make_row(seed=seed)]), defaults, tmp_path) for seed in (0, 1, 1)}
    assert len(paths) == 2


def test_nothing_is_plotted_if_nothing_finished(tmp_path, make_row, defaults):
    assert save_plot(summarise([make_row(fault="diverge")]), defaults, tmp_path) is None
    assert save_plot([], defaults, tmp_path) is None


@pytest.mark.parametrize("degrees", [1, 2, 3, 4, 9, 30, 1000])
def test_the_p_value_is_scipys(degrees):
    for t in (0.0, 1e-9, 0.01, 0.5, 1.0, 2.2, 5.0, 17.0, 300.0, 1e8):
        for signed in (t, -t):
            expected = 2 * stats.t.sf(abs(signed), degrees)
            assert two_sided_p(signed, degrees) == pytest.approx(expected, rel=1e-9, abs=1e-300)
    assert two_sided_p(math.inf, degrees) == 0


def test_the_paired_comparison_is_scipys(make_row):
    ours = [0.91, 0.93, 0.90, 0.92, 0.915]
    theirs = [0.90, 0.925, 0.905, 0.91, 0.915]
    first = [_with_final(make_row("mega-ii", s), a) for s, a in enumerate(ours)]
    second = [_with_final(make_row("van", s), a) for s, a in enumerate(theirs)]
    result = compare(*summarise([*first, *second, make_row("van", 9)]))
    differences = [100 * (a - b) for a, b in zip(ours, theirs, strict=True)]
    expected = stats.ttest_rel(ours, theirs)
    assert (result.t, result.p) == pytest.approx((expected.statistic, expected.pvalue))
    assert (result.seeds, result.wins, result.losses) == (5, 3, 1)
    assert result.mean == pytest.approx(statistics.fmean(differences))
    assert result.std == pytest.approx(statistics.stdev(differences))


def test_equal_differences_have_no_t(make_row):
    first, second = [], []
    for seed in range(2):
        first.append(_with_final(make_row("mega-ii", seed), 0.5))
        second.append(_with_final(make_row("van", seed), 0.25))
    result = compare(*summarise([*first, *second]))
    assert (result.mean, result.std, result.t, result.p) == (25.0, 0.0, None, None)


def test_a_comparison_takes_two_common_seeds(make_row):
    with pytest.raises(EngramError, match="share 1 finished seeds"):
        compare(*summarise([make_row("mega-ii", 0), make_row("van", 0), make_row("van", 1)]))
