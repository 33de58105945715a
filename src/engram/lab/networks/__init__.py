"""Networks as functions of flat parameter vectors, stacked over runs."""

from engram.lab.networks.gpu import Branches, rounding
from engram.lab.networks.mlp import MLP
from engram.lab.networks.network import Network, aligned_empty, stacked
from engram.lab.networks.progressive import Progressive, ProgressiveMLP, ProgressiveResNet
from engram.lab.networks.resnet import ResNet

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
