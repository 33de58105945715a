"""Rules: how the gradients of the current batch and of the memory are weighed.

Every rule is a pure function ``weights = rule(losses, gram)``; the update is ``weights @ rows``.
"""

from engram.rules._agem import AGEM
from engram.rules._constant import Current, Equal
from engram.rules._gem import GEM
from engram.rules._mega1 import MEGA1
from engram.rules._mega2 import MEGA2
from engram.rules._rule import Rule

__all__ = ["AGEM", "GEM", "MEGA1", "MEGA2", "Current", "Equal", "Rule"]
