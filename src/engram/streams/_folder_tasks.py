"""Which task an image of a folder is of, and of which class."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from engram.data import Group, Photos, load_photos, natural
from engram.errors import EngramError
from engram.streams._own_tasks import OwnTasks, checked, held_out
from engram.streams._split import Numbers, Part

_DEALT = 2  # classes to a task, unless it is given
_NAMED = 5  # endings, where files of many are passed over


def folder_tasks(folder: Path, size: int, per_task: int, test_share: float) -> OwnTasks:
    """Return the tasks of a folder's images, ``per_task`` classes in each where it has none."""
    photos = load_photos(folder, size)
    if per_task and photos.groups[0].task:
        raise EngramError(
            "classes_per_task must not be given where the folders are tasks, as those of "
            f"{str(folder)!r} are: the classes of a task are the folders in it."
        )
    classes = sorted({group.name for group in photos.groups}, key=natural)
    numbers = {name: number for number, name in enumerate(classes)}
    of_group = np.array([numbers[group.name] for group in photos.groups])
    dealt = _dealt(photos.groups, of_group, classes, per_task or _DEALT)
    separate = len(photos.images.test_labels) > 0
    images = photos.images._replace(class_names=tuple(classes))
    if not separate:  # then the tests are among the images
        _check_counts(folder, photos)
        images = images._replace(test_images=images.train_images)
    parts = []
    for task, groups in enumerate(dealt.values()):
        rows, labels = _chosen(photos.images.train_labels, groups, of_group)
        if separate:
            part = Part(rows, labels, *_chosen(photos.images.test_labels, groups, of_group))
        else:
            part = held_out(rows, labels, task, test_share)
        parts.append(part)
    own = OwnTasks(images, parts, list(dealt), _told(folder, photos))
    return checked(own, str(folder), "add images")


def _dealt(
    groups: Sequence[Group], of_group: Numbers, classes: Sequence[str], per_task: int
) -> dict[str, list[int]]:
    """Return the groups of each task, by the task's name."""
    dealt: dict[str, list[int]] = {}
    for place, (group, number) in enumerate(zip(groups, of_group.tolist(), strict=True)):
        start = number // per_task * per_task
        together = ", ".join(classes[start : start + per_task])
        dealt.setdefault(group.task or together, []).append(place)
    return dealt


def _chosen(labels: Numbers, groups: Sequence[int], of_group: Numbers) -> tuple[Numbers, Numbers]:
    rows = np.flatnonzero(np.isin(labels, groups))
    return rows, of_group[labels[rows]]


def _check_counts(folder: Path, photos: Photos) -> None:
    counts = np.bincount(photos.images.train_labels)
    for group, count in zip(photos.groups, counts, strict=True):
        if count < 2:
            raise EngramError(
                f"{str(folder / group.task / group.name)!r} must have two images or more, one to "
                "train on and one to test on, and has one."
            )


def _told(folder: Path, photos: Photos) -> list[str]:
    """Return what is to be told of what is not read, if there is any."""
    told = [f"{count:,} {ending}" for ending, count in photos.passed_over.items()]
    named = ", ".join([*told[:_NAMED], *(["…"] if len(told) > _NAMED else [])])
    read = "JPEG, PNG, GIF, BMP, TIFF and WebP in the folders of classes are read"
    return [f"{folder}: passed over: {named}; {read}."] if told else []
