"""The one error a user's mistake raises."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class EngramError(ValueError):
    """A mistake in what the user gave, told in one sentence.

    The command line prints the sentence alone; everywhere else it is an ordinary ``ValueError``.
    """


def unknown(kind: str, name: str, valid: Iterable[str]) -> EngramError:
    """Return the error for a name that nobody knows, with the nearest match and all valid ones."""
    names = sorted(valid)
    near = difflib.get_close_matches(name, names, n=1, cutoff=0.5)
    hint = f" (did you mean {near[0]!r}?)" if near else ""
    return EngramError(f"There is no {kind} {name!r}{hint}; valid are {', '.join(names)}.")
