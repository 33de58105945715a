"""Split CIFAR: CIFAR-100's classes, five to a task; the same with one head for all of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from engram.lab.benchmarks.split import (
    ImageSettings,
    Part,
    SplitStream,
    complete,
    only,
    shuffled_parts,
)
from engram.lab.benchmarks.stream import RESNETS, Benchmark, Stream
from engram.lab.data import ImageSet, checksum, load
from engram.lab.networks import ResNet

_NAME = "cifar-100"
_TUNING = range(15)
_TRAINING = range(15, 100)


class SplitCifar(SplitStream):
    """The paper's second benchmark: 17 tasks of five classes, 2,500 training images each.

    Images are scaled to [0, 1], less the mean image of the 50,000 training images. Labels 0 to 14
    are for tuning, the others for training; run r shuffles them with numpy's seed 1234 + r.
    """

    classes = 100
    classes_per_task = 5

    def __init__(
        self,
        seeds: Sequence[int],
        tasks: int = 17,
        examples: int = 2_500,
        *,
        settings: ImageSettings | None = None,
        tuning: bool = False,
        device: torch.device | str = "cpu",
        images: ImageSet | None = None,  # of the same shape, in place of CIFAR-100's
    ) -> None:
        images = images or load(_NAME)
        self._mean = _mean_image(images.train_images)
        self._classes = _TUNING if tuning else _TRAINING
        self._settings = settings or ImageSettings()
        mine = only(images, self._classes)
        super().__init__(mine, seeds, tasks, examples, tuning=tuning, device=device)

    def cut(self, seed: int) -> list[Part]:
        """Return the tasks of one run."""
        parts = shuffled_parts(seed, self.images, self._classes, self.classes_per_task)
        return complete(parts, self.tasks, self.classes_per_task)

    def network(self) -> ResNet:
        """Return the reduced ResNet-18, of 20 filters."""
        return ResNet(self.classes, autocast=self._settings.precision == "bfloat16")

    @cached_property
    def _centre(self) -> Tensor:
        return self._mean.to(self.device)

    def normalise(self, inputs: Tensor) -> Tensor:
        """Scale 8-bit pixels to [0, 1] and take off the mean image."""
        return inputs.float().div_(255).sub_(self._centre)


class ClassIncrementalCifar(SplitCifar):
    """Split CIFAR with one head: no task is named, and all 100 outputs compete for every image.

    In training too, so the outputs of classes that are still to come, or of those set aside for
    tuning, learn to be no answer. Everything else is Split CIFAR's: tasks, classes, images.
    """

    def outputs(self, labels: Tensor) -> Tensor | None:
        """Return None: every output is in question."""
        return Stream.outputs(self, labels)

    def task_outputs(self, task: int) -> Tensor | None:
        """Return None: a task has all outputs."""
        return Stream.task_outputs(self, task)


def _mean_image(images: np.ndarray) -> Tensor:
    total = np.zeros(images.shape[1:])
    for part in np.array_split(images, 10):  # a float copy of all is a gigabyte
        total += part.sum(0, dtype=np.float64)
    return torch.from_numpy(total / (255 * len(images))).float()


SPLIT_CIFAR = Benchmark(
    name="split-cifar",
    settings=ImageSettings,
    paper_tasks=17,
    most_tasks=17,
    most_examples=2_500,
    build=SplitCifar,
    checksum=lambda _: checksum(_NAME),
    stacks=RESNETS,
)

CLASS_INCREMENTAL_CIFAR = replace(
    SPLIT_CIFAR,
    name="class-incremental-cifar",
    build=ClassIncrementalCifar,
    like=SPLIT_CIFAR.name,
)
