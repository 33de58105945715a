"""What was run, told from what is usual, and whether it may stand beside the paper's numbers."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from engram.errors import EngramError
from engram.paper import Printed, printed
from engram.report._commands import again, was_typed
from engram.report._data_names import data_name, short_data
from engram.report._definitions import preset_names
from engram.report._identity import PRECISION, flat, same_settings, tried
from engram.report._summary import Summary
from engram.runs import canonical

if TYPE_CHECKING:
    from engram.runs import Laboratory


class Standard:
    """Tells what was run from what the laboratory has as the paper's own setting."""

    def __init__(self, laboratory: Laboratory) -> None:
        self._laboratory = laboratory
        self._known: dict[tuple[str, str], Mapping[str, Any]] = {}

    def label(self, summary: Summary) -> str:
        """Return the name of one line that stands alone."""
        return self.labels([summary])[0]

    def labels(self, summaries: Sequence[Summary]) -> list[str]:
        """Return the name of each line of a table: ``mega-i epsilon=0.01``.

        It is the method's, with whatever is not as usual; on tuning tasks with all that is tried.
        What was run alike on two versions of the data is told apart by their names.
        """
        labels = [self._label(summary, tried(summary, summaries)) for summary in summaries]
        data = [data_name(summary.identity) for summary in summaries]
        versions = Counter(label for label, _ in set(zip(labels, data, strict=True)))
        return [
            f"{label} data={short_data(name)}" if versions[label] > 1 else label
            for label, name in zip(labels, data, strict=True)
        ]

    def preset_label(self, summary: Summary) -> str:
        """Return the name of a line beside others of its setting, by the paper's name for that.

        What 20 tasks of 200 examples are run with, say, is usual there.
        """
        usual, given = flat(self._preset(summary)), flat(summary.identity)
        told = [f"{key}={given[key]}" for key in given if given[key] != usual.get(key)]
        return " ".join([summary.method, *told])

    def heading(self, summaries: Sequence[Summary]) -> tuple[str, list[str]]:
        """Return the title of a table and the names of its lines.

        What is unusual in the same way in every line is told once, in the title.
        """
        told = [set(self._told(summary, ())) for summary in summaries]
        common = sorted(set.intersection(*told)) if len(told) > 1 else []
        title = ", ".join([summaries[0].setting.title, *common])
        labels = [
            " ".join(word for word in label.split(" ") if word not in common)
            for label in self.labels(summaries)
        ]
        return title, labels

    def _label(self, summary: Summary, tried: Collection[str]) -> str:
        return " ".join([summary.method, *self._told(summary, tried)])

    def _told(self, summary: Summary, tried: Collection[str]) -> list[str]:
        given, usual = flat(summary.identity), flat(self._usual(summary))
        told = (key for key in given if key in tried or given[key] != usual.get(key))
        return [f"{key}={given[key]}" for key in told]

    def command(self, summary: Summary) -> str:
        """Return the command that trains these runs again, or that was typed to (`was_typed`)."""
        return (
            summary.rows[-1].command if was_typed(summary) else again(summary, self._usual(summary))
        )

    def printed(self, summary: Summary, metric: str) -> Printed | None:
        """Return the paper's number if setting and data are the paper's own, else None.

        In which precision a device multiplies is no setting of the paper's. A listed stand-in has
        the paper's numbers beside it, as other data has not.
        """
        usual, given = self._usual(summary), summary.identity
        same = all(usual.get(key) == given.get(key) for key in ("tasks", "examples"))
        if not same or summary.setting.other or not same_settings(usual, given):
            return None
        return printed(summary.setting.benchmark, summary.method, metric)

    def share(self, summary: Summary) -> float | None:
        """Return how much of the paper's own run this was, in examples, or None of another's."""
        usual, given = self._usual(summary), summary.identity
        if not usual or summary.setting.other or not same_settings(usual, given):
            return None
        done, whole = (each["tasks"] * each["examples"] for each in (given, usual))
        return float(done / whole)

    def is_preset(self, summary: Summary) -> bool:
        """Say whether this is what the laboratory runs in this setting, in whatever precision."""
        usual, given = self._preset(summary), summary.identity
        return usual.get("examples") == given.get("examples") and same_settings(usual, given)

    def strangeness(self, summary: Summary) -> tuple[int, int, bool]:
        """Return how many settings are not as the paper's nearest setting has them, and its rank.

        One that has a name of its own, such as 20 tasks of 200 examples, comes before what a
        benchmark usually is; at last, the precision that is usual before any other.
        """
        names = [*preset_names(summary.setting), summary.setting.benchmark]
        usual = [flat(self._usual_of(name, summary.method)) for name in names]
        given = flat(summary.identity)
        apart = [{key for key in given if given[key] != each.get(key)} for each in usual]
        return min(
            (len(keys - {PRECISION}), rank, PRECISION in keys) for rank, keys in enumerate(apart)
        )

    def _preset(self, summary: Summary) -> Mapping[str, Any]:
        """Return what is usual where the setting has a name of its own, or else the benchmark."""
        names = [*preset_names(summary.setting), summary.setting.benchmark]
        return self._usual_of(names[0], summary.method)

    def _usual(self, summary: Summary) -> Mapping[str, Any]:
        return self._usual_of(summary.setting.benchmark, summary.method)

    def _usual_of(self, benchmark: str, method: str) -> Mapping[str, Any]:
        key = benchmark, method
        if key not in self._known:
            self._known[key] = self._specified(*key)
        return self._known[key]

    def _specified(self, benchmark: str, method: str) -> Mapping[str, Any]:
        try:
            spec = self._laboratory.specify(benchmark, method)
        except EngramError:  # a result of another version's method: nothing is usual about it
            return {}
        usual: Mapping[str, Any] = json.loads(canonical(spec.description()))
        return usual
