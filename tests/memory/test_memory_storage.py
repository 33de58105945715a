"""What goes in comes out, in its own structure; what does not fit is refused in one sentence."""

from __future__ import annotations

from typing import NamedTuple

import pytest
import torch

from engram.errors import EngramError
from engram.memory import (
    ClassRing,
    ClassSample,
    Fifo,
    IndexStorage,
    Ledger,
    Memory,
    Reservoir,
    TensorStorage,
)


class Pair(NamedTuple):
    image: torch.Tensor
    label: torch.Tensor


@pytest.mark.parametrize(
    "dtype", [torch.float32, torch.bfloat16, torch.uint8, torch.bool, torch.int16, torch.complex64]
)
def test_any_structure_and_dtype_comes_back_as_it_was(dtype):
    image = torch.arange(12).reshape(3, 2, 2).to(dtype)
    batch = {"a": image, "b": (image[:, 0], [image[:, 0, 0]])}
    memory = Memory(Reservoir(5))
    memory.add(batch)
    back = memory.sample(3).batch
    assert list(back) == ["a", "b"]
    assert isinstance(back["b"], tuple)
    assert isinstance(back["b"][1], list)
    assert back["a"].dtype == dtype
    assert torch.equal(back["a"], image)
    assert torch.equal(back["b"][1][0], image[:, 0, 0])


def test_the_order_of_a_dicts_keys_does_not_matter():
    memory = Memory(Fifo(5))
    memory.add({"a": torch.tensor([1]), "b": torch.tensor([2.0])})
    memory.add({"b": torch.tensor([4.0]), "a": torch.tensor([3])})
    assert memory.sample(2).batch["a"].tolist() == [1, 3]


def test_a_named_tuple_comes_back_as_a_tuple_and_brings_its_labels():
    memory = Memory(ClassRing(2, include_current=True))
    memory.add(Pair(torch.zeros(2, 3), torch.tensor([4, 5])))
    sample = memory.sample(2)
    assert type(sample.batch) is tuple
    assert sample.labels.tolist() == [4, 5]


def test_what_is_held_has_no_part_in_any_graph_and_is_a_copy():
    image = torch.ones(2, 3, requires_grad=True)
    memory = Memory(Fifo(2))
    memory.add(image * 1)
    memory.add(image * 2)
    assert not memory.sample(2).batch.requires_grad
    value = torch.zeros(2, 3)
    memory.add(value)
    value += 1
    assert memory.sample(2).batch.sum() == 0


def test_samples_without_tasks_or_labels_say_so():
    memory = Memory(Reservoir(5))
    memory.add(torch.zeros(3, 2))
    sample = memory.sample(2)
    assert (sample.tasks, sample.labels) == (None, None)
    assert next(memory.examples())[1:] == (None,) * 5


def test_a_sample_by_task_has_up_to_so_many_of_each():
    memory = Memory(ClassRing(9))
    for task, size in enumerate([2, 6, 4]):
        memory.add((torch.full((size,), float(task)), torch.zeros(size).long()), tasks=task)
    assert memory.sample(3, by_task=True) is None
    memory.end_task()
    memory.add((torch.tensor([3.0]), torch.tensor([0])), tasks=3)
    parts = memory.sample(4, by_task=True)
    assert {task: len(part.ids) for task, part in parts.items()} == {0: 2, 1: 4, 2: 4}
    for task, part in parts.items():
        assert part.batch[0].unique().tolist() == [task]
        assert part.tasks.unique().tolist() == [task]
        assert len(set(part.ids)) == len(part.ids)


@pytest.mark.parametrize("tasks", [None, 1])
def test_the_reference_of_a_step_is_a_sample_in_the_order_of_the_slots(tasks):
    memories = [Memory(Fifo(40), seed=3) for _ in range(2)]
    for memory in memories:
        assert memory.references(4, with_tasks=True) is None
        memory.add(torch.arange(20), tasks=tasks)
        memory.add(torch.arange(20, 40), tasks=tasks and tasks + 1)
    for with_tasks in (True, False):
        batch, own, weights = memories[0].references(4, with_tasks=with_tasks)
        sample = memories[1].sample(4)
        assert batch.tolist() == sorted(sample.ids)
        if with_tasks and tasks is not None:
            assert own.tolist() == sorted(sample.tasks.tolist())
        else:
            assert own is None
        assert weights is None


def test_the_last_examples_of_each_task_are_the_same_until_some_come_or_go():
    memory = Memory(ClassRing(4))
    assert memory.last(2) == {}
    memory.add((torch.arange(5.0), torch.tensor([0, 1, 0, 1, 0])), tasks=7)
    assert memory.last(2) == {}  # of a task that goes on
    memory.end_task()
    memory.add((torch.arange(5.0, 6.0), torch.tensor([0])), tasks=8)
    memory.end_task()
    for _ in range(2):
        assert {task: part.ids for task, part in memory.last(2).items()} == {7: [3, 4], 8: [5]}
    assert memory.last(99)[7].batch[0].tolist() == [0, 1, 2, 3, 4]
    memory.erase(ids=[4])
    assert memory.last(2)[7].ids == [2, 3]
    untold = Memory(Fifo(4))
    untold.add(torch.arange(3))
    with pytest.raises(EngramError, match="have no tasks"):
        untold.last(2)
    with pytest.raises(EngramError, match="count is 0"):
        memory.last(0)


def test_tasks_can_be_given_for_each_example_or_for_all():
    memory = Memory(Fifo(9))
    memory.add(torch.arange(4), tasks=torch.tensor([3, 1, 3, 2]))
    memory.add(torch.arange(1), tasks=torch.tensor(1))
    parts = memory.sample(9, by_task=True)
    assert {task: part.ids for task, part in parts.items()} == {1: [1, 4], 2: [3], 3: [0, 2]}


def test_pools_and_byte_budgets_are_allocated_at_once_and_others_grow_within_their_cap():
    example = (torch.zeros(1, 10), torch.zeros(1, dtype=torch.int64))
    sizes = {}
    for name, memory in {
        "pool": Memory(Reservoir(100)),
        "bytes": Memory(ClassRing(100), max_bytes=48 * 70 + 5),
        "cap": Memory(ClassRing(100), max_examples=50),
    }.items():
        memory.add(example)
        first = memory.nbytes
        for _ in range(80):
            memory.add(example)
        sizes[name] = (first, memory.nbytes)
    assert sizes == {"pool": (4800, 4800), "bytes": (3360, 3360), "cap": (48, 2400)}


def test_indices_cost_eight_bytes_each():
    memory = Memory(Fifo(1000), IndexStorage((torch.zeros(50, 100),)), max_bytes=80)
    memory.add(torch.arange(50, dtype=torch.int32))
    assert (len(memory), memory.nbytes) == (10, 80)


@pytest.mark.parametrize("index", [[50], [-1], [[3]], [2.0]])
def test_what_is_no_index_into_the_data_is_refused(index):
    memory = Memory(Fifo(9), IndexStorage((torch.zeros(50, 2),)))
    with pytest.raises(EngramError, match=r"index|indices"):
        memory.add(torch.tensor(index))


def test_an_empty_batch_is_no_batch():
    memory = Memory(ClassSample(3))
    memory.add((torch.zeros(0, 5), torch.zeros(0).long()), tasks=0)
    memory.add((torch.zeros(2, 7), torch.zeros(2).long()), tasks=0)
    memory.add((torch.zeros(0, 7), torch.zeros(0).long()), tasks=0)
    assert len(memory) == 2


def label(*values):
    return torch.tensor(values)


BAD = {
    "lengths differ": ((torch.zeros(2, 3), label(0)), {}, "lengths are 2, 1"),
    "a scalar": ((torch.zeros(2, 3), torch.tensor(1)), {}, "lengths are 2, none"),
    "another shape": ((torch.zeros(2, 4), label(0, 0)), {}, r"\(4,\).*\(3,\)"),
    "another dtype": ((torch.zeros(2, 3).double(), label(0, 0)), {}, "float64.*float32"),
    "another structure": ({"x": torch.zeros(2, 3)}, {}, "a tuple of 2.*a dict of"),
    "no tensors": ((), {}, "structure differs"),
    "not tensors": ((torch.zeros(2, 3), "ab"), {}, "holds a str"),
    "tasks too short": ((torch.zeros(2, 3), label(0, 0)), {"tasks": label(0)}, "tasks has 1"),
    "tasks are floats": ((torch.zeros(2, 3), label(0, 0)), {"tasks": [0.5, 1]}, "tasks.*integers"),
    "tasks are words": ((torch.zeros(2, 3), label(0, 0)), {"tasks": "ab"}, "tasks.*integers"),
    "tasks are missing": ((torch.zeros(2, 3), label(0, 0)), {"tasks": None}, "with tasks"),
    "labels too long": (
        (torch.zeros(2, 3), label(0, 0)),
        {"labels": label(0, 1, 2)},
        "labels has 3",
    ),
    "labels a square": ((torch.zeros(2, 3), label(0, 0)), {"labels": torch.zeros(2, 2)}, "labels"),
    "a label alone": ((torch.zeros(2, 3), label(0, 0)), {"labels": 3}, "labels is 3"),
    "labels beyond": ((torch.zeros(2, 3), label(0, 0)), {"labels": [2**63, 0]}, "64 bits"),
    "a task beyond": ((torch.zeros(2, 3), label(0, 0)), {"tasks": 2**63}, "64 bits"),
    "ids too short": ((torch.zeros(2, 3), label(0, 0)), {"ids": [1]}, "ids has 1"),
    "ids are floats": ((torch.zeros(2, 3), label(0, 0)), {"ids": [1.0, 2]}, "id 1.0 is neither"),
    "ids are truth": ((torch.zeros(2, 3), label(0, 0)), {"ids": [True, 2]}, "id True is neither"),
    "tags too short": ((torch.zeros(2, 3), label(0, 0)), {"tags": [None]}, "tags has 1"),
    "tags are words": ((torch.zeros(2, 3), label(0, 0)), {"tags": ["a", "b"]}, "not a mapping"),
    "tags are nested": ((torch.zeros(2, 3), label(0, 0)), {"tags": {"a": [1]}}, "'a' is .1."),
    "tags are a number": ((torch.zeros(2, 3), label(0, 0)), {"tags": 5}, "not a mapping"),
    "tags not finite": ((torch.zeros(2, 3), label(0, 0)), {"tags": {"a": float("nan")}}, "finite"),
}


@pytest.mark.parametrize("name", BAD)
@pytest.mark.parametrize("policy", [ClassRing(2), Reservoir(4)], ids=repr)
def test_bad_input_is_refused_in_one_sentence_and_changes_nothing(policy, name):
    batch, options, words = BAD[name]
    memory = Memory(policy)
    memory.add((torch.ones(2, 3), label(0, 1)), tasks=0)
    before = memory.state_dict()
    with pytest.raises(EngramError, match=words) as caught:
        memory.add(batch, **{"tasks": 0, **options})
    assert str(caught.value).count(". ") == 0
    after = memory.state_dict()
    assert str(before) == str(after)


def test_a_policy_by_class_asks_for_labels():
    memory = Memory(ClassRing(2))
    with pytest.raises(EngramError, match="ClassRing keeps examples by class; give labels"):
        memory.add({"image": torch.zeros(2, 3)})
    memory.add({"image": torch.zeros(2, 3)}, labels=label(0, 1))
    assert len(memory) == 2


@pytest.mark.parametrize("option", ["max_examples", "max_bytes"])
@pytest.mark.parametrize("value", [0, -1, 1.5])
def test_a_budget_is_a_whole_number(option, value):
    with pytest.raises(EngramError, match=f"{option} is {value}"):
        Memory(Fifo(3), **{option: value})


def test_a_budget_below_one_example_is_refused():
    memory = Memory(Fifo(3), max_bytes=39)
    with pytest.raises(EngramError, match="max_bytes is 39, less than the 40 bytes of one example"):
        memory.add(torch.zeros(2, 10))
    memory.add(torch.zeros(2, 9))
    assert len(memory) == 1


def test_a_pool_beyond_all_machines_is_refused():
    memory = Memory(Reservoir(10**15))
    with pytest.raises(EngramError, match="cannot allocate 1,000,000,000,000,000 rows"):
        memory.add(torch.zeros(2, 1000))
    assert len(memory) == 0


@pytest.mark.skipif(torch.cuda.is_available(), reason="a machine without CUDA is needed")
def test_a_device_that_is_not_there_is_refused():
    memory = Memory(Reservoir(3), TensorStorage("cuda"))
    with pytest.raises(EngramError, match=r"cannot allocate 3 rows \(12 bytes\) on cuda"):
        memory.add(torch.zeros(2))
    assert len(memory) == 0


def test_other_nonsense_is_refused():
    memory = Memory(Reservoir(3), TensorStorage("cpu"))
    with pytest.raises(EngramError, match="slots"):
        memory.read([0])
    memory.add(torch.zeros(2))
    assert memory.sample(0).batch.shape == (0,)
    with pytest.raises(EngramError, match="policy is"):
        Memory(Reservoir)
    for count in (-1, 2.5, "x", None, True):
        with pytest.raises(EngramError, match=f"count is {count!r}; it must be a whole number"):
            memory.sample(count)
    for storage in (TensorStorage, 3):
        with pytest.raises(EngramError, match="storage is"):
            Memory(Reservoir(3), storage)
    with pytest.raises(EngramError, match="device is 'nonsense'"):
        TensorStorage("nonsense")
    with pytest.raises(EngramError, match="dense"):
        Memory(Reservoir(3)).add(torch.eye(3).to_sparse())
    with pytest.raises(EngramError, match="have no tasks"):
        memory.sample(1, by_task=True)
    with pytest.raises(EngramError, match="slots 0 to 1"):
        memory.read([0, 2])
    with pytest.raises(EngramError, match="seed is -1"):
        Memory(Reservoir(3), seed=-1)
    with pytest.raises(EngramError, match="give count"):
        Ledger(Reservoir(3)).add(None, None)
    with pytest.raises(EngramError, match="count is -2"):
        Ledger(Reservoir(3)).draw(-2, None)
