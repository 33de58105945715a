"""Many runs' reference batches, shuffled at once, are the ones that each draws by itself."""

import numpy as np
import pytest
import torch

from engram.lab.engine import replay_plan
from engram.lab.plan import generator, subsets

SIZES = [(40, 8, 9), (3, 256, 257), (1, 1, 1000), (3, 30, 2**15), (3, 30, 2**15 + 1)]


@pytest.mark.parametrize("room", [1, 2**14, 2**27])
@pytest.mark.parametrize(("rows", "count", "size"), SIZES)
def test_they_are_the_same(rows, count, size, room, monkeypatch):
    monkeypatch.setattr(replay_plan, "_ROOM", room)
    alone = [subsets(generator(seed, "test"), rows, count, size) for seed in range(3)]
    sources = [generator(seed, "test") for seed in range(3)]
    drawn = replay_plan.shuffled(sources, rows, count, size, torch.device("cpu"))
    assert drawn.dtype == torch.int64
    assert (drawn.numpy() == np.stack(alone)).all()
