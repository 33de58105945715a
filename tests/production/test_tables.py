"""A table: what is fitted, what is refused, and predictions that are the same after a reload."""

import numpy as np
import pytest
import torch
from trained_settings import SETTINGS, SMALL

import engram
from engram import production
from engram.errors import EngramError
from engram.memory import Memory
from examples.weeks import week, write


def test_a_model_answers_with_probabilities_and_its_version(churn):
    model = engram.load(churn)
    found = model.predict(week(2, 50))
    assert len(found) == 50
    assert set(found.answers) <= {"leave", "stay"}
    assert found.names == ("leave", "stay")
    assert found.probabilities.sum(1) == pytest.approx(np.ones(50), abs=1e-6)
    assert found.header == ["id", "prediction", "probability leave", "probability stay", "version"]
    assert next(found.rows())[-1] == found.version == 1
    right = np.mean([a == b for a, b in zip(found.answers, week(2, 50)["left"], strict=True)])
    assert right > 0.8


def test_what_is_loaded_answers_as_what_was_trained_to_the_bit(tmp_path):
    kept = []

    def loop(training):
        optimizer = torch.optim.Adam(training.network.parameters(), lr=0.01)
        for inputs, targets in training.batches():
            optimizer.zero_grad()
            training.loss(training.network(inputs), targets).backward()
            optimizer.step()
        kept.append(training.network)

    production.train(week(1, 300), tmp_path / "m", settings=SETTINGS, loop=loop, arguments=SMALL)
    model = engram.load(tmp_path / "m")
    rows = model.preprocessing.rows(
        production.sources.read(week(3, 500), model.preprocessing.settings, asked=True), asked=True
    )
    inputs = model.preprocessing.encode(rows)
    with torch.no_grad():
        trained = kept[0].eval()(inputs)
        assert torch.equal(model.outputs(inputs), trained)
        one_by_one = torch.cat([model.outputs(each[None]) for each in inputs[:50]])
    assert torch.allclose(one_by_one, trained[:50], rtol=0, atol=1e-5)
    predicted = model.predict(week(3, 500)).probabilities
    assert np.allclose(predicted, torch.softmax(trained, 1), rtol=0, atol=1e-5)


def test_csv_frames_and_columns_are_read_alike(churn, tmp_path):
    columns = week(2, 40)
    model = engram.load(churn)
    expected = model.predict(columns).probabilities
    assert np.array_equal(model.predict(write(tmp_path / "w.csv", columns)).probabilities, expected)
    numbers = columns | {"usage": [float(each) for each in columns["usage"]]}
    assert np.array_equal(model.predict(numbers).probabilities, expected)
    del columns["left"], columns["date"], columns["customer"]  # not needed to be answered
    assert np.array_equal(model.predict(columns).probabilities, expected)


def test_scaling_is_fitted_to_what_is_trained_on_alone(churn):
    inputs = engram.load(churn).preprocessing.inputs
    usage = inputs.numbers[0]
    values = np.array(week(1, 1500)["usage"], float)
    assert usage.name == "usage"
    assert usage.mean == pytest.approx(values.mean(), abs=1)
    assert usage.mean != pytest.approx(values.mean(), abs=1e-9)
    assert [each.name for each in inputs.categories] == ["region", "plan"]


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda w: w.pop("usage"), "lacks column 'usage'"),
        (lambda w: w.update(more=["1"] * 30), "has the new column 'more'"),
        (lambda w: w.update(usage=["1"] * 29 + ["lots"]), "row 30 has 'lots'"),
        (lambda w: w.update(left=["stay"] * 29 + [""]), "row 30 has none in 'left'"),
        (lambda w: w.pop("customer"), "no column for tags called 'customer'"),
    ],
)
def test_a_column_that_changed_is_refused_by_name(churn, change, sentence):
    columns = week(2, 30)
    change(columns)
    with pytest.raises(EngramError, match=sentence):
        production.update(churn, columns)
    assert [each["version"] for each in production.history(churn)] == [1]


def test_missing_numbers_and_unknown_texts_are_no_error(churn):
    columns = week(2, 30) | {"usage": ["", *["50"] * 29], "region": ["mars", *["north"] * 29]}
    model = engram.load(churn)
    assert len(model.predict(columns)) == 30
    plan = production.plan_update(churn, columns)
    assert any("1 of 30 values of 'region' were not known" in each for each in plan.notes)


def test_columns_come_and_go_with_schema_extend(churn):
    columns = week(2, 900) | {"score": [str(each % 7) for each in range(900)]}
    columns["region"] = ["east", *columns["region"][1:]]
    del columns["plan"]
    before = engram.load(churn).predict(week(1, 50)).probabilities
    result = production.update(churn, columns, schema="extend", force="the source changed")
    assert any("gone count as missing: plan" in each for each in result.notes)
    assert "New columns: score." in result.notes
    model = engram.load(churn)
    assert [each.name for each in model.preprocessing.inputs.numbers] == ["usage", "calls", "score"]
    region = model.preprocessing.inputs.categories[0]
    assert [each.text for each in region.known] == ["north", "south", "west", "east"]
    assert len(model.predict(columns | {"plan": [""] * 900})) == 900
    old = engram.load(churn, 1)
    assert np.array_equal(old.predict(week(1, 50)).probabilities, before)
    again = production.update(churn, columns | {"plan": ["basic"] * 900}, schema="keep")
    assert again.version == 3  # its memory and its exam have rows of both widths


def test_new_classes_grow_the_head_and_old_answers_keep_their_place(churn):
    result = production.update(churn, week(2, 1500, business=True))
    assert "New classes: upgrade." in result.notes
    assert result.verdict == "accepted"
    model = engram.load(churn)
    assert model.preprocessing.target.names == ("leave", "stay", "upgrade")
    new = week(3, 300, business=True, seed=99)
    found = np.array(model.predict(new).answers)
    assert np.mean(found == np.array(new["left"])) > 0.85
    assert np.mean(found[np.array(new["left"]) == "upgrade"] == "upgrade") > 0.9


def test_numbers_are_learned_and_answered_in_their_own_units(tmp_path):
    draw = np.random.default_rng(0)
    area = draw.uniform(20, 120, 600)
    rent = {"area": area, "rent": 300 + 10 * area + draw.normal(0, 20, 600)}
    settings = {"target": "rent", "kind": "numbers", "passes": 10, "learning_rate": 0.03}
    production.train(rent, tmp_path / "rent", settings=settings, arguments=SMALL)
    model = engram.load(tmp_path / "rent")
    found = model.predict({"area": [50.0, 100.0]})
    assert [each[0] for each in found.answers] == pytest.approx([800, 1300], rel=0.05)
    assert found.header == ["id", "prediction rent", "version"]
    more = {name: column[::-1] + 0.5 for name, column in rent.items()}
    result = production.update(tmp_path / "rent", more)
    assert result.verdict == "accepted"
    assert result.report["metric"] == "R²"
    assert result.report["parts"][0]["negative_flips"] is None


def test_several_labels_are_answered_each(tmp_path):
    draw = np.random.default_rng(0)
    size = draw.normal(size=(600, 2))
    table = {"x": size[:, 0], "y": size[:, 1]}
    table |= {"left": (size[:, 0] < 0).astype(int), "low": (size[:, 1] < 0).astype(int)}
    settings = {"target": "left,low", "kind": "labels", "passes": 5, "learning_rate": 0.02}
    production.train(table, tmp_path / "m", settings=settings, arguments=SMALL)
    found = engram.load(tmp_path / "m").predict({"x": [-1.0, 1.0], "y": [-1.0, -1.0]})
    assert found.answers == [[1, 1], [0, 1]]
    result = production.update(tmp_path / "m", {key: value[::-1] for key, value in table.items()})
    assert result.report["metric"] == "F1"
    assert result.verdict in ("accepted", "undecided")

    def others():
        x, y = draw.normal(size=(2, 400))
        return {"x": x, "y": y, "left": (x < 0).astype(int), "low": (y < 0).astype(int)}

    result = production.update(tmp_path / "m", others())
    assert result.report["contradiction"]["contradicts"] is False
    wrong = others()
    wrong["low"] = draw.permutation(wrong["low"])
    result = production.update(tmp_path / "m", wrong)
    assert result.verdict == "rejected"
    assert "new labels agree" in " ".join(result.report["reasons"])


@pytest.mark.parametrize(
    ("columns", "settings", "sentence"),
    [
        ({}, {"target": "gone"}, "no column for target called 'gone'"),
        ({}, {}, "target must name the column to predict"),
        ({}, {"target": "left,plan"}, "target must be a single column of classes"),
        ({}, {"target": "usage"}, "which are no classes"),
        ({}, {"target": "left", "targt": "x"}, "did you mean 'target'"),
        ({}, {"target": "left", "passes": 0}, "passes must be"),
        ({"left": ["stay"] * 40}, {"target": "left"}, "two classes or more"),
        ({}, {"target": "left", "kind": "numbers"}, "must be a number, and row"),
        ({}, {"target": "left", "id": "region"}, "is there twice in column 'region'"),
        ({}, {"target": "left", "categories": "gone"}, "categories called 'gone'"),
        (
            {"usage": ["-"] * 9 + [f"{number}.5" for number in range(31)]},
            {"target": "left"},
            "'usage' is of numbers, but in one row it has '-': correct it, or take",
        ),
    ],
)
def test_a_mistake_is_refused_and_leaves_nothing_behind(tmp_path, columns, settings, sentence):
    with pytest.raises(EngramError, match=sentence):
        production.train(week(1, 40) | columns, tmp_path / "m", settings=settings)
    assert not (tmp_path / "m").exists()


class Frame:
    """As much of pandas as is asked of a data frame."""

    def __init__(self, names, columns):
        self.columns = names
        self._columns = columns

    def to_dict(self):
        raise NotImplementedError

    def __getitem__(self, name):
        return np.array(self._columns[name], object)


@pytest.mark.parametrize(
    ("frame", "sentence"),
    [
        (Frame(["x", "x"], {"x": [1, 2]}), "two columns called 'x'"),
        (Frame(["x", "left"], {"x": [], "left": []}), "with a row at least"),
    ],
)
def test_a_frame_that_cannot_be_read_is_refused(tmp_path, frame, sentence):
    with pytest.raises(EngramError, match=sentence):
        production.train(frame, tmp_path / "m", settings={"target": "left"})


def test_a_class_is_the_same_however_its_number_is_written(tmp_path):
    """A frame whose whole numbers have become fractions has no new classes or categories."""
    draw = np.random.default_rng(0)
    size = draw.normal(size=300)
    plan = draw.integers(1, 4, 300)
    table = {"size": size, "plan": plan, "paid": (size > 0).astype(int), "who": range(300)}
    settings = {"target": "paid", "categories": "plan", "tags": "who", "passes": 1}
    production.train(table, tmp_path / "m", settings=settings)
    other = table | {
        "size": size + 0.1,
        "plan": plan.astype(float),
        "paid": (size > 0).astype(float),
    }
    result = production.update(tmp_path / "m", other, force="for the test")
    assert result.notes == []
    model = engram.load(tmp_path / "m")
    assert model.preprocessing.target.names == ("0", "1")
    one, two = (
        model.predict(each).probabilities for each in (table, table | {"plan": other["plan"]})
    )
    assert np.array_equal(one, two)


def test_a_column_of_names_is_no_target_of_an_update(churn):
    new = week(2, 100)
    with pytest.raises(EngramError, match="100 new values in 100 rows, which are no classes"):
        production.update(churn, new | {"left": [f"customer {row}" for row in range(100)]})


def test_times_that_are_missing_name_no_period(churn):
    new = week(2, 60)
    some = ["", *new["date"][1:-1], None]
    result = production.update(churn, new | {"date": some}, settings={"passes": 1})
    assert result.report["period"] == "2026-01-12 to 2026-01-18"
    other = week(3, 60) | {"date": [""] * 60}
    result = production.update(churn, other, settings={"passes": 1})
    assert result.report["period"] == "a data frame"


@pytest.mark.parametrize(
    ("asked", "sentence"),
    [
        ({"region": "north"}, "Column 'region' must be a list of values, one for each example"),
        ({"usage": 3.5}, "Column 'usage' must be a list of values"),
        ([{"region": "north"}], "A batch must be of tensors"),
    ],
)
def test_a_single_row_is_given_as_lists(churn, asked, sentence):
    with pytest.raises(EngramError, match=sentence):
        engram.load(churn).predict(asked)


def test_a_whole_number_names_somebody_however_it_is_written(churn):
    """A frame whose column of customers lacks one has 7.0 where it had 7."""
    columns = week(2, 400, customers=20)
    columns["customer"] = [float(each) for each in columns["customer"]]
    columns["customer"][0] = float("nan")
    production.update(churn, columns, force="for the test")
    erased = production.erase(churn, where={"customer": "7.0"})
    assert {1, 2} <= set(erased.memory)
    exam = Memory.load(churn / "versions" / "0002" / "exam.safetensors")
    assert not {"7", "7.0"} & {each.tags["customer"] for each in exam.examples() if each.tags}
