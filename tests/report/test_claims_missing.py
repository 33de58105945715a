"""A claim says what it was marked without, what was computed, and what it still lacks."""

import pytest
from page_reader import report
from paper_world import PAPER, STANDARD, make_row

from engram.report import StandIn, Verdict, judge, summarise
from engram.report._reproduction import reproduction
from engram.report._verdict import Claim, Part

BIRDS = f"other-{'b' * 64}"
OFF = (-0.002, 0.001, 0.001)
BEATS, LCA, GROWS = "MEGA-I and MEGA-II beat every", "MEGA-I and MEGA-II have a high", "PROG-NN"


@pytest.fixture
def known(monkeypatch):
    known = {BIRDS: StandIn("split-cub", "birds", "Not the paper's weights.")}
    monkeypatch.setattr("engram.report._stand_ins._known", lambda: known)


def find(rows, beginning):
    claims = judge(summarise(rows), STANDARD)
    return next(claim for claim in claims if claim.text.startswith(beginning))


def papers_rows(without=()):
    """A store of the paper's own accuracies, without some methods on some benchmarks."""
    return [
        make_row(method, seed, benchmark, final=numbers["average_accuracy"]["mean"] / 100 + off)
        for benchmark, methods in PAPER["results"].items()
        for method, numbers in methods.items()
        if (benchmark, method) not in without
        for seed, off in enumerate(OFF)
    ]


def short(method="mer"):
    """A run of a hundred examples, by which a whole one is projected."""
    return make_row(method, 0, "split-cifar", tasks=2, examples=50)


MER = ("split-cifar", "mer")


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


def test_the_other_numbers_are_not_outweighed_by_it():
    rows = [*papers_rows(without=[MER, ("split-cifar", "gem")]), short()]
    better = [make_row("gem", s, "split-cifar", final=0.9 + off) for s, off in enumerate(OFF)]
    assert find([*rows, *better], BEATS).mark == "not held, without MER on Split CIFAR"
    unsettled = [make_row("gem", s, "split-cifar", final=f) for s, f in enumerate((0.1, 0.9, 0.5))]
    assert find([*rows, *unsettled], BEATS).mark == (
        "not settled by the seeds, without MER on Split CIFAR"
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


def sized(method, benchmark, parameters, data="abc"):
    facts = {"parameters": parameters}
    return [make_row(method, seed, benchmark, facts=facts, data=data) for seed in range(2)]


@pytest.mark.usefixtures("known")
def test_growth_is_projected_where_prog_nn_was_not_run_and_fitting_is_not():
    rows = [row for method in ("van", "prog-nn") for row in sized(method, "permuted-mnist", 1000)]
    rows += sized("van", "split-cub", 11_277_320, BIRDS)
    claim = find(rows, GROWS)
    grown = {part.where: part for part in claim.parts if part.measure == "parameters"}
    birds = grown["Split CUB (projected)"]
    assert birds.ours.mean == pytest.approx(229_786_824 / 11_277_320)  # more than 17 of VAN's
    assert (birds.verdict, birds.projected, birds.stand_in) == (Verdict.HELD, True, "")
    assert (grown["Split AWA"].ours, grown["Split AWA"].absent) == (None, ("prog-nn", "van"))
    fits = [part for part in claim.parts if part.measure == "finished"]
    assert [(part.ours, part.missing, part.absent) for part in fits] == [
        (None, "not run", ("prog-nn",))
    ] * 2
    assert claim.missing == (
        "not run: PROG-NN, VAN on Split CIFAR, Split AWA; PROG-NN on Split CUB"
    )
    assert claim.mark == "not held, in part projected"  # as many as VAN's, where both were run


@pytest.mark.usefixtures("known")
def test_a_run_that_fits_on_a_stand_in_does_not_run_out_of_memory():
    run = [*sized("prog-nn", "split-cub", 10**9, BIRDS), *sized("van", "split-cub", 10**6, BIRDS)]
    claim = find(run, GROWS)
    birds = [part for part in claim.parts if part.where == "Split CUB (stand-in: birds)"]
    assert [(part.measure, part.ours.mean, part.verdict) for part in birds] == [
        ("parameters", 1000, Verdict.HELD),  # its own, where it was run
        ("finished", 1, Verdict.NOT_HELD),
    ]


def test_a_run_that_diverged_tells_nothing_of_memory():
    diverged = [
        make_row("prog-nn", seed, "split-cub", failure="The weights became NaN.")
        for seed in range(2)
    ]
    fits = [part for part in find(diverged, GROWS).parts if part.measure == "finished"]
    assert {part.verdict for part in fits} == {Verdict.OPEN}


@pytest.mark.usefixtures("known")
def test_heights_on_a_stand_in_are_missing_for_that_reason():
    rows = [
        make_row(method, seed, "split-cub", final=final + off, data=BIRDS)
        for method, final in (("mega-ii", 0.9), ("a-gem", 0.3))
        for seed, off in enumerate(OFF)
    ]
    claim = find(rows, "Up to 18 points")
    assert claim.mark == "cannot be told yet"
    assert claim.missing == "heights are not compared on a stand-in: Split CUB"


def test_both_pages_tell_it():
    rows = [*papers_rows(without=[MER]), short()]
    table = reproduction("claims", summarise(rows), STANDARD)
    (line,) = [line for line in table.splitlines() if line.startswith(f"| {BEATS}")]
    assert line.endswith(
        "| held, without MER on Split CIFAR | 50 | 0 | 0 | 2 | not run: MER on Split CIFAR |"
    )
    words = report(rows).words
    assert "held, without MER on Split CIFAR MEGA-I and MEGA-II beat every baseline" in words
    assert "52 numbers: 50 held, 2 without results. Missing: not run: MER on Split CIFAR." in words
