"""What earlier versions wrote is read.

The files in files/ are of format 1 and 2, and those in pickles/ are pickles of `MEMORIES` and
`LEDGERS`, all from 0.1.0; they were made with NumPy 1.26, for later ones read its pickles too. A
pickle names modules and classes, which have other names by now.
"""

from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np
import pytest
import torch

from engram.memory import (
    ClassRing,
    ClassSample,
    Example,
    Fifo,
    IndexStorage,
    Ledger,
    Memory,
    Reservoir,
)

FILES = Path(__file__).parent / "files"
PICKLES = Path(__file__).parent / "pickles"


def test_a_memory_of_tensors_by_class():
    memory = Memory.load(FILES / "class-sample-1.safetensors")
    tags = [{"task": f"t{task}", "odd": task == 1} for task in range(3)]
    assert list(memory.examples()) == [
        Example(9, 1, 1, tags[1]),
        Example(10, 1, 2, tags[1]),
        Example(5, 0, 2, tags[0]),
        Example(14, 1, 0, tags[1]),
        Example(19, 2, 0, tags[2]),
        Example(18, 2, 2, tags[2]),
        Example(23, 2, 1, tags[2]),
    ]
    assert memory.policy == ClassSample(2)
    assert memory.available == 4
    assert [record[1:] for record in memory.erasures] == [((1, "gone"), "withdrawn")]
    batch = memory.read(range(7)).batch
    numbers = torch.tensor([10, 11, 5, 15, 21, 20, 25])
    assert torch.equal(batch["image"], numbers.double().unsqueeze(-1).expand(-1, 3))
    assert torch.equal(batch["meta"][0], numbers.bfloat16())
    assert torch.equal(batch["meta"][1][0], numbers % 2 == 0)
    new = {"image": torch.ones(9, 3).double(), "meta": (numbers.new_ones(9).bfloat16(), [])}
    new["meta"][1].append(torch.ones(9, dtype=torch.bool))
    memory.add(new, tasks=3, labels=[0] * 9, ids=[1, "gone", *range(100, 107)])
    assert len(memory) == 7  # of which none was erased
    assert not {1, "gone"} & {example.id for example in memory.examples()}


def test_a_memory_of_indices():
    data = (torch.arange(40.0).view(20, 2), torch.arange(20) % 4)
    memory = Memory.load(FILES / "indices-1.safetensors", storage=IndexStorage(data))
    assert memory.policy == ClassRing(2, include_current=True)
    assert memory.read(range(7)).batch[1].tolist() == data[1][::3].tolist()


def test_complex_numbers_and_such_as_are_not_finite():
    memory = Memory.load(FILES / "complex-1.safetensors")
    assert memory.policy == Reservoir(5)
    sample = memory.read(range(5))
    assert sample.ids == [7, 11, 8, 3, 5]
    real = torch.tensor([7, 11, 8, torch.nan, 5])
    assert sample.batch[0].dtype == torch.complex64
    for part, expected in [(sample.batch[0].real, real), (-sample.batch[0].imag, real)]:
        assert torch.equal(part.nan_to_num(99.0), expected.nan_to_num(99.0))
    memory.sample(3)


def test_dtypes_whose_rows_are_of_another():
    memory = Memory.load(FILES / "dtypes-2.safetensors")
    batch, numbers = memory.read(range(5)).batch, [5, 6, 2, 3, 4]
    assert memory.policy == Fifo(5)
    assert [batch["a"].dtype, *(part.dtype for part in batch["b"])] == [
        torch.uint16,
        torch.complex64,
        torch.float8_e5m2,
    ]
    for part in (batch["a"], batch["b"][0].real, batch["b"][1].float()):
        assert part.tolist() == numbers


def test_a_memory_that_held_nothing():
    memory = Memory.load(FILES / "empty-1.safetensors")
    assert (memory.policy, len(memory), memory.max_bytes) == (Fifo(4), 0, 100)
    memory.add(torch.arange(30))
    assert len(memory) == 4


@pytest.mark.parametrize("path", sorted(FILES.iterdir()), ids=lambda path: path.name)
def test_such_a_file_is_written_again_as_it_was(path, tmp_path):
    storage = IndexStorage((torch.zeros(20),)) if "indices" in path.name else None
    memory = Memory.load(path, storage=storage)
    memory.save(tmp_path / "again")
    again = Memory.load(tmp_path / "again", storage=storage)
    assert str(again.state_dict()) == str(memory.state_dict())


def batch(start, count):
    numbers = torch.arange(start, start + count)
    return numbers.double().unsqueeze(-1).expand(-1, 2), numbers % 3


def grown(policy, storage=None, **budget):
    """A memory that has done all that one can, but for the time at which something was erased."""
    memory = Memory(policy, storage, seed=3, **budget)
    own = batch if storage is None else lambda start, count: torch.arange(start, start + count)
    memory.add(own(0, 6), tasks=0)
    memory.end_task()
    memory.add(own(10, 4), tasks=1, ids=[7, "a", 8, "b"], tags={"source": "a"})
    memory.erase(ids=[2, "gone"], reason="withdrawn")
    memory.sample(2)
    memory.file(memory.prepare(own(3, 2), tasks=1), valid=torch.tensor(True))
    return memory


def further(memory, own):
    """What a memory is, and becomes when it goes on."""
    memory.settle()
    states = [comparable(memory.state_dict() | {"erasures": [e[1:] for e in memory.erasures]})]
    states += [memory.nbytes, memory.available, [*memory.examples()]]
    memory.add(own(4, 5), tasks=2, ids=[7, "gone", 40, "new", 2])
    memory.end_task()
    memory.erase(where={"task": 1})
    memory.add(own(8, 4), tasks=3)
    states.append([comparable(memory.sample(2)._asdict()) for _ in range(3)])
    memory.erasures.clear()
    return [*states, comparable(memory.state_dict())]


def comparable(value):
    if isinstance(value, dict):
        return {name: comparable(own) for name, own in value.items()}
    if isinstance(value, tuple):
        return tuple(map(comparable, value))
    return value.tolist() if isinstance(value, torch.Tensor | np.ndarray) else value


def data():
    return torch.arange(40.0).view(20, 2), torch.arange(20) % 3


MEMORIES = {
    "class-ring": lambda: grown(ClassRing(2, include_current=True), max_examples=5),
    "class-sample": lambda: grown(ClassSample(4), max_examples=5),
    "reservoir": lambda: grown(Reservoir(4)),
    "fifo": lambda: grown(Fifo(99), max_bytes=100),
    "indices": lambda: grown(ClassRing(2), IndexStorage(data())),
    "empty": lambda: Memory(Fifo(4), max_bytes=100),
}


@pytest.mark.parametrize("name", MEMORIES)
def test_a_pickle_goes_on_as_the_memory_would_have(name):
    memory = pickle.loads((PICKLES / f"{name}.pickle").read_bytes())
    expected = MEMORIES[name]()
    assert (type(memory), memory.policy) == (Memory, expected.policy)
    assert memory.max_bytes == expected.max_bytes
    indices = name == "indices"
    own = (lambda start, count: torch.arange(start, start + count)) if indices else batch
    again = pickle.loads(pickle.dumps(memory))
    once, twice, wanted = (further(each, own) for each in (memory, again, expected))
    assert once == wanted
    assert twice == wanted


def kept(policy):
    ledger = Ledger(policy, seed=9)
    ledger.add(0, [0, 1, 2, 0, 1], ids=[*"abcde"], tags={"source": "x"})
    ledger.end_task()
    ledger.erase(ids=["b", 3])
    return ledger


LEDGERS = {
    "ledger-class-sample": lambda: kept(ClassSample(2)),
    "ledger-fifo": lambda: kept(Fifo(4)),
}


@pytest.mark.parametrize("name", LEDGERS)
def test_so_does_that_of_a_ledger(name):
    ledger = pickle.loads((PICKLES / f"{name}.pickle").read_bytes())
    expected = LEDGERS[name]()
    assert type(ledger) is Ledger
    assert comparable(ledger.state_dict()) == comparable(expected.state_dict())
    coming = {"tasks": 1, "labels": [0, 0, 0, 1, 2], "ids": ["a", 7, "new", 3, 9]}
    assert ledger.add(**coming).tolist() == expected.add(**coming).tolist()
    assert comparable(ledger.state_dict()) == comparable(expected.state_dict())
