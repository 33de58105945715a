"""Files and states that somebody has made up are refused in one sentence, checksum or not."""

from __future__ import annotations

import copy

import pytest
import torch

from engram.errors import EngramError
from engram.memory import ClassRing, Fifo, Memory, Reservoir, files

LEAST = -(2**63)


def memory_of(policy):
    memory = Memory(policy, max_examples=9)
    for task in range(2):
        memory.add((torch.zeros(5, 2), torch.arange(5) % 2), tasks=task, ids=[*range(9, 14)])
        memory.end_task()
    memory.add((torch.zeros(3, 2), torch.arange(3) % 2), tasks=2, tags={"source": "a"})
    memory.erase(ids=[9, "x"])
    memory.sample(1)
    return memory


def numbers(*rows):
    return torch.tensor(rows)


def text(document):
    return torch.tensor(list(document.encode()), dtype=torch.uint8)


FORGED = {
    "next_id": [None, "3", 1.0, True, -1, 12, 2**600, [14]],
    "erased": [text("[1.5]"), text("[[1]]"), text('{"a":1}'), text("[20]"), text("7"), numbers(1)],
    "filing/sealed": [None, "3", 1.0, True, -1, 99, 2**70, [1]],
    "filing/max_examples": [0, -1, "9", 9.0, True, 2**70, 3],
    "filing/tasks": [numbers(1), numbers(*range(6, 0, -1)).double(), text("[]"), None],
    "filing/labels": [numbers(1), numbers(LEAST, LEAST, LEAST), None],
    "filing/ids": [text("[]"), text("[1,1,2,3,4]"), text("[true,1,2,3,4]"), text("{}")],
    "filing/tags": [text('{"0":7}'), text('{"0":{"a":[1]}}'), text("[]"), text('{"77":{"a":1}}')],
    "filing/members": [numbers(0), numbers(0, 0, 0, 0, 0), numbers(0.0, 1.0), None],
}
"""What else may stand in a state's ledger, by its place."""


def forged(state, place, value):
    *folders, name = place.split("/")
    state = copy.deepcopy(state)
    inner = state["ledger"]
    for folder in folders:
        inner = inner[folder]
    inner[name] = value
    return state


def cases():
    return [(place, value) for place, values in FORGED.items() for value in values]


@pytest.mark.parametrize("policy", [ClassRing(2), Reservoir(5), Fifo(5)], ids=repr)
@pytest.mark.parametrize(("place", "value"), cases(), ids=str)
def test_a_number_that_no_memory_writes_is_refused(place, value, policy, tmp_path):
    state = memory_of(policy).state_dict()
    memory = memory_of(policy)
    before = [*memory.examples()]
    bad = forged(state, place, value)
    with pytest.raises(EngramError):
        memory.load_state_dict(bad)
    assert [*memory.examples()] == before
    files.write(tmp_path / "memory", bad)
    with pytest.raises(EngramError):
        Memory.load(tmp_path / "memory")


COLUMNS = {"task": 0, "label": 1, "limit": 2, "seen": 3, "size": 4}


@pytest.mark.parametrize("policy", [ClassRing(2), Reservoir(5), Fifo(5)], ids=repr)
@pytest.mark.parametrize("column", COLUMNS)
@pytest.mark.parametrize("value", [LEAST + 1, -1, 77, 2**62])
def test_a_group_that_no_memory_has_is_refused(policy, column, value):
    memory = memory_of(policy)
    state = memory.state_dict()
    state["ledger"]["filing"]["groups"][0, COLUMNS[column]] = value
    if column == "seen" and value > 0:
        memory.load_state_dict(state)  # so many may have come
        return
    with pytest.raises(EngramError):
        memory.load_state_dict(state)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("erasures", text("[[1,[2],3]]")),
        ("erasures", text('[["now","abc","why"]]')),
        ("erasures", text('[["now",[1.5],"why"]]')),
        ("erasures", text("7")),
        ("draws/available", True),
        ("draws/available", 1.0),
        ("draws/block", True),
        ("draws/ahead", torch.zeros(1, 1)),
        ("draws/ahead", torch.zeros(1, dtype=torch.int64)),
        ("max_bytes", True),
        ("max_bytes", "100"),
        ("max_examples", None),
        ("max_examples", 0),
        ("max_examples", "9"),
        ("max_examples", 9),  # without one in bytes
    ],
)
def test_so_is_whatever_else_no_memory_writes(name, value):
    memory = memory_of(Fifo(5))
    state = copy.deepcopy(memory.state_dict())
    *folders, last = name.split("/")
    inner = state
    for folder in folders:
        inner = inner[folder]
    inner[last] = value
    with pytest.raises(EngramError):
        memory.load_state_dict(state)


@pytest.mark.parametrize("policy", [ClassRing(2), Reservoir(5), Fifo(5)], ids=repr)
def test_what_a_memory_writes_itself_is_read(policy, tmp_path):
    memory = memory_of(policy)
    for _ in range(3):
        state = memory.state_dict()
        memory = Memory(policy)
        memory.load_state_dict(state)
        memory.save(tmp_path / "memory")
        memory = Memory.load(tmp_path / "memory")
        memory.add((torch.zeros(3, 2), torch.arange(3) % 2), tasks=3)
        memory.erase(ids=[next(memory.examples()).id])
    memory.erase(where=lambda _: True)
    memory.save(tmp_path / "memory")
    assert len(Memory.load(tmp_path / "memory")) == 0
