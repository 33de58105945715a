"""Rules: how the gradients of the current batch and of the memory are weighed.

Every rule is a pure function ``weights = rule(losses, gram)``; the update is ``weights @ rows``.
"""

from engram.rules.agem import AGEM
from engram.rules.constant import Current, Equal
from engram.rules.gem import GEM
from engram.rules.mega1 import MEGA1
from engram.rules.mega2 import MEGA2
from engram.rules.rule import Rule, check_range, register

__all__ = ["AGEM", "GEM", "MEGA1", "MEGA2", "Current", "Equal", "Rule", "check_range", "register"]
