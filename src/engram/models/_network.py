"""What the laboratory asks of a network: R sets of parameters, one flat vector each."""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np
from torch import Tensor


class Network(ABC):
    """A function of flat parameters [R, d] and inputs, with its own backward pass.

    A network holds no parameters, so the same object serves any number of stacked runs. The
    gradient is asked for in two halves: ``forward`` gives logits and a tape; whoever holds the
    loss gives back the gradient with respect to the logits, and ``backward`` writes the gradient
    of the parameters straight into a row.
    """

    size: int  # d, the number of parameters

    @abstractmethod
    def initialise(self, source: np.random.Generator) -> Tensor:
        """Draw the initial parameters of one run, [d], float32 on the CPU."""

    @abstractmethod
    def forward(self, parameters: Tensor, inputs: Tensor) -> tuple[Tensor, list[Tensor]]:
        """Return logits [R, B, classes] and the tape, from inputs [R, B, ...]."""

    @abstractmethod
    def backward(
        self, parameters: Tensor, tape: list[Tensor], gradient: Tensor, rows: Tensor
    ) -> None:
        """Write into ``rows`` [R, groups, d] the gradient, given the logits' ``gradient``.

        Each of the batch's ``groups`` equal parts has a row of its own.
        """

    @abstractmethod
    def predict(self, parameters: Tensor, inputs: Tensor, columns: Tensor | None) -> Tensor:
        """Return logits [R, B, classes] for inputs [B, ...] that all runs share."""
