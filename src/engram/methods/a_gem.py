"""A-GEM: the current gradient, projected where it conflicts with the memory's."""

from __future__ import annotations

from engram.methods._method import LEARNING_RATES, Entry, Setup, register
from engram.methods._replay import PRESETS, Replay, ReplaySettings
from engram.rules import AGEM


def _build(setup: Setup, settings: ReplaySettings) -> Replay:
    return Replay(setup, settings, AGEM())


register(Entry("a-gem", _build, ReplaySettings, PRESETS, LEARNING_RATES, tuple(LEARNING_RATES)))
