"""Training of many units in parallel; results are stored as they are finished."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from engram.runs._interrupt import Interrupt
from engram.runs._shift import Listener, Shift

if TYPE_CHECKING:
    from engram.runs._checkpoints import Checkpoints
    from engram.runs._laboratory import Run
    from engram.runs._store import Store
    from engram.runs._units import Unit


def execute(
    units: Sequence[Unit],
    store: Store,
    run: Run,
    *,
    device: str,
    command: str,
    listener: Listener,
    checkpoints: Checkpoints | None = None,
) -> int:
    """Train the units in worker processes and store their results; return how many failed.

    On a CPU there are as many workers as cores, of one thread each; on a GPU there is one. Only
    this process writes the store. A unit that fails leaves the others alone; one whose process
    dies is run once more. Ctrl-C and SIGTERM let the workers save what they are at, raise
    KeyboardInterrupt or Terminated, and leave what is finished stored; a second one does not wait.
    """
    if units:
        store.check_writable()
    if checkpoints is not None:
        checkpoints.remove_stale()
        if units:
            checkpoints.make_folder()
        units = [part for unit in units for part in checkpoints.parted(unit, device)]
    shift = Shift(store, run, device, command, listener, checkpoints)
    try:
        with Interrupt() as interrupt:
            shift.pending.extend(units)
            while shift.busy:
                shift.hand_out()
                heard = shift.heard()
                if interrupt.seen and not shift.stopping:  # a worker may have died of the same
                    shift.stop()
                shift.attend(heard)
            interrupt.raise_seen()
    finally:
        for worker in shift.crew:
            worker.kill()
    return shift.failures
