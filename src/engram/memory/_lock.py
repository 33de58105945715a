"""Locks that a forked process finds free, and what they guard whole."""

from __future__ import annotations

import os
import threading
from weakref import WeakSet

_guard = threading.Lock()  # of which locks there are
_forking = threading.Lock()  # one thread at a time
_locks: WeakSet[threading.RLock] = WeakSet()
_taken: list[threading.Lock | threading.RLock] = []


def new_lock() -> threading.RLock:
    """Return a lock that its thread may take again.

    A process that forks (a worker of a data loader) has but one of the threads: a lock that another
    one held would stay taken for ever. So whoever forks takes all of them first.
    """
    lock = threading.RLock()
    with _guard:
        _locks.add(lock)
    return lock


def _take_all() -> None:
    _take(_forking)
    with _guard:
        locks = list(_locks)
    for lock in locks:
        _take(lock)
    _take(_guard)  # last: who holds one of the others may make a new one


def _take(lock: threading.Lock | threading.RLock) -> None:
    lock.acquire()
    _taken.append(lock)


def _free_all() -> None:
    while _taken:
        _taken.pop().release()


if hasattr(os, "register_at_fork"):  # where processes fork
    os.register_at_fork(before=_take_all, after_in_parent=_free_all, after_in_child=_free_all)
