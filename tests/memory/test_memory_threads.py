"""Threads may share a memory: each sees it before or after what another one does to it."""

from __future__ import annotations

import multiprocessing
import sys
import threading
import time

import pytest
import torch

from engram.errors import EngramError
from engram.memory import ClassRing, Memory, Reservoir

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
