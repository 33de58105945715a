"""The paper's claims are held, not held or open by our numbers alone."""

import math
from copy import deepcopy
from dataclasses import replace
from itertools import combinations

import pytest
from claim_reader import OFF, find, judged, papers_rows
from hypothesis import assume, given
from hypothesis import strategies as st
from paper_world import make_row
from scipy import stats

from engram.app.report import Claim, Estimate, Part, Verdict, holm


@given(st.lists(st.floats(-100, 100), min_size=2, max_size=20, unique=True))
def test_an_interval_is_students(values):
    estimate = Estimate.over(values)
    low, high = stats.ttest_1samp(values, 0).confidence_interval(0.95)
    assert (estimate.low, estimate.high) == pytest.approx((low, high), rel=1e-6, abs=1e-6)
    assert estimate.low <= estimate.mean <= estimate.high
    assert estimate.seeds == len(values)


def part(low, high, above=-math.inf, below=math.inf):
    ours = Estimate((low + high) / 2, low, high, 5)
    return Part("forgetting", "mega-i", "gem", False, "here", above, below, ours, None)


@pytest.mark.parametrize(
    ("low", "high", "above", "below", "verdict"),
    [
        (0.1, 0.2, 0, math.inf, Verdict.HELD),
        (-0.2, -0.1, 0, math.inf, Verdict.NOT_HELD),
        (-0.1, 0.2, 0, math.inf, Verdict.UNSETTLED),
        (-0.2, -0.1, -math.inf, 0, Verdict.HELD),
        (-0.1, 0.2, -1, 1, Verdict.HELD),
        (0.5, 1.5, -1, 1, Verdict.UNSETTLED),
        (1.5, 2.5, -1, 1, Verdict.NOT_HELD),
        (0, 0, 0, math.inf, Verdict.UNSETTLED),  # seeds that are all equal settle nothing
        (-math.inf, math.inf, 0, math.inf, Verdict.UNSETTLED),
    ],
)
def test_a_number_is_held_where_its_whole_interval_is(low, high, above, below, verdict):
    assert part(low, high, above, below).verdict == verdict


@pytest.mark.parametrize(
    ("low", "high", "above", "below", "paper", "none"),
    [
        (-0.23, 0.09, 0, math.inf, 0.44, True),
        (-0.23, 0.09, 0, math.inf, 0.05, False),  # there is room for the paper's
        (-0.23, 0.09, 0, math.inf, None, False),
        (-0.23, 0.09, 0, math.inf, -0.44, False),  # the paper's own number is against it
        (-0.09, 0.23, -math.inf, 0, -0.44, True),
        (0.1, 0.2, 0, math.inf, 0.44, False),  # a difference all the same
        (0, 0, 0, math.inf, 0.44, False),  # seeds that are all equal settle nothing
        (-0.5, 2.2, -2, 2, 4.0, False),
    ],
)
def test_there_is_no_difference_where_the_paper_s_is_excluded(low, high, above, below, paper, none):
    each = replace(part(low, high, above, below), paper=paper)
    assert (each.verdict == Verdict.NO_DIFFERENCE) == none
    if none:
        assert Claim("", (each, part(1, 2, 0))).mark == "not held: no difference larger than 0.23"
        assert Claim("", (each, part(-2, -1, 0))).verdict == Verdict.NOT_HELD
        assert replace(each, stand_in="birds").verdict == Verdict.UNSETTLED


@pytest.mark.parametrize(
    ("measure", "above", "testable"),
    [("forgetting", 18, False), ("forgetting", 0, True), ("parameters", 18, True)],
)
def test_how_high_something_is_is_not_tested_on_a_stand_in(measure, above, testable):
    each = replace(part(20, 30, above), measure=measure)
    assert each.verdict == Verdict.HELD
    each = replace(each, stand_in="birds")
    assert each.verdict == (Verdict.HELD if testable else Verdict.NOT_TESTABLE)
    assert Claim("", (each, replace(part(1, 2, 0), stand_in="birds"))).verdict == Verdict.HELD


@given(st.lists(st.floats(0, 1), min_size=1, max_size=7))
def test_holm_s_correction_is_the_closed_test_of_bonferroni_s(chances):
    """By definition: a test is kept if every set of tests with it has a p of at most 5 % / size."""
    places = range(len(chances))
    closed = [
        all(
            min(chances[each] for each in some) <= 0.05 / len(some)
            for size in range(1, len(chances) + 1)
            for some in combinations(places, size)
            if place in some
        )
        for place in places
    ]
    assert holm(chances) == closed


@given(st.lists(st.floats(-100, 100), min_size=2, max_size=20, unique=True), st.floats(-100, 100))
def test_a_bound_has_student_s_chance(values, bound):
    estimate = Estimate.over(values)
    assume(estimate.high - estimate.low > 1e-3)
    truth = stats.ttest_1samp(values, bound).pvalue
    assert estimate.chance(bound) == pytest.approx(truth, rel=1e-6, abs=1e-9)
    assert Estimate.over(values[:1]).chance(bound) == 1.0


def test_methods_that_are_equal_in_every_number_are_counted_once():
    rows = [
        make_row(method, seed, "split-cub", final=0.5 + off)
        for method in ("van", "ewc", "mega-ii", "a-gem")
        for seed, off in enumerate(OFF)
    ]
    by_method = {}
    for row in rows:
        by_method.setdefault(row.identity["method"], []).append(row)
    for van, ewc in zip(by_method["van"], by_method["ewc"], strict=True):
        ewc.outcome["accuracy"][:] = deepcopy(van.outcome["accuracy"])
    found = [each for each in find(rows, "MEGA-I and MEGA-II beat").parts if each.ours]
    assert [(each.than, each.equals) for each in found] == [("van", ("ewc",)), ("a-gem", ())]
    by_method["ewc"][1].outcome["accuracy"][0][0] += 0.001  # in one number alone
    found = [each for each in find(rows, "MEGA-I and MEGA-II beat").parts if each.ours]
    assert [each.than for each in found] == ["van", "ewc", "a-gem"]


def test_what_is_sure_is_so_for_all_numbers_of_all_claims_together():
    rows = papers_rows()
    claims = judged(rows)
    parts = [each for claim in claims for each in claim.parts if each.ours is not None]
    assert {each.sure for each in parts} == {True, False}
    for each in parts:
        settled = each.verdict in (Verdict.HELD, Verdict.NOT_HELD, Verdict.NO_DIFFERENCE)
        assert settled or not each.sure
    best = find(rows, "MEGA-I and MEGA-II beat every baseline")
    assert best.count(Verdict.HELD, sure=True) <= best.count(Verdict.HELD)


def test_a_claim_is_held_by_all_its_numbers_and_lost_by_one():
    held, lost, chance = part(1, 2, 0), part(-2, -1, 0), part(-1, 1, 0)
    missing = replace(held, ours=None, missing="not run")
    assert Claim("", (held, held)).verdict == Verdict.HELD
    assert Claim("", (held, chance)).verdict == Verdict.UNSETTLED
    assert Claim("", (held, chance)).mark == "not held: not settled by the seeds"
    assert Claim("", (held, chance, missing)).verdict == Verdict.OPEN
    assert Claim("", (held, chance, missing, lost)).verdict == Verdict.NOT_HELD
    assert Claim("", (held, chance, missing, lost)).count(Verdict.UNSETTLED) == 1


def test_nothing_can_be_told_of_an_empty_store():
    claims = judged([])
    assert {claim.verdict for claim in claims} == {Verdict.OPEN}
    assert all(each.missing == "not run" for claim in claims for each in claim.parts)


def test_the_papers_own_accuracies_hold_what_the_paper_says_of_them():
    rows = papers_rows()
    best = find(rows, "MEGA-I and MEGA-II beat every baseline")
    assert best.verdict == Verdict.HELD
    assert len(best.parts) == 2 * (7 - 1 + 8 + 6 + 6)  # every table, less PROG-NN on MNIST
    for each in best.parts:
        assert each.ours.mean == pytest.approx(each.paper)
    cub = find(rows, "Up to 18 points")
    assert cub.verdict == Verdict.HELD
    assert cub.parts[0].ours.mean == pytest.approx(80.58 - 61.82)


def test_a_baseline_that_is_better_is_named():
    rows = papers_rows() + [
        make_row("gem", seed, final=0.95 + off) for seed, off in enumerate(OFF, 100)
    ]
    rows += [make_row("mega-i", seed, final=0.91 + off) for seed, off in enumerate(OFF, 100)]
    rows = [row for row in rows if row.seed >= 100 or row.identity["benchmark"] != "permuted-mnist"]
    best = find(rows, "MEGA-I and MEGA-II beat every baseline")
    assert best.verdict == Verdict.NOT_HELD
    lost = [each for each in best.parts if each.verdict == Verdict.NOT_HELD]
    assert [(each.of, each.than, each.where) for each in lost] == [
        ("mega-i", "gem", "Permuted MNIST")
    ]
    assert lost[0].ours.mean == pytest.approx(-4)


def test_only_shared_seeds_and_only_the_papers_settings_are_compared():
    rows = [make_row("mega-ii", seed, "split-cub", final=0.9) for seed in (0, 1, 2)]
    rows += [make_row("a-gem", seed, "split-cub", final=0.5) for seed in (2, 3)]
    rows += [make_row("a-gem", seed, "split-cub", tasks=3, final=0.1) for seed in (0, 1)]
    rows += [make_row("a-gem", 0, "split-cub", split="tuning", final=0.1)]
    (only,) = find(rows, "Up to 18 points").parts
    assert only.ours.mean == pytest.approx(40)
    assert only.ours.seeds == 1
    assert only.verdict == Verdict.UNSETTLED  # one seed settles nothing
    (none,) = find(rows[:3] + rows[4:5], "Up to 18 points").parts
    assert (none.ours, none.missing) == (None, "no seed in common")


def test_a_method_speaks_with_its_usual_settings():
    rows = [make_row("mega-ii", seed, "split-cub", final=0.9 + OFF[seed]) for seed in range(3)]
    rows += [make_row("a-gem", seed, "split-cub", final=0.5 + 2 * OFF[seed]) for seed in range(3)]
    rows += [make_row("a-gem", seed, "split-cub", final=0.8, learning_rate=1) for seed in range(9)]
    (only,) = find(rows, "Up to 18 points").parts
    assert only.ours.mean == pytest.approx(40)
    assert only.verdict == Verdict.HELD


def test_nobody_speaks_for_a_setting_but_its_presets_in_whatever_precision():
    def part(settings):
        few = {"tasks": 20, "examples": 600, "memory_per_class": 6}
        rows = [make_row("mega-ii", s, final=0.8 + OFF[s], **few) for s in range(3)]
        rows += [make_row("mer", s, final=0.7 - OFF[s], **{**few, **settings}) for s in range(3)]
        parts = find(rows, "Limited examples").parts
        return next(each for each in parts if each.than == "mer" and "600" in each.where)

    assert part({}).verdict == part({"precision": "bfloat16"}).verdict == Verdict.HELD
    for other in ({"memory_per_class": 256}, {"learning_rate": 1.0}, {"examples": 599}):
        assert (part(other).ours, part(other).missing) == (None, "not run")


def test_fewer_examples_than_the_paper_s_are_not_the_paper_s():
    rows = [make_row(m, s, "split-cub", examples=50) for m in ("mega-ii", "a-gem") for s in (0, 1)]
    (none,) = find(rows, "Up to 18 points").parts
    assert (none.ours, none.missing) == (None, "not run")


def test_times_are_compared_on_one_device_alone():
    def parts(device, stacked=1):
        many = {"tasks": 30, "examples": 200, "memory_per_class": 6, "facts": {"stacked": stacked}}
        rows = [make_row("mer", seed, seconds=90, **many) for seed in range(5)]
        rows += [make_row("mega-ii", s, seconds=9, device=device, **many) for s in range(5)]
        claim = find(rows, "Many tasks")
        return [each for each in claim.parts if each.measure == "seconds" and "30" in each.where]

    (same,) = parts("cpu")
    assert same.verdict == Verdict.HELD
    assert 8 < same.ours.mean < 10
    (other,) = parts("a GPU")
    assert (other.ours, other.missing) == (None, "run on different devices")
    (once,) = parts("cpu", stacked=5)  # five seeds, and one clock
    assert (once.ours, once.missing) == (None, "timed 1 of 5 times")
    assert once.verdict == Verdict.OPEN


def test_facts_of_runs_are_measures_too():
    shares = {200: 1.0, 600: 3.0, 55_000: 3.5}
    rows = [
        make_row(
            "mega-i",
            seed,
            tasks=20,
            examples=n,
            memory_per_class=6,
            facts={"k2_below_1_percent": share + OFF[seed] * n / 100},
        )
        for n, share in shares.items()
        for seed in range(3)
        if n != 55_000
    ]
    rows += [
        make_row("mega-i", seed, tasks=20, facts={"k2_below_1_percent": 3.5 + OFF[seed]})
        for seed in range(3)
    ]
    claim = find(rows, "The share of steps with k2")
    assert claim.verdict == Verdict.HELD
    assert [each.ours.mean for each in claim.parts] == pytest.approx([2.0, 0.5])
    assert [each.paper for each in claim.parts] == [2.1, 0.46]
    sizes = {"van": 1000, "prog-nn": 153_000}
    rows = [make_row(m, s, facts={"parameters": n}) for m, n in sizes.items() for s in range(2)]
    grown = find(rows, "PROG-NN").parts[0]
    assert (grown.ours.mean, grown.verdict) == (153, Verdict.HELD)


def test_accuracy_over_the_tasks_and_the_median_of_baselines():
    rows = [make_row(m, seed) for m in ("van", "ewc", "gem", "mega-i") for seed in range(4)]
    claim = find(rows, "As tasks are added")

    def change(row):
        matrix = row.outcome["accuracy"]
        return 100 * (sum(matrix[-1]) / len(matrix) - matrix[0][0])

    def values(method):
        return [change(row) for row in rows if row.identity["method"] == method]

    of = {each.of: each for each in claim.parts if each.where == "Permuted MNIST"}
    assert of["mega-i"].ours.mean == pytest.approx(sum(values("mega-i")) / 4)
    middle = [sorted(three)[1] for three in zip(*map(values, ("van", "ewc", "gem")), strict=True)]
    assert of["median"].ours.mean == pytest.approx(sum(middle) / 4)
    assert of["mega-ii"].ours is None
