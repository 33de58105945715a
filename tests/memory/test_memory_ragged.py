"""Columns whose examples differ in length: kept as they are, put together when sampled."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from engram import Learner
from engram.errors import EngramError
from engram.memory import (
    ClassRing,
    ClassSample,
    Fifo,
    Memory,
    Ragged,
    RaggedStorage,
    Reservoir,
    TensorStorage,
)
from engram.rules import Equal


def text(number):
    """Between 0 and 6 tokens, which tell whose they are."""
    return torch.full((number % 7,), number)


def texts(numbers):
    return Ragged([text(number) for number in numbers])


def batch(start, count):
    numbers = range(start, start + count)
    return {
        "tokens": texts(numbers),
        "parts": (
            torch.tensor([*numbers]).double(),
            [Ragged([torch.ones(n % 3, 2) for n in numbers])],
        ),
        "label": torch.tensor([n % 3 for n in numbers]),
    }


def test_a_single_number_of_another_tensor_s_is_kept():
    """A row of a column that is strided: torch takes it for contiguous, whatever its stride."""
    memory = Memory(Fifo(3))
    classes = torch.tensor([[4, 5]])
    memory.add((Ragged([torch.ones(3)]), classes[:, 1], classes[:, 0].half()))
    _, one, other = memory.sample(1).batch
    assert (one.tolist(), other.tolist()) == ([5], [4])


@pytest.mark.parametrize(
    ("dtype", "value", "fits"),
    [
        (torch.int64, -1, True),
        (torch.int64, 0.5, False),
        (torch.uint8, -1, False),
        (torch.bool, 2, False),
        (torch.float32, float("nan"), True),
        (torch.float32, 2**64, True),
        (torch.float16, 1e5, False),
        pytest.param(torch.float32, 10**400, False, id="huge"),
        (torch.float32, "0", False),
    ],
)
def test_what_is_padded_with_is_a_number_that_the_column_can_hold(dtype, value, fits):
    column = Ragged([torch.ones(2).to(dtype), torch.ones(1).to(dtype)])
    if fits:
        wanted = torch.tensor(float(value)).to(dtype)
        assert torch.equal(column.padded(value)[1, 1].isnan(), wanted.isnan())
        assert wanted.isnan() or column.padded(value)[1, 1] == wanted
    else:
        with pytest.raises(EngramError, match=r"value is .*; give a number that torch"):
            column.padded(value)


def add(memory, start, count, **options):
    own = batch(start, count)
    memory.add(own, labels=own["label"], tasks=0, ids=range(start, start + count), **options)


def check(sample):
    """Every example is whole, and its own."""
    tokens, (numbers, [series]), labels = (
        sample.batch[name] for name in ("tokens", "parts", "label")
    )
    assert [type(each) for each in (tokens, series)] == [Ragged, Ragged]
    for place, id in enumerate(sample.ids):
        assert torch.equal(tokens[place], text(id))
        assert (numbers[place].item(), labels[place].item()) == (id, id % 3)
        assert torch.equal(series[place], torch.ones(id % 3, 2))


def nbytes(id):
    return 8 * (id % 7) + 8 + 8 * (id % 3) + 8


POLICIES = [
    Fifo(5),
    Reservoir(5),
    ClassRing(2, include_current=True),
    ClassSample(2, include_current=True),
]


@pytest.mark.parametrize("budget", [{}, {"max_examples": 4}, {"max_bytes": 200}], ids=str)
@pytest.mark.parametrize("policy", POLICIES, ids=repr)
def test_examples_of_any_length_come_back_whole_and_take_what_they_are(policy, budget):
    memory = Memory(policy, seed=3, **budget)
    assert isinstance(memory.storage, TensorStorage)
    for start in range(0, 60, 4):
        add(memory, start, 4)
        if start % 12 == 0:
            memory.erase(ids=[start + 1, start - 2])
        check(memory.sample(3))
        held = [example.id for example in memory.examples()]
        check(memory.read(range(len(memory))))
        assert memory.nbytes == sum(map(nbytes, held)) <= budget.get("max_bytes", 10**6)
        assert len(memory) <= budget.get("max_examples", 6)
    assert isinstance(memory.storage, RaggedStorage)


def test_a_budget_in_bytes_lets_the_oldest_go_until_the_newest_fits():
    memory = Memory(Fifo(99), max_bytes=100)
    sizes = [30, 40, 20, 60, 100, 1, 2]
    expected = [[0], [0, 1], [0, 1, 2], [2, 3], [4], [5], [5, 6]]
    for place, (size, held) in enumerate(zip(sizes, expected, strict=True)):
        memory.add(Ragged([torch.zeros(size, dtype=torch.uint8)]), ids=[place])
        assert sorted(example.id for example in memory.examples()) == held


def test_an_example_that_comes_back_larger_makes_room_for_itself():
    memory = Memory(Fifo(99), max_bytes=400)
    for ids in ([0], [1, 2, 32, 0]):
        tokens = Ragged([torch.full((id + len(ids),), id) for id in ids])
        memory.add(tokens, labels=[0] * len(ids), ids=ids)
    assert memory.nbytes == memory.read(range(len(memory))).batch.values.nbytes <= 400


def test_an_example_larger_than_the_budget_is_refused():
    memory = Memory(Reservoir(9), max_bytes=100)
    memory.add(texts([1, 2]))
    with pytest.raises(EngramError, match="max_bytes is 100, less than the 808 bytes"):
        memory.add(Ragged([torch.zeros(101).long()]))
    assert len(memory) == 2


@settings(deadline=None, max_examples=30)
@given(st.lists(st.lists(st.integers(0, 40), max_size=4), max_size=12), st.integers(400, 900))
@pytest.mark.parametrize(
    "policy", [Fifo(99), Reservoir(9), ClassRing(3, include_current=True)], ids=repr
)
def test_a_budget_in_bytes_is_never_exceeded_and_updates_count(policy, batches, most):
    memory = Memory(policy, max_bytes=most, seed=1)
    for ids in batches:
        if ids:
            tokens = Ragged([torch.full((id + len(ids),), id) for id in ids])
            memory.add(tokens, labels=[id % 2 for id in ids], ids=ids)
            found = memory.read(range(len(memory)))
            assert 0 < memory.nbytes == found.batch.values.nbytes <= most
            for id, tokens in zip(found.ids, found.batch, strict=True):
                assert (tokens == id).all()


def pad(examples):
    tokens, labels = zip(*examples, strict=True)
    return Ragged(tokens).padded(-1), torch.stack(labels)


def test_the_users_function_puts_a_sample_together():
    memory = Memory(Fifo(9), collate=pad)
    memory.add((Ragged([torch.tensor([1, 2, 3]), torch.tensor([4])]), torch.tensor([0, 1])))
    sample = memory.sample(9)
    assert sample.batch[0].tolist() == [[1, 2, 3], [4, -1, -1]]
    assert sample.batch[1].tolist() == [0, 1]
    other = memory.sample(9, collate=len)
    assert other.batch == 2
    assert memory.read([1]).batch[0][0].tolist() == [4]


def test_a_plain_memory_may_have_such_a_function_too():
    memory = Memory(Fifo(9), collate=lambda examples: [each["x"].sum().item() for each in examples])
    memory.add({"x": torch.ones(2, 3), "y": torch.zeros(2)})
    assert memory.sample(2).batch == [3, 3]
    with pytest.raises(EngramError, match="collate is 3"):
        Memory(Fifo(9), collate=3)


def test_a_learner_trains_on_what_is_put_together():
    shapes = []

    def loss(model, own, _):
        shapes.append(own[0].shape)
        return model(own[0].clamp(min=0).float().sum(1, keepdim=True)).square().mean()

    model = torch.nn.Linear(1, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    learner = Learner(model, optimizer, Equal(), Memory(Reservoir(9), collate=pad), loss=loss)
    for start in (3, 9):
        learner.observe(texts(range(start, start + 3)), torch.arange(3))
    assert shapes == [(3, 5), (3, 5), (3, 4)]  # 3 to 5 tokens; those of the memory; 2 to 4
    assert len(learner.memory) == 6


def step(memory, start):
    add(memory, start, 3)
    sample = memory.sample(2)
    return sample.ids, sample.batch["tokens"].values.tolist()


def by_file(memory, folder):
    memory.save(folder / "memory")
    return Memory.load(folder / "memory")


def by_state(memory, _):
    other = Memory(memory.policy)
    other.load_state_dict(memory.state_dict())
    return other


WAYS = {
    "file": by_file,
    "state": by_state,
    "copy": lambda memory, _: copy.deepcopy(memory),
    "shallow copy": lambda memory, _: copy.copy(memory),
    "pickle": lambda memory, _: pickle.loads(pickle.dumps(memory)),
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("budget", [{}, {"max_bytes": 150}], ids=str)
def test_it_goes_on_bit_for_bit(way, budget, tmp_path):
    memory = Memory(Reservoir(6), seed=2, **budget)
    for start in range(0, 12, 3):
        step(memory, start)
    memory.erase(ids=[1, 4], reason="withdrawn")
    other = WAYS[way](memory, tmp_path)
    assert other.nbytes == memory.nbytes
    for start in range(12, 40, 3):
        assert step(other, start) == step(memory, start)
    check(other.read(range(len(other))))


@pytest.mark.parametrize("dtype", [torch.uint16, torch.float8_e4m3fn, torch.complex64, torch.bool])
def test_dtypes_are_kept(dtype, tmp_path):
    memory = Memory(Fifo(9))
    values = torch.tensor([1, 0, 1]).to(dtype)
    memory.add(Ragged([values, values[:1]]))
    for own in (memory, by_file(memory, tmp_path)):
        found = own.sample(2).batch[0]
        assert found.dtype == dtype
        assert torch.equal(found.to(torch.complex128), values.to(torch.complex128))


def test_an_erased_text_is_overwritten_where_it_was():
    memory = Memory(Fifo(9))
    memory.add(Ragged([torch.tensor([7, 8]), torch.tensor([9])]), ids=["a", "b"])
    buffer = memory.storage._rows[0].buffers[0]
    memory.erase(ids=["a"])
    assert bytes(buffer) == bytes(16)
    assert memory.nbytes == 8


def test_values_that_are_not_finite_are_refused_by_their_example():
    memory = Memory(Fifo(9))
    with pytest.raises(EngramError, match="Example 1 of the batch"):
        memory.add(Ragged([torch.zeros(5), torch.tensor([0, torch.nan])]))
    memory.add(torch.zeros(2, 3))  # nothing of it is left, not even the kind of storage
    assert isinstance(memory.storage, TensorStorage)


def test_a_tensor_counts_as_examples_of_one_length():
    memory = Memory(Fifo(9))
    memory.add(texts([3, 4]))
    memory.add(torch.tensor([[5, 5], [6, 6]]))
    assert [each.tolist() for each in memory.read(range(4)).batch] == [
        [3] * 3,
        [4] * 4,
        [5] * 2,
        [6] * 2,
    ]


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (lambda: Ragged([torch.tensor(1.0)]), "at least one dimension"),
        (lambda: Ragged([torch.zeros(2), torch.zeros(2, 1)]), "first dimension alone"),
        (lambda: Ragged([torch.zeros(2), torch.zeros(2).int()]), "first dimension alone"),
        (lambda: Ragged(3), "list of tensors"),
        (lambda: Ragged(np.array(2)), "list of tensors"),
        (lambda: Ragged([3]), "one of these is 3"),
        (lambda: Ragged([torch.eye(2).to_sparse()]), "dense"),
        (lambda: Ragged.packed(torch.eye(2).to_sparse(), [1, 1]), "dense"),
        (lambda: Ragged.from_padded(torch.eye(2).to_sparse(), [1, 2]), "dense"),
        (lambda: Ragged.packed(torch.zeros(3), [1, 1]), "add up"),
        (lambda: Ragged.packed(torch.zeros(3), [4, -1]), "lengths is"),
        (lambda: Ragged.from_padded(torch.zeros(2, 3), [1, 4]), "padded to 3"),
        (lambda: Ragged.from_padded(torch.zeros(2), [1, 2]), "Give a padded tensor"),
        (lambda: Memory(Fifo(2), TensorStorage()).add(texts([1])), "use a RaggedStorage"),
        (lambda: Memory(Fifo(2)).add((texts([1, 2]), torch.zeros(3))), "their lengths are 2, 3"),
    ],
)
def test_what_is_no_column_of_lengths_is_refused(given, words):
    with pytest.raises(EngramError, match=words):
        given()


def test_columns_of_another_kind_than_the_first_are_refused():
    memory = Memory(Fifo(9))
    memory.add((texts([1, 2]), torch.zeros(2)))
    for wrong in (
        (Ragged([torch.zeros(2)]), torch.zeros(1)),
        (Ragged([torch.zeros(2, 2).long()]), torch.zeros(1)),
        (texts([1]), texts([1])),
        (texts([1]), torch.zeros(1, 2)),
    ):
        with pytest.raises(EngramError):
            memory.add(wrong)
    assert len(memory) == 2


def test_a_batch_filed_by_a_flag_is_there_or_not():
    memory = Memory(Fifo(9))
    for start, valid in [(1, True), (3, False), (5, True)]:
        memory.file(memory.prepare(texts([start, start + 1])), valid=torch.tensor(valid))
    assert memory.settle() == 2
    assert [each.tolist() for each in memory.sample(9).batch] == [[1], [2, 2]]
