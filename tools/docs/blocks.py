"""Hand-written Markdown with generated blocks in it, and the kinds of these."""

from __future__ import annotations

import ast
import posixpath
import re
import shlex
import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from engram.app.report.paper_defaults import PaperDefaults
from engram.app.report.performance import SPEED_TABLES
from engram.app.report.summary import Summary, by_setting, summarise
from engram.app.runs import Choice, Contents
from engram.app.studies import Cell, ablations, cells, markdown, read_study
from engram.errors import EngramError, unknown
from engram.lab import protocol
from tools.docs.front_page import evidence, printed_by_run
from tools.docs.method_page import method_results, settings_table
from tools.docs.performance import (
    networks_block,
    performance_block,
    precision_block,
    whole_runs_block,
)
from tools.docs.reproduction import far_lines, reproduction
from tools.docs.times import BUSY
from tools.docs.which_method import which_method

_BEGIN = re.compile(r"<!-- generated: (\S.*) -->")
_END = "<!-- end -->"
_ALMOST = re.compile(r"\s*<!--\s*(generated\b|end\s*-->)", re.IGNORECASE)
_NOTE = re.compile(r"\s*# (noqa|type:|fmt:).*$")  # a word to a tool, not to a reader
MATCHED = "matched-budget"  # a study whose results have a page of their own: docs/matched-budget.md
Definition = ast.FunctionDef | ast.ClassDef
_USAGES = {
    "results": "results METHOD...",
    "settings": "settings BENCHMARK METHOD...",
    "code": "code FILE NAME [FIRST LAST]",
    "index": "index",
    "reproduction": "reproduction PART",
    "performance": "performance TABLE",
    "evidence": "evidence METHOD...",
    "printed": "printed RESULTS",
    "budgets": "budgets",
    "which": "which PART",
    "ablation": "ablation STUDY",
}


def fill(text: str, make: Callable[[Sequence[str]], str]) -> str:
    r"""Return the text with the blocks made anew; whatever is outside of them stays as it is.

    A block stands between the lines ``<!-- generated: KIND WORD... -->`` and ``<!-- end -->``;
    ``make`` is given its words, which are quoted as in a shell.

    >>> print(fill("a\n<!-- generated: sum 1 2 -->\nold\n<!-- end -->\nb", " + ".join))
    a
    <!-- generated: sum 1 2 -->
    sum + 1 + 2
    <!-- end -->
    b
    """
    kept, opened = list[str](), 0
    for number, line in enumerate(text.splitlines(keepends=True), 1):
        words = _begin(line, number)
        end = line.rstrip("\r\n") == _END
        if words is not None and opened:
            raise EngramError(f"line {number}: a block begins inside that of line {opened}.")
        if end and not opened:
            raise EngramError(f"line {number}: {_END} ends no block.")
        if end:
            opened = 0
        if not opened:
            kept.append(line)
        if words is not None:
            opened = number
            try:
                kept.append(f"{make(words)}\n")
            except EngramError as error:
                raise EngramError(f"line {number}: {error}") from None
    if opened:
        raise EngramError(f"line {opened}: a block begins that no {_END} ends.")
    return "".join(kept)


def _begin(line: str, number: int) -> list[str] | None:
    """Return the words of a line that begins a block, None for any other line."""
    bare = line.rstrip("\r\n")
    found = _BEGIN.fullmatch(bare)
    try:
        if found:
            return shlex.split(found[1])
    except ValueError:
        pass  # a quotation that does not end
    if bare != _END and _ALMOST.match(bare):
        raise EngramError(
            f"line {number}: a marker is <!-- generated: KIND WORD... --> or {_END}, "
            f"not {bare.strip()!r}."
        )
    return None


def excerpt(source: str, name: str, first: str = "", last: str = "") -> str:
    r"""Return a function's or a class's lines, without its docstring.

    ``name`` is as Python says it, ``Class.method``. With ``first`` and ``last``, only the lines
    from the one that begins with ``first`` to the next one that begins with ``last``.

    >>> print(excerpt("def f(x):\n    '''Say y.'''\n    y = x\n    return y\n", "f"))
    def f(x):
        y = x
        return y
    """
    found = _find(ast.parse(source), name)
    lines: list[str | None] = [_NOTE.sub("", line) for line in source.splitlines()]
    if ast.get_docstring(found) is not None:
        docstring = found.body[0]
        lines[docstring.lineno - 1 : docstring.end_lineno] = [None] * _height(docstring)
    start = min([found.lineno, *(decorator.lineno for decorator in found.decorator_list)])
    mine = [line for line in lines[start - 1 : found.end_lineno] if line is not None]
    if first or last:
        mine = _part(mine, name, first, last)
    return textwrap.dedent("\n".join(mine))


def _find(module: ast.Module, name: str) -> Definition:
    body: Sequence[ast.stmt] = module.body
    found: Definition | None = None
    for word in name.split("."):
        named = (node for node in body if isinstance(node, Definition) and node.name == word)
        found = next(named, None)
        if found is None:
            raise EngramError(f"there is no {name!r}.")
        body = found.body
    assert found is not None  # a name has a word
    return found


def _part(lines: Sequence[str], name: str, first: str, last: str) -> list[str]:
    start = _index(lines, 0, name, first)
    return list(lines[start : _index(lines, start, name, last) + 1])


def _index(lines: Sequence[str], start: int, name: str, beginning: str) -> int:
    for index in range(start, len(lines)):
        if lines[index].lstrip().startswith(beginning):
            return index
    raise EngramError(f"no line of {name!r} begins with {beginning!r}.")


def _height(node: ast.stmt) -> int:
    assert node.end_lineno is not None  # ast.parse has set it
    return node.end_lineno - node.lineno + 1


@dataclass(frozen=True)
class Sources:
    """What blocks are made from: a checkout, its folder of pages, its results."""

    root: Path
    folder: str  # of all pages, in the root
    results: Mapping[str, Sequence[Summary]]  # by the name of their file
    choices: Mapping[str, Sequence[Choice]]  # so, too
    matched: Contents  # results of the study of equal memories

    @cached_property
    def everything(self) -> list[Summary]:
        """The results of all files: seeds of one line may be in several of them."""
        held = self.results.values()
        return summarise(row for some in held for summary in some for row in summary.rows)

    @cached_property
    def budgets(self) -> list[Cell]:
        """The cells of the study of equal memories."""
        return cells(read_study(MATCHED), self.matched.rows, self.matched.choices)


class PageBlocks:
    """Makes the blocks of one page, ``page`` being its path from the folder."""

    def __init__(self, sources: Sources, page: str) -> None:
        self._sources = sources
        self._page = page
        self._defaults = PaperDefaults(protocol.specify)

    def make(self, words: Sequence[str]) -> str:
        """Return the block that these words ask for."""
        kind, *rest = words
        match kind, rest:
            case "results", [_, *_]:
                return self._results(rest)
            case "settings", [benchmark, _, *_]:
                return settings_table(benchmark, rest[1:])
            case "code", [file, name] | [file, name, _, _]:
                return self._code(file, name, *rest[2:])
            case "index", []:
                return self._index()
            case "reproduction", ["far"]:
                return far_lines(self._sources.everything, self._defaults, self._method_page)
            case "reproduction", [part]:
                return reproduction(part, self._sources.everything, self._defaults)
            case "performance", [table]:
                return self._performance(table)
            case "evidence", [_, *_]:
                folder = self._sources.root / "results"
                return evidence(self._sources.everything, rest, self._defaults, folder)
            case "printed", [name]:
                return self._printed(name)
            case "budgets", []:
                return markdown(self._sources.budgets)
            case "ablation", [study]:
                rows = [row for summary in self._sources.everything for row in summary.rows]
                choices = [each for some in self._sources.choices.values() for each in some]
                found = ablations(read_study(study), rows, choices)
                return "\n\n".join(each.markdown() for each in found)
            case "which", [part]:
                everything = self._sources.everything
                return which_method(part, everything, self._defaults, self._sources.budgets)
        if kind not in _USAGES:
            raise unknown("generated block", kind, _USAGES)
        raise EngramError(f"a block of this kind is {_USAGES[kind]!r}, not {' '.join(words)!r}.")

    def _results(self, methods: Sequence[str]) -> str:
        blocks = []
        for name, summaries in self._sources.results.items():
            blocks += method_results(
                summaries,
                methods,
                self._defaults,
                self._link_to(name),
                self._sources.choices[name],
                busy=name in BUSY,
            )
        return "\n\n".join(blocks) if blocks else "There are no results yet."

    def _performance(self, table: str) -> str:
        sources = self._sources
        if table == "precision":
            return precision_block(sources.everything, self._defaults)
        if table == "own networks":
            return networks_block(sources.everything, self._defaults)
        if table == "whole runs":
            return whole_runs_block(sources.everything, self._defaults)
        if table not in SPEED_TABLES:
            known = [*SPEED_TABLES, "precision", "own networks", "whole runs"]
            raise unknown("table of measured speed", table, known)
        return performance_block(sources.root / "results", table)

    def _printed(self, name: str) -> str:
        if name not in self._sources.results:
            raise unknown("file of results", name, self._sources.results)
        return printed_by_run(self._sources.results[name], self._defaults)

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
