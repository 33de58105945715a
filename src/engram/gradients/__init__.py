"""Gradients: rows, their Gram matrix, and their mixture in anyone's training loop."""

from engram.gradients.backward import NamedLoss, backward, backward_each, mix_losses
from engram.gradients.finite import Check, Guard, is_finite
from engram.gradients.mixer import GradientMixer, optimized
from engram.gradients.mixing import Mix, check_rule
from engram.gradients.parallel import (
    GroupChoice,
    Ranks,
    check_group,
    compare_again,
    is_sharded,
    raise_on_all,
    ranks_of,
    refuse_sharded,
)

__all__ = [
    "Check",
    "GradientMixer",
    "GroupChoice",
    "Guard",
    "Mix",
    "NamedLoss",
    "Ranks",
    "backward",
    "backward_each",
    "check_group",
    "check_rule",
    "compare_again",
    "is_finite",
    "is_sharded",
    "mix_losses",
    "optimized",
    "raise_on_all",
    "ranks_of",
    "refuse_sharded",
]
