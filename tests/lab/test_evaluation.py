"""Test examples of several tasks at once are answered as those of one after the other."""

import pytest
import torch
from split_worlds import build, start

from engram import streams
from engram.methods import Method
from engram.protocol._accuracy import accuracies, curve_point


def counted(method, stream, task):
    """Each run's share of right answers, counted one by one; of AWA's, the mean over classes."""
    shares = []
    for run in range(len(stream.seeds)):
        right = {}
        for batch in stream.test(task):
            logits = method.predict(batch.inputs, batch.columns, task)[run]
            labels = batch.labels if batch.labels.ndim == 1 else batch.labels[run]
            outputs = stream.task_outputs(task)
            for scores, label in zip(logits, labels.tolist(), strict=True):
                among = range(len(scores)) if outputs is None else outputs[run].nonzero()
                best = max((int(output) for output in among), key=lambda output: scores[output])
                right.setdefault(label if batch.weights is not None else 0, []).append(
                    best == label
                )
        means = [sum(answers) / len(answers) for answers in right.values()]
        shares.append(sum(means) / len(means))
    return torch.tensor(shares, dtype=torch.float64)


def watched(method, monkeypatch):
    """Return the tasks that a method is asked for, and how many examples at once."""
    asked, predict = [], type(method).predict

    def noted(self, inputs, columns, task):
        logits = predict(self, inputs, columns, task)
        asked.append((task, logits.shape[1]))
        return logits

    monkeypatch.setattr(Method, "predict", noted)  # by which a method is known to be blind
    return asked


@pytest.mark.usefixtures("split_worlds", "flat")
@pytest.mark.parametrize(
    ("name", "seeds", "rows", "calls"),
    [
        ("split-cifar", (0, 1), 10_000, [(0, 40)]),
        ("split-cifar", (0, 1), 20, [(0, 20), (2, 20)]),
        ("split-cifar", (0, 1), 5, [(task, 10) for task in range(4)]),  # a task is never cut
        ("split-awa", (2,), 10_000, None),
    ],
)
def test_images_of_several_tasks_at_once(name, seeds, rows, calls, monkeypatch):
    stream = build(name, seeds, tasks=4)
    method = start(stream, name, "van")
    expected = torch.stack([counted(method, stream, task) for task in range(4)], 1)
    one_by_one = accuracies(method, stream, range(4))
    stream._test_rows = rows
    asked = watched(method, monkeypatch)
    at_once = accuracies(method, stream, range(4))
    assert len(asked) == 1 if calls is None else asked == calls
    torch.testing.assert_close(at_once, expected)
    assert at_once.equal(one_by_one)
    assert accuracies(method, stream, [2, 3]).equal(at_once[:, 2:])


@pytest.mark.parametrize(("at_once", "calls"), [(2, [0, 2]), (64, [0])])
def test_images_under_several_permutations_at_once(at_once, calls, monkeypatch, few_tests):
    stream = few_tests
    method = start(stream, "permuted-mnist", "van")
    expected = torch.stack([counted(method, stream, task) for task in range(3)], 1)
    stream._at_once = at_once
    asked = watched(method, monkeypatch)
    found = accuracies(method, stream, range(3))
    assert sorted({task for task, _ in asked}) == calls
    torch.testing.assert_close(found, expected)
    assert found.unique().numel() > 3  # they tell the tasks and the runs apart
    torch.testing.assert_close(curve_point(method, stream, 1), expected[:, 1])


@pytest.fixture
def few_tests(monkeypatch):
    mnist = streams._mnist.load_mnist()
    few = mnist._replace(test_images=mnist.test_images[:300], test_labels=mnist.test_labels[:300])
    monkeypatch.setattr("engram.streams._permuted.load_mnist", lambda: few)
    return build("permuted-mnist", (3, 4), tasks=3, examples=50)


@pytest.mark.usefixtures("split_worlds", "flat")
def test_who_asks_for_the_task_is_told_it():
    stream = build("split-cifar", tasks=4)
    stream._test_rows = 10_000
    told = []

    class Asking(type(start(stream, "split-cifar", "van"))):
        def predict(self, inputs, columns, task):
            told.append(task)
            return super().predict(inputs, columns, task)

    method = start(stream, "split-cifar", "van")
    method.__class__ = Asking
    accuracies(method, stream, range(4))
    assert told == [0, 1, 2, 3]
