"""Runs that trained together are told with the time of all of them."""

from dataclasses import replace

import pytest
from paper_world import DEFAULTS, make_row

from engram.app.report import summarise
from tools.docs.performance import NOT_MEASURED, whole_runs_block


def stack(method, seeds, seconds, stacked=5, **changed):
    given = {"seconds": seconds, "facts": {"stacked": stacked}, **changed}
    rows = [make_row(method, seed, "split-cifar", **given) for seed in seeds]
    return [replace(row, seconds=seconds) for row in rows]  # they share their time


def lines(rows):
    told = whole_runs_block(summarise(rows), DEFAULTS).splitlines()[2:]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in told]


def test_every_five_that_trained_together_are_a_line():
    found = lines([*stack("mega-ii", range(5), 19.5), *stack("mega-ii", range(5, 10), 20.5)])
    assert [line[1:4] for line in found] == [
        ["0, 1, 2, 3, 4", "97.5", "162"],
        ["5, 6, 7, 8, 9", "102", "162"],
    ]
    assert len({line[-1] for line in found}) == 1  # which is that of all ten, as in the results


@pytest.mark.parametrize(
    "rows",
    [
        stack("mega-ii", range(4), 19.5),
        stack("mega-ii", range(5), 19.5, stacked=1),
        stack("mega-ii", range(5), 19.5, learning_rate=0.5),
        stack("mega-ii", range(5), 19.5, precision="bfloat16"),
        stack("mega-ii", range(5), 19.5, tasks=3),
        stack("mega-ii", range(5), 19.5, tasks=34, examples=1250),
        stack("mega-ii", range(5), 19.5, failure="The loss became non-finite."),
        stack("gem", range(5), 19.5),
        [],
    ],
    ids=[
        "not all",
        "one by one",
        "another setting",
        "precision",
        "fewer tasks",
        "shorter",
        "diverged",
        "no goal",
        "none",
    ],
)
def test_nothing_else_is(rows):
    assert whole_runs_block(summarise(rows), DEFAULTS) == NOT_MEASURED
