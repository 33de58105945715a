"""The text of a study, in which mistakes are found by their line."""

from __future__ import annotations

import re
from typing import Any, NamedTuple

from engram.errors import EngramError

_ENTRY = re.compile(r"\s*\[\[\s*runs\s*\]\]")


class Source(NamedTuple):
    """A TOML file: its name as the user knows it, and its text."""

    name: str
    text: str

    def error(
        self,
        problem: object,
        field: str,
        value: object = None,
        *,
        entry: int | None = None,
        inside: str = "",
    ) -> EngramError:
        """Return a mistake with the line and the field it is in.

        The line is that of ``field`` (of entry number ``entry``, if any) or, where the field is a
        list, that of ``value`` in it; a field ``inside`` another may be of a table of its own.
        """
        line = self._line(field, value, entry, inside)
        place = f"{inside}.{field}" if inside else field
        return EngramError(f"{self.name}, line {line}, {place}: {problem}")

    def _line(self, field: str, value: Any, entry: int | None, inside: str) -> int:  # noqa: ANN401
        lines = self.text.splitlines()
        starts = [number for number, line in enumerate(lines) if _ENTRY.match(line)]
        first, last = 0, starts[0] if starts else len(lines)
        if entry is not None and entry < len(starts):
            first, last = starts[entry], [*starts, len(lines)][entry + 1]
        elif entry is not None:  # entries written as a list
            last = len(lines)
        key = re.compile(rf"""(^|[\s,{{."'])({re.escape(field)})["']?\s*=""")
        headers = re.compile(rf"\s*\[\s*runs\.{re.escape(inside)}\s*\]") if inside else None
        place = first
        if headers is not None:
            place = next((n for n in range(first, last) if headers.match(lines[n])), first)
        found = next((n for n in range(place, last) if key.search(lines[n])), first)
        if isinstance(value, str):
            told = re.compile(rf"""["']{re.escape(value)}["']""")
            found = next((n for n in range(found, last) if told.search(lines[n])), found)
        return found + 1
