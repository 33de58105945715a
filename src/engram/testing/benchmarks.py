"""The conformance kit for benchmarks: what makes numbers on one comparable, and honest."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from engram.errors import EngramError, shown
from engram.lab.benchmarks import Benchmark, Examples, Stream
from engram.lab.benchmarks import benchmark as find_benchmark
from engram.lab.settings import Settings
from engram.testing.assertions import equal, require

_SEED = 3


@dataclass(frozen=True)
class _Subject:
    """A benchmark in one of its settings, and how much of it is looked at."""

    benchmark: Benchmark
    settings: Settings
    tasks: int
    examples: int

    def stream(
        self, seeds: Sequence[int] = (_SEED,), *, tasks: int | None = None, tuning: bool = False
    ) -> Stream:
        """Return a fresh stream."""
        return self.benchmark.build(
            tuple(seeds),
            tasks or self.tasks,
            self.examples,
            settings=self.settings,
            tuning=tuning,
            device="cpu",
        )


def check_benchmark(
    benchmark: Benchmark | str,
    *,
    tasks: int = 2,
    examples: int = 20,
    **settings: Any,  # noqa: ANN401
) -> list[str]:
    """Check a benchmark on its first tasks and so many examples of each; return the checks done.

    A promise that is not kept raises an AssertionError that says which one and where. "tuning" is
    left out for a benchmark without tuning tasks.

    >>> check_benchmark("permuted-mnist")[:7]
    ['checksum', 'once', 'seeded', 'prefix', 'labels', 'joint', 'tests']
    """
    found = find_benchmark(benchmark) if isinstance(benchmark, str) else benchmark
    if not isinstance(found, Benchmark):
        raise EngramError(
            f"benchmark must be the name of one, or a Benchmark, not {shown(benchmark)}."
        )
    subject = _Subject(found, found.settings(**settings), tasks, examples)
    checks: dict[str, Callable[[_Subject], None]] = {
        "checksum": _checksum,
        "once": _once,
        "seeded": _seeded,
        "prefix": _prefix,
        "labels": _labels,
        "joint": _joint,
        "tests": _tests,
        "leak": _leak,
        "network": _network,
    }
    checks |= {"tuning": _tuning} if found.tuning_tasks else {}
    for check in checks.values():
        try:
            check(subject)
        except AssertionError as broken:
            raise AssertionError(f"{found.name} {broken}") from broken
    return list(checks)


def _rows(stream: Stream, examples: Examples) -> Counter[bytes]:
    """Return how often each input is among the first run's examples, as the network sees it."""
    seen = stream.batch(examples.inputs, examples.labels).inputs[0]
    return Counter(row.numpy().tobytes() for row in seen.flatten(1).cpu())


def _tested(stream: Stream, task: int) -> list[tuple[Tensor, Tensor]]:
    """Return the inputs and labels of each batch of a task's tests, of the first run."""
    found = []
    for batch in stream.test(task):
        labels = batch.labels[0] if batch.labels.dim() == 2 else batch.labels
        inputs = batch.inputs[0] if batch.labels.dim() == 2 else batch.inputs
        if batch.columns is not None:
            whole = inputs.new_zeros(len(inputs), stream.features)
            whole[:, batch.columns[0]] = inputs
            inputs = whole
        found.append((inputs, labels))
    return found


def _checksum(subject: _Subject) -> None:
    ours, theirs = (subject.benchmark.checksum(subject.settings) for _ in range(2))
    require(isinstance(ours, str) and bool(ours), f"has the checksum {shown(ours)}, not a text.")
    require(ours == theirs, "has another checksum when it is asked again.")


def _once(subject: _Subject) -> None:
    stream = subject.stream()
    for task in range(subject.tasks):
        length = stream.length(task)
        inputs, labels = stream.train(task)
        require(
            labels.shape == (1, length) == tuple(inputs.shape[:2]) and length >= 1,
            f"serves {list(labels.shape)} examples of task {task}, and says that it has {length}.",
        )
        require(
            length <= subject.examples,
            f"serves {length} examples of task {task} where {subject.examples} are asked for.",
        )
        try:
            stream.train(task)
        except EngramError:
            continue
        raise AssertionError(f"serves task {task} twice.")


def _served(stream: Stream, tasks: int) -> list[Examples]:
    return [Examples(*(part.clone() for part in stream.train(task))) for task in range(tasks)]


def _seeded(subject: _Subject) -> None:
    one, other = (_served(subject.stream(), subject.tasks) for _ in range(2))
    require(equal(one, other), "serves other examples when it is built again with the same seed.")
    different = _served(subject.stream([_SEED + 1]), subject.tasks)
    require(not equal(one, different), "serves the same examples in the same order to every seed.")
    try:
        both = _served(subject.stream([_SEED + 1, _SEED]), subject.tasks)
    except EngramError:  # whose tasks are not equally long: runs go one by one
        return
    mine = [Examples(*(part[1:] for part in each)) for each in both]
    require(equal(mine, one), "serves a seed other examples beside another one than alone.")


def _prefix(subject: _Subject) -> None:
    if subject.tasks < 2:
        return
    whole = _served(subject.stream(), subject.tasks)
    fewer = _served(subject.stream(tasks=subject.tasks - 1), subject.tasks - 1)
    require(
        equal(whole[:-1], fewer), "has other first tasks where fewer tasks are asked for in all."
    )


def _labels(subject: _Subject) -> None:
    stream = subject.stream()
    for task in range(subject.tasks):
        inputs, labels = stream.train(task)
        batch = stream.batch(inputs, labels)
        require(
            batch.inputs.is_floating_point() and bool(batch.inputs.isfinite().all()),
            f"has inputs of task {task} that are not finite floats.",
        )
        require(
            labels.dtype == torch.int64 and int(labels.min()) >= 0,
            f"has labels of task {task} that are no numbers of outputs.",
        )
        require(
            int(labels.max()) < stream.classes,
            f"has the label {int(labels.max())} in task {task}, and {stream.classes} classes.",
        )
        found = len(set(labels[0].tolist()))
        require(
            found <= stream.classes_per_task,
            f"has {found} classes in task {task}, and classes_per_task is "
            f"{stream.classes_per_task}.",
        )
        if batch.outputs is not None:
            own = batch.outputs.gather(-1, labels.unsqueeze(-1))
            require(bool(own.all()), f"rules out the label of an example of task {task} itself.")


def _joint(subject: _Subject) -> None:
    apart, together = Counter[bytes](), Counter[bytes]()
    stream, union = subject.stream(), subject.stream()
    for task in range(subject.tasks):
        apart += _rows(stream, stream.train(task))
        together += _rows(union, union.train_jointly(task))
    require(apart == together, "does not serve each example once in the union of all tasks.")
    try:
        union.train(0)
    except EngramError:
        return
    raise AssertionError("serves a task after the union of all tasks.")


def _tests(subject: _Subject) -> None:
    stream, silent = subject.stream(), subject.stream()
    for task in range(subject.tasks):
        first, second = _tested(stream, task), _tested(stream, task)
        require(equal(first, second), f"tests task {task} on other examples when asked again.")
        require(sum(len(labels) for _, labels in first) > 0, f"has nothing to test task {task} on.")
        allowed = stream.task_outputs(task)
        for inputs, labels in first:
            require(bool(inputs.isfinite().all()), f"has tests of task {task} that are not finite.")
            inside = int(labels.min()) >= 0 and int(labels.max()) < stream.classes
            require(inside, f"has a test of task {task} whose label is no output.")
            if allowed is not None:
                require(
                    bool(allowed[0][labels].all()), f"rules out the label of a test of task {task}."
                )
    require(
        equal(_served(stream, subject.tasks), _served(silent, subject.tasks)),
        "serves other examples once its tests were asked for.",
    )


def _leak(subject: _Subject) -> None:
    stream = subject.stream()
    for task in range(subject.tasks):
        trained = _rows(stream, stream.train(task))
        for inputs, _ in _tested(stream, task):
            rows = Counter(row.numpy().tobytes() for row in inputs.float().flatten(1).cpu())
            shared = len(rows.keys() & trained.keys())
            require(not shared, f"tests task {task} on {shared} examples that it trains on.")


def _network(subject: _Subject) -> None:
    stream = subject.stream()
    batch = stream.batch(*(part[:, :4] for part in stream.train(0)))
    network = stream.network()
    parameters = stream.initialise(network, _SEED).unsqueeze(0)
    require(
        torch.equal(parameters[0], stream.initialise(stream.network(), _SEED)),
        "begins with other parameters when it is built again with the same seed.",
    )
    with torch.no_grad():
        buffers = network.initial_buffers(parameters)
        logits, _ = network.forward(parameters, batch.inputs, buffers)
    shape = [1, batch.labels.shape[1], stream.classes]
    require(
        list(logits.shape) == shape,
        f"has a network that gives logits {list(logits.shape)}, not {shape}.",
    )
    require(bool(logits.isfinite().all()), "has a network whose first logits are not finite.")


def _tuning(subject: _Subject) -> None:
    stream = subject.stream()
    tasks = min(subject.tasks, subject.benchmark.tuning_tasks)
    tuning = subject.stream(tasks=tasks, tuning=True)
    trained = Counter[bytes]()
    for task in range(subject.tasks):
        trained += _rows(stream, stream.train(task))
    for task in range(tasks):
        shared = len(_rows(tuning, tuning.train(task)).keys() & trained.keys())
        require(not shared, f"tunes on {shared} examples that it trains on, in task {task}.")
