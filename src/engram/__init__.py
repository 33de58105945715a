"""Lifelong learning with an episodic memory for PyTorch."""

from engram import memory, metrics, rules
from engram.gradients import GradientMixer, Mix, backward
from engram.learner import Learner

__version__ = "0.1.0"

__all__ = [
    "GradientMixer",
    "Learner",
    "Mix",
    "__version__",
    "backward",
    "memory",
    "metrics",
    "rules",
]
