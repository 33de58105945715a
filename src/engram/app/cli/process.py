"""The process of a command, from the moment that Python has started: signals, streams, exit codes.

Nothing is imported at the top that takes time: until the signals are handled, SIGTERM is Python's.
"""

from __future__ import annotations

import atexit
import os
import signal
import stat
import sys
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

_CODES = {signal.SIGINT: 130, signal.SIGTERM: 75}  # 75: EX_TEMPFAIL of sysexits.h, "resume me"
_STOPPED = "Stopped."

_signals_raise = False  # whether there is something to save, to remove or to close first


def main() -> None:
    """Run the command line; all that it prints passes `engram.app.terminal`."""
    with _signals_handled():  # before anything that takes time to import
        from engram.app.cli.app import app
        from engram.app.runs.interrupts import forget_signals
        from engram.app.terminal import guarded_streams

        forget_signals()
        with guarded_streams() as streams:
            code: str | int | None = 0
            try:
                app(prog_name="engram")
            except SystemExit as ended:
                code = ended.code
            except OSError as error:  # of the streams: of any other one a command makes a sentence
                code = _not_printed(error)
            for stream in streams:
                try:
                    stream.flush()
                except OSError as error:
                    with Path(os.devnull).open("w") as nowhere:  # or Python tries again, complains
                        os.dup2(nowhere.fileno(), stream.fileno())
                    if stream is streams[0]:
                        code = code or _not_printed(error)
            sys.exit(code)


@contextmanager
def one_sentence() -> Iterator[None]:
    """Turn a user's mistake into one sentence and exit code 2, Ctrl-C into 130, SIGTERM into 75.

    What is stopped says so in one line as well. Imports that take time belong into `importing`.
    Files and folders that are made meanwhile can be written by nobody outside the user's group.
    """
    import typer

    from engram.app.runs import Terminated
    from engram.errors import EngramError

    mask = os.umask(0)
    os.umask(mask | stat.S_IWOTH)
    try:
        with _raising(True):
            yield
    except EngramError as error:
        print(f"engram: {error}", file=sys.stderr)
        raise typer.Exit(2) from None
    except (typer.Exit, BrokenPipeError):
        raise  # all is done; whoever reads our output has had enough
    except Exception as error:
        from engram import plugins

        sentence = plugins.fault(error)
        if sentence is None and isinstance(error, OSError):
            sentence = f"{error}."  # a path that no file can have, a disk that takes no more
        if sentence is None:
            raise
        print(f"engram: {EngramError(sentence)}", file=sys.stderr)
        raise typer.Exit(2) from None
    except KeyboardInterrupt as stopped:
        print(str(stopped) or _STOPPED, file=sys.stderr)
        number = signal.SIGTERM if isinstance(stopped, Terminated) else signal.SIGINT
        raise typer.Exit(_CODES[number]) from None
    finally:
        os.umask(mask)


def importing() -> AbstractContextManager[None]:
    """Let a signal end the process then and there, as imports leave nothing to be saved.

    A library may swallow what is raised in the middle of an import, or print a traceback of it.
    """
    return _raising(False)


@contextmanager
def on_stop(message: str) -> Iterator[None]:
    """Let what stops the work inside say more than that it is stopped."""
    try:
        yield
    except KeyboardInterrupt as stopped:
        raise type(stopped)(*(stopped.args or [message])) from None


@contextmanager
def _signals_handled() -> Iterator[None]:
    """Let either signal end the process in one line, with the exit code that says which it was.

    A signal that is ignored stays so, and both are once the process has nothing left to do.
    """
    in_main = threading.current_thread() is threading.main_thread()
    handled = [each for each in _CODES if in_main and signal.getsignal(each) is not signal.SIG_IGN]
    before = {each: signal.signal(each, _handle) for each in handled}
    try:
        yield
    finally:
        atexit.unregister(_ignore)
        atexit.register(_ignore, handled)  # last, to be the first of those that are called
        for each, handler in before.items():
            signal.signal(each, handler)


@contextmanager
def _raising(raises: bool) -> Iterator[None]:
    """Let a signal raise KeyboardInterrupt or `Terminated`, or end the process then and there."""
    global _signals_raise
    before, _signals_raise = _signals_raise, raises
    try:
        yield
    finally:
        _signals_raise = before


def _handle(number: int, _: object) -> None:
    if not _signals_raise:
        try:
            os.write(2, f"{_STOPPED}\n".encode())
        finally:
            os._exit(_CODES[signal.Signals(number)])
    from engram.app.runs.interrupts import raise_signal  # which is there: see `one_sentence`

    raise_signal(number)


def _ignore(handled: list[signal.Signals]) -> None:
    for each in handled:
        signal.signal(each, signal.SIG_IGN)


def _not_printed(error: OSError) -> int:
    """Return the exit code for what stdout did not take, and say so; a reader may have enough."""
    if isinstance(error, BrokenPipeError):
        return 1
    print(f"engram: Not all could be printed: {error.strerror}.", file=sys.stderr)
    return 2
