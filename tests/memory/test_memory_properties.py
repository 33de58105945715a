"""What holds after every step, whatever is added, sealed and erased, for every policy."""

from __future__ import annotations

from collections import Counter

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from engram.memory import ClassRing, ClassSample, Fifo, IndexStorage, Memory, Reservoir

EVERY = [
    ClassRing(2),
    ClassRing(2, include_current=True),
    ClassSample(2),
    ClassSample(2, include_current=True),
    Reservoir(7),
    Fifo(7),
]
BUDGETS = [{}, {"max_examples": 5}, {"max_bytes": 6 * 16 + 3}, {"max_examples": 1}]
STEADY = 12
BYTES = 16  # of an example: its serial number and its label

labels = st.lists(st.integers(0, 2), max_size=6)
own_ids = st.lists(st.integers(0, 9) | st.sampled_from("abc"), min_size=6, max_size=6)
steps = st.lists(
    st.one_of(
        st.tuples(st.just("add"), st.integers(0, 2), labels, st.none()),
        st.tuples(st.just("add"), st.integers(0, 2), labels, own_ids),
        st.tuples(st.just("end")),
        st.tuples(st.just("erase"), st.lists(st.integers(0, 12), max_size=3)),
        st.tuples(st.just("where"), st.integers(0, 2), st.integers(0, 2)),
    ),
    max_size=16,
)


class Witness:
    """Drives a memory whose rows hold a serial number, and remembers what it did."""

    def __init__(self, memory):
        self.memory = memory
        self.latest = {}  # id -> (serial, task, label) of its last arrival
        self.serial = 1  # 0 is what a cleared row holds
        self.next_id = self.most = 0
        self.erased, self.sealed = set(), set()

    def add(self, task, labels, ids):
        serials = torch.arange(self.serial, self.serial + len(labels))
        self.serial += len(labels)
        ids = ids and ids[: len(labels)]
        self.memory.add((serials, torch.tensor(labels, dtype=torch.int64)), tasks=task, ids=ids)
        if not ids:
            ids = list(range(self.next_id, self.next_id + len(labels)))
        self.next_id = max([self.next_id, *(id + 1 for id in ids if isinstance(id, int))])
        for id, serial, label in zip(ids, serials.tolist(), labels, strict=True):
            self.latest[id] = (serial, task, label)

    def end(self):
        self.memory.end_task()
        self.sealed = {example.id for example in self.memory.examples()}

    def erase(self, ids):
        self.memory.erase(ids=ids)
        self.next_id = max([self.next_id, *(id + 1 for id in ids)])
        self.erased |= set(ids)

    def where(self, task, label):
        self.erased |= set(self.memory.erase(where={"task": task, "label": label}).ids)

    def check(self):
        memory, policy = self.memory, self.memory.policy
        examples = list(memory.examples())
        ids = [example.id for example in examples]
        assert len(ids) == len(set(ids)) == len(memory)
        assert not set(ids) & self.erased
        self.most = max(self.most, len(memory))
        for rows in memory.storage.state_dict(self.most)["rows"].values():
            assert not rows[len(memory) :].any()  # no copy of anything is left behind
        if examples:
            self.check_rows(examples, memory.read(range(len(memory))))
        available = set(ids[: memory.available])
        assert available <= (set(ids) if policy.include_current else self.sealed)
        assert not policy.include_current or memory.available == len(memory)
        sample = memory.sample(4)
        assert (sample is None) == (not available)
        if sample is not None:
            assert len(set(sample.ids)) == len(sample.ids) == min(4, len(available))
            assert set(sample.ids) <= available
            self.check_rows([e for id in sample.ids for e in examples if e.id == id], sample)
        if policy.by_class:
            sizes = Counter((example.task, example.label) for example in examples)
            assert max(sizes.values(), default=0) <= policy.per_class
        else:
            assert len(memory) <= policy.capacity

    def check_rows(self, examples, sample):
        """Every row is the last that arrived under its id, with the task and label it had."""
        serials, labels = sample.batch
        rows = zip(serials.tolist(), sample.tasks.tolist(), labels.tolist(), strict=True)
        assert list(rows) == [self.latest[id] for id in sample.ids]
        assert sample.labels.tolist() == labels.tolist()
        assert sample.ids == [example.id for example in examples]
        assert sample.tasks.tolist() == [example.task for example in examples]


def run(witness, steps):
    for name, *arguments in steps:
        getattr(witness, name)(*arguments)
        witness.check()


@settings(deadline=None, max_examples=STEADY)
@given(steps)
@pytest.mark.parametrize("budget", BUDGETS, ids=str)
@pytest.mark.parametrize("policy", EVERY, ids=repr)
def test_a_memory_keeps_its_promises(policy, budget, steps):
    memory = Memory(policy, **budget)
    run(Witness(memory), steps)
    assert memory.nbytes <= budget.get("max_bytes", float("inf"))
    assert len(memory) <= budget.get("max_examples", budget.get("max_bytes", 1e9) // BYTES)


@settings(deadline=None, max_examples=STEADY)
@given(st.lists(st.tuples(st.integers(0, 2), labels) | st.none(), max_size=12))
@pytest.mark.parametrize("budget", BUDGETS[:2], ids=str)
@pytest.mark.parametrize("policy", EVERY, ids=repr)
def test_what_is_held_from_finished_tasks_and_nothing_else_is_available(policy, budget, steps):
    witness = Witness(Memory(policy, **budget))
    for step in steps:
        witness.end() if step is None else witness.add(*step, None)
        ids = [example.id for example in witness.memory.examples()]
        may = set(ids) if policy.include_current else witness.sealed & set(ids)
        assert set(ids[: witness.memory.available]) == may


@settings(deadline=None, max_examples=STEADY)
@given(st.lists(st.tuples(st.integers(0, 2), st.lists(st.integers(0, 49), max_size=6)), max_size=8))
@pytest.mark.parametrize("policy", EVERY, ids=repr)
def test_both_storages_give_the_same_samples(policy, batches):
    data = (torch.randn(50, 3), torch.arange(50) % 3)
    rows, indices = Memory(policy, seed=5), Memory(policy, IndexStorage(data), seed=5)
    for task, chosen in batches:
        index = torch.tensor(chosen, dtype=torch.int64)
        rows.add((data[0][index], data[1][index]), tasks=task)
        indices.add(index, tasks=task)
        rows.end_task()
        indices.end_task()
        one, other = rows.sample(3), indices.sample(3)
        if one is None:
            assert other is None
            continue
        assert one.ids == other.ids
        assert all(torch.equal(a, b) for a, b in zip(one.batch, other.batch, strict=True))
        assert torch.equal(one.tasks, other.tasks)
        assert torch.equal(one.labels, other.labels)
