"""A table of one's own: which row is of which task, what a network reads of it."""

import re
from datetime import date, timedelta
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from own_streams import table_spec as spec
from own_streams import table_stream as stream
from own_worlds import read_csv, write_csv, write_drifting

from engram.errors import EngramError
from engram.lab.benchmarks import benchmark
from engram.lab.benchmarks.table import by_time, by_value, classes_of, encode
from engram.lab.methods import names
from engram.lab.networks import MLP
from engram.lab.protocol import run

pytestmark = pytest.mark.numerical


def rows(found):
    return {name: mine.tolist() for name, mine in found.items()}


def test_tasks_come_in_the_order_of_their_numbers_or_of_their_first_rows():
    assert rows(by_value("t", ["b", "a", "b", "c"])) == {"b": [0, 2], "a": [1], "c": [3]}
    assert rows(by_value("t", ["10", "9", "10", "-1.5"])) == {"-1.5": [3], "9": [1], "10": [0, 2]}


@pytest.mark.parametrize(
    ("period", "wanted"),
    [
        ("year", {"2020": [1, 2], "2021": [0, 3]}),
        ("quarter", {"2020-Q1": [2], "2020-Q4": [1], "2021-Q1": [0, 3]}),
        ("month", {"2020-02": [2], "2020-12": [1], "2021-01": [0], "2021-03": [3]}),
        # The first three days of 2021 are of the last week of 2020.
        ("week", {"2020-W09": [2], "2020-W53": [0, 1], "2021-W13": [3]}),
    ],
)
def test_time_is_cut_by_the_calendar(period, wanted):
    times = ["2021-01-03", "2020-12-31T23:59:59", "2020-02-29 12:00", "2021-03-31"]
    assert rows(by_time("t", times, period, 5)) == wanted


def test_times_may_have_zones_and_dates_may_be_years_or_months():
    assert list(by_time("t", ["2020-12-31T23:30-02:00"], "year", 1)) == ["2021"]
    assert list(by_time("t", ["2021", "2020-12"], "month", 1)) == ["2020-12", "2021-01"]


@pytest.mark.parametrize("period", ["quarter", "month", "week"])
def test_numbers_are_no_times_of_a_calendar(period):
    for texts in (["1000", "1001"], ["1", "2.5"], ["2023", "2024"]):
        with pytest.raises(EngramError, match=f"period must be equal .* 't' is, not '{period}'"):
            by_time("t", texts, period, 5)
    with pytest.raises(EngramError, match="period must be equal"):
        by_time("t", ["17", "18"], "year", 5)


def test_dates_may_be_written_without_hyphens_and_years_are_cut_by_year():
    assert list(by_time("t", ["20201231", "20210101"], "quarter", 5)) == ["2020-Q4", "2021-Q1"]
    assert list(by_time("t", ["2020", "2021"], "year", 5)) == ["2020", "2021"]


@pytest.mark.parametrize(
    ("cut", "remedy"),
    [
        ({"time": "", "task": "part"}, "join it with another task, or leave its rows out"),
        ({"time": "part", "period": "equal", "parts": 2}, "take fewer parts"),
    ],
)
def test_a_task_too_small_to_be_tested_has_a_remedy(tmp_path, cut, remedy):
    lines = [[part, row, "ny"[row % 2]] for part, many in ((1, 2), (2, 8)) for row in range(many)]
    if "parts" in cut:
        lines = [[row, row, "nyyn"[row]] for row in range(4)]
    path = write_csv(tmp_path / "t.csv", ["part", "x", "bought"], lines)
    with pytest.raises(EngramError, match=f"for no class has two examples: {remedy}"):
        spec(path, **cut)


@given(
    days=st.lists(st.integers(0, 400), min_size=5, max_size=40, unique=True),
    copies=st.integers(1, 3),
    parts=st.integers(1, 5),
    as_dates=st.booleans(),
)
def test_equal_parts_are_in_order_and_equal_and_keep_equal_times_together(
    days, copies, parts, as_dates
):
    days = days * copies
    texts = [str(date(2020, 1, 1) + timedelta(day)) if as_dates else str(day) for day in days]
    found = list(by_time("t", texts, "equal", parts).values())
    assert sorted(np.concatenate(found).tolist()) == list(range(len(days)))
    times = [{days[row] for row in part} for part in found]
    for earlier, later in pairwise(times):
        assert max(earlier) < min(later)
    assert max(map(len, times)) - min(map(len, times)) <= 1


def test_classes_are_numbered_by_their_numbers_or_names():
    assert classes_of("y", ["10", "9", "10", "9"])[0].tolist() == [1, 0, 1, 0]
    assert classes_of("y", ["no", "yes", "no", "no"])[1] == ["no", "yes"]


numbers = st.lists(st.floats(-1e6, 1e6), min_size=8, max_size=8)


@given(first=numbers, later=numbers, other=numbers)
def test_numbers_are_standardised_by_the_first_task_whatever_comes_later(first, later, other):
    rows = np.arange(8)
    one, two = (
        encode({"x": [repr(value) for value in first + rest]}, (), rows).values
        for rest in (later, other)
    )
    np.testing.assert_array_equal(one[:8], two[:8])
    deviation = np.std(first)
    wanted = (np.array(first) - np.mean(first)) / (deviation or 1)
    np.testing.assert_allclose(one[:8, 0], wanted, rtol=1e-4, atol=1e-4)
    assert np.abs(two).max() <= 10  # a column may wander as far as it likes


@pytest.mark.parametrize("far", [1.7e308, 1e200, 1e150])
def test_numbers_that_no_square_can_be_made_of_are_standardised_too(far):
    texts = [repr(value) for value in (far, 0.0, far, 0.0, -far, 1.0)]
    made = encode({"x": texts}, (), np.arange(4)).values[:, 0]
    np.testing.assert_allclose(made, [1, -1, 1, -1, -3, -1], atol=1e-6)
    later = encode({"x": ["0.1", "0.2", repr(far), repr(-far)]}, (), np.arange(2)).values[:, 0]
    np.testing.assert_allclose(later, [-1, 1, 10, -10], atol=1e-6)


@pytest.mark.parametrize("rows", [7, 40, 80, 1000])
def test_a_column_of_one_number_is_left_as_far_as_it_goes_however_its_mean_is_rounded(rows):
    made = encode({"x": ["1.1"] * rows + ["1.6"]}, (), np.arange(rows)).values[:, 0]
    np.testing.assert_allclose(made, [0] * rows + [0.5], atol=1e-6)


def test_a_missing_number_is_the_mean_and_marked():
    made = encode({"x": ["1", "", "3", "", "5"]}, (), np.array([0, 2]))
    assert made.values.tolist() == [[-1, 0], [0, 1], [1, 0], [0, 1], [3, 0]]
    assert made.missing == {"x": 2}
    nothing = encode({"x": ["", "", "7"]}, (), np.array([0, 1]))
    assert nothing.values.tolist() == [[0, 1], [0, 1], [7, 0]]


def test_a_text_is_one_of_those_of_the_first_task_or_another():
    texts = ["red", "blue", "", "red", "green", "grey"]
    made = encode({"x": texts}, (), np.array([0, 1, 2]))
    #                            missing  blue  red  other
    assert made.values.tolist() == [
        [0, 0, 1, 0], [0, 1, 0, 0], [1, 0, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1], [0, 0, 0, 1],
    ]  # fmt: skip
    assert made.strangers == {"x": 2}


def test_of_many_texts_the_most_frequent_of_the_first_task_are_told_apart():
    texts = ["c", "a", "b", "a", "c", "d", "e", "b", "b", "b"]  # the last four are of another task
    made = encode({"x": texts}, (), np.arange(6), most_categories=2)
    #                                a  c  any other
    a, c, other = [1, 0, 0], [0, 1, 0], [0, 0, 1]
    assert made.values.tolist() == [c, a, other, a, c, other, other, other, other, other]
    assert made.rare == {"x": 2}  # b and d
    assert made.strangers == {"x": 1}
    whole = encode({"x": texts}, (), np.arange(6), most_categories=4)
    assert whole.rare == {"x": 0}
    assert whole.checksum == encode({"x": texts}, (), np.arange(6)).checksum != made.checksum


def test_results_are_filed_under_the_texts_that_are_told_apart(tmp_path, caplog):
    lines = [[row // 20, f"v{row % 7}", row % 2] for row in range(40)]
    path = write_csv(tmp_path / "t.csv", ["task", "name", "bought"], lines)
    usual = {"time": "", "task": "task"}
    names = [
        spec(path, **usual, most_categories=most).identity()["benchmark"]
        for most in (1000, 7, 6, 5)
    ]
    assert names[0] == names[1]
    assert len(set(names)) == 3
    assert caplog.messages[0].startswith(f"{path}: texts beyond the first task's 6 most frequent c")
    assert caplog.messages[0].endswith("(1 in name).")


@given(
    texts=st.lists(st.sampled_from("abcd"), min_size=6, max_size=20),
    numbers=st.lists(st.sampled_from(["1", "2", "", "4.5"]), min_size=20, max_size=20),
)
def test_columns_stand_side_by_side_as_each_is_alone(texts, numbers):
    columns = {"one": texts, "two": ["1", *numbers][: len(texts)], "three": texts[::-1]}
    first = np.arange(len(texts) // 2)
    together = encode(columns, (), first).values
    alone = [encode({name: values}, (), first).values for name, values in columns.items()]
    np.testing.assert_array_equal(together, np.concatenate(alone, axis=1))
    assert together.dtype == np.float32


def test_numbers_may_be_taken_for_names():
    made = encode({"x": ["7", "3", "7"]}, ("x",), np.arange(3))
    assert made.values.tolist() == [[0, 1, 0], [1, 0, 0], [0, 1, 0]]


def test_a_table_s_rows_are_all_served_or_held_out_and_target_and_time_are_no_inputs(sales):
    made = stream(sales)
    assert made.tasks == 4
    assert made.features == 2 + 3  # two numbers; the letters a, b and any other
    assert made.network().sizes == MLP((5, 256, 256, 2)).sizes
    for task in range(4):
        labels = made.train(task).labels
        (batch,) = made.test(task)
        assert (labels.shape, len(batch.labels)) == ((1, 48), 12)
        assert batch.labels.sum() == 6  # as many of either class


def test_a_class_that_was_not_met_before_simply_appears(tmp_path):
    lines = [[task, number, "ab"[number % 2] if task == 1 else "bc"[number % 2]]
             for task in (1, 2) for number in range(12)]  # fmt: skip
    path = write_csv(tmp_path / "t.csv", ["task", "x", "y"], lines)
    made = stream(path, target="y", task="task", time="")
    assert made.classes == 3
    assert set(made.train(0).labels.flatten().tolist()) == {0, 1}
    assert made.task_outputs(0).tolist() == [[True, True, False]]
    assert set(made.train(1).labels.flatten().tolist()) == {1, 2}
    assert made.task_outputs(0) is None  # of all three


@pytest.mark.parametrize(
    ("method", "heads"),
    [*((name, "shared") for name in names()), ("gem", "by-task"), ("icarl", "by-task")],
)
def test_every_method_learns_a_table(tmp_path, method, heads):
    path = write_drifting(tmp_path / "few.csv", tasks=2, rows=20)
    few = {"draws": 2} if method == "mer" else {}
    (outcome,) = run(spec(path, method, heads=heads, **few), [0])
    assert outcome.failure is None
    assert all(0 <= value <= 1 for value in outcome.accuracy[-1])


def test_a_drifting_table_is_learned_and_not_forgotten(sales):
    seeds = [3, 4]  # of 48 test rows each, plain training has four wrong, and MEGA-II none
    kept, lost = (
        [value for outcome in run(spec(sales, method), seeds) for value in outcome.accuracy[-1]]
        for method in ("mega-ii", "van")
    )
    assert min(kept) > 0.9
    assert sum(lost) < sum(kept)


@pytest.mark.usefixtures("double_table")
def test_a_run_is_the_same_alone_or_stacked(tmp_path):
    sales = write_drifting(tmp_path / "few.csv", tasks=2, rows=20)
    for seed, together in enumerate(run(spec(sales), [0, 1])):
        (alone,) = run(spec(sales), [seed])
        assert (alone.accuracy, alone.curve) == (together.accuracy, together.curve)
    assert benchmark(f"table:{sales}").stacks == 64


def test_training_leaves_the_table_as_it_was(tmp_path):
    sales = write_drifting(tmp_path / "few.csv", tasks=2, rows=20)
    before = stream(sales).images.train_images.copy()
    for method in ("mega-ii", "prog-nn", "icarl"):
        run(spec(sales, method), [0])
    np.testing.assert_array_equal(stream(sales).images.train_images, before)


def test_a_result_is_filed_under_the_content_and_not_under_the_path(sales, tmp_path):
    identity = spec(sales).identity()
    assert re.fullmatch(r"table-sales-[0-9a-f]{10}", identity["benchmark"])
    assert str(tmp_path) not in str(identity)
    assert not {"target", "time", "period", "ignore"} & set(identity["settings"])
    assert identity["settings"]["heads"] == "shared"
    (tmp_path / "b").mkdir()
    other = tmp_path / "b" / "Sales.tsv"
    write_csv(other, *read_csv(sales), delimiter="\t")
    assert spec(other).identity() == identity
    for change in ({"period": "year"}, {"ignore": "width"}, {"categories": "width"}):
        assert spec(sales, **change).identity()["benchmark"] != identity["benchmark"]
    assert spec(sales, parts=7).identity() == identity  # where parts are not asked for


def test_no_result_is_filed_under_data_that_it_was_not_made_with(sales):
    asked = spec(sales, "van")
    asked.identity()  # as the command line has it, before it starts its workers
    header, lines = read_csv(sales)
    lines[0][1] = "0.5"
    write_csv(sales, header, lines)
    with pytest.raises(EngramError, match=r"The data of table:.*sales.csv was changed after"):
        run(asked, [0])
    assert len(run(spec(sales, "van"), [0])) == 1


def test_what_is_filled_in_is_told_once(sales, caplog):
    sales.write_text(sales.read_text().replace(",a,", ",z,", 1))
    header, lines = read_csv(sales)
    for line in lines[5:8]:
        line[1] = "NA"
    lines[-1][3] = "new"
    path = write_csv(sales.with_name("holes.csv"), header, lines)
    for method in ("van", "mega-ii"):
        spec(path, method)
    assert caplog.messages == [
        f"{path}: missing numbers count as the first task's mean, marked (3 in width).",
        f"{path}: texts that the first task lacks count as one text (1 in letter).",
    ]
