"""The memory is governed: ids, erasure and its record."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
import torch

from engram.errors import EngramError
from engram.memory import ClassRing, ClassSample, Example, Fifo, Ledger, Memory, Reservoir

EVERY = [ClassRing(9), ClassSample(9), Reservoir(9), Fifo(9)]


def held(memory):
    return [example.id for example in memory.examples()]


@pytest.fixture(params=EVERY, ids=repr)
def memory(request):
    """Six examples in two tasks, each row holding 10 + its id."""
    memory = Memory(request.param)
    for task in range(2):
        rows = torch.arange(3) + 10 + 3 * task
        tags = [{"customer": name} for name in "xyx"]
        memory.add((rows, torch.tensor([0, 1, 1])), tasks=task, tags=tags)
        memory.end_task()
    return memory


@pytest.mark.parametrize(
    ("where", "gone"),
    [
        ({"task": 0}, {0, 1, 2}),
        ({"label": 1}, {1, 2, 4, 5}),
        ({"id": 4}, {4}),
        ({"task": 1, "label": 1}, {4, 5}),
        ({"tags": {"customer": "x"}}, {0, 2, 3, 5}),
        ({"task": 1, "tags": {"customer": "y"}}, {4}),
        ({"tags": {"country": None}}, set()),
        (lambda example: example.id % 2 == 0, {0, 2, 4}),
    ],
)
def test_examples_are_erased_by_their_metadata(memory, where, gone):
    record = memory.erase(where=where, reason="withdrawn")
    assert set(record.ids) == gone
    assert set(held(memory)) == set(range(6)) - gone
    left = memory.read(range(len(memory)))
    assert left.batch[0].tolist() == [10 + id for id in left.ids]


def test_an_erased_example_leaves_no_trace_and_never_comes_back(memory):
    memory.erase(ids=[1, 4, 77])
    every_row = memory.storage.state_dict(memory.storage.rows)["rows"]["0"]
    assert not {11, 14} & set(every_row[:6].tolist())
    memory.add((torch.tensor([11, 5]), torch.tensor([1, 1])), tasks=1, ids=[1, 77])
    memory.end_task()
    assert set(memory.sample(100).ids) == {0, 2, 3, 5}


def test_erasures_are_recorded(memory):
    before = datetime.now(UTC) - timedelta(seconds=1)
    record = memory.erase(ids=[2, "nobody"], reason="asked for")
    memory.erase(where={"task": 9})
    assert memory.erasures[0] == record
    assert (record.ids, record.reason) == ((2, "nobody"), "asked for")
    assert before <= datetime.fromisoformat(record.when) <= datetime.now(UTC)
    assert memory.erasures[1].ids == ()


def test_everything_can_be_erased_and_the_memory_goes_on(memory):
    memory.erase(ids=held(memory))
    assert len(memory) == 0
    assert memory.sample(5) is None
    memory.add((torch.tensor([16]), torch.tensor([0])), tasks=2)
    memory.end_task()
    assert memory.sample(5).ids == [6]


def test_examples_tell_their_metadata(memory):
    assert Example(id=4, task=1, label=1, tags={"customer": "y"}) in memory.examples()


def test_an_id_that_is_held_is_updated_in_place(memory):
    again = torch.tensor([99])
    memory.add((again, torch.tensor([1])), tasks=0, ids=[1], tags={"customer": "new"})
    assert len(memory) == 6
    assert memory.available == 6
    sample = memory.read(range(6))
    assert dict(zip(sample.ids, sample.batch[0].tolist(), strict=True))[1] == 99
    assert Example(1, 0, 1, {"customer": "new"}) in memory.examples()


@pytest.mark.parametrize("policy", [ClassRing(2), ClassSample(2)], ids=repr)
def test_an_id_that_comes_back_as_another_class_is_filed_anew(policy):
    ledger = Ledger(policy)
    ledger.add(0, [1, 1, 2], ids=["a", "b", "c"])
    ledger.end_task()
    ledger.add(0, [2], ids=["a"])
    assert sorted(ledger.ids) == ["a", "b", "c"]
    assert set(ledger.ids[: ledger.available]) == {"b", "c"}
    assert ledger.labels[ledger.ids.index("a")] == 2


def test_of_one_id_twice_in_a_batch_the_last_counts():
    memory = Memory(Fifo(5))
    memory.add(torch.tensor([10, 11, 12]), ids=["a", "b", "a"])
    sample = memory.sample(5)
    assert dict(zip(sample.ids, sample.batch.tolist(), strict=True)) == {"a": 12, "b": 11}


def test_numbers_are_never_used_twice():
    memory = Memory(Fifo(3))
    memory.add(torch.zeros(2))
    memory.add(torch.zeros(1), ids=[10])
    memory.add(torch.zeros(1))
    assert sorted(held(memory)) == [1, 10, 11]
    memory.erase(ids=[11, 20])
    memory.add(torch.zeros(1))
    assert sorted(held(memory)) == [1, 10, 21]


def test_ids_are_integers_or_strings_of_any_size_and_kind():
    memory = Memory(Fifo(9))
    memory.add(torch.arange(2), ids=torch.tensor([7, 8]))
    assert memory.sample(9).ids == [7, 8]
    memory.add(torch.arange(3), ids=["7", 2**80, -1])
    assert memory.sample(9).ids == [7, 8, "7", 2**80, -1]


@pytest.mark.parametrize(
    "request_",
    [
        {},
        {"ids": [1], "where": {"task": 1}},
        {"ids": "abc"},
        {"ids": [1.5]},
        {"where": {}},
        {"where": {"tsk": 1}},
        {"where": {"tags": "x"}},
        {"where": 3},
        {"ids": [1], "reason": 7},
    ],
    ids=str,
)
def test_an_erasure_that_says_nothing_clear_is_refused_and_changes_nothing(memory, request_):
    with pytest.raises(EngramError):
        memory.erase(**request_)
    assert len(memory) == 6
    assert memory.erasures == []
