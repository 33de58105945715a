"""Classes shuffled and dealt out, as the paper's runs deal those of CIFAR and CUB."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from engram.data import ImageSet
from engram.streams._split import AUTHORS_SEED, Part


def shuffled_parts(
    seed: int, images: ImageSet, classes: Sequence[int], per_task: int
) -> list[Part]:
    """Return the tasks of a run: the classes in an order of its own, ``per_task`` at a time."""
    order = np.array(classes)
    # The authors' generator, so that run r meets the classes that theirs met.
    np.random.RandomState(AUTHORS_SEED + seed).shuffle(order)
    return [
        class_part(images, order[start : start + per_task])
        for start in range(0, len(order), per_task)
    ]


def class_part(images: ImageSet, classes: Sequence[int] | np.ndarray) -> Part:
    """Return the task of these classes, with their own labels for outputs."""
    train = np.flatnonzero(np.isin(images.train_labels, classes))
    test = np.flatnonzero(np.isin(images.test_labels, classes))
    return Part(train, images.train_labels[train], test, images.test_labels[test])
