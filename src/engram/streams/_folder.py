"""Streams of one's own images: ``folder:PATH``."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from engram.errors import EngramError
from engram.models import ResNet
from engram.settings import setting
from engram.streams._folder_tasks import folder_tasks
from engram.streams._own_benchmark import OwnBenchmark, own_benchmark, own_place
from engram.streams._own_stream import OwnStream
from engram.streams._own_tasks import OwnSettings
from engram.streams._split import ImageSettings, Numbers

LIKE = "split-cifar"
_SMALL = 64  # pixels that the stem of the small network suits


@dataclass(frozen=True)
class FolderSettings(ImageSettings, OwnSettings):
    """What a stream of one's own images can be told."""

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
        """Return the reduced ResNet-18, for large images with a stem that halves them."""
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
        read=lambda settings: folder_tasks(
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
