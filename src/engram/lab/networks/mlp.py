"""The fully connected network of the Permuted MNIST runs, stacked over runs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor

from engram.kernels import triton_works
from engram.lab.networks.gpu import Branches, rounding
from engram.lab.networks.network import SPREAD, Network, draw_normal, rows_at
from engram.lab.networks.progressive import ProgressiveMLP


class MLP(Network):
    """Linear layers with ReLU between them: h_{i+1} = relu(h_i W_i + b_i).

    Weights are drawn from a normal distribution of standard deviation 0.1 cut at two standard
    deviations, and every bias is 0.1, as in the paper's runs. With ``tf32`` a GPU rounds what the
    passes multiply to 10 bits.
    """

    def __init__(self, sizes: Sequence[int] = (784, 256, 256, 10), *, tf32: bool = False) -> None:
        self.sizes, self.tf32 = tuple(sizes), tf32
        self._lengths = [
            length
            for inputs, outputs in pairwise(self.sizes)
            for length in (inputs * outputs, outputs)
        ]
        self.size = sum(self._lengths)

    def initialise(self, source: np.random.Generator) -> Tensor:
        """Draw one run's parameters [d]."""
        parameters = torch.full((1, self.size), SPREAD)
        for weight, _ in self.layers(parameters):
            draw_normal(source, weight)
        return parameters[0]

    def named_parameters(self, flat: Tensor) -> dict[str, Tensor]:
        """Return one run's parameters [d] as views, by the names of the module ``mlp``."""
        named = dict[str, Tensor]()
        for number, (weight, bias) in enumerate(self.layers(flat)):
            named[f"{2 * number + 1}.weight"] = weight.transpose(-1, -2)
            named[f"{2 * number + 1}.bias"] = bias.squeeze(-2)
        return named

    def tensors(self, flat: Tensor) -> list[Tensor]:
        """Return one run's weights and biases as views."""
        return [part for weight, bias in self.layers(flat) for part in (weight, bias.squeeze(-2))]

    def layers(self, flat: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield each layer's weight [..., inputs, outputs] and bias [..., 1, outputs] as views."""
        *others, _ = flat.shape
        parts = iter(flat.split_with_sizes(self._lengths, -1))
        for inputs, outputs in pairwise(self.sizes):
            yield (
                next(parts).view(*others, inputs, outputs),
                next(parts).view(*others, 1, outputs),
            )

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
        *hidden_layers, last = self.layers(parameters)
        tape = [inputs]
        for weight, bias in hidden_layers:
            tape.append(layer(tape[-1], weight, bias, rectify=True, tf32=self.tf32))
        return layer(tape[-1], *last, rectify=False, tf32=self.tf32), tape

    def backward(
        self, parameters: Tensor, tape: list[Tensor], gradient: Tensor, rows: Tensor
    ) -> None:
        """Write the gradient by hand, layer by layer from the last."""
        weights = [weight for weight, _ in self.layers(parameters)]
        parts = rows.shape[0] * rows.shape[1]  # groups of all runs
        gradients, branches = [gradient], Branches(rows.device)  # all are held to the end
        for number, (weight, bias) in reversed(list(enumerate(self.layers(rows)))):
            with branches.branch():  # what the layers before do not wait for
                inputs = tape[number].reshape(parts, -1, self.sizes[number])
                behind = gradients[-1].reshape(parts, -1, self.sizes[number + 1])
                grad_weight(inputs, behind, weight, bias, tf32=self.tf32)
            if number:
                gradients.append(
                    grad_input(gradients[-1], weights[number], tape[number], tf32=self.tf32)
                )
        branches.join()

    def predict(
        self,
        parameters: Tensor,
        inputs: Tensor,
        columns: Tensor | None,
        buffers: Tensor | None = None,  # noqa: ARG002
    ) -> Tensor:
        """Return logits for inputs [B, features] that all runs share, or [R, B, features].

        By G columns for each run, [R, G, features], they are [R, G · B, classes].
        """
        if columns is not None and columns.ndim == 3:
            runs, groups, _ = columns.shape
            alike = parameters.repeat_interleave(groups, 0)
            logits = self.predict(alike, inputs, columns.flatten(0, 1))
            return logits.view(runs, -1, logits.shape[-1])
        hidden = inputs.expand(len(parameters), -1, -1)
        layers = list(self.layers(parameters))
        if columns is not None:
            weight, bias = layers[0]
            layers[0] = rows_at(weight, columns), bias
        last = layers.pop()
        for weight, bias in layers:
            hidden = layer(hidden, weight, bias, rectify=True, tf32=self.tf32)
        return layer(hidden, *last, rectify=False, tf32=self.tf32)

    def progressive(self, first: Tensor) -> ProgressiveMLP:
        """Return columns of this network, of which this is the first."""
        return ProgressiveMLP(self, first)


def layer(inputs: Tensor, weight: Tensor, bias: Tensor, *, rectify: bool, tf32: bool) -> Tensor:
    """Return x W + b, or its ReLU, for inputs [R, B, n], weights [R, n, m] and biases [R, 1, m].

    With ``tf32`` a GPU rounds what it multiplies to 10 bits, here and below.
    """
    if triton_works(inputs):
        from engram.kernels import layers

        return layers.layer(inputs, weight, bias, rectify=rectify, tf32=tf32)
    with rounding(tf32=tf32):
        output = torch.baddbmm(bias, inputs, weight)
    return output.relu_() if rectify else output


def grad_input(gradient: Tensor, weight: Tensor, hidden: Tensor, *, tf32: bool) -> Tensor:
    """Return the gradient before a layer whose inputs ``hidden`` came out of a ReLU.

    It is g Wᵀ where they are above 0, and 0 elsewhere, for the gradient g [R, B, m] behind it.
    """
    if triton_works(gradient):
        from engram.kernels import layers

        return layers.grad_input(gradient, weight, hidden, tf32=tf32)
    with rounding(tf32=tf32):
        product = torch.bmm(gradient, weight.transpose(1, 2))
    masked: Tensor = torch.ops.aten.threshold_backward(product, hidden, 0)
    return masked


def grad_weight(
    inputs: Tensor, gradient: Tensor, weight: Tensor, bias: Tensor, *, tf32: bool
) -> None:
    """Write a layer's gradients, xᵀ g and the sum of g, into ``weight`` and ``bias``.

    They are those of each group of each run's examples: inputs are [R * groups, B, n], and weights
    [R, groups, n, m].
    """
    if triton_works(gradient) and not tf32:  # of rounded numbers torch makes this product faster
        from engram.kernels import layers

        layers.grad_weight(inputs, gradient, weight, bias)
        return
    if 1 in weight.shape[:2]:  # they are evenly spaced: the products can go there directly
        with rounding(tf32=tf32):
            torch.bmm(inputs.transpose(1, 2), gradient, out=weight.flatten(0, 1))
        torch.sum(gradient, 1, keepdim=True, out=bias.flatten(0, 1))
    else:
        with rounding(tf32=tf32):
            weight.copy_(torch.bmm(inputs.transpose(1, 2), gradient).view_as(weight))
        bias.copy_(gradient.sum(1).view_as(bias))
