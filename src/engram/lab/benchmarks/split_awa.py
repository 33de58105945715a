"""Split AWA: the animals of AwA2, five classes to a task, which may meet them again."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from engram.lab.benchmarks.split import (
    AUTHORS_SEED,
    ImageSettings,
    Part,
    SplitStream,
    complete,
    large_resnet,
    less_means,
    only,
)
from engram.lab.benchmarks.stream import Benchmark, data_name
from engram.lab.data import load
from engram.lab.networks import ResNet

_NAME = "awa2"
_CLASSES = 50
_TUNING = range(15)
_TRAINING = range(15, 50)
_TASKS = 17
_TUNING_TASKS = 3
_ANIMALS = (  # AwA2's classes, in the order of its classes.txt
    "antelope grizzly+bear killer+whale beaver dalmatian persian+cat horse german+shepherd "
    "blue+whale siamese+cat skunk mole tiger hippopotamus leopard moose spider+monkey "
    "humpback+whale elephant gorilla ox fox sheep seal chimpanzee hamster squirrel rhinoceros "
    "rabbit bat giraffe wolf chihuahua rat weasel otter buffalo zebra giant+panda deer bobcat pig "
    "lion mouse polar+bear collie walrus raccoon cow dolphin"
)


class SplitAwa(SplitStream):
    """The paper's fourth benchmark: 17 tasks of five of 35 classes, drawn anew for each.

    The training images of a class are cut into equal parts, in file order, one for each task that
    has it; what remains is left out. Test images are not cut. Every task has 50 outputs of its
    own, so a class that returns is learned afresh; accuracy is the mean of the classes'.
    Classes 0 to 14 are for tuning.
    """

    classes = _TASKS * _CLASSES
    classes_per_task = 5
    balanced = True

    def __init__(
        self,
        seeds: Sequence[int],
        tasks: int = _TASKS,
        examples: int = 3_000,
        *,
        settings: ImageSettings | None = None,
        tuning: bool = False,
        device: torch.device | str = "cpu",
    ) -> None:
        self._settings = settings or ImageSettings()
        self._classes, self._draws = (_TUNING, _TUNING_TASKS) if tuning else (_TRAINING, _TASKS)
        mine = only(load(_NAME), self._classes)
        super().__init__(mine, seeds, tasks, examples, tuning=tuning, device=device)

    def cut(self, seed: int) -> list[Part]:
        """Return the tasks of one run."""
        images = self.images
        drawn = _draw(seed, self._draws, self._classes, self.classes_per_task)
        uses = Counter(name for task in drawn for name in task)
        seen = Counter[int]()
        parts = []
        for task, names in enumerate(drawn):
            train, test = [], []
            for name in names:
                rows = np.flatnonzero(images.train_labels == name)
                size = len(rows) // uses[name]
                train.append(rows[seen[name] * size : (seen[name] + 1) * size])
                test.append(np.flatnonzero(images.test_labels == name))
                seen[name] += 1
            first, second = np.concatenate(train), np.concatenate(test)
            shift = task * _CLASSES
            labels = images.train_labels[first] + shift, images.test_labels[second] + shift
            parts.append(Part(first, labels[0], second, labels[1]))
        return complete(parts, self.tasks, self.classes_per_task)

    def network(self) -> ResNet:
        """Return ResNet-18 as the paper's runs have it."""
        return large_resnet(self.classes, autocast=self._settings.precision == "bfloat16")

    def normalise(self, inputs: Tensor) -> Tensor:
        """Take the channels' means off 8-bit pixels."""
        return less_means(inputs)


def _draw(seed: int, count: int, classes: Sequence[int], per_task: int) -> list[list[int]]:
    """Return the classes of every task, as the authors' draw has them.

    It is Python 2's ``random.sample`` with the seed 1234 + r: int(random() · n) until it is new.
    """
    source = random.Random(AUTHORS_SEED + seed)
    tasks = []
    for _ in range(count):
        task = list[int]()
        while len(task) < per_task:
            name = classes[int(source.random() * len(classes))]
            if name not in task:
                task.append(name)
        tasks.append(task)
    return tasks


def _checksum(_: ImageSettings) -> str:
    """Return the name of the data: that of others where the classes are not AwA2's."""
    images = load(_NAME)
    return data_name(images.checksum, papers=images.class_names == tuple(_ANIMALS.split()))


SPLIT_AWA = Benchmark(
    name="split-awa",
    settings=ImageSettings,
    paper_tasks=_TASKS,
    most_tasks=_TASKS,
    tuning_tasks=_TUNING_TASKS,
    most_examples=3_000,
    build=SplitAwa,
    checksum=_checksum,
)
