"""What a search has chosen is kept as results are: for good, in the store and in lines."""

import json
import math
import sqlite3

import pytest

from engram.app.runs import (
    Choice,
    Store,
    Trial,
    canonical,
    read_contents,
    read_lines,
    stamp,
    write_lines,
)
from engram.errors import EngramError

IDENTITY = {
    "benchmark": "permuted-mnist",
    "method": "mega-i",
    "tasks": 3,
    "examples": 100,
    "split": "tuning",
    "settings": {"learning_rate": 0.1},
}
TRIALS = (
    Trial({"epsilon": 0.1}, (90.0, 92.0, 94.0)),
    Trial({"epsilon": 0.01}, (95.0, 95.0, None)),
    Trial({"epsilon": 0.001}, (91.0, 93.0, 95.0)),
)


@pytest.fixture
def make_choice():
    def make(trials=TRIALS, **fields):
        given = {"device": "cpu", **stamp("engram tune permuted-mnist mega-i"), **fields}
        return Choice(identity=IDENTITY, trials=tuple(trials), **given)

    return make


def test_a_score_is_the_mean_and_has_the_error_of_a_mean():
    trial = TRIALS[0]
    assert trial.score == 92.0
    assert trial.error == pytest.approx(math.sqrt((4 + 0 + 4) / 2 / 3))


def test_a_trial_with_a_seed_that_diverged_has_no_score():
    assert (TRIALS[1].score, TRIALS[1].error) == (None, None)


def test_one_seed_has_no_error():
    trial = Trial({}, (90.0,))
    assert (trial.score, trial.error) == (90.0, None)


def test_what_is_as_good_as_the_best_is_chosen_if_it_is_the_smallest(make_choice):
    def chosen(*values, **more):
        trials = [
            Trial({"epsilon": epsilon}, each)
            for epsilon, each in zip((0.3, 0.1, 0.03), values, strict=True)
        ]
        return make_choice(trials, **more).chosen["epsilon"]

    assert chosen((90.0, 80.0), (88.0, 78.0), (70.0, 60.0)) == 0.3  # every seed says so
    assert chosen((90.0, 80.0), (87.0, 81.0), (70.0, 60.0)) == 0.1  # 1.0 behind, error 2.0
    assert chosen((90.0, None), (88.0, 78.0), (88.0, 78.0)) == 0.03  # equal; one diverged
    older = make_choice(
        [Trial({"epsilon": 0.3}, (90.0, 80.0)), Trial({"epsilon": 0.1}, (87.0, 81.0))],
        format="choice-1",
    )
    assert older.chosen == {"epsilon": 0.3}  # as it was chosen then
    assert Choice.of(json.loads(older.line)) == older


def test_the_best_mean_is_chosen_and_of_equals_the_smallest(make_choice):
    choice = make_choice()
    assert choice.chosen == {"epsilon": 0.001}
    assert [trial.score for trial in choice.ranking] == [93.0, 92.0]
    assert choice.seeds == 3
    equals = [Trial({"epsilon": value}, (90.0,)) for value in (0.1, 0.2, 0.3)]
    assert make_choice(equals).chosen == {"epsilon": 0.1}


def test_choices_come_back_the_oldest_first(store, make_choice):
    old = make_choice(created="2026-01-01T00:00:00.000000Z")
    new = make_choice(created="2026-02-01T00:00:00.000000Z")
    assert store.add([new, old]) == 2
    assert store.choices() == [old, new]
    assert store.add([old]) == 0
    assert store.rows() == []


@pytest.mark.parametrize("statement", ["UPDATE choices SET line = ''", "DELETE FROM choices"])
def test_a_choice_is_never_changed(store, make_choice, statement):
    store.add([make_choice()])
    with sqlite3.connect(store.path) as other, pytest.raises(sqlite3.IntegrityError, match="never"):
        other.execute(statement)
    other.close()


def test_lines_carry_choices_and_rows(tmp_path, make_choice, make_row):
    row, choice = make_row(), make_choice()
    path = tmp_path / "all.jsonl"
    assert write_lines([row, choice], path) == 2
    assert read_contents(path) == ([row], [choice])
    assert read_lines(path) == [row]
    told = json.loads(path.read_text().splitlines()[1])
    assert (told["format"], told["seeds"], told["score"]) == ("choice-2", 3, 93.0)
    assert told["chosen"] == {"epsilon": 0.001}
    assert [trial["score"] for trial in told["trials"]] == [92.0, None, 93.0]


_FIRST_SCHEMA = """
CREATE TABLE results (
    id INTEGER PRIMARY KEY, digest TEXT NOT NULL UNIQUE,
    address TEXT NOT NULL, seed INTEGER NOT NULL, identity TEXT NOT NULL,
    outcome TEXT NOT NULL, device TEXT NOT NULL, seconds REAL NOT NULL,
    created TEXT NOT NULL, versions TEXT NOT NULL, command TEXT NOT NULL);
PRAGMA application_id = 1164863346;
PRAGMA user_version = 1;
"""


@pytest.fixture
def first_store(tmp_path, make_row):
    """Return the path of a store from before there were choices, with one result."""
    path = tmp_path / "first.sqlite"
    fields = json.loads((row := make_row()).line)
    texts = {key: canonical(value) for key, value in fields.items() if isinstance(value, dict)}
    values = {"digest": row.digest, **fields, **texts}
    with sqlite3.connect(path) as other:
        other.executescript(_FIRST_SCHEMA)
        marks = ", ".join("?" * len(values))
        statement = f"INSERT INTO results ({', '.join(values)}) VALUES ({marks})"
        other.execute(statement, list(values.values()))
    other.close()
    return path


def test_a_store_from_before_has_no_choices_when_it_is_read(first_store):
    before = first_store.read_bytes()
    with Store(first_store, read_only=True) as store:
        assert len(store.rows()) == 1
        assert store.choices() == []
    assert first_store.read_bytes() == before


def test_a_store_from_before_takes_choices_when_it_is_written(first_store, make_choice):
    with Store(first_store) as store:
        assert len(store.rows()) == 1
        assert store.add([choice := make_choice()]) == 1
    with Store(first_store, read_only=True) as store:
        assert store.choices() == [choice]
        assert len(store.rows()) == 1


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"format": "choice-3"}, "format must be 'choice-2', not 'choice-3'"),
        ({"format": 1}, "choice.format has the wrong type"),
        ({"seeds": 0}, "seeds must be at least 1"),
        ({"seeds": 2}, "values must have 2 entries"),
        ({"chosen": {"epsilon": 0.1}}, "chosen is not that of the trials"),
        ({"score": 99}, "score is not that of the trials"),
        ({"trials": []}, "a trial without a seed that diverged"),
        ({"trials": [{"settings": {}, "score": 101, "values": [101] * 3}]}, "not a percentage"),
        ({"trials": [{"settings": {}, "score": 1, "values": ["1"] * 3}]}, "not a percentage"),
        ({"trials": [{"settings": {"a": []}, "score": 1, "values": [1] * 3}]}, "not a setting"),
        ({"trials": [{"settings": {}, "values": [1] * 3}]}, "trial lacks the field 'score'"),
        ({"identity": {**IDENTITY, "split": "training"}}, "must be made on tuning tasks"),
        ({"identity": {**IDENTITY, "method": "../x"}}, "plain name"),
        ({"command": "\x1b[2J"}, "printable text only"),
        ({"created": "today"}, "created must look like"),
        ({"surprise": 1}, "no field 'surprise'"),
    ],
)
def test_a_bad_choice_is_named_and_nothing_is_merged(tmp_path, make_choice, changes, sentence):
    lines = tmp_path / "bad.jsonl"
    lines.write_text(json.dumps({**json.loads(make_choice().line), **changes}))
    with pytest.raises(EngramError, match=r"^Line 1 of .*bad\.jsonl") as error:
        read_contents(lines)
    assert sentence in str(error.value)
