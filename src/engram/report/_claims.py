"""The paper's claims, judged by the numbers in a store."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from engram.report._definitions import definitions, in_setting
from engram.report._estimate import Estimate
from engram.report._paper import claims, printed, table_methods
from engram.report._quantities import quantity, representatives
from engram.report._standard import Standard
from engram.report._summary import Summary, by_data
from engram.report._verdict import Claim, Part
from engram.runs import Row

_NOT_RUN = "not run"
_SAME = {"er": "mega-i-equal"}  # one method, which the paper's ablation has another name for
Values = dict[int, tuple[float, str]]  # by seed: the number, and the device it was made on


def judge(summaries: Sequence[Summary], standard: Standard) -> list[Claim]:
    """Return the paper's claims, in its order, each with our numbers and the paper's."""
    judged = _Judge(summaries, standard)
    checks = definitions()["checks"]
    return [
        Claim(text, tuple(part for check in checks[text] for part in judged.parts(check)))
        for text in claims()
    ]


class _Judge:
    def __init__(self, summaries: Sequence[Summary], standard: Standard) -> None:
        trained = [summary for summary in summaries if summary.setting.split == "training"]
        self._found = [_Found(alike, standard) for alike in by_data(trained)]

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
        beside = check.get("than_in", setting)
        titles = [definitions()["settings"][name]["title"] for name in (setting, beside)]
        where = " against ".join(dict.fromkeys(titles))
        ours, missing, label = self._estimate(measure, (setting, of), (beside, than), ratio)
        return Part(
            measure=measure,
            of=of,
            than=than,
            ratio=ratio,
            where=f"{where} (stand-in: {label})" if label else where,
            above=check.get("above", -math.inf),
            below=check.get("below", math.inf),
            ours=ours,
            paper=check.get("paper", _papers(setting, measure, of, than)),
            missing=missing,
            stand_in=label,
        )

    def _estimate(
        self, measure: str, first: tuple[str, str], second: tuple[str, str | None], ratio: bool
    ) -> tuple[Estimate | None, str, str]:
        """Return the estimate on the first data that has one, and the label of a stand-in.

        Without any, None and why.
        """
        reason = _NOT_RUN
        for found in self._found:
            ours, missing = found.estimate(measure, first, second, ratio)
            if ours is not None:
                return ours, "", found.label
            reason = missing if reason == _NOT_RUN else reason
        return None, reason, ""


class _Found:
    """What was run on the same data; ``label`` says what that stands in with, if it does."""

    def __init__(self, summaries: Sequence[Summary], standard: Standard) -> None:
        self.label = summaries[0].setting.stand_in
        self._found = {
            name: representatives(in_setting(summaries, name), standard)
            for name in definitions()["settings"]
        }

    def estimate(
        self, measure: str, first: tuple[str, str], second: tuple[str, str | None], ratio: bool
    ) -> tuple[Estimate | None, str]:
        """Return the estimate seed by seed, or None and why there is none."""
        ones = self._values(measure, *first)
        if second[1] is None:
            values = [value for value, _ in ones.values()]
            return (Estimate.over(values), "") if values else (None, _NOT_RUN)
        others = self._values(measure, second[0], second[1])
        shared = [(ones[seed], others[seed]) for seed in ones if seed in others]
        if measure == "seconds" and any(one[1] != other[1] for one, other in shared):
            return None, "run on different devices"
        if not shared:
            return None, _NOT_RUN if not (ones and others) else "no seed in common"
        pairs = [(one[0], other[0]) for one, other in shared]
        if ratio and any(other == 0 for _, other in pairs):
            return None, "divided by 0"
        return Estimate.over([one / other if ratio else one - other for one, other in pairs]), ""

    def _values(self, measure: str, setting: str, method: str) -> Values:
        found = self._found[setting]
        if method != "median":
            name = method if method in found else _SAME.get(method, method)
            return _by_seed(found[name].rows, measure) if name in found else {}
        beside = [self._values(measure, setting, name) for name in table_methods(setting)]
        told = [values for values in beside if values]
        seeds = set[int]().union(*told)
        return {
            seed: (statistics.median(values[seed][0] for values in told), "")
            for seed in sorted(seeds)
            if len(told) > 1 and all(seed in values for values in told)
        }


def _by_seed(rows: Sequence[Row], measure: str) -> Values:
    known = {row.seed: (quantity(row, measure), row.device) for row in rows}
    return {seed: (value, device) for seed, (value, device) in known.items() if value is not None}


def _expanded(methods: Any, setting: str) -> Sequence[Any]:  # noqa: ANN401 (from JSON)
    if methods == "table":
        return table_methods(setting)
    return [methods] if isinstance(methods, str) else methods


def _papers(setting: str, measure: str, of: str, than: str | None) -> float | None:
    """Return the paper's own difference, where it prints both numbers."""
    one = printed(setting, of, measure)
    other = None if than is None else printed(setting, than, measure)
    return None if one is None or other is None else one.mean - other.mean
