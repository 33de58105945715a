"""What the precision in which a device multiplies does to the accuracy of whole runs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from engram.report._comparison import across_precisions, compare, told_test
from engram.report._identity import PRECISION
from engram.report._markdown import markdown_table
from engram.report._numbers import duration, spread
from engram.report._performance import NOT_MEASURED
from engram.report._standard import Standard
from engram.report._summary import Summary, by_setting

if TYPE_CHECKING:
    from engram.runs import Laboratory

_NUMBERS = ("run", "precision", "average accuracy %", "beside", "average accuracy %")
_TEST = ("difference", "std", "t", "p", "seeds")
_RECEIPT = ("run", "precision", "seconds", "device", "date", "address")


def precision_block(
    summaries: Sequence[Summary], standard: Standard, laboratory: Laboratory
) -> str:
    """Return what was trained in more than one precision: accuracies, paired test, receipts."""
    trained = [summary for summary in summaries if summary.setting.split == "training"]
    pairs = [
        pair
        for lines in by_setting(trained).values()
        for pair in across_precisions(lines, standard)
    ]
    if not pairs:
        return NOT_MEASURED
    compared, receipts = [], dict[str, list[str]]()
    for other, usual in pairs:
        run = f"{standard.label(usual)} on {usual.setting.title}"
        names = [_name(each, laboratory) for each in (other, usual)]
        told = [spread(each.statistic("average_accuracy"), 2) for each in (other, usual)]
        result = compare(other, usual)
        both = [names[0], told[0], names[1], told[1]]
        compared.append([run, *both, *told_test(result), str(result.seeds)])
        for name, each in zip(names, (other, usual), strict=True):
            cells = [duration(each.seconds), each.device, each.dates, each.address]
            receipts[each.address] = [run, name, *cells]
    kinds = ["text", "text", "number", "text", *["number"] * 6]
    return "\n\n".join(
        [
            markdown_table([*_NUMBERS, *_TEST], compared, kinds),
            markdown_table(_RECEIPT, [*receipts.values()], ["text", "text", *["number"] * 4]),
        ]
    )


def _name(summary: Summary, laboratory: Laboratory) -> str:
    """Return the precision of some runs; what is not in their settings is what is usual."""
    given = summary.identity["settings"].get(PRECISION)
    if given is not None:
        return str(given)
    known = laboratory.settings_help(summary.setting.benchmark, summary.method)
    return next((str(item.value) for item in known if item.name == PRECISION), "usual")
