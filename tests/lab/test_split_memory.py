"""What the methods with a memory keep of the image benchmarks, and what a step reads of it."""

from collections import defaultdict

import pytest
from split_worlds import build, marks, start

from engram.lab.benchmarks import benchmark

SIZE = 10  # of a batch

pytestmark = pytest.mark.usefixtures("split_worlds", "flat")


@pytest.fixture(autouse=True)
def plain(flat, monkeypatch):  # noqa: ARG001 (which comes first)
    """Let the streams pass images on as they are, so that their marks can be read."""
    for name in ("split-cifar", "split-cub", "split-awa"):
        monkeypatch.setattr(benchmark(name).build, "normalise", lambda _, inputs: inputs)


def play(name, tasks, seed=0):
    """Play tasks through a memory; return what came, and what every step read, by task.

    Images are told by their output and their number. A network takes no part.
    """
    stream = build(name, [seed], tasks)
    method = start(stream, name, "mega-ii")
    came, read = [], []
    for task in range(tasks):
        inputs, labels = method.stage_examples(stream.train(task))
        method.begin_task(task, labels)
        came.append(named(inputs, labels))
        read.append([])
        for step in range(-(-labels.shape[1] // SIZE)):
            batch = method.bank.reference(step)
            read[-1].append([] if batch is None else named(batch.inputs, batch.labels))
        method.bank.end_task()
    return came, read


def named(inputs, labels):
    """Return (output, number) of each image; its mark must agree with its label."""
    outputs, found = labels[0].tolist(), marks(inputs[0])
    assert all((output - kind) % 50 == 0 for output, (kind, _) in zip(outputs, found, strict=True))
    return [(output, number) for output, (_, number) in zip(outputs, found, strict=True)]


def by_class(images):
    groups = defaultdict(list)
    for output, number in images:
        groups[output].append(number)
    return groups


@pytest.mark.parametrize(
    ("name", "per_task", "most"), [("split-cifar", 65, 256), ("split-cub", 50, 128)]
)
def test_a_step_reads_all_of_the_finished_tasks_and_then_so_many(name, per_task, most):
    came, read = play(name, 6)
    for task in range(6):
        held = task * per_task
        assert {len(batch) for batch in read[task]} == {min(held, most)}
        for batch in read[task]:
            assert len(set(batch)) == len(batch)  # without replacement
            assert set(batch) <= {image for earlier in came[:task] for image in earlier}
        drawn = {frozenset(batch) for batch in read[task]}
        assert len(drawn) == (len(read[task]) if held > most else 1)  # afresh in each step


def test_cifar_keeps_the_last_of_each_class():
    came, read = play("split-cifar", 4)
    for task in range(4):
        groups = [group.items() for group in map(by_class, came[:task])]
        wanted = {(output, n) for group in groups for output, ns in group for n in ns[-13:]}
        assert all(set(batch) == wanted for batch in read[task])


def test_cub_keeps_a_sample_of_each_class():
    came, read = play("split-cub", 3)
    places = set()
    for task in range(3):
        held = by_class(read[task][0])
        assert held.keys() == {output for earlier in came[:task] for output, _ in earlier}
        for output, numbers in held.items():
            (numbers_of,) = (group[output] for group in map(by_class, came) if output in group)
            (left,) = set(numbers_of) - set(numbers)  # one of six
            places.add(numbers_of.index(left))
    assert len(places) == 6  # any of them, not the first as in a ring


def test_awa_keeps_twenty_of_each_class_or_all_there_are():
    came, read = play("split-awa", 17, seed=1)
    sizes = [sum(min(20, len(group)) for group in by_class(task).values()) for task in came]
    for task in range(17):
        assert {len(batch) for batch in read[task]} == {min(sum(sizes[:task]), 128)}
        earlier = {image for images in came[:task] for image in images}
        assert all(set(batch) <= earlier for batch in read[task])
    assert sum(sizes) > 2 * 128
