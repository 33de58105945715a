"""Images of training batches mirrored and moved at random, where somebody asks for it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from engram.errors import EngramError
from engram.lab.plan import generator
from engram.lab.settings import Settings, setting

_STEP = 2**32  # more than there are images in a batch
_LOW = 2**31 - 1  # the bits that a shift is drawn from
# The finaliser of SplitMix64: every bit of a number moves about half of the result's.
_MIXED = ((30, -0x40A7B892E31B1A47), (27, -0x6B2FB644ECCEEE15), (31, 1))


@dataclass(frozen=True)
class AugmentationSettings(Settings):
    """Settings of a stream that may augment its images."""

    flip: bool = setting(
        False,
        "true: half of the images of every training batch are mirrored, left to right",
        later=True,
    )
    crop: int = setting(
        0,
        "pixels by which each image of a training batch is moved at most, up or down and left or "
        "right; what comes in at the edge is 0",
        least=0,
        later=True,
    )


def check_crop(settings: AugmentationSettings, shape: Sequence[int]) -> None:
    """Refuse what cannot be done to examples of a shape."""
    if len(shape) != 3:
        if settings.flip or settings.crop:
            raise EngramError(
                f"flip and crop are for images [3, height, width], not for inputs {list(shape)}."
            )
    elif settings.crop > (most := min(shape[1:]) // 2):
        raise EngramError(
            f"crop must be at most {most}, half the side of the images, not {settings.crop}."
        )


class Augmentation:
    """Mirrors and moves images [R, B, C, H, W], each by draws of its own.

    They depend on the run's seed, the task, the number of the batch within the task and the place
    in that batch, and on nothing else: so a run is the same alone, stacked or resumed. The number
    of the batch is on the device (``count``), where a captured step finds it.
    """

    def __init__(
        self, settings: AugmentationSettings, seeds: Sequence[int], device: torch.device
    ) -> None:
        self._flip, self._crop, self._seeds = settings.flip, settings.crop, tuple(seeds)
        self._keys = torch.zeros(len(self._seeds), 1, dtype=torch.int64, device=device)
        self.count = torch.zeros(1, dtype=torch.int64, device=device)

    def begin_task(self, task: int) -> None:
        """Begin the batches of a task."""
        keys = [int(generator(seed, "augmentation", task).integers(2**63)) for seed in self._seeds]
        self._keys.copy_(torch.tensor(keys).unsqueeze(1))
        self.count.zero_()

    def __call__(self, images: Tensor) -> Tensor:
        """Return the images of the next batch as they are to be learned."""
        *_, height, width = images.shape
        places = torch.arange(images.shape[1], device=images.device)
        drawn = _mixed(self._keys + _mixed(self.count * _STEP + places))  # [R, B]
        self.count.add_(1)
        mirrored = (drawn >> 62) & 1 if self._flip else torch.zeros_like(drawn)
        columns = torch.arange(width, device=images.device)
        columns = torch.where(mirrored.unsqueeze(-1) == 1, width - 1 - columns, columns)
        if self._crop:
            span = 2 * self._crop + 1
            down, right = (drawn & _LOW) % span, ((drawn >> 31) & _LOW) % span
            images = functional.pad(images, (self._crop,) * 4)
            rows = torch.arange(height, device=images.device) + down.unsqueeze(-1)
            shape = *images.shape[:3], height, images.shape[-1]
            images = images.gather(3, rows[:, :, None, :, None].expand(shape))
            columns = columns + right.unsqueeze(-1)
        return images.gather(4, columns[:, :, None, None, :].expand(*images.shape[:4], width))


def _mixed(numbers: Tensor) -> Tensor:
    """Return numbers of 64 bits of which each looks like a draw."""
    for shift, factor in _MIXED:
        # An arithmetic shift less the sign's bits is a logical one.
        numbers = (numbers ^ ((numbers >> shift) & (2 ** (64 - shift) - 1))) * factor
    return numbers
