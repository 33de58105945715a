"""The answer in one question and one sentence: whether MEGA-II beats what it is set against."""

from __future__ import annotations

from collections.abc import Sequence

from engram.report.comparison import PairedComparison

_NOT_YET = (
    "That cannot be told yet: in no setting of this store do MEGA-II and a baseline, such as A-GEM "
    "or VAN, have two finished seeds in common in one precision."
)


def opponents(found: Sequence[PairedComparison]) -> list[str]:
    """Return the names of those MEGA-II is set against, each once."""
    return list(dict.fromkeys(duel.opponent for duel in found)) or ["A-GEM"]


def question(found: Sequence[PairedComparison]) -> str:
    """Return what is answered, which names the opponents."""
    names = opponents(found)
    first = "A-GEM" if "A-GEM" in names else names[0]
    rest = " or ".join(name for name in names if name != first)
    return f"Does MEGA-II beat {first}{f', or {rest} where {first} was not run' if rest else ''}?"


def headline(found: Sequence[PairedComparison]) -> str:
    """Return the answer: yes if it is ahead everywhere, no if it is behind and ahead nowhere.

    Ahead and behind is what the seeds settle; where they settle nothing that is the answer.
    """
    if not found:
        return _NOT_YET
    better, worse, unsettled = (
        [duel for duel in found if duel.mark == mark] for mark in ("held", "not-held", "open")
    )
    everywhere = f"{len(found)} {'setting' if len(found) == 1 else 'settings'}{_stand_ins(found)}"
    open_part = f"the seeds do not settle it in {len(unsettled)}" if unsettled else ""
    if better:
        answered = "Yes" if len(better) == len(found) else "Not everywhere"
        rest = [f"it is behind in {len(worse)}"] if worse else []
        ahead = f"it is ahead in {len(better)} of {everywhere}, by {_gains(better)}"
        return f"{answered}: {ahead}{_aside(*rest, open_part)}{_price(found)}."
    if worse:
        behind = f"it is behind in {len(worse)} of {everywhere}, by {_gains(worse)}"
        return f"No: {behind}{_aside(open_part)}{_price(found)}."
    each = "in the one setting" if len(found) == 1 else f"in each of {len(found)} settings"
    return (
        "The seeds do not settle it: the 95 % interval of the difference has 0 in it "
        f"{each}{_stand_ins(found)}. More seeds would make it narrower."
    )


def _aside(*told: str) -> str:
    kept = "; ".join(filter(None, told))
    return f" ({kept})" if kept else ""


def _gains(found: Sequence[PairedComparison]) -> str:
    return f"{_from_to([abs(duel.gain.mean) for duel in found])} points of average accuracy"


def _price(found: Sequence[PairedComparison]) -> str:
    """Return what it costs, where the seconds can be compared."""
    compared = [(duel.opponent, duel.times) for duel in found if duel.times is not None]
    if not compared:
        return ""
    names, times = zip(*compared, strict=True)
    whose = f"{names[0]}'s" if len({*names}) == 1 else "the other's"
    return f", at {_from_to(times)} times {whose} seconds"


def _stand_ins(found: Sequence[PairedComparison]) -> str:
    count = sum(bool(duel.setting.stand_in) for duel in found)
    if not count:
        return ""
    return ", which is a stand-in" if len(found) == 1 else f", of which {count} on a stand-in"


def _from_to(numbers: Sequence[float]) -> str:
    """Return the range of some numbers, which may be one."""
    low, high = f"{min(numbers):.2f}", f"{max(numbers):.2f}"
    return low if low == high else f"{low} to {high}"
