"""Locks that a forked process finds free, and what they guard whole; copies of that."""

from __future__ import annotations

import copy
import os
import threading
import weakref
from typing import Any, TypeVar

Guarded = TypeVar("Guarded")

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
    twin = object.__new__(type(original))
    memo[id(original)] = twin
    twin.__setstate__(copy.deepcopy(state, memo))  # type: ignore[attr-defined]
    return twin
