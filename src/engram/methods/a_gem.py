"""A-GEM: the current gradient, projected where it conflicts with the memory's."""

from __future__ import annotations

from engram.methods._entry import LEARNING_RATES, Entry, register
from engram.methods._replay import PRESETS, Replay, ReplaySettings
from engram.methods._setup import Setup
from engram.rules import AGEM


def _build(setup: Setup, settings: ReplaySettings) -> Replay:
    return Replay(setup, settings, AGEM())


register(
    Entry("a-gem", _build, ReplaySettings, PRESETS, LEARNING_RATES, varies=tuple(LEARNING_RATES))
)
