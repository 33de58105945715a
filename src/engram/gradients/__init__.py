"""Gradients: rows, their Gram matrix, and their mixture in anyone's training loop."""

from engram.gradients._backward import NamedLoss, backward, backward_each, mix_losses
from engram.gradients._finite import Check, Guard
from engram.gradients._mix import Mix, check_rule
from engram.gradients._mixer import GradientMixer
from engram.gradients._parallel import GroupChoice, check_group, compare_again, is_sharded, ranks_of
from engram.gradients._rows import optimized

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
