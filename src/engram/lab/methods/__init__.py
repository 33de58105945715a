"""The methods, each a short file that registers itself by name."""

from __future__ import annotations

from importlib import import_module
from pkgutil import iter_modules

from engram.lab.methods.method import FinishedTask, Method, MethodSettings, Setup
from engram.lab.methods.penalty import PENALTY_VARIES, Penalty, PenaltySettings
from engram.lab.methods.registry import Entry, method_entry, names, register
from engram.lab.methods.replay import PRESETS, Replay, ReplaySettings, with_presets

__all__ = [
    "PENALTY_VARIES",
    "PRESETS",
    "Entry",
    "FinishedTask",
    "Method",
    "MethodSettings",
    "Penalty",
    "PenaltySettings",
    "Replay",
    "ReplaySettings",
    "Setup",
    "method_entry",
    "names",
    "register",
    "with_presets",
]

for _module in iter_modules(__path__):
    if not _module.name.startswith("_"):
        import_module(f"{__name__}.{_module.name}")
