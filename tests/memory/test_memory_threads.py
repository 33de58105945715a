"""Threads may share a memory: each sees it before or after what another one does to it."""

from __future__ import annotations

import copy
import multiprocessing
import pickle
import sys
import threading
import time

import pytest
import torch

from engram.errors import EngramError
from engram.memory import ClassRing, Fifo, IndexStorage, Ledger, Memory, Reservoir

SECONDS = 0.5


@pytest.fixture(autouse=True)
def _many_switches():
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(before)


def examples(start, count):
    ids = [*range(start, start + count)]
    rows = torch.tensor(ids).unsqueeze(-1).expand(-1, 64)
    return (rows, torch.tensor(ids) % 10), ids


def meanwhile(work, watch):
    """Run ``watch`` again and again in a thread, while ``work`` goes on; return what it found."""
    found, done = [], threading.Event()

    def run():
        while not done.is_set():
            found.extend(watch())

    thread = threading.Thread(target=run)
    thread.start()
    try:
        end = time.monotonic() + SECONDS
        while time.monotonic() < end:
            work()
    finally:
        done.set()
        thread.join()
    return found


@pytest.mark.parametrize(
    "policy", [Reservoir(1000), ClassRing(100, include_current=True)], ids=repr
)
def test_a_sampler_meets_whole_examples_and_none_that_was_erased(policy):
    memory, gone, start = Memory(policy), set(), 0

    def work():
        nonlocal start
        batch, ids = examples(start, 50)
        memory.add(batch, ids=ids, tasks=0)
        start += 50
        leaving = [example.id for example in memory.examples()][::7]
        memory.erase(ids=leaving)
        gone.update(leaving)
        memory.erase(where=lambda example: example.id % 97 == 0)

    def watch():
        before = set(gone)
        sample = memory.sample(128)
        if sample is None:
            return
        for row, id in zip(sample.batch[0][:, 0].tolist(), sample.ids, strict=True):
            if row != id or id in before:
                yield row, id

    assert meanwhile(work, watch) == []


def test_a_memory_can_be_saved_while_it_goes_on(tmp_path):
    memory, start = Memory(Reservoir(2000)), 0
    memory.add(*examples(0, 1)[:1])

    def work():
        nonlocal start
        memory.add(examples(start, 100)[0])
        start += 100

    def watch():
        memory.save(tmp_path / "memory")
        sample = Memory.load(tmp_path / "memory").sample(50)
        if (sample.batch[0][:, 0] % 10 != sample.labels).any():
            yield sample

    assert meanwhile(work, watch) == []


COPIES = {
    "deep": copy.deepcopy,
    "shallow": copy.copy,
    "pickle": lambda own: pickle.loads(pickle.dumps(own)),
}


@pytest.mark.parametrize("way", COPIES)
@pytest.mark.parametrize("policy", [Reservoir(500), ClassRing(40, include_current=True)], ids=repr)
def test_a_copy_that_is_made_meanwhile_is_whole(policy, way):
    memory, start = Memory(policy), 0
    memory.add(examples(0, 5)[0], ids=[*range(5)], tasks=0)

    def work():
        nonlocal start
        batch, ids = examples(start, 50)
        memory.add(batch, ids=ids, tasks=0)
        start += 50
        memory.erase(ids=ids[::7])

    def watch():
        twin = COPIES[way](memory)
        held = twin.read(range(len(twin)))
        if held.batch[0][:, 5].tolist() != held.ids or len(set(held.ids)) != len(twin):
            yield held.ids
        if any(row % 10 != label for row, label in zip(held.ids, held.labels, strict=True)):
            yield held.labels
        twin.add(examples(0, 3)[0], ids=["a", "b", "c"], tasks=0)

    assert meanwhile(work, watch) == []


@pytest.mark.parametrize("way", COPIES)
def test_a_copy_of_the_storage_or_of_a_ledger_is_whole_as_well(way):
    memory, ledger, start = Memory(Fifo(300)), Ledger(ClassRing(30)), 0
    memory.add((torch.zeros(300, 64), torch.zeros(300)))

    def work():
        nonlocal start
        start += 300
        numbers = torch.full((300,), float(start))
        memory.add((numbers.unsqueeze(-1).expand(-1, 64), numbers))
        ledger.add(tasks=0, labels=[start % 7] * 50, ids=[*range(start, start + 50)])

    def watch():
        image, number = COPIES[way](memory.storage).read(torch.arange(300))
        if len(set(number.tolist())) != 1 or (image != number.unsqueeze(-1)).any():
            yield number
        twin = COPIES[way](ledger)
        if len({len(twin), len(twin.ids), len(twin.tags), len(twin.tasks)}) != 1:
            yield twin
        for id, label in zip(twin.ids, twin.labels.tolist(), strict=False):
            if (id - id % 300) % 7 != label:
                yield id
        twin.add(tasks=0, labels=[1])

    assert meanwhile(work, watch) == []


@pytest.mark.parametrize("way", COPIES)
def test_a_copy_is_a_memory_of_its_own(way):
    memory = Memory(Fifo(10))
    memory.add(examples(0, 5)[0])
    twin = COPIES[way](memory)
    memory.erase(ids=[0])
    memory.add(examples(5, 1)[0])
    assert twin.sample(9).ids == [*range(5)]
    twin.add(examples(7, 1)[0])
    assert 7 not in memory.sample(9).batch[0]
    assert twin.erasures == []


def test_a_copy_shares_what_the_copies_around_it_share():
    data = (torch.arange(10.0), torch.arange(10))
    storage = IndexStorage(data)
    memory = Memory(Fifo(4), storage)
    memory.add(torch.arange(3))
    twin, own, both = copy.deepcopy((memory, storage, memory))
    assert twin is both
    assert twin.storage is own
    assert own is not storage
    memory.add(torch.arange(3, 6))
    assert twin.sample(4).batch[0].tolist() == [0, 1, 2]


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")  # of a process with threads
@pytest.mark.skipif(sys.platform == "win32", reason="processes do not fork there")
def test_a_forked_process_may_sample_what_a_thread_was_changing():
    memory, begun = Memory(Reservoir(100)), threading.Event()
    memory.add(examples(0, 50)[0])

    def where(_):
        begun.set()
        time.sleep(0.01)
        return True

    thread = threading.Thread(target=memory.erase, kwargs={"where": where})
    thread.start()
    begun.wait()
    process = multiprocessing.get_context("fork").Process(target=memory.sample, args=(3,))
    process.start()
    thread.join()
    process.join(20)
    process.kill()
    assert process.exitcode == 0
    memory.add(examples(50, 5)[0])
    assert len(memory) == 5


def test_of_two_batches_that_both_would_be_the_first_the_second_is_checked_again():
    memory, other = Memory(Reservoir(100)), Memory(Reservoir(100))
    first = memory.prepare(examples(0, 3)[0], tasks=0)
    without_tasks = memory.prepare(examples(0, 3)[0])
    wider = memory.prepare(torch.zeros(3, 65), tasks=0)
    memory.file(first)
    for batch in (without_tasks, wider):
        with pytest.raises(EngramError):
            memory.file(batch)
    assert len(memory) == 3

    behind = memory.prepare(examples(3, 2)[0], tasks=0)
    other.add(torch.zeros(4, 65), tasks=0)
    memory.load_state_dict(other.state_dict())
    with pytest.raises(EngramError):
        memory.file(behind)
    assert len(memory) == 4


@pytest.mark.parametrize("first", [{"tasks": 0}, {}], ids=str)
def test_a_batch_of_another_kind_than_came_after_an_erasure_is_refused(first):
    memory = Memory(Reservoir(100))
    memory.add(examples(0, 3)[0], **first)
    prepared = memory.prepare(examples(3, 3)[0], **first)
    memory.erase(where=lambda _: True)
    memory.add(examples(6, 3)[0], **({} if first else {"tasks": 0}))
    with pytest.raises(EngramError, match="give all batches with"):
        memory.file(prepared)
    assert len({example.task for example in memory.examples()}) == 1
    assert len(memory) == 3
