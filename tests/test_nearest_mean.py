"""Answers by the nearest mean of what a memory holds."""

import pytest
import torch
from torch import nn

from engram import Learner, NearestMean
from engram.errors import EngramError
from engram.memory import ClassRing, Memory, Reservoir
from engram.rules import Equal

pytestmark = pytest.mark.numerical


def batch(seed, count=12):
    source = torch.Generator().manual_seed(seed)
    inputs = torch.randn(count, 4, generator=source, dtype=torch.float64)
    return inputs, torch.randint(3, (count,), generator=source)


def build():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 5), nn.BatchNorm1d(5), nn.Linear(5, 3)).double()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    return Learner(model, optimizer, Equal(), Memory(ClassRing(2)))


def trained(tasks=2):
    learner = build()
    for task in range(tasks):
        for step in range(3):
            learner.observe(*batch(10 * task + step), task=task)
        learner.end_task()
    return learner


def by_hand(learner, inputs, features, tasks):
    """Distances to the mean of each task's and class's examples, the least over the tasks."""
    learner.model.eval()
    sample = learner.memory.read(range(len(learner.memory)))
    held, outputs = features(sample.batch[0]), features(inputs)
    found = torch.full((len(inputs), 3), torch.inf, dtype=torch.float64)
    for task in tasks:
        for label in range(3):
            mine = held[(sample.tasks == task) & (sample.labels == label)]
            if len(mine):
                distance = (outputs - mine.mean(0)).norm(dim=1)
                found[:, label] = torch.minimum(found[:, label], distance)
    learner.model.train()
    return -found


def test_the_nearest_mean_of_each_class_decides_at_the_weights_of_the_refresh():
    learner = trained()
    classify, inputs = NearestMean(learner.model, learner.memory), batch(99)[0]
    for task, tasks in ((None, (0, 1)), (0, (0,)), (1, (1,))):
        expected = by_hand(learner, inputs, learner.model, tasks).detach()
        torch.testing.assert_close(classify(inputs, task=task), expected)
    assert learner.model.training
    learner.observe(*batch(50), task=2)
    classify.refresh()
    expected = by_hand(learner, inputs, learner.model, (0, 1, 2)).detach()
    torch.testing.assert_close(classify(inputs), expected)


def test_features_of_a_layer_may_be_compared_instead():
    learner = trained()
    first = learner.model[0]
    classify = NearestMean(learner.model, learner.memory, features=first)
    inputs = batch(99)[0]
    torch.testing.assert_close(classify(inputs), by_hand(learner, inputs, first, (0, 1)).detach())


def test_what_has_no_means_is_refused():
    learner = build()
    classify = NearestMean(learner.model, learner.memory)
    with pytest.raises(EngramError, match="holds no example"):
        classify(batch(0)[0])
    learner = trained()
    with pytest.raises(EngramError, match="no example of task 7"):
        NearestMean(learner.model, learner.memory)(batch(0)[0], task=7)
    with pytest.raises(EngramError, match="must be a Memory"):
        NearestMean(learner.model, [])
    unlabelled = Memory(Reservoir(5))
    unlabelled.add((torch.zeros(2, 4), torch.zeros(2, 3)))
    with pytest.raises(EngramError, match="no labels"):
        NearestMean(nn.Identity(), unlabelled)(torch.zeros(1, 4))
    single = Memory(Reservoir(5))
    single.add(torch.zeros(2, 4))
    with pytest.raises(EngramError, match=r"\(\*inputs, classes\)"):
        NearestMean(nn.Identity(), single)(torch.zeros(1, 4))
