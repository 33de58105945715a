"""Where everything that is printed passes: texts of files can do nothing to a terminal."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TextIO

# What moves the cursor or starts a command (C0 but line feed and tab, DEL, C1), begins a line
# where there is none, turns the direction of what follows, or is half a letter.
_ACTING = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]"
)


def visible(text: str) -> str:
    r"""Return a text in which whatever would do something to a terminal is shown instead.

    Line feeds and tabs stay as they are.

    >>> print(visible("\x1b[2J a\rb \u202e"))
    \x1b[2J a\rb \u202e
    """
    return _ACTING.sub(lambda found: ascii(found[0])[1:-1], text)


def one_line(text: object) -> str:
    r"""Return the text of a name, a title or a path, with its line feeds and tabs shown as well.

    >>> print(one_line("a\nb"))
    a\nb
    """
    return visible(str(text)).replace("\n", r"\n").replace("\t", r"\t")


class VisibleStream:
    """A stream for text that writes `visible` text to another one.

    It has all that the other has but ``buffer``: bytes would pass it by. One that is ``lossy``
    forgets what the other cannot take, as a full disk or a pipe that nobody reads.
    """

    buffer = None

    def __init__(self, stream: TextIO, *, lossy: bool = False) -> None:
        self.stream = stream
        self._forgiven = (OSError,) if lossy else ()

    def write(self, text: str) -> int:
        """Write a text; return how many letters it has."""
        with suppress(*self._forgiven):
            self.stream.write(visible(text))
        return len(text)

    def flush(self) -> None:
        """Write what was held back."""
        with suppress(*self._forgiven):
            self.stream.flush()

    def writelines(self, lines: Iterable[str]) -> None:
        """Write texts."""
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401
        return getattr(self.stream, name)


@contextmanager
def guarded_streams() -> Iterator[tuple[TextIO, TextIO]]:
    """Guard stdout and stderr while the work inside lasts; yield what they write to.

    An error that is nobody's leaves them guarded: its traceback is still to be printed.
    """
    before = sys.stdout, sys.stderr
    guard_streams()
    try:
        yield unguarded(sys.stdout), unguarded(sys.stderr)
    except SystemExit:
        sys.stdout, sys.stderr = before
        raise
    sys.stdout, sys.stderr = before


def guard_streams() -> None:
    """Let all that this process prints pass here, whoever prints it.

    A stream that the process was started without leads nowhere, and a letter that a stream cannot
    take is written as an escape. No work is lost because stderr takes nothing any more.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:  # in this order they take the numbers 0, 1 and 2
            stream = Path(os.devnull).open(mode)  # noqa: SIM115 (as long as the process lives)
            os.set_inheritable(stream.fileno(), True)  # or else it is closed in the workers
            setattr(sys, name, stream)
    last = sys.stderr
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if hasattr(stream, "reconfigure"):  # a path or an old terminal may not take every letter
            stream.reconfigure(errors="backslashreplace")
        if not isinstance(stream, VisibleStream):
            setattr(sys, name, VisibleStream(stream, lossy=stream is last))
    os.environ["PYTHON_COLORS"] = "0"  # a later Python's tracebacks have escapes of their own


def unguarded(stream: TextIO) -> TextIO:
    """Return what a stream writes to, for those that draw and make their texts `visible`."""
    return stream.stream if isinstance(stream, VisibleStream) else stream
