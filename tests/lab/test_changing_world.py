"""Tables whose labels change their meaning: it is found, said, and ageing is a remedy."""

import numpy as np
import pytest
from dying_checkpoints import Dying, Killed, checkpoint
from own_worlds import write_csv
from tiny_worlds import run_whole, same_bits, tiny_spec

from engram.errors import EngramError
from engram.lab.benchmarks import Part
from engram.lab.benchmarks.contradiction import contradiction
from engram.lab.plan import generator
from engram.lab.protocol import specify
from engram.memory import ClassRing, ClassSample, Fifo, Ledger, Reservoir

HALF = np.pi
POLICIES = {
    "ring": ClassRing(30),
    "sample": ClassSample(30),
    "reservoir": Reservoir(5 * 23),
    "fifo": Fifo(5 * 23),
}


def quarters(turn, count=8, rows=240, seed=0):
    """Return rows of each quarter; what is bought turns with the quarters by an angle in all."""
    source = np.random.default_rng(seed)
    for quarter in range(count):
        angle = turn * quarter / (count - 1)
        inputs = source.normal(size=(rows, 3))
        score = inputs[:, 0] * np.cos(angle) + inputs[:, 1] * np.sin(angle)
        yield inputs, (score + 0.2 * source.normal(size=rows) > 0).astype(np.int64)


def write_quarters(path, turn):
    lines = [
        [quarter + 1, *(f"{value:.3f}" for value in row), "ny"[label]]
        for quarter, (inputs, labels) in enumerate(quarters(turn))
        for row, label in zip(inputs, labels.tolist(), strict=True)
    ]
    return write_csv(path, ["quarter", "a", "b", "c", "bought"], lines)


def found(tasks, tests=80):
    """Return the contradiction of tasks (inputs, labels), the last of each held out as tests."""
    parts, inputs, start = [], [], 0
    for task, labels in tasks:
        rows = np.arange(start, start + len(labels))
        cut = len(rows) - tests
        parts.append(Part(rows[:cut], labels[:cut], rows[cut:], labels[cut:]))
        inputs.append(task)
        start += len(labels)
    every = np.concatenate(inputs)
    return contradiction(every, every, parts)


def test_labels_that_turn_contradict_and_labels_that_stay_do_not():
    assert found(quarters(HALF)) > 15
    assert found(quarters(0)) < 2
    assert found(quarters(0, seed=1)) < 2


def test_it_is_the_lower_bound_of_what_neighbours_answer_rightly():
    """Against all distances, one by one, where every row is drawn."""
    source = np.random.default_rng(3)
    old, new, tests = (source.normal(size=(60, 2)) for _ in range(3))
    old_labels, new_labels = (old[:, 0] > 0).astype(int), (new[:, 1] > 0).astype(int)
    right = (tests[:, 1] > 0).astype(int)
    nothing = np.arange(0)
    parts = [
        Part(np.arange(60), old_labels, nothing, nothing),
        Part(np.arange(60, 120), new_labels, np.arange(60), right),
    ]
    gains = []
    for row, label in zip(tests, right, strict=True):
        far_old, far_new = (
            [np.hypot(*((row - other) / new.std(0))) for other in rows] for rows in (old, new)
        )
        if min(far_old) <= 1.5 * min(far_new):
            mine, theirs = new_labels[np.argmin(far_new)], old_labels[np.argmin(far_old)]
            gains.append(int(mine == label) - int(theirs == label))
    wanted = 100 * (np.mean(gains) - 2 * np.std(gains, ddof=1) / np.sqrt(len(gains)))
    assert contradiction(np.concatenate([old, new]), tests, parts) == pytest.approx(wanted)


def test_a_new_class_contradicts_nothing():
    (first, labels), (second, others) = quarters(0, count=2)
    assert found([(first, labels), (second, others + 2)]) is None
    assert found([(first, labels)]) is None


def test_an_input_unlike_any_before_contradicts_nothing():
    (first, labels), (second, others) = quarters(0, count=2)
    assert found([(first, labels), (second + 50, 1 - others)]) is None


def test_too_few_rows_say_nothing():
    few = [(inputs[:50], labels[:50]) for inputs, labels in quarters(HALF)]
    assert found(few, tests=20) is None


@pytest.fixture(scope="module")
def turning(tmp_path_factory):
    return write_quarters(tmp_path_factory.mktemp("turning") / "turning.csv", HALF)


GIVEN = ("--set", "target=bought", "--set", "task=quarter")


def test_tables_and_report_show_the_newest_task_and_say_that_it_contradicts(
    turning, tmp_path, engram
):
    store = tmp_path / "store.sqlite"
    words = ("run", f"table:{turning}", "van", "mega-ii", *GIVEN, "--store", store)
    plain = engram(*words, seeds=1)
    assert "newest task %" in plain.out
    assert "Old and new contradict each other" in plain.out
    assert "The best average, of mega-ii, is partly for answers that are no longer right" in (
        " ".join(plain.out.split())
    )
    again = engram("results", "--store", store).out
    assert "newest task %" in again
    assert "Old and new contradict each other" in again
    engram("report", "--store", store, "--out", tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text("utf-8")
    assert "newest task %" in page
    assert "Old and new contradict each other" in page


def test_where_nothing_changes_nothing_is_said(tmp_path, engram):
    still = write_quarters(tmp_path / "still.csv", 0)
    words = ("run", f"table:{still}", "van", *GIVEN, "--store", tmp_path / "store.sqlite")
    out = engram(*words, seeds=1).out
    assert "newest task %" in out
    assert "contradict" not in out


@pytest.mark.parametrize("memory", list(POLICIES))
@pytest.mark.parametrize("age", [1, 2])
def test_a_memory_keeps_the_newest_tasks_alone(memory, age):
    """After the last of five tasks it holds, of finished ones, so many; and their own rows."""
    spec = tiny_spec("mega-ii", tasks=5, memory=memory, max_age=age, memory_per_class=30)
    _, (state,) = run_whole(spec, [0, 1])
    for run, held in enumerate(state["bank"]["ledgers"]):
        ledger = Ledger(POLICIES[memory])
        ledger.load_state_dict(held)
        assert set(ledger.tasks.tolist()) == set(range(4 - age, 5))
        inside = slice(len(ledger))
        labels = state["bank"]["table"]["labels"][run, inside]
        assert labels.tolist() == ledger.labels.tolist()
        inputs = state["bank"]["table"]["inputs"][run, inside].numpy()
        mine = zip(inputs, ledger.tasks.tolist(), ledger.labels.tolist(), strict=True)
        centres = [generator(run, "centres", task).integers(30, 226, (3, 20)) for task in range(5)]
        assert all((abs(row - centres[task][label]) <= 30).all() for row, task, label in mine)


def test_ages_add_nothing_to_an_address_unless_they_are_given():
    assert "max_age" not in tiny_spec("er").description()["settings"]
    assert tiny_spec("er", max_age=2).description()["settings"]["max_age"] == 2


@pytest.mark.numerical
@pytest.mark.parametrize("method", ["mega-ii", "gem"])
@pytest.mark.parametrize("memory", ["ring", "sample", "reservoir"])
def test_a_memory_that_ages_ends_with_the_same_bits(method, memory, tmp_path):
    if (method, memory) == ("gem", "reservoir"):
        pytest.skip("GEM reads each finished task, which a reservoir does not tell apart")
    spec = tiny_spec(method, tasks=4, memory=memory, max_age=1)
    whole = run_whole(spec, [0, 1])
    while True:
        place = checkpoint(tmp_path, Dying, lives=4)
        try:
            again = run_whole(spec, [0, 1], checkpoint=place)
            break
        except Killed:
            continue
    assert same_bits(again, whole)


@pytest.mark.parametrize("given", ["-1", "1.5", "old", ""])
def test_an_age_that_is_none_is_refused(given):
    with pytest.raises(EngramError, match="max_age must be"):
        specify("permuted-mnist", "er", overrides={"max_age": given})
