"""What a plan's indices lead to, against memories that copy every example when it comes."""

import numpy as np
import pytest
import torch

from engram.errors import EngramError
from engram.lab.benchmarks import Examples
from engram.lab.engine import Bank
from engram.lab.plan import generator
from engram.memory import ClassRing, ClassSample, Fifo, Ledger, Reservoir
from engram.testing import Practice

SEEDS = (3, 4)
LENGTHS = (14, 3, 9, 10, 10)  # of tasks
SIZE, COUNT, CAPACITY = 4, 5, 11
CPU = torch.device("cpu")


def task_of(number):
    """Examples of one number each, so that they can be told apart, and any labels."""
    before, count = sum(LENGTHS[:number]), LENGTHS[number]
    ids = torch.arange(before, before + count) + 100 * torch.tensor(SEEDS).unsqueeze(1)
    labels = np.stack([generator(seed, "labels", number).integers(0, 3, count) for seed in SEEDS])
    return Examples(ids.unsqueeze(-1).expand(-1, -1, 64).short(), torch.from_numpy(labels))


def bank_of(policy, capacity=CAPACITY):
    ledgers = [Ledger(policy, seed=seed) for seed in SEEDS]
    bank = Bank(ledgers, SEEDS, capacity, Practice(SEEDS, "cpu"), CPU)
    bank.stream.normalise = lambda inputs: inputs
    return bank


def play(bank, after=(0, 0), ended=lambda _: None):
    """Yield task, step and the ids [R][...] that it reads, from a place on."""
    for task in range(after[0], len(LENGTHS)):
        examples = bank.stage_examples(task_of(task))
        first = after[1] if task == after[0] else 0
        if first == 0:
            bank.plan(task, examples.labels, SIZE, COUNT, per_task=False)
        for step in range(first, -(-LENGTHS[task] // SIZE)):
            yield task, step, ids_of(bank.reference(step))
        bank.end_task()
        ended(task)


def ids_of(batch):
    if batch is None:
        return [[], []]
    there = torch.ones(batch.labels.shape) if batch.weights is None else batch.weights
    ids = [mine[some > 0, 0].tolist() for mine, some in zip(batch.inputs, there, strict=True)]
    every = {
        int(id_[0]): int(label)
        for task in range(len(LENGTHS))
        for id_, label in zip(*(part.flatten(0, 1) for part in task_of(task)), strict=True)
    }
    for mine, labels in zip(batch.inputs, batch.labels, strict=True):  # padding included
        assert [every[int(id_)] for id_ in mine[:, 0]] == labels.tolist()
    return ids


def copying(policy):
    """Yield what is read by memories that hold copies, and take in a batch after each step."""
    ledgers = [Ledger(policy, seed=seed) for seed in SEEDS]
    held = [{} for _ in SEEDS]
    for task in range(len(LENGTHS)):
        inputs, labels = task_of(task)
        sources = [generator(seed, "reference", task) for seed in SEEDS]
        for step in range(-(-LENGTHS[task] // SIZE)):
            part = slice(step * SIZE, (step + 1) * SIZE)
            read = []
            for run, ledger in enumerate(ledgers):
                read.append([held[run][int(slot)] for slot in ledger.draw(COUNT, sources[run])])
            yield task, step, read
            for run, ledger in enumerate(ledgers):
                came = inputs[run, part, 0].tolist()
                slots = ledger.add(np.full(len(came), task), labels[run, part].numpy())
                held[run] |= {
                    int(slot): id_ for slot, id_ in zip(slots, came, strict=True) if slot >= 0
                }
        for ledger in ledgers:
            ledger.end_task()


@pytest.mark.parametrize("policy", [Reservoir(CAPACITY), Fifo(CAPACITY)])
def test_a_memory_of_the_current_task_too(policy):
    ours = list(play(bank_of(policy)))
    assert ours == list(copying(policy))
    first = [sum(LENGTHS[:task]) + 100 * SEEDS[0] for task, _, _ in ours]
    assert any(id_ >= new for (*_, (read, _)), new in zip(ours, first, strict=True) for id_ in read)


def test_the_last_of_each_class_of_finished_tasks():
    for task, _, read in play(bank_of(ClassRing(2), 6 * len(LENGTHS))):
        kept = [set(), set()]
        for earlier in map(task_of, range(task)):
            for run, (ids, labels) in enumerate(zip(*earlier, strict=True)):
                for label in range(3):
                    kept[run] |= set(ids[labels == label, 0][-2:].tolist())
        for mine, all_ in zip(read, kept, strict=True):
            assert len(mine) == len(set(mine)) == min(COUNT, len(all_))
            assert set(mine) <= all_


@pytest.mark.parametrize(
    ("policy", "capacity"),
    [(ClassRing(2), 30), (ClassSample(2), 30), (Reservoir(CAPACITY), 11), (Fifo(CAPACITY), 11)],
)
def test_it_goes_on_from_any_step(policy, capacity):
    bank, states, whole = bank_of(policy, capacity), {}, []

    def save(task, step=-1):
        states[task, step + 1] = bank.state_dict()

    for task, step, read in play(bank, ended=lambda task: save(task + 1)):
        whole.append((task, step, read))
        if step:  # where a task begins, the end of the one before was saved
            save(task, step - 1)
    assert len(states) == len(whole)
    for place, state in states.items():
        other = bank_of(policy, capacity)
        other.load_state_dict(state)
        assert list(play(other, place)) == [one for one in whole if one[:2] >= place]


def test_a_task_that_was_not_laid_is_refused():
    bank = bank_of(ClassRing(2), 30)
    labels = task_of(0).labels
    bank.plan(0, labels, SIZE, COUNT, per_task=False)
    with pytest.raises(EngramError, match="must be staged before its steps"):
        bank.reference(0)
    bank.stage_examples(task_of(0))
    bank.reference(0)
    bank.end_task()
    bank.plan(1, task_of(1).labels, SIZE, COUNT, per_task=False)
    with pytest.raises(EngramError, match="must be staged before its steps"):
        bank.reference(0)


def test_a_task_of_another_length_than_planned_is_refused():
    bank = bank_of(ClassRing(2), 30)
    bank.stage_examples(task_of(2))
    bank.plan(0, task_of(1).labels, SIZE, COUNT, per_task=False)
    for use in (lambda: bank.reference(0), bank.end_task):
        with pytest.raises(EngramError, match="as many as planned: 3, not 9"):
            use()


def test_the_state_of_another_memory_is_refused():
    bank, smaller = bank_of(Fifo(CAPACITY)), bank_of(Fifo(CAPACITY), CAPACITY - 1)
    smaller.stage_examples(task_of(0))
    with pytest.raises(EngramError, match="must have 11 examples in memory for each of 2 runs"):
        bank.load_state_dict(smaller.state_dict())


def test_its_size_is_that_of_what_it_may_hold():
    bank = bank_of(Fifo(CAPACITY))
    assert bank.nbytes == 0
    bank.stage_examples(task_of(0))
    assert bank.nbytes == CAPACITY * (64 * 2 + 8)
