"""Measuring: what steps cost on this machine."""

from engram.lab.bench.cpu import (
    BATCH,
    Batches,
    examples,
    filled_memory,
    learner,
    method_step,
    methods,
    products_alone,
    steps,
)
from engram.lab.bench.gpu import captured, determinism, images, replays, searches, stacks
from engram.lab.bench.tables import device_name, measure
from engram.lab.bench.timing import median, ratio, take_turns, timed

__all__ = [
    "BATCH",
    "Batches",
    "captured",
    "determinism",
    "device_name",
    "examples",
    "filled_memory",
    "images",
    "learner",
    "measure",
    "median",
    "method_step",
    "methods",
    "products_alone",
    "ratio",
    "replays",
    "searches",
    "stacks",
    "steps",
    "take_turns",
    "timed",
]
