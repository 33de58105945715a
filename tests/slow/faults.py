"""Ways for a process to die in the middle of something, by its own SIGKILL."""

import os
import random
import signal
import sqlite3
import threading
import time

from engram.app.runs import Checkpoints, Store

CHECKPOINT_CALLS = {"write": 3, "fsync": 2, "rename": 2}
"""The calls that saving a checkpoint makes, and about how many of each."""

REMOVAL_CALLS = 3
"""The calls that removing a checkpoint makes: of it, of the one before it, and of their folder."""

PLACES = [*CHECKPOINT_CALLS, "before commit", "inside commit", "after commit", "inside removal"]


def die():
    """Be gone, with no farewell to anybody."""
    os.kill(os.getpid(), signal.SIGKILL)


def install(place, number, source):
    """Die in the ``number``-th such call of a checkpoint's, in the store's commit, or after it."""
    if place in CHECKPOINT_CALLS:
        _in_call(place, number, after=source.random() < 0.5)
    elif place == "after commit":
        Checkpoints.remove = lambda *_: die()
    elif place == "inside removal":
        _in_removal(number)
    else:
        _in_commit(source.uniform(0, 4e-3) if place == "inside commit" else None)


def _in_call(place, number, after):
    name = {"rename": "replace"}.get(place, place)
    real, calls = getattr(os, name), iter(range(number))

    def call(*arguments):
        if place == "rename" and not str(arguments[1]).endswith(".safetensors"):
            return real(*arguments)
        if next(calls, None) is not None:
            return real(*arguments)
        if place == "write":  # half of it
            real(arguments[0], arguments[1][: len(arguments[1]) // 2])
        elif after:
            real(*arguments)
        die()
        return None

    setattr(os, name, call)


def _in_removal(number):
    """Die before the ``number``-th call that removes something of a checkpoint."""
    remove, calls = Checkpoints.remove, iter(range(number))

    def dying(real):
        return lambda *arguments: die() if next(calls, None) is None else real(*arguments)

    def removing(self, path):
        os.unlink, os.rmdir = dying(os.unlink), dying(os.rmdir)
        remove(self, path)

    Checkpoints.remove = removing


def _in_commit(delay):
    """Die when the results are about to be committed, or so many seconds into it."""
    add = Store.add

    def adding(self, entries, **more):
        self._connection.set_trace_callback(
            lambda sql: _begin_to_die(delay) if sql == "COMMIT" else None
        )
        return add(self, entries, **more)

    Store.add = adding


def _begin_to_die(delay):
    if delay is None:
        die()
    until = time.perf_counter() + delay

    def wait():  # the other thread is in the database's own code, and waits for the disk
        while time.perf_counter() < until:
            pass
        die()

    threading.Thread(target=wait, daemon=True).start()


def plan(count, subjects, seed=0):
    """Return (subject, place, number) of so many kills: every second one is a random moment.

    The others go through all places, and both through all subjects.
    """
    source = random.Random(seed)
    order = list(subjects)
    kills = []
    for index in range(count):
        if index % (2 * len(order)) == 0:
            source.shuffle(order)
        subject = (
            order[index // 2 % len(order)] if index % 2 else order[-1 - index // 2 % len(order)]
        )
        place = PLACES[index // 2 % len(PLACES)] if index % 2 else "a random moment"
        removing = place == "inside removal"
        most = REMOVAL_CALLS if removing else CHECKPOINT_CALLS.get(place, 1) * 12
        number = source.randrange(most)
        kills.append((subject, place, number))
    return kills


assert sqlite3.threadsafety > 0  # the trace and the clock run in two threads
