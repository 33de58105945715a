"""Ctrl-C and SIGTERM, from the moment that Python has started to its end.

Nothing is imported here that takes time: until the signals are heeded, SIGTERM is Python's own.
"""

from __future__ import annotations

import atexit
import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager

CODES = {signal.SIGINT: 130, signal.SIGTERM: 75}  # 75: EX_TEMPFAIL of sysexits.h, "resume me"
STOPPED = "Stopped."

_at_stake = False  # whether there is something to save, to remove or to close first


@contextmanager
def heeded() -> Iterator[None]:
    """Let either signal end the process in one line, with the exit code that says which it was.

    A signal that is ignored stays so, and both are once the process has nothing left to do.
    """
    in_main = threading.current_thread() is threading.main_thread()
    heard = [each for each in CODES if in_main and signal.getsignal(each) is not signal.SIG_IGN]
    before = {each: signal.signal(each, _hear) for each in heard}
    try:
        yield
    finally:
        atexit.unregister(_ignore)
        atexit.register(_ignore, heard)  # last, to be the first of those that are called
        for each, handler in before.items():
            signal.signal(each, handler)


@contextmanager
def on_stop(message: str) -> Iterator[None]:
    """Let what stops the work inside say more than that it is stopped."""
    try:
        yield
    except KeyboardInterrupt as stopped:
        raise type(stopped)(*(stopped.args or [message])) from None


@contextmanager
def staked(at_stake: bool) -> Iterator[None]:
    """Let a signal raise KeyboardInterrupt or `Terminated`, or end the process then and there."""
    global _at_stake
    before, _at_stake = _at_stake, at_stake
    try:
        yield
    finally:
        _at_stake = before


def _hear(number: int, _: object) -> None:
    if not _at_stake:
        try:
            os.write(2, f"{STOPPED}\n".encode())
        finally:
            os._exit(CODES[signal.Signals(number)])
    if number == signal.SIGTERM:
        from engram.runs import Terminated

        raise Terminated
    raise KeyboardInterrupt


def _ignore(heard: list[signal.Signals]) -> None:
    for each in heard:
        signal.signal(each, signal.SIG_IGN)
