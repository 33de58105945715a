"""The table of a study that compares methods at equal memory: as Markdown, as CSV, as a PDF."""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from engram.app import runs
from engram.app.report import Estimate, Summary, differences, holm, summarise, value_text
from engram.app.report.tables import NOTHING, duration, markdown_table, spread
from engram.app.studies.study import Runs, Study
from engram.files import whole_file

if TYPE_CHECKING:
    from engram.lab.protocol import Spec

NOT_RUN = "not run"
_PASSES = {"gdumb": "epochs"}  # over what is remembered, of methods that take several
_OWN_POLICY = {"icarl": "herding"}
_METRICS = ("average_accuracy", "forgetting", "lca_10")
_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
_MARKERS = "osD^vPX"
_FACTS = "Mean ± population standard deviation over the seeds of the average accuracy in percent."


@dataclass(frozen=True)
class Cell:
    """One method with one memory on one benchmark, and its results if there are any.

    ``per_class`` is how many examples of each class of each task the memory holds; 0: it has none.
    """

    benchmark: str
    title: str
    method: str
    memory: str  # the policy, herding, or none
    per_class: int
    passes: int  # over an example: all take one, and some several over what is remembered
    seeds: int  # that are wanted
    summary: Summary | None = None
    chosen: Mapping[str, Any] | None = None  # on tuning tasks

    @property
    def name(self) -> str:
        """What the cell is called beside others of its benchmark."""
        return f"{self.method}, {self.memory}" if self.per_class else self.method

    @property
    def text(self) -> str:
        """The number, with how many seeds it is of where these are not yet all, or not run."""
        if self.summary is None:
            return NOT_RUN
        done = len(self.summary.rows)
        number = spread(self.summary.statistic("average_accuracy"), 2)
        return number if done >= self.seeds else f"{number} ({done} of {self.seeds} seeds)"


class Versus(NamedTuple):
    """A method beside another one with the same memory, seed by seed."""

    cell: Cell
    than: str
    difference: Estimate  # of the average accuracy, in points
    sure: bool = False  # after Holm's correction for all of a benchmark's


def cells(study: Study, rows: Sequence[runs.Row], choices: Sequence[runs.Choice]) -> list[Cell]:
    """Return the cells of a study's table in its order, each with its results.

    Results are those with the settings that the study's own search has chosen.
    """
    results, known = Results(rows, choices), dict[str, Cell]()
    for entry in study.runs:
        for place, spec in enumerate(entry.specs):
            trials = entry.trials[place] if entry.trials else ()
            cell = _cell(entry, spec)
            known.setdefault(f"{cell.benchmark} {cell.name} {cell.per_class}", cell)
            chosen = results.chosen(entry, trials)
            if chosen is None:
                continue
            summary = results.of(replace(spec, settings={**spec.settings, **chosen}))
            if summary is not None:
                known[f"{cell.benchmark} {cell.name} {cell.per_class}"] = replace(
                    cell, summary=summary, chosen=chosen
                )
    return list(known.values())


class Results:
    """Finished runs and what searches have chosen, whatever version of the data it was on."""

    def __init__(self, rows: Sequence[runs.Row], choices: Sequence[runs.Choice]) -> None:
        self._trained: dict[str, list[runs.Row]] = {}
        for row in rows:
            if row.identity.get("split", "training") == "training":
                self._trained.setdefault(_key(row.identity), []).append(row)
        self._chosen = {_key(choice.identity): choice.chosen for choice in choices}

    def chosen(self, entry: Runs, trials: Sequence[Spec]) -> Mapping[str, Any] | None:
        """Return what an entry's search has chosen: nothing without one, None if it has no end."""
        if not trials:
            return {}
        names = [name for name in entry.search if name in trials[0].settings]
        return self._chosen.get(_key(trials[0].description(), names))

    def of(self, spec: Spec) -> Summary | None:
        """Return the runs of a spec, if there are any."""
        alike = self._trained.get(_key(json.loads(runs.canonical(spec.description()))))
        return summarise(alike)[0] if alike else None


def _key(identity: Mapping[str, Any], without: Sequence[str] = ()) -> str:
    """Return what was run, whatever version of the data it was run on."""
    held = {name: value for name, value in identity.items() if name != "data"}
    given = held["settings"].items()
    held["settings"] = {name: value for name, value in given if name not in without}
    return runs.canonical(held)


def _cell(entry: Runs, spec: Spec) -> Cell:
    settings = spec.settings
    per_class = int(settings.get("memory_per_class", 0))
    own = str(settings.get("memory", _OWN_POLICY.get(spec.method, "its own")))
    passes = int(settings[_PASSES[spec.method]]) if spec.method in _PASSES else 1
    title = f"{entry.benchmark}, {spec.tasks} tasks of {spec.examples:,} examples"
    memory = own if per_class else "none"
    return Cell(entry.benchmark, title, spec.method, memory, per_class, passes, entry.seeds)


def against(found: Sequence[Cell], than: str = "er") -> list[Versus]:
    """Return every method beside another with the same memory, where both have shared seeds."""
    compared = list[Versus]()
    for cell in found:
        beside = next(
            (
                each
                for each in found
                if each.method == than
                and (each.benchmark, each.memory, each.per_class)
                == (cell.benchmark, cell.memory, cell.per_class)
            ),
            None,
        )
        if cell.method == than or beside is None or not (cell.summary and beside.summary):
            continue
        shared = differences(cell.summary, beside.summary)
        if len(shared) > 1:
            compared.append(Versus(cell, than, Estimate.over(shared)))
    sure = holm([each.difference.chance(0.0) for each in compared])
    return [each._replace(sure=one) for each, one in zip(compared, sure, strict=True)]


def markdown(found: Sequence[Cell]) -> str:
    """Return the table of each benchmark, with what was chosen, and its receipts."""
    blocks = list[str]()
    for benchmark in dict.fromkeys(cell.benchmark for cell in found):
        mine = [cell for cell in found if cell.benchmark == benchmark]
        done = sum(cell.summary is not None for cell in mine)
        blocks += [f"## {mine[0].title}", f"{done} of {len(mine)} cells were run.", _grid(mine)]
        blocks += [block for block in (_versus(mine), _receipts(mine)) if block]
    return "\n\n".join(blocks)


def _grid(found: Sequence[Cell]) -> str:
    sizes = sorted({cell.per_class for cell in found})
    lines: dict[str, dict[int, Cell]] = {}
    for cell in sorted(found, key=lambda cell: (cell.per_class > 0, cell.method, cell.memory)):
        lines.setdefault(cell.name, {})[cell.per_class] = cell
    body = []
    for cells_of in lines.values():
        first = next(iter(cells_of.values()))
        texts = [cells_of[size].text if size in cells_of else NOTHING for size in sizes]
        body.append([first.method, first.memory, str(first.passes), *texts])
    heads = [f"{size} a class" if size else "no memory" for size in sizes]
    return markdown_table(["method", "memory", "passes", *heads], body)


def _versus(found: Sequence[Cell]) -> str:
    compared = against(found)
    lines = [
        [
            each.cell.method,
            each.cell.memory,
            str(each.cell.per_class),
            str(each.difference.seeds),
            f"{each.difference.mean:+.2f}",
            f"[{each.difference.low:+.2f}, {each.difference.high:+.2f}]",
            "yes" if each.sure else "no",
        ]
        for each in compared
    ]
    if not lines:
        return ""
    header = ["method less ER", "memory", "a class", "seeds", "points", "95 % interval"]
    return markdown_table([*header, "beyond chance, all corrected"], lines)


def _receipts(found: Sequence[Cell]) -> str:
    lines = []
    for cell in found:
        if cell.summary is not None:
            chosen = (cell.chosen or {}).items()
            texts = " ".join(f"{name}={value_text(value)}" for name, value in chosen)
            size = str(cell.per_class) if cell.per_class else NOTHING
            receipt = [str(len(cell.summary.rows)), duration(cell.summary.seconds)]
            receipt += [cell.summary.machine, cell.summary.dates, cell.summary.address]
            lines.append([cell.name, size, texts or NOTHING, *receipt])
    header = ["method", "a class", "chosen on tuning tasks", "seeds", "seconds", "device", "date"]
    return markdown_table([*header, "address"], lines) if lines else ""


def as_csv(found: Sequence[Cell]) -> str:
    """Return a line for each cell, those that were not run included."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    numbers = [f"{name}_{kind}" for name in _METRICS for kind in ("mean", "std")]
    header = ["benchmark", "method", "memory", "per_class", "passes", "seeds_wanted", "seeds"]
    writer.writerow([*header, *numbers, "chosen", "seconds", "device", "date", "address"])
    for cell in found:
        about = [cell.benchmark, cell.method, cell.memory, cell.per_class, cell.passes, cell.seeds]
        if cell.summary is None:
            writer.writerow([*about, 0, *[""] * (len(numbers) + 5)])
            continue
        statistics = [cell.summary.statistic(name) for name in _METRICS]
        values = [
            "" if value is None else f"{value:.6g}"
            for each in statistics
            for value in ((None, None) if each is None else (each.mean, each.std))
        ]
        chosen = runs.canonical(dict(cell.chosen or {}))
        receipt = [f"{cell.summary.seconds:.4g}", cell.summary.machine, cell.summary.dates]
        seeds = len(cell.summary.rows)
        writer.writerow([*about, seeds, *values, chosen, *receipt, cell.summary.address])
    return text.getvalue()


def save_pdf(found: Sequence[Cell], path: Path) -> None:
    """Draw accuracy over the size of the memory, a panel for each benchmark with results.

    A reservoir's lines are whole and a ring's are dashed; what has no memory lies across.
    """
    from matplotlib import rc_context
    from matplotlib.backends.backend_pdf import FigureCanvasPdf
    from matplotlib.figure import Figure

    done = [cell for cell in found if cell.summary is not None]
    panels = list(dict.fromkeys(cell.benchmark for cell in done))
    methods = list(dict.fromkeys(cell.method for cell in done))
    sizes = sorted({each.per_class for each in done if each.per_class})
    with rc_context({"pdf.fonttype": 42, "font.size": 8}):
        figure = Figure(figsize=(max(3.4, 3.1 * len(panels)), 3.8), layout="constrained")
        FigureCanvasPdf(figure)
        for place, benchmark in enumerate(panels):
            axes = figure.add_subplot(1, len(panels), place + 1)
            lines = list(_lines(done, benchmark))
            for number, (method, memory, points) in enumerate(lines):
                which = methods.index(method)
                colour = _COLOURS[which % len(_COLOURS)]
                means, errors = [each[1] for each in points], [each[2] for each in points]
                if memory == "none":
                    axes.axhline(means[0], color=colour, linestyle=":", label=method)
                    continue
                aside = 0.5 * ((number + 0.5) / len(lines) - 0.5)  # so that no bar hides another
                axes.errorbar(
                    [sizes.index(each[0]) + aside for each in points],
                    means,
                    errors,
                    color=colour,
                    marker=_MARKERS[which % len(_MARKERS)],
                    linestyle="--" if memory == "ring" else "-",
                    fillstyle="none" if memory == "ring" else "full",
                    markersize=4,
                    capsize=2,
                    label=f"{method}, {memory}",
                )
            axes.set_xticks(range(len(sizes)), [str(size) for size in sizes])
            axes.set_xlim(-0.5, max(len(sizes), 1) - 0.5)
            title = next(each.title for each in done if each.benchmark == benchmark)
            axes.set_title(title.replace(", ", "\n", 1), fontsize=8)
            axes.set_xlabel("examples remembered of each class of each task")
            axes.set_ylabel("average accuracy, % (± standard error)")
            axes.legend(
                frameon=False,
                fontsize=6,
                loc="upper center",
                bbox_to_anchor=(0.5, -0.2),
                ncols=2,
            )
        with whole_file(path) as part:
            figure.savefig(part, format="pdf", metadata={"CreationDate": None})


def _lines(
    done: Sequence[Cell], benchmark: str
) -> Iterator[tuple[str, str, list[tuple[int, float, float]]]]:
    """Yield method, memory and the points of each line: size, mean and its standard error."""
    lines: dict[tuple[str, str], list[tuple[int, float, float]]] = {}
    for cell in done:
        assert cell.summary is not None
        number = cell.summary.statistic("average_accuracy")
        if cell.benchmark == benchmark and number is not None:
            count = len(cell.summary.rows)
            error = (number.std or 0.0) / math.sqrt(max(count - 1, 1))
            points = lines.setdefault((cell.method, cell.memory), [])
            points.append((cell.per_class, number.mean, error))
    for (method, memory), points in lines.items():
        yield method, memory, sorted(points)


def write_table(study: Study, store: runs.Store, folder: Path) -> list[Path]:
    """Write the table as Markdown, CSV and, if anything was run, PDF; return the files."""
    found = cells(study, store.rows(), store.choices())
    texts = {
        ".md": f"# {study.title}\n\n{_FACTS}\n\n{markdown(found)}\n",
        ".csv": as_csv(found),
    }
    written, name = list[Path](), Path(study.name).name  # of a study of one's own it is a path
    for ending, text in texts.items():
        written.append(folder / f"{name}{ending}")
        with whole_file(written[-1]) as part:
            part.write_text(text, "utf-8")
    if any(cell.summary is not None for cell in found):
        written.append(folder / f"{name}.pdf")
        save_pdf(found, written[-1])
    return written
