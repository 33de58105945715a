"""The paper as data: the numbers it prints, the claims it makes, the experiments it runs.

- ``numbers.json``: every number of its tables and figures;
- ``claims.json``: its claims, each as checks of numbers in named settings;
- ``studies/*.toml``: its experiments, as ``engram reproduce`` runs them.

They have one home because they must agree: a study runs what a table prints and what a claim is
judged by. It is a package of its own, below the two that read it: ``engram.app.report`` sets
results beside the numbers and judges the claims, ``engram.app.studies`` plans the runs.
"""

from engram.app.paper.checks import claims, settings
from engram.app.paper.numbers import (
    Printed,
    benchmarks,
    printed,
    printed_k2_share,
    printed_methods,
    table_methods,
)

__all__ = [
    "Printed",
    "benchmarks",
    "claims",
    "printed",
    "printed_k2_share",
    "printed_methods",
    "settings",
    "table_methods",
]
