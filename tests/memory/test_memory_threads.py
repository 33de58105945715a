"""Threads may share a memory: each sees it before or after what another one does to it."""

from __future__ import annotations

import sys
import threading
import time

import pytest
import torch

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
