"""What Split CUB and Split AWA share: 224 × 224 images and the full ResNet-18."""

from __future__ import annotations

import torch
from torch import Tensor

from engram.models import ResNet
from engram.streams._split import SplitStream

# The paper's runs take the means of blue, green and red off red, green and blue.
_MEANS = (103.94, 116.78, 123.68)


class LargeImages(SplitStream):
    """A split of images that are squashed to 224 × 224 and go in as 0 to 255 less a mean."""

    autocast = False  # whether passes are made in bfloat16

    def network(self) -> ResNet:
        """Return ResNet-18 as the paper's runs have it: no max-pool, no norm on shortcuts."""
        return ResNet(
            self.classes, 64, large_images=True, shortcut_norm=False, autocast=self.autocast
        )

    def normalise(self, inputs: Tensor) -> Tensor:
        """Take the channels' means off 8-bit pixels."""
        floats = inputs.float()
        return floats.sub_(_means(floats.device))


def _means(device: torch.device) -> Tensor:
    means = torch.empty(3, 1, 1, device=device)  # filled without a copy from the host
    for channel, mean in enumerate(_MEANS):
        means[channel].fill_(mean)
    return means
