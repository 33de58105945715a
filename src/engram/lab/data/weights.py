"""Checkpoints that training starts from: of any network, and the public one of ResNet-18."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from io import BufferedReader
from pathlib import Path

import torch
from torch import Tensor

from engram.errors import EngramError, shown
from engram.lab.data.catalogue import CATALOGUE, located

_NAME = "resnet18-imagenet"
_BLOCKS = [f"layer{stage}.{block}" for stage in (1, 2, 3, 4) for block in (0, 1)]
_NEEDED = ["conv1.weight", "bn1.weight", "bn1.bias"] + [
    f"{block}.{name}"
    for block in _BLOCKS
    for name in ("conv1.weight", "bn1.weight", "bn1.bias", "conv2.weight", "bn2.weight", "bn2.bias")
]


def load_checkpoint(path_or_name: str | Path, folder: Path | None = None) -> dict[str, Tensor]:
    """Return the tensors of a checkpoint by their names, on the CPU.

    Given ``"resnet18-imagenet"``, the public one in the data folder; else a file, ``.pth`` or
    ``.pt`` read by torch's restricted loader, which makes tensors and nothing else, or
    ``.safetensors``.
    """
    path = _path(path_or_name, folder)
    content = _read(path)
    if not isinstance(content, Mapping) or not all(
        isinstance(name, str) and isinstance(value, Tensor) for name, value in content.items()
    ):
        raise EngramError(f"{str(path)!r} is not a checkpoint: it is not tensors by name alone.")
    return {name: value.detach() for name, value in content.items()}


def load_weights(path_or_name: str | Path, folder: Path | None = None) -> dict[str, Tensor]:
    """Return the tensors of a ResNet-18 checkpoint by their public names, on the CPU."""
    content = load_checkpoint(path_or_name, folder)
    for name in _NEEDED:
        if name not in content:
            path = str(_path(path_or_name, folder))
            raise EngramError(f"{path!r} is not a checkpoint of ResNet-18: it has no {name}.")
    return content


def weights_checksum(path_or_name: str | Path, folder: Path | None = None) -> str:
    """Return the SHA-256 of a checkpoint's file."""
    with _opened(_path(path_or_name, folder)) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _path(path_or_name: str | Path, folder: Path | None) -> Path:
    if not isinstance(path_or_name, str | Path):
        raise EngramError(f"A checkpoint is named by its path, not by {shown(path_or_name)}.")
    if path_or_name == _NAME:
        return located(CATALOGUE[_NAME], folder)
    try:
        return Path(path_or_name).expanduser()
    except RuntimeError:
        raise EngramError(f"There is no home folder as in {str(path_or_name)!r}.") from None


def _read(path: Path) -> object:
    if path.suffix not in (".pth", ".pt", ".safetensors"):
        raise EngramError(f"A checkpoint is a file .pth, .pt or .safetensors, not {str(path)!r}.")
    with _opened(path):
        pass
    try:
        if path.suffix == ".safetensors":
            from safetensors.torch import load_file

            return load_file(path)
        return torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # at a file of another kind the readers may raise anything
        raise EngramError(
            f"{str(path)!r} is not a checkpoint of tensors alone, or is damaged."
        ) from error


def _opened(path: Path) -> BufferedReader:
    try:
        return path.open("rb")
    except (OSError, ValueError) as error:  # a value: no name for a file
        reason = getattr(error, "strerror", None) or error
        raise EngramError(f"The checkpoint {str(path)!r} cannot be read: {reason}.") from error
