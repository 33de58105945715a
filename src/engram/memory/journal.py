"""What keeps a change of a memory whole: a journal that undoes it, and a lock that is held."""

from __future__ import annotations

import copy
import os
import sys
import threading
import weakref
from collections.abc import Callable
from typing import Any, TypeAlias, TypeVar

from engram.errors import EngramError

Guarded = TypeVar("Guarded")
Journal: TypeAlias = list[tuple[Any, ...]]
"""Calls, each a function and its arguments, in the order of the changes that they undo.

A call is noted before its change begins, and sets things to what they were instead of turning them
back: it is right whether the change was made, half made or not yet. Between two changes of a
ledger its journal is empty.
"""


def undo(journal: Journal) -> None:
    """Put everything back, the latest first, and empty the journal."""
    while journal:
        call, *arguments = journal[-1]
        call(*arguments)
        journal.pop()


def refuse_within(owner: object, *changes: Callable[..., object]) -> None:
    """Refuse to finish a change that is not left but going on, further up in this thread.

    What asks then is a signal handler, a debugger or a hook of a tensor: no lock keeps it waiting,
    and a change that were undone here would go on afterwards with what is no longer there. The
    caller's caller is not counted: it may be the change itself, handling what interrupted it.
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


_forking = threading.Lock()  # one thread at a time
# Which locks there are. No lock guards this: a set is changed and copied in one step, and what
# interrupts a thread could leave that lock taken.
_locks: set[weakref.ref[threading.RLock]] = set()
_taken: list[threading.Lock | threading.RLock] = []


def new_lock() -> threading.RLock:
    """Return a lock that its thread may take again.

    A process that forks (a worker of a data loader) has but one of the threads: a lock that another
    one held would stay taken for ever. So whoever forks takes all of them first.
    """
    lock = threading.RLock()
    _locks.add(weakref.ref(lock, _locks.discard))
    return lock


def _take_all() -> None:
    _take(_forking)
    for reference in _locks.copy():
        lock = reference()
        if lock is not None:
            _take(lock)


def _take(lock: threading.Lock | threading.RLock) -> None:
    lock.acquire()
    _taken.append(lock)


def _free_all() -> None:
    while _taken:
        _taken.pop().release()


if hasattr(os, "register_at_fork"):  # where processes fork
    os.register_at_fork(before=_take_all, after_in_parent=_free_all, after_in_child=_free_all)


def deep_copy(original: Guarded, state: dict[str, Any], memo: dict[int, Any]) -> Guarded:
    """Return a copy with a deep copy of the state, for whoever holds the original's lock."""
    duplicate = object.__new__(type(original))
    memo[id(original)] = duplicate
    duplicate.__setstate__(copy.deepcopy(state, memo))  # type: ignore[attr-defined]
    return duplicate
