"""Examples that grow old: who is let go, when, and that nothing older is ever sampled."""

from __future__ import annotations

from collections import Counter

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from engram.errors import EngramError
from engram.memory import ClassRing, ClassSample, Fifo, Ledger, Memory, Reservoir

POLICIES = [
    ClassRing(3),
    ClassRing(3, include_current=True),
    ClassSample(3),
    ClassSample(3, include_current=True),
    Reservoir(8),
    Fifo(8),
]
steps = st.lists(
    st.tuples(st.integers(0, 9), st.lists(st.integers(0, 2), min_size=1, max_size=5)), max_size=9
)


@settings(deadline=None, max_examples=25)
@given(steps, st.integers(0, 3))
@pytest.mark.parametrize("by", ["task", "time"])
@pytest.mark.parametrize("policy", POLICIES, ids=repr)
def test_nothing_is_held_or_sampled_that_is_older_than_the_greatest_age(policy, by, steps, max_age):
    memory = Memory(policy, max_age=max_age, age_by=by)
    newest, kept = -1, {}
    for at, labels in steps:
        times = at if by == "time" else None
        memory.add(
            (torch.full((len(labels),), at), torch.tensor(labels)),
            tasks=at if by == "task" else 0,
            times=times,
        )
        memory.end_task()
        newest = max(newest, at)
        held = memory.read(range(len(memory))).batch[0].tolist() if len(memory) else []
        assert all(newest - own <= max_age for own in held)
        sample = memory.sample(4)
        if sample is not None:
            assert all(newest - own <= max_age for own in sample.batch[0].tolist())
        # By age alone nobody leaves who is young enough.
        if kept and newest - min(kept) <= max_age and not policy.uniform and policy.by_class:
            assert len(memory) >= sum(kept.values()) - len(labels)
        kept = Counter(held)


def test_the_age_is_the_newest_less_ones_own():
    memory = Memory(Fifo(99), max_age=2)
    for task in range(6):
        memory.add(torch.full((3,), task), tasks=task)
        expected = [own for own in range(max(0, task - 2), task + 1) for _ in range(3)]
        assert sorted(memory.read(range(len(memory))).batch.tolist()) == expected
    assert memory.max_age == 2
    assert memory.age_by == "task"


def test_times_are_any_numbers_and_may_come_in_any_order():
    memory = Memory(Fifo(99), max_age=0.5, age_by="time")
    memory.add(torch.arange(3), times=[10.0, 10.25, 9.0])  # the last comes too late
    assert sorted(memory.sample(9).ids) == [0, 1]
    memory.add(torch.arange(2), times=10.6)
    assert sorted(memory.sample(9).ids) == [1, 3, 4]
    memory.add(torch.arange(1), times=10.0)
    assert len(memory) == 3


def test_who_was_let_go_may_come_again_and_who_was_erased_may_not():
    memory = Memory(Fifo(9), max_age=1)
    memory.add(torch.arange(2), tasks=0, ids=["a", "b"])
    memory.erase(ids=["b"])
    memory.add(torch.arange(1), tasks=5, ids=["c"])
    memory.add(torch.arange(2), tasks=5, ids=["a", "b"])
    assert sorted(memory.sample(9).ids) == ["a", "c"]


def test_a_place_that_age_has_left_goes_to_those_that_come():
    memory = Memory(Reservoir(10), max_age=1, seed=2)
    for task in range(40):
        memory.add(torch.full((100,), task), tasks=task)
        assert len(memory) == 10
    assert set(memory.sample(10).tasks.tolist()) <= {38, 39}


def test_what_is_too_old_does_not_make_it_harder_to_get_into_a_reservoir():
    """As many arrivals are forgotten as the members stood for: else nearly none would get in."""
    late = 0
    for seed in range(40):
        ledger = Ledger(Reservoir(20), max_age=1, seed=seed)
        for task in range(30):
            slots = ledger.add(task, None, count=200)
        late += int((slots[100:] >= 0).sum())
    # Of the last 100 of 400 in the window some 5 of 20 stay; with 6000 that had come, 0.3.
    assert 3 * 40 < late < 8 * 40


def test_rows_that_age_has_left_are_cleared():
    memory = Memory(ClassRing(3, include_current=True), max_age=0)
    memory.add((torch.ones(6), torch.arange(6) % 2), tasks=0)
    memory.add((torch.ones(1), torch.tensor([0])), tasks=1)
    rows = memory.storage.state_dict(6)["rows"]["0"]
    assert rows.tolist() == [1, 0, 0, 0, 0, 0]


def test_a_memory_goes_on_with_its_ages_when_it_is_loaded(tmp_path):
    memory = Memory(Fifo(9), max_age=1.5, age_by="time")
    memory.add(torch.arange(2), times=[1.0, 2.0])
    memory.save(tmp_path / "memory")
    other = Memory.load(tmp_path / "memory")
    assert (other.max_age, other.age_by) == (1.5, "time")
    other.add(torch.arange(2), times=[3.0, 1.0])
    assert sorted(other.sample(9).ids) == [1, 2]
    assert str(other.state_dict()["ledger"]["newest"]) == "3.0"


QUARTERS, INPUTS = 8, 4


def newest_accuracy(memory):
    """Of the most frequent labels, on a stream that contradicts itself in its last quarter."""
    for quarter in range(QUARTERS):
        inputs = torch.arange(40) % INPUTS
        memory.add((inputs, (inputs + (quarter == QUARTERS - 1)) % INPUTS), tasks=quarter)
    inputs, labels = memory.read(range(len(memory))).batch
    most = [labels[inputs == own].mode().values.item() for own in range(INPUTS)]
    return sum(label == (own + 1) % INPUTS for own, label in enumerate(most)) / INPUTS


def test_on_a_stream_that_contradicts_its_past_age_keeps_what_is_true_now():
    assert newest_accuracy(Memory(Reservoir(1000))) == 0
    assert newest_accuracy(Memory(Reservoir(1000), max_age=0)) == 1


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"max_age": -1}, "max_age is -1"),
        ({"max_age": 1.5}, "whole number"),
        ({"max_age": True}, "max_age is True"),
        ({"max_age": float("nan"), "age_by": "time"}, "max_age is nan"),
        ({"max_age": "4"}, "max_age is '4'"),
        ({"max_age": 4, "age_by": "epoch"}, "no way to count ages 'epoch'"),
        ({"max_age": 4, "age_by": 4}, "no way to count ages"),
        ({"max_age": 4, "age_by": torch.ones(2)}, "no way to count ages"),
        ({"blocked": torch.ones(2)}, "no use of blocked subjects"),
    ],
)
def test_ages_that_are_none_are_refused(options, words):
    with pytest.raises(EngramError, match=words):
        Memory(Fifo(3), **options)


def test_batches_without_what_ages_are_counted_in_are_refused():
    with pytest.raises(EngramError, match="give tasks with each batch"):
        Memory(Fifo(3), max_age=1).add(torch.arange(3))
    with pytest.raises(EngramError, match="give times with each batch"):
        Memory(Fifo(3), max_age=1, age_by="time").add(torch.arange(3), tasks=0)
