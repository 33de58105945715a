"""Ctrl-C and SIGTERM: raised as exceptions, or noted while runs are trained."""

from __future__ import annotations

import signal
import threading
from contextlib import ExitStack
from types import TracebackType
from typing import NoReturn

_raised: signal.Signals | None = None  # by `raise_signal`, since `forget_signals`


class Terminated(KeyboardInterrupt):
    """SIGTERM was seen: what is not finished can be resumed."""


def raise_signal(number: int) -> NoReturn:
    """Raise KeyboardInterrupt or `Terminated` for a signal, and let the next `Interrupt` know.

    Whatever is interrupted may swallow the exception, as Python does in a ``__del__``.
    """
    global _raised
    _raised = signal.Signals(number)
    _raise(_raised)


def forget_signals() -> None:
    """Forget what was raised: another command begins."""
    global _raised
    _raised = None


class Interrupt:
    """Ctrl-C and SIGTERM set ``seen``, so that runs can be saved and no write is cut in two.

    What was seen is raised when the block ends, unless an error ends it. A second signal raises at
    once. One that was raised before the block, and swallowed, is seen from the beginning. Signals
    belong to the main thread; in another one, or where a signal is ignored, it does nothing.
    """

    def __init__(self) -> None:
        in_main = threading.current_thread() is threading.main_thread()
        self.seen = _raised if in_main else None
        self._signals = [
            each
            for each in (signal.SIGINT, signal.SIGTERM)
            if in_main and signal.getsignal(each) is not signal.SIG_IGN
        ]

    def __enter__(self) -> Interrupt:
        with ExitStack() as handlers:  # a signal may come between the two
            for each in self._signals:
                handlers.callback(signal.signal, each, signal.getsignal(each))
                signal.signal(each, self._note)
            self._before = handlers.pop_all()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._before.close()
        if kind is None and self.seen is not None:
            _raise(self.seen)

    def _note(self, number: int, _: object) -> None:
        if self.seen is not None:
            _raise(self.seen)
        self.seen = signal.Signals(number)


def _raise(number: signal.Signals) -> NoReturn:
    raise Terminated if number is signal.SIGTERM else KeyboardInterrupt
