"""What a stream of tasks promises."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import ClassVar, NamedTuple

from torch import Tensor

from engram.errors import EngramError
from engram.models import Network
from engram.settings import Settings


class Examples(NamedTuple):
    """The training examples of one task for R runs, each run's in the order it is to see them."""

    inputs: Tensor  # [R, N, ...], as stored (8 bits for images)
    labels: Tensor  # [R, N], int64


class TestBatch(NamedTuple):
    """Test examples that all runs share, up to which input feature is where.

    Features that are zero in the whole batch may be left out: ``columns[r, i]`` is the place
    that column i of ``inputs`` has in run r's input. None: nothing left out, nothing moved.
    """

    inputs: Tensor  # [B, ...], float
    labels: Tensor  # [B], int64
    columns: Tensor | None  # [R, features]


class Stream(ABC):
    """T tasks for each of R runs; a training example is served once.

    ``normalise`` turns stored inputs into what the network sees.
    """

    name: ClassVar[str]
    settings: ClassVar[type[Settings]]
    paper_tasks: ClassVar[int]
    most_examples: ClassVar[int]  # in one task
    stacks: ClassVar[bool]  # whether runs of its network train as one on a GPU
    classes: int  # outputs of the network
    features: int  # length of a flat input

    def __init__(self, seeds: Sequence[int], tasks: int, examples: int) -> None:
        if not seeds or not all(isinstance(seed, int) and seed >= 0 for seed in seeds):
            raise EngramError(
                f"seeds must be whole numbers of at least 0, one or more, not {list(seeds)}."
            )
        if tasks < 1:
            raise EngramError(f"tasks must be at least 1, not {tasks}.")
        if not 1 <= examples <= self.most_examples:
            raise EngramError(
                f"examples must be from 1 to {self.most_examples} for each task, not {examples}."
            )
        self.seeds = tuple(seeds)
        self.tasks = tasks
        self.examples = examples
        self._served: set[int] = set()
        self._jointly: bool | None = None  # how examples are served; None: nothing was, yet

    def train(self, task: int) -> Examples:
        """Return the task's training examples. Asking again for the same task is an error."""
        self._serve_once(task, jointly=False)
        return self._training_examples(task)

    def train_jointly(self, part: int) -> Examples:
        """Return one of T equal parts of the shuffled union of all tasks, once."""
        self._serve_once(part, jointly=True)
        return self._joint_examples(part)

    def _serve_once(self, task: int, *, jointly: bool) -> None:
        if not 0 <= task < self.tasks:
            raise EngramError(f"task must be from 0 to {self.tasks - 1}, not {task}.")
        # A part of the union holds examples of every task: after one way, the other serves some
        # of them again.
        if task in self._served or self._jointly is (not jointly):
            raise EngramError(
                f"The training examples of task {task} were served already: "
                "a benchmark allows one pass over each."
            )
        self._served.add(task)
        self._jointly = jointly

    @abstractmethod
    def _training_examples(self, task: int) -> Examples: ...

    @abstractmethod
    def _joint_examples(self, part: int) -> Examples: ...

    @abstractmethod
    def test(self, task: int, *, curve: bool = False) -> list[TestBatch]:
        """Return the task's test examples, in batches of a size that suits the device.

        With ``curve`` those that a point of the learning curve is measured on, maybe fewer.
        """

    @abstractmethod
    def network(self) -> Network:
        """Return the network that the paper's runs train on this stream."""

    @abstractmethod
    def normalise(self, inputs: Tensor) -> Tensor:
        """Turn stored inputs into the floats that the network sees."""
