"""The paper as data: the numbers it prints, the claims it makes, the experiments it runs.

- ``numbers.json``: every number of its tables and figures;
- ``claims.json``: its claims, each as checks of numbers in named settings;
- ``studies/*.toml``: its experiments, as ``engram reproduce`` runs them.

They are in one package because they must agree: a study runs what a table prints and what a claim
is judged by. It is below the two that read it: ``engram.app.report`` sets results beside the
numbers and judges the claims, ``engram.app.studies`` plans the runs.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping, Sequence
from importlib import resources
from typing import Any, NamedTuple

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


class Printed(NamedTuple):
    """A number as the paper prints it; a line in a figure has no spread."""

    mean: float
    std: float | None


def printed(benchmark: str, method: str, metric: str) -> Printed | None:
    """Return the paper's number, or None if it has none.

    Experience replay is what the paper's ablation calls MEGA-I with equal weights.

    >>> printed("permuted-mnist", "mega-ii", "average_accuracy")
    Printed(mean=91.21, std=0.1)
    """
    numbers = _numbers()
    number = numbers["results"].get(benchmark, {}).get(method, {}).get(metric)
    if number is None and metric == "average_accuracy":
        name = "mega-i-equal" if method == "er" else method
        number = numbers["ablation_average_accuracy"].get(benchmark, {}).get(name)
        if number is None and method == "multi-task":
            line = numbers["multi_task_average_accuracy"].get(benchmark)
            return None if line is None else Printed(line, None)
    return None if number is None else Printed(number["mean"], number["std"])


def printed_k2_share(examples: int) -> Printed | None:
    """Return the paper's share of steps with k2 < 1 in percent, MEGA-I on 20 tasks, or None.

    >>> printed_k2_share(200), printed_k2_share(300)
    (Printed(mean=1.05, std=None), None)
    """
    share = _numbers()["share_of_k2_below_1_percent"].get(str(examples))
    return None if share is None else Printed(share, None)


def table_methods(benchmark: str) -> list[str]:
    """Return the methods that the paper's table compares MEGA with on a benchmark.

    >>> table_methods("split-awa")
    ['van', 'ewc', 'mas', 'rwalk', 'pi', 'a-gem']
    """
    methods = _numbers()["results"].get(benchmark, {})
    return [method for method in methods if method not in ("mega-i", "mega-ii")]


def printed_methods(benchmark: str) -> list[str]:
    """Return every method that the paper prints a number of on a benchmark, in its order.

    >>> printed_methods("split-awa")[-4:]
    ['mega-ii', 'mega-i-equal', 'mega-ii-unbalanced', 'multi-task']
    """
    tables = _numbers()["results"][benchmark], _numbers()["ablation_average_accuracy"][benchmark]
    return [*dict.fromkeys([*tables[0], *tables[1], "multi-task"])]


def benchmarks() -> list[str]:
    """Return the names of the paper's four benchmarks, in its order."""
    return list(_numbers()["results"])


def claims() -> Mapping[str, Sequence[Mapping[str, Any]]]:
    """Return the paper's claims in its order: for each sentence the checks it stands for."""
    checks: Mapping[str, Sequence[Mapping[str, Any]]] = _claims()["claims"]
    return checks


def settings() -> Mapping[str, Mapping[str, Any]]:
    """Return the settings that claims are about, by name: title, benchmarks, tasks, examples.

    ``benchmarks`` are the names by which it is run; without ``examples`` it has all of them.
    """
    known: Mapping[str, Mapping[str, Any]] = _claims()["settings"]
    return known


def _numbers() -> Mapping[str, Any]:
    return _document("numbers.json")


def _claims() -> Mapping[str, Any]:
    return _document("claims.json")


@functools.cache
def _document(name: str) -> Mapping[str, Any]:
    document: Mapping[str, Any] = json.loads(
        resources.files("engram.app.paper").joinpath(name).read_text("utf-8")
    )
    return document
