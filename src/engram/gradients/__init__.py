"""Gradients: rows, their Gram matrix, and their mixture in anyone's training loop."""

from engram.gradients.backward import NamedLoss, backward, backward_each, mix_losses
from engram.gradients.capture import CapturedStep, capturing
from engram.gradients.finite import Check, Guard, begin_check, is_finite
from engram.gradients.mixer import GradientMixer, optimized
from engram.gradients.mixing import Mix, check_rule
from engram.gradients.parallel import (
    GroupChoice,
    PlannedRow,
    Ranks,
    check_group,
    compare_again,
    raise_on_all,
    rank_share,
    ranks_of,
)
from engram.gradients.sharded import has_parts, is_sharded, own_parts, refuse_sharded

__all__ = [
    "CapturedStep",
    "Check",
    "GradientMixer",
    "GroupChoice",
    "Guard",
    "Mix",
    "NamedLoss",
    "PlannedRow",
    "Ranks",
    "backward",
    "backward_each",
    "begin_check",
    "capturing",
    "check_group",
    "check_rule",
    "compare_again",
    "has_parts",
    "is_finite",
    "is_sharded",
    "mix_losses",
    "optimized",
    "own_parts",
    "raise_on_all",
    "rank_share",
    "ranks_of",
    "refuse_sharded",
]
