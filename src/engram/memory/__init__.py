"""Episodic memories: which examples stay (policies), where (storages), and what is known of them.

README.md beside this file says how the pieces work together.
"""

from engram.memory import old_pickles
from engram.memory.blocks import Block
from engram.memory.columns import Ragged
from engram.memory.examples import Erasure, Example, Sample
from engram.memory.ledger import Ledger
from engram.memory.mapped import MappedStorage
from engram.memory.memory import Memory
from engram.memory.policies import (
    ClassRing,
    ClassSample,
    Fifo,
    Policy,
    Reservoir,
    Selective,
    register,
)
from engram.memory.ragged import RaggedStorage
from engram.memory.slots import Moves
from engram.memory.storage import IndexStorage, TensorStorage

__all__ = [
    "Block",
    "ClassRing",
    "ClassSample",
    "Erasure",
    "Example",
    "Fifo",
    "IndexStorage",
    "Ledger",
    "MappedStorage",
    "Memory",
    "Moves",
    "Policy",
    "Ragged",
    "RaggedStorage",
    "Reservoir",
    "Sample",
    "Selective",
    "TensorStorage",
    "register",
]

old_pickles.register()
