"""The paper's own numbers: numbers.json."""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping
from importlib import resources
from typing import Any, NamedTuple


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


@functools.cache
def _numbers() -> Mapping[str, Any]:
    text = resources.files("engram.app.paper").joinpath("numbers.json").read_text("utf-8")
    numbers: Mapping[str, Any] = json.loads(text)
    return numbers
