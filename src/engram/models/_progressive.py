"""What a network is that grows by a column for each task."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

import numpy as np
from torch import Tensor

from engram.models._network import Network


class Progressive(ABC):
    """Columns of one network, each of which reads all columns before it; only the last one learns.

    A column is a flat vector of parameters for each run, and its buffers. What the last column
    does in training, the frozen ones do in evaluation: they normalise by the averages that their
    own task left. The first column belongs to the caller and is updated in place.
    """

    network: Network

    def __init__(self, network: Network, first: Tensor) -> None:
        self.network = network
        self.columns = [first]  # [R, d] of each
        self.buffers = [network.initial_buffers(first)]  # [R, b] of each

    @property
    def size(self) -> int:
        """The number of parameters of one run, over all columns."""
        return sum(column.shape[1] for column in self.columns)

    def grow(self, column: Tensor) -> None:
        """Freeze the columns so far and learn ``column`` from here on, in place."""
        self.columns.append(column)
        self.buffers.append(self.network.initial_buffers(column))

    def load(self, columns: Sequence[Tensor], buffers: Sequence[Tensor]) -> None:
        """Become a network of these columns."""
        self.columns[0].copy_(columns[0])
        del self.columns[1:], self.buffers[1:]
        for column in columns[1:]:
            self.grow(column.to(self.columns[0], copy=True))
        for held, saved in zip(self.buffers, buffers, strict=True):
            held.copy_(saved)

    @abstractmethod
    def initialise(self, source: np.random.Generator) -> Tensor:
        """Draw one run's next column."""

    @abstractmethod
    def forward(self, inputs: Tensor) -> tuple[Tensor, list[Tensor]]:
        """Return the last column's logits [R, B, classes] and a tape, from inputs [R, B, ...]."""

    @abstractmethod
    def descend(self, tape: list[Tensor], gradient: Tensor, learning_rate: float) -> None:
        """Take a plain step with the last column, given the gradient at its logits."""

    @abstractmethod
    def predict(self, inputs: Tensor, places: Tensor | None, column: int) -> Tensor:
        """Return a column's logits [R, B, classes] for inputs [B, ...] that all runs share.

        They are the same, bit for bit, whatever has been learned since. ``places`` says where
        the inputs' columns belong (see TestBatch).
        """
