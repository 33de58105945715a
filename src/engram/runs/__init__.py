"""Runs: what is left to do, who does it, and the store of what came of it."""

from engram.runs._address import address, canonical
from engram.runs._checks import check_disk, check_seeds, resolve_device
from engram.runs._executor import Listener, execute
from engram.runs._files import whole_file
from engram.runs._laboratory import Laboratory, Run
from engram.runs._lines import read_lines, write_lines
from engram.runs._row import Row, printable, record
from engram.runs._store import Store
from engram.runs._units import Unit, plan_units

__all__ = [
    "Laboratory",
    "Listener",
    "Row",
    "Run",
    "Store",
    "Unit",
    "address",
    "canonical",
    "check_disk",
    "check_seeds",
    "execute",
    "plan_units",
    "printable",
    "read_lines",
    "record",
    "resolve_device",
    "whole_file",
    "write_lines",
]
