"""The ResNet-18 of the image benchmarks, reduced or full, as a function of flat parameters."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from engram.errors import EngramError
from engram.lab.networks.gpu import Branches
from engram.lab.networks.network import Layout, Network, draw_uniform
from engram.lab.networks.progressive import ProgressiveResNet
from engram.lab.networks.residual import Pass, leaves, shapes

_COLOURS = 3


class ResNet(Network):
    """A stem, four stages of two basic blocks, the mean over all places, a linear head.

    ``width`` filters in the stem and the first stage, twice as many from stage to stage. The
    default is the reduced network of Split CIFAR; the one of Split CUB and Split AWA is
    ``ResNet(200, 64, large_images=True, shortcut_norm=False)``, and the usual ResNet-18 has
    ``max_pool`` and ``shortcut_norm``. The stem is 3 × 3 with stride 1 or, for large images,
    7 × 7 with stride 2. Parameters and buffers have the names and shapes of the public ImageNet
    checkpoint.

    Convolutions are drawn uniformly from ±1/√(k C), k the side of the kernel and C the channels
    it reads, the head from ±1/√(8 width); the head's bias too, but for large images it is 0.
    Running averages start at 0, the variances too. With ``autocast`` the passes are made in
    bfloat16, where that is safe, with the weights in float32. Inputs are images
    [R, B, 3, height, width]; on a GPU runs go side by side: grouped convolutions gain nothing.

    >>> network = ResNet(100)
    >>> network.size, network.buffer_size
    (1109240, 3000)
    >>> network.named_parameters(torch.zeros(network.size))["layer2.0.downsample.0.weight"].shape
    torch.Size([40, 20, 1, 1])
    """

    def __init__(
        self,
        classes: int,
        width: int = 20,
        *,
        large_images: bool = False,
        max_pool: bool = False,
        shortcut_norm: bool = True,
        autocast: bool = False,
    ) -> None:
        self.large_images, self.max_pool, self.autocast = large_images, max_pool, autocast
        # What the stem, the four stages and the head read, and what the head gives.
        self.widths = (_COLOURS, width, *(width << stage for stage in range(4)), classes)
        self.strides = (2 if large_images else 1, 1, 2, 2, 2)
        parameters, buffers = shapes(self.widths, 7 if large_images else 3, shortcut_norm)
        self.layout, self.buffer_layout = Layout(parameters), Layout(buffers)
        self.size, self.buffer_size = self.layout.size, self.buffer_layout.size

    def named_parameters(self, flat: Tensor) -> dict[str, Tensor]:
        """Return one run's parameters [d] as views, by the names of the public checkpoint."""
        return self.layout.views(flat)

    def tensors(self, flat: Tensor) -> list[Tensor]:
        """Return one run's parameters [d] as views."""
        return list(self.named_parameters(flat).values())

    def named_buffers(self, flat: Tensor) -> dict[str, Tensor]:
        """Return one run's buffers [b] as views, by the names of the public checkpoint."""
        return self.buffer_layout.views(flat)

    def least_batch(self, shape: Sequence[int]) -> int:
        """Return 2 where the last norms see a single place of each image, else 1."""
        sides = shape[1:]
        for stride in (*self.strides, *([2] if self.max_pool else [])):
            sides = [-(-side // stride) for side in sides]
        return 2 if sides and all(side == 1 for side in sides) else 1

    def initialise(self, source: np.random.Generator) -> Tensor:
        """Draw one run's parameters [d]."""
        parameters = torch.zeros(self.size)
        for name, view in self.named_parameters(parameters).items():
            if view.dim() == 4:
                draw_uniform(source, view, reads=view.shape[1] * view.shape[2])
            elif name == "fc.weight" or (name == "fc.bias" and not self.large_images):
                draw_uniform(source, view, reads=self.widths[-2])
            elif name.endswith("weight"):
                view.fill_(1)  # a norm's
        return parameters

    def forward(
        self,
        parameters: Tensor,
        inputs: Tensor,
        buffers: Tensor,
        *,
        weights: Tensor | None = None,
        training: bool = True,
    ) -> tuple[Tensor, list[Tensor]]:
        """Return logits, and a tape of them and of the parameters they come from."""
        tape, logits, branches = list[Tensor](), list[Tensor](), Branches(inputs.device)
        with torch.enable_grad():
            for run, images in enumerate(inputs):
                mine = leaves(self.named_parameters(parameters[run]))
                with branches.branch():
                    present = None if weights is None else weights[run] > 0
                    one = Pass(mine, self.named_buffers(buffers[run]), training, present)
                    logits.append(self.trace(one, images)[-1])
                tape += mine.values()
            branches.join()
            stacked = torch.stack(logits)
        return stacked.detach(), [stacked, *tape]

    def backward(
        self,
        parameters: Tensor,  # noqa: ARG002
        tape: list[Tensor],
        gradient: Tensor,
        rows: Tensor,
    ) -> None:
        """Let autograd go back along the tape."""
        places = [view for row in rows[:, 0] for view in self.named_parameters(row).values()]
        torch._foreach_copy_(places, torch.autograd.grad(tape[0], tape[1:], gradient))

    def predict(
        self, parameters: Tensor, inputs: Tensor, columns: Tensor | None, buffers: Tensor
    ) -> Tensor:
        """Return logits for images [B, 3, height, width] that all runs share, or each run's."""
        logits = [
            self.trace(Pass(self.named_parameters(mine), self.named_buffers(averages)), images)[-1]
            for mine, averages, images in zip(
                parameters, buffers, self.images(inputs, columns, len(parameters)), strict=True
            )
        ]
        return torch.stack(logits)

    def images(self, inputs: Tensor, columns: Tensor | None, runs: int) -> Tensor:
        """Return test images as each run's, [R, B, 3, height, width]."""
        if columns is not None:
            raise EngramError("columns must be None for a ResNet, which reads whole images.")
        return inputs.expand(runs, *inputs.shape[-4:])

    def progressive(self, first: Tensor) -> ProgressiveResNet:
        """Return columns of this network, of which this is the first."""
        return ProgressiveResNet(self, first)

    def trace(
        self, one: Pass, images: Tensor, lateral: Callable[[int], Tensor] | None = None
    ) -> list[Tensor]:
        """Return what the stem, the four stages and the head read, and the logits.

        ``lateral(i)`` is added to what stage i gives before its last ReLU (0 is the stem), and
        lateral(5) to the logits.
        """
        if not self.autocast:
            return self._trace(one, images, lateral)
        # Without the cache of cast weights: weights change, and a captured step keeps no cache.
        with torch.autocast(images.device.type, torch.bfloat16, cache_enabled=False):
            *states, logits = self._trace(one, images, lateral)
        return [*states, logits.float()]

    def _trace(
        self, one: Pass, images: Tensor, lateral: Callable[[int], Tensor] | None
    ) -> list[Tensor]:
        if images.is_cuda:
            images = images.contiguous(memory_format=torch.channels_last)
        stem = one.convolution("conv1", images, self.strides[0])
        hidden = one.rectified_norm("bn1", stem, lateral and lateral(0))
        if self.max_pool:
            hidden = (functional.max_pool2d(hidden[0], 3, stride=2, padding=1),) * 2
        states = [images, hidden[0]]
        for stage in range(1, 5):
            hidden = one.block(f"layer{stage}.0", hidden, self.strides[stage], None)
            hidden = one.block(f"layer{stage}.1", hidden, 1, lateral and lateral(stage))
            states.append(hidden[0])
        states[-1] = hidden[0].mean((2, 3))
        logits = functional.linear(states[-1], one.weights["fc.weight"], one.weights["fc.bias"])
        return [*states, logits if lateral is None else logits + lateral(5)]
