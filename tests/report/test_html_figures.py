"""Figures compare what can be compared, and tell of seeds that did not come to their end."""

import numpy as np
import pytest
from page_reader import report
from paper_world import average_accuracy, make_row

from engram.app.report import StandIn

SECTION = "permuted-mnist-17x55000"
DIVERGED = "The loss became non-finite in task 3 of 17."
CAPTION = "MEGA-II against {} in other settings"


def runs(method, seeds=2, failed=0, **given):
    """Runs of a method, of which the last ones diverged."""
    kept = seeds - failed
    return [
        make_row(method, seed, failure=None if seed < kept else DIVERGED, **given)
        for seed in range(seeds)
    ]


def charts(rows, section=SECTION):
    page = report(rows)
    return page.data[section], page


def drawn(section, chart):
    """The series of a figure, by the names of their methods."""
    lines = section["lines"]
    return {lines[each["line"]]["name"]: each for each in section["charts"][chart]["series"]}


def test_seconds_are_those_of_the_commonest_device():
    rows = [*runs("van", device="a GPU"), *runs("a-gem", device="a GPU", seconds=3)]
    rows += runs("mega-i", device="cpu", seconds=300)
    section, page = charts(rows)
    assert [*drawn(section, "seconds")] == ["VAN", "A-GEM"]
    chart = section["charts"]["seconds"]
    assert chart["title"] == "Seconds of a run, a GPU"
    assert chart["note"].endswith("Left out, as run on cpu: MEGA-I.")
    assert chart["note"] in page.words
    assert "MEGA-I" in drawn(section, "average-accuracy")  # which every device measures alike


def test_other_settings_of_one_method_do_not_choose_the_device():
    rows = [row for method in ("van", "a-gem", "mega-i") for row in runs(method, device="a GPU")]
    rows += [row for n in range(9) for row in runs("mega-i", device="cpu", epsilon=n)]
    section, _ = charts(rows)
    assert section["charts"]["seconds"]["title"] == "Seconds of a run, a GPU"


def test_of_a_method_on_two_devices_the_seconds_of_one_are_told():
    rows = [*runs("van", 3, device="a GPU"), make_row("van", 3, device="cpu", seconds=99)]
    section, _ = charts(rows)
    assert drawn(section, "seconds")["VAN"]["seeds"] == 3
    assert drawn(section, "seconds")["VAN"]["mean"] == [pytest.approx(2.125)]
    assert "as run on cpu: VAN." in section["charts"]["seconds"]["note"]


def test_a_device_where_everything_diverged_is_not_the_commonest():
    rows = [*runs("van", 5, failed=5), make_row("a-gem", device="a GPU")]
    section, _ = charts(rows)
    assert [*drawn(section, "seconds")] == ["A-GEM"]
    assert report(rows[:5]).data == {}


@pytest.mark.parametrize(
    ("seeds", "failed", "told"),
    [
        (5, 0, ""),
        (5, 1, "4 of 5 seeds, the other diverged"),
        (5, 3, "2 of 5 seeds, the others diverged"),
        (5, 5, "none of 5 seeds, all diverged"),
        (1, 1, "its seed diverged"),
        (0, 0, ""),
    ],
)
def test_survivors_are_counted(seeds, failed, told):
    section, _ = charts([*runs("van", 5), *runs("pi", seeds, failed)])
    for chart in section["charts"].values():
        assert chart["note"].partition("PI: ")[2] == (f"{told}." if told else "")


def test_every_figure_of_a_setting_marks_survivors():
    section, page = charts([*runs("van", 5), *runs("prog-nn", 5, 3), *runs("pi", 5, 5)])
    told = "2 of 5 seeds, the others diverged"
    for name, chart in section["charts"].items():
        series = drawn(section, name)
        assert [*series] == ["VAN", "PROG-NN"]
        assert series["VAN"]["partial"] == {}
        places = {str(place): told for place in range(len(series["PROG-NN"]["mean"]))}
        assert series["PROG-NN"]["partial"] == places
        words = f"PI: none of 5 seeds, all diverged; PROG-NN: {told}."
        assert chart["note"].endswith(words)
    assert page.words.count(words) == len(section["charts"]) == 7


def test_a_variant_that_diverged_altogether_is_told_below_the_table_alone():
    section, page = charts([*runs("pi", 3), *runs("pi", 2, 2, strength=9)])
    assert section["charts"]["accuracy"]["note"] == ""
    assert "PI strength=9: all 2 seeds diverged" in page.words


def test_a_sweep_marks_the_points_of_survivors():
    rows = [*runs("van", 3, tasks=20, examples=200), *runs("van", 3, 1, tasks=30, examples=200)]
    rows += [*runs("prog-nn", 5, tasks=20, examples=200)]
    rows += [*runs("prog-nn", 5, 3, tasks=30, examples=200)]
    section, page = charts(rows, "permuted-mnist-over-tasks-200")
    for name in ("accuracy", "seconds"):
        series = drawn(section, name)
        assert series["VAN"]["partial"] == {"1": "2 of 3 seeds, the other diverged"}
        assert series["PROG-NN"]["partial"] == {"1": "2 of 5 seeds, the others diverged"}
        note = section["charts"][name]["note"]
        assert "PROG-NN at 30 tasks: 2 of 5 seeds, the others diverged." in note
        assert note in page.words
    kept = [average_accuracy(row) for row in rows[-5:-3]]
    assert drawn(section, "accuracy")["PROG-NN"]["mean"][1] == pytest.approx(np.mean(kept))


def test_a_sweep_names_the_points_of_other_devices_and_those_that_are_none():
    rows = [
        row
        for method in ("van", "a-gem", "gem")
        for tasks in (20, 30)
        for row in runs(method, tasks=tasks, examples=200, device="a GPU")
    ]
    rows += runs("mega-i", tasks=20, examples=200, device="cpu")
    rows += runs("mega-i", 2, 2, tasks=30, examples=200, device="a GPU")
    section, _ = charts(rows, "permuted-mnist-over-tasks-200")
    seconds = section["charts"]["seconds"]
    assert seconds["value"] == "seconds of a run, on a GPU"
    assert seconds["note"] == (
        "Left out, as run on cpu: MEGA-I at 20 tasks. "
        "MEGA-I at 30 tasks: none of 2 seeds, all diverged."
    )
    assert drawn(section, "accuracy")["MEGA-I"]["mean"][1] is None
    assert drawn(section, "accuracy")["MEGA-I"]["partial"] == {}


def test_a_bar_of_memory_that_is_missing_is_named():
    known = {"state_bytes": 8, "memory_bytes": 0}
    section, _ = charts([*runs("van", facts=known), *runs("gem", facts={"parameters": None})])
    assert [*drawn(section, "memory")] == ["VAN"]
    assert section["charts"]["memory"]["note"].endswith("Not recorded: GEM.")


@pytest.mark.parametrize("others", [["a-gem"], ["a-gem", "van"]])
def test_an_opponent_is_a_column_where_there_are_several(others):
    rows = [
        row
        for tasks in range(2, 6 + len(others))
        for method, final in (("mega-ii", 0.8), (others[tasks > 6], 0.7))
        for row in runs(method, tasks=tasks, final=final)
    ]
    page = report(rows)
    names = ["A-GEM", "VAN"][: len(others)]
    caption = CAPTION.format(" or ".join(names))
    assert caption in page.headings  # a caption is for screen readers alone
    head, *lines = page.tables[caption]
    first = ["where", "points", "95 % interval", "seeds ahead"]
    if len(others) == 1:
        assert head == [*first, "MEGA-II", "A-GEM", "seconds"]
    else:
        assert head == [*first, "against", "MEGA-II", "the other", "seconds"]
        assert [line[4] for line in lines] == names
    assert {line[1] for line in lines} == {"+10.00"}


def test_a_benchmark_on_a_stand_in_is_not_said_to_be_missing(list_stand_ins):
    data = f"other-{'b' * 64}"
    list_stand_ins({data: StandIn("split-cub", "birds", "Not all of them.")})
    stands_in = [
        row
        for method in ("mega-ii", "a-gem")
        for row in runs(method, benchmark="split-cub", data=data)
    ]
    real = [
        row
        for method in ("mega-ii", "a-gem")
        for name in ("split-cub", "split-awa", "split-cifar", "permuted-mnist")
        for row in runs(method, benchmark=name)
    ]
    told = "Of the paper's benchmarks not in this store yet: "
    words = report(stands_in).words
    assert f"On a stand-in only: Split CUB. {told}Permuted MNIST, Split CIFAR, Split AWA." in words
    words = report([*stands_in, *real]).words
    assert "On a stand-in only" not in words
    assert told not in words
