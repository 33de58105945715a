"""The MLP that grows by a column for each task, stacked over runs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from engram.models._progressive import Progressive
from engram.models._rounding import rounding

if TYPE_CHECKING:  # which makes these columns
    from engram.models._mlp import MLP

Layer = tuple[Tensor, Tensor]  # weight and bias

_BAND = 4  # frozen columns in one product: fewer make many products, more make them mostly zeros
_TEST_ROWS = 2_000  # inputs predicted at once: the states of all columns take much memory


class ProgressiveMLP(Progressive):
    """Columns of one MLP, each of which reads all columns before it.

    Layer i of column t, where h_c is column c's input to layer i (h_c = x for i = 0):

        h_t W + b + Σ_{c<t} (h_c U_c + u_c),    then ReLU, except at the logits.

    Column t has t + 1 times the parameters of the MLP, [R, (t + 1) d], layer after layer: U_0 to
    U_{t−1} and W one below the other, then u_0 to u_{t−1} and b.

    >>> from engram.models import MLP
    >>> network = MLP((4, 3, 2))
    >>> columns = ProgressiveMLP(network, torch.zeros(1, network.size))
    >>> columns.grow(torch.zeros(1, 2 * network.size))
    >>> network.size, columns.size
    (23, 69)
    """

    network: MLP

    def __init__(self, network: MLP, first: Tensor) -> None:
        super().__init__(network, first)
        # For each hidden layer: the frozen columns, _BAND of them side by side in a matrix whose
        # rows are the inputs of all columns so far, with zeros where a column does not read.
        self._bands: list[list[Layer]] = [[] for _ in network.sizes[2:]]

    def initialise(self, source: np.random.Generator) -> Tensor:
        """Draw one run's next column; laterals are drawn as the MLP's own weights are."""
        count = len(self.columns) + 1
        drawn = torch.stack([self.network.initialise(source) for _ in range(count)])
        return torch.cat([part.flatten() for layer in self.network.layers(drawn) for part in layer])

    def grow(self, column: Tensor) -> None:
        """Freeze the columns so far and learn ``column`` from here on, in place."""
        self._freeze()
        super().grow(column)

    def load(self, columns: Sequence[Tensor], buffers: Sequence[Tensor]) -> None:
        """Become a network of these columns."""
        for bands in self._bands:
            bands.clear()
        super().load(columns, buffers)

    def forward(self, inputs: Tensor) -> tuple[Tensor, list[Tensor]]:
        """Return the last column's logits and every layer's input, the columns' side by side."""
        with rounding(tf32=self.network.tf32):
            return self._run(inputs, len(self.columns) - 1, None)

    def descend(self, tape: list[Tensor], gradient: Tensor, learning_rate: float) -> None:
        """Take a plain step with the last column, given the gradient at its logits."""
        with rounding(tf32=self.network.tf32):
            self._descend(tape, gradient, learning_rate)

    def _descend(self, tape: list[Tensor], gradient: Tensor, learning_rate: float) -> None:
        layers = list(self._layers(self.columns[-1]))
        for layer in reversed(range(len(layers))):
            (weight, bias), inputs, at_output = layers[layer], tape[layer], gradient
            bias.sub_(at_output.sum(1, keepdim=True).unsqueeze(1), alpha=learning_rate)
            if layer:
                own = inputs[..., -weight.shape[2] :]
                gradient = torch.bmm(at_output, weight[:, -1].transpose(1, 2))
                gradient = torch.ops.aten.threshold_backward(gradient, own, 0)
                stacked = weight.flatten(1, 2)
                stacked.baddbmm_(inputs.transpose(1, 2), at_output, alpha=-learning_rate)
            else:  # all columns read x: W and every U have the same gradient
                shared = torch.bmm(inputs.transpose(1, 2), at_output)
                weight.sub_(shared.unsqueeze(1), alpha=learning_rate)

    def predict(self, inputs: Tensor, places: Tensor | None, column: int) -> Tensor:
        """Return a column's logits for inputs [B, features] that all runs share.

        The products depend on ``column`` alone, not on what has been learned since: so do, bit
        for bit, the logits. ``places`` says where the inputs' columns belong (see TestBatch).
        """
        runs = self.columns[0].shape[0]
        parts = [part.expand(runs, -1, -1) for part in torch.split(inputs, _TEST_ROWS)]
        with rounding(tf32=self.network.tf32):
            return torch.cat([self._run(part, column, places)[0] for part in parts], 1)

    def _run(
        self, inputs: Tensor, column: int, places: Tensor | None
    ) -> tuple[Tensor, list[Tensor]]:
        hidden, tape = inputs, list[Tensor]()
        for layer, own in enumerate(self._summed(self.columns[column])):
            tape.append(hidden)
            frozen = self._frozen(layer, column) if layer < len(self._bands) else ()
            parts = []
            for weight, bias in (*frozen, own):
                if layer == 0 and places is not None:
                    weight = rows_at(weight, places)
                parts.append(torch.baddbmm(bias, hidden[..., : weight.shape[1]], weight))
            hidden = torch.cat(parts, -1)
            if layer < len(self._bands):
                hidden = hidden.relu_()
        return hidden, tape

    def _layers(self, column: Tensor) -> Iterator[Layer]:
        """Yield weights [R, t + 1, inputs, outputs] and biases [R, t + 1, 1, outputs] as views."""
        runs, count, start = column.shape[0], column.shape[1] // self.network.size, 0
        for inputs, outputs in pairwise(self.network.sizes):
            middle = start + count * inputs * outputs
            end = middle + count * outputs
            yield (
                column[:, start:middle].view(runs, count, inputs, outputs),
                column[:, middle:end].view(runs, count, 1, outputs),
            )
            start = end

    def _summed(self, column: Tensor) -> Iterator[Layer]:
        """Yield each layer of a column as one product of its inputs side by side."""
        for layer, (weight, bias) in enumerate(self._layers(column)):
            yield weight.flatten(1, 2) if layer else weight.sum(1), bias.sum(1)

    def _frozen(self, layer: int, count: int) -> Iterator[Layer]:
        """Yield a hidden layer's products for the first ``count`` columns, a band each."""
        inputs, outputs = self.network.sizes[layer : layer + 2]
        for start, (weight, bias) in zip(range(0, count, _BAND), self._bands[layer], strict=False):
            end = min(start + _BAND, count)
            rows, width = inputs * (end if layer else 1), outputs * (end - start)
            yield weight[:, :rows, :width], bias[..., :width]

    def _freeze(self) -> None:
        """Write the hidden layers of the last column into the bands."""
        index, place = len(self.columns) - 1, (len(self.columns) - 1) % _BAND
        layers = zip(self._bands, self._summed(self.columns[-1]), strict=False)
        for layer, (bands, (weight, bias)) in enumerate(layers):
            (runs, _, outputs), inputs = weight.shape, self.network.sizes[layer]
            if place == 0:
                rows, width = inputs * (index + _BAND if layer else 1), outputs * _BAND
                bands.append((weight.new_zeros(runs, rows, width), bias.new_zeros(runs, 1, width)))
            part = slice(place * outputs, (place + 1) * outputs)
            bands[-1][0][:, : weight.shape[1], part] = weight
            bands[-1][1][..., part] = bias


def rows_at(weight: Tensor, places: Tensor) -> Tensor:
    """Return the rows of each run's weight that its inputs' columns belong to."""
    if len(weight) == 1:  # copies whole rows; gather goes number by number
        return weight[0].index_select(0, places[0]).unsqueeze(0)
    return weight.gather(1, places.unsqueeze(-1).expand(-1, -1, weight.shape[-1]))
