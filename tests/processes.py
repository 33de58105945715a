"""Commands in processes of their own, of which nothing is left whatever becomes of a test."""

import os
import signal
import subprocess
from contextlib import contextmanager, suppress


@contextmanager
def started(command, **options):
    """Start a command as a shell does: Ctrl-C is heard.

    What it prints is read as text unless the options say otherwise. If the test fails while it
    runs, it is killed with its workers, which hold its pipes too.
    """
    usual = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen(
        command,
        start_new_session=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        **{**usual, **options},
    ) as process:
        try:
            yield process
        except BaseException:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            raise
