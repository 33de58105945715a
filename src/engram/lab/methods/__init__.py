"""The methods, each a short file that registers itself by name."""

from __future__ import annotations

from importlib import import_module
from pkgutil import iter_modules

from engram.lab.methods.method import FinishedTask, Method, MethodSettings, Setup
from engram.lab.methods.registry import Entry, method_entry, names, register

__all__ = [
    "Entry",
    "FinishedTask",
    "Method",
    "MethodSettings",
    "Setup",
    "method_entry",
    "names",
    "register",
]

for _module in iter_modules(__path__):
    if not _module.name.startswith("_"):
        import_module(f"{__name__}.{_module.name}")
