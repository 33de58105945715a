"""What puts the books back when a change of them is interrupted."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, TypeAlias

from engram.errors import EngramError

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


def refuse_within(owner: object, *changes: Callable[..., object]) -> None:
    """Refuse to finish a change that is not left but going on, further up in this thread.

    What asks then is a signal handler, a debugger or a hook of a tensor: no lock holds it up, and
    to undo the change under its feet would make it go on with something else. The caller's caller
    is not counted: it may be the change itself, which deals with what has interrupted it.
    """
    codes = {change.__code__ for change in changes}
    frame = sys._getframe(2).f_back
    while frame is not None:
        if frame.f_code in codes and frame.f_locals.get("self") is owner:
            raise EngramError(
                "The memory is in the midst of a change, which has not ended when it was asked for "
                "something else in the same thread."
            )
        frame = frame.f_back
