"""Files that earlier versions wrote are read. Those in files/ are of format 1, from 0.1.0."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from engram.memory import ClassRing, ClassSample, Example, Fifo, IndexStorage, Memory, Reservoir

FILES = Path(__file__).parent / "files"


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
