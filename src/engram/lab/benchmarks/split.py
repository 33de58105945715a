"""Streams that deal out the classes of a set of images: every task has classes of its own.

What Split CIFAR, Split CUB, Split AWA and the streams of one's own data have in common.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from engram.errors import EngramError
from engram.lab.benchmarks.stream import Examples, Stream, TestBatch
from engram.lab.data import ImageSet
from engram.lab.networks import ResNet
from engram.lab.plan import generator
from engram.lab.settings import Settings, setting

Numbers = NDArray[np.int64]

AUTHORS_SEED = 1234  # run r of the paper's draws its classes with this and r
# The paper's runs take the means of blue, green and red off red, green and blue.
_MEANS = (103.94, 116.78, 123.68)
_TEST_ROWS = 500  # images of a task that are predicted at once
_MOST_TEST_ROWS = 2_500  # of several tasks
_MOST_TEST_VALUES = 2**25  # of all runs' images


@dataclass(frozen=True)
class ImageSettings(Settings):
    """Settings of every stream of images."""

    precision: Literal["tf32", "float32", "bfloat16"] = setting(
        "tf32",
        "how a GPU multiplies: tf32 (10 bits in products), float32 (all of them), or bfloat16 "
        "passes with float32 weights",
    )


class Part(NamedTuple):
    """One task of one run: its examples as rows of the images, and the output of each."""

    train: Numbers
    train_labels: Numbers
    test: Numbers
    test_labels: Numbers


class SplitStream(Stream):
    """Tasks that are classes of one set of images; each of them knows its own outputs.

    Training examples are shuffled once. Loss and prediction look at the outputs of an example's
    own task alone, except in training on the union of all tasks, as in the paper's runs. With
    ``tuning`` the stream holds the images of the tuning classes and no others.
    """

    balanced = False  # whether a task's accuracy is the mean of its classes' accuracies

    def __init__(
        self,
        images: ImageSet,
        seeds: Sequence[int],
        tasks: int,
        examples: int,
        *,
        tuning: bool,
        device: torch.device | str,
    ) -> None:
        self.most_examples = max(examples, 1)
        super().__init__(seeds, tasks, examples)
        self.device = torch.device(device)
        self._split = "tuning" if tuning else "training"
        self.images = images
        self.features = int(np.prod(images.train_images.shape[1:]))
        self._parts = [self.cut(seed)[:tasks] for seed in seeds]
        self._owners = self._draw_owners()  # [R, classes], the task an output is of, or -1
        self._tests: dict[int, list[TestBatch]] = {}
        self._test_rows = 0  # of several tasks at once; a CPU has one after the other
        if self.device.type != "cpu":
            most = _MOST_TEST_VALUES // (self.features * len(self.seeds))
            self._test_rows = min(_MOST_TEST_ROWS, most)

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of one image, or of a row of a table."""
        return tuple(self.images.train_images.shape[1:])

    @abstractmethod
    def cut(self, seed: int) -> list[Part]:
        """Return the tasks of one run, at least as many as are asked for."""

    def _draw_owners(self) -> Tensor:
        owners = np.full((len(self.seeds), self.classes), -1)
        for mine, parts in zip(owners, self._parts, strict=True):
            for task, part in enumerate(parts):
                mine[np.unique(part.test_labels)] = task
                mine[np.unique(part.train_labels)] = task
        return torch.from_numpy(owners).to(self.device)

    def length(self, task: int) -> int:
        """Return how many training examples a task, or a part of the union, has."""
        if self._jointly:
            return len(np.array_split(self._unions[0][0], self.tasks)[task])
        return len(self._chosen(0, task)[0])

    def _chosen(self, run: int, task: int) -> tuple[Numbers, Numbers]:
        """Return which images a run sees in a task, in their order, and their labels."""
        part = self._parts[run][task]
        source = generator(self.seeds[run], f"{self._split} order", task)
        order = source.permutation(len(part.train))[: self.examples]
        return part.train[order], part.train_labels[order]

    @cached_property
    def _unions(self) -> list[tuple[Numbers, Numbers]]:
        """Each run's examples of all tasks, shuffled."""
        unions = []
        for run, seed in enumerate(self.seeds):
            chosen = [self._chosen(run, task) for task in range(self.tasks)]
            rows, labels = (np.concatenate(part) for part in zip(*chosen, strict=True))
            order = generator(seed, f"{self._split} union").permutation(len(rows))
            unions.append((rows[order], labels[order]))
        return unions

    def training_examples(self, task: int) -> Examples:
        """Return the training examples of a task."""
        return self._read([self._chosen(run, task) for run in range(len(self.seeds))])

    def joint_examples(self, part: int) -> Examples:
        """Return a part of the union of all tasks."""
        cut = [[np.array_split(half, self.tasks)[part] for half in run] for run in self._unions]
        return self._read([(rows, labels) for rows, labels in cut])

    def _read(self, runs: Sequence[tuple[Numbers, Numbers]]) -> Examples:
        if len({len(rows) for rows, _ in runs}) > 1:
            raise _one_by_one(len(runs))
        images = [self.images.train_images[rows] for rows, _ in runs]
        return Examples(self._put(images), self._put([labels for _, labels in runs]))

    def _put(self, runs: Sequence[NDArray[np.generic]]) -> Tensor:
        return torch.from_numpy(np.stack(runs)).to(self.device)

    def test(self, task: int, *, curve: bool = False) -> Iterator[TestBatch]:  # noqa: ARG002
        """Yield each run's test images of a task."""
        for batch in self._stored_tests(task):
            yield batch._replace(inputs=self.normalise(batch.inputs))

    def tests(self, tasks: Sequence[int]) -> Iterator[tuple[TestBatch, Mapping[int, int]]]:
        """Yield the images of as many tasks at once as leave a GPU busy, but not out of memory."""
        if not self._test_rows or type(self).test is not SplitStream.test:
            yield from super().tests(tasks)
            return
        for batch, parts in joined_tests(tasks, self._stored_tests, self._test_rows):
            yield batch._replace(inputs=self.normalise(batch.inputs)), parts

    def _stored_tests(self, task: int) -> list[TestBatch] | Iterator[TestBatch]:
        """Return each run's test images of a task, as stored; a GPU keeps them."""
        self._check_task(task)
        if self.device.type != "cpu" and task not in self._tests:
            self._tests[task] = list(self._read_tests(task))
        return self._tests.get(task) or self._read_tests(task)

    def _read_tests(self, task: int) -> Iterator[TestBatch]:
        parts = [run[task] for run in self._parts]
        if len({len(part.test) for part in parts}) > 1:
            raise _one_by_one(len(parts))
        labels = np.stack([part.test_labels for part in parts])
        weights = torch.from_numpy(np.stack([class_shares(mine) for mine in labels]))
        for start in range(0, labels.shape[1], _TEST_ROWS):
            at = slice(start, start + _TEST_ROWS)
            yield TestBatch(
                self._put([self.images.test_images[part.test[at]] for part in parts]),
                torch.from_numpy(labels[:, at]).to(self.device),
                weights=weights[:, at].to(self.device) if self.balanced else None,
            )

    def outputs(self, labels: Tensor) -> Tensor | None:
        """Return the outputs of each example's own task; of all tasks in training on the union."""
        if self._jointly:
            return None
        return self._owners.gather(1, labels).unsqueeze(-1) == self._owners.unsqueeze(1)

    def task_outputs(self, task: int) -> Tensor | None:
        """Return which outputs a task has."""
        return self._owners == task


def _one_by_one(runs: int) -> EngramError:
    return EngramError(f"seeds must come one by one, not {runs}: their tasks are not equally long.")


def only(images: ImageSet, classes: Sequence[int]) -> ImageSet:
    """Return the images of these classes and no others."""
    cut = []
    for pictures, labels in (images[:2], images[2:4]):
        rows = np.flatnonzero(np.isin(labels, classes))
        run = len(rows) and rows[-1] - rows[0] + 1 == len(rows)  # then nothing need be copied
        part = slice(rows[0], rows[-1] + 1) if run else rows
        cut += [pictures[part], labels[part]]
    return images._replace(
        train_images=cut[0], train_labels=cut[1], test_images=cut[2], test_labels=cut[3]
    )


def shuffled_parts(
    seed: int, images: ImageSet, classes: Sequence[int], per_task: int
) -> list[Part]:
    """Return the tasks of a run: the classes in an order of its own, ``per_task`` at a time.

    So the paper's runs deal out the classes of CIFAR and CUB.
    """
    order = np.array(classes)
    # The authors' generator, so that run r meets the classes that theirs met.
    np.random.RandomState(AUTHORS_SEED + seed).shuffle(order)
    return [
        _class_part(images, order[start : start + per_task])
        for start in range(0, len(order), per_task)
    ]


def _class_part(images: ImageSet, classes: Numbers) -> Part:
    """Return the task of these classes, with their own labels for outputs."""
    train = np.flatnonzero(np.isin(images.train_labels, classes))
    test = np.flatnonzero(np.isin(images.test_labels, classes))
    return Part(train, images.train_labels[train], test, images.test_labels[test])


def complete(parts: Sequence[Part], tasks: int, classes: int) -> list[Part]:
    """Return so many tasks; each must have images of all its classes, or EngramError is raised."""
    if tasks > len(parts):
        raise EngramError(f"tasks must be at most {len(parts)}, not {tasks}.")
    for task, part in enumerate(parts[:tasks]):
        for kind, labels in (("training", part.train_labels), ("test", part.test_labels)):
            if (found := len(np.unique(labels))) < classes:
                raise EngramError(
                    f"The data set must have {kind} images of all {classes} "
                    f"classes of a task, but in task {task} it has them of {found}."
                )
    return list(parts[:tasks])


def joined_tests(
    tasks: Sequence[int], batches_of: Callable[[int], Iterable[TestBatch]], most: int
) -> Iterator[tuple[TestBatch, Mapping[int, int]]]:
    """Join the tasks' batches to such of up to ``most`` examples, with how many each task has.

    One that is larger stays as it is. Examples have no columns.
    """
    held, parts = list[TestBatch](), dict[int, int]()
    for task in tasks:
        for batch in batches_of(task):
            count = batch.labels.shape[-1]
            if held and sum(parts.values()) + count > most:
                yield _concatenated(held), parts
                held, parts = [], {}
            held.append(batch)
            parts[task] = parts.get(task, 0) + count
    if held:
        yield _concatenated(held), parts


def _concatenated(batches: Sequence[TestBatch]) -> TestBatch:
    if len(batches) == 1:
        return batches[0]
    axis = batches[0].labels.ndim - 1  # there may be an axis of runs before it
    inputs = torch.cat([batch.inputs for batch in batches], axis)
    labels = torch.cat([batch.labels for batch in batches], axis)
    weights = [batch.weights for batch in batches if batch.weights is not None]
    return TestBatch(inputs, labels, weights=torch.cat(weights, 1) if weights else None)


def class_shares(labels: Numbers) -> NDArray[np.float64]:
    """Return each example's share of the mean of the classes' accuracies."""
    _, places, counts = np.unique(labels, return_inverse=True, return_counts=True)
    shares: NDArray[np.float64] = 1 / (len(counts) * counts[places])
    return shares


def large_resnet(classes: int, *, autocast: bool) -> ResNet:
    """Return ResNet-18 as the paper's runs on 224 × 224 images have it.

    It has no max-pool, and no norm on shortcuts.
    """
    return ResNet(classes, 64, large_images=True, shortcut_norm=False, autocast=autocast)


def less_means(inputs: Tensor) -> Tensor:
    """Take the channels' means off 8-bit pixels: 224 × 224 images go in as 0 to 255 less a mean."""
    floats = inputs.float()
    means = torch.empty(3, 1, 1, device=floats.device)  # filled without a copy from the host
    for channel, mean in enumerate(_MEANS):
        means[channel].fill_(mean)
    return floats.sub_(means)
