"""The fully connected network of the Permuted MNIST runs, stacked over runs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor

from engram.models._initial import SPREAD, draw_normal
from engram.models._network import Network
from engram.models._progressive_mlp import ProgressiveMLP


class MLP(Network):
    """Linear layers with ReLU between them: h_{i+1} = relu(h_i W_i + b_i).

    Weights are drawn from a normal distribution of standard deviation 0.1 cut at two standard
    deviations, and every bias is 0.1, as in the paper's runs.
    """

    def __init__(self, sizes: Sequence[int] = (784, 256, 256, 10)) -> None:
        self.sizes = tuple(sizes)
        self.size = sum(inputs * outputs + outputs for inputs, outputs in pairwise(self.sizes))

    def initialise(self, source: np.random.Generator) -> Tensor:
        """Draw one run's parameters [d]."""
        parameters = torch.full((1, self.size), SPREAD)
        for weight, _ in self.layers(parameters):
            draw_normal(source, weight)
        return parameters[0]

    def layers(self, flat: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield each layer's weight [R, inputs, outputs] and bias [R, 1, outputs] as views."""
        runs, start = flat.shape[0], 0
        for inputs, outputs in pairwise(self.sizes):
            middle = start + inputs * outputs
            yield (
                flat[:, start:middle].view(runs, inputs, outputs),
                flat[:, middle : middle + outputs].view(runs, 1, outputs),
            )
            start = middle + outputs

    def forward(
        self,
        parameters: Tensor,
        inputs: Tensor,
        buffers: Tensor | None = None,  # noqa: ARG002
        *,
        weights: Tensor | None = None,  # noqa: ARG002
        training: bool = True,  # noqa: ARG002
    ) -> tuple[Tensor, list[Tensor]]:
        """Return logits and the input of every layer."""
        hidden, tape = inputs, list[Tensor]()
        for weight, bias in self.layers(parameters):
            if tape:
                hidden = hidden.relu_()
            tape.append(hidden)
            hidden = torch.baddbmm(bias, hidden, weight)
        return hidden, tape

    def backward(
        self, parameters: Tensor, tape: list[Tensor], gradient: Tensor, rows: Tensor
    ) -> None:
        """Write the gradient by hand, layer by layer from the last."""
        weights = [weight for weight, _ in self.layers(parameters)]
        runs, groups = rows.shape[:2]
        # Rows of one group, or of one run, are evenly spaced: the products can go there directly.
        direct = runs == 1 or groups == 1
        flat = (
            (rows[0] if runs == 1 else rows[:, 0])
            if direct
            else rows.new_empty(runs * groups, self.size)
        )
        places = list(self.layers(flat))
        for layer in reversed(range(len(weights))):
            inputs = tape[layer].reshape(runs * groups, -1, self.sizes[layer])
            parts = gradient.reshape(runs * groups, -1, self.sizes[layer + 1])
            torch.bmm(inputs.transpose(1, 2), parts, out=places[layer][0])
            torch.sum(parts, 1, keepdim=True, out=places[layer][1])
            if layer:
                gradient = torch.bmm(gradient, weights[layer].transpose(1, 2))
                gradient = torch.ops.aten.threshold_backward(gradient, tape[layer], 0)
        if not direct:
            rows.copy_(flat.view_as(rows))

    def predict(
        self,
        parameters: Tensor,
        inputs: Tensor,
        columns: Tensor | None,
        buffers: Tensor | None = None,  # noqa: ARG002
    ) -> Tensor:
        """Return logits for inputs [B, features] that all runs share, or [R, B, features]."""
        runs = parameters.shape[0]
        hidden = inputs.expand(runs, -1, -1)
        for layer, (weight, bias) in enumerate(self.layers(parameters)):
            if layer:
                hidden = hidden.relu_()
            elif columns is not None:
                index = columns.unsqueeze(-1).expand(-1, -1, weight.shape[-1])
                weight = (
                    weight[0].index_select(0, columns[0]).unsqueeze(0)
                    if runs == 1  # copies whole rows; gather goes number by number
                    else weight.gather(1, index)
                )
            hidden = torch.baddbmm(bias, hidden, weight)
        return hidden

    def progressive(self, first: Tensor) -> ProgressiveMLP:
        """Return columns of this network, of which this is the first."""
        return ProgressiveMLP(self, first)
