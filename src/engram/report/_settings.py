"""Settings as a reader sees and types them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from engram.report._markdown import markdown_table

if TYPE_CHECKING:
    from engram.runs import Laboratory
    from engram.settings import Scalar


def settings_table(laboratory: Laboratory, benchmark: str, methods: Sequence[str]) -> str:
    """Return what methods can be told on a benchmark: every setting, its values, its meaning."""
    values: dict[str, list[str]] = {}
    meanings: dict[str, str] = {}
    for place, method in enumerate(methods):
        for item in laboratory.settings_help(benchmark, method):
            cells = values.setdefault(item.name, [""] * len(methods))
            cells[place] = value_text(item.value)
            meanings[item.name] = item.help
    header = methods if len(methods) > 1 else [f"on {benchmark}"]
    return markdown_table(
        ["setting", *header, "meaning"],
        [[name, *values[name], meanings[name]] for name in values],
        ["text", *["number"] * len(methods), "text"],
    )


def value_text(value: Scalar) -> str:
    """Return a value as ``--set`` takes it.

    >>> value_text(True), value_text(1e-10), value_text(10.0)
    ('true', '1e-10', '10')
    """
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float) and float(f"{value:g}") == value:
        return f"{value:g}"
    return str(value)
