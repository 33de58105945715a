"""Measuring: what steps cost on this machine."""

from engram.bench._captured import captured
from engram.bench._determinism import determinism
from engram.bench._images import images
from engram.bench._measure import device_name, measure
from engram.bench._methods import method_step, methods
from engram.bench._replays import replays
from engram.bench._searches import searches
from engram.bench._stacks import stacks
from engram.bench._steps import (
    BATCH,
    Batches,
    examples,
    filled_memory,
    learner,
    products_alone,
    steps,
)
from engram.bench._turns import median, ratio, take_turns, timed

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
