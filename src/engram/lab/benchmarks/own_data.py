"""What the benchmarks of somebody's own data share: tasks, streams of them, where results go."""

from __future__ import annotations

import hashlib
import logging
import re
import unicodedata
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from engram.errors import EngramError, on_one_line
from engram.lab.benchmarks.augmentation import Augmentation, AugmentationSettings, check_crop
from engram.lab.benchmarks.contradiction import contradiction
from engram.lab.benchmarks.pretrained import PretrainedSettings, checkpoint_of
from engram.lab.benchmarks.split import Numbers, Part, SplitStream
from engram.lab.benchmarks.stream import Batch, Benchmark, Examples, Stream, TestBatch
from engram.lab.data import ImageSet
from engram.lab.networks import Network
from engram.lab.plan import generator
from engram.lab.settings import Settings, setting
from engram.lab.targets import Labels, Target
from engram.lab.targets import Numbers as NumberTarget

MOST_PASSES = 100
_TEST_ROWS = 500  # predicted at once
DIGITS = 10  # of the checksum that a result is filed under
_LOG = logging.getLogger(__name__)


@dataclass(frozen=True)
class OwnSettings(PretrainedSettings):
    """Settings of every stream of somebody's own data."""

    heads: Literal["shared", "by-task"] = setting(
        "shared",
        "shared: an example may be of any class met so far, since in use nobody says which task "
        "it is of; by-task: of its own task's classes, as in the paper's split benchmarks",
    )
    scenario: Literal["", "class-incremental", "task-incremental", "domain-incremental"] = setting(
        "",
        "another way to say heads: class-incremental is shared, task-incremental by-task; "
        "domain-incremental is shared too, and every task must have the same classes",
        place=True,
    )
    boundaries: Literal["tasks", "none"] = setting(
        "tasks",
        "none: one long stream in the order of its examples; the tasks only say when to measure, "
        "and methods that are told where one ends are refused",
        later=True,
    )
    test_share: float = setting(
        0.2,
        "share of every class of every task held out to test on, if no test examples are given",
        above=0,
        most=0.9,
        place=True,
    )
    patience: int = setting(
        0,
        "with --passes: passes in a row without a better score on the held out part, after which "
        "a task ends; it keeps the weights of its best pass. 0: all passes are taken",
        least=0,
        later=True,
    )
    held_out: float = setting(
        0.1,
        "with patience: share of every class of every task that is held out of the training to "
        "choose the pass by",
        above=0,
        most=0.9,
        later=True,
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.scenario == "task-incremental":
            object.__setattr__(self, "heads", "by-task")
        elif self.scenario and self.heads == "by-task":
            raise EngramError(f"heads must be shared, not 'by-task', where it is {self.scenario}.")
        if self.boundaries == "none" and self.heads == "by-task":
            raise EngramError(
                "boundaries must be tasks where every task has outputs of its own (heads by-task)."
            )
        usual = type(self).__dataclass_fields__["held_out"].default
        if self.held_out != usual and not self.patience:
            raise EngramError(
                "held_out is the part that patience looks at: give both (--set patience=3), or "
                "neither."
            )


@dataclass(frozen=True)
class OwnImageSettings(AugmentationSettings, OwnSettings):
    """Settings of a stream of somebody's own examples that are or may be images."""


class OwnTasks(NamedTuple):
    """Tasks made of somebody's own examples; a part's labels are numbers of classes."""

    examples: ImageSet  # or rows of a table in place of images
    parts: Sequence[Part]
    names: Sequence[str]  # the tasks'
    remarks: Sequence[str] = ()  # what somebody should know of how they were made
    target: Target | None = None  # labels or numbers; None: classes
    values: NDArray[Any] | None = None  # [rows, outputs], with a target: what each row's are

    @property
    def kind(self) -> str:
        """What is to be answered: classes, labels or numbers."""
        return "classes" if self.target is None else self.target.kind

    @property
    def checksum(self) -> str:
        """SHA-256 of the examples and of what each is in which task."""
        digest = hashlib.sha256(self.examples.checksum.encode())
        for part in self.parts:
            for numbers in part:
                digest.update(numbers.astype("<i8").tobytes() + b"|")
        if self.target is not None and self.values is not None:
            digest.update(f"{self.target}".encode() + self.values.astype("<f8").tobytes())
        return digest.hexdigest()


def held_out(
    rows: Numbers, labels: Numbers, task: int, share: float, purpose: str = "held out"
) -> Part:
    """Return a task whose tests are a share of each class, the same ones in every run.

    Of n examples of a class round(share · n) are held out, but at least one and not all; the only
    example of a class is one to train on.
    """
    test = np.zeros(len(rows), dtype=bool)
    for name in np.unique(labels):
        mine = np.flatnonzero(labels == name)
        count = min(max(round(share * len(mine)), 1), len(mine) - 1)
        test[generator(0, purpose, task, int(name)).permutation(mine)[:count]] = True
    return Part(rows[~test], labels[~test], rows[test], labels[test])


def grouped(
    values: NDArray[np.float64],
    kind: str,
    tasks: Sequence[tuple[Numbers, Numbers | None]],
    settings: OwnSettings,
) -> tuple[Numbers, list[Part]]:
    """Return groups of rows alike, and tasks of those in the place of classes.

    What is held out and what a memory keeps is drawn from each group. Of labels it is the rarest
    one that a row has (in the first task), or none; of numbers the quarter of the first task's
    first number that a row's is in. Each task is given as its training and its test rows; without
    the latter a share is held out.
    """
    first = tasks[0][0]
    if kind == "labels":
        rarest = np.argsort(values[first].sum(0), kind="stable")
        has = values[:, rarest] > 0
        groups = np.where(has.any(1), has.argmax(1), values.shape[1]).astype(np.int64)
    else:
        cuts = np.quantile(values[first, 0], (0.25, 0.5, 0.75))
        groups = np.searchsorted(cuts, values[:, 0], side="right").astype(np.int64)
    parts = [
        held_out(train, groups[train], task, settings.test_share)
        if test is None
        else Part(train, groups[train], test, groups[test])
        for task, (train, test) in enumerate(tasks)
    ]
    return groups, parts


def with_values(
    own: OwnTasks,
    values: NDArray[np.float64],
    groups: Numbers,
    kind: str,
    names: Sequence[str],
) -> OwnTasks:
    """Return the tasks with labels or numbers [rows, outputs] to answer, in groups of rows alike.

    Numbers are learned in the units of what the first task trains on, and of nothing to come.
    """
    targets = torch.from_numpy(values)
    if kind == "labels":
        target: Target = Labels(tuple(names))
        target.check(targets)
    else:
        NumberTarget(tuple(names)).check(targets)
        target = NumberTarget.fitted(names, targets[own.parts[0].train])
    examples = own.examples._replace(train_labels=groups, test_labels=groups, class_names=())
    return own._replace(examples=examples, target=target, values=values)


def checked(own: OwnTasks, place: str, remedy: str) -> OwnTasks:
    """Return the tasks if they can be learned and tested; EngramError says what is wrong.

    ``remedy`` is what to do about a task that is too small.
    """
    for part, name in zip(own.parts, own.names, strict=True):
        if not len(part.test):
            raise EngramError(
                f"The task {name!r} of {place} has nothing to test on, for no class has two "
                f"examples: {remedy}."
            )
        if strangers := set(part.test_labels.tolist()) - set(part.train_labels.tolist()):
            if own.target is not None:
                continue
            unknown = own.examples.class_names[min(strangers)]
            raise EngramError(
                f"The task {name!r} of {place} has test examples of {unknown!r}, which it has no "
                "training examples of."
            )
    if own.target is not None:
        return own
    classes = {label for part in own.parts for label in part.train_labels.tolist()}
    if len(classes) < 2:
        raise EngramError(f"{place} must have two classes or more to tell apart, and has one.")
    return own


class OwnStream(SplitStream):
    """The same tasks in the same order for every run; a seed shuffles within them.

    With one head for all tasks ("shared") an output is a class, which keeps it when it returns,
    and the classes met so far compete, those of the task that has begun included. With heads
    "by-task" every task has outputs of its own, so a class that returns is learned afresh. Without
    task boundaries a class competes from the first batch on that has an example of it, and a
    task's examples come in the order that they have.

    Where several labels or numbers are to be answered, an example's label is its row, by which its
    targets are found.
    """

    def __init__(
        self,
        own: OwnTasks,
        seeds: Sequence[int],
        tasks: int,
        examples: int,
        *,
        settings: OwnSettings,
        device: torch.device | str = "cpu",
    ) -> None:
        self._own, self._settings = own, settings
        self._by_task = settings.heads == "by-task"
        self._own_parts = _with_own_outputs(own) if self._by_task else list(own.parts)
        self.patience, self._set_aside = settings.patience, list[Part]()
        if self.patience:
            self._hold_out(settings.held_out)
        met = [np.unique(part.train_labels) for part in self._own_parts]
        self.classes = int(max(numbers[-1] for numbers in met)) + 1
        self.classes_per_task = max(map(len, met))
        self._values: Tensor | None = None
        self.target = own.target
        if own.target is not None and own.values is not None:
            self._values = torch.from_numpy(own.values).to(device)
            self._groups = torch.from_numpy(own.examples.train_labels).to(device)
            self.classes = own.target.outputs
        last = int(max(numbers[-1] for numbers in met))
        first = np.full(last + 1, len(met))  # the task that a class is met in
        for task, numbers in reversed(list(enumerate(met))):
            first[numbers] = task
        self._first = torch.from_numpy(first).to(device)
        self._met: Tensor | None = None  # [classes], which classes were met; None: all
        self._seen: Tensor | None = None  # [R, classes], those of which an example has come
        if settings.boundaries == "none" and own.target is None:
            self._seen = torch.zeros(len(seeds), self.classes, dtype=torch.bool, device=device)
        self._augmentation: Augmentation | None = None
        if isinstance(settings, AugmentationSettings) and (settings.flip or settings.crop):
            self._augmentation = Augmentation(settings, seeds, torch.device(device))
        self._checkpoint = checkpoint_of(settings)
        super().__init__(own.examples, seeds, tasks, examples, tuning=False, device=device)

    def cut(self, seed: int) -> list[Part]:  # noqa: ARG002
        """Return the tasks of one run."""
        return self._own_parts

    def _draw_owners(self) -> Tensor:
        if self.target is None:
            return super()._draw_owners()
        return torch.zeros(len(self.seeds), self.classes, dtype=torch.int64)

    def _chosen(self, run: int, task: int) -> tuple[Numbers, Numbers]:
        if self._settings.boundaries == "none":
            part = self._parts[run][task]
            rows, labels = part.train[: self.examples], part.train_labels[: self.examples]
        else:
            rows, labels = super()._chosen(run, task)
        return rows, (labels if self.target is None else rows)

    def training_examples(self, task: int) -> Examples:
        """Return the training examples of a task."""
        if self._augmentation is not None:
            self._augmentation.begin_task(task)
        if self._settings.boundaries == "tasks" and self.target is None:
            self._met = None if int(self._first.max()) <= task else self._first <= task
        return super().training_examples(task)

    def joint_examples(self, part: int) -> Examples:
        """Return a part of the union of all tasks."""
        if self._augmentation is not None:
            self._augmentation.begin_task(part)
        return super().joint_examples(part)

    def batch(self, stored: Tensor, labels: Tensor) -> Batch:
        """Return stored examples as the network learns from them; their classes are met by that."""
        if self._seen is not None:
            every = torch.arange(self.classes, device=labels.device)
            self._seen.logical_or_((labels.unsqueeze(-1) == every).any(1))
        return super().batch(stored, labels)

    def augmented(self, inputs: Tensor) -> Tensor:
        """Mirror and move the images of a training batch, if that is asked for."""
        return inputs if self._augmentation is None else self._augmentation(inputs)

    def state_dict(self) -> dict[str, Any]:
        """Return which classes were met, and how many batches were augmented."""
        state = dict[str, Any]()
        if self._seen is not None:
            state["seen"] = self._seen.clone()
        if self._augmentation is not None:
            state["augmented"] = self._augmentation.count.clone()
        return state

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from where ``state_dict`` was taken, in the task that was begun last."""
        if self._seen is not None:
            self._seen.copy_(state["seen"])
        if self._augmentation is not None:
            self._augmentation.count.copy_(state["augmented"])

    def initialise(self, network: Network, seed: int) -> Tensor:
        """Return the parameters [d] that a run starts with: its own draws, or those of a file."""
        parameters = super().initialise(network, seed)
        if self._checkpoint is not None:
            self._checkpoint.fill(network, parameters)
        return parameters

    def initial_buffers(self, network: Network, parameters: Tensor) -> Tensor:
        """Return the buffers [R, b] that the runs start with."""
        buffers = super().initial_buffers(network, parameters)
        if self._checkpoint is not None:
            self._checkpoint.fill_buffers(network, buffers)
        return buffers

    def outputs(self, labels: Tensor) -> Tensor | None:
        """Return the outputs of the classes met so far, or of each example's own task."""
        if self._by_task:
            return super().outputs(labels)
        if (seen := self._competing()) is not None:
            return seen.unsqueeze(1).expand(*labels.shape, -1)
        return None if self._met is None else self._met.expand(*labels.shape, -1)

    def _competing(self) -> Tensor | None:
        """Return the classes that compete without task boundaries, [R, classes]: all or the met."""
        if self._seen is None or self._jointly:
            return None
        return self._seen | ~self._seen.any(1, keepdim=True)

    def task_outputs(self, task: int) -> Tensor | None:
        """Return the outputs of the classes met so far, or of one task."""
        if self._by_task:
            return super().task_outputs(task)
        if (seen := self._competing()) is not None:
            return seen
        return None if self._met is None else self._met.expand(len(self.seeds), -1)

    def targets(self, labels: Tensor) -> Tensor:
        """Return the labels or numbers of rows."""
        if self._values is None:
            return super().targets(labels)
        return self._values[labels]

    def groups(self, labels: Tensor) -> Tensor:
        """Return the classes of examples, or the groups of rows alike."""
        return labels if self._values is None else self._groups[labels]

    def facts(self) -> dict[str, float | str]:
        """Return what a guess has: ``guess_percent``, the average accuracy of saying one class.

        It is the class that is the most frequent in the tests, all tasks counting alike; with
        heads by task, the most frequent of each task. ``contradiction_percent`` is how far the
        newest task contradicts the older ones (see `contradiction`).
        """
        if self.target is not None:
            return {"target": self.target.kind}
        shares = np.array(
            [
                np.bincount(part.test_labels, minlength=self.classes) / len(part.test)
                for part in self._own_parts[: self.tasks]
            ]
        )  # [T, classes]
        guessed = shares.max(1).mean() if self._by_task else shares.mean(0).max()
        found: dict[str, float | str] = {"guess_percent": 100 * float(guessed)}
        if not self._by_task:  # else nothing that a task answers is another one's to answer
            own = self._own.examples
            parts = self._own_parts[: self.tasks]
            against = contradiction(own.train_images, own.test_images, parts)
            found |= {} if against is None else {"contradiction_percent": against}
        return found

    def _hold_out(self, share: float) -> None:
        """Take a share of every class out of the training of each task."""
        for task, part in enumerate(self._own_parts):
            cut = held_out(part.train, part.train_labels, task, share, "early stopping")
            if not len(cut.test):
                raise EngramError(
                    f"patience must be 0 where no class of a task has two examples to train on, "
                    f"as in {self._own.names[task]!r}: nothing can be held out."
                )
            self._set_aside.append(cut)
            self._own_parts[task] = part._replace(train=cut.train, train_labels=cut.train_labels)

    def held_out(self, tasks: Sequence[int]) -> Iterator[tuple[TestBatch, Mapping[int, int]]]:
        """Yield what is held out of the training of some tasks, one after the other."""
        images = self.images.train_images
        for task in tasks:
            part = self._set_aside[task]
            for batch in self._batches(images, part.test, self._known_by(part)):
                normal = batch._replace(inputs=self.normalise(batch.inputs))
                yield normal, {task: batch.labels.shape[-1]}

    def _read_tests(self, task: int) -> Iterator[TestBatch]:
        part = self._own_parts[task]
        yield from self._batches(self.images.test_images, part.test, self._known_by(part))

    def _known_by(self, part: Part) -> Numbers:
        return part.test_labels if self.target is None else part.test

    def _batches(
        self, images: NDArray[Any], every: Numbers, outputs: Numbers
    ) -> Iterator[TestBatch]:
        for start in range(0, len(every), _TEST_ROWS):
            rows = every[start : start + _TEST_ROWS]
            labels = torch.from_numpy(outputs[start : start + _TEST_ROWS])
            inputs = torch.from_numpy(np.ascontiguousarray(images[rows]))
            yield TestBatch(inputs.to(self.device), labels.to(self.device))

    def normalise(self, inputs: Tensor) -> Tensor:
        """Take the inputs as they are."""
        return inputs.float()


def _with_own_outputs(own: OwnTasks) -> list[Part]:
    """Return the tasks with outputs of their own, numbered from task to task."""
    parts, start = list[Part](), 0
    for part, name in zip(own.parts, own.names, strict=True):
        classes = np.unique(part.train_labels)
        if len(classes) < 2:
            raise EngramError(
                f"heads must be shared where a task has a single class, as {name!r} has, "
                "not 'by-task': nothing would be left to tell apart."
            )
        train, test = (
            start + np.searchsorted(classes, labels)
            for labels in (part.train_labels, part.test_labels)
        )
        parts.append(Part(part.train, train, part.test, test))
        start += len(classes)
    return parts


@dataclass(frozen=True, kw_only=True)
class OwnBenchmark(Benchmark):
    """A benchmark that is read from somebody's own data, as its settings say.

    A result is filed under ``address(checksum)``: what the data is called and the first digits of
    its checksum. The checksum is of the tasks as they are trained on, so a setting that says how
    to read the data is a ``place`` (see `engram.lab.settings`), and the path is no part of it.
    """

    size: Callable[[Any], tuple[int, int]]  # tasks, and the examples of the longest
    address: Callable[[str], str]
    kind: Callable[[Any], str]  # of what is to be answered: classes, labels or numbers
    tuning_tasks: int = 0  # nobody has tasks to spare
    most_passes: int = MOST_PASSES

    def sized(self, settings: Settings) -> OwnBenchmark:
        """Return the benchmark as large as it is with these settings."""
        tasks, examples = self.size(settings)
        return replace(self, paper_tasks=tasks, most_tasks=tasks, most_examples=examples)


def own_benchmark(
    kind: str,
    called: str,
    settings: type[Settings],
    *,
    like: str,
    read: Callable[[Any], OwnTasks],
    build: Callable[..., Stream],
    stacks: int = 1,
) -> OwnBenchmark:
    """Return the benchmark of the tasks that ``read(settings)`` returns.

    ``build`` is called as `Benchmark` says, with the tasks in front and without ``tuning``.
    """

    def size(chosen: Settings) -> tuple[int, int]:
        own = read(chosen)
        for remark in own.remarks:
            _warn_once(remark)
        _check_scenario(own, chosen)
        if isinstance(chosen, AugmentationSettings):
            check_crop(chosen, own.examples.train_images.shape[1:])
        return len(own.parts), max(len(part.train) for part in own.parts)

    def checksum(chosen: Settings) -> str:
        return read(chosen).checksum[:DIGITS]

    def built(
        *given: Any,  # noqa: ANN401
        settings: Settings,
        tuning: bool = False,  # noqa: ARG001 (there are no tuning tasks)
        **options: Any,  # noqa: ANN401
    ) -> Stream:
        return build(read(settings), *given, settings=settings, **options)

    name = "-".join(filter(None, (kind, plain(called))))
    return OwnBenchmark(
        name=name,
        settings=settings,
        paper_tasks=0,
        most_examples=0,
        build=built,
        checksum=checksum,
        stacks=stacks,
        like=like,
        size=size,
        kind=lambda chosen: read(chosen).kind,
        address=lambda digits: f"{name}-{digits}",
    )


def _check_scenario(own: OwnTasks, settings: Any) -> None:  # noqa: ANN401
    if own.target is not None and (settings.heads == "by-task" or settings.scenario):
        raise EngramError(
            f"heads and scenario say which classes compete, and must not be given for {own.kind}."
        )
    if settings.scenario == "domain-incremental":
        first = set(own.parts[0].train_labels.tolist())
        for part, name in zip(own.parts, own.names, strict=True):
            if set(part.train_labels.tolist()) != first:
                raise EngramError(
                    f"scenario must be class-incremental or task-incremental, not "
                    f"'domain-incremental', where tasks have other classes, as {name!r} has than "
                    f"{own.names[0]!r}."
                )


def own_place(kind: str, path: str) -> Path:
    """Return the path that stands behind a kind of data, as in ``folder:PATH``."""
    try:
        place = Path(path).expanduser()
        place.stat()
    except (FileNotFoundError, NotADirectoryError):
        pass  # whoever reads it says what is missing
    except (OSError, RuntimeError, ValueError) as error:  # no home; no name for a file
        reason = getattr(error, "strerror", None) or error
        raise EngramError(f"{kind}: must be followed by a path, not {path!r}: {reason}.") from error
    return place


@cache
def _warn_once(remark: str) -> None:
    _LOG.warning(on_one_line(remark))


def filed(name: str, settings: type[Settings], like: str) -> OwnBenchmark:
    """Return what a store of results knows as ``name``: the settings, but not the data."""

    def refuse(*_: object, **__: object) -> Stream:
        raise EngramError(
            f"{name} is what results are filed under, not where the data is: "
            f"that is given as {name.partition('-')[0]}:PATH."
        )

    return OwnBenchmark(
        name=name,
        settings=settings,
        paper_tasks=0,
        most_examples=0,
        build=refuse,
        checksum=lambda _: name[-DIGITS:],
        like=like,
        size=lambda _: (1, 2**31 - 1),
        kind=lambda _: "classes",
        address=lambda _: name,
    )


def plain(name: str) -> str:
    """Return a name in small letters, digits and single hyphens.

    >>> plain("Été 2024 (à Nice)")
    'ete-2024-a-nice'
    """
    ascii_ = unicodedata.normalize("NFKD", name).encode("ascii", "ignore").decode().lower()
    return re.sub(r"[^a-z0-9]+", "-", ascii_).strip("-")
