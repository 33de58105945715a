"""Tables in LaTeX, for papers."""

from __future__ import annotations

from itertools import groupby

from engram.report.html._table import Table

_SPECIAL = {
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


def latex_table(table: Table) -> str:
    """Return a booktabs table with a second line of headings where columns have groups."""
    marks = "".join("r" if column.number else "l" for column in table.columns)
    groups = [(name, len(list(columns))) for name, columns in groupby(_groups(table))]
    heads = [rf"\multicolumn{{{span}}}{{c}}{{{escape(name)}}}" for name, span in groups]
    lines = [
        r"% \usepackage{booktabs}",
        rf"\begin{{tabular}}{{{marks}}}",
        r"\toprule",
        *([" & ".join(heads) + r" \\"] if any(name for name, _ in groups) else []),
        _line([column.title for column in table.columns]),
        r"\midrule",
        *(_line(cells) for cells in table.lines),
        r"\bottomrule",
        r"\end{tabular}",
    ]
    return "\n".join(lines)


def escape(text: str) -> str:
    r"""Return text that LaTeX prints as it is.

    >>> print(escape("50 % ± 1_0"))
    50 \% $\pm$ 1\_0
    """
    return "".join(_SPECIAL.get(letter, letter) for letter in text)


def _line(cells: list[str]) -> str:
    return " & ".join(map(escape, cells)) + r" \\"


def _groups(table: Table) -> list[str]:
    return [column.group for column in table.columns]
