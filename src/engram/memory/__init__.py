"""Episodic memories: which examples stay (policies) and where (storages), with their books."""

from engram.memory._example import Erasure, Example, Sample
from engram.memory._index_storage import IndexStorage
from engram.memory._ledger import Ledger
from engram.memory._memory import Memory
from engram.memory._moves import Moves
from engram.memory._policies import ClassRing, ClassSample, Fifo, Policy, Reservoir
from engram.memory._tensor_storage import TensorStorage

__all__ = [
    "ClassRing",
    "ClassSample",
    "Erasure",
    "Example",
    "Fifo",
    "IndexStorage",
    "Ledger",
    "Memory",
    "Moves",
    "Policy",
    "Reservoir",
    "Sample",
    "TensorStorage",
]
