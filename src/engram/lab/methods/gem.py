"""GEM: no conflict with the memory's gradient of any past task."""

from __future__ import annotations

from dataclasses import dataclass

from engram.lab.methods.method import Setup
from engram.lab.methods.registry import ALL_TARGETS, LEARNING_RATES, Entry, register
from engram.lab.methods.replay import PRESETS, Replay, ReplaySettings
from engram.lab.settings import setting
from engram.rules import GEM


@dataclass(frozen=True)
class GemSettings(ReplaySettings):
    """Settings of GEM."""

    reference_batch: int = setting(256, "most examples of each past task in a step", least=1)
    margin: float = setting(0.5, "least weight of every past task once one conflicts", least=0)
    ridge: float = setting(1e-3, "added to the Gram matrix's diagonal, relative to it", least=0)
    relative_ridge: bool = setting(
        True, "false: the ridge is added as it is, as in the released code", later=True
    )
    sampled: bool = setting(
        False,
        "false: of each past task the same examples in every step, all that are held or the last "
        "ones, as in GEM's paper; true: a fresh draw of them in every step",
        later=True,
    )


def _build(setup: Setup, settings: GemSettings) -> Replay:
    rule = setup.rule(
        settings, lambda one: GEM(one.margin, one.ridge, one.sampled, one.relative_ridge)
    )
    return Replay(setup, settings, rule)


_VARIES = (*LEARNING_RATES, "margin", "ridge")
register(
    Entry(
        "gem",
        _build,
        GemSettings,
        PRESETS,
        LEARNING_RATES,
        varies=_VARIES,
        targets=ALL_TARGETS,
    )
)
