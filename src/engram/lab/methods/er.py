"""Experience replay: the gradients of batch and memory, equally weighted.

The paper's ablation of MEGA-I with both weights at 1 is the same method under another name.
"""

from __future__ import annotations

from engram.lab.methods.method import Setup
from engram.lab.methods.registry import ALL_TARGETS, LEARNING_RATES, Entry, register
from engram.lab.methods.replay import PRESETS, Replay, ReplaySettings, boundless
from engram.rules import Equal


def _build(setup: Setup, settings: ReplaySettings) -> Replay:
    return Replay(setup, settings, Equal())


for _name in ("er", "mega-i-equal"):
    register(
        Entry(
            _name,
            _build,
            ReplaySettings,
            PRESETS,
            LEARNING_RATES,
            varies=tuple(LEARNING_RATES),
            targets=ALL_TARGETS,
            boundless=boundless,
        )
    )
