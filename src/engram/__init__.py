"""Lifelong learning with an episodic memory for PyTorch."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from engram import memory, meta, metrics, objectives, penalties, rules
    from engram import production as production
    from engram.gradients import GradientMixer, Mix, backward
    from engram.learner import Learner
    from engram.nearest_mean import NearestMean
    from engram.production import load as load

__version__ = "0.2.0"

__all__ = [
    "GradientMixer",
    "Learner",
    "Mix",
    "NearestMean",
    "__version__",
    "backward",
    "memory",
    "meta",
    "metrics",
    "objectives",
    "penalties",
    "rules",
]

if not TYPE_CHECKING:  # to a type checker there is nothing but the names above
    _MODULES = (
        *("errors", "gradients", "learner", "memory", "meta", "metrics", "nearest_mean"),
        *("objectives", "penalties", "plugins", "production", "rules"),
    )
    _HOMES = {
        "GradientMixer": "gradients",
        "Learner": "learner",
        "Mix": "gradients",
        "NearestMean": "nearest_mean",
        "backward": "gradients",
        "load": "production",
    }

    def __getattr__(name: str) -> object:
        """Import what is asked for, and torch with it: the command line answers without."""
        if name in _MODULES:
            return import_module(f"engram.{name}")
        if name not in _HOMES:
            raise AttributeError(f"module 'engram' has no attribute {name!r}")
        return getattr(import_module(f"engram.{_HOMES[name]}"), name)

    def __dir__() -> list[str]:
        return sorted({*globals(), *__all__, *_MODULES})
