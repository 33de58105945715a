"""Streams of one's own images: ``folder:PATH``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from engram.errors import EngramError
from engram.lab.benchmarks.own_data import (
    OwnBenchmark,
    OwnImageSettings,
    OwnStream,
    OwnTasks,
    checked,
    held_out,
    own_benchmark,
    own_place,
)
from engram.lab.benchmarks.split import ImageSettings, Numbers, Part
from engram.lab.data import Group, Photos, load_photos, natural
from engram.lab.networks import ResNet
from engram.lab.settings import setting

LIKE = "split-cifar"
_SMALL = 64  # pixels that the stem of the small network suits
_DEALT = 2  # classes to a task, unless it is given
_NAMED = 5  # endings, where files of many are passed over


@dataclass(frozen=True)
class FolderSettings(OwnImageSettings, ImageSettings):
    """Settings of a stream of one's own images."""

    size: int = setting(
        64, "pixels of each side that images are resized to", least=16, most=1024, place=True
    )
    classes_per_task: int = setting(
        0,
        "classes dealt out to a task where folders are classes alone; 0: two",
        least=0,
        place=True,
    )


class FolderStream(OwnStream):
    """Images less the mean of the first task's, over their deviation, channel by channel.

    Only the first task's training images are looked at for that: when a model is taken into use
    the others are still to come.
    """

    _settings: FolderSettings

    @cached_property
    def _first_moments(self) -> tuple[Tensor, Tensor]:
        own = self._own
        mean, deviation = _moments(own.examples.train_images, own.parts[0].train)
        return mean.to(self.device), deviation.to(self.device)

    def network(self) -> ResNet:
        """Return the reduced ResNet-18, for large images with a stem that halves them.

        Where training starts from a file it is the residual network that the file is of.
        """
        if self._checkpoint is not None:
            autocast = self._settings.precision == "bfloat16"
            return self._checkpoint.resnet(self.classes, autocast=autocast)
        return ResNet(
            self.classes,
            large_images=self._settings.size > _SMALL,
            autocast=self._settings.precision == "bfloat16",
        )

    def normalise(self, inputs: Tensor) -> Tensor:
        """Take the first task's mean off 8-bit pixels and divide by its deviation."""
        mean, deviation = self._first_moments
        return inputs.float().sub_(mean).div_(deviation)


def folder_benchmark(path: str) -> OwnBenchmark:
    """Return the benchmark of the images in a folder."""
    if not path:
        raise EngramError("folder: must be followed by the path of a folder, as in folder:photos.")
    place = own_place("folder", path)
    return own_benchmark(
        "folder",
        place.resolve().name,
        FolderSettings,
        like=LIKE,
        read=lambda settings: _tasks(
            place, settings.size, settings.classes_per_task, settings.test_share
        ),
        build=FolderStream,
    )


def _moments(images: np.ndarray, rows: Numbers) -> tuple[Tensor, Tensor]:
    """Return the mean and the deviation of each channel over some images, [3, 1, 1]."""
    total, squares = np.zeros(3), np.zeros(3)
    for part in np.array_split(rows, -(-len(rows) // 256)):  # floats of all may be many
        pixels = images[part].astype(np.float64)
        total += pixels.sum((0, 2, 3))
        squares += np.square(pixels).sum((0, 2, 3))
    count = len(rows) * images.shape[2] * images.shape[3]
    mean = total / count
    deviation = np.sqrt(np.maximum(squares / count - mean**2, 1))  # of one shade: at least 1
    both = torch.from_numpy(np.stack([mean, deviation])).float().view(2, 3, 1, 1)
    return both[0], both[1]


def _tasks(folder: Path, size: int, per_task: int, test_share: float) -> OwnTasks:
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
    own = OwnTasks(images, parts, list(dealt), _remarks(folder, photos))
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


def _remarks(folder: Path, photos: Photos) -> list[str]:
    """Return a remark on what is not read, if there is any."""
    counts = [f"{count:,} {ending}" for ending, count in photos.passed_over.items()]
    named = ", ".join([*counts[:_NAMED], *(["…"] if len(counts) > _NAMED else [])])
    read = "JPEG, PNG, GIF, BMP, TIFF and WebP in the folders of classes are read"
    return [f"{folder}: passed over: {named}; {read}."] if counts else []
