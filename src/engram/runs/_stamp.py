"""When, by what and by which command an entry of a store was made."""

from __future__ import annotations

import platform
from datetime import UTC, datetime
from importlib.metadata import version
from typing import Any

from engram import __version__
from engram.runs._field_checks import TIME_FORMAT


def stamp(command: str) -> dict[str, Any]:
    """Return the fields of an entry that is made just now."""
    return {
        "created": datetime.now(UTC).strftime(TIME_FORMAT),
        "versions": {
            "engram": __version__,
            "python": platform.python_version(),
            "torch": version("torch"),
        },
        "command": printable(command),
    }


def printable(text: str) -> str:
    r"""Return the text on one line, without control characters.

    >>> printable("one\ntwo\x1b[31m")
    'one two�[31m'
    """
    spaced = " ".join(text.split())
    return "".join(letter if letter.isprintable() else "�" for letter in spaced)
