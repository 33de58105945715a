"""Memory files and states that were damaged, or made by somebody else."""

import pytest
import torch
from fuzz_cases import attempt, generated, refused
from fuzz_files import changes, contents, damaged, furnish, names
from fuzz_junk import changed, junk, mostly, places
from hypothesis import strategies as st

from engram.memory import ClassRing, IndexStorage, Memory, Reservoir


def _filled(policy=None):
    memory = Memory(policy or Reservoir(5))
    batch = torch.arange(21.0).view(7, 3), torch.arange(7) % 2
    memory.add(batch, tasks=0, ids=[*"abcdef", 7], tags={"source": "x"})
    memory.erase(["a"], reason="withdrawn")
    memory.sample(2)
    return memory


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    folder = tmp_path_factory.mktemp("memories")
    furnish(folder)
    return folder


@generated(300, changes=changes)
def test_a_damaged_memory_file_is_refused(place, changes):
    path = place / "memory"
    if not path.exists():
        _filled().save(path)
    whole = path.read_bytes()
    content = damaged(whole, changes)
    (place / "damaged").write_bytes(content)
    loaded = attempt(lambda: Memory.load(place / "damaged"))
    assert refused(loaded) or content == whole


@generated(
    300,
    policy=st.sampled_from([Reservoir(5), ClassRing(2)]),
    path=places,
    value=junk,
)
def test_a_state_that_is_no_memory_s_leaves_the_memory_as_it_was(policy, path, value):
    state = changed(_filled(policy).state_dict(), path, value)
    memory = Memory(policy)
    memory.add((torch.zeros(2, 3), torch.tensor([0, 1])), tasks=0)
    before = [*memory.examples()], memory.nbytes
    if refused(attempt(lambda: memory.load_state_dict(state))):
        assert ([*memory.examples()], memory.nbytes) == before
        memory.add((torch.zeros(2, 3), torch.tensor([0, 1])), tasks=0)
    for _ in range(2):  # what was taken over is a memory
        attempt(lambda: memory.sample(2))
        attempt(lambda: memory.sample(1, by_task=True))
        attempt(lambda: memory.add((torch.zeros(4, 3), torch.tensor([0, 1, 0, 2])), tasks=1))
        attempt(memory.end_task)
        attempt(lambda: memory.erase(where={"label": 1}))
        again = Memory(policy)
        again.load_state_dict(memory.state_dict())
        assert [*again.examples()] == [*memory.examples()]


@generated(80, name=mostly(names), storage=junk, device=junk)
def test_a_memory_is_saved_whole_under_a_possible_name_or_not_at_all(
    tmp_path_factory, monkeypatch, name, storage, device
):
    folder = tmp_path_factory.mktemp("names")
    furnish(folder)
    monkeypatch.chdir(folder)
    before = contents(folder)
    if refused(attempt(lambda: _filled().save(name))):
        assert contents(folder) == before
        assert refused(attempt(lambda: Memory.load(name)))
    else:
        assert len(contents(folder)) <= len(before) + 1
        assert len(Memory.load(name)) == 4
        attempt(lambda: Memory.load(name, device))
        attempt(lambda: Memory.load(name, storage=storage))
        attempt(lambda: Memory.load(name, storage=IndexStorage(torch.zeros(3, 2))))
