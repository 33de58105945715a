"""A batch is so many examples one after another; a copy is a memory of its own."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from engram.errors import EngramError
from engram.memory import ClassRing, ClassSample, Fifo, Ledger, Memory, Reservoir, TensorStorage

EVERY = [ClassRing(2), ClassRing(2, include_current=True), ClassSample(2), Reservoir(5), Fifo(5)]
LEAST = -(2**63)
COPIES = [copy.deepcopy, copy.copy, lambda own: pickle.loads(pickle.dumps(own))]

examples = st.tuples(
    st.integers(0, 2), st.integers(0, 2), st.integers(0, 9) | st.sampled_from("ab")
)
# None ends a task; whether a batch's ids are given is part of it.
streams = st.lists(
    st.none() | st.tuples(st.booleans(), st.lists(examples, min_size=1, max_size=6)), max_size=10
)


def contents(ledger):
    """All that a ledger knows, in a form that compares."""
    state = ledger.state_dict()
    state["filing"] = {
        name: value.tolist() if isinstance(value, np.ndarray) else value
        for name, value in state["filing"].items()
    }
    return {**state, "erased": state["erased"].tolist()}


@settings(deadline=None, max_examples=25)
@given(streams)
@pytest.mark.parametrize("budget", [None, 4])
@pytest.mark.parametrize("policy", EVERY, ids=repr)
def test_a_batch_is_filed_as_its_examples_are_one_by_one(policy, budget, stream):
    whole, single = (Ledger(policy, max_examples=budget, seed=3) for _ in range(2))
    for ledger in (whole, single):
        ledger.erase(ids=[7, "b"])
    for batch in stream:
        if batch is None:
            whole.end_task()
            single.end_task()
            continue
        named, rows = batch
        tasks, labels, ids = (list(column) for column in zip(*rows, strict=True))
        slots = whole.add(tasks, labels, ids if named else None)
        for task, label, id in rows:
            single.add(task, [label], [id] if named else None)
        assert contents(whole) == contents(single)
        for slot, row in zip(slots.tolist(), rows, strict=True):
            if slot >= 0:
                assert (whole.tasks[slot], whole.labels[slot]) == row[:2]
                assert not named or whole.ids[slot] == row[2]


@pytest.mark.parametrize("options", [{}, {"max_age": 1}], ids=str)
@pytest.mark.parametrize("policy", EVERY, ids=repr)
def test_a_large_batch_too(policy, options):
    whole, single = (Ledger(policy, seed=3, **options) for _ in range(2))
    for task, size in enumerate([3, 40, 1, 200, 15, 16, 17]):
        labels, weights = (
            [place % 3 for place in range(size)],
            [place + 1.0 for place in range(size)],
        )
        tags = [{"place": place} for place in range(size)]
        whole.add(task, labels, tags=tags, weights=weights)
        for label, tag, weight in zip(labels, tags, weights, strict=True):
            single.add(task, [label], tags=[tag], weights=[weight])
        assert contents(whole) == contents(single)
        whole.erase(ids=[5, 50])
        single.erase(ids=[5, 50])
        whole.end_task()
        single.end_task()


@pytest.mark.parametrize("copied", COPIES)
@pytest.mark.parametrize("policy", EVERY, ids=repr)
def test_a_copy_goes_on_as_the_original_does_and_apart_from_it(policy, copied):
    memory, label = Memory(policy), torch.arange(30) % 3
    memory.add((label, label), tasks=0)
    memory.end_task()
    memory.sample(2)
    twin = copied(memory)
    for own in (memory, twin):
        own.add((label + 3, label + 3), tasks=1)
        own.end_task()
    one, other = memory.sample(4), twin.sample(4)
    assert one.ids == other.ids
    for name in ("tasks", "labels"):
        assert torch.equal(getattr(one, name), getattr(other, name))
    assert torch.equal(one.batch[0], other.batch[0])
    held = list(twin.examples())
    memory.add((label, label), tasks=2)
    assert list(twin.examples()) == held


@settings(deadline=None, max_examples=50)
@given(st.lists(st.lists(st.integers(0, 7), min_size=1, max_size=3, unique=True), max_size=8))
@pytest.mark.parametrize("copied", COPIES)
def test_a_storage_and_its_copies_write_to_the_slots_they_are_given(copied, writes):
    storages, expected = [TensorStorage()], [[0] * 8]
    storages[0].resize(8, torch.zeros(1, dtype=torch.int64))
    storages[0].commit(storages[0].stage([*range(8)], [torch.zeros(8, dtype=torch.int64)]))
    for number, slots in enumerate(writes):
        storages.append(copied(storages[-1]))
        expected.append([*expected[-1]])
        for turn, storage in enumerate(storages):
            own = [(slot + turn) % 8 for slot in slots]  # each one's are others
            storage.commit(storage.stage(own, [torch.full((len(own),), number)]))
            for slot in own:
                expected[turn][slot] = number
    held = [storage.read(torch.arange(8)).tolist() for storage in storages]
    assert held == expected


@pytest.mark.parametrize("copied", COPIES)
def test_what_a_copy_stages_leaves_what_the_original_has_staged(copied):
    storage, numbers = TensorStorage(), torch.arange(1, 3)
    storage.resize(4, numbers)
    twin = copied(storage)
    staged = [
        (own, own.stage(slots, [numbers])) for own, slots in [(storage, [0, 1]), (twin, [2, 3])]
    ]
    for own, ready in staged:
        own.commit(ready)
    assert storage.read(torch.arange(4)).tolist() == [1, 2, 0, 0]
    assert twin.read(torch.arange(4)).tolist() == [0, 0, 1, 2]


@pytest.mark.parametrize("copied", COPIES)
def test_what_is_filed_by_a_flag_in_a_copy_is_not_undone_in_the_original(copied):
    memory = Memory(Fifo(4))
    memory.add(torch.arange(2))
    twin = copied(memory)
    twin.file(twin.prepare(torch.arange(3)), valid=torch.tensor(False))
    assert (memory.settle(), len(memory)) == (0, 2)
    assert (twin.settle(), len(twin)) == (1, 2)


@pytest.mark.parametrize("labels", [[LEAST + 1, 2**63 - 1], np.array([0, 5]), [True, np.int8(3)]])
def test_labels_are_integers_of_64_bits_of_whatever_kind(labels):
    ledger = Ledger(ClassRing(2))
    ledger.add(0, labels)
    assert ledger.labels.tolist() == [int(label) for label in labels]


@pytest.mark.parametrize("field", ["tasks", "labels"])
@pytest.mark.parametrize("value", [LEAST, 2**63, -(2**80)])
def test_other_integers_are_refused_in_a_sentence_that_names_them(field, value):
    columns = {"tasks": [0, 0], "labels": [1, 1], field: [3, value]}
    least, most = min(3, value), max(3, value)
    with pytest.raises(EngramError, match=f"^{field} must be .* 64 bits; {least} to {most} are"):
        Ledger(ClassRing(2)).add(**columns)
    with pytest.raises(EngramError, match="tasks must be integers of 64 bits"):
        Ledger(ClassRing(2)).add(tasks=value, labels=[1])


@pytest.mark.parametrize("field", ["tasks", "labels"])
@pytest.mark.parametrize("other", ["a", None, 1.5, [1]])
def test_what_is_no_integer_is_refused_beside_one_that_is_too_large(field, other):
    columns = {"tasks": [0, 0], "labels": [1, 1], field: [2**80, other]}
    with pytest.raises(EngramError, match=f"^{field} must be one-dimensional and hold integers"):
        Ledger(ClassRing(2)).add(**columns)


@pytest.mark.parametrize("erased", [False, True])
def test_numbers_go_on_after_the_largest_of_64_bits(erased):
    memory, label = Memory(Reservoir(9)), torch.arange(2)
    if erased:
        memory.erase(ids=[2**63 - 2])
    else:
        memory.add((label, label), ids=[5, 2**63 - 2])
    for _ in range(2):
        memory.add((label, label))
    ids = [2**63 - 1, 2**63, 2**63 + 1, 2**63 + 2]
    assert [example.id for example in memory.examples()][-4:] == ids
    assert set(ids) <= set(memory.sample(9).ids)


@pytest.mark.parametrize("number", [2**512 - 1, 1 - 2**512])
def test_large_ids_are_saved_and_loaded_and_numbers_go_on_behind_them(number, tmp_path):
    memory = Memory(Fifo(9))
    memory.add(torch.arange(2), ids=[number, "a"], tags={"large": number})
    memory.add(torch.arange(2))
    memory.erase(ids=[number // 3])
    memory.save(tmp_path / "memory")
    memory = Memory.load(tmp_path / "memory")
    after = max(number + 1, 0)
    assert [example.id for example in memory.examples()] == [number, "a", after, after + 1]
    assert memory.erasures[0].ids == (number // 3,)
    memory.add(torch.arange(1), ids=[number // 3])
    assert len(memory) == 4


@pytest.mark.parametrize("number", [2**512, -(2**512), 10**5000], ids=["2^512", "-2^512", "long"])
def test_larger_ones_are_refused_wherever_they_are_given(number):
    memory = Memory(Fifo(9))
    memory.add(torch.arange(2), tasks=0)
    for options, words in [
        ({"ids": [number, 1]}, "512 bits"),
        ({"ids": ["a", number]}, "512 bits"),
        ({"tags": {"large": number}}, "'large'"),
        ({"labels": [number, 1]}, "integers of 64 bits"),
        ({"tasks": number}, "integers of 64 bits"),
        ({"tasks": [1, number]}, "integers of 64 bits"),
    ]:
        with pytest.raises(EngramError, match=words):
            memory.add(torch.arange(2), **{"tasks": 0, **options})
    with pytest.raises(EngramError, match="512 bits"):
        memory.erase(ids=[number])
    assert memory.erase(where={"label": number}).ids == ()
    with pytest.raises(EngramError):
        memory.read([number])
    assert len(memory) == 2
