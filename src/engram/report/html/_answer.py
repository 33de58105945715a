"""The first thing a reader wants to know: whether MEGA-II beats A-GEM or VAN."""

from __future__ import annotations

import math
from collections.abc import Sequence

from engram.report.comparison import OPPONENT_RULE, PairedComparison, paired_comparisons
from engram.report.estimates import Estimate
from engram.report.html._element import Markup, element
from engram.report.html._headline import headline, opponents, question
from engram.report.html._table import show_table
from engram.report.names import benchmark_names, method_name, setting_name
from engram.report.paper_defaults import PaperDefaults
from engram.report.summary import Summary
from engram.report.tables import NOTHING, Column, Table, duration, spread

_CARDS = 4  # as many as the paper has benchmarks


def answer(summaries: Sequence[Summary], defaults: PaperDefaults, *, paper: bool) -> Markup:
    """Return the answer: on what, by how much, how sure, at what cost.

    What is missing of the paper's benchmarks is told if the page is about the paper.
    """
    found = paired_comparisons(summaries, defaults)
    rule = OPPONENT_RULE if any(duel.opponent != "A-GEM" for duel in found) else ""
    missing = _missing(found) if paper else ""
    rest = _table(found[_CARDS:]) if found[_CARDS:] else None
    return element(
        "section",
        element("h2", question(found)),
        element("p", headline(found), class_="headline"),
        [element("p", note, class_="note") for note in (rule, missing) if note],
        element("div", [_card(duel, defaults) for duel in found[:_CARDS]], class_="cards"),
        [element("h3", rest.caption, class_="above"), show_table(rest)] if rest else None,
        id="answer",
    )


def _missing(found: Sequence[PairedComparison]) -> str:
    """Return which of the paper's benchmarks were run on a stand-in only, and which not at all."""
    papers = [duel.setting for duel in found if not duel.setting.other]
    real = {setting.benchmark for setting in papers if not setting.stand_in}
    run = {setting.benchmark for setting in papers}
    names = benchmark_names()
    stood_in = ", ".join(name for key, name in names.items() if key in run - real)
    absent = ", ".join(name for key, name in names.items() if key not in run)
    told = [f"On a stand-in only: {stood_in}."] if stood_in else []
    told += [f"Of the paper's benchmarks not in this store yet: {absent}."] if absent else []
    return " ".join(told)


def _card(duel: PairedComparison, defaults: PaperDefaults) -> Markup:
    best = spread(duel.best.statistic("average_accuracy"), 2)
    facts = [
        ("By how much", f"{_against(duel, 'average_accuracy', 2)} % average accuracy"),
        ("How sure", _sure(duel)),
        ("Forgetting", _against(duel, "forgetting", 3)),
        ("At what cost", _cost(duel)),
        ("In the paper", _papers(duel, defaults)),
        ("Best there", f"{method_name(duel.best.method)}, {best} %"),
    ]
    gain = element("b", f"{duel.gain.mean:+.2f}")
    return element(
        "article",
        element("h3", element("a", setting_name(duel.setting), href=f"#{duel.setting.slug}")),
        element("p", gain, f" points against {duel.opponent}", class_=f"gain {duel.mark}"),
        element("dl", [[element("dt", name), element("dd", text)] for name, text in facts if text]),
        class_="card",
    )


def _table(found: Sequence[PairedComparison]) -> Table:
    """Return the settings that have no card, a line each; what answers comes first.

    An opponent that is the only one is named once, above its numbers.
    """
    names = opponents(found)
    several = len(names) > 1
    columns = ["where", "points", "95 % interval", "seeds ahead", *(["against"] if several else [])]
    columns += ["MEGA-II", "the other" if several else names[0], "seconds"]
    lines = [
        [
            setting_name(duel.setting),
            f"{duel.gain.mean:+.2f}",
            _interval(duel.gain),
            f"{duel.by_seed.wins} of {duel.by_seed.seeds}",
            *([duel.opponent] if several else []),
            spread(duel.one.statistic("average_accuracy"), 2),
            spread(duel.other.statistic("average_accuracy"), 2),
            NOTHING if duel.times is None else f"{duel.times:.2f} times",
        ]
        for duel in found
    ]
    heads = [Column(title, number=title not in ("where", "against")) for title in columns]
    return Table(f"MEGA-II against {' or '.join(names)} in other settings", heads, lines)


def _sure(duel: PairedComparison) -> str:
    seeds = duel.by_seed
    chance = "" if seeds.p is None else f", p = {seeds.p:.1g}"
    return (
        f"{_interval(duel.gain)} points (95 % interval{chance}); "
        f"ahead in {seeds.wins} of {seeds.seeds} seeds"
    )


def _interval(gain: Estimate) -> str:
    """Return a 95 % interval of a difference.

    >>> _interval(Estimate(2.0, 1.5, 2.5, 5))
    '+1.50 to +2.50'
    """
    return NOTHING if math.isinf(gain.low) else f"{gain.low:+.2f} to {gain.high:+.2f}"


def _against(duel: PairedComparison, metric: str, digits: int) -> str:
    ones, others = (spread(each.statistic(metric), digits) for each in (duel.one, duel.other))
    return f"{ones} against {others}"


def _cost(duel: PairedComparison) -> str:
    one, other = duel.one, duel.other
    seconds = f"{' against '.join(map(duration, duel.seconds))} seconds a run"
    where = duel.not_compared or f"{duel.times:.2f} times, on {one.device}"
    memory = [each.mean("memory_bytes_in_all") for each in (one, other)]
    if memory[0] is None or memory[1] is None:
        return f"{seconds} ({where})"
    return f"{seconds} ({where}); {memory[0] / 1e6:.2f} against {memory[1] / 1e6:.2f} MB"


def _papers(duel: PairedComparison, defaults: PaperDefaults) -> str:
    numbers = [defaults.printed(each, "average_accuracy") for each in (duel.one, duel.other)]
    if numbers[0] is None or numbers[1] is None:
        return ""
    gain = numbers[0].mean - numbers[1].mean
    return f"{gain:+.2f} points: {spread(numbers[0], 2)} against {spread(numbers[1], 2)}"
