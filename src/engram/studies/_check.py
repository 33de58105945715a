"""Whether the laboratory can run what an entry of a study asks for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from engram.errors import EngramError, unknown
from engram.report import value_text
from engram.studies._source import Source
from engram.studies._study import Runs

if TYPE_CHECKING:
    from engram.protocol import Spec
    from engram.runs import Laboratory

Mistake = Callable[..., EngramError]  # source.error of one entry


def checked(runs: Runs, number: int, source: Source, laboratory: Laboratory) -> Runs:
    """Return an entry with its specs; an EngramError names the line and the field at fault."""

    def mistake(problem: object, field: str, value: object = None, **more: str) -> EngramError:
        return source.error(problem, field, value, entry=number, **more)

    known = {method: _known(runs.benchmark, method, laboratory, mistake) for method in runs.methods}
    for name in runs.settings:
        if not any(name in names for names in known.values()):
            everything = set[str]().union(*known.values())
            raise mistake(unknown("setting", name, everything), name, inside="settings")
    specs = tuple(_spec(runs, method, known[method], laboratory, mistake) for method in known)
    return replace(runs, specs=specs)


def _known(benchmark: str, method: str, laboratory: Laboratory, mistake: Mistake) -> set[str]:
    """Return the settings that a method takes on a benchmark."""
    try:
        return {item.name for item in laboratory.settings_help(benchmark, method)}
    except EngramError as error:
        if str(error).startswith("There is no method"):
            raise mistake(error, "methods", method) from None
        raise mistake(error, "benchmark") from None


def _spec(
    runs: Runs, method: str, known: set[str], laboratory: Laboratory, mistake: Mistake
) -> Spec:
    """Return the spec of one method; a setting goes to the methods that know it.

    Where it will not do, what is given is added piece by piece: at fault is the first that leads
    to the same error. Fewer may have another one, as a table needs several settings.
    """
    texts, sizes = dict[str, str](), dict[str, int | None]()
    trials: list[tuple[str, str, dict[str, str], dict[str, int | None]]]
    trials = [("benchmark", "", texts, sizes)]
    for name, value in runs.settings.items():
        if name in known:
            texts = {**texts, name: value_text(value)}
            trials.append((name, "settings", texts, sizes))
    for name in ("tasks", "examples"):
        sizes = {**sizes, name: getattr(runs, name)}
        trials.append((name, "", texts, sizes))

    def tried(overrides: dict[str, str], given: dict[str, int | None]) -> Spec | str:
        try:
            return laboratory.specify(runs.benchmark, method, overrides=overrides, **given)
        except EngramError as error:
            return str(error)

    made = tried(texts, sizes)
    if not isinstance(made, str):
        return made
    at_fault = (trial[:2] for trial in trials if tried(*trial[2:]) == made)
    field, inside = next(at_fault, ("benchmark", ""))  # where a file is changed meanwhile
    raise mistake(made, field, inside=inside)
