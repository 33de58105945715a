"""Draws without replacement, and many of them ahead of their time."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import torch
from torch import Tensor

from engram.errors import EngramError
from engram.memory.slots import Indices, Measures

_MOST = 32


class Draw(NamedTuple):
    """Slots as they were drawn, in order, and where these are: a row of the block [n, count]."""

    drawn: Tensor
    ordered: Tensor
    block: Tensor
    row: int


Mark: TypeAlias = tuple[Mapping[str, Any], tuple[int, int], int, tuple[Draw, ...]]
"""The generator's state, the question, the size of the next block, and what was drawn ahead."""


def draw(
    available: int, count: int, generator: np.random.Generator, *, shuffle: bool = False
) -> Indices:
    """Return ``count`` of 0..available-1 without replacement, all in order if there are fewer.

    Which ones is random either way; in what order, only if they are to ``shuffle``.
    """
    if count >= available:
        return np.arange(available)
    return generator.choice(available, count, replace=False, shuffle=shuffle)


def draw_weighted(weights: Measures, count: int, generator: np.random.Generator) -> Indices:
    """Return ``count`` places without replacement: each next one in proportion to its weight.

    All in order if there are fewer. The smallest of exponential times divided by the weights are
    such a draw (Efraimidis and Spirakis, 2006).
    """
    if count >= len(weights):
        return np.arange(len(weights))
    times = generator.standard_exponential(len(weights)) / weights
    first: Indices = np.argpartition(times, count)[:count] if count else np.arange(0)
    return first[np.argsort(times[first], kind="stable")]


def spread(count: int, sizes: Indices, generator: np.random.Generator) -> Indices:
    """Return how many to draw of each group: equally many, all of those that have fewer.

    What cannot be divided goes to groups at random.
    """
    count = min(count, int(sizes.sum()))
    least, most = 0, count  # the level up to which every group gives: found by halving
    while least < most:
        level = (least + most + 1) // 2
        fits = int(np.minimum(sizes, level).sum()) <= count
        least, most = (level, most) if fits else (least, level - 1)
    shares: Indices = np.minimum(sizes, least)
    more = np.flatnonzero(sizes > least)
    shares[generator.choice(more, count - int(shares.sum()), replace=False)] += 1
    return shares


class Draws:
    """Draws without replacement, made in blocks while the question stays the same.

    Between two training steps everything has left the processor's caches, and one draw alone costs
    many times what it does among others. A block doubles with each one used up, so that a memory
    which grows at every step draws nothing in vain.
    """

    _state: Mapping[str, Any] | None = None  # the generator's, while nothing has been drawn since

    def __init__(self, seed: int) -> None:
        self._generator = np.random.default_rng((seed, 1))
        self._question = (0, 0)  # how many of how many
        self._ahead: deque[Draw] = deque()
        self._block = 1

    @property
    def generator(self) -> np.random.Generator:
        """What draws; whoever asks for it is about to."""
        self._state = None
        return self._generator

    def take(self, count: int, available: int, *, in_order: bool) -> Tensor:
        """Return ``count`` slots of 0..available-1, all if there are fewer: as drawn, or in order.

        All of them are always in order.
        """
        if count >= available:
            return torch.arange(available, device="cpu")
        draw = self.take_one(count, available)
        return draw.ordered if in_order else draw.drawn

    def take_one(self, count: int, available: int) -> Draw:
        """Return ``count`` slots of 0..available-1, of which there are more, and their block."""
        if self._question != (count, available):
            self._ahead.clear()  # first: an interruption never leaves answers to another question
            self._question, self._block = (count, available), 1
        if not self._ahead:
            own = self.generator
            block = [draw(available, count, own, shuffle=True) for _ in range(self._block)]
            self._put(np.stack(block))
            self._block = min(2 * self._block, _MOST)
        return self._ahead.popleft()

    def _put(self, drawn: Indices) -> None:
        """Put draws [n, count] behind those that are ahead."""
        first, block = torch.from_numpy(drawn), torch.from_numpy(np.sort(drawn))
        pairs = zip(first.unbind(), block.unbind(), strict=True)
        self._ahead.extend(Draw(*pair, block, row) for row, pair in enumerate(pairs))

    def mark(self) -> Mark:
        """Return what `go_back` needs to draw again what is drawn from now on."""
        if self._state is None:  # to ask for it takes as long as a launch
            self._state = self._generator.bit_generator.state
        return self._state, self._question, self._block, tuple(self._ahead)

    def go_back(self, mark: Mark) -> None:
        """Go back to a `mark`."""
        self.generator.bit_generator.state, self._question, self._block, ahead = mark
        self._ahead = deque(ahead)

    def state_dict(self) -> dict[str, Any]:
        """Return the generator's state and what was drawn ahead of it."""
        count, available = self._question
        ahead = np.array([each.drawn.numpy() for each in self._ahead], np.int64)
        return {
            "generator": self._generator.bit_generator.state,
            "available": available,
            "ahead": ahead.reshape(len(self._ahead), count),
            "block": self._block,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from a `state_dict`, bit for bit."""
        ahead, available, block = state["ahead"], state["available"], state["block"]
        numbers = type(available) is int and available >= 0 and type(block) is int
        if not numbers or not 0 < block <= _MOST or ahead.dtype != np.int64 or ahead.ndim != 2:
            raise EngramError("The state has draws of other numbers than a memory's.")
        if ((ahead < 0) | (ahead >= available)).any():
            raise EngramError("The state has slots drawn ahead that hold no example.")
        self.generator.bit_generator.state = state["generator"]
        self._question, self._block = (ahead.shape[1], available), block
        self._ahead.clear()
        self._put(ahead.copy())

    def __setstate__(self, state: dict[str, Any]) -> None:
        if "generator" in state:  # a pickle of an earlier version
            state = {**state, "_generator": state["generator"]}
            del state["generator"]
            ahead = [drawn.numpy() for drawn, _ in state.pop("_ahead")]
            vars(self).update(state, _ahead=deque())
            if ahead:
                self._put(np.stack(ahead))
            return
        vars(self).update(state)
