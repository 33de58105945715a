"""Hand-written Markdown with generated blocks in it."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Sequence

from engram.errors import EngramError

_BEGIN = re.compile(r"<!-- generated: (\S.*) -->")
_END = "<!-- end -->"
_ALMOST = re.compile(r"\s*<!--\s*(generated\b|end\s*-->)", re.IGNORECASE)


def fill(text: str, make: Callable[[Sequence[str]], str]) -> str:
    r"""Return the text with the blocks made anew; whatever is outside of them stays as it is.

    A block stands between the lines ``<!-- generated: KIND WORD... -->`` and ``<!-- end -->``;
    ``make`` is given its words, which are quoted as in a shell.

    >>> print(fill("a\n<!-- generated: sum 1 2 -->\nold\n<!-- end -->\nb", " + ".join))
    a
    <!-- generated: sum 1 2 -->
    sum + 1 + 2
    <!-- end -->
    b
    """
    kept, opened = list[str](), 0
    for number, line in enumerate(text.splitlines(keepends=True), 1):
        words = _begin(line, number)
        end = line.rstrip("\r\n") == _END
        if words is not None and opened:
            raise EngramError(f"line {number}: a block begins inside that of line {opened}.")
        if end and not opened:
            raise EngramError(f"line {number}: {_END} ends no block.")
        if end:
            opened = 0
        if not opened:
            kept.append(line)
        if words is not None:
            opened = number
            try:
                kept.append(f"{make(words)}\n")
            except EngramError as error:
                raise EngramError(f"line {number}: {error}") from None
    if opened:
        raise EngramError(f"line {opened}: a block begins that no {_END} ends.")
    return "".join(kept)


def _begin(line: str, number: int) -> list[str] | None:
    """Return the words of a line that begins a block, None for any other line."""
    bare = line.rstrip("\r\n")
    found = _BEGIN.fullmatch(bare)
    try:
        if found:
            return shlex.split(found[1])
    except ValueError:
        pass  # a quotation that does not end
    if bare != _END and _ALMOST.match(bare):
        raise EngramError(
            f"line {number}: a marker is <!-- generated: KIND WORD... --> or {_END}, "
            f"not {bare.strip()!r}."
        )
    return None
