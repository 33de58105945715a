"""All pages that are generated, or have generated blocks: a folder of them, and the README."""

from __future__ import annotations

import posixpath
from collections.abc import Mapping, Sequence
from pathlib import Path

from engram.app.report.comparison import comparable
from engram.app.report.paper_defaults import PaperDefaults
from engram.app.report.summary import by_setting, summarise
from engram.app.runs import Contents, read_contents
from engram.errors import EngramError
from engram.files import whole_file
from engram.lab import protocol
from tools.docs.blocks import MATCHED, PageBlocks, Sources, fill
from tools.docs.results_page import GENERATED, results_page
from tools.docs.times import BUSY

_COMMAND = "make docs"
_CLAIMS = (("mega-ii", "er"), ("mega-i", "er"), ("mega-ii", "mega-i"), ("mega-ii", "a-gem"))
"""Pairs of which the paper says, or lets one expect, that the first is better."""


def write_pages(folder: Path, files: Sequence[Path]) -> list[Path]:
    """Make everything generated in a folder anew; return the pages that have changed.

    Every file NAME.jsonl of results gets its page, FOLDER/results/NAME.md, and the blocks of all
    other pages are filled, those of the README beside the folder too. Source code is found from
    the folder's parent. Nothing is written unless everything can be made.
    """
    ordered = sorted(files, key=lambda file: file.stem)
    held = {file.stem: read_contents(file) for file in ordered}
    matched = held.pop(MATCHED, Contents([], []))
    pages = {folder / "results" / f"{name}.md": _results_page(name, held[name]) for name in held}
    for path in pages:
        check_generated(path)
    pages |= _filled(folder, held, matched)
    changed = [path for path, page in pages.items() if not path.exists() or read(path) != page]
    for path in changed:
        write(path, pages[path])
    return changed


def check_generated(path: Path) -> None:
    """Refuse to overwrite what somebody wrote."""
    if path.exists() and not read(path).startswith(GENERATED):
        raise EngramError(f"{str(path)!r} was not generated: it will not be overwritten.")


def read(path: Path) -> str:
    """Return a page as it is, ends of lines included."""
    try:
        return path.read_bytes().decode()
    except (OSError, UnicodeDecodeError) as error:
        raise EngramError(f"{str(path)!r} cannot be read: {error}.") from error


def write(path: Path, page: str) -> None:
    """Write a page, whole or not at all."""
    with whole_file(path) as part:
        part.write_bytes(page.encode())


def _results_page(name: str, held: Contents) -> str:
    sections = by_setting(summarise(held.rows)).values()
    pairs = [pair for pair in _CLAIMS if any(comparable(each, pair) for each in sections)]
    defaults = PaperDefaults(protocol.specify)
    return results_page(held.rows, defaults, _COMMAND, pairs, held.choices, busy=name in BUSY)


def _filled(folder: Path, held: Mapping[str, Contents], matched: Contents) -> dict[Path, str]:
    """Return the pages that people write, with their blocks made anew."""
    place = folder.resolve()
    summaries = {name: summarise(held[name].rows) for name in held}
    choices = {name: held[name].choices for name in held}
    sources = Sources(place.parent, place.name, summaries, choices, matched)
    filled = {}
    front_page = folder.parent / "README.md"
    for path in [*sorted(folder.rglob("*.md")), *([front_page] if front_page.exists() else [])]:
        text = read(path)
        if text.startswith(GENERATED):
            continue
        blocks = PageBlocks(sources, posixpath.relpath(path.as_posix(), folder.as_posix()))
        try:
            filled[path] = fill(text, blocks.make)
        except EngramError as error:
            raise EngramError(f"{str(path)!r}, {error}") from None
    return filled
