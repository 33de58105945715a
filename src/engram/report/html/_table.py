"""A table that can be read on the page and copied as LaTeX and Markdown."""

from __future__ import annotations

from itertools import groupby

from engram.report.html._element import Markup, element
from engram.report.tables import Table


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
