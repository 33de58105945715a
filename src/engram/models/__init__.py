"""Networks as functions of flat parameter vectors, stacked over runs."""

from engram.models.gpu import Branches, rounding
from engram.models.mlp import MLP
from engram.models.network import Network, Progressive, aligned_empty, stacked
from engram.models.progressive_mlp import ProgressiveMLP
from engram.models.progressive_resnet import ProgressiveResNet
from engram.models.resnet import ResNet

__all__ = [
    "MLP",
    "Branches",
    "Network",
    "Progressive",
    "ProgressiveMLP",
    "ProgressiveResNet",
    "ResNet",
    "aligned_empty",
    "rounding",
    "stacked",
]
