"""A memory is given another capacity, another policy, another budget, other columns."""

from __future__ import annotations

import copy
import pickle
from collections import Counter

import pytest
import torch

from engram.errors import EngramError
from engram.memory import (
    ClassRing,
    ClassSample,
    Fifo,
    IndexStorage,
    Memory,
    Ragged,
    RaggedStorage,
    Reservoir,
)
from interruptions import interrupted

EVERY = [
    ClassRing(3),
    ClassRing(3, include_current=True),
    ClassSample(3),
    ClassSample(3, include_current=True),
    Reservoir(12),
    Fifo(12),
]


def batch(numbers, ragged=False):
    column = torch.tensor([*numbers])
    own = (
        Ragged([torch.full((n % 5 + 1,), n) for n in column.tolist()])
        if ragged
        else column.double()
    )
    return own, column % 3


def filled(policy, ragged=False, **options):
    memory = Memory(policy, seed=4, **options)
    for task in range(4):
        numbers = range(10 * task, 10 * task + 10)
        tags, weights = [{"n": n} for n in numbers], [n + 0.5 for n in numbers]
        memory.add(batch(numbers, ragged), tasks=task, tags=tags, weights=weights)
        if task < 3:
            memory.end_task()
    memory.erase(ids=[31, 5, "gone"], reason="withdrawn")
    memory.block({"n": 99})
    return memory


def held(memory):
    return {example.id: example for example in memory.examples()}


def check_whole(memory):
    found = memory.read(range(len(memory)))
    values = found.batch[0]
    for place, id in enumerate(found.ids):
        value = values[place]
        assert torch.equal(value, torch.full_like(value, id))
        assert held(memory)[id][1:] == (id // 10, id % 3, {"n": id}, id + 0.5, None)


@pytest.mark.parametrize("ragged", [False, True])
@pytest.mark.parametrize("after", EVERY, ids=repr)
@pytest.mark.parametrize("before", EVERY, ids=repr)
def test_what_stays_is_whole_and_goes_on(before, after, ragged):
    memory = filled(before, ragged)
    old, available = held(memory), {*memory.read(range(memory.available)).ids}
    erasures, blocks = memory.erasures, memory.blocks
    memory.resize(after)
    assert memory.policy == after
    assert held(memory).items() <= old.items()
    check_whole(memory)
    classes = Counter(example[1:3] for example in old.values())
    room = sum(min(3, count) for count in classes.values()) if after.by_class else 12
    assert len(memory) == min(room, len(old))
    now = {*memory.read(range(memory.available)).ids} if memory.available else set()
    assert now == set(held(memory)) & (set(held(memory)) if after.include_current else available)
    assert (memory.erasures, memory.blocks) == (erasures, blocks)
    memory.add(batch([5, 77], ragged), tasks=9, ids=[5, 77])  # the first one was erased
    memory.end_task()
    assert 5 not in held(memory)
    again = Memory(after)
    again.load_state_dict(memory.state_dict())
    assert held(again) == held(memory)


@pytest.mark.parametrize("after", EVERY, ids=repr)
@pytest.mark.parametrize("before", EVERY, ids=repr)
def test_who_stays_is_the_same_for_a_seed(before, after):
    states = []
    for _ in range(2):
        memory = filled(before)
        memory.resize(after)
        memory.add(batch(range(50, 60)), tasks=5)
        states.append(held(memory))
    assert states[0] == states[1]


def test_the_newest_stay_with_fifo():
    memory = Memory(Fifo(9))
    memory.add(torch.arange(14))
    memory.resize(4)
    assert (memory.policy, sorted(held(memory))) == (Fifo(4), [10, 11, 12, 13])
    memory.add(torch.arange(1))
    assert sorted(held(memory)) == [11, 12, 13, 14]
    memory.resize(6)
    memory.add(torch.arange(3))
    assert sorted(held(memory)) == [12, 13, 14, 15, 16, 17]


def test_the_newest_of_each_class_stay_with_a_ring():
    memory = Memory(ClassRing(4, include_current=True))
    memory.add((torch.arange(20), torch.arange(20) % 2), tasks=0)
    memory.resize(2)
    assert sorted(held(memory)) == [16, 17, 18, 19]
    memory.resize(Fifo(3))
    assert sorted(held(memory)) == [17, 18, 19]


def counts(before, after, draws=1500, stream=12):
    """How often each example of a stream is held in the end."""
    found = Counter()
    for seed in range(draws):
        memory = Memory(before, seed=seed)
        labels = torch.tensor([n % 4 == 0 for n in range(stream)]).long()
        memory.add((torch.arange(stream), labels), tasks=0)
        memory.resize(after)
        found.update([*held(memory)])
    return [found[id] / draws for id in range(stream)]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (Reservoir(8), Reservoir(3)),
        # Of 3 and of 9 examples all are held: the sample of all is exact.
        (ClassSample(9, include_current=True), Reservoir(3)),
    ],
)
def test_a_smaller_uniform_sample_is_one_of_all_that_came(before, after):
    for share in counts(before, after):
        assert abs(share - 3 / 12) < 5 * (0.25 * 0.75 / 1500) ** 0.5


def test_a_uniform_sample_stays_one_when_more_come_after_it_was_made_smaller():
    found, draws = Counter(), 1500
    for seed in range(draws):
        memory = Memory(Reservoir(6), seed=seed)
        memory.add(torch.arange(10))
        memory.resize(2)
        memory.add(torch.arange(10))
        found.update([*held(memory)])
    for id in range(20):
        assert abs(found[id] / draws - 2 / 20) < 5 * (0.1 * 0.9 / draws) ** 0.5


def test_budgets_are_changed_too():
    memory = Memory(Fifo(100))
    memory.add(torch.arange(50))
    memory.resize(max_bytes=80)
    assert (len(memory), memory.nbytes, memory.max_bytes) == (10, 80, 80)
    memory.resize(max_bytes=None)
    memory.add(torch.arange(50))
    assert len(memory) == 60
    memory.resize(max_examples=7)
    assert sorted(held(memory)) == [*range(93, 100)]
    assert memory.nbytes == 7 * 8
    memory.resize(max_examples=None)
    memory.add(torch.arange(50))
    assert len(memory) == 57
    memory = Memory(ClassRing(9, include_current=True), max_examples=8)
    memory.add((torch.arange(20), torch.arange(20) % 2), tasks=0)
    memory.resize(max_examples=4)
    assert sorted(held(memory)) == [16, 17, 18, 19]


@pytest.mark.parametrize("most", [5, 10, 20])  # fewer examples than the bytes allow, as many, more
@pytest.mark.parametrize("way", ["as it is", "loaded", "copied", "mapped"])
def test_a_budget_in_examples_outlives_a_smaller_one_in_bytes(most, way, tmp_path):
    memory = Memory(Reservoir(100), max_examples=most, max_bytes=10 * 16)
    memory.add(batch(range(30)))  # of 16 bytes each
    assert len(memory) == min(most, 10)
    if way == "loaded":
        memory.save(tmp_path / "memory")
        memory = Memory.load(tmp_path / "memory")
    elif way == "copied":
        memory = pickle.loads(pickle.dumps(memory))
    elif way == "mapped":
        memory.map(lambda own: (own[0] + 1, own[1]))
    memory.resize(max_bytes=50 * 16)
    memory.add(batch(range(100, 190)))
    assert len(memory) == most
    memory.resize(max_examples=None)
    memory.add(batch(range(200, 290)))
    assert len(memory) == 50


def test_a_budget_in_bytes_of_texts_too():
    memory = filled(Fifo(40), ragged=True)
    memory.resize(max_bytes=200)
    assert memory.nbytes <= 200 < memory.nbytes + 48
    check_whole(memory)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda memory: memory.resize(0), "capacity is 0"),
        (lambda memory: memory.resize("9"), "capacity is '9'"),
        (lambda memory: memory.resize(max_examples=0), "max_examples is 0"),
        (lambda memory: memory.resize(max_bytes=3), "less than the 16 bytes of one"),
        (lambda memory: memory.resize(max_bytes=1.5), "max_bytes is 1.5"),
        (lambda memory: memory.resize(2**60), "cannot allocate 1,152,921,504,606,846,976 rows"),
        (lambda memory: memory.map(3), "function is 3"),
        (lambda memory: memory.map(lambda own: own, batch=0), "batch is 0"),
        (lambda memory: memory.map(lambda own: own[0][:1]), "returned 1 examples for 11"),
        (lambda memory: memory.map(lambda _: "x"), "holds a str"),
        (lambda memory: memory.map(lambda own: own[0] / 0), "not finite"),
        (lambda memory: memory.map(lambda own: own[0].repeat(1, 99)), "returned|differs|examples"),
        (
            lambda memory: memory.map(lambda own: (memory.erase(ids=[39]), own)[1]),
            "changed the memory",
        ),
    ],
)
def test_what_cannot_be_is_refused_and_changes_nothing(call, words):
    memory = filled(Fifo(12))
    before = str(memory.state_dict()["storage"])
    with pytest.raises(EngramError, match=words):
        call(memory)
    if "changed" not in words:
        assert str(memory.state_dict()["storage"]) == before
    assert memory.policy == Fifo(12)


def test_more_texts_than_there_is_room_for_are_refused():
    memory = Memory(Fifo(2))
    memory.add(Ragged([torch.ones(1), torch.ones(3)]))
    with pytest.raises(EngramError, match="cannot allocate"):
        memory.resize(2**60)
    assert memory.policy == Fifo(2)
    assert memory.sample(2).batch.lengths == [1, 3]


def test_a_policy_by_class_needs_labels():
    memory = Memory(Fifo(3))
    memory.add(torch.arange(3.0))
    with pytest.raises(EngramError, match="have no labels"):
        memory.resize(ClassRing(2))


# Other columns.


@pytest.mark.parametrize("size", [1, 5, 1024])
@pytest.mark.parametrize("policy", EVERY, ids=repr)
def test_columns_are_changed_and_the_rest_stays(policy, size):
    memory, twin = filled(policy), filled(policy)
    memory.map(lambda own: {"x": own[0].float(), "y": own[1], "more": own[0].int() * 2}, batch=size)
    assert held(memory) == held(twin)
    found = memory.read(range(len(memory)))
    assert found.batch["x"].tolist() == found.ids
    assert found.batch["x"].dtype == torch.float32
    assert found.batch["more"].tolist() == [2 * id for id in found.ids]
    numbers = torch.arange(50, 56)
    more = {"x": numbers.float(), "y": numbers % 3, "more": numbers.int()}
    memory.add(more, tasks=7, labels=numbers % 3, weights=[1] * 6)
    twin.add(batch(range(50, 56)), tasks=7, weights=[1] * 6)
    assert held(memory) == held(twin)
    assert memory.available == twin.available


def test_tokens_are_made_anew_and_padding_is_dropped():
    memory = filled(Fifo(12))
    memory.map(lambda own: (Ragged([torch.full((3,), n) for n in own[0].tolist()]), own[1]))
    assert isinstance(memory.storage, RaggedStorage)
    check_whole(memory)
    memory.map(lambda own: own[0].padded()[:, 0])
    assert not isinstance(memory.storage, RaggedStorage)
    assert memory.read([0]).batch.tolist() == memory.read([0]).ids


def test_a_budget_in_bytes_holds_for_new_columns():
    memory = Memory(Fifo(99), max_bytes=160)
    memory.add(torch.arange(30).double())
    with pytest.raises(EngramError, match="max_bytes is 160, less than the 320 bytes"):
        memory.map(lambda own: own.to(torch.complex128))
    memory.map(lambda own: own.float())
    memory.add(torch.arange(30).float())
    assert (len(memory), memory.nbytes) == (40, 160)


def test_indices_have_no_columns():
    memory = Memory(Fifo(3), IndexStorage((torch.zeros(9),)))
    memory.add(torch.arange(3))
    with pytest.raises(EngramError, match="map its data"):
        memory.map(lambda own: own)
    memory.resize(2)
    assert sorted(held(memory)) == [1, 2]
    with pytest.raises(EngramError, match="no columns to map"):
        Memory(Fifo(3)).map(lambda own: own)


@pytest.mark.parametrize(
    "change",
    [
        lambda memory: memory.resize(Reservoir(5)),
        lambda memory: memory.map(lambda own: own[0].float(), batch=4),
    ],
    ids=["resize", "map"],
)
def test_what_interrupts_it_finds_it_as_before_or_as_after(change):
    memory = filled(Fifo(8))

    def seen(own):
        return str(own.state_dict()), own.policy, own.nbytes

    after = copy.deepcopy(memory)
    change(after)
    known = [seen(memory), seen(after)]
    line, victim = 1, copy.deepcopy(memory)
    while interrupted(lambda: change(victim), "engram.memory", line):  # noqa: B023
        assert seen(victim) in known, f"at line {line}"
        line, victim = line + 3, copy.deepcopy(memory)
    assert line > 30
