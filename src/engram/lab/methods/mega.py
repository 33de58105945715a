"""MEGA-I and MEGA-II, the paper's two schemes, and MEGA-II's ablation."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from engram.lab.methods.method import Setup
from engram.lab.methods.registry import ALL_TARGETS, Entry, register
from engram.lab.methods.replay import PRESETS, Replay, ReplaySettings, boundless, with_presets
from engram.lab.settings import setting
from engram.rules import MEGA1, MEGA2


@dataclass(frozen=True)
class Mega1Settings(ReplaySettings):
    """Settings of MEGA-I."""

    epsilon: float = setting(
        1e-3, "current losses up to this count as learned: the memory's gradient alone", least=0
    )
    test: Literal["current", "reference"] = setting(
        "current",
        "current: the paper's test, current loss <= epsilon; "
        "reference: the released code's, reference loss <= 1e-10",
    )


@dataclass(frozen=True)
class Mega2Settings(ReplaySettings):
    """Settings of MEGA-II."""

    max_angle: float = setting(
        math.pi,
        "largest rotation of the gradient, in radians; the released code stops at pi/2",
        least=0,
        most=math.pi,
    )

    least_area: float = setting(
        0.0,
        "where |g|^2 |r|^2 - (g.r)^2 is at most this the gradient is left alone; "
        "the released code has 1e-10",
        least=0,
    )


def _mega1(setup: Setup, settings: Mega1Settings) -> Replay:
    rule = setup.rule(settings, lambda one: MEGA1(one.epsilon, test=one.test))
    return Replay(setup, settings, rule)


def _mega2(setup: Setup, settings: Mega2Settings) -> Replay:
    return _rotating(setup, settings, balanced=True)


def _unbalanced(setup: Setup, settings: Mega2Settings) -> Replay:
    return _rotating(setup, settings, balanced=False)


def _rotating(setup: Setup, settings: Mega2Settings, *, balanced: bool) -> Replay:
    rule = setup.rule(settings, lambda one: MEGA2(balanced, one.max_angle, one.least_area))
    return Replay(setup, settings, rule)


register(
    Entry(
        "mega-i",
        _mega1,
        Mega1Settings,
        presets=with_presets(
            {
                "permuted-mnist": {"epsilon": 0.1},
                "split-cifar": {"epsilon": 0.1},
                "split-cub": {"epsilon": 1e-5},  # as good as any: no loss is that small there
                "split-awa": {"epsilon": 1e-5},
            }
        ),  # tuned: docs/results
        search={"epsilon": (1e-5, 1e-4, 1e-3, 1e-2, 1e-1)},
        varies=("learning_rate", "epsilon"),
        targets=ALL_TARGETS,
        boundless=boundless,
    )
)
_VARIES = ("learning_rate", "max_angle", "least_area")
register(
    Entry(
        "mega-ii",
        _mega2,
        Mega2Settings,
        PRESETS,
        varies=_VARIES,
        targets=ALL_TARGETS,
        boundless=boundless,
    )
)
# With equal weights nothing but the released code's threshold keeps the ablation from stepping
# along r once the memory's loss is next to 0 and r is rounding noise, which can ruin a run.
register(
    Entry(
        "mega-ii-unbalanced",
        _unbalanced,
        Mega2Settings,
        presets=with_presets({"permuted-mnist": {"least_area": 1e-10}}),
        varies=_VARIES,
        targets=ALL_TARGETS,
        boundless=boundless,
    )
)
