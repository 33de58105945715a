"""Runs: what is left to do, who does it, and the store of what came of it."""

from engram.runs._address import address, canonical
from engram.runs._checkpoints import Checkpoints
from engram.runs._checks import check_disk, check_interval, check_seeds, resolve_device
from engram.runs._choice import Choice, Trial
from engram.runs._executor import execute
from engram.runs._interrupt import Terminated
from engram.runs._laboratory import Laboratory, Run
from engram.runs._lines import Contents, check_new, read_contents, read_lines, write_lines
from engram.runs._row import Row, record
from engram.runs._shift import Listener, crew_size
from engram.runs._stamp import printable, stamp
from engram.runs._step_files import DEFAULT_STORE, copy_steps, step_records
from engram.runs._store import Store
from engram.runs._units import Unit, plan_units
from engram.runs._verify import Verification, verify

__all__ = [
    "DEFAULT_STORE",
    "Checkpoints",
    "Choice",
    "Contents",
    "Laboratory",
    "Listener",
    "Row",
    "Run",
    "Store",
    "Terminated",
    "Trial",
    "Unit",
    "Verification",
    "address",
    "canonical",
    "check_disk",
    "check_interval",
    "check_new",
    "check_seeds",
    "copy_steps",
    "crew_size",
    "execute",
    "plan_units",
    "printable",
    "read_contents",
    "read_lines",
    "record",
    "resolve_device",
    "stamp",
    "step_records",
    "verify",
    "write_lines",
]
