"""Gradients: rows, their Gram matrix, and their mixture in anyone's training loop."""

from engram.gradients._backward import backward, backward_each
from engram.gradients._mix import Mix, check_rule
from engram.gradients._mixer import GradientMixer

__all__ = ["GradientMixer", "Mix", "backward", "backward_each", "check_rule"]
