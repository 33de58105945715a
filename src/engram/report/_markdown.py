"""Tables in Markdown."""

from __future__ import annotations

import re
from collections.abc import Sequence

_MARKS = {"text": "---", "number": "---:"}


def markdown_table(
    header: Sequence[str], lines: Sequence[Sequence[str]], kinds: Sequence[str] | None = None
) -> str:
    r"""Return a table; unless ``kinds`` says so, all columns but the first are numbers.

    >>> print(markdown_table(["method", "seeds"], [["a|b", "5"]]))
    | method | seeds |
    |---|---:|
    | a\|b | 5 |
    """
    kinds = kinds or ["text", *["number"] * (len(header) - 1)]
    rows = [header, *lines]
    texts = ["| " + " | ".join(map(escape, row)) + " |" for row in rows]
    return "\n".join([texts[0], f"|{'|'.join(_MARKS[kind] for kind in kinds)}|", *texts[1:]])


def escape(text: str) -> str:
    """Return text that Markdown shows as it is."""
    return re.sub(r"([\\|`*_<>\[\]])", r"\\\1", text)


def commands_block(commands: Sequence[str]) -> str:
    """Return commands as an indented block, which no character of a single line can end."""
    return "\n".join(f"    {command}" for command in commands)
