"""Numbers and tables as text: in cells, in Markdown, in LaTeX."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import NamedTuple

from engram.app.paper import Printed
from engram.app.report.measures import Statistic

NOTHING = "–"
_ALIGNMENTS = {"text": "---", "number": "---:"}
_LATEX = {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    **{letter: f"\\{letter}" for letter in "&%$#_{}"},
    "±": r"$\pm$",
    "–": "--",
    "Δ": r"$\Delta$",
    "σ": r"$\sigma$",
    "θ": r"$\theta$",
    "≤": r"$\le$",
    "<": r"$<$",
}


def spread(number: Statistic | Printed | None, digits: int) -> str:
    """Return mean ± std, or the value alone where nothing is known of the spread.

    >>> spread(Statistic(91.2049, 0.0951, (91.1, 91.3)), 2), spread(None, 2)
    ('91.20 ± 0.10', '–')
    >>> spread(Statistic.over([91.2049]), 2)
    '91.20'
    """
    if number is None:
        return NOTHING
    mean = f"{number.mean:.{digits}f}"
    return mean if number.std is None else f"{mean} ± {number.std:.{digits}f}"


def difference(ours: Statistic | None, paper: Printed | None, digits: int) -> str:
    """Return ours minus the paper's, with its sign.

    >>> difference(Statistic(91.5, 0.1, ()), Printed(91.21, 0.1), 2)
    '+0.29'
    """
    if ours is None or paper is None:
        return NOTHING
    return f"{ours.mean - paper.mean:+.{digits}f}"


def deviations(ours: Statistic | None, paper: Printed | None) -> str:
    """Return ours minus the paper's in the paper's standard deviations.

    >>> deviations(Statistic(91.3, 0.1, ()), Printed(91.2, 0.05))
    '+2.0'
    """
    if ours is None or paper is None or not paper.std:
        return NOTHING
    return f"{(ours.mean - paper.mean) / paper.std:+.1f}"


def is_far(ours: Statistic | None, paper: Printed | None, far: float) -> bool:
    """Say whether ours is more than so many of the paper's standard deviations away."""
    if ours is None or paper is None or not paper.std:
        return False
    return abs(ours.mean - paper.mean) > far * paper.std


def duration(seconds: float) -> str:
    """Return seconds, with a digit after the point only where it says something.

    >>> duration(3.14159), duration(1234.5)
    ('3.1', '1,234')
    """
    return f"{seconds:,.1f}" if seconds < 100 else f"{seconds:,.0f}"


class Column(NamedTuple):
    """A column's heading, the heading that it shares with its neighbours, and its alignment."""

    title: str
    group: str = ""
    number: bool = True


@dataclass(frozen=True)
class Table:
    """Texts in columns; the first column names the line.

    ``marks`` are CSS classes of single cells, by line and column.
    """

    caption: str
    columns: Sequence[Column]
    lines: list[list[str]]
    marks: dict[tuple[int, int], str] = field(default_factory=dict)

    @property
    def groups(self) -> list[tuple[str, int]]:
        """The headings that neighbouring columns share, each with how many; empty if none has."""
        found = groupby(self.columns, lambda column: column.group)
        groups = [(name, len([*columns])) for name, columns in found]
        return groups if any(name for name, _ in groups) else []

    def classes(self, line: int, column: int) -> str:
        """Return the CSS classes of a cell."""
        number = "number" if self.columns[column].number else ""
        return f"{number} {self.marks.get((line, column), '')}".strip()


def markdown_copy(table: Table) -> str:
    """Return the table in Markdown, a group's heading in front of each of its columns."""
    header = [f"{column.group} {column.title}".strip() for column in table.columns]
    kinds = ["number" if column.number else "text" for column in table.columns]
    return markdown_table(header, table.lines, kinds)


def markdown_table(
    header: Sequence[str], lines: Sequence[Sequence[str]], kinds: Sequence[str] | None = None
) -> str:
    r"""Return a table; unless ``kinds`` says so, all columns but the first are numbers.

    >>> print(markdown_table(["method", "seeds"], [["a|b", "5"]]))
    | method | seeds |
    |---|---:|
    | a\|b | 5 |
    """
    kinds = kinds or ["text", *["number"] * (len(header) - 1)]
    rows = [header, *lines]
    texts = ["| " + " | ".join(map(escape_markdown, row)) + " |" for row in rows]
    return "\n".join([texts[0], f"|{'|'.join(_ALIGNMENTS[kind] for kind in kinds)}|", *texts[1:]])


def escape_markdown(text: str) -> str:
    """Return text that Markdown shows as it is."""
    return re.sub(r"([\\|`*_<>\[\]])", r"\\\1", text)


def latex_table(table: Table) -> str:
    """Return a booktabs table with a second line of headings where columns have groups."""
    marks = "".join("r" if column.number else "l" for column in table.columns)
    heads = [rf"\multicolumn{{{span}}}{{c}}{{{escape_latex(name)}}}" for name, span in table.groups]
    lines = [
        r"% \usepackage{booktabs}",
        rf"\begin{{tabular}}{{{marks}}}",
        r"\toprule",
        *([" & ".join(heads) + r" \\"] if heads else []),
        _line([column.title for column in table.columns]),
        r"\midrule",
        *(_line(cells) for cells in table.lines),
        r"\bottomrule",
        r"\end{tabular}",
    ]
    return "\n".join(lines)


def escape_latex(text: str) -> str:
    r"""Return text that LaTeX prints as it is.

    >>> print(escape_latex("50 % ± 1_0"))
    50 \% $\pm$ 1\_0
    """
    return "".join(_LATEX.get(letter, letter) for letter in text)


def _line(cells: list[str]) -> str:
    return " & ".join(map(escape_latex, cells)) + r" \\"
