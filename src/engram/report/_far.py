"""The lines that are far from the paper's, each with the page that may say why."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from engram.paper import benchmarks, printed, printed_methods
from engram.report._benchmark_tables import papers_own, stand_in_label
from engram.report._measures import METRICS
from engram.report._numbers import deviations, is_far, spread
from engram.report._standard import Standard
from engram.report._summary import Summary

_FAR = 3.0  # of the paper's standard deviations
_PAGES = {"mega-i-equal": "er", "mega-ii-unbalanced": "mega-ii"}  # of what has none of its own


def far_lines(summaries: Sequence[Summary], standard: Standard, link: Callable[[str], str]) -> str:
    """Return a list of all |Δ/σ| > 3 in the paper's tables; ``link`` leads to a method's page."""
    trained = [summary for summary in summaries if summary.setting.split == "training"]
    items = [
        f"- {metric.title}, [{method}]({link(_PAGES.get(method, method))}) on {benchmark}: "
        f"{spread(ours, metric.digits)}, paper {spread(paper, metric.digits)} "
        f"({deviations(ours, paper)})"
        for benchmark in benchmarks()
        for found in papers_own(benchmark, trained, standard)
        for metric in METRICS
        for method in printed_methods(benchmark)
        if method in found and not stand_in_label(found)
        for ours in [found[method].statistic(metric.name)]
        for paper in [printed(benchmark, method, metric.name)]
        if is_far(ours, paper, _FAR)
    ]
    return "\n".join(items) if items else "None."
