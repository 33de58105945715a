"""What puts the books back when a change of them is interrupted."""

from __future__ import annotations

from typing import Any, TypeAlias

Journal: TypeAlias = list[tuple[Any, ...]]
"""Calls, each a function and its arguments, in the order of the changes that they undo.

A call is noted before its change begins, and sets things to what they were instead of turning them
back: it is right whether the change was made, half made or not yet. Between two changes of the
books the journal is empty.
"""


def undo(journal: Journal) -> None:
    """Put everything back, the latest first, and empty the journal."""
    while journal:
        call, *arguments = journal[-1]
        call(*arguments)
        journal.pop()
