"""Gradients: rows, their Gram matrix, and their mixture in anyone's training loop."""

from engram.gradients._backward import backward
from engram.gradients._mix import Mix
from engram.gradients._mixer import GradientMixer

__all__ = ["GradientMixer", "Mix", "backward"]
