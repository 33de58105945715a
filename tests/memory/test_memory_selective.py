"""A policy that looks at the examples: what it says of them is kept with them, whatever happens."""

import copy
import pickle
from dataclasses import dataclass

import numpy as np
import pytest
import torch

from engram.errors import EngramError
from engram.memory import Ledger, Memory, Selective


@dataclass(frozen=True)
class Bright(Selective):
    """The brightest of each class, of each task."""

    per_class: int
    by_class = True
    include_current = True

    @property
    def group_limit(self):
        return self.per_class

    def describe(self, batch):
        return batch[0].flatten(1).mean(1, keepdim=True)

    def leaving(self, described, chance):  # noqa: ARG002
        return described[:, 0].argmin()


def shades(*values):
    return torch.tensor(values)[:, None].expand(-1, 4).clone()


def add(memory, values, label=0, **more):
    memory.add((shades(*values), torch.full((len(values),), label)), tasks=0, **more)


def held(memory):
    """Return the shades that are held, by class."""
    sample = memory.sample(memory.available)
    found = {}
    for image, label in zip(*sample.batch, strict=True):
        found.setdefault(int(label), []).append(round(float(image[0]), 3))
    return {label: sorted(values) for label, values in found.items()}


def test_it_keeps_what_it_says_of_each_class():
    draw = np.random.default_rng(0)
    values, labels = draw.permutation(200) / 200, draw.integers(0, 3, 200)
    memory = Memory(Bright(5))
    for start in range(0, 200, 7):
        part = slice(start, start + 7)
        memory.add((shades(*values[part]), torch.from_numpy(labels[part])), tasks=0)
    best = {label: sorted(values[labels == label])[-5:] for label in range(3)}
    assert held(memory) == {label: pytest.approx(best[label], abs=1e-3) for label in best}


def test_an_example_that_comes_back_is_described_anew():
    memory = Memory(Bright(2))
    add(memory, [0.5, 0.9], ids=["a", "b"])
    add(memory, [0.1], ids=["b"])
    add(memory, [0.3], ids=["c"])
    assert held(memory) == {0: [0.3, 0.5]}


def test_one_of_a_batch_counts_once_it_is_there():
    memory = Memory(Bright(2))
    add(memory, [0.5, 0.2, 0.9, 0.1, 0.6], ids=["a", "b", "a", "c", "d"])
    assert held(memory) == {0: [0.6, 0.9]}


def test_in_a_full_memory_the_largest_class_gives_up_its_darkest():
    memory = Memory(Bright(10), max_examples=4)
    add(memory, [0.4, 0.1, 0.3, 0.2])
    add(memory, [0.05, 0.06], label=1)
    assert held(memory) == {0: [0.3, 0.4], 1: [0.05, 0.06]}


def test_what_is_erased_leaves_its_place():
    memory = Memory(Bright(2))
    add(memory, [0.5, 0.9], ids=["a", "b"])
    memory.erase(ids=["b"])
    add(memory, [0.1, 0.2], ids=["c", "b"])
    assert held(memory) == {0: [0.1, 0.5]}
    add(memory, [0.3], ids=["d"])
    assert held(memory) == {0: [0.3, 0.5]}


@pytest.mark.parametrize("twin", [copy.deepcopy, lambda each: pickle.loads(pickle.dumps(each))])
def test_a_copy_goes_on_by_itself(twin):
    memory = Memory(Bright(2))
    add(memory, [0.5, 0.9])
    other = twin(memory)
    add(memory, [0.7])
    add(other, [0.95, 0.6])
    assert held(memory) == {0: [0.7, 0.9]}
    assert held(other) == {0: [0.9, 0.95]}


def test_a_state_without_what_was_said_is_refused():
    memory = Memory(Bright(2))
    add(memory, [0.5, 0.9])
    for wrong in (np.zeros((1, 1), np.float32), np.full((2, 1), np.nan, np.float32), None):
        state = memory._ledger.state_dict()
        state["filing"]["described"] = wrong
        with pytest.raises(EngramError, match="The state's described are not as a memory writes"):
            Ledger(Bright(2)).load_state_dict(state)


def test_a_ledger_is_told_what_it_cannot_see():
    ledger = Ledger(Bright(1))
    with pytest.raises(EngramError, match="Bright looks at the examples; give `described`"):
        ledger.add(0, [1, 1])
    said = np.array([[0.5], [0.7]], np.float32)
    assert ledger.add(0, [1, 1], described=said).tolist() == [-1, 0]
    with pytest.raises(EngramError, match="describes an example by 2 numbers, and those held by 1"):
        ledger.add(0, [1], described=np.zeros((1, 2), np.float32))


class Odd(Bright):
    def describe(self, batch):
        return super().describe(batch) * torch.nan


def test_what_is_said_must_be_finite():
    memory = Memory(Odd(2))
    with pytest.raises(EngramError, match=r"Odd\.describe returned a value that is not finite"):
        add(memory, [0.5])
    assert len(memory) == 0
