"""What the laboratory asks of a network: R sets of parameters, one flat vector each."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

import numpy as np
from torch import Tensor

from engram.errors import EngramError

if TYPE_CHECKING:  # the columns' modules import this one
    from engram.models._progressive import Progressive


class Network(ABC):
    """A function of flat parameters [R, d] and inputs, with its own backward pass.

    A network holds no parameters, so the same object serves any number of stacked runs. The
    gradient is asked for in two halves: ``forward`` gives logits and a tape; whoever holds the
    loss gives back the gradient with respect to the logits, and ``backward`` writes the gradient
    of the parameters straight into a row.

    Beside its parameters a network may have *buffers* [R, b], the running averages of batch
    norm. They are no parameters: no gradient, no step and no penalty reaches them. A training
    pass normalises by its own batch and moves them in place; any other pass, and ``predict``,
    normalises by them and leaves them alone. A network without batch norm has none (b = 0), and
    may be called without.
    """

    size: int  # d, the number of parameters
    buffer_size: int = 0  # b
    momentum: float = 0.1  # share of the newest batch in a running average

    @abstractmethod
    def initialise(self, source: np.random.Generator) -> Tensor:
        """Draw the initial parameters of one run, [d], float32 on the CPU."""

    def initial_buffers(self, parameters: Tensor) -> Tensor:
        """Return the buffers [R, b] that R runs start with, beside their parameters [R, d]."""
        return parameters.new_zeros(len(parameters), self.buffer_size)

    @abstractmethod
    def forward(
        self,
        parameters: Tensor,
        inputs: Tensor,
        buffers: Tensor,
        *,
        weights: Tensor | None = None,
        training: bool = True,
    ) -> tuple[Tensor, list[Tensor]]:
        """Return logits [R, B, classes] and the tape, from inputs [R, B, ...].

        An example whose weight [R, B] is 0 is padding: batch statistics leave it out.
        """

    @abstractmethod
    def backward(
        self, parameters: Tensor, tape: list[Tensor], gradient: Tensor, rows: Tensor
    ) -> None:
        """Write into ``rows`` [R, groups, d] the gradient, given the logits' ``gradient``.

        Each of the batch's ``groups`` equal parts has a row of its own. A network with buffers
        is shown one part at a time, since each has its own batch statistics: groups is 1.
        """

    @abstractmethod
    def predict(
        self, parameters: Tensor, inputs: Tensor, columns: Tensor | None, buffers: Tensor
    ) -> Tensor:
        """Return logits [R, B, classes] for inputs [B, ...] that all runs share, or [R, B, ...].

        ``columns`` says where the inputs' columns belong (see TestBatch): [R, features] or, for a
        network of Permuted MNIST's, also [R, G, features], and then logits are [R, G · B, classes].
        """

    def progressive(self, first: Tensor) -> Progressive:  # noqa: ARG002
        """Return a network that grows by a column for each task, of which this is the first."""
        raise EngramError(
            f"network must be an MLP or a ResNet to grow by columns, not {type(self).__name__}."
        )
