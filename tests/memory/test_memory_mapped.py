"""Rows in files that are mapped into memory: as those in memory, opened again, and never torn."""

from __future__ import annotations

import copy
import json
import os
import pickle
import signal
import subprocess
import sys

import pytest
import torch

from engram.errors import EngramError
from engram.memory import (
    ClassRing,
    ClassSample,
    Fifo,
    MappedStorage,
    Memory,
    Ragged,
    Reservoir,
    TensorStorage,
)
from tools.docs.memory import NUMBERS, PAGE, filled


def step(memory, number):
    numbers = torch.arange(5 * number, 5 * number + 5)
    memory.add(
        {"x": numbers.double().view(-1, 1).expand(-1, 3), "y": numbers.to(torch.uint16)},
        labels=numbers % 3,
        tasks=number // 3,
    )
    if number % 4 == 3:
        memory.erase(ids=[5 * number, 2])
        memory.end_task()
    sample = memory.sample(4)
    return (
        None
        if sample is None
        else (sample.ids, sample.batch["x"].tolist(), sample.batch["y"].int().tolist())
    )


POLICIES = [Fifo(12), Reservoir(12), ClassRing(2), ClassSample(2, include_current=True)]


@pytest.mark.parametrize("policy", POLICIES, ids=repr)
def test_it_does_what_a_memory_in_memory_does_and_is_opened_again(policy, tmp_path):
    memory, twin = Memory(policy, MappedStorage(tmp_path / "m"), seed=1), Memory(policy, seed=1)
    for number in range(12):
        assert step(memory, number) == step(twin, number)
        if number % 5 == 4:
            memory.save(tmp_path / "m")
            del memory
            memory = Memory.load(tmp_path / "m")
    assert [*memory.examples()] == [*twin.examples()]
    assert memory.erasures[0].ids == twin.erasures[0].ids
    memory.save(tmp_path / "m")
    kinds = {path.name.split("-")[0] for path in (tmp_path / "m").iterdir()}
    assert kinds == {"memory.safetensors", "rows", "lock"}
    assert len([*(tmp_path / "m").glob("rows-*")]) == 2  # of a column each; older ones are gone
    assert all(path.stat().st_mode & 0o77 == 0 for path in (tmp_path / "m").iterdir())


def test_it_is_resized_mapped_copied_and_saved_as_a_file(tmp_path):
    memory, twin = Memory(Fifo(12), MappedStorage(tmp_path / "m")), Memory(Fifo(12))
    for own in (memory, twin):
        for number in range(4):
            step(own, number)
        own.resize(6)
        own.map(lambda batch: (batch["x"].float(), batch["y"].int()))
    assert isinstance(memory.storage, MappedStorage)
    memory.save(tmp_path / "file")
    for own in (
        memory,
        copy.deepcopy(memory),
        pickle.loads(pickle.dumps(memory)),
        Memory.load(tmp_path / "file"),
    ):
        assert torch.equal(own.read(range(6)).batch[0], twin.read(range(6)).batch[0])
    assert type(copy.copy(memory).storage) is TensorStorage
    again = Memory.load(tmp_path / "file", storage=MappedStorage(tmp_path / "other"))
    assert torch.equal(again.read(range(6)).batch[1], twin.read(range(6)).batch[1])
    memory.save(tmp_path / "m")
    del memory, own
    assert torch.equal(
        Memory.load(tmp_path / "m").read(range(6)).batch[0], twin.read(range(6)).batch[0]
    )


def fails_at_the_second(batch, calls):
    calls.append(batch)
    if len(calls) == 2:
        raise EngramError("the user's own")
    return batch.double()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda own, calls: own.map(lambda b: fails_at_the_second(b, calls), batch=2), "own"),
        (lambda own, _: own.map(lambda b: Ragged(list(b.view(-1, 1)))), "of one length"),
        (lambda own, _: own.map(lambda b: b.double()[:1]), "returned 1 examples for 3"),
        (lambda own, _: own.resize(2**60), "cannot allocate"),
    ],
)
def test_a_change_that_fails_leaves_the_folder_as_it_was_saved(change, words, tmp_path):
    memory = Memory(Fifo(3), MappedStorage(tmp_path / "m"))
    memory.add(torch.arange(3.0))
    memory.save(tmp_path / "m")
    files = sorted(tmp_path.rglob("*"))
    with pytest.raises(EngramError, match=words):
        change(memory, [])
    assert sorted(tmp_path.rglob("*")) == files
    del memory
    assert Memory.load(tmp_path / "m").read(range(3)).batch.tolist() == [0, 1, 2]


def test_an_erased_example_is_overwritten_in_its_file(tmp_path):
    memory = Memory(Fifo(3), MappedStorage(tmp_path / "m"))
    memory.add(torch.tensor([1, 0x0123456789ABCDEF, 2]))
    (rows,) = (tmp_path / "m").glob("rows-*")
    secret = 0x0123456789ABCDEF.to_bytes(8, "little")
    assert secret in rows.read_bytes()
    memory.erase(ids=[1])
    assert secret not in rows.read_bytes()


def test_a_folder_is_of_one_memory_at_a_time(tmp_path):
    memory = Memory(Fifo(3), MappedStorage(tmp_path / "m"))
    with pytest.raises(EngramError, match="open already"):
        MappedStorage(tmp_path / "m")
    memory.add(torch.arange(3))
    memory.save(tmp_path / "m")
    with pytest.raises(EngramError, match="open already"):
        Memory.load(tmp_path / "m")
    del memory
    with pytest.raises(EngramError, match=r"holds a memory already; open it by Memory\.load"):
        MappedStorage(tmp_path / "m")
    assert sorted(Memory.load(tmp_path / "m").sample(3).ids) == [0, 1, 2]
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "x").touch()
    with pytest.raises(EngramError, match="is not empty"):
        MappedStorage(tmp_path / "full")
    assert [each.name for each in (tmp_path / "full").iterdir()] == ["x"]
    with pytest.raises(EngramError, match="cannot be used"):
        MappedStorage(tmp_path / "full" / "x")
    with pytest.raises(EngramError, match="cannot be used"):
        MappedStorage(3)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")
def test_a_fork_reads_and_does_not_write(tmp_path):
    memory = Memory(Fifo(3), MappedStorage(tmp_path / "m"))
    memory.add(torch.arange(3))
    child = os.fork()
    if not child:
        try:
            whole = memory.sample(3).ids == [0, 1, 2]
            memory.add(torch.arange(1))
        except EngramError:
            os._exit(0 if whole else 1)
        os._exit(2)
    assert os.waitpid(child, 0)[1] == 0
    assert memory.read(range(3)).batch.tolist() == [0, 1, 2]


def test_texts_are_kept_in_memory(tmp_path):
    memory = Memory(Fifo(3), MappedStorage(tmp_path / "m"))
    with pytest.raises(EngramError, match="use a RaggedStorage"):
        memory.add(Ragged([torch.zeros(2)]))


@pytest.mark.parametrize("damage", ["cut", "gone", "state"])
def test_what_is_damaged_is_refused(damage, tmp_path):
    memory = Memory(Fifo(3), MappedStorage(tmp_path / "m"))
    memory.add(torch.arange(3))
    memory.save(tmp_path / "m")
    del memory
    (rows,) = (tmp_path / "m").glob("rows-*")
    if damage == "cut":
        os.truncate(rows, 5)
    elif damage == "gone":
        rows.unlink()
    else:
        os.truncate(tmp_path / "m" / "memory.safetensors", 99)
    with pytest.raises(EngramError):
        Memory.load(tmp_path / "m")


def test_the_page_says_what_was_measured_and_a_step_is_at_most_a_fifth_longer():
    page, numbers = PAGE.read_text("utf-8"), json.loads(NUMBERS.read_text("utf-8"))
    assert filled(page, numbers) == page
    assert numbers["bytes"] >= 4e9
    assert numbers["own"]["mapped"] < numbers["limit"] == 10**9
    assert numbers["processor"]["ratio"] <= 1.2
    assert numbers["clock"]["ratio"] <= 1.2


VICTIM = """
import sys, torch
from engram.memory import Fifo, MappedStorage, Memory
memory = Memory(Fifo(50), MappedStorage(sys.argv[1]))
start = 0
while True:
    numbers = torch.arange(start, start + 7)
    memory.add((numbers, numbers.double()), ids=numbers)
    start += 7
    if start % 21 == 0:
        memory.save(sys.argv[1])
    print(start, flush=True)
"""


def kill_one(folder, line):
    """Kill a process that adds and saves, after it has told so much; return what is found."""
    with subprocess.Popen([sys.executable, "-c", VICTIM, folder], stdout=subprocess.PIPE) as victim:
        for _ in range(line):
            assert victim.stdout.readline()
        victim.send_signal(signal.SIGKILL)
    try:
        memory = Memory.load(folder)
    except EngramError as error:
        assert "was changed and not saved" in str(error)  # noqa: PT017
        return False
    found = memory.read(range(len(memory)))
    assert found.batch[0].tolist() == found.ids == found.batch[1].tolist()
    assert (max(found.ids) + 1) % 21 == 0
    return True


def test_what_a_kill_leaves_is_whole_or_refused(tmp_path):
    kill_one(tmp_path / "m", 5)


@pytest.mark.slow
def test_whenever_it_comes(tmp_path):
    found = [kill_one(tmp_path / str(line), line) for line in range(3, 40)]
    assert len(set(found)) == 2


LIMITED = """
import resource, sys, torch
from engram.memory import MappedStorage, Memory, Reservoir
own = next(line for line in open("/proc/self/status") if line.startswith("VmData"))
limit = 1024 * int(own.split()[1]) + 2**26  # 64 MiB more than there is already
resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
memory = Memory(Reservoir(2560), MappedStorage(sys.argv[1]))  # 160 MiB
for start in range(0, 2560, 64):
    memory.add(torch.arange(start, start + 64).view(-1, 1).repeat(1, 16384).float())
assert memory.nbytes == 2560 * 65536
sample = memory.sample(128)
assert (sample.batch == torch.tensor(sample.ids).view(-1, 1)).all()
memory.save(sys.argv[1])
try:
    torch.zeros(2**25).add_(1)
except RuntimeError:
    print("limited")
"""


@pytest.mark.skipif(sys.platform != "linux", reason="the limit is Linux's")
def test_more_is_held_than_the_process_may_have_memory_for(tmp_path):
    command = [sys.executable, "-c", LIMITED, tmp_path / "m"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.stdout == "limited\n", done.stderr[-2000:]
    assert len(Memory.load(tmp_path / "m")) == 2560
