"""Numbers that would mislead are told with what they rest on, or not at all."""

import math
from dataclasses import replace

import pytest
from claim_reader import find
from paper_world import DEFAULTS, make_row

from engram.app.report import Claim, Estimate, Part, summarise
from engram.app.report.comparison import paired_comparisons
from engram.app.report.html.claims import claims_view
from engram.app.report.measures import held_bytes, quantity
from engram.lab import methods
from engram.lab.protocol import build_method, build_stream, specify

DAY = "2026-01-03T03:04:05.000000Z"


def pair(seconds):
    """MEGA-II and A-GEM with so many seconds for each seed."""
    rows = [make_row(method, seed) for method in seconds for seed in range(3)]
    taken = [number for numbers in seconds.values() for number in numbers]
    return [replace(row, seconds=number) for row, number in zip(rows, taken, strict=True)]


def shown(part):
    """What the page shows of a claim of one number."""
    (view,) = claims_view([Claim("", (part,))]).claims
    return view


def test_a_first_run_that_starts_up_does_not_make_a_method_slow():
    rows = pair({"mega-ii": (53.0, 15.0, 16.0), "a-gem": (37.0, 16.0, 16.0)})
    (compared,) = paired_comparisons(summarise(rows), DEFAULTS)
    assert compared.times == 1.0


def test_times_of_different_days_are_not_compared():
    rows = pair({"mega-ii": (15.0,) * 3, "a-gem": (16.0,) * 3})
    (compared,) = paired_comparisons(
        summarise([*rows[:3], *(replace(row, created=DAY) for row in rows[3:])]), DEFAULTS
    )
    assert compared.times is None


def test_a_claim_says_whose_seeds_diverged():
    rows = [
        make_row(method, seed, tasks=70, examples=200, memory_per_class=6)
        for method in ("mega-ii", "prog-nn", "gem")
        for seed in range(5)
    ]
    rows = [
        replace(row, outcome={**row.outcome, "failure": "The loss became non-finite."})
        if row.identity["method"] == "prog-nn" and row.seed > 1
        else row
        for row in rows
    ]
    claim = find(rows, "Many tasks")
    told = {each.than: each for each in claim.parts if each.ours and each.where.startswith("70")}
    view = shown(told["prog-nn"])
    *_, seeds, _, _ = view.table.lines[0]
    assert seeds == "2; 3 of PROG-NN's 5 diverged"
    assert "2 seeds; 3 of PROG-NN's 5 diverged; claimed above" in view.decisive[0].sentence
    assert told["gem"].diverged == ()


@pytest.mark.parametrize(
    ("low", "high", "above", "below", "ratio", "mark"),
    [
        (-0.1, 0.2, 0, math.inf, False, "within chance"),
        (1.7, 2.7, 2, math.inf, False, "too near 2 to tell"),
        (0.5, 1.5, -1, 1, False, "too near 1 to tell"),
        (0.8, 1.2, -math.inf, 1, True, "within chance"),
        (-math.inf, math.inf, 2, math.inf, False, "within chance"),
    ],
)
def test_a_difference_that_is_there_is_not_called_chance(low, high, above, below, ratio, mark):
    ours = Estimate(1.0, low, high, 5)
    part = Part("forgetting", "mega-i", "gem", ratio, "here", above, below, ours, None)
    assert shown(part).table.lines[0][-1] == shown(part).decisive[0].mark == mark


def test_memory_that_was_not_recorded_is_computed():
    told = [
        quantity(make_row(method, facts=facts), "memory_bytes_in_all")
        for method, facts in (("van", {}), ("ewc", {}), ("ewc", {"state_bytes": 8000}))
    ]
    assert told == [4000, 20_000, 12_000]


@pytest.mark.parametrize("method", methods.names())
def test_it_is_computed_as_methods_hold_it(method):
    spec = specify("permuted-mnist", method, tasks=1, examples=10)
    facts = build_method([spec], build_stream(spec, [0], "cpu"), "cpu").facts()
    row = make_row(method, facts={"parameters": facts["parameters"]})
    held = {"parameters": facts["parameters"], "state_bytes": facts["state_bytes"]}
    computed = quantity(row, "memory_bytes_in_all")
    assert computed == pytest.approx(held_bytes(held), rel=0.01)
