"""Draws without replacement, and many of them ahead of their time."""

from __future__ import annotations

from typing import Any

import numpy as np

from engram.memory._slots import Indices

_MOST = 32


def draw(available: int, count: int, generator: np.random.Generator) -> Indices:
    """Return ``count`` of 0..available-1 without replacement, all in order if there are fewer."""
    if count >= available:
        return np.arange(available)
    return generator.choice(available, count, replace=False, shuffle=False)


class Draws:
    """Draws without replacement, made in blocks while the question stays the same.

    Between two training steps everything has left the processor's caches, and one draw alone costs
    many times what it does among others. A block doubles with each one used up, so that a memory
    which grows at every step draws nothing in vain.
    """

    def __init__(self, seed: int) -> None:
        self.generator = np.random.default_rng((seed, 1))
        self._available = 0
        self._ahead: Indices = np.empty((0, 0), np.int64)  # [draws, count]
        self._block = 1

    def take(self, count: int, available: int) -> Indices:
        """Return ``count`` slots of 0..available-1, all in order if there are fewer."""
        if count >= available:
            return np.arange(available)
        if self._available != available or self._ahead.shape[1] != count:
            self._available, self._block = available, 1
            self._ahead = np.empty((0, count), np.int64)
        if not len(self._ahead):
            draws = [draw(available, count, self.generator) for _ in range(self._block)]
            self._ahead = np.stack(draws)
            self._block = min(2 * self._block, _MOST)
        slots: Indices = self._ahead[0]
        self._ahead = self._ahead[1:]
        return slots

    def state_dict(self) -> dict[str, Any]:
        """Return the generator's state and what was drawn ahead of it."""
        return {
            "generator": self.generator.bit_generator.state,
            "available": self._available,
            "ahead": self._ahead.copy(),
            "block": self._block,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from a `state_dict`, bit for bit."""
        self.generator.bit_generator.state = state["generator"]
        self._available, self._block = state["available"], state["block"]
        self._ahead = state["ahead"].copy()
