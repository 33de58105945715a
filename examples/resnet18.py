"""A network of one's own: the reduced ResNet-18 of Split CIFAR as anybody would write it.

    engram run split-cifar mega-ii --network examples/resnet18.py:ResNet18

Nothing of Engram is needed in the file of a network. The initial weights are drawn as those of the
benchmark's own network are, so the two differ in who goes back through the layers: autograd here,
code that is written by hand there.
"""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn import functional


def convolution(inputs: int, outputs: int, side: int, stride: int) -> nn.Conv2d:
    """Return a convolution without bias, its weights drawn uniformly from ±1/√(side · inputs)."""
    layer = nn.Conv2d(inputs, outputs, side, stride, padding=side // 2, bias=False)
    bound = (side * inputs) ** -0.5
    nn.init.uniform_(layer.weight, -bound, bound)
    return layer


def norm(channels: int) -> nn.BatchNorm2d:
    """Return a batch norm whose averages of the variance begin at zero."""
    layer = nn.BatchNorm2d(channels, eps=1e-3)
    assert layer.running_var is not None  # it keeps averages, unless told otherwise
    nn.init.zeros_(layer.running_var)
    return layer


class Block(nn.Module):
    """Two convolutions of 3 × 3 and a way around them."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.conv1, self.norm1 = convolution(inputs, outputs, 3, stride), norm(outputs)
        self.conv2, self.norm2 = convolution(outputs, outputs, 3, 1), norm(outputs)
        self.shortcut = nn.Sequential()
        if inputs != outputs:
            self.shortcut = nn.Sequential(convolution(inputs, outputs, 1, stride), norm(outputs))

    def forward(self, images: Tensor) -> Tensor:
        """Return features [B, outputs, height / stride, width / stride]."""
        hidden = functional.relu(self.norm1(self.conv1(images)))
        return functional.relu(self.norm2(self.conv2(hidden)) + self.shortcut(images))


class ResNet18(nn.Module):
    """ResNet-18 with ``width`` filters in its first stage, for small images."""

    def __init__(self, shape: tuple[int, ...], outputs: int, *, width: int = 20) -> None:
        super().__init__()
        self.stem = nn.Sequential(convolution(shape[0], width, 3, 1), norm(width), nn.ReLU())
        blocks, inputs = list[nn.Module](), width
        for stage in range(4):
            channels = width * 2**stage
            first = Block(inputs, channels, 1 if stage == 0 else 2)
            blocks += [first, Block(channels, channels, 1)]
            inputs = channels
        self.blocks = nn.Sequential(*blocks)
        self.head = nn.Linear(inputs, outputs)

    def forward(self, images: Tensor) -> Tensor:
        """Return the logits of images [B, channels, height, width]."""
        logits: Tensor = self.head(self.blocks(self.stem(images)).mean((2, 3)))
        return logits
