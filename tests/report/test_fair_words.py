"""What is equal, far away or diverged is said to be, and a stand-in's heights are not compared."""

import pytest
from paper_world import DEFAULTS, make_row, told

from engram.app.report import StandIn, summarise
from tools.docs.method_page import method_results
from tools.docs.reproduction import far_lines, ranking, reproduction
from tools.docs.results_page import results_page

BIRDS = f"other-{'b' * 64}"
OFF = (-0.002, 0.001, 0.001)


@pytest.fixture
def known(list_stand_ins):
    list_stand_ins({BIRDS: StandIn("split-cub", "birds", "Not the paper's weights.")})


def birds(method, final, like=None):
    """Runs on the stand-in; ``like`` is the method whose steps this one takes."""
    rows = []
    for seed, off in enumerate(OFF):
        taken = make_row(like or method, seed, "split-cub", final=final + off)
        row = make_row(method, seed, "split-cub", data=BIRDS)
        row.outcome["accuracy"][:] = taken.outcome["accuracy"]
        rows.append(row)
    return rows


def page(part, rows):
    return reproduction(part, summarise(rows), DEFAULTS)


@pytest.mark.usefixtures("known")
def test_ties_on_a_stand_in_are_joined_and_the_same_runs_counted_once():
    rows = [*birds("van", 0.3), *birds("ewc", 0.3, like="van"), *birds("mas", 0.3)]
    rows += birds("a-gem", 0.5)
    *_, order, correlation = page("split-cub", rows).split("\n\n")
    assert "| stand-in | a-gem, van = ewc = mas |" in order.splitlines()
    assert ", over 4 methods, 3 distinct runs: " in correlation
    *_, all_distinct = page("split-cub", [*birds("van", 0.3), *birds("mas", 0.4)]).split("\n\n")
    assert ", over 2 methods: 1.00." in all_distinct


def test_orders_without_ties_have_commas_alone():
    assert ranking({"a": 1.0, "b": 3.0, "c": 2.0}) == "b, c, a"


@pytest.mark.usefixtures("known")
def test_heights_on_a_stand_in_are_not_compared():
    rows = [*birds("van", 0.3), *birds("a-gem", 0.5)]
    real = [make_row("van", seed, "split-cub") for seed in range(2)]
    texts = {
        "Δ/σ": lambda rows: page("split-cub", rows),
        "difference": lambda rows: results_page(rows, DEFAULTS, "c"),
        "| difference": lambda rows: "\n".join(
            method_results(summarise(rows), ["van"], DEFAULTS, "all.md")
        ),
    }
    for word, text in texts.items():
        assert word in text(real)
        assert word not in text(rows)
        assert f"| {told(rows[:3], 'average_accuracy')} | 53.89 ± 2.00 |" in text(rows)


def test_receipts_count_the_seeds_that_diverged():
    rows = [make_row("van", seed) for seed in range(4)]
    rows.append(make_row("van", 4, failure="The weights became non-finite."))
    for text in (page("permuted-mnist", rows), results_page(rows, DEFAULTS, "c")):
        assert "| 5 (1 failed) | " in text
    few = {"tasks": 20, "examples": 200, "memory_per_class": 6}
    rows = [make_row("van", 0, **few), make_row("van", 1, failure="No.", **few)]
    assert "| 2 (1 failed) | cpu |" in page("limited-examples", rows)


def test_what_was_not_run_with_the_presets_is_missing():
    mer = make_row("mer", 0, tasks=20, examples=600, memory_per_class=256)
    (line,) = [li for li in page("missing", [mer]).splitlines() if "20 tasks of 600: van" in li]
    assert ", mer," in line


def test_lines_far_from_the_paper_are_listed_with_the_page_of_their_method():
    near = [make_row("gem", seed, final=0.895) for seed in range(2)]  # the paper has 89.50 ± 0.48
    far = [make_row("er", seed, final=0.95) for seed in range(2)]  # 90.66 ± 0.09, as mega-i-equal
    text = far_lines(summarise([*near, *far]), DEFAULTS, lambda page: f"methods/{page}.md")
    lines = [line for line in text.splitlines() if line.startswith("- average accuracy %, ")]
    gap = (95 - 90.66) / 0.09
    assert lines == [
        "- average accuracy %, [mega-i-equal](methods/er.md) on permuted-mnist: 95.00 ± 0.00, "
        f"paper 90.66 ± 0.09 ({gap:+.1f})"
    ]
    assert far_lines(summarise([]), DEFAULTS, str) == "None."


@pytest.mark.usefixtures("known")
def test_a_stand_in_is_not_far_from_anything():
    assert far_lines(summarise(birds("van", 0.01)), DEFAULTS, str) == "None."


def tuned(finals, failed=()):
    return [
        make_row(
            "mega-i",
            seed,
            tasks=3,
            split="tuning",
            final=final,
            epsilon=10.0**-place,
            failure="The weights became NaN." if place in failed else None,
        )
        for place, final in enumerate(finals)
        for seed in range(2)
    ]


@pytest.mark.parametrize(
    ("finals", "failed", "told"),
    [
        ([0.5] * 5, (), "all five are equal"),
        ([0.5] * 2, (), "both are equal"),
        ([0.5] * 12, (), "all 12 are equal"),
        ([0.5] * 4, (1,), "all three that did not diverge are equal"),
        ([0.5, 0.6, 0.5], (), "the best was"),
        ([0.5, 0.6, 0.6], (), "the best was"),
        ([0.5, 0.6], (1,), "the best was"),
    ],
)
def test_a_search_that_found_no_difference_says_so(finals, failed, told):
    rows = tuned(finals, failed)
    (text,) = method_results(summarise(rows), ["mega-i"], DEFAULTS, "all.md")
    assert text.startswith(f"Of the {len(finals)} settings tried on ")
    assert f", 2 seeds each, {told}" in text
    whole = results_page(rows, DEFAULTS, "c")
    if "equal" in told:
        assert f"Of the settings of mega-i {told}." in whole
        assert "best" not in text + whole
    else:
        assert "The best average accuracy without a seed that diverged: mega-i epsilon=" in whole
