"""Where tables are printed."""

from __future__ import annotations

import sys

from rich.console import Console


def stdout_console() -> Console:
    """Return a console for stdout; a file or a pipe gets lines wide enough for any table."""
    return Console(highlight=False) if sys.stdout.isatty() else Console(width=160, highlight=False)
