"""What a method is, and what it is built from."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

from torch import Tensor

from engram.gradients import Mix
from engram.lab.benchmarks import Examples, Stream
from engram.lab.engine import Batch, ByRun, OptimizedRuns, Rows, RuleByRun, optimizers
from engram.lab.networks import Network
from engram.lab.settings import Settings, setting
from engram.rules import Rule


@dataclass(frozen=True)
class MethodSettings(Settings):
    """Settings of every method."""

    learning_rate: float = setting(0.1, "step size of plain SGD, constant", above=0)
    batch_size: int = setting(10, "examples of the current task in a step", least=1)
    optimizer: str = setting(
        "sgd", "what takes the steps: one of torch.optim, in small letters", later=True
    )
    optimizer_settings: str = setting(
        "", "its arguments, such as weight_decay=0.01,betas=(0.9,0.99)", later=True
    )
    schedule: str = setting(
        "constant",
        "what changes the step size: one of torch.optim.lr_scheduler, in small letters",
        later=True,
    )
    schedule_settings: str = setting("", "its arguments, such as T_max=1000", later=True)
    schedule_every: int = setting(
        1, "steps of the optimiser to one of the schedule", least=1, later=True
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.plain_sgd:
            return
        for name in ("optimizer_settings", "schedule_settings"):
            if text := getattr(self, name):  # results are filed under one way of writing it
                object.__setattr__(self, name, optimizers.canonical(text, name))
        optimizers.check(self)

    @property
    def plain_sgd(self) -> bool:
        """Whether steps are those of SGD at a constant rate and nothing else, as in the paper."""
        given = self.optimizer, self.schedule, self.optimizer_settings, self.schedule_settings
        return given == ("sgd", "constant", "", "")


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
    buffers: Tensor | None = None  # [R, b], updated in place; None: as the network's begin

    def number(self, settings: Any, name: str) -> ByRun:  # noqa: ANN401 (each has its own)
        """Return a setting: a number or, where runs differ in it, a tensor [R, 1]."""
        values = [getattr(one, name) for one in self.each or (settings,)]
        if len(set(values)) == 1:
            number: float = values[0]
            return number
        return self.parameters.new_tensor(values).unsqueeze(1)

    def rule(self, settings: Any, make: Callable[[Any], Rule]) -> Rule:  # noqa: ANN401
        """Return the rule that is made of the settings, or of each run's where those differ."""
        if len(set(self.each)) <= 1:
            return make(settings)
        made = {one: make(one) for one in self.each}  # runs with the same settings share one
        rules = [made[one] for one in self.each]
        return rules[0] if all(rule == rules[0] for rule in rules) else RuleByRun(rules)


class Method(ABC):
    """Learns R runs of a stream of tasks, one batch at a time.

    A step is ``observe``. Around a task come ``begin_task``, which is given the labels to come
    (so that what will be remembered can be planned) but sees no input, and ``end_task``, which
    is given the task's data as a `FinishedTask`, which counts what is read.
    """

    state: ClassVar[tuple[str, ...]] = ("parameters", "buffers")
    """The attributes that a checkpoint holds: tensors, or what JSON can hold."""

    former_names: ClassVar[Mapping[str, str]] = {}
    """What attributes of the state were called in checkpoints of older versions."""

    rule: Rule | None = None
    """What weighs the rows, where a method mixes gradients; records of steps name it."""

    capturable: bool = False
    """Whether a step may be captured once and replayed.

    Such a step reads nothing back to the host, and what it takes from ``step`` is in its
    ``kind``; whatever else depends on it goes by ``position``, the step's number on the device.
    """

    single_examples: bool = False
    """Whether it takes steps on single examples, which not every network can learn from."""

    settled: bool = False
    """Whether what it predicts of a task is, once that has ended, the same for ever.

    Bit for bit: the accuracy of a finished task is then measured once, and holds from there on.
    """

    def __init__(self, setup: Setup, settings: Any) -> None:  # noqa: ANN401 (each has its own)
        self.network = setup.network
        self.parameters = setup.parameters
        self.rows = Rows(setup.network, setup.parameters, setup.buffers)
        self.buffers = self.rows.buffers  # [R, b], the network's running averages
        self.settings = settings
        self.learning_rate = setup.number(settings, "learning_rate")
        self.optimizer: OptimizedRuns | None = None
        if not settings.plain_sgd:
            self.optimizer = self.rows.optimizer = OptimizedRuns(
                setup.network, setup.parameters, settings, self.learning_rate
            )

    def stage_examples(self, examples: Examples) -> Examples:
        """Return the examples of a task to come, as they are or as they lie in a memory.

        Whoever trains a method stages each task's examples before its steps, and takes the steps'
        batches from what this returns.
        """
        return examples

    def begin_task(self, task: int, labels: Tensor) -> None:  # noqa: B027 (may do nothing)
        """Get ready for a task whose labels, in order, will be [R, N]."""

    @abstractmethod
    def observe(self, step: int, stored: Tensor, batch: Batch) -> Mix:
        """Learn batch ``step`` of a task; ``stored`` are its inputs as the stream has them."""

    def end_task(self, task: int, finished: FinishedTask) -> None:  # noqa: B027
        """Do what a method does with a task's data when it ends."""

    def kind(self, step: int) -> Hashable:  # noqa: ARG002
        """Return the kind of a step: steps of one kind do the same work, on other data."""
        return None

    def locate(self, position: Tensor | None) -> None:  # noqa: B027
        """Take the number of the current step from the device, or (None) from ``step`` again."""

    def begin_recording(self) -> None:
        """Let every step from here on return its rows' dot products, where it forms a mixture."""
        self.rows.compare = True

    def begin_evaluation(self) -> None:  # noqa: B027
        """Get ready to predict at the present weights, which replayed steps may have moved."""

    @property
    def evaluated(self) -> tuple[Tensor, Tensor]:
        """The parameters and buffers that it predicts with: those that it trains.

        A method that predicts with others than it trains, an average say, returns those.
        """
        return self.parameters, self.buffers

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
        parameters, buffers = self.evaluated
        return self.network.predict(parameters, inputs, columns, buffers)

    @property
    def pads(self) -> bool:
        """Whether batches of the task that was begun may have examples of weight 0."""
        return False

    def uncaptured(self) -> str | None:
        """Return why a GPU does not capture passes and steps of a `capturable` method, if so."""
        if self.optimizer is not None:
            return "an optimiser other than plain SGD has a state that steps read on the host"
        return self.network.uncapturable(self.parameters, pads=self.pads)

    @property
    def captured(self) -> bool:
        """Whether a GPU captures its steps."""
        return self.capturable and self.uncaptured() is None

    @property
    def task_blind(self) -> bool:
        """Whether it predicts all tasks alike, so that those of several can be predicted at once.

        It does unless it has a ``predict`` of its own.
        """
        return getattr(self.predict, "__func__", None) is Method.predict

    def facts(self) -> dict[str, int]:
        """Return what the method holds, for one run: ``state_bytes`` is all but the parameters.

        Examples of its tasks are none of it; a method that keeps any adds ``memory_bytes``.
        """
        held = [getattr(self, name) for name in self.state if name != "parameters"]
        tensors = [value for value in held if isinstance(value, Tensor)]
        own = sum(tensor.nbytes for tensor in tensors) // len(self.parameters)
        if self.optimizer is not None:
            own += self.optimizer.nbytes
        return {"parameters": self.network.size, "state_bytes": own}

    def state_dict(self) -> dict[str, Any]:
        """Return everything the next step depends on, apart from the stream."""
        state = {
            name: value.clone() if isinstance(value := getattr(self, name), Tensor) else value
            for name in self.state
        }
        if self.optimizer is not None:
            state["optimizer"] = self.optimizer.state_dict()
        return state

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from where ``state_dict`` was taken."""
        for name in self.state:
            saved = state[name if name in state else self.former_names.get(name, name)]
            if isinstance(held := getattr(self, name), Tensor):
                held.copy_(saved)
            else:
                setattr(self, name, saved)
        if self.optimizer is not None:
            self.optimizer.load_state_dict(state["optimizer"])


class FinishedTask:
    """A task's data after its single pass, which is read again only through here, and counted."""

    def __init__(self, examples: Examples) -> None:
        self._examples = examples
        self.reads = 0  # examples read again, for one run

    def examples(self) -> Examples:
        """Return the whole task again, in the order it was seen; copy what you keep of it."""
        self.reads += self._examples.labels.shape[1]
        return self._examples
