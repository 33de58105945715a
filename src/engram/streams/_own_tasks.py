"""Tasks made of somebody's own examples."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np

from engram.data import ImageSet
from engram.errors import EngramError
from engram.plan import generator
from engram.settings import Settings, setting
from engram.streams._split import Numbers, Part


@dataclass(frozen=True)
class OwnSettings(Settings):
    """What every stream of somebody's own data can be told."""

    heads: Literal["shared", "by-task"] = setting(
        "shared",
        "shared: an example may be of any class met so far, since in use nobody says which task "
        "it is of; by-task: of its own task's classes, as in the paper's split benchmarks",
    )
    test_share: float = setting(
        0.2,
        "share of every class of every task held out to test on, if no test examples are given",
        above=0,
        most=0.9,
        place=True,
    )


class OwnTasks(NamedTuple):
    """Tasks made of somebody's own examples; a part's labels are numbers of classes."""

    examples: ImageSet  # or rows of a table in place of images
    parts: Sequence[Part]
    names: Sequence[str]  # the tasks'
    remarks: Sequence[str] = ()  # what somebody should know of how they were made

    @property
    def checksum(self) -> str:
        """SHA-256 of the examples and of what each is in which task."""
        digest = hashlib.sha256(self.examples.checksum.encode())
        for part in self.parts:
            for numbers in part:
                digest.update(numbers.astype("<i8").tobytes() + b"|")
        return digest.hexdigest()


def held_out(rows: Numbers, labels: Numbers, task: int, share: float) -> Part:
    """Return a task whose tests are a share of each class, the same ones in every run.

    Of n examples of a class round(share · n) are held out, but at least one and not all; the only
    example of a class is one to train on.
    """
    test = np.zeros(len(rows), dtype=bool)
    for name in np.unique(labels):
        mine = np.flatnonzero(labels == name)
        count = min(max(round(share * len(mine)), 1), len(mine) - 1)
        test[generator(0, "held out", task, int(name)).permutation(mine)[:count]] = True
    return Part(rows[~test], labels[~test], rows[test], labels[test])


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
            told = own.examples.class_names[min(strangers)]
            raise EngramError(
                f"The task {name!r} of {place} has test examples of {told!r}, which it has no "
                "training examples of."
            )
    classes = {label for part in own.parts for label in part.train_labels.tolist()}
    if len(classes) < 2:
        raise EngramError(f"{place} must have two classes or more to tell apart, and has one.")
    return own
