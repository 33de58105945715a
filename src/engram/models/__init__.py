"""Networks as functions of flat parameter vectors, stacked over runs."""

from engram.models._branches import Branches
from engram.models._mlp import MLP
from engram.models._network import Network
from engram.models._progressive import Progressive
from engram.models._progressive_mlp import ProgressiveMLP
from engram.models._progressive_resnet import ProgressiveResNet
from engram.models._resnet import ResNet
from engram.models._rounding import rounding
from engram.models._vectors import room, stacked

__all__ = [
    "MLP",
    "Branches",
    "Network",
    "Progressive",
    "ProgressiveMLP",
    "ProgressiveResNet",
    "ResNet",
    "room",
    "rounding",
    "stacked",
]
