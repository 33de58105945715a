"""What a memory says of itself: a line for people, and metadata that are copies."""

from __future__ import annotations

import torch

from engram.memory import ClassRing, Fifo, IndexStorage, Ledger, Memory, Reservoir, TensorStorage


def test_its_repr_says_what_it_is_and_holds():
    memory = Memory(ClassRing(3), max_examples=50)
    assert repr(memory) == (
        "Memory(ClassRing(per_class=3, include_current=False): 0 of at most 50 examples, "
        "0 bytes in TensorStorage)"
    )
    for task in range(2):
        memory.add((torch.zeros(9, 5), torch.arange(9) % 3), tasks=task)
    memory.end_task()
    assert repr(memory) == (
        "Memory(ClassRing(per_class=3, include_current=False): 18 of at most 50 examples, "
        "2 tasks, 504 bytes in TensorStorage on cpu)"
    )
    memory.erase(where={"task": 0})
    assert "9 of at most 50 examples, 1 task, " in repr(memory)


def test_its_repr_without_a_bound_or_tasks_or_tensors_of_its_own():
    memory = Memory(ClassRing(3, include_current=True))
    memory.add((torch.zeros(1, 500), torch.zeros(1).long()))
    assert repr(memory) == (
        "Memory(ClassRing(per_class=3, include_current=True): 1 example, "
        "2,008 bytes in TensorStorage on cpu)"
    )
    indices = Memory(Reservoir(4), IndexStorage((torch.zeros(50),)))
    indices.add(torch.arange(7))
    assert repr(indices) == (
        "Memory(Reservoir(capacity=4): 4 of at most 4 examples, 32 bytes in IndexStorage on cpu)"
    )
    assert repr(Memory(Fifo(4), TensorStorage("cpu"))).endswith("in TensorStorage on cpu)")


def test_its_repr_reads_no_flag():
    memory = Memory(Fifo(9))
    for valid in (True, False):
        memory.file(memory.prepare(torch.arange(2)), valid=torch.tensor(valid))
    assert "4 of at most 9 examples, 2 batches unsettled, " in repr(memory)
    assert memory.settle() == 1
    assert "2 of at most 9 examples, 144 " not in repr(memory)
    assert "2 of at most 9 examples, 72 bytes" in repr(memory)


def test_what_is_done_to_the_tags_that_it_hands_out_is_not_done_to_the_memory():
    memory, tags = Memory(Fifo(5)), {"source": "a"}
    memory.add(torch.arange(3), tags=tags)
    ledger = Ledger(Fifo(5))
    ledger.add(None, None, tags=[{"source": "a"}] * 3, count=3)
    tags["source"] = "b"

    def change(example):
        example.tags["source"] = "c"
        return False

    for own in (memory, ledger):
        for example in own.examples():
            example.tags.clear()
        own.erase(where=change)
        assert [example.tags for example in own.examples()] == [{"source": "a"}] * 3
    ledger.tags[0]["source"] = "d"
    assert ledger.tags == [{"source": "a"}] * 3
    assert len(memory.erase(where={"tags": {"source": "a"}}).ids) == 3
