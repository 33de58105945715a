"""The first thing a reader wants to know: whether MEGA-II beats A-GEM or VAN."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal, NamedTuple

from engram.app.report.comparison import OPPONENT_RULE, PairedComparison, paired_comparisons
from engram.app.report.estimates import Estimate
from engram.app.report.names import benchmark_names, method_name, setting_name
from engram.app.report.paper_defaults import PaperDefaults
from engram.app.report.summary import Summary
from engram.app.report.tables import NOTHING, Column, Table, duration, spread

_CARDS = 4  # as many as the paper has benchmarks
_NOT_YET = (
    "That cannot be told yet: in no setting of this store do MEGA-II and a baseline, such as A-GEM "
    "or VAN, have two finished seeds in common in one precision."
)


class Card(NamedTuple):
    """One setting: by how much MEGA-II is ahead of its opponent, how sure that is, at what cost."""

    slug: str
    title: str
    gain: str
    mark: Literal["held", "not-held", "open"]
    opponent: str
    facts: list[tuple[str, str]]


class Answer(NamedTuple):
    """The question, its answer in a sentence, and what it rests on, setting by setting."""

    question: str
    headline: str
    notes: list[str]
    cards: list[Card]
    others: Table | None  # the settings that have no card


def answer(summaries: Sequence[Summary], defaults: PaperDefaults, *, paper: bool) -> Answer:
    """Return the answer: on what, by how much, how sure, at what cost.

    What is missing of the paper's benchmarks is listed if the page is about the paper.
    """
    found = paired_comparisons(summaries, defaults)
    rule = OPPONENT_RULE if any(pair.opponent != "A-GEM" for pair in found) else ""
    missing = _missing(found) if paper else ""
    return Answer(
        _question(found),
        _headline(found),
        [note for note in (rule, missing) if note],
        [_card(pair, defaults) for pair in found[:_CARDS]],
        _table(found[_CARDS:]) if found[_CARDS:] else None,
    )


def _opponents(found: Sequence[PairedComparison]) -> list[str]:
    """Return the names of those MEGA-II is set against, each once."""
    return list(dict.fromkeys(pair.opponent for pair in found)) or ["A-GEM"]


def _question(found: Sequence[PairedComparison]) -> str:
    """Return what is answered, which names the opponents."""
    names = _opponents(found)
    first = "A-GEM" if "A-GEM" in names else names[0]
    rest = " or ".join(name for name in names if name != first)
    return f"Does MEGA-II beat {first}{f', or {rest} where {first} was not run' if rest else ''}?"


def _headline(found: Sequence[PairedComparison]) -> str:
    """Return the answer: yes if it is ahead everywhere, no if it is behind and ahead nowhere.

    Ahead and behind is what the seeds settle; where they settle nothing that is the answer.
    """
    if not found:
        return _NOT_YET
    better, worse, unsettled = (
        [pair for pair in found if pair.mark == mark] for mark in ("held", "not-held", "open")
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


def _aside(*clauses: str) -> str:
    kept = "; ".join(filter(None, clauses))
    return f" ({kept})" if kept else ""


def _gains(found: Sequence[PairedComparison]) -> str:
    return f"{_from_to([abs(pair.gain.mean) for pair in found])} points of average accuracy"


def _price(found: Sequence[PairedComparison]) -> str:
    """Return what it costs, where the seconds can be compared."""
    compared = [(pair.opponent, pair.times) for pair in found if pair.times is not None]
    if not compared:
        return ""
    names, times = zip(*compared, strict=True)
    whose = f"{names[0]}'s" if len({*names}) == 1 else "the other's"
    return f", at {_from_to(times)} times {whose} seconds"


def _stand_ins(found: Sequence[PairedComparison]) -> str:
    count = sum(bool(pair.setting.stand_in) for pair in found)
    if not count:
        return ""
    return ", which is a stand-in" if len(found) == 1 else f", of which {count} on a stand-in"


def _from_to(numbers: Sequence[float]) -> str:
    """Return the range of some numbers, which may be one."""
    low, high = f"{min(numbers):.2f}", f"{max(numbers):.2f}"
    return low if low == high else f"{low} to {high}"


def _missing(found: Sequence[PairedComparison]) -> str:
    """Return which of the paper's benchmarks were run on a stand-in only, and which not at all."""
    papers = [pair.setting for pair in found if not pair.setting.other]
    real = {setting.benchmark for setting in papers if not setting.stand_in}
    run = {setting.benchmark for setting in papers}
    names = benchmark_names()
    stood_in = ", ".join(name for key, name in names.items() if key in run - real)
    absent = ", ".join(name for key, name in names.items() if key not in run)
    notes = [f"On a stand-in only: {stood_in}."] if stood_in else []
    notes += [f"Of the paper's benchmarks not in this store yet: {absent}."] if absent else []
    return " ".join(notes)


def _card(pair: PairedComparison, defaults: PaperDefaults) -> Card:
    best = spread(pair.best.statistic("average_accuracy"), 2)
    facts = [
        ("By how much", f"{_against(pair, 'average_accuracy', 2)} % average accuracy"),
        ("How sure", _sure(pair)),
        ("Forgetting", _against(pair, "forgetting", 3)),
        ("At what cost", _cost(pair)),
        ("In the paper", _papers(pair, defaults)),
        ("Best there", f"{method_name(pair.best.method)}, {best} %"),
    ]
    return Card(
        pair.setting.slug,
        setting_name(pair.setting),
        f"{pair.gain.mean:+.2f}",
        pair.mark,
        pair.opponent,
        [(name, text) for name, text in facts if text],
    )


def _table(found: Sequence[PairedComparison]) -> Table:
    """Return the settings that have no card, a line each; what answers comes first.

    An opponent that is the only one is named once, above its numbers.
    """
    names = _opponents(found)
    several = len(names) > 1
    columns = ["where", "points", "95 % interval", "seeds ahead", *(["against"] if several else [])]
    columns += ["MEGA-II", "the other" if several else names[0], "seconds"]
    lines = [
        [
            setting_name(pair.setting),
            f"{pair.gain.mean:+.2f}",
            _interval(pair.gain),
            f"{pair.by_seed.wins} of {pair.by_seed.seeds}",
            *([pair.opponent] if several else []),
            spread(pair.one.statistic("average_accuracy"), 2),
            spread(pair.other.statistic("average_accuracy"), 2),
            NOTHING if pair.times is None else f"{pair.times:.2f} times",
        ]
        for pair in found
    ]
    heads = [Column(title, number=title not in ("where", "against")) for title in columns]
    return Table(f"MEGA-II against {' or '.join(names)} in other settings", heads, lines)


def _sure(pair: PairedComparison) -> str:
    seeds = pair.by_seed
    chance = "" if seeds.p is None else f", p = {seeds.p:.1g}"
    return (
        f"{_interval(pair.gain)} points (95 % interval{chance}); "
        f"ahead in {seeds.wins} of {seeds.seeds} seeds"
    )


def _interval(gain: Estimate) -> str:
    """Return a 95 % interval of a difference.

    >>> _interval(Estimate(2.0, 1.5, 2.5, 5))
    '+1.50 to +2.50'
    """
    return NOTHING if math.isinf(gain.low) else f"{gain.low:+.2f} to {gain.high:+.2f}"


def _against(pair: PairedComparison, metric: str, digits: int) -> str:
    ones, others = (spread(each.statistic(metric), digits) for each in (pair.one, pair.other))
    return f"{ones} against {others}"


def _cost(pair: PairedComparison) -> str:
    one, other = pair.one, pair.other
    seconds = f"{' against '.join(map(duration, pair.seconds))} seconds a run"
    where = pair.not_compared or f"{pair.times:.2f} times, on {one.device}"
    memory = [each.mean("memory_bytes_in_all") for each in (one, other)]
    if memory[0] is None or memory[1] is None:
        return f"{seconds} ({where})"
    return f"{seconds} ({where}); {memory[0] / 1e6:.2f} against {memory[1] / 1e6:.2f} MB"


def _papers(pair: PairedComparison, defaults: PaperDefaults) -> str:
    numbers = [defaults.printed(each, "average_accuracy") for each in (pair.one, pair.other)]
    if numbers[0] is None or numbers[1] is None:
        return ""
    gain = numbers[0].mean - numbers[1].mean
    return f"{gain:+.2f} points: {spread(numbers[0], 2)} against {spread(numbers[1], 2)}"
