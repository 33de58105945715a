"""What runs have recorded of k2 = |g| / |r|, and what the paper prints of it.

It is the paper's analysis of MEGA-I: how long the current gradient is beside the memory's.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from engram.app.paper import Printed, printed_k2_share
from engram.app.report.charts import Chart, Line, Series, over_seeds
from engram.app.report.measures import Statistic
from engram.app.report.names import Style, line_name
from engram.app.report.paper_defaults import PaperDefaults
from engram.app.report.summary import Summary
from engram.app.report.tables import NOTHING, Column, Table, spread

TITLE = "k2: the lengths of both gradients, step by step"
SHARE = "k2_below_1_percent"
ORDER = "theta_1_at_most_theta_2_percent"
_PAPERS_TASKS = 20
_BINS_PER_UNIT = 4  # as runs record them
_STYLES = (
    Style("#1d5fd1", "#79aaff"),
    Style("#c62828", "#ff7b72", "6 3"),
    Style("#15803d", "#5fd68a", "2 3"),
    Style("#7b3fb5", "#c49bff", "8 4"),
)
MEANING = (
    "k2 is the length of the current batch's gradient over that of the memory's, in every step "
    "that reads the memory. Where it is at least 1, MEGA-I turns the gradient by no more than "
    "MEGA-II would: θ1 ≤ θ2. With k1 = l_t / l_ref and c the cosine between both gradients, the "
    "paper has cos θ1 = (k1 k2 + c) / √(k1² k2² + 2 k1 k2 c + 1) and "
    "cos θ2 = (k1 + c) / √(k1² + 2 k1 c + 1). Both are checked against the angles of the mixtures "
    "themselves, in the steps where MEGA-I weighs both gradients (l_t > ε), and so is their order; "
    "in the others it follows the memory's gradient alone. The largest difference of any step is "
    "in the table."
)


def recorded_k2(summaries: Sequence[Summary]) -> list[Summary]:
    """Return those that have recorded k2 on training tasks, those with fewer examples first."""
    found = [each for each in summaries if each.values(SHARE) and each.setting.split == "training"]
    return sorted(found, key=lambda each: (each.setting.examples, each.setting.tasks, each.method))


def papers_share(summary: Summary) -> Printed | None:
    """Return the share that the paper prints for these runs: MEGA-I on its 20 tasks."""
    benchmark, tasks, examples = summary.setting[:3]
    if (summary.method, benchmark, tasks) != ("mega-i", "permuted-mnist", _PAPERS_TASKS):
        return None
    return printed_k2_share(examples)


def k2_lines(found: Sequence[Summary], defaults: PaperDefaults) -> list[Line]:
    """Return how the figures call and draw each of the runs that have recorded k2."""
    names = [_name(defaults.preset_label(each), each) for each in found]
    return [
        Line(each.method, name, True, *_STYLES[place % len(_STYLES)], leading=False)
        for place, (name, each) in enumerate(zip(names, found, strict=True))
    ]


def k2_charts(found: Sequence[Summary]) -> list[Chart]:
    """Return the figures that have anything to show; series name summaries by their place."""
    return [chart for chart in (_histogram(found), *_bars(found)) if chart.series]


def k2_table(names: Sequence[str], found: Sequence[Summary]) -> Table:
    """Return the shares beside the paper's, the checked angles, and the receipts."""
    columns = ["k2 < 1, %", "paper", "steps with both, %", "θ1 ≤ θ2, % of these"]
    columns += ["|Δ cos θ1|", "|Δ cos θ2|", "steps", "seeds", "device", "spec hash"]
    heads = [Column("runs", number=False)]
    heads += [Column(title, number=title not in ("device", "spec hash")) for title in columns]
    lines = []
    for name, each in zip(names, found, strict=True):
        shares = [
            spread(Statistic.over(each.values(fact)), 2)
            for fact in (SHARE, "mixing_percent", ORDER)
        ]
        errors = [_largest(each, f"cos_theta_{number}_error") for number in (1, 2)]
        steps = f"{sum(each.values('recorded_steps')):,.0f}"
        paper = spread(papers_share(each), 2)
        receipts = [steps, str(len(each.rows)), each.device, each.address]
        lines.append([name, shares[0], paper, *shares[1:], *errors, *receipts])
    return Table(TITLE, heads, lines)


def _histograms(summary: Summary) -> list[tuple[int, list[int]]]:
    """Return each run's first bin of log k2, in quarters, and its counts from there on."""
    texts = [row.outcome["facts"].get("log_k2_histogram", "") for row in summary.rows]
    return [read for text in texts if (read := _read(str(text))) is not None]


def _read(text: str) -> tuple[int, list[int]] | None:
    """Return the first bin and the counts.

    >>> _read("-3: 1 0 2"), _read("0:")
    ((-3, [1, 0, 2]), None)
    """
    first, _, counts = text.partition(":")
    try:
        numbers = [int(count) for count in counts.split()]
        return (int(first), numbers) if sum(numbers) > 0 else None
    except ValueError:  # somebody else's fact of that name
        return None


def _name(label: str, summary: Summary) -> str:
    setting = summary.setting
    stand_in = f", stand-in: {setting.stand_in}" if setting.stand_in else ""
    return f"{line_name(label)}, {setting.tasks} × {setting.examples:,}{stand_in}"


def _histogram(found: Sequence[Summary]) -> Chart:
    drawn = [_histograms(each) for each in found]
    ends = [(first, first + len(counts)) for parts in drawn for first, counts in parts] or [(0, 0)]
    low, high = min(end[0] for end in ends), max(end[1] for end in ends)
    series = [
        over_seeds(place, [_shares(first - low, counts, high - low) for first, counts in parts])
        for place, parts in enumerate(drawn)
        if parts
    ]
    return Chart(
        "histogram",
        "Histogram of log k2",
        "lines",
        "steps, %",
        2,
        series,
        over="log k2; from 0 on |g| is at least |r|",
        x=[f"{place / _BINS_PER_UNIT:g}" for place in range(low, high)],
    )


def _shares(start: int, counts: Sequence[int], length: int) -> NDArray[np.float64]:
    shares = np.zeros(length)
    shares[start : start + len(counts)] = counts
    shares *= 100 / shares.sum()
    return shares


def _bars(found: Sequence[Summary]) -> list[Chart]:
    titles = {SHARE: "k2 < 1, % of steps", ORDER: "θ1 ≤ θ2, % of the steps with both"}
    charts = []
    for fact, title in titles.items():
        series = list[Series]()
        for place, each in enumerate(found):
            if values := each.values(fact):
                bar = over_seeds(place, [[value] for value in values])
                paper = papers_share(each) if fact == SHARE else None
                series.append(replace(bar, paper=paper))
        charts.append(Chart(fact.replace("_", "-"), title, "bars", "", 2, series))
    return charts


def _largest(summary: Summary, fact: str) -> str:
    values = summary.values(fact)
    return f"{max(values):.1e}" if values else NOTHING
