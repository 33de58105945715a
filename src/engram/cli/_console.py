"""Where tables are printed."""

from __future__ import annotations

import sys

from rich.console import Console

_FILE = 160  # letters of a line, enough for any table
_LEAST = 80  # what a table of results needs: a narrower terminal wraps it, and no number is lost


def stdout_console() -> Console:
    """Return a console for stdout; a file or a pipe gets lines wide enough for any table."""
    console = Console(highlight=False)
    console.width = max(console.width, _LEAST) if sys.stdout.isatty() else _FILE
    return console
