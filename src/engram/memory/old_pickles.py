"""Reads pickles of memories and ledgers from 0.1.0, whose classes were in other modules.

A pickle names the module of each class. The names that such a pickle may hold are made importable
here; what else has changed is put right where it is read (`Ledger.__setstate__`,
`TensorStorage.__setstate__`).
"""

from __future__ import annotations

import sys
from types import ModuleType

from engram.memory.examples import Erasure, Example, Sample
from engram.memory.groups import Groups, Ring, Uniform
from engram.memory.ledger import Ledger
from engram.memory.memory import Memory
from engram.memory.policies import ClassRing, ClassSample, Fifo, Reservoir
from engram.memory.sampling import Draws
from engram.memory.slots import Moves, SlotColumns, SlotTable
from engram.memory.storage import IndexStorage, SlotBuffer, TensorStorage


class _Parts:
    """Stands for a class that there is no more: its attributes are read by `Ledger`."""


_MOVED: dict[str, dict[str, type]] = {
    "_draws": {"Draws": Draws},
    "_example": {"Erasure": Erasure, "Example": Example, "Sample": Sample},
    "_filing": {"Filing": _Parts},
    "_group": {"Ring": Ring, "Uniform": Uniform},
    "_groups": {"Groups": Groups},
    "_index_storage": {"IndexStorage": IndexStorage},
    "_ledger": {"Ledger": Ledger},
    "_memory": {"Memory": Memory},
    "_moves": {"Moves": Moves},
    "_places": {"Places": SlotBuffer},
    "_policies": {policy.__name__: policy for policy in (ClassRing, ClassSample, Fifo, Reservoir)},
    "_slots": {"Slots": SlotTable},
    "_table": {"Table": SlotColumns},
    "_tensor_storage": {"TensorStorage": TensorStorage},
}


def register() -> None:
    """Make the modules of these pickles importable."""
    for name, classes in _MOVED.items():
        module = ModuleType(f"engram.memory.{name}", "Classes of 0.1.0, as pickles name them.")
        vars(module).update(classes)
        sys.modules[module.__name__] = module
