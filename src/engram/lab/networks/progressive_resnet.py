"""The ResNet that grows by a column for each task."""

from __future__ import annotations

from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from engram.lab.networks.gpu import Branches
from engram.lab.networks.network import SPREAD, Layout, Progressive, draw_normal
from engram.lab.networks.residual import Pass, leaves

if TYPE_CHECKING:  # which makes these columns
    from engram.lab.networks.resnet import ResNet

_TEST_ROWS = 250  # images predicted at once, or fewer:
_TEST_NUMBERS = 2**29  # the states of all columns for these, which take much memory


class ProgressiveResNet(Progressive):
    """Columns of one ResNet, each of which reads all columns before it.

    Where h_c is what stage i of column c reads (the stem, i = 0, reads the image), column t adds

        Σ_{c<t} (U_c * h_c + u_c)

    to what its own stage i gives, before the stage's last ReLU: * is a 1 × 1 convolution with
    the stage's stride. The logits take in the earlier columns' pooled features likewise. Every
    column has a whole head. Column t has the parameters of the network and then, for each stage
    and for the head, U_0 to U_{t−1} side by side and u_0 to u_{t−1}.

    >>> from engram.lab.networks import ResNet
    >>> network = ResNet(100)
    >>> columns = network.progressive(torch.zeros(1, network.size))
    >>> columns.initialise(np.random.default_rng(0)).numel() - network.size
    33680
    """

    network: ResNet

    def initialise(self, source: np.random.Generator) -> Tensor:
        """Draw one run's next column: the network's own part as ever, the laterals as an MLP's."""
        layout = self._layout(len(self.columns))
        column = torch.full((layout.size,), SPREAD)
        column[: self.network.size] = self.network.initialise(source)
        for name, view in layout.views(column).items():
            if name.startswith("lateral") and name.endswith("weight"):
                draw_normal(source, view)
        return column

    def forward(self, inputs: Tensor) -> tuple[Tensor, list[Tensor]]:
        """Return logits, and a tape of them and of the parameters they come from."""
        tape, logits, branches = list[Tensor](), list[Tensor](), Branches(inputs.device)
        with torch.enable_grad():
            for run, images in enumerate(inputs):
                frozen = self._pass(run, len(self.columns) - 1)
                learned = frozen._replace(weights=leaves(frozen.weights), training=True)
                with branches.branch():
                    logits.append(self._logits(run, images, len(self.columns) - 1, learned))
                tape += learned.weights.values()
            branches.join()
            stacked = torch.stack(logits)
        return stacked.detach(), [stacked, *tape]

    def descend(self, tape: list[Tensor], gradient: Tensor, learning_rate: float) -> None:
        """Take a plain step with the last column, along the gradient that autograd finds."""
        layout, last = self._layout(len(self.columns) - 1), self.columns[-1]
        places = [view for column in last for view in layout.views(column).values()]
        gradients = torch.autograd.grad(tape[0], tape[1:], gradient)
        torch._foreach_add_(places, gradients, alpha=-learning_rate)

    def predict(self, inputs: Tensor, places: Tensor | None, column: int) -> Tensor:
        """Return a column's logits for images [B, 3, height, width] that all runs share."""
        images = self.network.images(inputs, places, len(self.columns[0]))
        rows = min(_TEST_ROWS, max(1, _TEST_NUMBERS // (self._states(images) * (column + 1))))
        logits = [
            torch.cat(
                [
                    self._logits(run, part, column, self._pass(run, column))
                    for part in torch.split(mine, rows)
                ]
            )
            for run, mine in enumerate(images)
        ]
        return torch.stack(logits)

    def _states(self, images: Tensor) -> int:
        """Return how many numbers the stages of one column read for one image."""
        area, numbers = images.shape[-2] * images.shape[-1], 0
        for width, stride in zip(self.network.widths, self.network.strides, strict=False):
            numbers += width * area
            area //= stride**2
        return numbers

    def _layout(self, earlier: int) -> Layout:
        """Return where everything is in a column that reads ``earlier`` others."""
        laterals = dict[str, tuple[int, ...]]()
        for stage, (inputs, outputs) in enumerate(pairwise(self.network.widths)):
            laterals[f"lateral{stage}.weight"] = (outputs, earlier * inputs)
            laterals[f"lateral{stage}.bias"] = (earlier, outputs)
        return Layout(self.network.layout.shapes | (laterals if earlier else {}))

    def _pass(self, run: int, column: int) -> Pass:
        """Return one run's pass through a column in evaluation."""
        weights = self._layout(column).views(self.columns[column][run])
        return Pass(weights, self.network.named_buffers(self.buffers[column][run]))

    def _logits(self, run: int, images: Tensor, column: int, own: Pass) -> Tensor:
        """Go through the columns before one, and then through it."""
        earlier = list[list[Tensor]]()  # of each column: what its stages and its head read
        for before in range(column):
            earlier.append(self._trace(self._pass(run, before), images, earlier))
        return self._trace(own, images, earlier)[-1]

    def _trace(self, one: Pass, images: Tensor, earlier: list[list[Tensor]]) -> list[Tensor]:
        lateral = partial(self._lateral, one, earlier) if earlier else None
        return self.network.trace(one, images, lateral)

    def _lateral(self, one: Pass, earlier: list[list[Tensor]], stage: int) -> Tensor:
        """Return Σ (U_c * h_c + u_c) over the earlier columns: one product of all side by side."""
        weight, biases = one.weights[f"lateral{stage}.weight"], one.weights[f"lateral{stage}.bias"]
        states = torch.cat([states[stage] for states in earlier], 1)
        if states.dim() == 2:
            return functional.linear(states, weight, biases.sum(0))
        kernel = weight[..., None, None]
        return functional.conv2d(states, kernel, biases.sum(0), stride=self.network.strides[stage])
