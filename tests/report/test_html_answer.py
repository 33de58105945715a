"""The answer: against whom, yes or no, and what the page is about where all data is one's own."""

import pytest
from page_reader import report
from paper_world import make_row

TABLE, FOLDER = "table-sales-0123456789", "folder-photos-0123456789"
EVEN, HIGH, LOW, WIDE = [0.7, 0.71, 0.69], [0.8, 0.81, 0.8], [0.5, 0.51, 0.49], [0.5, 0.7, 0.95]


def runs(method, finals, benchmark=TABLE, **options):
    options = {"tasks": 3, "examples": 50, **options}
    return [make_row(method, s, benchmark, final=f, **options) for s, f in enumerate(finals)]


@pytest.mark.parametrize(
    ("table", "folder", "told"),
    [
        (HIGH, HIGH, "Yes: it is ahead in 2 of 2 settings, by 10.33 points of average accuracy."),
        (
            HIGH,
            LOW,
            "Not everywhere: it is ahead in 1 of 2 settings, by 10.33 points of average accuracy "
            "(it is behind in 1).",
        ),
        (
            WIDE,
            HIGH,
            "Not everywhere: it is ahead in 1 of 2 settings, by 10.33 points of average accuracy "
            "(the seeds do not settle it in 1).",
        ),
        (
            LOW,
            WIDE,
            "No: it is behind in 1 of 2 settings, by 20.00 points of average accuracy "
            "(the seeds do not settle it in 1).",
        ),
        (
            WIDE,
            WIDE,
            "The seeds do not settle it: the 95 % interval of the difference has 0 in it in each "
            "of 2 settings. More seeds would make it narrower.",
        ),
    ],
)
def test_no_is_said_only_where_it_is_behind(table, folder, told):
    rows = [*runs("mega-ii", table), *runs("mega-ii", folder, FOLDER)]
    page = report([*rows, *runs("a-gem", EVEN), *runs("a-gem", EVEN, FOLDER)])
    assert told in page.words
    assert page.headings[1] == "Does MEGA-II beat A-GEM?"


def test_the_opponent_is_a_gem_or_else_van_or_else_the_first_other_baseline():
    mega = runs("mega-ii", HIGH)
    rows = [*mega]
    names = {"er": "ER (equal weights)", "ewc": "EWC", "van": "VAN", "a-gem": "A-GEM"}
    for method, name in names.items():
        rows += runs(method, EVEN)
        page = report(rows)
        assert page.headings[1] == f"Does MEGA-II beat {name}?"
        assert f"+10.33 points against {name}" in page.words
        assert ("where that was not run, against VAN" in page.words) == (name != "A-GEM")
    for method in ("multi-task", "mega-i", "mega-ii-unbalanced"):  # no baselines
        assert "cannot be told yet" in report([*mega, *runs(method, EVEN)]).words


def test_one_seed_of_a_gem_is_no_opponent():
    rows = [*runs("mega-ii", HIGH), *runs("van", EVEN), *runs("a-gem", EVEN[:1])]
    assert report(rows).headings[1] == "Does MEGA-II beat VAN?"


def test_both_are_in_the_same_precision():
    mega, low = runs("mega-ii", HIGH), {"precision": "bfloat16"}
    rows = [*mega, *runs("a-gem", LOW, **low)]
    assert "cannot be told yet" in report(rows).words
    against_van = report([*rows, *runs("van", EVEN)])
    assert against_van.headings[1] == "Does MEGA-II beat VAN?"
    assert "against A-GEM in the same precision; where that was not run" in against_van.words
    page = report([*rows, *runs("van", EVEN), *runs("mega-ii", EVEN, **low)])
    assert "+20.00 points against A-GEM" in page.words  # of the lower precision both
    page = report([*rows, *runs("mega-ii", EVEN, **low), *runs("a-gem", EVEN)])
    assert "+10.33 points against A-GEM" in page.words  # the usual one speaks where both are there


def test_opponents_that_differ_are_named_where_they_are():
    rows = [*runs("mega-ii", HIGH), *runs("van", EVEN)]
    for tasks in (4, 5, 6, 7):
        rows += [
            *runs("mega-ii", HIGH, FOLDER, tasks=tasks),
            *runs("a-gem", LOW, FOLDER, tasks=tasks),
        ]
    page = report(rows)
    assert page.headings[1] == "Does MEGA-II beat A-GEM, or VAN where A-GEM was not run?"
    (line,) = page.tables["MEGA-II against VAN in other settings"][1:]
    assert line[0] == f"{TABLE}, 3 tasks of up to 50 examples"
    assert page.words.count("points against A-GEM") == 4


def test_the_times_of_runs_below_five_seconds_are_not_compared():
    for seconds, compared in ((60, True), (4, False)):
        rows = [*runs("mega-ii", HIGH, seconds=120), *runs("van", EVEN, seconds=seconds)]
        words = report(rows).words
        assert ("times VAN's seconds" in words) == compared
        assert ("(on cpu; below 5 seconds not compared)" in words) != compared


def test_a_page_of_one_s_own_data_is_not_about_the_paper():
    mine = [*runs("mega-ii", HIGH), *runs("van", EVEN), *runs("van", EVEN, examples=20)]
    page = report(mine)
    assert page.headings[0] == "Engram: results"
    assert "the paper's claims are left out" in page.words
    assert "The paper's claims" not in page.headings
    assert "#claims" not in page.links
    for word in ("not in this store yet", "cannot be told yet", "diamond", "Stand-ins"):
        assert word not in page.words
    assert [*page.data] == [f"{TABLE}-3x20", f"{TABLE}-3x50"]


def test_beside_the_paper_s_benchmarks_one_s_own_data_comes_later():
    mine = [*runs("mega-ii", HIGH), *runs("van", EVEN)]
    page = report([*mine, make_row("van")])
    assert page.headings[0] == "MEGA, reproduced"
    assert "The paper's claims" in page.headings
    assert [*page.data] == ["permuted-mnist-17x55000", f"{TABLE}-3x50"]
