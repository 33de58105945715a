"""Gradients: rows, their Gram matrix, and their mixture in anyone's training loop."""

from engram.gradients.backward import NamedLoss, backward, backward_each, mix_losses
from engram.gradients.finite import Check, Guard
from engram.gradients.mixer import GradientMixer, optimized
from engram.gradients.mixing import Mix, check_rule
from engram.gradients.parallel import GroupChoice, check_group, compare_again, is_sharded, ranks_of

__all__ = [
    "Check",
    "GradientMixer",
    "GroupChoice",
    "Guard",
    "Mix",
    "NamedLoss",
    "backward",
    "backward_each",
    "check_group",
    "check_rule",
    "compare_again",
    "is_sharded",
    "mix_losses",
    "optimized",
    "ranks_of",
]
