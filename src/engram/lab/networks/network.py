"""What the laboratory asks of a network: R sets of parameters, one flat vector each.

Beside it: the layout of such vectors, and the distributions that they are drawn from.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from engram.errors import EngramError

if TYPE_CHECKING:  # whose columns are networks
    from engram.lab.networks.progressive import Progressive

SPREAD = 0.1  # standard deviation of the weights, and the value of every bias
_LINE = 32  # numbers in the 128 bytes that a GPU reads at once


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

    def uncapturable(self, parameters: Tensor, *, pads: bool) -> str | None:  # noqa: ARG002
        """Return why a step with this network is not captured in a CUDA graph; None: it may be.

        With ``pads`` batches may have examples of weight 0.
        """
        return None

    @property
    def one_part(self) -> bool:
        """Whether a pass takes one part of a batch at a time, as batch statistics ask for."""
        return self.buffer_size > 0

    def least_batch(self, shape: Sequence[int]) -> int:  # noqa: ARG002
        """Return how many examples of a shape a training pass needs: 1, or 2."""
        return 1

    @abstractmethod
    def initialise(self, source: np.random.Generator) -> Tensor:
        """Draw the initial parameters of one run, [d], float32 on the CPU."""

    def initial_buffers(
        self,
        parameters: Tensor,
        sources: Sequence[np.random.Generator] = (),  # noqa: ARG002
    ) -> Tensor:
        """Return the buffers [R, b] that R runs start with, beside their parameters [R, d].

        ``sources`` are as those that the parameters were drawn from, for what is drawn beside them.
        """
        return parameters.new_zeros(len(parameters), self.buffer_size)

    def tensors(self, flat: Tensor) -> list[Tensor]:
        """Return one run's parameters [d] as the tensors that they are, as views."""
        return [flat]

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

        Each of the batch's ``groups`` equal parts has a row of its own. A network that takes
        `one_part` at a time is shown one: groups is 1.
        """

    @abstractmethod
    def predict(
        self, parameters: Tensor, inputs: Tensor, columns: Tensor | None, buffers: Tensor
    ) -> Tensor:
        """Return logits [R, B, classes] for inputs [B, ...] that all runs share, or [R, B, ...].

        ``columns`` says where the inputs' columns belong (see TestBatch): [R, features] or, for a
        network of Permuted MNIST's, also [R, G, features], and then logits are [R, G · B, classes].
        """

    def apart(self, buffers: Tensor, passes: int) -> Tensor | None:
        """Return buffers [passes, R, b] for training passes that go side by side on a GPU.

        `put_together` takes them afterwards. None: the passes must go one after another.
        """
        return buffers.new_zeros(passes, *buffers.shape)

    def put_together(self, buffers: Tensor, apart: Tensor) -> None:
        """Let the buffers be what the passes, one after another, would have made of them."""
        if self.buffer_size:
            for gathered in apart:
                buffers.mul_(1 - self.momentum).add_(gathered)

    def average_buffers(self, average: Tensor, buffers: Tensor, share: Tensor) -> None:
        """Move an average of buffers [R, b] a ``share`` [R, 1] of the way to what they are now."""
        average.lerp_(buffers, share)

    def progressive(self, first: Tensor) -> Progressive:  # noqa: ARG002
        """Return a network that grows by a column for each task, of which this is the first."""
        raise EngramError(
            f"network must be an MLP or a ResNet to grow by columns, not {type(self).__name__}."
        )


class Layout:
    """Where tensors of these names and shapes lie in a flat vector: one behind the other.

    A kernel [outputs, inputs, height, width] lies there with its inputs last, as GPUs want it.

    >>> layout = Layout({"weight": (2, 3), "bias": (2,)})
    >>> layout.size
    8
    >>> layout.views(torch.arange(8.0))["bias"]
    tensor([6., 7.])
    """

    def __init__(self, shapes: Mapping[str, tuple[int, ...]]) -> None:
        self.shapes = dict(shapes)
        self._lengths = [math.prod(shape) for shape in self.shapes.values()]
        self.size = sum(self._lengths)

    def views(self, flat: Tensor) -> dict[str, Tensor]:
        """Return every tensor as a view of the vector [size]."""
        parts = zip(self.shapes.items(), torch.split(flat, self._lengths), strict=True)
        return {name: _view(part, shape) for (name, shape), part in parts}


def _view(part: Tensor, shape: tuple[int, ...]) -> Tensor:
    if len(shape) != 4 or shape[2:] == (1, 1):
        return part.view(shape)
    outputs, inputs, height, width = shape
    return part.view(outputs, height, width, inputs).permute(0, 3, 1, 2)


def aligned_empty(like: Tensor, *shape: int) -> Tensor:
    """Return empty vectors [..., d], each of which begins at a multiple of 128 bytes.

    Whatever d is: products of a vector's matrices, and whatever else reads numbers by fours, would
    otherwise be slow for all runs but the first. What lies between two vectors is nobody's.
    """
    *others, length = shape
    return like.new_empty(*others, -(-length // _LINE) * _LINE)[..., :length]


def stacked(drawn: Sequence[Tensor], device: torch.device | str) -> Tensor:
    """Return the vectors [d] of R runs as one tensor [R, d] on a device."""
    first = torch.empty(0, dtype=drawn[0].dtype, device=device)
    together = aligned_empty(first, len(drawn), len(drawn[0]))
    return together.copy_(torch.stack(list(drawn)))


def draw_normal(source: np.random.Generator, weight: Tensor) -> None:
    """Fill a weight from a normal distribution of deviation 0.1, cut at two deviations."""
    drawn = source.standard_normal(weight.numel())
    outside = np.flatnonzero(np.abs(drawn) > 2)
    while len(outside):
        again = source.standard_normal(len(outside))
        drawn[outside] = again
        outside = outside[np.abs(again) > 2]
    weight.copy_(torch.from_numpy(SPREAD * drawn).view_as(weight))


def draw_uniform(source: np.random.Generator, weight: Tensor, reads: int) -> None:
    """Fill a weight uniformly from ±1/√reads."""
    bound = reads**-0.5
    weight.copy_(torch.from_numpy(source.uniform(-bound, bound, weight.shape)))


def rows_at(weight: Tensor, places: Tensor) -> Tensor:
    """Return the rows of each run's weight that its inputs' columns belong to."""
    if len(weight) == 1:  # copies whole rows; gather goes number by number
        return weight[0].index_select(0, places[0]).unsqueeze(0)
    return weight.gather(1, places.unsqueeze(-1).expand(-1, -1, weight.shape[-1]))
