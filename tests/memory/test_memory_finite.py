"""Values that are not finite do not enter, whether the host knows of them or a device alone."""

from __future__ import annotations

import math
import re
import warnings

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from engram.errors import EngramError
from engram.memory import (
    ClassRing,
    ClassSample,
    Fifo,
    IndexStorage,
    Memory,
    Reservoir,
    TensorStorage,
)
from unwaited import unwaited

pytestmark = pytest.mark.filterwarnings("ignore:ComplexHalf support is experimental")
DEVICES = ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]
FLOATS = [torch.float16, torch.bfloat16, torch.float32, torch.float64]
COMPLEX = [torch.complex32, torch.complex64, torch.complex128]
EIGHT = [  # the bits of one, and of values that are not finite
    (torch.float8_e4m3fn, 0x38, [0x7F, 0xFF]),
    (torch.float8_e5m2, 0x3C, [0x7C, 0xFC, 0x7E]),
    (torch.float8_e4m3fnuz, 0x40, [0x80]),
    (torch.float8_e5m2fnuz, 0x40, [0x80]),
]
NOT_FINITE = [math.nan, math.inf, -math.inf]


def cases():
    """Yield finite tensors [6, 2], and the same ones with one value that is not, in example 4."""
    for dtype in FLOATS + COMPLEX:
        whole = torch.ones(6, 2, dtype=dtype)
        parts = ["real", "imag"] if dtype.is_complex else [""]
        for value in NOT_FINITE:
            for part in parts:
                broken = whole.clone()
                (getattr(broken, part) if part else broken)[4, 1] = value
                yield f"{dtype} {part} {value}", whole, broken
    for dtype, one, others in EIGHT:
        whole = torch.full((6, 2), one, dtype=torch.uint8)
        for bits in others:
            broken = whole.clone()
            broken[4, 1] = bits
            yield f"{dtype} {bits:x}", whole.view(dtype), broken.view(dtype)


with warnings.catch_warnings(action="ignore"):
    CASES = {name: tensors for name, *tensors in cases()}


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", CASES)
def test_what_is_not_finite_is_refused_and_changes_nothing(name, device):
    whole, broken = (tensor.to(device) for tensor in CASES[name])
    for first in (None, (whole,), (whole, whole), {"a": [whole, (whole,)]}):
        memory = Memory(Fifo(9))
        if first is not None:
            memory.add(first)
        before = len(memory), memory.nbytes, [*memory.examples()]
        for batch in ((broken,), (whole, broken), {"a": [whole, (broken,)]}):
            if first is not None and (type(batch), len(batch)) != (type(first), len(first)):
                continue
            with pytest.raises(EngramError, match=r"^Example 4 of the batch.*is not finite"):
                memory.add(batch)
        assert (len(memory), memory.nbytes, [*memory.examples()]) == before
    allowing = Memory(Fifo(9), allow_nonfinite=True)
    allowing.add(broken)
    assert torch.equal(bits(allowing.read(range(6)).batch), bits(broken))


def bits(tensor):
    return tensor.cpu().contiguous().view(torch.uint8)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", FLOATS + COMPLEX, ids=str)
def test_finite_values_may_be_so_large_that_their_sum_is_not(dtype, device):
    most = torch.finfo(dtype).max
    numbers = torch.tensor([[most, -most, most, most]] * 3, dtype=dtype, device=device)
    if dtype.is_complex:
        numbers = torch.view_as_complex(torch.view_as_real(numbers).fill_(most))
    memory = Memory(Fifo(9))
    memory.add((numbers, -numbers))
    assert len(memory) == 3


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", CASES)
def test_a_device_tells_the_same_without_being_waited_for(name, device, monkeypatch):
    unwaited(monkeypatch)
    whole, broken = (tensor.to(device) for tensor in CASES[name])
    for tensor, expected in [(whole, True), (broken, False), (broken[:4], True)]:
        flag = Memory(Fifo(9)).prepare(tensor).finite
        assert (flag.device, flag.dtype, flag.shape) == (tensor.device, torch.bool, ())
        assert flag.item() is expected


def test_what_can_only_be_finite_has_no_flag(monkeypatch):
    with monkeypatch.context() as patch:
        unwaited(patch)
        for tensor in (torch.arange(3), torch.zeros(0, 3), torch.zeros(3, dtype=torch.bool)):
            assert Memory(Fifo(9)).prepare(tensor).finite is None
    memory = Memory(Fifo(9))
    assert memory.prepare((torch.ones(2), torch.arange(2))).finite is None  # it was checked here
    assert Memory(Fifo(9), allow_nonfinite=True).prepare(torch.full((2,), math.nan)).finite is None


def test_values_with_a_gradient_and_rows_of_no_values():
    memory = Memory(Fifo(9))
    memory.add((torch.ones(3, 2, requires_grad=True), torch.zeros(3, 0)))
    with pytest.raises(EngramError, match="Example 0"):
        memory.add((torch.full((3, 2), math.nan, requires_grad=True), torch.zeros(3, 0)))
    assert len(memory) == 3


def test_rows_of_data_are_looked_at_when_their_index_is_added():
    image = torch.ones(20, 3)
    image[7, 1] = math.nan
    sparse = image.to_sparse()
    for data in ((image, torch.arange(20)), (sparse, torch.arange(20))):
        memory = Memory(Fifo(9), IndexStorage(data))
        memory.add(torch.tensor([6, 8]))
        with pytest.raises(EngramError, match=r"^Example 1 of the batch"):
            memory.add(torch.tensor([6, 7, 8]))
        assert len(memory) == 2
        Memory(Fifo(9), IndexStorage(data), allow_nonfinite=True).add(torch.tensor([7]))


def test_whether_it_is_allowed_is_no_part_of_a_file(tmp_path):
    memory = Memory(Reservoir(5), allow_nonfinite=True)
    bad = torch.tensor([1.0, math.nan])
    memory.add(bad)
    memory.save(tmp_path / "memory")
    strict, free = (Memory.load(tmp_path / "memory", allow_nonfinite=own) for own in (False, True))
    assert strict.sample(2).batch.isnan().tolist() == [False, True]  # what is held stays
    with pytest.raises(EngramError, match="allow_nonfinite=True"):
        strict.add(bad)
    free.add(bad)
    assert len(free) == 4
    other = Memory(Reservoir(5), allow_nonfinite=True)
    other.load_state_dict(strict.state_dict())
    other.add(bad)
    assert len(other) == 4
    with pytest.raises(EngramError, match="must be True or False"):
        Memory(Reservoir(5), allow_nonfinite=1)


def numbered(start, count, device="cpu"):
    numbers = torch.arange(start, start + count, device=device)
    return numbers.double().unsqueeze(-1).expand(-1, 2).clone(), numbers % 3


def flag(value, device="cpu"):
    return torch.tensor(value, device=device)


def everything(memory):
    """All that can be told of a memory, but for when something was erased; it settles."""
    state = plain({**memory.state_dict(), "erasures": None})
    return state, [record[1:] for record in memory.erasures], memory.nbytes, memory.available


def plain(value):
    if isinstance(value, dict):
        return {name: plain(own) for name, own in value.items()}
    return value.tolist() if isinstance(value, torch.Tensor) else value


@pytest.mark.parametrize("device", DEVICES)
def test_rows_are_written_where_the_flag_holds(device):
    for policy in (Fifo(4), ClassRing(1, include_current=True)):
        memory = Memory(policy)
        memory.add(numbered(0, 4, device), ids=range(4))
        rows = {name: row.clone() for name, row in memory.storage.state_dict(4)["rows"].items()}
        before = everything(memory)
        batch = memory.prepare(numbered(10, 3, device), ids=[3, 11, 12])
        memory.file(batch, valid=flag(False, device))
        for name, row in memory.storage.state_dict(4)["rows"].items():
            assert torch.equal(row, rows[name])
        assert {12, 3} <= {*memory.sample(9).ids}  # the ledger is ahead
        assert memory.settle() == 1
        assert everything(memory) == before
        memory.file(batch, valid=flag(True, device))
        assert 12.0 in memory.sample(9).batch[0]
        assert memory.settle() == 0
        twin = Memory(policy)
        twin.add(numbered(0, 4, device), ids=range(4))
        twin.sample(9)
        twin.add(numbered(10, 3, device), ids=[3, 11, 12])
        twin.sample(9)
        assert everything(memory) == everything(twin)


@pytest.mark.parametrize("device", DEVICES)
def test_a_first_batch_that_is_undone_fixes_nothing(device):
    memory = Memory(ClassRing(2), max_bytes=2400)
    new = everything(memory)
    memory.file(memory.prepare(numbered(0, 4, device), tasks=0), valid=flag(False, device))
    memory.file(memory.prepare(numbered(4, 4, device), tasks=0), valid=flag(True, device))
    assert memory.settle() == 2  # the second one as well, whatever its flag says
    assert everything(memory) == new
    assert memory.storage.rows == 0
    memory.add((torch.zeros(2, 7), torch.arange(2)))
    assert len(memory) == 2


SETTLING = {
    "erase": lambda memory: memory.erase(ids=[99]),
    "examples": lambda memory: list(memory.examples()),
    "read": lambda memory: memory.read([0]),
    "end_task": lambda memory: memory.end_task(),
    "state_dict": lambda memory: memory.state_dict(),
    "nbytes": lambda memory: memory.nbytes,
    "add": lambda memory: memory.add(numbered(30, 1)),
    "load_state_dict": lambda memory: memory.load_state_dict(Memory(Fifo(9)).state_dict()),
}


@pytest.mark.parametrize("name", SETTLING)
def test_everything_but_a_step_settles_first_and_settle_still_tells(name, tmp_path):
    twin, memory = Memory(Fifo(9)), Memory(Fifo(9))
    for own in (twin, memory):
        own.add(numbered(0, 5))
    for start, valid in [(10, True), (15, False), (20, False)]:
        memory.file(memory.prepare(numbered(start, 5)), valid=flag(valid))
    assert len(memory) == memory.available == 9
    assert memory.references(3, with_tasks=False)
    assert max(memory.sample(9).ids) == 19
    twin.file(twin.prepare(numbered(10, 5)))
    for own in (memory, twin):
        SETTLING[name](own)
    memory.save(tmp_path / "one")
    twin.save(tmp_path / "two")
    kept = [Memory.load(tmp_path / name) for name in ("one", "two")]
    for one, two in [(memory, twin), kept]:
        assert everything(one) == everything(two)
    # Until it has told so, no batch is filed by a flag.
    memory.file(memory.prepare(numbered(25, 2)), valid=flag(True))
    assert (memory.settle(), memory.settle()) == (3, 0)
    memory.file(memory.prepare(numbered(25, 2)), valid=flag(True))
    assert memory.settle() == 0
    assert 26.0 in memory.sample(9).batch[0]


labels = st.lists(st.integers(0, 2), min_size=1, max_size=5)
ids = st.none() | st.lists(st.integers(0, 9) | st.sampled_from("ab"), min_size=5, max_size=5)
operations = st.lists(
    st.tuples(st.just("file"), st.integers(0, 2), labels, ids, st.sampled_from([True, True, False]))
    | st.sampled_from([("sample",), ("sample",), ("settle",), ("end",), ("erase",)]),
    max_size=20,
)


class Eager:
    """A memory that knows at once what another one finds out when it settles."""

    def __init__(self, memory):
        self.memory, self.uncounted, self.ahead = memory, 0, False

    def file(self, batch, valid, **options):
        if self.uncounted or not valid:
            self.ahead = self.ahead or not self.uncounted
            self.uncounted += 1
        else:
            self.memory.add(batch, **options)

    def sample(self, count):
        if not self.ahead:  # else the other one goes back behind it
            self.memory.sample(count)

    def settle(self):
        self.ahead = False
        uncounted, self.uncounted = self.uncounted, 0
        return uncounted

    def change(self, call):
        self.ahead = False
        call(self.memory)


EVERY = [ClassRing(2), ClassRing(1, include_current=True), ClassSample(2), Reservoir(6), Fifo(6)]
BUDGETS = [{}, {"max_examples": 4}, {"max_bytes": 5 * 24}]


@settings(deadline=None, max_examples=30)
@given(operations)
@pytest.mark.parametrize("budget", BUDGETS, ids=str)
@pytest.mark.parametrize("policy", EVERY, ids=repr)
def test_what_is_found_out_late_is_as_if_it_had_been_known_at_once(policy, budget, operations):
    memory, eager, start = Memory(policy, **budget), Eager(Memory(policy, **budget)), 0
    for name, *options in operations:
        if name == "file":
            task, labels, ids, valid = options
            batch = numbered(start, len(labels))
            named = {"tasks": task, "labels": labels, "ids": ids and ids[: len(labels)]}
            start += len(labels)
            memory.file(memory.prepare(batch, **named), valid=flag(valid))
            eager.file(batch, valid, **named)
        elif name == "sample":
            memory.sample(2)
            eager.sample(2)
        elif name == "settle":
            assert memory.settle() == eager.settle()
            assert everything(memory) == everything(eager.memory)
        else:
            change = {"end": Memory.end_task, "erase": lambda own: own.erase(ids=[3, "a"])}[name]
            change(memory)
            eager.change(change)
    assert everything(memory) == everything(eager.memory)
    assert memory.settle() == eager.settle()
    assert str(memory.sample(3)) == str(eager.memory.sample(3))


class Watched(torch.Tensor):
    """A flag that tells when the host reads it, or whatever is made of it."""

    reads = 0

    @classmethod
    def __torch_function__(cls, function, types, arguments=(), options=None):
        names = ("__bool__", "item", "tolist", "__int__", "__float__", "__index__", "numpy", "cpu")
        cls.reads += getattr(function, "__name__", "") in names
        return super().__torch_function__(function, types, arguments, options or {})


def test_no_flag_is_read_before_all_of_them_are_at_once(monkeypatch):
    memory = Memory(Fifo(30))
    monkeypatch.setattr(Watched, "reads", 0)
    for start in range(0, 100, 10):
        batch = memory.prepare(numbered(start, 10))
        memory.file(batch, valid=flag(start < 70).as_subclass(Watched))
        memory.sample(5)
    assert Watched.reads == 0
    assert memory.settle() == 3
    assert Watched.reads == 1
    memory.file(batch, valid=flag(True).as_subclass(Watched))
    assert memory.settle() == 0
    assert Watched.reads == 2


def test_so_many_batches_are_settled_that_what_undoes_them_takes_little_memory():
    memory = Memory(Fifo(3))
    for start in range(3000):
        memory.file(memory.prepare(torch.arange(start, start + 1)), valid=flag(start < 2500))
    unsettled = re.search(r"([\d,]+) batch(es)? unsettled", repr(memory))
    assert int(unsettled[1].replace(",", "")) <= 1024
    assert memory.settle() == 500
    assert memory.read(range(3)).batch.sum() == 2499 + 2498 + 2497


@pytest.mark.parametrize("valid", [True, 1, torch.tensor(1), torch.tensor([True]), "yes"])
def test_what_is_no_flag_is_refused(valid):
    memory = Memory(Fifo(3))
    with pytest.raises(EngramError, match=r"valid is .*; give a tensor of one truth value"):
        memory.file(memory.prepare(torch.arange(2)), valid=valid)
    assert len(memory) == 0


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
class TestOnADevice:
    def test_a_step_waits_for_nothing(self):
        memory, twin = Memory(Reservoir(50), TensorStorage("cuda")), Memory(Reservoir(50))
        bad = numbered(0, 10, "cuda")
        bad[0][3, 1] = math.nan
        memory.add(numbered(0, 50, "cuda"))
        twin.add(numbered(0, 50))
        fine = [numbered(50 + 10 * step, 10, "cuda") for step in range(5)]
        valid = flag(True, "cuda")
        torch.cuda.synchronize()
        torch.cuda.set_sync_debug_mode("error")
        try:
            for batch in (*fine, bad, *fine):
                prepared = memory.prepare(batch, labels=[0] * 10)
                assert prepared.finite.device.type == "cuda"
                memory.file(prepared, valid=valid)
                memory.references(8, with_tasks=False)
        finally:
            torch.cuda.set_sync_debug_mode("default")
        assert memory.settle() == 6
        for images, labels in fine:
            twin.add((images.cpu(), labels.cpu()), labels=[0] * 10)
            twin.references(8, with_tasks=False)
        assert [*memory.examples()] == [*twin.examples()]
        rows, expected = (own.read(range(50)).batch[0].cpu() for own in (memory, twin))
        assert torch.equal(rows, expected)

    def test_rows_on_the_host_are_settled_at_once(self):
        memory = Memory(Fifo(9), TensorStorage("cpu"))
        for start, valid in [(0, True), (5, False), (10, True)]:
            prepared = memory.prepare(numbered(start, 5, "cuda"))
            memory.file(prepared, valid=flag(valid, "cuda"))
        assert memory.sample(9).ids == [0, 1, 2, 3, 4]
        assert memory.settle() == 2

    def test_a_flag_of_the_host_does_for_rows_on_a_device(self):
        memory = Memory(Fifo(9), TensorStorage("cuda"))
        memory.file(memory.prepare(numbered(0, 5)), valid=flag(True))
        memory.file(memory.prepare(numbered(5, 5)), valid=flag(False))
        assert memory.settle() == 1
        assert memory.sample(9).ids == [0, 1, 2, 3, 4]
