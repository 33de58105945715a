"""The kinds of generated blocks."""

from __future__ import annotations

import posixpath
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from engram.errors import EngramError, unknown
from engram.report._excerpt import excerpt
from engram.report._far import far_lines
from engram.report._method_results import method_results
from engram.report._performance import performance_block
from engram.report._precision import precision_block
from engram.report._reproduction import reproduction
from engram.report._settings import settings_table
from engram.report._sheets import SHEETS
from engram.report._standard import Standard
from engram.report._summary import Summary, by_setting, summarise
from engram.report._whole_runs import whole_runs_block

if TYPE_CHECKING:
    from engram.runs import Laboratory

_USAGES = {
    "results": "results METHOD...",
    "settings": "settings BENCHMARK METHOD...",
    "code": "code FILE NAME [FIRST LAST]",
    "index": "index",
    "reproduction": "reproduction PART",
    "performance": "performance TABLE",
}


@dataclass(frozen=True)
class Sources:
    """What blocks are made from: a checkout, its folder of pages, its results, its laboratory."""

    root: Path
    folder: str  # of all pages, in the root
    results: Mapping[str, Sequence[Summary]]  # by the name of their file
    laboratory: Laboratory

    @cached_property
    def everything(self) -> list[Summary]:
        """The results of all files: seeds of one line may be in several of them."""
        held = self.results.values()
        return summarise(row for some in held for summary in some for row in summary.rows)


class PageBlocks:
    """Makes the blocks of one page, ``page`` being its path in the folder."""

    def __init__(self, sources: Sources, page: str) -> None:
        self._sources = sources
        self._page = page
        self._standard = Standard(sources.laboratory)

    def make(self, words: Sequence[str]) -> str:
        """Return the block that these words ask for."""
        kind, *rest = words
        match kind, rest:
            case "results", [_, *_]:
                return self._results(rest)
            case "settings", [benchmark, _, *_]:
                return settings_table(self._sources.laboratory, benchmark, rest[1:])
            case "code", [file, name] | [file, name, _, _]:
                return self._code(file, name, *rest[2:])
            case "index", []:
                return self._index()
            case "reproduction", ["far"]:
                return far_lines(self._sources.everything, self._standard, self._method_page)
            case "reproduction", [part]:
                return reproduction(part, self._sources.everything, self._standard)
            case "performance", [table]:
                return self._performance(table)
        if kind not in _USAGES:
            raise unknown("generated block", kind, _USAGES)
        raise EngramError(f"a block of this kind is {_USAGES[kind]!r}, not {' '.join(words)!r}.")

    def _results(self, methods: Sequence[str]) -> str:
        blocks = []
        for name, summaries in self._sources.results.items():
            blocks += method_results(summaries, methods, self._standard, self._link_to(name))
        return "\n\n".join(blocks) if blocks else "There are no results yet."

    def _performance(self, table: str) -> str:
        sources = self._sources
        if table == "precision":
            return precision_block(sources.everything, self._standard, sources.laboratory)
        if table == "whole runs":
            return whole_runs_block(sources.everything, self._standard)
        if table not in SHEETS:
            known = [*SHEETS, "precision", "whole runs"]
            raise unknown("table of measured speed", table, known)
        return performance_block(sources.root / "results", table)

    def _code(self, file: str, name: str, first: str = "", last: str = "") -> str:
        try:
            source = (self._sources.root / file).read_text("utf-8")
        except OSError as error:
            raise EngramError(f"{file!r} cannot be read: {error.strerror}.") from error
        try:
            lines = excerpt(source, name, first, last)
        except EngramError as error:
            raise EngramError(f"in {file!r} {error}") from None
        return f"`{name}` in [{file}]({self._from_here(file)}):\n\n```python\n{lines}\n```"

    def _index(self) -> str:
        items = []
        for name, summaries in self._sources.results.items():
            about = "; ".join(setting.title for setting in by_setting(summaries))
            methods = dict.fromkeys(summary.method for summary in summaries)
            items.append(f"- [{about}]({self._link_to(name)}): {', '.join(methods)}")
        return "\n".join(items)

    def _link_to(self, results: str) -> str:
        return self._from_here(f"{self._sources.folder}/results/{results}.md")

    def _method_page(self, method: str) -> str:
        return self._from_here(f"{self._sources.folder}/methods/{method}.md")

    def _from_here(self, path: str) -> str:
        """Return a path from the root as a page links to it."""
        here = posixpath.dirname(f"{self._sources.folder}/{self._page}")
        return posixpath.relpath(path, here)
