"""The head of the page: what it is about, how much of it there is, and where its parts are."""

from __future__ import annotations

from collections.abc import Sequence

from engram.report.html._element import Markup, element
from engram.report.html._section import Section
from engram.report.names import benchmark_names
from engram.report.summary import Summary

_NO_CLAIMS = " None is of the paper's benchmarks, so the paper's claims are left out."
_MINUTE, _HOUR = 60, 3600


def is_of_the_paper(summaries: Sequence[Summary]) -> bool:
    """Say whether any result is of a benchmark of the paper's, on whatever data."""
    return any(summary.setting.benchmark in benchmark_names() for summary in summaries)


def page_title(summaries: Sequence[Summary]) -> str:
    """Return what the page is called."""
    return "MEGA, reproduced" if is_of_the_paper(summaries) else "Engram: results"


def header(summaries: Sequence[Summary], sections: Sequence[Section]) -> Markup:
    """Return the title, what was run, and links to the parts."""
    paper = is_of_the_paper(summaries)
    scope = _scope(summaries) + ("" if paper else _NO_CLAIMS)
    title = element("h1", page_title(summaries))
    return element("header", title, element("p", scope), _menu(sections, paper=paper))


def _scope(summaries: Sequence[Summary]) -> str:
    rows = [row for summary in summaries for row in summary.rows]
    days = sorted(row.created[:10] for row in rows)
    devices = ", ".join(sorted({row.device for row in rows}))
    when = days[0] if days[0] == days[-1] else f"{days[0]} to {days[-1]}"
    return (
        f"{len(rows):,} runs of {len({summary.method for summary in summaries})} methods, "
        f"{when}, on {devices}; {_time(sum(row.seconds for row in rows))} of training and "
        "evaluation."
    )


def _time(seconds: float) -> str:
    """Return a long time in hours, a short one in minutes.

    >>> _time(19440), _time(90)
    ('5.4 hours', '1.5 minutes')
    """
    return (
        f"{seconds / _HOUR:,.1f} hours" if seconds >= _HOUR else f"{seconds / _MINUTE:.1f} minutes"
    )


def _menu(sections: Sequence[Section], *, paper: bool) -> Markup:
    places = [("answer", "Answer"), *([("claims", "Claims")] if paper else [])]
    places += [("guide", "How to read this")]
    places += [(section.slug, section.short) for section in sections if section.charts]
    places += [("tuning", "Tuning")] if not all(each.charts for each in sections) else []
    links = [element("a", title, href=f"#{slug}") for slug, title in places]
    return element("nav", links, aria_label="Parts of this page")
