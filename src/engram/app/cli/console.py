"""Where tables, bars and JSON are printed; plain lines are printed with ``print``.

Both end in streams that `engram.app.terminal` guards. A console writes escapes of its own, and so
it writes past the guard and makes the texts in what it draws visible itself.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from typing import Any, TextIO

from rich.console import Console, ConsoleOptions, RenderableType
from rich.progress import Progress, ProgressColumn
from rich.segment import Segment
from rich.text import Text

from engram.app.terminal import unguarded, visible

_FILE = 160  # letters of a line, enough for any table
_LEAST = 80  # what a table of results needs: a narrower terminal wraps it, and no number is lost


class _Console(Console):
    """A console on which a text is a text: it has no markup, no emoji and no escapes."""

    def __init__(self, stream: TextIO) -> None:
        super().__init__(file=unguarded(stream), markup=False, emoji=False, highlight=False)

    def render_str(self, text: str, **options: Any) -> Text:  # noqa: ANN401 (as rich has them)
        """Return a text to draw: as wide as it will be seen."""
        return super().render_str(visible(text), **options)

    def render(
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterable[Segment]:
        """Return what is drawn, of whatever kind: only what rich itself adds has escapes."""
        for segment in super().render(renderable, options):
            yield segment if segment.control else segment._replace(text=visible(segment.text))


def stdout_console() -> Console:
    """Return a console for stdout; a file or a pipe gets lines wide enough for any table."""
    console = _Console(sys.stdout)
    console.width = max(console.width, _LEAST) if sys.stdout.isatty() else _FILE
    return console


def stderr_bars(*columns: ProgressColumn) -> Progress:
    """Return bars on stderr that are gone in the end.

    What others print meanwhile is not redirected, as rich would look for escapes in it.
    """
    console = _Console(sys.stderr)
    return Progress(
        *columns, console=console, transient=True, redirect_stdout=False, redirect_stderr=False
    )


def print_json(value: object) -> None:
    """Print JSON that is all printable ASCII: DEL is the one that the library leaves as it is."""
    print(json.dumps(value, indent=1).replace("\x7f", r"\u007f"))


def count(number: int, name: str) -> str:
    """Return so many of a thing.

    >>> count(1, "seed"), count(1000, "seed")
    ('1 seed', '1,000 seeds')
    """
    return f"{number:,} {name}" + ("" if number == 1 else "s")
