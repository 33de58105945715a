"""A claim says what it was marked without, and what it still lacks."""

import pytest
from claim_reader import OFF, find, papers_rows
from page_reader import report
from paper_world import DEFAULTS, PAPER, make_row

from engram.app.report import Claim, Part, StandIn, Verdict, summarise
from tools.docs.reproduction import reproduction

BIRDS = f"other-{'b' * 64}"
BEATS, LCA = "MEGA-I and MEGA-II beat every", "MEGA-I and MEGA-II have a high"

MER, GEM = ("split-cifar", "mer"), ("split-cifar", "gem")
WHOLE = 17 * 2_500  # examples


def short(method="mer", seconds=48.9):
    """A run of a hundred examples, by which a whole one is projected; MER's took so long."""
    return make_row(method, 0, "split-cifar", tasks=2, examples=50, seconds=seconds)


def test_what_was_not_run_is_named_and_leaves_a_claim_open():
    claim = find(papers_rows(without=[MER]), BEATS)
    assert (claim.verdict, claim.mark) == (Verdict.OPEN, "cannot be told yet")
    assert claim.missing == "not run: MER on Split CIFAR"
    assert find(papers_rows(), BEATS).missing == ""


def test_what_takes_too_long_and_was_projected_is_set_aside_and_the_mark_says_so():
    claim = find([*papers_rows(without=[MER]), short()], BEATS)
    assert (claim.verdict, claim.mark) == (Verdict.HELD, "held, without MER on Split CIFAR")
    assert claim.missing == "not run: MER on Split CIFAR"
    assert sum(part.ours is None for part in claim.parts) == 2  # against MEGA-I and MEGA-II


def test_a_short_run_of_what_nobody_would_wait_long_for_leaves_a_claim_open():
    claim = find([*papers_rows(without=[GEM]), short("gem", seconds=2.0)], BEATS)
    assert (claim.verdict, claim.mark) == (Verdict.OPEN, "cannot be told yet")
    assert claim.missing == "not run: GEM on Split CIFAR"


@pytest.mark.parametrize(("hours", "verdict"), [(23.9, Verdict.OPEN), (24.1, Verdict.HELD)])
def test_too_long_is_more_than_a_day_for_five_seeds(hours, verdict):
    seconds = hours * 3600 / 5 * 100 / WHOLE
    assert find([*papers_rows(without=[MER]), short(seconds=seconds)], BEATS).verdict == verdict


def test_the_other_numbers_are_not_outweighed_by_it():
    rows = [*papers_rows(without=[MER, GEM]), short()]
    better = [make_row("gem", s, "split-cifar", final=0.9 + off) for s, off in enumerate(OFF)]
    assert find([*rows, *better], BEATS).mark == "not held, without MER on Split CIFAR"
    unsettled = [make_row("gem", s, "split-cifar", final=f) for s, f in enumerate((0.1, 0.9, 0.5))]
    assert find([*rows, *unsettled], BEATS).mark == (
        "not held: not settled by the seeds, without MER on Split CIFAR"
    )
    assert find(rows, BEATS).mark == "cannot be told yet"  # for GEM was not run at all
    assert find(rows, BEATS).missing == "not run: MER, GEM on Split CIFAR"


def test_a_claim_of_nothing_else_stays_open():
    aside = Part("forgetting", "mega-i", "mer", False, "here", 0, 1, None, None, "not run",
                 absent=("mer",), too_long=True)  # fmt: skip
    assert Claim("", (aside,)).mark == "cannot be told yet"


def test_a_median_says_which_methods_it_was_made_without():
    rows = papers_rows()
    for row in rows:  # MEGA learns at once, and nobody else anything
        height = 0.9 if row.identity["method"].startswith("mega") else row.seed / 10
        row.outcome["curve"][:] = [[height] * 11 for _ in row.outcome["curve"]]
    assert (find(rows, LCA).mark, find(rows, LCA).missing) == ("held", "")
    fewer = [row for row in rows if (row.identity["benchmark"], row.identity["method"]) != MER]
    claim = find(fewer, LCA)
    assert claim.mark == "held, without MER on Split CIFAR"
    assert claim.missing == "not run: MER on Split CIFAR"
    assert [part.absent for part in claim.parts if part.where == "Split CIFAR"] == [("mer",)] * 2


def test_places_with_the_same_methods_are_told_together_and_many_methods_counted():
    both = [("split-cub", "pi"), ("split-awa", "pi"), ("split-awa", "ewc")]
    assert find(papers_rows(without=both), BEATS).missing == (
        "not run: PI on Split CUB; EWC, PI on Split AWA"
    )
    assert find(papers_rows(without=both[:2]), BEATS).missing == (
        "not run: PI on Split CUB, Split AWA"
    )
    nothing = [(benchmark, name) for benchmark, some in PAPER["results"].items() for name in some]
    nothing = [each for each in nothing if each[0] == "split-awa"]
    assert find(papers_rows(without=nothing), BEATS).missing == "not run: 8 methods on Split AWA"


def test_a_stand_in_tells_which_is_better_and_not_by_how_much(list_stand_ins):
    list_stand_ins({BIRDS: StandIn("split-cub", "birds", "Not the paper's weights.")})
    rows = [
        make_row(method, seed, "split-cub", final=final + off, data=BIRDS)
        for method, final in (("mega-ii", 0.9), ("a-gem", 0.3))
        for seed, off in enumerate(OFF)
    ]
    claim = find(rows, "Up to 18 points")
    assert (claim.mark, claim.missing) == ("not testable here, on a stand-in", "")
    (better,) = [each for each in find(rows, BEATS).parts if each.of == "mega-ii" and each.ours]
    assert (better.than, better.verdict) == ("a-gem", Verdict.HELD)
    real = [make_row(row.identity["method"], row.seed, "split-cub", final=0.5) for row in rows]
    claim = find([*rows, *real], "Up to 18 points")  # which comes before any stand-in
    assert (claim.mark, claim.missing) == ("not held", "")


def test_both_pages_tell_it():
    rows = [*papers_rows(without=[MER]), short()]
    table = reproduction("claims", summarise(rows), DEFAULTS)
    (line,) = [line for line in table.splitlines() if line.startswith(f"| {BEATS}")]
    assert line.endswith(
        "| held, without MER on Split CIFAR | 50 (50) | 0 | 0 | 0 | 0 | 2 "
        "| not run: MER on Split CIFAR |"
    )
    rule = "5 whole runs, a seed each, would take more than 24 hours"
    assert rule in table
    words = report(rows).words
    assert rule in words
    assert "held, without MER on Split CIFAR MEGA-I and MEGA-II beat every baseline" in words
    assert "52 numbers: 50 held, 2 without results. Missing: not run: MER on Split CIFAR." in words
