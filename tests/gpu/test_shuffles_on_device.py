"""On a GPU: the reference batches of a task are the very ones that a CPU draws."""

import numpy as np
import pytest
import torch

from engram.lab.engine import replay_plan
from engram.lab.plan import generator, subsets

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")


@pytest.mark.parametrize("room", [2**14, 2**27])
@pytest.mark.parametrize(
    ("rows", "count", "size"), [(40, 8, 9), (55, 256, 257), (300, 256, 4000), (3, 30, 2**15 + 1)]
)
def test_a_gpu_draws_the_same(rows, count, size, room, monkeypatch):
    monkeypatch.setattr(replay_plan, "_ROOM", room)
    alone = [subsets(generator(seed, "test"), rows, count, size) for seed in range(3)]
    sources = [generator(seed, "test") for seed in range(3)]
    drawn = replay_plan.shuffled(sources, rows, count, size, torch.device("cuda"))
    assert (drawn.cpu().numpy() == np.stack(alone)).all()
