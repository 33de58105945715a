"""Ctrl-C and SIGTERM as a flag."""

from __future__ import annotations

import signal
import threading
from types import TracebackType


class Terminated(KeyboardInterrupt):
    """SIGTERM was seen: what is not finished can be resumed."""


class Interrupt:
    """Ctrl-C and SIGTERM set ``seen``, so that runs can be saved and no write is cut in two.

    A second one raises KeyboardInterrupt at once. Signals belong to the main thread; in another
    one, or where a signal is ignored, it does nothing.
    """

    def __init__(self) -> None:
        self.seen: signal.Signals | None = None
        in_main = threading.current_thread() is threading.main_thread()
        self._signals = [
            each
            for each in (signal.SIGINT, signal.SIGTERM)
            if in_main and signal.getsignal(each) is not signal.SIG_IGN
        ]

    def __enter__(self) -> Interrupt:
        self._before = {each: signal.signal(each, self._note) for each in self._signals}
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for each, handler in self._before.items():
            signal.signal(each, handler)

    def raise_seen(self) -> None:
        """Raise what was seen, if anything was."""
        if self.seen is not None:
            raise Terminated if self.seen is signal.SIGTERM else KeyboardInterrupt

    def _note(self, number: int, _: object) -> None:
        if self.seen is not None:
            self.raise_seen()
        self.seen = signal.Signals(number)
