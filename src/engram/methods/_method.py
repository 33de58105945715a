"""What a method is, and the register of their names."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple

from torch import Tensor

from engram.engine import Bank, Batch, ByRun, Rows, RuleByRun
from engram.errors import EngramError, unknown
from engram.gradients import Mix
from engram.models import Network
from engram.rules import Rule
from engram.settings import Scalar, Settings, setting
from engram.streams import Examples, Stream


@dataclass(frozen=True)
class MethodSettings(Settings):
    """What every method can be told."""

    learning_rate: float = setting(0.1, "step size of plain SGD, constant", above=0)
    batch_size: int = setting(10, "examples of the current task in a step", least=1)


class Setup(NamedTuple):
    """What a method is built from: R networks in one, and the shape of the stream to come.

    Runs may differ in the settings that the method's `Entry` says they may. It asks for those
    here: the settings that it is built with are the first run's.
    """

    network: Network
    parameters: Tensor  # [R, d], updated in place
    seeds: Sequence[int]
    stream: Stream
    each: Sequence[Any] = ()  # every run's settings, where they differ

    def number(self, settings: Any, name: str) -> ByRun:  # noqa: ANN401 (each has its own)
        """Return a setting: a number or, where runs differ in it, a tensor [R, 1]."""
        values = [getattr(one, name) for one in self.each or (settings,)]
        if len(set(values)) == 1:
            number: float = values[0]
            return number
        return self.parameters.new_tensor(values).unsqueeze(1)

    def rule(self, settings: Any, make: Callable[[Any], Rule]) -> Rule:  # noqa: ANN401
        """Return the rule that is made of the settings, or of each run's where those differ."""
        rules = [make(one) for one in self.each or (settings,)]
        return rules[0] if all(rule == rules[0] for rule in rules) else RuleByRun(rules)


class Method(ABC):
    """Learns R runs of a stream of tasks, one batch at a time.

    A step is ``observe``. Around a task come ``begin_task``, which is told the labels to come
    (so that what will be remembered can be planned) but sees no input, and ``end_task``, which
    is handed the task's data through the one counted door.
    """

    state: ClassVar[tuple[str, ...]] = ("parameters", "buffers")
    """The attributes that a checkpoint holds: tensors, or what JSON can hold."""

    capturable: bool = False
    """Whether a step may be recorded once and replayed.

    Such a step reads nothing back to the host, and what it takes from ``step`` is told by
    ``kind``; whatever else depends on it goes by ``position``, the step's number on the device.
    """

    settled: bool = False
    """Whether what it predicts of a task is, once that has ended, the same for ever.

    Bit for bit: the accuracy of a finished task is then measured once, and holds from there on.
    """

    def __init__(self, setup: Setup, settings: Any) -> None:  # noqa: ANN401 (each has its own)
        self.network = setup.network
        self.parameters = setup.parameters
        self.rows = Rows(setup.network, setup.parameters)
        self.buffers = self.rows.buffers  # [R, b], the network's running averages
        self.settings = settings
        self.learning_rate = setup.number(settings, "learning_rate")

    def begin_task(self, task: int, labels: Tensor) -> None:  # noqa: B027 (may do nothing)
        """Get ready for a task whose labels, in order, will be [R, N]."""

    @abstractmethod
    def observe(self, step: int, stored: Tensor, batch: Batch) -> Mix:
        """Learn batch ``step`` of a task; ``stored`` are its inputs as the stream has them."""

    def end_task(self, task: int, finished: FinishedTask) -> None:  # noqa: B027
        """Do what a method does with a task's data when it ends."""

    def kind(self, step: int) -> Hashable:  # noqa: ARG002
        """Tell steps apart that do other work; steps of one kind differ in their data alone."""
        return None

    def locate(self, position: Tensor | None) -> None:  # noqa: B027
        """Take the number of the step in hand from the device, or (None) from ``step`` again."""

    def begin_evaluation(self) -> None:  # noqa: B027
        """Get ready to predict at the present weights, which replayed steps may have moved."""

    def predict(
        self,
        inputs: Tensor,
        columns: Tensor | None,
        task: int | None,  # noqa: ARG002
    ) -> Tensor:
        """Return logits [R, B, classes] for test inputs [B, ...] of a task (see TestBatch).

        None: the task is not known. A method that cannot do without says so in an EngramError. A
        ``predict`` of one's own is shown one task at a time, and ``columns`` [R, features].
        """
        return self.network.predict(self.parameters, inputs, columns, self.buffers)

    @property
    def task_blind(self) -> bool:
        """Whether it predicts all tasks alike, so that those of several can be predicted at once.

        It does unless it has a ``predict`` of its own.
        """
        return getattr(self.predict, "__func__", None) is Method.predict

    def facts(self) -> dict[str, int]:
        """Return what the method holds, for one run: ``state_bytes`` is all but the parameters.

        Examples of its tasks are none of it; a method that keeps any tells ``memory_bytes``.
        """
        held = [getattr(self, name) for name in self.state if name != "parameters"]
        tensors = [value for value in held if isinstance(value, Tensor)]
        own = sum(tensor.nbytes for tensor in tensors) // len(self.parameters)
        return {"parameters": self.network.size, "state_bytes": own}

    def state_dict(self) -> dict[str, Any]:
        """Return everything the next step depends on, apart from the stream."""
        return {
            name: value.clone() if isinstance(value := getattr(self, name), Tensor) else value
            for name in self.state
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from where ``state_dict`` was taken."""
        for name in self.state:
            if isinstance(held := getattr(self, name), Tensor):
                held.copy_(state[name])
            else:
                setattr(self, name, state[name])


def laid(method: Method, examples: Examples) -> Examples:
    """Return a task's examples as they lie in the table of a method's memory, or as they are.

    Whoever teaches a method lays each task's examples before its steps.
    """
    bank = getattr(method, "bank", None)
    return bank.lay(examples) if isinstance(bank, Bank) else examples


class FinishedTask:
    """The one door to a task's data after its single pass; it counts what goes through."""

    def __init__(self, examples: Examples) -> None:
        self._examples = examples
        self.reads = 0  # examples read again, for one run

    def examples(self) -> Examples:
        """Return the whole task again, in the order it was seen; copy what you keep of it."""
        self.reads += self._examples.labels.shape[1]
        return self._examples


@dataclass(frozen=True)
class Entry:
    """A method by name: how to build it, its settings, and the paper's values by benchmark."""

    name: str
    build: Callable[[Setup, Any], Method]
    settings: type[MethodSettings]
    presets: Mapping[str, Mapping[str, Scalar]] = field(default_factory=dict)
    search: Mapping[str, Sequence[Scalar]] = field(default_factory=dict)  # the tuning grid
    varies: Sequence[str] = ()  # the settings in which runs of one stack may differ
    joint: bool = False  # trains on the shuffled union of all tasks
    numerics: int = 1  # raised when a change of the code changes the numbers


# The grid that the paper's baselines were tuned on.
LEARNING_RATES = {"learning_rate": (0.3, 0.1, 0.03, 0.01, 0.003, 0.001, 3e-4, 1e-4)}
_METHODS: dict[str, Entry] = {}


def register(entry: Entry) -> None:
    """Make a method known by its name; one that another module's method has is refused.

    Results are filed under the name, so two methods must not share it.
    """
    owner = _METHODS.get(entry.name, entry).build.__module__
    if owner != entry.build.__module__:
        raise EngramError(f"name must not be {entry.name!r}, which {owner} has registered.")
    _METHODS[entry.name] = entry


def names() -> list[str]:
    """Return the names of all methods."""
    return sorted(_METHODS)


def method_entry(name: str) -> Entry:
    """Return the method of that name, or an error that lists the valid ones."""
    if not isinstance(name, str) or name not in _METHODS:
        raise unknown("method", name, _METHODS)
    return _METHODS[name]
