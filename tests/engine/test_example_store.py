"""One store of examples with columns of any name, alone and in the memory of replay."""

import numpy as np
import pytest
import torch

from engram.lab.benchmarks import Examples
from engram.lab.engine import Bank, ExampleStore
from engram.memory import ClassRing, Ledger
from engram.testing import Practice

RUNS, LENGTH = 3, 7


@pytest.fixture
def store():
    numbers = torch.arange(RUNS * LENGTH).view(RUNS, LENGTH)
    return ExampleStore({"inputs": numbers.unsqueeze(-1).float().expand(-1, -1, 2), "ids": numbers})


def rows_of(store, seed, count):
    source = np.random.default_rng(seed)
    mine = np.stack([source.permutation(store.length)[:count] for _ in range(RUNS)])
    return torch.from_numpy(mine)


def test_rows_are_each_runs_own(store):
    rows = rows_of(store, 0, 4)
    inputs, ids = store.read(store.flat(rows), "inputs", "ids")
    expected = torch.stack([store["ids"][run, rows[run]] for run in range(RUNS)])
    assert torch.equal(ids, expected)
    assert torch.equal(inputs[..., 1], expected.float())
    assert torch.equal(store.select(rows)["ids"], expected)


def test_what_is_written_is_read_and_nothing_else_changes():
    store = ExampleStore.zeros(LENGTH, {"labels": torch.ones(RUNS, 2, dtype=torch.int64)})
    rows = rows_of(store, 1, 3)
    new = torch.arange(1, 1 + rows.numel()).view(rows.shape)
    store.write(store.flat(rows), labels=new)
    assert torch.equal(store.read(store.flat(rows), "labels")[0], new)
    assert store["labels"].sum() == new.sum()


def test_a_store_has_the_size_of_its_examples(store):
    assert store.row_nbytes == 2 * 4 + 8
    assert store.joined(store).length == 2 * LENGTH


def test_replay_holds_any_column_beside_inputs_and_labels():
    seeds = (3, 4)
    bank = Bank(
        [Ledger(ClassRing(2), seed=seed) for seed in seeds],
        seeds,
        capacity=12,
        stream=Practice(seeds, "cpu"),
        device=torch.device("cpu"),
    )
    for task in range(2):
        labels = torch.arange(10).remainder(3).repeat(2, 1)
        ids = 100 * task + torch.arange(10).repeat(2, 1)
        inputs = ids.unsqueeze(-1).expand(-1, -1, 64).to(torch.uint8)
        logits = ids.unsqueeze(-1) + torch.tensor([0.25, 0.5, 0.75])
        bank.stage_examples(Examples(inputs, labels), logits=logits)
        bank.plan(task, labels, batch_size=5, count=4, per_task=False)
        if task:
            (read, logits), _, groups = bank.read(1, "inputs", "logits")
            assert torch.equal(logits, read[..., :1] + torch.tensor([0.25, 0.5, 0.75]))
            assert read.shape == (2, 4, 64)
            assert groups == 1
        bank.end_task()
    saved = bank.state_dict()["table"]
    assert saved.keys() == {"inputs", "labels", "logits"}
