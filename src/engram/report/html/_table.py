"""A table that can be read on the page and copied as LaTeX and Markdown."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import NamedTuple

from engram.report._markdown import markdown_table
from engram.report.html._element import Markup, element


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


def show_table(table: Table, *copies: tuple[str, str]) -> Markup:
    """Return the table in a frame that scrolls by itself, and its copies (a name, a text)."""
    lines = [_line(table, number) for number in range(len(table.lines))]
    return element(
        "div",
        element(
            "div",
            element(
                "table",
                element("caption", table.caption),
                element("thead", _heads(table)),
                element("tbody", lines),
            ),
            class_="scroll",
            role="region",
            tabindex="0",
            aria_label=table.caption,
        ),
        [_copy(name, text) for name, text in copies],
        class_="table",
    )


def markdown_copy(table: Table) -> str:
    """Return the table in Markdown, a group's heading in front of each of its columns."""
    header = [f"{column.group} {column.title}".strip() for column in table.columns]
    kinds = ["number" if column.number else "text" for column in table.columns]
    return markdown_table(header, table.lines, kinds)


def _heads(table: Table) -> list[Markup]:
    groups = [(name, [*columns]) for name, columns in groupby(table.columns, lambda c: c.group)]
    grouped = any(name for name, _ in groups)
    over = [
        element("th", name, colspan=str(len(columns)), scope="colgroup" if name else None)
        for name, columns in groups
    ]
    titles = [
        element("th", column.title, scope="col", class_="number" if column.number else None)
        for column in table.columns
    ]
    return [*([element("tr", over, class_="groups")] if grouped else []), element("tr", titles)]


def _line(table: Table, number: int) -> Markup:
    first, *rest = table.lines[number]
    cells = [
        element(
            "td",
            text,
            class_=" ".join(
                [*(["number"] if column.number else []), table.marks.get((number, place), "")]
            ).strip()
            or None,
        )
        for place, (text, column) in enumerate(zip(rest, table.columns[1:], strict=True), 1)
    ]
    return element("tr", element("th", first, scope="row"), cells)


def _copy(name: str, text: str) -> Markup:
    button = element("button", "Copy", type="button", class_="copy", hidden=True)
    return element("details", element("summary", f"Copy as {name}"), button, element("pre", text))
