"""What a stream of tasks promises, and what a benchmark is before a stream of it is built."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from torch import Tensor

from engram.errors import EngramError, shown
from engram.lab.networks import Network
from engram.lab.plan import generator
from engram.lab.settings import Settings, check_whole
from engram.lab.targets import Target

PERCEPTRONS = 64  # that train as one on a GPU: twice as fast, a run, as five
RESNETS = 5  # the same of reduced residual networks: the most that were measured
OTHER = "other-"  # in front of the checksum of data that is known not to be the paper's
_MOST_TASKS = 10_000  # of which the accuracies of one run take 800 MB


class Batch(NamedTuple):
    """Examples as R stacked networks see them, for one row of gradients or for several.

    With ``groups`` > 1 the batch is that many equal parts, each with a loss and a row of its own.
    ``weights`` [R, B] is each example's share of its part's mean, where the parts are not equally
    long (they are padded with examples of weight 0); None is the plain mean. ``outputs``
    [R, B, classes] marks the outputs that an example is classified among, those of its own task;
    None is all of them.
    """

    inputs: Tensor  # [R, B, ...], float
    labels: Tensor  # [R, B], int64: the number of an output
    weights: Tensor | None = None
    groups: int = 1
    outputs: Tensor | None = None
    target: Target | None = None  # what the outputs are to answer; None: the classes of ``labels``
    targets: Tensor | None = None  # [R, B, outputs], where that is something else


class Examples(NamedTuple):
    """The training examples of one task for R runs, each run's in the order it is to see them."""

    inputs: Tensor  # [R, N, ...], as stored (8 bits for images)
    labels: Tensor  # [R, N], int64


class TestBatch(NamedTuple):
    """Test examples that all runs share, up to which input feature is where, or each run's own.

    Features that are zero in the whole batch may be left out: ``columns[r, i]`` is the place
    that column i of ``inputs`` has in run r's input. None: nothing left out, nothing moved. With
    ``columns[r, g, i]`` the same inputs are G times as many examples: first all of them by the
    first columns, and so on. ``weights`` is each example's share of its task's accuracy, where they
    are not all equal.
    """

    inputs: Tensor  # [B, ...] or [R, B, ...], float
    labels: Tensor  # [B] or [R, B], int64
    columns: Tensor | None = None  # [R, features] or [R, G, features]
    weights: Tensor | None = None  # [R, B]


class Stream(ABC):
    """T tasks for each of R runs; a training example is served once.

    ``batch`` turns stored inputs into what the network sees. A label is the number of an output;
    where every task has outputs of its own, ``outputs`` and ``task_outputs`` say which.
    """

    most_examples: int  # in one task
    classes: int  # outputs of the network
    classes_per_task: int  # at most
    features: int  # length of a flat input
    target: Target | None = None  # labels or numbers; None: classes, each label being an output
    passes: int = 1  # over each task's examples, of which a memory is offered each once
    patience: int = 0  # passes without an improvement after which a task ends; 0: it takes all

    def __init__(self, seeds: Sequence[int], tasks: int, examples: int) -> None:
        check_each_seed(seeds)
        check_tasks(tasks)
        check_whole("examples", examples)
        if not 1 <= examples <= self.most_examples:
            raise EngramError(
                f"examples must be from 1 to {self.most_examples} for each task, not {examples}."
            )
        self.seeds = tuple(seeds)
        self.tasks = tasks
        self.examples = examples
        self._served: set[int] = set()
        self._jointly: bool | None = None  # how examples are served; None: nothing was, yet

    def length(self, task: int) -> int:  # noqa: ARG002
        """Return how many training examples a task, or a part of the union, has."""
        return self.examples

    def train(self, task: int) -> Examples:
        """Return the task's training examples. Asking again for the same task is an error."""
        self._serve_once(task, jointly=False)
        return self.training_examples(task)

    def train_jointly(self, part: int) -> Examples:
        """Return one of T equal parts of the shuffled union of all tasks, once."""
        self._serve_once(part, jointly=True)
        return self.joint_examples(part)

    def _serve_once(self, task: int, *, jointly: bool) -> None:
        self._check_task(task)
        # A part of the union holds examples of every task: after one way, the other serves some
        # of them again.
        if task in self._served or self._jointly is (not jointly):
            raise EngramError(
                f"The training examples of task {task} were served already: "
                "a benchmark allows one pass over each."
            )
        self._served.add(task)
        self._jointly = jointly

    def _check_task(self, task: int) -> None:
        check_whole("task", task)
        if not 0 <= task < self.tasks:
            raise EngramError(f"task must be from 0 to {self.tasks - 1}, not {task}.")

    @abstractmethod
    def training_examples(self, task: int) -> Examples:
        """Return the training examples of a task, in each run's order; `train` serves them once."""

    @abstractmethod
    def joint_examples(self, part: int) -> Examples:
        """Return one of T equal parts of each run's shuffled union of all tasks."""

    @abstractmethod
    def test(self, task: int, *, curve: bool = False) -> Iterable[TestBatch]:
        """Return the task's test examples, in batches of a size that suits the device.

        With ``curve`` those that a point of the learning curve is measured on, maybe fewer.
        """

    def tests(self, tasks: Sequence[int]) -> Iterator[tuple[TestBatch, Mapping[int, int]]]:
        """Yield the test examples of several tasks, in batches of a size that suits the device.

        With each come the tasks that it has examples of, in that order, and how many of each. They
        are the ones that ``test`` has, and come one task after the other where that is one's own.
        """
        for task in tasks:
            for batch in self.test(task):
                yield batch, {task: batch.labels.shape[-1]}

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of one example as a network sees it."""
        return (self.features,)

    def held_out(self, tasks: Sequence[int]) -> Iterable[tuple[TestBatch, Mapping[int, int]]]:
        """Return what a stream with ``patience`` holds out of tasks' training, as `tests` does."""
        raise EngramError(f"{type(self).__name__} holds nothing out of the training of {tasks}.")

    @abstractmethod
    def network(self) -> Network:
        """Return the network that the paper's runs train on this stream."""

    def facts(self) -> dict[str, float | str]:
        """Return what results should say of the data, by name."""
        return {}

    def initialise(self, network: Network, seed: int) -> Tensor:
        """Return the parameters [d] that a run starts with."""
        return network.initialise(generator(seed, "parameters"))

    def initial_buffers(self, network: Network, parameters: Tensor) -> Tensor:
        """Return the buffers [R, b] that the runs start with, beside their parameters [R, d]."""
        sources = [generator(seed, "parameters") for seed in self.seeds]
        return network.initial_buffers(parameters, sources)

    def batch(self, stored: Tensor, labels: Tensor) -> Batch:
        """Return stored examples, [R, B, ...] and [R, B], as the network learns from them."""
        inputs = self.augmented(self.normalise(stored))
        if self.target is None:
            return Batch(inputs, labels, outputs=self.outputs(labels))
        return Batch(inputs, labels, target=self.target, targets=self.targets(labels))

    def augmented(self, inputs: Tensor) -> Tensor:
        """Return the inputs of a training batch, [R, B, ...], changed at random if at all."""
        return inputs

    def targets(self, labels: Tensor) -> Tensor:  # noqa: ARG002
        """Return what examples are to be answered with, where the stream has a ``target``.

        Their labels are then no classes, but whatever the stream knows the examples by.
        """
        raise EngramError(f"{type(self).__name__} has classes alone, and no targets.")

    def groups(self, labels: Tensor) -> Tensor:
        """Return what a memory by class takes for the classes of examples, [R, N]."""
        return labels

    def outputs(self, labels: Tensor) -> Tensor | None:  # noqa: ARG002
        """Return the outputs that examples of these labels are classified among (see Batch)."""
        return None

    def task_outputs(self, task: int) -> Tensor | None:  # noqa: ARG002
        """Return which outputs a task has, [R, classes]; None: all."""
        return None

    @abstractmethod
    def normalise(self, inputs: Tensor) -> Tensor:
        """Turn stored inputs into the floats that the network sees."""

    def state_dict(self) -> dict[str, Any]:
        """Return what the stream has to know in the middle of a run, for a checkpoint."""
        return {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:  # noqa: B027 (may be nothing)
        """Go on from where ``state_dict`` was taken, in the task that was begun last."""


@dataclass(frozen=True)
class Benchmark:
    """A benchmark by name: its settings, how large it is, and how to build a stream of it.

    ``build(seeds, tasks, examples, settings=, tuning=, device=)`` makes the stream: with
    ``tuning`` one of tuning tasks, which holds no training task. ``checksum(settings)`` names the
    data under it.
    """

    name: str
    settings: type[Settings]
    paper_tasks: int  # unless it is said how many
    most_examples: int  # in one task
    build: Callable[..., Stream]
    checksum: Callable[[Any], str]
    most_tasks: int | None = None  # None: as many as are asked for
    tuning_tasks: int = 3
    stacks: int = 1  # the most runs of its network that train as one on a GPU
    like: str | None = None  # the paper's whose settings of the methods are the presets here
    most_passes: int = 1  # over each task's examples, apart from tuning


def data_name(checksum: str, *, papers: bool) -> str:
    """Return what results are filed under: the checksum, marked where the data is not the paper's.

    >>> data_name("3d64", papers=False)
    'other-3d64'
    """
    return checksum if papers else f"{OTHER}{checksum}"


def check_tasks(tasks: int) -> None:
    """Refuse what is no possible number of tasks."""
    check_whole("tasks", tasks)
    if tasks < 1:
        raise EngramError(f"tasks must be at least 1, not {tasks}.")
    if tasks > _MOST_TASKS:
        raise EngramError(f"tasks must be at most {_MOST_TASKS:,}, not {tasks}.")


def check_each_seed(seeds: object) -> None:
    """Refuse what are no seeds of runs."""
    some = list(seeds) if isinstance(seeds, Sequence) else []
    if not some or not all(isinstance(seed, int) and seed >= 0 for seed in some):
        given = some or shown(seeds)
        raise EngramError(f"seeds must be whole numbers of at least 0, one or more, not {given}.")
