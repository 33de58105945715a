"""Writing costs as much as the batch, whatever the memory holds."""

from __future__ import annotations

import time

import pytest
import torch

from engram.memory import ClassRing, ClassSample, Fifo, Memory, Reservoir

# Each policy, filled with so many examples of 100 classes, and full.
FULL = {
    "ClassRing": lambda size: Memory(ClassRing(size // 100)),
    "ClassRing within a budget": lambda size: Memory(ClassRing(size), max_examples=size),
    "ClassSample within a budget": lambda size: Memory(ClassSample(size), max_examples=size),
    "Reservoir": lambda size: Memory(Reservoir(size)),
    "Fifo": lambda size: Memory(Fifo(size)),
}


def filled(memory, size):
    for start in range(0, size + 1000, 1000):
        label = torch.arange(start, start + 1000) % 100
        memory.add((label, label), tasks=0)
    memory.end_task()
    assert len(memory) >= size
    return memory


def seconds_of_an_add(memory):
    label = torch.arange(10)
    start = time.perf_counter()
    memory.add((label, label), tasks=1)
    return time.perf_counter() - start


@pytest.mark.parametrize("name", FULL)
def test_writing_to_a_memory_a_hundred_times_as_large_takes_no_longer(name):
    small, large = (filled(FULL[name](size), size) for size in (1_000, 100_000))
    # In turns, and the least of many: what is left when nothing else disturbs the machine.
    seconds = [(seconds_of_an_add(small), seconds_of_an_add(large)) for _ in range(200)]
    least, most = map(min, zip(*seconds, strict=True))
    assert most < 10 * least
