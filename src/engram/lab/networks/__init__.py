"""Networks as functions of flat parameter vectors, stacked over runs."""

from engram.lab.networks.gpu import Branches, rounding
from engram.lab.networks.mlp import MLP
from engram.lab.networks.module import ModuleNetwork
from engram.lab.networks.network import Network, aligned_empty, stacked
from engram.lab.networks.progressive import Progressive, ProgressiveMLP, ProgressiveResNet
from engram.lab.networks.registry import NetworkSource, network_source, register
from engram.lab.networks.resnet import ResNet

__all__ = [
    "MLP",
    "Branches",
    "ModuleNetwork",
    "Network",
    "NetworkSource",
    "Progressive",
    "ProgressiveMLP",
    "ProgressiveResNet",
    "ResNet",
    "aligned_empty",
    "network_source",
    "register",
    "rounding",
    "stacked",
]
