"""Studies are read from TOML files: those of the package, by name, and one's own, by path."""

from __future__ import annotations

import re
import tomllib
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING

from engram.errors import EngramError, unknown
from engram.studies._check import checked
from engram.studies._fields import as_runs, check_study
from engram.studies._source import Source
from engram.studies._study import Runs, Study

if TYPE_CHECKING:
    from engram.runs import Laboratory

_ENDING = ".toml"


def study_names() -> list[str]:
    """Return the names of the paper's studies."""
    files = resources.files("engram.studies").iterdir()
    return sorted(file.name.removesuffix(_ENDING) for file in files if file.name.endswith(_ENDING))


def read_study(target: str, laboratory: Laboratory) -> Study:
    """Return one of the paper's studies, by its name, or that of a file, by its path.

    What is wrong with it is told in one sentence with the line, the field and what would be right.
    """
    return _read(_source(target), laboratory)


def _source(target: str) -> Source:
    if target in study_names():
        name = f"{target}{_ENDING}"
        return Source(name, resources.files("engram.studies").joinpath(name).read_text("utf-8"))
    if not target.endswith(_ENDING):
        names = [*study_names(), "the path of a .toml file"]
        raise unknown("study", target, names)
    try:
        return Source(target, Path(target).read_bytes().decode("utf-8-sig"))
    except (OSError, ValueError) as error:  # a value: no name for a file, or no UTF-8 in it
        raise EngramError(f"{target!r} cannot be read: {error}.") from error


def _read(source: Source, laboratory: Laboratory) -> Study:
    try:
        document = tomllib.loads(source.text)
    except tomllib.TOMLDecodeError as error:
        raise _not_toml(source, error) from None
    except (ValueError, RecursionError) as error:  # a number of thousands of digits; [[[[…
        raise EngramError(f"{source.name} is not TOML: {error}.") from None
    check_study(document, source)
    runs: list[Runs] = []
    for name in document.get("include", ()):
        if name not in study_names():
            raise source.error(unknown("study", name, study_names()), "include", name)
        runs += _read(_source(name), laboratory).runs
    for number, given in enumerate(document.get("runs", ())):
        runs.append(checked(as_runs(given, number, source), number, source, laboratory))
    return Study(source.name.removesuffix(_ENDING), document["title"], tuple(runs))


def _not_toml(source: Source, error: tomllib.TOMLDecodeError) -> EngramError:
    """Say it with the line in its place; at the end of a file there is none in the error."""
    found = re.search(r" \(at (?:line (\d+), column \d+|end of document)\)$", str(error))
    line = (found and found[1]) or str(max(len(source.text.splitlines()), 1))
    problem = str(error)[: found.start()] if found else str(error)
    return EngramError(f"{source.name}, line {line}: not TOML: {problem}.")
