"""Penalties that hold important weights in place: EWC, PI, MAS and RWALK, for any module."""

from engram.penalties.ewc import EWC, FisherImportance
from engram.penalties.importance import Importance, TaskPass, Weights
from engram.penalties.mas import MAS, SensitivityImportance
from engram.penalties.penalty import Penalty
from engram.penalties.pi import PI, PathImportance
from engram.penalties.rwalk import RWALK, WalkImportance

__all__ = [
    "EWC",
    "MAS",
    "PI",
    "RWALK",
    "FisherImportance",
    "Importance",
    "PathImportance",
    "Penalty",
    "SensitivityImportance",
    "TaskPass",
    "WalkImportance",
    "Weights",
]
