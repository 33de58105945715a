"""``python -m tools.docs FILE... --out PAGE`` or ``--pages FOLDER``."""

from __future__ import annotations

import argparse
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

from engram.app.report import PaperDefaults
from engram.app.runs import printable, read_lines
from engram.errors import EngramError
from engram.lab import protocol
from tools.docs.pages import check_generated, write, write_pages
from tools.docs.results_page import results_page

_PROGRAM = "python -m tools.docs"


def main(arguments: Sequence[str]) -> int:
    """Write a page of results, or all that is generated in a folder; return the exit code."""
    given = _parser().parse_args(arguments)
    files = [Path(name) for name in given.files]
    try:
        if given.pages is not None:
            if given.compare:
                raise EngramError("--compare goes with --out; pages compare what the paper does.")
            for path in write_pages(given.pages, files):
                print(path)
            return 0
        rows = [row for file in files for row in read_lines(file)]
        pairs = [_pair(text) for text in given.compare]
        command = printable(shlex.join([*_PROGRAM.split(), *arguments]))
        check_generated(given.out)
        defaults = PaperDefaults(protocol.specify)
        write(given.out, results_page(rows, defaults, command, pairs))
    except EngramError as error:
        print(error, file=sys.stderr)
        return 2
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=_PROGRAM, description="Make a page of results from JSON-lines, or all of the docs."
    )
    parser.add_argument("files", nargs="+", metavar="FILE", help="results, as JSON-lines")
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--out", type=Path, metavar="PAGE", help="the Markdown page to write")
    what.add_argument(
        "--pages",
        type=Path,
        metavar="FOLDER",
        help="a page for each file in FOLDER/results, and the blocks of the other pages",
    )
    parser.add_argument(
        "--compare",
        action="append",
        default=[],
        metavar="ONE:OTHER",
        help="compare two methods seed by seed",
    )
    return parser


def _pair(text: str) -> tuple[str, str]:
    first, colon, second = text.partition(":")
    if not (first and colon and second) or first == second:
        raise EngramError(f"compare takes two methods as ONE:OTHER, not {text!r}.")
    return first, second


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
