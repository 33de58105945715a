"""The MNIST images that ship inside the package."""

from __future__ import annotations

import gzip
import hashlib
import zlib
from functools import cache
from importlib import resources
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from engram.errors import EngramError

_VALIDATION = 5_000  # the first 5,000 of the 60,000, as the reader behind the paper cuts them


class Mnist(NamedTuple):
    """55,000 training, 5,000 validation and 10,000 test images, flat, 8 bits a pixel."""

    train_images: Tensor  # [55000, 784], uint8
    train_labels: Tensor  # [55000], int64
    validation_images: Tensor
    validation_labels: Tensor
    test_images: Tensor
    test_labels: Tensor


@cache
def load_mnist() -> Mnist:
    """Read the embedded files; a file that does not match its checksum is refused."""
    images, labels = _read("train-images-idx3-ubyte", 784), _read("train-labels-idx1-ubyte", 1)
    test_images, test_labels = (
        _read("t10k-images-idx3-ubyte", 784),
        _read("t10k-labels-idx1-ubyte", 1),
    )
    labels, test_labels = labels.flatten().long(), test_labels.flatten().long()
    cut = _VALIDATION
    return Mnist(images[cut:], labels[cut:], images[:cut], labels[:cut], test_images, test_labels)


@cache
def mnist_checksums() -> dict[str, str]:
    """Return the SHA-256 of each file's uncompressed content."""
    text = resources.files("engram.streams").joinpath("mnist/SHA256SUMS").read_text()
    return {name: checksum for checksum, name in (line.split() for line in text.splitlines())}


def _read(name: str, width: int) -> Tensor:
    file = resources.files("engram.streams").joinpath(f"mnist/{name}.gz")
    try:
        content = gzip.decompress(file.read_bytes())
    except (OSError, EOFError, zlib.error):
        content = b""  # which no checksum matches
    if hashlib.sha256(content).hexdigest() != mnist_checksums()[name]:
        raise EngramError(f"The embedded file {name}.gz is damaged; install the package again.")
    header = 4 + 4 * content[3]  # the magic number's last byte is the number of dimensions
    values = np.frombuffer(content, dtype=np.uint8, offset=header).reshape(-1, width)
    return torch.from_numpy(values.copy())
