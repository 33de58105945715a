"""The order of the methods beside the paper's, which is what a stand-in can show."""

from __future__ import annotations

from collections.abc import Mapping

from engram.paper import printed, printed_methods
from engram.report._markdown import markdown_table
from engram.report._order import rank_correlation, told_order
from engram.report._summary import Summary
from engram.runs import canonical

_DIGITS = 9  # of a percentage: what differs in later ones alone differs by rounding


def order_of_methods(benchmark: str, found: Mapping[str, Summary]) -> list[str]:
    """Return both orders by average accuracy, and how far they agree."""
    ours, paper = dict[str, float](), dict[str, float]()
    for method in printed_methods(benchmark):
        theirs = printed(benchmark, method, "average_accuracy")
        number = found[method].statistic("average_accuracy") if method in found else None
        if theirs is not None and number is not None:
            ours[method], paper[method] = round(number.mean, _DIGITS), theirs.mean
    correlation = rank_correlation([*ours.values()], [*paper.values()])
    if correlation is None:
        return []
    lines = [["stand-in", told_order(ours)], ["paper", told_order(paper)]]
    runs = len({_measured(found[method]) for method in ours})
    same = f", {runs} distinct runs" if runs < len(ours) else ""
    told = f"over {len(ours)} methods{same}: {correlation:.2f}."
    table = markdown_table(["", "by average accuracy, the best first"], lines, ["text", "text"])
    return [table, f"Spearman's rank correlation of both, {told}"]


def _measured(summary: Summary) -> str:
    """Return all accuracies: methods that have the same ones took the same steps."""
    return canonical([[row.seed, row.outcome["accuracy"]] for row in summary.rows])
