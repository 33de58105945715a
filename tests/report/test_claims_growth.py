"""What PROG-NN would hold is computed where it was not run; whether it fits is not."""

import pytest
from claim_reader import find
from paper_world import make_row

from engram.app.report import StandIn, Verdict

BIRDS = f"other-{'b' * 64}"
GROWS = "PROG-NN"


@pytest.fixture
def known(list_stand_ins):
    list_stand_ins({BIRDS: StandIn("split-cub", "birds", "Not the paper's weights.")})


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


@pytest.mark.usefixtures("known")
def test_a_run_with_fewer_examples_fits_as_well():
    rows = [make_row("prog-nn", s, "split-cub", examples=10, data=BIRDS) for s in range(2)]
    (part,) = [
        part
        for part in find(rows, GROWS).parts
        if part.measure == "finished" and part.where.startswith("Split CUB")
    ]
    assert (part.verdict, part.absent) == (Verdict.NOT_HELD, ())


def test_a_run_with_fewer_tasks_tells_nothing_of_memory():
    rows = [make_row("prog-nn", seed, "split-cub", tasks=3) for seed in range(2)]
    fits = [part for part in find(rows, GROWS).parts if part.measure == "finished"]
    assert {part.verdict for part in fits} == {Verdict.OPEN}


def test_a_run_that_diverged_tells_nothing_of_memory():
    diverged = [
        make_row("prog-nn", seed, "split-cub", failure="The weights became NaN.")
        for seed in range(2)
    ]
    fits = [part for part in find(diverged, GROWS).parts if part.measure == "finished"]
    assert {part.verdict for part in fits} == {Verdict.OPEN}
