"""What readers call methods and benchmarks, in which order they expect them, and their colours."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from engram.app import paper
from engram.app.report.paper_defaults import PaperDefaults
from engram.app.report.summary import Setting, Summary

_CURVE_EXAMPLES = 100  # ten batches of ten
LEADING = ("mega-i", "mega-ii")  # their lines are drawn thicker: the paper is about them


class Style(NamedTuple):
    """A method's colour on a light and on a dark page, and the dashes of its line."""

    light: str
    dark: str
    dashes: str = ""


# In the order of the paper's tables; families share a hue and differ in their dashes.
_METHODS = {
    "van": ("VAN", Style("#5f6b7a", "#9aa7b8")),
    "ewc": ("EWC", Style("#7b3fb5", "#c49bff")),
    "pi": ("PI", Style("#7b3fb5", "#c49bff", "2 3")),
    "mas": ("MAS", Style("#b0318f", "#f28ad8")),
    "rwalk": ("RWALK", Style("#b0318f", "#f28ad8", "6 3")),
    "icarl": ("ICARL", Style("#4d7c0f", "#a3d65c", "6 3")),
    "mer": ("MER", Style("#15803d", "#5fd68a")),
    "prog-nn": ("PROG-NN", Style("#8a5a2b", "#d3a574")),
    "gem": ("GEM", Style("#0e7490", "#4fd1e8", "6 3")),
    "a-gem": ("A-GEM", Style("#1d5fd1", "#79aaff")),
    "er": ("ER (equal weights)", Style("#b7791f", "#e8bf6a", "2 3")),
    "er-ace": ("ER-ACE", Style("#b7791f", "#e8bf6a")),
    "der": ("DER", Style("#0f766e", "#5eead4", "2 3")),
    "derpp": ("DER++", Style("#0f766e", "#5eead4")),
    "recommended": ("recommended", Style("#166534", "#4ade80")),
    "lwf": ("LwF", Style("#9f1239", "#fda4af")),
    "gdumb": ("GDumb", Style("#475569", "#a8b5c7", "6 3")),
    "mega-i-equal": ("MEGA-I, equal weights", Style("#d97706", "#ffb454", "2 3")),
    "mega-i": ("MEGA-I", Style("#d97706", "#ffb454")),
    "mega-ii-unbalanced": ("MEGA-II, unbalanced", Style("#c62828", "#ff7b72", "2 3")),
    "mega-ii": ("MEGA-II", Style("#c62828", "#ff7b72")),
    "multi-task": ("MULTI-TASK", Style("#111827", "#f3f4f6", "8 4")),
}


_OTHERS = (
    Style("#475569", "#a8b5c7", "1 3"),
    Style("#0f766e", "#5eead4", "1 3"),
    Style("#9f1239", "#fda4af", "1 3"),
    Style("#3730a3", "#a5b4fc", "1 3"),
)


def method_name(method: str) -> str:
    """Return a method's name in the paper, or its own if it is none of the paper's."""
    return _METHODS[method][0] if method in _METHODS else method


def line_name(label: str) -> str:
    """Return a table's label with the method's name in the paper.

    >>> line_name("mega-i epsilon=0.01")
    'MEGA-I epsilon=0.01'
    """
    method, *settings = label.split(" ")
    return " ".join([method_name(method), *settings])


def style_of(method: str) -> Style:
    """Return the colour and dashes of a method, the same on every page."""
    if method in _METHODS:
        return _METHODS[method][1]
    return _OTHERS[sum(method.encode()) % len(_OTHERS)]


def benchmark_name(benchmark: str) -> str:
    """Return a benchmark's name in the paper, or its own."""
    return benchmark_names().get(benchmark, benchmark)


def setting_name(setting: Setting) -> str:
    """Return what stands above the results of a setting.

    >>> setting_name(Setting("split-cub", 17, 300))
    'Split CUB, 17 tasks of 300 examples'
    """
    plain = setting.title.removeprefix(setting.benchmark)  # what stands in, and how much of it
    return f"{benchmark_name(setting.benchmark)}{plain}"


def short_name(setting: Setting) -> str:
    """Return a setting's name where there is little room.

    >>> short_name(Setting("split-cub", 17, 300)), short_name(Setting("permuted-mnist", 20, 600))
    ('Split CUB', 'Permuted MNIST 20 × 600')
    """
    kind = " (stand-in)" if setting.stand_in else " (other data)" if setting.other else ""
    name = f"{benchmark_name(setting.benchmark)}{kind}"
    return name if is_papers_setting(setting) else f"{name} {setting.tasks} × {setting.examples:,}"


def in_reading_order(summaries: Sequence[Summary], defaults: PaperDefaults) -> list[Summary]:
    """Return the lines of a table in the order of the paper's tables, others before MEGA.

    What is as usual comes before what is not.
    """
    order = [*_METHODS]
    others = order.index("er") - 0.5
    labels = defaults.labels(summaries)
    place = {
        summary.address: (
            order.index(summary.method) if summary.method in order else others,
            len(label.split(" ")),
            label,
        )
        for label, summary in zip(labels, summaries, strict=True)
    }
    return sorted(summaries, key=lambda summary: place[summary.address])


def setting_rank(setting: Setting) -> tuple[object, ...]:
    """Return the place of a setting on the page: the paper's four benchmarks come first.

    What stands in for a benchmark comes after the thing itself.
    """
    order = paper.benchmarks()
    place = order.index(setting.benchmark) if is_papers_setting(setting) else len(order)
    data = setting.stand_in, setting.other
    return (setting.split, place, setting.benchmark, *data, *setting[1:3])


def benchmark_names() -> Mapping[str, str]:
    """Return the names of the paper's four benchmarks, in its order."""
    return {name: paper.settings()[name]["title"] for name in paper.benchmarks()}


def is_papers_setting(setting: Setting) -> bool:
    """Say whether a setting is one of the paper's four benchmarks with all of its tasks.

    A listed stand-in is one; other data is none, nor are tasks that are over before a learning
    curve is.
    """
    if setting.benchmark not in paper.benchmarks() or setting.other:
        return False
    whole = setting.tasks == paper.settings()[setting.benchmark]["tasks"]
    return whole and setting.examples >= _CURVE_EXAMPLES
