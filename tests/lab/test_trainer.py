"""The loop over tasks and batches, apart from what it measures."""

import weakref

import pytest
import torch
from tiny_worlds import Tiny, tiny_spec

from engram.lab.benchmarks import Examples
from engram.lab.methods import names
from engram.lab.protocol import run


@pytest.mark.parametrize("method", names())
def test_one_task_is_gone_before_the_next_is_served(method, monkeypatch):
    """A stack's examples take gigabytes of a GPU: there may be no room for two tasks' at once."""
    served, draw = [], Tiny.training_examples

    def watched(self, task):
        assert all(array() is None for array in served)
        inputs, labels = draw(self, task)
        array = inputs.numpy().copy()
        served.append(weakref.ref(array))  # a tensor holds its array, and so does any view of it
        return Examples(torch.from_numpy(array), labels)

    monkeypatch.setattr(Tiny, "training_examples", watched)
    monkeypatch.setattr(Tiny, "joint_examples", watched)
    run(tiny_spec(method), [0, 1])
    assert len(served) == 3
