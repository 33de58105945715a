"""Rows on a device that nobody waits for are those of the host, bit for bit. It is a CPU here."""

from __future__ import annotations

import copy
import gc
import pickle

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils._python_dispatch import TorchDispatchMode

from engram.errors import EngramError
from engram.memory import ClassRing, Fifo, IndexStorage, Memory, Reservoir, TensorStorage
from unwaited import unwaited

LEAST = -(2**63)


def flag(value):
    return torch.tensor(value)


def numbered(start, count, dtype=torch.int64):
    numbers = torch.arange(start, start + count)
    return numbers.double().unsqueeze(-1).expand(-1, 2).clone(), (numbers % 3).to(dtype)


def listed(value):
    if isinstance(value, dict):
        return {name: listed(own) for name, own in value.items()}
    if isinstance(value, tuple | list):
        return [listed(own) for own in value]
    return (value.dtype, value.tolist()) if isinstance(value, torch.Tensor) else value


def everything(memory):
    state = listed({**memory.state_dict(), "erasures": None})
    return state, [*memory.examples()], memory.nbytes, memory.available


CHANGES = {
    "erase": lambda memory: memory.erase(where={"label": 1}) and memory,
    "smaller": lambda memory: memory.resize(3) or memory,
    "larger": lambda memory: memory.resize(9) or memory,
    "classes": lambda memory: memory.resize(ClassRing(2, include_current=True)) or memory,
    "others": lambda memory: memory.map(lambda batch: (batch[0] + 1, batch[1])) or memory,
    "copy": copy.deepcopy,
    "pickle": lambda memory: pickle.loads(pickle.dumps(memory)),
    "state": lambda memory: memory.load_state_dict(memory.state_dict()) or memory,
    "end": lambda memory: memory.end_task() or memory,
}
labels = st.none() | st.lists(st.integers(0, 2), min_size=5, max_size=5)
ids = st.none() | st.lists(st.integers(0, 9), min_size=5, max_size=5)
operations = st.lists(
    st.tuples(
        st.just("file"), st.integers(1, 5), labels, ids, st.sampled_from([None, True, True, False])
    )
    | st.sampled_from([("sample",), ("references",), ("classes",), ("last",), ("settle",)])
    | st.tuples(st.just("change"), st.sampled_from([*CHANGES])),
    max_size=15,
)


def told(memory, operations):
    """Return all that a memory tells while this is done to it, and at the end."""
    found, start, void = [], 0, False
    for name, *options in operations:
        if name == "file":
            count, labels, ids, valid = options
            batch, start = numbered(start, count), start + count
            named = {"labels": labels and labels[:count], "ids": ids and ids[:count], "tasks": 0}
            flag = None if valid is None else torch.tensor(valid)
            try:
                memory.file(memory.prepare(batch, **named), valid=flag)
            except EngramError as error:
                found.append(str(error))
            void = void or valid is False
        elif name == "sample":
            sample = memory.sample(3)
            # What is sampled after a batch that is not valid is worth nothing.
            found.append(None if void or sample is None else listed(sample))
        elif name == "references":
            found.append(listed(memory.references(3, with_tasks=True)))
        elif name == "classes":
            own = len(memory) and memory.sample(3, stratify="class")
            found.append(None if void or not own else listed(own))
        elif name == "last":
            found.append(
                {} if void else {task: listed(own) for task, own in memory.last(2).items()}
            )
        elif name == "settle":
            found.append(memory.settle())
            void = False
        else:
            try:
                memory = CHANGES[options[0]](memory)
            except EngramError as error:
                found.append(str(error))
            else:
                void = False
                found.append(everything(memory))
    return [*found, everything(memory), memory.settle()]


@settings(deadline=None, max_examples=60)
@given(operations)
@pytest.mark.parametrize("budget", [{}, {"max_bytes": 4 * 24}], ids=str)
@pytest.mark.parametrize("policy", [Reservoir(6), Fifo(6), ClassRing(2)], ids=repr)
def test_a_memory_on_a_device_tells_what_one_on_the_host_does(policy, budget, operations):
    here = told(Memory(policy, **budget), operations)
    with pytest.MonkeyPatch.context() as patch:
        unwaited(patch)
        there = told(Memory(policy, **budget), operations)
    assert str(here) == str(there)


class Watched(torch.Tensor):
    """A tensor that tells when the host reads it, or whatever is made of it."""

    reads = 0

    @classmethod
    def __torch_function__(cls, function, types, arguments=(), options=None):
        names = ("__bool__", "item", "tolist", "__int__", "__float__", "__index__", "numpy", "cpu")
        cls.reads += getattr(function, "__name__", "") in names
        return super().__torch_function__(function, types, arguments, options or {})


@pytest.fixture
def _unwaited(monkeypatch):
    unwaited(monkeypatch)
    monkeypatch.setattr(Watched, "reads", 0)


def watched(start, count):
    return tuple(each.as_subclass(Watched) for each in numbered(start, count))


@pytest.mark.usefixtures("_unwaited")
@pytest.mark.parametrize("labels", [None, 1])
def test_the_labels_of_a_batch_are_read_when_they_are_asked_for(labels):
    memory = Memory(Reservoir(30))
    memory.add(numbered(0, 10))
    for start in range(10, 60, 10):
        batch = watched(start, 10)
        given = None if labels is None else batch[labels]
        flag = torch.tensor(True).as_subclass(Watched)
        memory.file(memory.prepare(batch, labels=given), valid=flag)
        memory.references(5, with_tasks=True)
        sample = memory.sample(5)
        assert torch.equal(sample.labels, sample.batch[1])
        assert sample.labels.dtype == torch.int64
    assert Watched.reads == 0
    for example in memory.examples():
        assert example.label == example.id % 3
    assert Watched.reads > 0


@pytest.mark.usefixtures("_unwaited")
@pytest.mark.parametrize("dtype", [torch.uint8, torch.int16, torch.uint16, torch.uint64])
def test_labels_of_every_dtype(dtype):
    memory = Memory(Fifo(30))
    for start in (0, 10):
        memory.add(numbered(start, 10, dtype))
    assert [example.label for example in memory.examples()] == [id % 3 for id in range(20)]
    if dtype == torch.uint64:
        wrong = torch.tensor([2**63 + 5] * 10, dtype=torch.uint64)
        with pytest.raises(EngramError, match="labels must be integers of 64 bits"):
            memory.add((numbered(0, 10)[0], wrong))


@pytest.mark.usefixtures("_unwaited")
def test_a_label_that_no_column_holds_is_the_next_one():
    memory = Memory(Fifo(30))
    memory.add(numbered(0, 2))
    memory.add((torch.zeros(2, 2).double(), torch.tensor([LEAST, 5])))
    assert [example.label for example in memory.examples()] == [0, 1, LEAST + 1, 5]


@pytest.mark.usefixtures("_unwaited")
def test_any_number_may_be_given_as_a_label_beside_those_of_a_device():
    """Whatever number stands for a label that is not read yet."""
    from engram.memory.examples import UNREAD

    memory, strange = Memory(Fifo(30)), [UNREAD, 7]
    memory.add(numbered(0, 2))
    for start in (2, 6):
        memory.add(numbered(start, 2))
        memory.add(numbered(start + 2, 2), labels=strange)
    held = [example.label for example in memory.examples()]
    assert held == [0, 1, 2, 0, *strange, 0, 1, *strange]


@pytest.mark.usefixtures("_unwaited")
def test_labels_of_data_that_is_on_the_device():
    data = torch.arange(20.0), (torch.arange(20) % 4).as_subclass(Watched)
    memory = Memory(Fifo(9), IndexStorage(data))
    memory.add(torch.tensor([3, 4]))
    Watched.reads = 0
    memory.add(torch.tensor([11, 5]))
    sample = memory.sample(4)
    assert Watched.reads == 0
    assert torch.equal(sample.labels, sample.batch[1])
    assert [example.label for example in memory.examples()] == [3, 0, 3, 1]


@pytest.mark.usefixtures("_unwaited")
def test_batches_of_several_sources_follow_one_another():
    """A flag of one source says nothing of what was filed by another's."""
    memory, one, other = Memory(Fifo(30)), object(), object()
    memory.add(numbered(0, 2))
    for start, source, valid in [(2, one, True), (4, other, False), (6, one, True), (8, one, True)]:
        prepared = memory.prepare(numbered(start, 2))
        memory.file(prepared, valid=torch.tensor(valid), source=source)
    assert memory.settle() == 3
    assert memory.read(range(4)).batch[0][:, 0].tolist() == [0, 1, 2, 3]
    inputs, classes = numbered(4, 2)
    bad = memory.prepare((inputs / 0, classes))  # of which the source knows nothing
    memory.file(bad, valid=torch.tensor(True), source=one)
    checked = memory.prepare((inputs, classes))._replace(magnitude=None)
    memory.file(checked, valid=torch.tensor(True), source=one)
    assert memory.settle() == 2
    memory.file(memory.prepare(numbered(4, 2)), valid=torch.tensor(True), source=one)
    assert memory.settle() == 0


@pytest.mark.usefixtures("_unwaited")
def test_a_column_for_what_is_not_to_be_kept_counts_nowhere(tmp_path):
    memory = Memory(Reservoir(5), max_bytes=5 * 24)
    for start in range(0, 50, 10):
        memory.file(memory.prepare(numbered(start, 10)), valid=torch.tensor(start < 30))
    assert memory.settle() == 2
    assert memory.nbytes == 5 * 24
    memory.save(tmp_path / "memory")
    assert everything(Memory.load(tmp_path / "memory")) == everything(memory)


class Calls(TorchDispatchMode):
    """The operations on tensors, but for views."""

    def __init__(self):
        super().__init__()
        self.names = []

    def __torch_dispatch__(self, function, types, arguments=(), options=None):
        if not function.is_view:
            self.names.append(function.overloadpacket.__name__)
        return function(*arguments, **(options or {}))


@pytest.mark.usefixtures("_unwaited")
@pytest.mark.parametrize("kind", ["itself", "copy", "pickle", "state"])
def test_a_batch_is_filed_by_one_operation_for_a_column_and_one_for_the_flag(kind):
    memory, source = Memory(Reservoir(20)), object()
    memory.add(numbered(0, 20))
    memory = memory if kind == "itself" else CHANGES[kind](memory)
    for start in range(20, 60, 10):
        prepared, valid = memory.prepare(numbered(start, 10))._replace(magnitude=None), flag(True)
        with Calls() as calls:
            memory.file(prepared, valid=valid, source=source)
        assert sorted(calls.names) == ["index_copy_", "index_copy_", "where"]
    assert memory.settle() == 0


@pytest.mark.usefixtures("_unwaited")
def test_a_batch_that_was_prepared_for_another_policy_is_filed_by_its_classes():
    memory = Memory(Reservoir(20))
    memory.add(numbered(0, 6))
    prepared = memory.prepare(numbered(6, 6))
    memory.resize(ClassRing(1, include_current=True))
    memory.file(prepared)
    assert sorted(each.label for each in memory.examples()) == [0, 1, 2]


@pytest.mark.usefixtures("_unwaited")
def test_a_row_that_counts_nowhere_is_none_to_give_up(monkeypatch):
    memory, commit = Memory(Reservoir(5)), TensorStorage.commit
    memory.add(numbered(0, 5))
    left = [True]

    def fail(storage, staged):
        if left.pop() if left else False:
            raise RuntimeError("the device failed")
        commit(storage, staged)

    monkeypatch.setattr(TensorStorage, "commit", fail)
    prepared = memory.prepare(numbered(5, 10))
    left += [True]
    with pytest.raises(RuntimeError, match="the device failed"):
        memory.file(prepared, valid=flag(True))
    held = {example.id for example in memory.examples()}
    assert held <= {*range(5)}
    memory.add(numbered(15, 5), ids=range(15, 20))
    found = memory.sample(5)
    assert found.batch[0][:, 0].tolist() == found.ids


@pytest.mark.usefixtures("_unwaited")
@pytest.mark.parametrize("valid", [True, False])
def test_no_row_holds_what_was_not_kept_once_something_is_erased(valid):
    """Of an example that is not held as well: it may have been offered."""
    memory = Memory(Fifo(3))
    memory.add(numbered(0, 3))
    memory.file(memory.prepare((numbered(0, 5)[0] + 7654, torch.arange(5))), valid=flag(valid))
    memory.erase(ids=range(3, 8))
    gc.collect()
    tensors = [each for each in gc.get_objects() if type(each) is torch.Tensor]
    plain = [each for each in tensors if each.layout is torch.strided and each.is_cpu]
    rows = [each for each in plain if each.dtype == torch.float64 and not each.is_nested]
    assert not any((each == 7654 + place).any() for each in rows for place in range(5))


@pytest.mark.usefixtures("_unwaited")
def test_draws_that_were_made_ahead_are_sent_together_and_are_those_of_the_host(monkeypatch):
    memory, twin, sent = Memory(Fifo(50)), Memory(Fifo(50)), []
    for own in (memory, twin):
        own.add(numbered(0, 50))
    place = TensorStorage.place
    monkeypatch.setattr(
        TensorStorage, "place", lambda own, slots: sent.append(len(slots)) or place(own, slots)
    )
    found = [memory.references(8, with_tasks=False)[0] for _ in range(200)]
    assert len(sent) < 20
    memory = pickle.loads(pickle.dumps(memory))
    found += [memory.references(8, with_tasks=False)[0] for _ in range(50)]
    memory.file(memory.prepare(numbered(50, 10)), valid=flag(False))
    memory.references(8, with_tasks=False)
    memory.settle()
    found += [memory.references(8, with_tasks=False)[0] for _ in range(50)]
    for one in found:
        assert one[0][:, 0].tolist() == sorted(twin.sample(8).ids)
