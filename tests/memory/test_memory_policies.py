"""Which examples stay: every policy against an independent account of it."""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from itertools import combinations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from engram.errors import EngramError
from engram.memory import ClassRing, ClassSample, Fifo, Ledger, Memory, Reservoir

steady = settings(deadline=None, max_examples=60)

# A stream: batches of (task, labels); None ends a task.
streams = st.lists(
    st.none() | st.tuples(st.integers(0, 2), st.lists(st.integers(0, 2), max_size=7)), max_size=25
)


def offer(ledger, stream):
    """Feed a stream, yielding (id, task, label) of every example in the order of arrival."""
    arrived = []
    for step in stream:
        if step is None:
            ledger.end_task()
            continue
        task, labels = step
        ledger.add(task, labels)
        for label in labels:
            arrived.append((len(arrived), task, label))
    return arrived


@steady
@given(streams, st.integers(1, 4), st.booleans())
def test_a_class_ring_holds_the_last_of_each_task_and_class(stream, per_class, include_current):
    ledger = Ledger(ClassRing(per_class, include_current=include_current))
    last = defaultdict(list)
    for id, task, label in offer(ledger, stream):
        last[task, label].append(id)
    assert sorted(ledger.ids) == sorted(id for ids in last.values() for id in ids[-per_class:])


@steady
@given(streams, st.integers(1, 20))
def test_a_fifo_is_a_deque(stream, capacity):
    ledger = Ledger(Fifo(capacity))
    queue = deque((id for id, _, _ in offer(ledger, stream)), maxlen=capacity)
    assert sorted(ledger.ids) == list(queue)
    assert ledger.available == len(queue)


@steady
@given(streams, st.integers(1, 4))
def test_a_class_sample_holds_as_many_as_it_can(stream, per_class):
    ledger = Ledger(ClassSample(per_class))
    seen = Counter((task, label) for _, task, label in offer(ledger, stream))
    held = Counter(zip(ledger.tasks.tolist(), ledger.labels.tolist(), strict=True))
    assert held == {key: min(count, per_class) for key, count in seen.items()}


def uniform_p_value(subsets, population, size):
    """The p-value of "all subsets of this size are equally likely" (chi-square)."""
    every = list(combinations(population, size))
    counts = Counter(tuple(sorted(subset)) for subset in subsets)
    assert set(counts) <= set(every)
    return stats.chisquare([counts[subset] for subset in every]).pvalue


@pytest.mark.parametrize("batches", [[6], [1] * 6, [4, 2]])
def test_a_reservoir_is_a_uniform_sample_of_the_stream(batches):
    held = []
    for seed in range(1500):
        ledger = Ledger(Reservoir(3), seed=seed)
        for size in batches:
            ledger.add(None, None, count=size)
        held.append(ledger.ids)
    assert uniform_p_value(held, range(6), 3) > 0.01


def test_a_reservoir_forgets_that_it_ever_saw_what_was_erased():
    held = []
    for seed in range(1500):
        ledger = Ledger(Reservoir(3), seed=seed)
        ledger.add(None, None, count=3)
        ledger.erase(ids=range(3))
        ledger.add(None, None, count=6)
        held.append(ledger.ids)
    assert uniform_p_value(held, range(3, 9), 3) > 0.01


@steady
@given(st.lists(st.integers(1, 9), max_size=8), st.data())
@pytest.mark.parametrize("policy", [ClassRing(2), ClassSample(2), Reservoir(7), Fifo(7)])
def test_how_a_stream_is_cut_into_batches_does_not_matter(policy, sizes, data):
    labels = data.draw(st.lists(st.integers(0, 2), min_size=sum(sizes), max_size=sum(sizes)))
    whole, parts = (Ledger(policy, max_examples=5, seed=3) for _ in range(2))
    whole.add(0, labels)
    for start, size in zip(np.cumsum([0, *sizes]), sizes, strict=False):
        parts.add(0, labels[start : start + size])
    assert whole.ids == parts.ids


@pytest.mark.parametrize(("per_class", "max_examples"), [(2, None), (3, 4)])
def test_a_class_sample_is_uniform_also_under_a_budget(per_class, max_examples):
    held = {0: [], 1: []}
    for seed in range(1500):
        ledger = Ledger(ClassSample(per_class), max_examples=max_examples, seed=seed)
        ledger.add(0, [0] * 6)
        ledger.add(0, [1] * 6)
        for label in held:
            held[label].append([id for id in ledger.ids if (id >= 6) == label])
    assert uniform_p_value(held[0], range(6), 2) > 0.01
    assert uniform_p_value(held[1], range(6, 12), 2) > 0.01


def test_a_class_sample_that_made_room_does_not_favour_who_comes_later():
    held = []
    for seed in range(1500):
        ledger = Ledger(ClassSample(3), max_examples=4, seed=seed)
        for label, count in ((0, 4), (1, 4), (2, 1), (0, 4)):
            ledger.add(0, [label] * count)
        held.append([id for id, label in zip(ledger.ids, ledger.labels, strict=True) if not label])
    assert uniform_p_value(held, [0, 1, 2, 3, 9, 10, 11, 12], 1) > 0.01


def test_samples_of_a_memory_are_uniform_and_without_replacement():
    memory = Memory(Fifo(6))
    memory.add(torch.arange(6))
    assert uniform_p_value([memory.sample(3).ids for _ in range(3000)], range(6), 3) > 0.01


@pytest.mark.parametrize("by_task", [False, True])
@pytest.mark.parametrize("part", [slice(0, 2), slice(2, 4)])
def test_every_part_of_a_sample_is_itself_a_sample(by_task, part):
    """Who splits one into micro-batches finds no task, and no slot, in one more than in another."""
    memory = Memory(Fifo(6))
    memory.add(torch.arange(6), tasks=0 if by_task else torch.arange(6) // 2)
    samples = [memory.sample(4, by_task=by_task) for _ in range(3000)]
    parts = [(sample[0] if by_task else sample).ids[part] for sample in samples]
    assert uniform_p_value(parts, range(6), 2) > 0.01


def test_draws_are_uniform_and_without_replacement():
    ledger = Ledger(Fifo(6))
    ledger.add(None, None, count=6)
    generator = np.random.default_rng(0)
    assert uniform_p_value([ledger.draw(3, generator) for _ in range(3000)], range(6), 3) > 0.01


@steady
@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 3)), max_size=60), st.integers(1, 8))
@pytest.mark.parametrize("policy", [ClassRing(3), ClassRing(3, include_current=True)])
def test_a_full_class_ring_gives_up_the_oldest_of_a_largest_group(policy, stream, budget):
    ledger = Ledger(policy, max_examples=budget)
    groups = defaultdict(list)  # the model: ids by (task, class), oldest first
    for id, key in enumerate(stream):
        ledger.add(key[0], [key[1]])
        own, largest = len(groups[key]), max(map(len, groups.values()))
        full = sum(map(len, groups.values())) == budget
        if own == 3 or (full and own == largest):
            del groups[key][0]
        elif full:
            (gone,) = set().union(*groups.values()) - set(ledger.ids)
            (loser,) = [ids for ids in groups.values() if gone in ids]
            assert len(loser) == largest
            assert loser.pop(0) == gone
        groups[key].append(id)
        assert sorted(ledger.ids) == sorted(id for ids in groups.values() for id in ids)


@pytest.mark.parametrize("policy", [ClassRing(50), ClassSample(50)])
def test_a_budget_is_shared_fairly_among_classes_and_tasks(policy):
    ledger = Ledger(policy, max_examples=60)
    for task in range(3):
        for label in np.random.default_rng(task).permutation(np.arange(200) % 4):
            ledger.add(task, [label])
        ledger.end_task()
    sizes = Counter(zip(ledger.tasks.tolist(), ledger.labels.tolist(), strict=True))
    assert set(sizes.values()) <= {4, 5, 6}
    assert len(sizes) == 12
    assert len(ledger) == 60


@pytest.mark.parametrize("policy", [ClassRing(2), ClassSample(2)])
def test_a_task_can_be_sampled_once_it_has_ended(policy):
    ledger = Ledger(policy)
    ledger.add(0, [1, 1, 2])
    assert ledger.available == 0
    ledger.end_task()
    assert ledger.available == 3
    ledger.add(1, [1])
    assert (ledger.available, len(ledger)) == (3, 4)


@pytest.mark.parametrize("policy", [ClassRing(1), ClassSample(1)])
def test_a_task_taken_up_again_does_not_show_before_it_ends_again(policy):
    ledger = Ledger(policy)
    ledger.add(0, [1, 2])
    ledger.end_task()
    before = set(ledger.ids)
    for _ in range(20):
        ledger.add(0, [1])
    assert set(ledger.ids[: ledger.available]) <= before


@pytest.mark.parametrize(
    "policy",
    [ClassRing(2, include_current=True), ClassSample(2, include_current=True), Reservoir(9)],
)
def test_the_current_task_can_be_included_at_once(policy):
    ledger = Ledger(policy)
    ledger.add(0, [1, 2, 3])
    assert ledger.available == 3


@pytest.mark.parametrize("policy", [ClassRing, ClassSample, Reservoir, Fifo])
@pytest.mark.parametrize("size", [0, -3, 2.5, True, None])
def test_a_policy_refuses_a_size_that_is_none(policy, size):
    with pytest.raises(EngramError, match="at least 1"):
        policy(size)
