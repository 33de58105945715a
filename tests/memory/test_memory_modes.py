"""A memory is the same in whatever mode of torch it is used."""

from __future__ import annotations

import pytest
import torch

from engram import Learner
from engram.memory import ClassRing, Fifo, Memory, Reservoir
from engram.rules import AGEM, GEM, MEGA1, MEGA2, Current, Equal

HOST = torch.device("cpu")


def batch(count=5):
    return torch.randn(count, 4, device=HOST), torch.arange(count, device=HOST) % 3


@pytest.mark.parametrize("loaded", [False, True])
def test_what_a_server_adds_in_inference_mode_can_be_trained_on(loaded, tmp_path):
    model = torch.nn.Linear(4, 3)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    memory = Memory(Reservoir(30))
    with torch.inference_mode():
        memory.add(batch())
        memory.sample(3)
        if loaded:
            memory.save(tmp_path / "memory")
            memory = Memory.load(tmp_path / "memory")
    learner = Learner(model, optimizer, MEGA2(), memory)
    for _ in range(4):
        assert learner.observe(*batch()).weights.isfinite().all()
    memory.erase(ids=[0])
    assert memory.sample(3).labels is not None
    assert len(memory) == 24


@pytest.mark.parametrize("rule", [Current(), Equal(), AGEM(), MEGA1(), MEGA2(), GEM()], ids=repr)
@pytest.mark.parametrize("policy", [ClassRing(2, include_current=True), Fifo(9)], ids=repr)
def test_the_default_device_is_for_the_users_tensors(rule, policy, tmp_path):
    """Here "meta" stands for any device that is not the data's."""
    model = torch.nn.Linear(4, 3)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with torch.device("meta"):
        memory = Memory(policy)
        learner = Learner(model, optimizer, rule, memory, reference_batch=4)
        for task in (0, 0, 1, 1):
            learner.observe(*batch(), task=task)
        for count in (2, 100):
            assert memory.sample(count).labels.device == HOST
            memory.sample(count, by_task=True)
        memory.erase(where={"task": 0})
        memory.save(tmp_path / "memory")
        assert len(Memory.load(tmp_path / "memory").sample(3).ids) == 3


def test_examples_may_be_erased_while_one_looks_through_them():
    memory = Memory(Fifo(10))
    memory.add(torch.arange(10))
    for example in memory.examples():
        if example.id % 2 == 0:
            memory.erase(ids=[example.id])
    assert sorted(example.id for example in memory.examples()) == [1, 3, 5, 7, 9]


def test_what_tells_whom_to_erase_may_erase_others_itself():
    memory = Memory(Fifo(10))
    memory.add(torch.arange(10))

    def where(example):
        memory.erase(ids=[9 - example.id])
        return example.id == 0

    memory.erase(where=where)
    assert len(memory) == 0
    assert len(memory.erasures) == 11
