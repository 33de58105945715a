"""The networks of the paper's runs as ordinary modules: what anybody would write with torch.nn.

The laboratory's own `MLP` and `ResNet` compute the same, faster. These are registered by name, to
be trained wherever a module is: in one's own loop, in production, or with ``--network``.
"""

from __future__ import annotations

import math
from itertools import pairwise

from torch import Tensor, nn
from torch.nn import functional

from engram.errors import EngramError
from engram.lab.networks.network import SPREAD

_EPSILON = 1e-3  # of batch norm, as in the paper's runs


class PlainMLP(nn.Sequential):
    """Linear layers with ReLU between them, ``depth`` hidden ones of ``width``.

    Inputs of any shape are flattened. Weights are drawn from a normal distribution of standard
    deviation 0.1 cut at two standard deviations, and every bias is 0.1.

    >>> sum(each.numel() for each in PlainMLP((784,), 10).parameters())
    269322
    """

    def __init__(
        self, shape: tuple[int, ...], outputs: int, *, width: int = 256, depth: int = 2
    ) -> None:
        sizes = [math.prod(shape), *[width] * depth]
        layers: list[nn.Module] = [nn.Flatten()]
        for inputs, units in pairwise(sizes):
            layers += [_linear(inputs, units), nn.ReLU()]
        super().__init__(*layers, _linear(sizes[-1], outputs))


def _linear(inputs: int, outputs: int) -> nn.Linear:
    layer = nn.Linear(inputs, outputs)
    nn.init.trunc_normal_(layer.weight, std=SPREAD, a=-2 * SPREAD, b=2 * SPREAD)
    nn.init.constant_(layer.bias, SPREAD)
    return layer


class PlainResNet(nn.Module):
    """ResNet-18 of ``width`` filters in the first stage, for images [colours, height, width].

    The reduced one of Split CIFAR has 20 filters, a 3 × 3 stem and no max-pool. Parameters have the
    names of the public ImageNet checkpoint. Convolutions are drawn uniformly from ±1/√(k C), k the
    side of the kernel and C the channels it reads, the head from ±1/√(8 width).

    >>> sum(each.numel() for each in PlainResNet((3, 32, 32), 100).parameters())
    1109240
    """

    def __init__(self, shape: tuple[int, ...], outputs: int, *, width: int = 20) -> None:
        super().__init__()
        if len(shape) != 3:
            raise EngramError(
                f"resnet18-reduced takes images [colours, height, width], not {list(shape)}."
            )
        self.conv1 = _convolution(shape[0], width, 3, 1)
        self.bn1 = _norm(width)
        widths = [width, *(width << stage for stage in range(4))]
        for stage, (inputs, channels) in enumerate(pairwise(widths), start=1):
            blocks = _Block(inputs, channels, 1 if stage == 1 else 2), _Block(channels, channels, 1)
            self.add_module(f"layer{stage}", nn.Sequential(*blocks))
        self.fc = nn.Linear(widths[-1], outputs)  # drawn from ±1/√(8 width) as it is

    def forward(self, images: Tensor) -> Tensor:
        """Return logits [B, outputs] for images [B, colours, height, width]."""
        hidden = functional.relu(self.bn1(self.conv1(images)))
        for stage in range(1, 5):
            hidden = self.get_submodule(f"layer{stage}")(hidden)
        logits: Tensor = self.fc(hidden.mean((2, 3)))
        return logits


class _Block(nn.Module):
    def __init__(self, inputs: int, channels: int, stride: int) -> None:
        super().__init__()
        self.conv1 = _convolution(inputs, channels, 3, stride)
        self.bn1 = _norm(channels)
        self.conv2 = _convolution(channels, channels, 3, 1)
        self.bn2 = _norm(channels)
        self.downsample: nn.Module = nn.Identity()
        if inputs != channels:
            shortcut = _convolution(inputs, channels, 1, stride)
            self.downsample = nn.Sequential(shortcut, _norm(channels))

    def forward(self, inputs: Tensor) -> Tensor:
        hidden = functional.relu(self.bn1(self.conv1(inputs)))
        return functional.relu(self.bn2(self.conv2(hidden)) + self.downsample(inputs))


def _convolution(inputs: int, outputs: int, side: int, stride: int) -> nn.Conv2d:
    layer = nn.Conv2d(inputs, outputs, side, stride, side // 2, bias=False)
    bound = (side * inputs) ** -0.5
    nn.init.uniform_(layer.weight, -bound, bound)
    return layer


def _norm(channels: int) -> nn.BatchNorm2d:
    norm = nn.BatchNorm2d(channels, eps=_EPSILON)
    nn.init.zeros_(norm.running_var)  # type: ignore[arg-type] # as in the paper's runs
    return norm
