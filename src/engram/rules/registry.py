"""Rules by their names."""

from __future__ import annotations

import dataclasses

from engram.errors import EngramError, shown
from engram.plugins import Registry
from engram.rules.rule import Rule


def _check(name: str, value: object) -> type[Rule]:
    """Refuse what is no rule, and one whose numbers are no settings."""
    if not (isinstance(value, type) and issubclass(value, Rule)):
        raise EngramError(f"The rule {shown(name)} must be a class that extends Rule.")
    if not dataclasses.is_dataclass(value):
        raise EngramError(f"The rule {value.__name__} must be a frozen dataclass.")
    return value


RULES: Registry[type[Rule]] = Registry("rules", "rule", _check)


def register(name: str, rule: type[Rule]) -> None:
    """Make a rule known by a name: a class that extends `Rule`, a frozen dataclass.

    A rule of a plugin is also a method of that name, whose settings are those of every method with
    a memory and the fields of the rule.
    """
    RULES.add(name, rule, module=getattr(rule, "__module__", ""))
