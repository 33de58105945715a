"""The paper's claims, judged by the numbers in a store."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from engram.report._definitions import definitions
from engram.report._estimate import Estimate
from engram.report._found import NOT_RUN, Found, Pair
from engram.report._paper import claims, printed, table_methods
from engram.report._standard import Standard
from engram.report._summary import Summary, by_data
from engram.report._verdict import Claim, Part

_ORDER = {-math.inf, 0, math.inf}  # the bounds of a claim that says which is larger, and no more


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
        self._found = [Found(alike, standard) for alike in by_data(trained)]

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
        above, below = check.get("above", -math.inf), check.get("below", math.inf)
        pair = Pair(measure, (setting, of), (beside, than), ratio)
        ours, missing, label = self._estimate(pair, order={above, below} <= _ORDER)
        return Part(
            measure=measure,
            of=of,
            than=than,
            ratio=ratio,
            where=f"{where} (stand-in: {label})" if label else where,
            above=above,
            below=below,
            ours=ours,
            paper=check.get("paper", _papers(setting, measure, of, than)),
            missing=missing,
            stand_in=label,
        )

    def _estimate(self, pair: Pair, *, order: bool) -> tuple[Estimate | None, str, str]:
        """Return the estimate on the first data that has one, and the label of a stand-in.

        Without any, None and why. A stand-in can tell the order of two methods and no heights.
        """
        reason = NOT_RUN
        for found in self._found:
            ours, missing = found.estimate(pair)
            if ours is not None and (order or not found.label):
                return ours, "", found.label
            missing = missing or "heights are not compared on a stand-in"
            reason = missing if reason == NOT_RUN else reason
        return None, reason, ""


def _expanded(methods: Any, setting: str) -> Sequence[Any]:  # noqa: ANN401 (from JSON)
    if methods == "table":
        return table_methods(setting)
    return [methods] if isinstance(methods, str) else methods


def _papers(setting: str, measure: str, of: str, than: str | None) -> float | None:
    """Return the paper's own difference, where it prints both numbers."""
    one = printed(setting, of, measure)
    other = None if than is None else printed(setting, than, measure)
    return None if one is None or other is None else one.mean - other.mean
