"""The versions of an artefact: which there are, which one answers, and how to go back to one."""

from __future__ import annotations

from os import PathLike

from engram.errors import EngramError
from engram.production.artefact import Artefact, Document
from engram.production.erasure import Erasures, purge, report_of
from engram.production.model import check_version
from engram.production.report import page


def rollback(folder: str | PathLike[str], to: int | None = None, reason: str = "") -> int:
    """Let an earlier version answer: the one before the current one, or another that once did."""
    artefact = Artefact(folder)
    with artefact.lock():
        artefact.remove_leftovers()
        purge(artefact)
        moves, current = artefact.moves(), artefact.current
        pointed = [move["version"] for move in moves]
        number = to
        if number is None:
            number = current.parent
            if number is None:
                raise EngramError(f"Version {current.number} is the first: nothing is before it.")
        if number == current.number:
            raise EngramError(f"Version {number} answers already.")
        version = artefact.version(number)
        if number not in pointed:
            raise EngramError(f"Version {number} has never answered: it was {version.verdict}.")
        check_version(version)
        artefact.point(number, "rollback", reason)
        return number


def history(folder: str | PathLike[str]) -> list[Document]:
    """Return every version, the oldest first: where it comes from, and what the gate said."""
    artefact = Artefact(folder)
    moves = artefact.moves()
    current = moves[-1]["version"] if moves else None
    return [
        {
            "version": each.number,
            "parent": each.parent,
            "when": each.facts["when"],
            "how": each.facts["how"],
            "data": each.facts["data"]["name"],
            "period": each.facts["period"],
            "examples": each.facts["examples"],
            "exam": each.facts["exam"],
            "verdict": each.verdict,
            "forced": each.facts.get("forced", ""),
            "current": each.number == current,
            "moves": [move for move in moves if move["version"] == each.number],
        }
        for each in artefact.versions()
    ]


def history_page(folder: str | PathLike[str]) -> str:
    """Return an HTML page of all versions and their reports."""
    artefact = Artefact(folder)
    erasures = Erasures(artefact)
    reports = [report_of(each, erasures) for each in reversed(artefact.versions())]
    title = f"The versions of {artefact.folder.resolve().name}"
    return page([each for each in reports if each is not None], title, history(folder))
