"""A memory holds examples of any dtype, bit for bit, or refuses them before anything changes."""

from __future__ import annotations

import copy
import io
import pickle

import pytest
import torch

from engram.errors import EngramError
from engram.memory import ClassRing, Fifo, IndexStorage, Memory, Reservoir

pytestmark = pytest.mark.filterwarnings("ignore:ComplexHalf support is experimental")

NAMES = [
    *("bool", "uint8", "int8", "int16", "int32", "int64", "uint16", "uint32", "uint64"),
    *("float16", "bfloat16", "float32", "float64", "complex32", "complex64", "complex128"),
    *("float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz", "float8_e8m0fnu"),
    "float4_e2m1fn_x2",
]
HELD = [getattr(torch, name) for name in NAMES if hasattr(torch, name)]  # an older torch has fewer
NOT_HELD = [
    getattr(torch, name)
    for name in ("int4", "uint1", "bits8", "bits16", "bits4x2")
    if hasattr(torch, name)
]


def values(dtype, count, start=0):
    """Examples [2] of a dtype, all of them different and none with a sign or an exponent alone."""
    numbers = torch.arange(start, start + count, dtype=torch.uint8) + 1
    rows = torch.stack([numbers, numbers ^ 0x55], dim=1)
    if dtype in (torch.bool, torch.float16, torch.float32, torch.float64, torch.complex64):
        return rows.to(dtype) if dtype != torch.bool else rows % 3 == 0
    wide = (
        rows.repeat_interleave(dtype.itemsize, dim=1) & 0x3B
    )  # in no dtype infinite, or no number
    return wide.view(dtype)


def bits(tensor):
    return tensor.contiguous().reshape(-1).view(torch.uint8).tolist(), tensor.shape, tensor.dtype


def by_state(memory, _):
    torch.save(memory.state_dict(), buffer := io.BytesIO())
    buffer.seek(0)
    other = Memory(memory.policy)
    other.load_state_dict(torch.load(buffer, weights_only=True))
    return other


def by_file(memory, folder):
    memory.save(folder / "memory")
    return Memory.load(folder / "memory")


WAYS = {
    "file": by_file,
    "state": by_state,
    "copy": lambda memory, _: copy.deepcopy(memory),
    "pickle": lambda memory, _: pickle.loads(pickle.dumps(memory)),
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("dtype", HELD, ids=str)
def test_what_is_added_comes_back_bit_for_bit_however_the_memory_went(dtype, way, tmp_path):
    memory = Memory(ClassRing(4, include_current=True))  # whose rows grow
    whole = values(dtype, 30)
    for start in range(0, 30, 5):
        memory.add({"x": whole[start : start + 5]}, labels=[label % 2 for label in range(5)])
    memory.erase(ids=[25, 28])
    memory = WAYS[way](memory, tmp_path)
    memory.add({"x": whole[:2]}, labels=[1, 1], ids=["a", "b"])
    held = memory.read(range(len(memory)))
    places = [{"a": 0, "b": 1}.get(id, id) for id in held.ids]
    assert len(places) == 7
    assert bits(held.batch["x"]) == bits(torch.stack([whole[place] for place in places]))
    sample = memory.sample(3).batch["x"]
    assert (sample.dtype, sample.shape) == (dtype, (3, 2))


@pytest.mark.parametrize("dtype", HELD, ids=str)
def test_rows_of_data_of_any_dtype_are_found_by_their_index(dtype):
    data = values(dtype, 20)
    memory = Memory(Fifo(9), IndexStorage((data, torch.arange(20))))
    memory.add(torch.tensor([3, 7, 11]))
    assert bits(memory.read([2, 0]).batch[0]) == bits(torch.stack([data[11], data[3]]))


@pytest.mark.parametrize("dtype", [torch.uint16, torch.uint32, torch.uint64], ids=str)
def test_labels_and_indices_may_be_unsigned(dtype):
    labels = torch.tensor([2, 0, 1]).to(dtype)
    memory = Memory(ClassRing(2, include_current=True))
    memory.add((torch.zeros(3), labels))
    assert memory.sample(9).labels.tolist() == [2, 0, 1]
    memory = Memory(ClassRing(2, include_current=True), IndexStorage((torch.zeros(3), labels)))
    memory.add(torch.tensor([2, 0]).to(dtype))
    assert memory.sample(9).labels.tolist() == [1, 2]


def test_a_conjugate_is_held_as_its_values():
    for dtype in (torch.complex32, torch.complex64, torch.complex128):
        numbers = torch.tensor([1 + 2j, 3 - 4j]).to(dtype)
        memory = Memory(Fifo(3))
        memory.add(numbers.conj())
        assert memory.sample(2).batch.to(torch.complex64).tolist() == [1 - 2j, 3 + 4j]


def assert_refused_and_empty(batch, words, tmp_path):
    memory = Memory(Fifo(100))
    with pytest.raises(EngramError, match=words) as caught:
        memory.add((torch.ones(8, 3), batch))
    assert str(caught.value).count(". ") == 0
    assert (len(memory), memory.nbytes) == (0, 0)
    assert memory.sample(3) is None
    memory.save(tmp_path / "memory")
    memory.add(torch.zeros(8, 3))  # nothing of the batch has fixed the structure
    assert len(memory) == 8


@pytest.mark.parametrize("dtype", NOT_HELD, ids=str)
def test_other_dtypes_are_refused_by_name(dtype, tmp_path):
    batch = torch.zeros(8, 4, dtype=torch.uint8).view(dtype)
    assert_refused_and_empty(batch, str(dtype), tmp_path)
    with pytest.raises(EngramError, match=str(dtype)):
        IndexStorage((batch,))


@pytest.mark.filterwarnings("ignore")  # torch's, of what is a prototype or deprecated
def test_quantised_and_nested_tensors_are_refused(tmp_path):
    quantised = torch.quantize_per_tensor(torch.ones(8, 4), 0.1, 0, torch.qint8)
    channels = torch.quantize_per_channel(
        torch.ones(8, 4), torch.ones(4), torch.zeros(4), 1, torch.quint8
    )
    parts = [torch.ones(1 + place % 2) for place in range(8)]
    cases = {
        "quantised": [quantised, channels],
        "nested": [torch.nested.nested_tensor(parts, layout=layout) for layout in LAYOUTS],
    }
    for word, batches in cases.items():
        for batch in batches:
            assert_refused_and_empty(batch, word, tmp_path)
            with pytest.raises(EngramError, match=word):
                IndexStorage((batch,))
            memory = Memory(Fifo(9))
            memory.add((torch.ones(8, 3), torch.ones(8, 4)))
            with pytest.raises(EngramError, match=word):
                memory.add((torch.ones(8, 3), batch))


LAYOUTS = [torch.strided, torch.jagged]


def test_a_tensor_that_is_a_wrapper_around_others_is_refused(tmp_path):
    from torch._subclasses import FakeTensorMode

    with FakeTensorMode():
        fake = torch.ones(8, 4)
    assert_refused_and_empty(fake, "FakeTensor", tmp_path)
    memory = Memory(Fifo(9))
    memory.add(torch.ones(8, 4))
    with pytest.raises(EngramError, match="FakeTensor"):
        memory.add(fake)
    memory.add(torch.nn.Parameter(torch.ones(8, 4)))
    assert len(memory) == 9


class Unwritable(torch.Tensor):
    """Tensors of a kind of the user's own, that cannot be written somewhere a few times."""

    left = 0  # how often it will not be

    @classmethod
    def __torch_function__(cls, function, types, arguments=(), options=None):
        if function is torch.Tensor.index_copy_ and cls.left:
            cls.left -= 1
            raise NotImplementedError("index_copy_")
        return super().__torch_function__(function, types, arguments, options or {})


def numbered(start, count):
    """A batch of which every row says which example it is of, in two tensors."""
    numbers = torch.arange(start, start + count)
    return numbers, numbers.double().unsqueeze(-1).expand(-1, 3).clone()


def assert_rows_of_their_ids(memory):
    for sample in (memory.read(range(len(memory))), memory.sample(5)):
        assert sample.batch[0].tolist() == sample.ids
        assert sample.batch[1].tolist() == [[id] * 3 for id in sample.ids]


@pytest.mark.parametrize("failures", [1, 2, 99])
@pytest.mark.parametrize("policy", [Fifo(9), Reservoir(9), ClassRing(5, include_current=True)])
def test_rows_that_cannot_be_written_leave_no_example_with_others_rows(
    policy, failures, tmp_path, monkeypatch
):
    memory = Memory(policy)
    for start in (0, 6):
        memory.add(numbered(start, 6), labels=[0, 0, 1, 1, 2, 2])
    before = [example.id for example in memory.examples()]
    first, second = numbered(12, 6)
    monkeypatch.setattr(Unwritable, "left", failures)
    with pytest.raises(NotImplementedError):  # when the first tensor's rows are written already
        memory.add((first, second.as_subclass(Unwritable)), labels=[0, 0, 1, 1, 2, 2])
    monkeypatch.setattr(Unwritable, "left", 0)
    ids = [example.id for example in memory.examples()]
    if failures == 1:  # the second try was made, so all of it was
        assert set(ids) & set(range(12, 18))
    elif policy.by_class:  # the rows had been copied to where there is room for more
        assert ids == before
    else:  # who was to be overwritten is given up
        assert 0 < len(set(ids)) < len(before)
        assert set(ids) < set(before)
    assert len(memory) == len(set(ids)) == len(ids)
    assert_rows_of_their_ids(memory)
    spare = memory.storage.state_dict(memory.storage.rows)["rows"]
    assert not any(rows[len(memory) :].any() for rows in spare.values())
    memory.save(tmp_path / "memory")
    for own in (memory, Memory.load(tmp_path / "memory")):
        own.add(numbered(18, 6), labels=[0, 0, 1, 1, 2, 2], ids=range(18, 24))
        assert_rows_of_their_ids(own)


@pytest.mark.parametrize("valid", [True, False])
def test_rows_that_cannot_be_written_are_given_up_behind_unsettled_batches(valid, monkeypatch):
    memory, twin = Memory(Fifo(9)), Memory(Fifo(9))
    for own in (memory, twin):
        own.add(numbered(0, 6))
    before, flags = memory.prepare(numbered(6, 6)), [torch.tensor(valid), torch.tensor(True)]
    memory.file(before, valid=flags[0])
    first, second = numbered(12, 2)
    batch = memory.prepare((first, second.as_subclass(Unwritable)))
    monkeypatch.setattr(Unwritable, "left", 99)
    with pytest.raises(NotImplementedError):
        memory.file(batch, valid=flags[1])
    monkeypatch.setattr(Unwritable, "left", 0)
    if valid:
        twin.file(twin.prepare(numbered(6, 6)))
    assert memory.settle() == (not valid)
    ids, others = ({example.id for example in own.examples()} for own in (memory, twin))
    assert ids < others
    assert len(others) - len(ids) == 2
    assert_rows_of_their_ids(memory)
    memory.add(numbered(14, 2), ids=[14, 15])
    assert_rows_of_their_ids(memory)


def test_the_first_batch_whose_rows_cannot_be_written_leaves_the_memory_new(monkeypatch):
    memory = Memory(Fifo(100))
    monkeypatch.setattr(Unwritable, "left", 99)
    with pytest.raises(NotImplementedError):
        memory.add((torch.ones(8, 3), torch.ones(8, 4).as_subclass(Unwritable)))
    assert (len(memory), memory.nbytes, memory.sample(3)) == (0, 0, None)
    memory.add(torch.zeros(8, 7))
    assert len(memory) == 8


def test_rows_that_nobody_has_written_hold_zeros():
    torch.full((1000, 1000), 7.0)  # what lies about when it is freed
    memory = Memory(Fifo(1000))
    memory.add(torch.ones(1, 1000))
    assert memory.storage.state_dict(1000)["rows"]["0"].sum() == 1000
