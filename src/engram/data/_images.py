"""What a data set is, before and after its images are decoded."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple

import numpy as np


class ImageSet(NamedTuple):
    """A data set of colour images with whole-number labels, in its official order.

    ``N`` training and ``M`` test images of one size, 8 bits a channel, channels RGB. The images
    are read-only memory maps: what is not looked at is not read.
    """

    train_images: np.ndarray  # uint8 [N, 3, H, W]
    train_labels: np.ndarray  # int64 [N]
    test_images: np.ndarray  # uint8 [M, 3, H, W]
    test_labels: np.ndarray  # int64 [M]
    class_names: tuple[str, ...]  # by label; empty where the source does not tell
    checksum: str  # SHA-256 of shapes, labels and pixels


class Decoded(NamedTuple):
    """A data set as it comes out of its files."""

    train_labels: np.ndarray  # int64 [N]
    test_labels: np.ndarray  # int64 [M]
    class_names: tuple[str, ...]
    size: tuple[int, int]  # height and width
    images: Iterable[np.ndarray]  # uint8 [n, 3, H, W], pieces in order: training, then test


class Layout(NamedTuple):
    """The files of a data set that was found, and how to decode them."""

    name: str
    files: tuple[Path, ...]  # their paths, sizes and times of change are the set's identity
    decode: Callable[[], Decoded]
