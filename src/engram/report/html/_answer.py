"""The first thing a reader wants to know: whether MEGA-II beats A-GEM."""

from __future__ import annotations

from collections.abc import Sequence

from engram.report._numbers import NOTHING, duration, spread
from engram.report._quantities import mean_quantity
from engram.report._standard import Standard
from engram.report._summary import Summary
from engram.report.html._claims_list import signed_interval
from engram.report.html._duel import Duel, duels
from engram.report.html._element import Markup, element
from engram.report.html._names import method_name, papers_benchmarks, setting_name
from engram.report.html._table import Column, Table, show_table

_PAIR = ("mega-ii", "a-gem")
_CARDS = 4  # as many as the paper has benchmarks
_NOT_YET = (
    "That cannot be told yet: in no setting of this store were both run with two seeds or more."
)


def answer(summaries: Sequence[Summary], standard: Standard) -> Markup:
    """Return the answer: on what, by how much, how sure, at what cost."""
    found = duels(summaries, standard, _PAIR)
    missing = _missing(found)
    return element(
        "section",
        element("h2", "Does MEGA-II beat A-GEM?"),
        element("p", _headline(found) if found else _NOT_YET, class_="headline"),
        element("p", missing, class_="note") if missing else None,
        element("div", [_card(duel, standard) for duel in found[:_CARDS]], class_="cards"),
        show_table(_table(found[_CARDS:])) if found[_CARDS:] else None,
        id="answer",
    )


def _headline(found: Sequence[Duel]) -> str:
    better = [duel for duel in found if duel.gain.low > 0]
    worse = [duel for duel in found if duel.gain.high < 0]
    answered = "Yes" if len(better) == len(found) else "Not everywhere" if better else "No"
    gains = [duel.gain.mean for duel in better]
    by = f", by {_from_to(gains)} points of average accuracy" if gains else ""
    unsettled = len(found) - len(better) - len(worse)
    rest = [f"it is behind in {len(worse)}"] if worse else []
    rest += [f"the seeds do not settle it in {unsettled}"] if unsettled else []
    tail = f" ({'; '.join(rest)})" if rest else ""
    times = [duel.times for duel in found if duel.times is not None]
    price = f", at {_from_to(times)} times A-GEM's seconds" if times else ""
    where = f"{len(found)} {'setting' if len(found) == 1 else 'settings'}{_stand_ins(found)}"
    return f"{answered}: it is ahead in {len(better)} of {where}{by}{tail}{price}."


def _stand_ins(found: Sequence[Duel]) -> str:
    count = sum(bool(duel.setting.stand_in) for duel in found)
    if not count:
        return ""
    return ", which is a stand-in" if len(found) == 1 else f", of which {count} on a stand-in"


def _from_to(numbers: Sequence[float]) -> str:
    """Return the range of some numbers, which may be one."""
    low, high = f"{min(numbers):.2f}", f"{max(numbers):.2f}"
    return low if low == high else f"{low} to {high}"


def _missing(found: Sequence[Duel]) -> str:
    told = {duel.setting.benchmark: duel.setting.stand_in for duel in reversed(found)}
    names = [
        f"{name} (stand-in alone)" if key in told else name
        for key, name in papers_benchmarks().items()
        if told.get(key, "absent")
    ]
    return f"Of the paper's benchmarks not in this store yet: {', '.join(names)}." if names else ""


def _card(duel: Duel, standard: Standard) -> Markup:
    best = spread(duel.best.statistic("average_accuracy"), 2)
    facts = [
        ("By how much", f"{_against(duel, 'average_accuracy', 2)} % average accuracy"),
        ("How sure", _sure(duel)),
        ("Forgetting", _against(duel, "forgetting", 3)),
        ("At what cost", _cost(duel)),
        ("In the paper", _papers(duel, standard)),
        ("Best there", f"{method_name(duel.best.method)}, {best} %"),
    ]
    mark = "held" if duel.gain.low > 0 else "not-held" if duel.gain.high < 0 else "open"
    return element(
        "article",
        element("h3", element("a", setting_name(duel.setting), href=f"#{duel.setting.slug}")),
        element("p", element("b", f"{duel.gain.mean:+.2f}"), " points", class_=f"gain {mark}"),
        element("dl", [[element("dt", name), element("dd", text)] for name, text in facts if text]),
        class_="card",
    )


def _table(found: Sequence[Duel]) -> Table:
    """Return the settings that have no card, a line each."""
    columns = ["where", "MEGA-II", "A-GEM", "points", "95 % interval", "seeds ahead", "seconds"]
    lines = [
        [
            setting_name(duel.setting),
            spread(duel.one.statistic("average_accuracy"), 2),
            spread(duel.other.statistic("average_accuracy"), 2),
            f"{duel.gain.mean:+.2f}",
            signed_interval(duel.gain, 2),
            f"{duel.seeds.wins} of {duel.seeds.seeds}",
            NOTHING if duel.times is None else f"{duel.times:.2f} times",
        ]
        for duel in found
    ]
    heads = [Column(title, number=title != "where") for title in columns]
    return Table("MEGA-II against A-GEM in other settings", heads, lines)


def _sure(duel: Duel) -> str:
    seeds = duel.seeds
    chance = "" if seeds.p is None else f", p = {seeds.p:.1g}"
    return (
        f"{signed_interval(duel.gain, 2)} points (95 % interval{chance}); "
        f"ahead in {seeds.wins} of {seeds.seeds} seeds"
    )


def _against(duel: Duel, metric: str, digits: int) -> str:
    ones, others = (spread(each.statistic(metric), digits) for each in (duel.one, duel.other))
    return f"{ones} against {others}"


def _cost(duel: Duel) -> str:
    one, other = duel.one, duel.other
    seconds = f"{duration(one.seconds)} against {duration(other.seconds)} seconds a run"
    if duel.times is None:
        where = f"on {one.device} and {other.device}, so not to be compared"
    else:
        where = f"{duel.times:.2f} times, on {one.device}"
    memory = [mean_quantity(each, "memory_bytes_in_all") for each in (one, other)]
    if memory[0] is None or memory[1] is None:
        return f"{seconds} ({where})"
    return f"{seconds} ({where}); {memory[0] / 1e6:.2f} against {memory[1] / 1e6:.2f} MB"


def _papers(duel: Duel, standard: Standard) -> str:
    numbers = [standard.printed(each, "average_accuracy") for each in (duel.one, duel.other)]
    if numbers[0] is None or numbers[1] is None:
        return ""
    gain = numbers[0].mean - numbers[1].mean
    return f"{gain:+.2f} points: {spread(numbers[0], 2)} against {spread(numbers[1], 2)}"
