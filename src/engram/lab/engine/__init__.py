"""Stacked training: R runs as one, on resident data."""

from engram.lab.benchmarks import Batch
from engram.lab.engine.cuda_graphs import (
    TOGETHER,
    WARM_UP,
    CudaGraphFunction,
    CudaGraphLoop,
    unchecked,
)
from engram.lab.engine.memory import Bank, ExampleStore
from engram.lab.engine.optimizers import OptimizedRuns
from engram.lab.engine.rows import (
    ByRun,
    Objective,
    Rows,
    RuleByRun,
    Term,
    absorbed,
    cross_entropy,
    gram,
    mean_loss,
)

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
    "OptimizedRuns",
    "Rows",
    "RuleByRun",
    "Term",
    "absorbed",
    "cross_entropy",
    "gram",
    "mean_loss",
    "unchecked",
]
