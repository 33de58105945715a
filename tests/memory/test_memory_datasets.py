"""A memory of indices into a data set, which is read when an example is sampled."""

from __future__ import annotations

import pytest
import torch
from torch.utils.data import Dataset, TensorDataset

from engram import Learner
from engram.errors import EngramError
from engram.memory import ClassRing, Fifo, IndexStorage, Memory, Reservoir
from engram.rules import Equal


class Squares(Dataset):
    """Reads on demand, and remembers what it has read."""

    def __init__(self, size=20):
        self.size, self.read = size, []

    def __len__(self):
        return self.size

    def __getitem__(self, index):
        self.read.append(index)
        return torch.tensor([float(index), float(index) ** 2]), index % 3


class InOneGo(Squares):
    def __getitems__(self, indices):
        self.read.append(tuple(indices))
        return [(torch.tensor([float(index)]), index % 3) for index in indices]


def test_what_is_sampled_is_read_then():
    data = Squares()
    memory = Memory(Reservoir(9), IndexStorage(data))
    memory.add(torch.arange(3, 7))
    assert data.read == []
    sample = memory.sample(2)
    assert len(data.read) == 2
    inputs, classes = sample.batch
    assert inputs.tolist() == [[index, index**2] for index in data.read]
    assert classes.tolist() == [index % 3 for index in data.read]


def test_a_data_set_that_reads_many_in_one_go_does():
    data = InOneGo()
    memory = Memory(Reservoir(9), IndexStorage(data))
    memory.add(torch.arange(4))
    memory.sample(4)
    assert data.read == [(0, 1, 2, 3)]


def test_torchs_own_data_sets_serve():
    data = TensorDataset(torch.arange(10.0), torch.arange(10) % 2)
    memory = Memory(Fifo(3), IndexStorage(data))
    memory.add(torch.arange(10))
    assert memory.sample(3).batch[0].sort().values.tolist() == [7, 8, 9]


def test_the_users_function_makes_the_batch():
    memory = Memory(
        Fifo(9), IndexStorage(Squares()), collate=lambda own: [label for _, label in own]
    )
    memory.add(torch.arange(4))
    assert memory.sample(4).batch == [0, 1, 2, 0]


def test_classes_are_given_beside_it():
    data = Squares()
    memory = Memory(
        ClassRing(2, include_current=True), IndexStorage(data, labels=[i % 3 for i in range(20)])
    )
    memory.add(torch.arange(20), tasks=0)
    assert sorted(memory.sample(9).ids) == [14, 15, 16, 17, 18, 19]
    with pytest.raises(EngramError, match="give labels"):
        Memory(ClassRing(2), IndexStorage(data)).add(torch.arange(3))
    with pytest.raises(EngramError, match="labels has 2 entries"):
        IndexStorage(data, labels=[1, 2])


def test_it_is_saved_without_its_data(tmp_path):
    memory = Memory(Reservoir(5), IndexStorage(Squares()), seed=4)
    memory.add(torch.arange(20))
    memory.save(tmp_path / "memory")
    other = Memory.load(tmp_path / "memory", storage=IndexStorage(Squares()))
    for _ in range(3):
        one, two = memory.sample(2), other.sample(2)
        assert torch.equal(one.batch[0], two.batch[0])
    with pytest.raises(EngramError, match="not among the data's 9 rows"):
        Memory.load(tmp_path / "memory", storage=IndexStorage(Squares(9)))


@pytest.mark.parametrize("data", [Squares(), (torch.randn(20, 2), torch.arange(20) % 3)])
def test_a_learner_observes_indices(data):
    model = torch.nn.Linear(2, 3)
    memory = Memory(Reservoir(9), IndexStorage(data))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    learner = Learner(model, optimizer, Equal(), memory)
    storage = memory.storage
    for start in (0, 4):
        mix = learner.observe(torch.arange(start, start + 4))
        own = [data[i] for i in range(start, start + 4)] if isinstance(data, Squares) else None
        inputs = torch.stack([each[0] for each in own]) if own else data[0][start : start + 4]
        expected = torch.nn.functional.cross_entropy(
            model(inputs), torch.arange(start, start + 4) % 3
        )
        assert torch.allclose(mix.losses[0], expected)
    assert len(mix.losses) == 2
    assert len(storage) == 20


@pytest.mark.parametrize(
    ("data", "words"), [(3, "it holds a int"), ("text", "it holds a str"), ([], "at least one")]
)
def test_what_is_no_data_is_refused(data, words):
    with pytest.raises(EngramError, match=words):
        IndexStorage(data)


def test_an_index_that_is_none_of_the_data_s_is_refused():
    memory = Memory(Fifo(3), IndexStorage(Squares()))
    with pytest.raises(EngramError, match="The index 20 is not among the data's 20 rows"):
        memory.add(torch.tensor([3, 20]))


def test_a_data_set_of_hugging_face_backs_a_memory():
    datasets = pytest.importorskip("datasets")
    data = datasets.Dataset.from_dict(
        {"text": [f"text {i}" for i in range(9)], "label": [*range(9)]}
    )
    storage = IndexStorage(data, labels=data["label"])
    memory = Memory(Reservoir(5), storage, seed=1)
    memory.add(torch.arange(9))
    batch = memory.sample(3).batch
    assert batch["text"] == [f"text {label}" for label in batch["label"].tolist()]
    assert memory.sample(3, collate=len).batch == 3


class LikeHuggingFace:
    """What those of Hugging Face have in public: rows by number, columns by name, many at once."""

    def __init__(self, **columns):
        self.columns = columns

    def __len__(self):
        return len(self.columns["label"])

    def __getitem__(self, key):
        if isinstance(key, str):
            return self.columns[key]
        return {name: column[key] for name, column in self.columns.items()}

    def __getitems__(self, keys):
        return [self[key] for key in keys]


def test_so_does_one_that_looks_like_it():
    data = LikeHuggingFace(text=[f"text {i}" for i in range(9)], label=[*range(9)])
    memory = Memory(Reservoir(5), IndexStorage(data, labels=data["label"]), seed=1)
    memory.add(torch.arange(9))
    batch = memory.sample(3).batch
    assert batch["text"] == [f"text {label}" for label in batch["label"].tolist()]
