"""The table of an ablation: what each ingredient of a method gives, and what it costs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from engram.app import runs
from engram.app.report import Estimate, Summary, differences, holm, value_text
from engram.app.report.tables import NOTHING, duration, markdown_table, spread
from engram.app.studies.budgets import Results
from engram.app.studies.study import Runs, Study

if TYPE_CHECKING:
    from engram.lab.protocol import Spec

NOT_YET = "not yet run"
_HEADER = ["", "average accuracy %", "seeds", "the whole less it, points", "95 % interval"]
_COSTS = ["beyond chance, all corrected", "gradients a batch", "seconds", "device", "date"]


@dataclass(frozen=True)
class Line:
    """A method, whole, with an ingredient left out, or another one beside it."""

    name: str
    spec: Spec
    seeds: int  # that are wanted
    summary: Summary | None = None

    @property
    def gradients(self) -> int | None:
        """How many gradients of a batch are taken for each batch of the stream; None if unknown.

        Those of the current one and the memory's and, of the logits that are remembered, another.
        """
        settings = self.spec.settings
        if self.spec.method in ("er", "er-ace", "a-gem", "mega-i", "mega-ii", "der"):
            return 2
        if self.spec.method not in ("derpp", "recommended"):
            return None
        return int(settings.get("updates", 1)) * (2 + (float(settings.get("alpha", 0)) > 0))


@dataclass(frozen=True)
class Ablation:
    """What was chosen on one benchmark, each of its ingredients left out, and methods beside it."""

    whole: Line
    others: Sequence[Line]
    chosen: str | None  # on tuning tasks; None: the search has no end yet

    def markdown(self) -> str:
        """Return the table; what has no results yet says so."""
        spec = self.whole.spec
        title = f"{spec.benchmark}, {spec.tasks} tasks of {spec.examples:,} examples"
        known = (
            f"Chosen on tuning tasks: {self.chosen}."
            if self.chosen
            else "The search on tuning tasks is not yet run; the lines are those of the presets."
        )
        compared = {
            line.name: Estimate.over(shared)
            for line in self.others
            if self.whole.summary is not None and line.summary is not None
            if len(shared := differences(self.whole.summary, line.summary)) > 1
        }
        sure = dict(
            zip(compared, holm([each.chance(0.0) for each in compared.values()]), strict=True)
        )
        lines = []
        for line in (self.whole, *self.others):
            gain = compared.get(line.name)
            beside = [NOTHING] * 3
            if gain is not None:
                beside = [f"{gain.mean:+.2f}", f"[{gain.low:+.2f}, {gain.high:+.2f}]"]
                beside.append("yes" if sure[line.name] else "no")
            count = "–" if line.gradients is None else str(line.gradients)
            lines.append([line.name, *_number(line), *beside, count, *_cost(line)])
        table = markdown_table([*_HEADER, *_COSTS, "address"], lines)
        return f"**{title}.** {known}\n\n{table}"


def _number(line: Line) -> list[str]:
    if line.summary is None:
        return [NOT_YET, f"0 of {line.seeds}"]
    done = len(line.summary.rows)
    seeds = str(done) if done >= line.seeds else f"{done} of {line.seeds}"
    return [spread(line.summary.statistic("average_accuracy"), 2), seeds]


def _cost(line: Line) -> list[str]:
    if line.summary is None:
        return [NOTHING] * 4
    summary = line.summary
    return [duration(summary.seconds), summary.machine, summary.dates, summary.address]


def ablations(
    study: Study, rows: Sequence[runs.Row], choices: Sequence[runs.Choice]
) -> list[Ablation]:
    """Return the ablations of a study, one for each of its entries that asks for one."""
    results = Results(rows, choices)
    found = list[Ablation]()
    for entry in study.runs:
        if not entry.without:
            continue
        for place, spec in enumerate(entry.specs):
            trials = entry.trials[place] if entry.trials else ()
            chosen = results.chosen(entry, trials)
            used = replace(spec, settings={**spec.settings, **(chosen or {})})
            summary = None if chosen is None else results.of(used)
            whole = Line(spec.method, used, entry.seeds, summary)
            others = [*_left_out(entry, used, results, known=chosen is not None)]
            others += _beside(study, entry, results)
            texts = (f"{name}={value_text(value)}" for name, value in (chosen or {}).items())
            found.append(Ablation(whole, others, ", ".join(texts) or None))
    return found


def _left_out(entry: Runs, used: Spec, results: Results, *, known: bool) -> Iterator[Line]:
    for name, spec in entry.ablation(used):
        text = f"with {name}={value_text(spec.settings[name])}"
        yield Line(text, spec, entry.without_seeds, results.of(spec) if known else None)


def _beside(study: Study, entry: Runs, results: Results) -> Iterator[Line]:
    """Yield the methods of the study's other entries on the same tasks."""
    for other in study.runs:
        for place, spec in enumerate(other.specs):
            mine = (spec.benchmark, spec.tasks, spec.examples)
            first = entry.specs[0]
            if other.without or mine != (first.benchmark, first.tasks, first.examples):
                continue
            chosen = results.chosen(other, other.trials[place] if other.trials else ())
            used = replace(spec, settings={**spec.settings, **(chosen or {})})
            name = f"{spec.method}, {spec.settings['memory']}"
            summary = None if chosen is None else results.of(used)
            yield Line(name, used, other.seeds, summary)
