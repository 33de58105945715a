"""Networks as functions of flat parameter vectors, stacked over runs."""

from engram.models._mlp import MLP
from engram.models._network import Network
from engram.models._progressive import ProgressiveMLP

__all__ = ["MLP", "Network", "ProgressiveMLP"]
