"""A model and its memory as one versioned artefact: train, update through a gate, roll back."""

from engram.production.artefact import Artefact, LockedError, Version
from engram.production.erasure import ErasureReport, erase
from engram.production.first import adopt, train
from engram.production.gate import Gate, Limits
from engram.production.history import history, history_page, rollback
from engram.production.model import Model, Predictions, load
from engram.production.publishing import Result
from engram.production.sources import DataSettings
from engram.production.training import Training, TrainingSettings
from engram.production.update import Plan, plan_update, update

__all__ = [
    "Artefact",
    "DataSettings",
    "ErasureReport",
    "Gate",
    "Limits",
    "LockedError",
    "Model",
    "Plan",
    "Predictions",
    "Result",
    "Training",
    "TrainingSettings",
    "Version",
    "adopt",
    "erase",
    "history",
    "history_page",
    "load",
    "plan_update",
    "rollback",
    "train",
    "update",
]
