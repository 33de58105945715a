"""A memory lasts: files and states go on bit for bit, and damage is noticed."""

from __future__ import annotations

import io
import json
import os
import pickle
import shutil
import stat

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from engram.errors import EngramError
from engram.memory import ClassRing, ClassSample, Fifo, IndexStorage, Memory, Reservoir

CASES = [
    (ClassRing(3), {}),
    (ClassRing(3), {"max_examples": 11}),
    (ClassSample(3), {"max_examples": 11}),
    (ClassSample(3, include_current=True), {"max_bytes": 700}),
    (Reservoir(15), {}),
    (Fifo(15), {"max_bytes": 700}),
]


def batch(seed, size=7):
    generator = torch.Generator().manual_seed(seed)
    image = torch.randn(size, 4, generator=generator)
    label = torch.randint(0, 3, (size,), generator=generator)
    return {"image": image, "meta": (label, [image.bfloat16(), image > 0])}


def step(memory, seed):
    """Do a bit of everything; return all that can be seen of it."""
    new = batch(seed)
    ids = None if seed % 3 else [f"name {seed} {place}" for place in range(7)]
    tags = {"seed": seed, "odd": seed % 2 == 1} if seed % 2 else None
    memory.add(new, tasks=seed // 3, labels=new["meta"][0], ids=ids, tags=tags)
    if seed % 3 == 2:
        memory.end_task()
    if seed % 4 == 3:
        memory.erase(ids=[next(memory.examples()).id], reason="first")
    seen = [memory.sample(5), memory.sample(2, by_task=True), memory.available]
    return seen, list(memory.examples()), [record[1:] for record in memory.erasures]


def assert_same(one, other):
    if isinstance(one, torch.Tensor):
        assert one.dtype == other.dtype
        assert torch.equal(one, other)
    elif isinstance(one, dict):
        assert one.keys() == other.keys()
        assert_same(list(one.values()), list(other.values()))
    elif isinstance(one, tuple | list):
        assert type(one) is type(other)
        assert len(one) == len(other)
        for a, b in zip(one, other, strict=True):
            assert_same(a, b)
    else:
        assert one == other


def by_file(memory, folder):
    memory.save(folder / "memory.safetensors")
    return Memory.load(folder / "memory.safetensors")


def by_state(memory, _):
    buffer = io.BytesIO()
    torch.save(memory.state_dict(), buffer)
    buffer.seek(0)
    other = Memory(memory.policy, seed=99)
    other.load_state_dict(torch.load(buffer, weights_only=True))
    return other


@pytest.mark.parametrize("way", [by_file, by_state])
@pytest.mark.parametrize("steps", [0, 1, 5, 12])
@pytest.mark.parametrize(("policy", "budget"), CASES, ids=str)
def test_a_memory_goes_on_bit_for_bit(policy, budget, steps, way, tmp_path):
    memory = Memory(policy, seed=4, **budget)
    for seed in range(steps):
        step(memory, seed)
    other = way(memory, tmp_path)
    for seed in range(steps, steps + 8):
        assert_same(step(memory, seed), step(other, seed))
        assert other.nbytes <= budget.get("max_bytes", 10_000)


@pytest.mark.parametrize("way", [by_file, by_state])
def test_samples_drawn_ahead_are_not_lost(way, tmp_path):
    memory = Memory(Fifo(100), seed=2)
    memory.add(torch.arange(100))
    for _ in range(9):
        memory.sample(10)
    other = way(memory, tmp_path)
    assert [other.sample(10).ids for _ in range(70)] == [memory.sample(10).ids for _ in range(70)]


def test_the_record_of_erasures_is_saved(tmp_path):
    memory = Memory(Fifo(5))
    memory.add(torch.arange(3), ids=["a", "b", "c"])
    memory.erase(ids=["a", 7], reason="withdrawn")
    other = by_file(memory, tmp_path)
    assert other.erasures == memory.erasures
    other.add(torch.arange(3), ids=["a", 7, "d"])
    assert set(other.sample(5).ids) == {"b", "c", "d"}


def test_a_state_is_a_copy():
    memory = Memory(Fifo(3))
    memory.add(torch.arange(3))
    state = memory.state_dict()
    memory.add(torch.arange(10, 13))
    other = Memory(Fifo(3))
    other.load_state_dict(state)
    assert other.sample(3).batch.tolist() == [0, 1, 2]


def test_a_memory_of_indices_is_saved_without_its_data(tmp_path):
    data = (torch.randn(1000, 50), torch.arange(1000) % 4)
    memory = Memory(ClassRing(5), IndexStorage(data), seed=1)
    memory.add(torch.arange(0, 1000, 7), tasks=0)
    memory.end_task()
    memory.save(path := tmp_path / "memory")
    assert path.stat().st_size < 10_000
    with pytest.raises(EngramError, match=r"storage=IndexStorage\(data\)"):
        Memory.load(path)
    with pytest.raises(EngramError, match="not among the data's 500 rows"):
        Memory.load(path, storage=IndexStorage((data[0][:500], data[1][:500])))
    other = Memory.load(path, storage=IndexStorage(data))
    assert_same(memory.sample(9), other.sample(9))


@pytest.fixture
def saved(tmp_path):
    memory = Memory(ClassRing(2), seed=1)
    for seed in range(3):
        step(memory, seed)
    memory.save(path := tmp_path / "memory.safetensors")
    return path


def test_the_file_is_safetensors_and_json_with_a_format_version(saved):
    with safe_open(saved, framework="pt") as file:
        metadata = file.metadata()
    assert (metadata["format"], metadata["version"]) == ("engram-memory", "1")
    document = json.loads(metadata["document"])
    assert document["ledger"]["policy"]["per_class"] == 2


def test_a_flipped_bit_anywhere_is_noticed(saved):
    whole = saved.read_bytes()
    for place in range(0, len(whole), 11):
        damaged = bytearray(whole)
        damaged[place] ^= 1 << place % 8
        saved.write_bytes(damaged)
        with pytest.raises(EngramError):
            Memory.load(saved)


@pytest.mark.parametrize("kept", [0, 1, 7, 8, 9, 100, -1000, -1])
def test_a_truncated_file_is_refused(saved, kept):
    saved.write_bytes(saved.read_bytes()[:kept])
    with pytest.raises(EngramError, match="damaged"):
        Memory.load(saved)


def test_a_newer_format_is_refused(saved):
    with safe_open(saved, framework="pt") as file:
        metadata = file.metadata()
    save_file(load_file(saved), saved, {**metadata, "version": "4"})
    words = "has format version 4, and this Engram reads versions up to 3; install a newer one."
    with pytest.raises(EngramError) as caught:
        Memory.load(saved)
    assert str(caught.value) == f"The memory {saved} {words}"


class Bomb:
    def __reduce__(self):
        return os.abort, ()


def test_what_is_no_memory_is_refused_and_nothing_is_unpickled(tmp_path):
    path = tmp_path / "memory"
    with pytest.raises(EngramError, match="cannot be read"):
        Memory.load(path)
    save_file({"weight": torch.zeros(3)}, path)
    with pytest.raises(EngramError, match="is not a memory file"):
        Memory.load(path)
    path.write_bytes(pickle.dumps(Bomb()))
    with pytest.raises(EngramError, match="not a memory file"):
        Memory.load(path)
    with pytest.raises(EngramError, match="cannot be read"):
        Memory.load(tmp_path)


@pytest.mark.parametrize("fault", ["os.fsync", "pathlib.Path.replace"])
def test_a_failed_save_leaves_the_old_file_and_nothing_else(saved, fault, monkeypatch):
    before = saved.read_bytes()
    memory = Memory.load(saved)
    step(memory, 9)

    def fail(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(fault, fail)
    with pytest.raises(EngramError, match="No space left"):
        memory.save(saved)
    assert saved.read_bytes() == before
    assert list(saved.parent.iterdir()) == [saved]


def test_a_save_into_a_folder_that_is_not_there_is_refused(saved):
    memory = Memory.load(saved)
    shutil.rmtree(saved.parent)
    with pytest.raises(EngramError, match="could not be saved"):
        memory.save(saved)
    with pytest.raises(EngramError, match="could not be saved"):
        memory.save("")


def test_a_state_of_another_policy_or_storage_is_refused():
    memory = Memory(Fifo(3))
    memory.add(torch.full((2, 2), -1.0))
    state = memory.state_dict()
    with pytest.raises(EngramError, match=r"Fifo\(capacity=3\).*Reservoir\(capacity=3\)"):
        Memory(Reservoir(3)).load_state_dict(state)
    with pytest.raises(EngramError, match=r"holds tensors.*holds indices"):
        Memory(Fifo(3), IndexStorage((torch.zeros(2),))).load_state_dict(state)


def test_a_state_that_lacks_a_part_is_refused_and_changes_nothing():
    memory = Memory(Fifo(3))
    memory.add(torch.ones(2, 2))
    before = memory.state_dict()
    for part in before:
        state = {
            name: value for name, value in Memory(Fifo(3)).state_dict().items() if name != part
        }
        with pytest.raises(EngramError, match="A memory's state holds"):
            memory.load_state_dict(state)
    assert str(memory.state_dict()) == str(before)


def test_a_drive_that_cannot_sync_a_folder_is_no_failure(saved, monkeypatch):
    memory = Memory.load(saved)
    whole = os.fsync

    def sync_files_only(descriptor):
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):
            raise OSError(22, "Invalid argument")
        whole(descriptor)

    monkeypatch.setattr("os.fsync", sync_files_only)
    memory.save(saved)
    assert len(Memory.load(saved)) == len(memory)
