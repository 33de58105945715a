"""A-GEM: the current gradient, projected where it conflicts with the memory's."""

from __future__ import annotations

from engram.lab.methods.method import Setup
from engram.lab.methods.registry import ALL_TARGETS, LEARNING_RATES, Entry, register
from engram.lab.methods.replay import PRESETS, Replay, ReplaySettings, boundless
from engram.rules import AGEM


def _build(setup: Setup, settings: ReplaySettings) -> Replay:
    return Replay(setup, settings, AGEM())


register(
    Entry(
        "a-gem",
        _build,
        ReplaySettings,
        PRESETS,
        LEARNING_RATES,
        varies=tuple(LEARNING_RATES),
        targets=ALL_TARGETS,
        boundless=boundless,
    )
)
