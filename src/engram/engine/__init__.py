"""Stacked training: R runs as one, on resident data."""

from engram.engine._bank import Bank
from engram.engine._objective import Batch, Objective, cross_entropy
from engram.engine._rows import Rows, gram

__all__ = ["Bank", "Batch", "Objective", "Rows", "cross_entropy", "gram"]
