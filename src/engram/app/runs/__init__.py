"""Runs: what is left to do, who does it, and the store of what came of it."""

from engram.app.runs.checkpoints import Checkpoints
from engram.app.runs.checks import check_disk, check_interval, check_seeds, resolve_device
from engram.app.runs.choices import Choice, Trial, select
from engram.app.runs.cluster import LOCAL, Cluster
from engram.app.runs.executor import Executor, Listener, Unit, execute, plan_units
from engram.app.runs.interrupts import Terminated
from engram.app.runs.json_lines import Contents, check_new, read_contents, read_lines, write_lines
from engram.app.runs.pool import pool_size
from engram.app.runs.rows import Row, address, canonical, printable, record, stamp
from engram.app.runs.step_files import copy_steps, step_records, write_steps
from engram.app.runs.store import DEFAULT_STORE, Store
from engram.app.runs.verification import Verification, verify
from engram.app.runs.worker import Run

__all__ = [
    "DEFAULT_STORE",
    "LOCAL",
    "Checkpoints",
    "Choice",
    "Cluster",
    "Contents",
    "Executor",
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
    "execute",
    "plan_units",
    "pool_size",
    "printable",
    "read_contents",
    "read_lines",
    "record",
    "resolve_device",
    "select",
    "stamp",
    "step_records",
    "verify",
    "write_lines",
    "write_steps",
]
