"""A run that nobody waits for is projected from a shorter one; methods are put in order."""

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from page_reader import report
from paper_world import DEFAULTS, make_row
from scipy import stats

from engram.app.report import StandIn, summarise
from tools.docs.reproduction import rank_correlation, reproduction


def page(part, rows):
    return reproduction(part, summarise(rows), DEFAULTS)


def short(method="mer", seed=0, **options):
    options = {"tasks": 2, "examples": 50, "seconds": 30.0, **options}
    return make_row(method, seed, "split-cifar", **options)


def sentence(rows):
    found = [block for block in page("split-cifar", rows).split("\n\n") if "projected" in block]
    return found[0] if found else ""


def test_a_whole_run_is_projected_in_proportion_to_the_examples():
    row = short()
    (summary,) = summarise([row])
    hours = 30.0 * (17 * 2500) / (2 * 50) / 3600
    assert sentence([row]) == (
        f"mer on split-cifar: projected {hours:.1f} hours a seed, from 30.0 seconds measured for "
        f"100 examples (2 tasks of 50, 1 seed, cpu, address {summary.address})."
    )
    (line,) = [li for li in page("missing", [row]).splitlines() if li.startswith("- split-cifar")]
    assert ", mer (projected), prog-nn, " in line


def test_the_longest_of_several_speaks_and_the_run_itself_needs_no_projection():
    longer = short(tasks=4, examples=100, seconds=20.0)
    assert "for 400 examples (4 tasks of 100" in sentence([short(), longer, short(tasks=3)])
    whole = make_row("mer", 0, "split-cifar")
    assert sentence([short(), whole]) == ""
    assert "projected" not in page("missing", [short(), whole])


def test_other_settings_and_failures_and_stand_ins_tell_nothing(list_stand_ins):
    assert sentence([short(gamma=0.5)]) == ""
    assert sentence([short(split="tuning")]) == ""
    assert sentence([short(failure="The weights became NaN.")]) == ""
    assert sentence([short("er-ace")]) == ""  # of which the paper has no number
    assert "projected" in sentence([short(precision="bfloat16")])
    list_stand_ins({f"other-{'e' * 64}": StandIn("split-cifar", "pets", "Pets.")})
    assert sentence([short(data=f"other-{'e' * 64}")]) == ""


def test_the_report_tells_it_below_the_table():
    rows = [make_row(method, seed, "split-cifar") for method in ("van", "gem") for seed in (0, 1)]
    found = report([*rows, short()])
    assert "MER: projected 3.5 hours a seed, from 30.0 seconds measured" in found.words
    assert found.words.count("projected") == 1


values = st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), min_size=2, max_size=12)


@given(values)
def test_the_rank_correlation_is_spearmans(pairs):
    ones, others = zip(*pairs, strict=True)
    if len(set(ones)) == 1 or len(set(others)) == 1:
        assert rank_correlation(ones, others) is None
        return
    assert rank_correlation(ones, others) == pytest.approx(stats.spearmanr(ones, others).statistic)


@given(values)
def test_an_order_agrees_with_itself_and_not_with_its_reverse(pairs):
    ones = [float(one) for one, _ in pairs]
    assume(len(set(ones)) > 1)
    assert rank_correlation(ones, [3 * one - 1 for one in ones]) == pytest.approx(1)
    assert rank_correlation(ones, [-one for one in ones]) == pytest.approx(-1)


def test_one_s_own_data_that_ends_in_digits_is_no_sweep():
    rows = [
        make_row("van", 0, f"folder-photos-{digits}", tasks=3, examples=count, data=digits)
        for digits, count in (("0123456789", 30), ("9876543210", 40))
    ]
    assert list(report(rows).data) == [
        "folder-photos-0123456789-3x30",
        "folder-photos-9876543210-3x40",
    ]


def test_times_of_two_devices_do_not_make_a_line():
    places = [(30, "cpu"), (40, "NVIDIA H200"), (50, "NVIDIA H200")]
    rows = [
        make_row("van", 0, tasks=20, examples=count, device=device, seconds=count)
        for count, device in places
    ]
    charts = report(rows).data["permuted-mnist-over-examples-20"]["charts"]
    assert charts["seconds"]["value"] == "seconds of a run, on NVIDIA H200"
    assert charts["seconds"]["series"][0]["mean"] == [None, 40, 50]
    assert None not in charts["accuracy"]["series"][0]["mean"]


def test_one_method_of_many_that_was_run_elsewhere_too_is_no_sweep():
    rows = [make_row(method, 0, tasks=20) for method in ("van", "a-gem")]
    rows.append(make_row("van", 0, tasks=30))
    over = "permuted-mnist-over-tasks-55000"
    assert over not in report(rows).data
    assert over in report([*rows, make_row("a-gem", 0, tasks=30)]).data
    assert over in report([rows[0], rows[2]]).data


def test_tasks_too_short_for_a_learning_curve_come_later_on_the_page():
    rows = [
        make_row("van", 0, "split-cub", examples=10),
        make_row("van", 0, "split-awa"),
        make_row("van", 0, "split-cub", examples=100),
    ]
    assert list(report(rows).data)[:2] == ["split-cub-17x100", "split-awa-17x1000"]
