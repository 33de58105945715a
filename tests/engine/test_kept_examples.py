"""What a task leaves in the memory is planned without a look at what cannot stay."""

import numpy as np
import pytest

from engram.lab.engine.replay_plan import kept_slots
from engram.memory import ClassRing, ClassSample, Ledger


def labels_of(kind, rng, count):
    if kind == "even":
        return rng.integers(0, 10, count)
    if kind == "one class":
        return np.full(count, 3)
    return np.minimum(rng.geometric(0.6, count), 12)  # some classes are rare, or missing


@pytest.mark.parametrize("kind", ["even", "one class", "uneven"])
@pytest.mark.parametrize("policy", [ClassRing(1), ClassRing(3), ClassRing(25), ClassSample(3)])
@pytest.mark.parametrize("count", [1, 40, 997])
def test_it_is_what_stays_when_everything_is_offered(kind, policy, count):
    rng = np.random.default_rng(0)
    planned, offered = (Ledger(policy, seed=1) for _ in range(2))
    for task in (0, 1, 2, 1):  # a task may be taken up again
        labels = labels_of(kind, rng, count)
        ours = kept_slots([planned], task, labels[np.newaxis])
        assert ours.tolist() == [offered.add(np.full(count, task), labels).tolist()]
        for ledger in (planned, offered):
            ledger.end_task()
        assert planned.available == offered.available
        assert {key: held.tolist() for key, held in planned.slots_by_task().items()} == {
            key: held.tolist() for key, held in offered.slots_by_task().items()
        }
