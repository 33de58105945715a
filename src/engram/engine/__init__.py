"""Stacked training: R runs as one, on resident data."""

from engram.engine.cuda_graphs import (
    TOGETHER,
    WARM_UP,
    CudaGraphFunction,
    CudaGraphLoop,
    capturing,
    unchecked,
)
from engram.engine.loss import Objective, cross_entropy
from engram.engine.memory import Bank, ExampleStore
from engram.engine.rows import ByRun, Rows, RuleByRun, absorbed, gram
from engram.streams import Batch

__all__ = [
    "TOGETHER",
    "WARM_UP",
    "Bank",
    "Batch",
    "ByRun",
    "CudaGraphFunction",
    "CudaGraphLoop",
    "ExampleStore",
    "Objective",
    "Rows",
    "RuleByRun",
    "absorbed",
    "capturing",
    "cross_entropy",
    "gram",
    "unchecked",
]
