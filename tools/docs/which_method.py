"""What to use, by the results: who is best in each setting, and how sure that is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from engram.app.paper import settings
from engram.app.report import Estimate, differences, holm
from engram.app.report.claims import in_setting
from engram.app.report.paper_defaults import PaperDefaults, representatives
from engram.app.report.summary import Summary, by_data
from engram.app.report.tables import NOTHING, markdown_table, spread
from engram.app.studies import Cell
from engram.errors import unknown

_UPPER = "multi-task"  # which sees all tasks at once
_FEWEST = 3  # seeds that anything is said of
_KNOWN = {"permuted-mnist": "no", "split-cifar": "yes", "split-cub": "yes", "split-awa": "yes"}
_WITH_TASK_IDS = ("prog-nn", "icarl")  # at test time
_NEAR = 1.0  # points: what is certain to be no farther behind is as good


@dataclass(frozen=True)
class Standing:
    """Methods of one setting: the best by its mean, and what the seeds say of the others."""

    best: str
    numbers: Mapping[str, Summary]
    equals: tuple[str, ...]  # not significantly different from the best
    behind: Mapping[str, Estimate]  # the best less each other one, in points

    @classmethod
    def of(cls, numbers: Mapping[str, Summary]) -> Standing | None:
        """Return the standing of methods by their names, or None with fewer than two of them."""
        known = {name: each for name, each in numbers.items() if _score(each) is not None}
        if len(known) < 2:
            return None
        best = max(known, key=lambda name: _score(known[name]) or 0.0)
        behind = {
            name: Estimate.over(shared)
            for name in known
            if name != best and len(shared := differences(known[best], known[name])) > 1
        }
        worse = holm([each.chance(0.0) for each in behind.values()])
        equals = tuple(name for name, sure in zip(behind, worse, strict=True) if not sure)
        return cls(best, known, equals, behind)

    @property
    def sure(self) -> str:
        """How sure it is that the best is the best, in words."""
        seeds = min(each.seeds for each in self.behind.values()) if self.behind else 1
        beaten, others = len(self.behind) - len(self.equals), len(self.behind)
        return f"better than {beaten} of {others}, {seeds} seeds"

    def replay(self, names: Sequence[str]) -> str:
        """Return how plain replay stands to the best, by the first of these names that was run."""
        name = next((each for each in names if each in self.numbers), None)
        if name is None:
            return "not run"
        if name == self.best:
            return "it is the best"
        difference = self.behind.get(name)
        if difference is None:
            return NOTHING
        interval = f"[{-difference.high:+.1f}, {-difference.low:+.1f}]"
        near = "as good" if difference.high <= _NEAR else "not significant"
        kind = near if name in self.equals else "behind"
        return f"{kind}: {-difference.mean:+.1f} {interval}"


def _score(summary: Summary) -> float | None:
    statistic = summary.statistic("average_accuracy")
    whole = len(summary.rows) >= _FEWEST and not summary.failures
    return statistic.mean if statistic is not None and whole else None


def which_method(
    part: str, summaries: Sequence[Summary], defaults: PaperDefaults, found: Sequence[Cell]
) -> str:
    """Return a part of the answer: ``matched``, at equal memory, or ``papers``, in its settings."""
    if part == "matched":
        return _matched(found)
    if part == "papers":
        return _papers(summaries, defaults)
    raise unknown("part of the answer", part, ["matched", "papers"])


def _matched(found: Sequence[Cell]) -> str:
    lines = []
    for benchmark, size in dict.fromkeys((cell.benchmark, cell.per_class) for cell in found):
        if not size:
            continue
        mine = [
            cell
            for cell in found
            if cell.benchmark == benchmark and cell.per_class in (0, size) and cell.summary
        ]
        standing = Standing.of({cell.name: cell.summary for cell in mine if cell.summary})
        if standing is None or not any(cell.per_class for cell in mine):
            continue  # or nothing that remembers so much was run
        replays = {name for name in standing.numbers if name.startswith("er, ")}
        best = sorted(replays, key=lambda name: -(_score(standing.numbers[name]) or 0.0))
        title = next(cell.title for cell in mine)
        address = standing.numbers[standing.best].address
        lines.append([title, str(size), *_answer(standing, best), _policies(standing), address])
    if not lines:
        return "Nothing of it was run yet."
    header = [
        "data",
        "a class",
        "the best",
        "%",
        "no significant difference to",
        "significantly",
        "plain replay",
    ]
    return markdown_table(
        [*header, "reservoir less ring, plain replay", "spec hash"],
        lines,
        ["text", "number", "text", "number", *["text"] * 5],
    )


def _answer(standing: Standing, replays: Sequence[str]) -> list[str]:
    number = spread(standing.numbers[standing.best].statistic("average_accuracy"), 2)
    equals = "; ".join(standing.equals) or NOTHING
    return [standing.best, number, equals, standing.sure, standing.replay(replays)]


def _policies(standing: Standing) -> str:
    both = [standing.numbers.get(f"er, {policy}") for policy in ("reservoir", "ring")]
    if both[0] is None or both[1] is None:
        return NOTHING
    shared = differences(both[0], both[1])
    if len(shared) < 2:
        return NOTHING
    found = Estimate.over(shared)
    return f"{found.mean:+.1f} [{found.low:+.1f}, {found.high:+.1f}]"


def _papers(summaries: Sequence[Summary], defaults: PaperDefaults) -> str:
    lines = []
    for name, known in settings().items():
        mine = [
            each
            for each in in_setting(summaries, name)
            if each.setting.split == "training" and defaults.is_preset(each)
        ]
        for alike in by_data(mine):
            chosen = representatives(alike, defaults)
            tasks = _KNOWN[known["benchmarks"][0]]
            for method in (_UPPER, *(_WITH_TASK_IDS if tasks == "no" else ())):
                chosen.pop(method, None)
            if "er" not in chosen and "mega-i-equal" in chosen:  # one method under two names
                chosen["er"] = chosen.pop("mega-i-equal")
            standing = Standing.of(chosen)
            if standing is None:
                continue
            best = standing.numbers[standing.best]
            setting = best.setting
            place = known["title"] + (
                f" (stand-in: {setting.stand_in})" if setting.stand_in else ""
            )
            lines.append([place, tasks, *_answer(standing, ["er"]), best.address])
    header = [
        "data",
        "task ids",
        "the best",
        "%",
        "no significant difference to",
        "significantly",
        "plain replay",
    ]
    return markdown_table(
        [*header, "spec hash"],
        lines,
        ["text", "text", "text", "number", *["text"] * 4],
    )
