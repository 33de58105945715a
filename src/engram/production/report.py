"""The retention report: what an update kept, lost and gained, as JSON and as one HTML page."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from engram.production.artefact import Document, write_text
from engram.production.exam import Answers, calibration_error
from engram.production.gate import Judged
from engram.production.intervals import Interval

if TYPE_CHECKING:
    from jinja2 import Template


def part_document(
    judged: Judged, before: Answers, after: Answers, ids: Sequence[str] | None
) -> Document:
    """Return what is said of a part, with the ids of its flips where these are wanted."""
    rows = judged.part.rows
    document: Document = {
        "what": judged.part.what,
        "name": judged.part.name,
        "examples": judged.examples,
        "before": _number(judged.before),
        "after": _number(judged.after),
        "difference": _interval(judged.difference),
        "negative_flips": None if judged.negative is None else _interval(judged.negative),
        "positive_flips": judged.positive,
        "calibration_error": [
            calibration_error(before, rows),
            calibration_error(after, rows),
        ],
        "limits": {
            "max_drop": judged.limits.max_drop,
            "max_negative_flips": judged.limits.max_negative_flips,
            "min_gain": judged.limits.min_gain,
        },
        "decision": judged.decision,
        "reasons": judged.reasons,
    }
    if ids is not None and before.right is not None and after.right is not None:
        flips = {
            "negative": rows & before.right & ~after.right,
            "positive": rows & ~before.right & after.right,
        }
        document["flips"] = {name: _chosen(ids, which) for name, which in flips.items()}
    return document


def _chosen(ids: Sequence[str], rows: NDArray[np.bool_]) -> list[str]:
    return [ids[row] for row in np.flatnonzero(rows).tolist()]


def _interval(found: Interval) -> list[float | None]:
    return [_number(each) for each in found]


def _number(value: float) -> float | None:
    return value if math.isfinite(value) else None


def percent(value: float | None, signed: bool = False) -> str:
    """Return a share in percent, or a dash where there is none.

    >>> percent(0.1234), percent(0.05, signed=True), percent(None)
    ('12.3', '+5.0', '–')
    """
    if value is None:
        return "–"
    return f"{100 * value:+.1f}" if signed else f"{100 * value:.1f}"


def bounds(interval: Sequence[float | None]) -> str:
    """Return an interval in percent.

    >>> bounds([0.01, -0.02, 0.04])
    '+1.0 (-2.0 to +4.0)'
    """
    estimate, low, high = interval
    if low is None or high is None:
        return f"{percent(estimate, True)} (no bounds)"
    return f"{percent(estimate, True)} ({percent(low, True)} to {percent(high, True)})"


def part_rows(report: Mapping[str, Any]) -> list[list[str]]:
    """Return the table of the parts as texts: what is shown in a terminal and on the page."""
    rows = []
    for part in report["parts"]:
        what = {
            "past": "all the past",
            "new": f"new: {part['name']}",
            "new slice": f"new: {part['name']}",
        }
        name = what.get(part["what"], f"{part['what']} {part['name']}")
        flips = part["negative_flips"]
        lost = round(flips[0] * part["examples"]) if flips and flips[0] is not None else None
        before, after = part["calibration_error"]
        rows.append(
            [
                name,
                f"{part['examples']:,}",
                percent(part["before"]),
                percent(part["after"]),
                bounds(part["difference"]),
                "–" if lost is None else f"{lost:,}",
                f"{part['positive_flips']:,}" if flips else "–",
                f"{percent(before)} → {percent(after)}" if before is not None else "–",
                part["decision"] or "not asked",
            ]
        )
    return rows


def headings(report: Mapping[str, Any]) -> list[str]:
    """Return the headings of `part_rows`."""
    level = 2 * report["level"] - 1
    return [
        "",
        "examples",
        f"{report['metric']} % before",
        "after",
        f"difference ({100 * level:g} %)",
        "right → wrong",
        "wrong → right",
        "ECE %",
        "gate",
    ]


def sentences(report: Mapping[str, Any]) -> list[str]:
    """Return what else there is to say, in sentences."""
    found = list(report["notes"])
    if mixed := report.get("interpolation"):
        found.append(mixed["words"])
    drifted = [each["column"] for each in report["drift"] if each["drifted"]]
    found.append(
        f"Drifted: {', '.join(drifted)} (two-sample tests of {len(report['drift'])}, corrected)."
        if drifted
        else f"No drift is found in {len(report['drift'])} tests."
    )
    if against := report["contradiction"]:
        past, new = (100 * against[f"{key}_right"] / against[key] for key in ("past", "new"))
        verdict = "new labels contradict the old ones" if against["contradicts"] else "they agree"
        found.append(
            f"Where the parent is sure, {past:.1f} % of the past and {new:.1f} % of the new labels "
            f"are as it says: {verdict}."
        )
    memory = report["memory"]
    found.append(
        f"The memory took in {memory['in']:,} examples and let {memory['out']:,} go; it holds "
        f"{memory['after']:,}."
    )
    cost = report["cost"]
    found.append(
        f"Training took {cost['seconds']:.1f} s; all over again on {cost['examples_ever']:,} "
        f"examples it would take about {cost['projected_seconds']:.1f} s (projected)."
    )
    return found


def page(reports: Sequence[Mapping[str, Any]], title: str, history: Sequence[Document] = ()) -> str:
    """Return an HTML page of one report or of several; every text in it is escaped."""
    views = [
        {
            "report": report,
            "headings": headings(report),
            "rows": part_rows(report),
            "sentences": sentences(report),
        }
        for report in reports
    ]
    return _template().render(title=title, views=views, history=history)


def write_page(path: Path, report: Document) -> None:
    """Write the page of one report."""
    write_text(path, page([report], f"Version {report['version']}: {report['verdict']}"))


@cache
def _template() -> Template:
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("engram.production"), autoescape=True, undefined=StrictUndefined
    )
    return environment.get_template("report.html")
