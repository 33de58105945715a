"""Ctrl-C as a flag."""

from __future__ import annotations

import signal
import threading
from types import TracebackType


class Interrupt:
    """Ctrl-C sets ``seen`` instead of raising, so that no write to the store is cut in two.

    Signals belong to the main thread; in another one, or where Ctrl-C is ignored, it does nothing.
    """

    def __init__(self) -> None:
        self.seen = False
        self._active = (
            threading.current_thread() is threading.main_thread()
            and signal.getsignal(signal.SIGINT) is not signal.SIG_IGN
        )

    def __enter__(self) -> Interrupt:
        if self._active:
            self._before = signal.signal(signal.SIGINT, self._note)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._active:
            signal.signal(signal.SIGINT, self._before)

    def _note(self, *_: object) -> None:
        self.seen = True
