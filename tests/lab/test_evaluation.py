"""Test examples of several tasks at once are answered as those of one after the other."""

from typing import ClassVar

import pytest
import torch
from split_worlds import build, start

from engram.errors import EngramError
from engram.lab import benchmarks
from engram.lab.benchmarks.split import joined_tests
from engram.lab.methods import FinishedTask, Method, method_entry
from engram.lab.protocol.evaluation import accuracies, curve_point

pytestmark = pytest.mark.numerical


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
        ("split-cifar", (0, 1), 5, [(task, 10) for task in range(4)]),
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
def few_tests(few_mnist):
    few_mnist(300)
    return build("permuted-mnist", (3, 4), tasks=3, examples=50)


class Asking(method_entry("van").build):
    """Has a ``predict`` of its own."""

    told: ClassVar[list[int]] = []

    def predict(self, inputs, columns, task):
        self.told.append(task)
        assert columns is None or columns.ndim == 2
        return super().predict(inputs, columns, task)


@pytest.mark.usefixtures("split_worlds", "flat")
def test_who_asks_for_the_task_is_told_it():
    stream = build("split-cifar", tasks=4)
    stream._test_rows = 10_000
    method = start(stream, "split-cifar", "van")
    expected = accuracies(method, stream, range(4))
    method.__class__ = Asking
    Asking.told.clear()
    assert accuracies(method, stream, range(4)).equal(expected)
    assert Asking.told == [0, 1, 2, 3]


@pytest.mark.parametrize("name", ["prog-nn", "icarl", "asking"])
def test_nor_is_it_shown_more_than_one_permutation_at_once(name, few_tests):
    method = start(few_tests, "permuted-mnist", "van" if name == "asking" else name)
    if name == "asking":
        method.__class__ = Asking
    for task in range(2):
        examples = few_tests.train(task)
        method.begin_task(task, examples.labels)
        with torch.no_grad():
            for step in range(5):
                part = slice(10 * step, 10 * step + 10)
                stored, labels = (half[:, part] for half in examples)
                method.observe(step, stored, few_tests.batch(stored, labels))
            method.end_task(task, FinishedTask(examples))
    expected = accuracies(method, few_tests, range(2))
    few_tests._at_once = 64
    with torch.no_grad():
        assert accuracies(method, few_tests, range(2)).equal(expected)


def test_nor_where_its_predict_is_the_instance_s(few_tests):
    method, told = start(few_tests, "permuted-mnist", "van"), []
    predict = method.predict
    assert method.task_blind
    method.predict = lambda *given: told.append(given[-1]) or predict(*given)
    few_tests._at_once = 64
    accuracies(method, few_tests, range(3))
    assert sorted(set(told)) == [0, 1, 2]


class Fewer(benchmarks.PermutedMnist):
    """Has a ``test`` of its own."""

    def test(self, task, *, curve=False):
        return super().test(task, curve=curve)[:1]


class FewerImages(benchmarks.benchmark("split-cifar").build):
    """Has one too."""

    def test(self, task, *, curve=False):
        for batch in super().test(task, curve=curve):
            yield batch._replace(inputs=batch.inputs[:, :3], labels=batch.labels[:, :3])


@pytest.mark.parametrize(
    ("kind", "name", "fixtures"),
    [
        (Fewer, "permuted-mnist", ["few_tests"]),
        (FewerImages, "split-cifar", ["split_worlds", "flat"]),
    ],
)
def test_a_stream_s_own_test_is_what_is_measured(kind, name, fixtures, request):
    for fixture in fixtures:
        request.getfixturevalue(fixture)
    stream = kind((3, 4), 3, 50)
    method = start(stream, name, "van")
    expected = torch.stack([counted(method, stream, task) for task in range(3)], 1)
    stream._at_once = stream._test_rows = 64
    torch.testing.assert_close(accuracies(method, stream, range(3)), expected)


def test_a_batch_that_is_too_large_stays_as_it_is():
    pieces = {0: (5, 5, 2), 1: (1,), 2: (2, 2), 3: (7,), 4: (1,)}
    batches = {
        task: [
            benchmarks.TestBatch(torch.full((count, 1), task), torch.full((count,), task))
            for count in of
        ]
        for task, of in pieces.items()
    }
    joined = list(joined_tests(list(pieces), batches.get, 4))
    assert [parts for _, parts in joined] == [
        *({0: 5}, {0: 5}, {0: 2, 1: 1}),
        *({2: 4}, {3: 7}, {4: 1}),
    ]
    for batch, parts in joined:
        expected = [task for task, count in parts.items() for _ in range(count)]
        assert batch.labels.tolist() == batch.inputs[:, 0].tolist() == expected


def test_a_task_without_test_examples_is_named(few_tests, monkeypatch):
    method = start(few_tests, "permuted-mnist", "van")
    test = few_tests.test
    monkeypatch.setattr(few_tests, "test", lambda task, **_: [] if task == 1 else test(task))
    with pytest.raises(EngramError, match="task 1 must have test examples"):
        accuracies(method, few_tests, range(3))
