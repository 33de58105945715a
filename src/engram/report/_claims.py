"""The paper's claims, judged by the numbers in a store."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from engram.paper import benchmarks, claims, printed, settings, table_methods
from engram.report._found import NOT_RUN, Found, Pair, Told
from engram.report._projected import projected_times
from engram.report._standard import Standard
from engram.report._summary import Summary, by_data
from engram.report._verdict import Claim, Part


def judge(summaries: Sequence[Summary], standard: Standard) -> list[Claim]:
    """Return the paper's claims, in its order, each with our numbers and the paper's."""
    judged = _Judge(summaries, standard)
    return [
        Claim(text, tuple(part for check in checks for part in judged.parts(check)))
        for text, checks in claims().items()
    ]


class _Judge:
    def __init__(self, summaries: Sequence[Summary], standard: Standard) -> None:
        trained = [summary for summary in summaries if summary.setting.split == "training"]
        self._found = [Found(same, standard) for same in by_data(trained)]
        self._too_long = {
            (benchmark, method)
            for benchmark in benchmarks()
            for method, time in projected_times(benchmark, trained, standard).items()
            if time.too_long
        }

    def parts(self, check: Mapping[str, Any]) -> Iterator[Part]:
        """Yield a part for each method, each it is compared with and each setting."""
        for setting in check["in"]:
            apart = check.get("except", {}).get(setting, ())
            for of in _expanded(check["of"], setting):
                for than in _expanded(check.get("than", [None]), setting):
                    if than not in apart:
                        yield self._part(check, setting, of, than)

    def _part(self, check: Mapping[str, Any], setting: str, of: str, than: str | None) -> Part:
        measure, ratio = check["measure"], check.get("ratio", False)
        above, below = check.get("above", -math.inf), check.get("below", math.inf)
        pair = Pair(measure, (setting, of), (check.get("than_in", setting), than), ratio)
        told, found = self._told(pair)
        label = found.label if found and not told.projected else ""
        absent = self._absent(pair, told, found)
        return Part(
            measure=measure,
            of=of,
            than=than,
            ratio=ratio,
            where=_where(pair, label, told),
            above=above,
            below=below,
            ours=told.ours,
            paper=check.get("paper", _papers(setting, measure, of, than)),
            missing=told.missing,
            stand_in=label,
            projected=told.projected,
            absent=tuple(method for _, method in absent),
            diverged=told.diverged,
            too_long=bool(absent) and set(absent) <= self._too_long,
        )

    def _told(self, pair: Pair) -> tuple[Told, Found | None]:
        """Return the estimate on the first data that has one, and what was run on that data.

        Without any, why. Stand-ins come last.
        """
        reason = NOT_RUN
        for found in self._found:
            told = found.estimate(pair)
            if told.ours is not None:
                return told, found
            reason = told.missing if reason == NOT_RUN else reason
        return Told(None, reason), None

    def _absent(self, pair: Pair, told: Told, found: Found | None) -> list[tuple[str, str]]:
        """Return settings and methods that were not run: of a median, on the data of the others.

        What is projected is not missing.
        """
        setting, method = pair.second
        if told.ours is not None and "median" not in (pair.first[1], method):
            return []
        asked = [pair.first] if method is None else [pair.first, (setting, method)]
        each = dict.fromkeys((place, name) for place, of in asked for name in _members(of, place))
        data = [found] if found else self._found
        return [one for one in each if not any(some.ran(*one) for some in data)]


def _where(pair: Pair, label: str, told: Told) -> str:
    known = settings()
    titles = dict.fromkeys(known[name]["title"] for name, _ in (pair.first, pair.second))
    kind = f"stand-in: {label}" if label else "projected" if told.projected else ""
    return " against ".join(titles) + (f" ({kind})" if kind else "")


def _members(method: str, setting: str) -> Sequence[str]:
    return table_methods(setting) if method == "median" else [method]


def _expanded(methods: Any, setting: str) -> Sequence[Any]:  # noqa: ANN401 (from JSON)
    if methods == "table":
        return table_methods(setting)
    return [methods] if isinstance(methods, str) else methods


def _papers(setting: str, measure: str, of: str, than: str | None) -> float | None:
    """Return the paper's own difference, where it prints both numbers."""
    one = printed(setting, of, measure)
    other = None if than is None else printed(setting, than, measure)
    return None if one is None or other is None else one.mean - other.mean
