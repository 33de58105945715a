"""Subjects that are blocked: their new examples are refused or skipped, whatever their ids."""

from __future__ import annotations

import copy
import pickle

import pytest
import torch

from engram import Learner
from engram.errors import EngramError
from engram.memory import Block, Fifo, Memory, Ragged, Reservoir
from engram.rules import Equal

ANNA, BERT = {"customer": "anna"}, {"customer": "bert"}


def filled(**options):
    memory = Memory(Fifo(9), **options)
    memory.add(torch.arange(4), tags=[ANNA, BERT, ANNA, None])
    return memory


def held(memory):
    return sorted(example.id for example in memory.examples())


def test_an_erasure_by_tag_blocks_who_it_was_about():
    memory = filled()
    record = memory.erase(where={"tags": ANNA}, reason="withdrawn", block=True)
    assert record.ids == (0, 2)
    assert memory.blocks == [Block(record.when, ("customer",), "withdrawn")]
    with pytest.raises(EngramError, match=r"Example 1 of the batch.*\(customer\)") as caught:
        memory.add(torch.arange(3), tags=[BERT, ANNA, None])
    assert "anna" not in str(caught.value)
    assert held(memory) == [1, 3]
    memory.add(torch.arange(2), tags=[BERT, {"customer": "anna b"}])
    assert held(memory) == [1, 3, 4, 5]


def test_they_may_be_skipped_and_reported_instead():
    memory = filled(blocked="skip")
    memory.block(ANNA)
    batch = {"x": Ragged([torch.tensor([1]), torch.tensor([2, 2]), torch.tensor([3])])}
    memory = Memory(Fifo(9), blocked="skip")
    memory.block(ANNA)
    prepared = memory.prepare(
        batch, ids=["a", "b", "c"], tags=[BERT, ANNA, None], weights=[1, 2, 3], times=7
    )
    assert prepared.skipped == (1,)
    memory.file(prepared)
    sample = memory.read([0, 1])
    assert sample.ids == ["a", "c"]
    assert [each.tolist() for each in sample.batch["x"]] == [[1], [3]]
    assert sample.weights.tolist() == [1, 3]
    memory.add({"x": Ragged([torch.tensor([1])])}, tags=ANNA, weights=[1])
    assert len(memory) == 2


def test_a_subject_may_be_known_by_several_tags():
    memory = Memory(Fifo(9))
    memory.block({"site": 1, "patient": 7}, reason="asked")
    for tags in ({"site": 1}, {"patient": 7}, {"site": 2, "patient": 7}):
        memory.add(torch.arange(1), tags=tags)
    for tags in (
        {"site": 1, "patient": 7},
        {"patient": 7.0, "site": True, "more": "x"},  # what is equal is the same
    ):
        with pytest.raises(EngramError, match=r"\(patient, site\)"):
            memory.add(torch.arange(1), tags=tags)
    assert len(memory) == 3


def test_who_is_unblocked_may_come_again():
    memory = filled()
    memory.block(ANNA)
    memory.unblock(ANNA)
    memory.add(torch.arange(1), tags=ANNA)
    assert memory.blocks == []
    with pytest.raises(EngramError, match="not blocked"):
        memory.unblock(ANNA)
    with pytest.raises(EngramError, match="not blocked"):
        Memory(Fifo(3)).unblock(ANNA)


def test_a_batch_that_was_prepared_before_is_held_to_it_too():
    for blocked in ("refuse", "skip"):
        memory = filled(blocked=blocked)
        prepared = memory.prepare(torch.arange(2), tags=[ANNA, BERT])
        memory.erase(where={"tags": ANNA}, block=True)
        if blocked == "refuse":
            with pytest.raises(EngramError, match="blocked"):
                memory.file(prepared)
        else:
            memory.file(prepared)
        assert held(memory) == [1, 3] + [4] * (blocked == "skip")


def refuses(memory):
    with pytest.raises(EngramError, match="blocked"):
        memory.add(torch.arange(1), tags=ANNA)


def test_it_is_saved_without_the_value(tmp_path):
    memory = filled()
    memory.erase(where={"tags": ANNA}, reason="withdrawn", block=True)
    memory.save(path := tmp_path / "memory")
    assert b"anna" not in path.read_bytes()
    other = Memory.load(path)
    assert other.blocks == memory.blocks
    for own in (
        other,
        copy.deepcopy(memory),
        copy.copy(memory),
        pickle.loads(pickle.dumps(memory)),
    ):
        refuses(own)
    again = Memory(Fifo(9), blocked="skip")
    again.load_state_dict(memory.state_dict())
    again.add(torch.arange(1), tags=ANNA)
    assert held(again) == [1, 3]


def test_the_key_may_be_a_secret_that_no_file_holds(tmp_path):
    secret = bytes(range(32))
    memory = filled(secret=secret)
    memory.block(ANNA)
    memory.save(path := tmp_path / "memory")
    assert secret.hex().encode() not in path.read_bytes()
    with pytest.raises(EngramError, match="give it as secret="):
        Memory.load(path)
    with pytest.raises(EngramError, match="not the one"):
        Memory.load(path, secret=bytes(32))
    refuses(Memory.load(path, secret=secret))
    with pytest.raises(EngramError, match="16 to 64 bytes"):
        Memory(Fifo(3), secret="anna")


def test_the_same_subject_looks_different_in_every_memory():
    states = []
    for _ in range(2):
        memory = Memory(Fifo(3))
        memory.block(ANNA)
        states.append(bytes(memory.state_dict()["blocks"].tolist()))
    assert states[0] != states[1]


def learner(memory):
    model = torch.nn.Linear(2, 2)
    return model, Learner(model, torch.optim.SGD(model.parameters(), lr=0.5), Equal(), memory)


def test_a_learner_learns_nothing_from_them():
    inputs, classes = torch.randn(3, 2), torch.tensor([0, 1, 1])
    memory = Memory(Reservoir(9))
    memory.block(ANNA)
    model, own = learner(memory)
    before = [parameter.detach().clone() for parameter in model.parameters()]
    with pytest.raises(EngramError, match="blocked"):
        own.observe(inputs, classes, tags=[BERT, ANNA, BERT])
    assert all(map(torch.equal, before, model.parameters()))
    assert len(memory) == 0


def test_where_they_are_skipped_a_learner_learns_from_the_others():
    torch.manual_seed(0)
    inputs, classes = torch.randn(3, 2), torch.tensor([0, 1, 1])
    memory = Memory(Reservoir(9), blocked="skip")
    memory.block(ANNA)
    model, own = learner(memory)
    twin, other = learner(Memory(Reservoir(9)))
    twin.load_state_dict(model.state_dict())
    own.observe(inputs, classes, tags=[BERT, ANNA, BERT])
    other.observe(inputs[[0, 2]], classes[[0, 2]])
    assert all(map(torch.equal, model.parameters(), twin.parameters()))
    assert len(memory) == 2
    with pytest.raises(EngramError, match="none that is not of a blocked subject"):
        own.observe(inputs, classes, tags=ANNA)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda memory: memory.erase(ids=[0], block=True), "block=True needs where"),
        (lambda memory: memory.erase(where={"task": 3, "tags": ANNA}, block=True), "needs where"),
        (lambda memory: memory.erase(where={"tags": {}}, block=True), "name one tag"),
        (lambda memory: memory.erase(where={"tags": ANNA}, block=1), "block is 1"),
        (lambda memory: memory.block("anna"), "not a mapping"),
        (lambda memory: memory.block({}), "name one tag"),
        (lambda memory: memory.block({"a": [1]}), "tag"),
        (lambda memory: memory.block(ANNA, reason=3), "reason is 3"),
        (lambda _: Memory(Fifo(3), blocked="ignore"), "no use of blocked subjects 'ignore'"),
    ],
)
def test_what_is_no_subject_is_refused_and_changes_nothing(call, words):
    memory = filled()
    with pytest.raises(EngramError, match=words):
        call(memory)
    assert held(memory) == [0, 1, 2, 3]
    assert memory.blocks == []
