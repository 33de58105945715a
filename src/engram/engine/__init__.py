"""Stacked training: R runs as one, on resident data."""

from engram.engine._bank import Bank
from engram.engine._by_run import ByRun, RuleByRun, absorbed
from engram.engine._mixture import gram
from engram.engine._objective import Objective, cross_entropy
from engram.engine._rows import Rows
from engram.engine._unchecked import unchecked
from engram.engine.cuda_graphs import (
    TOGETHER,
    WARM_UP,
    CudaGraphFunction,
    CudaGraphLoop,
    capturing,
)
from engram.streams import Batch

__all__ = [
    "TOGETHER",
    "WARM_UP",
    "Bank",
    "Batch",
    "ByRun",
    "CudaGraphFunction",
    "CudaGraphLoop",
    "Objective",
    "Rows",
    "RuleByRun",
    "absorbed",
    "capturing",
    "cross_entropy",
    "gram",
    "unchecked",
]
