"""Numbers of one method over its seeds."""

from __future__ import annotations

import hashlib
import statistics
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from engram.report._data_names import data_name, is_other, short_data
from engram.report._measures import Statistic, measure
from engram.report._setting import Setting
from engram.report._stand_ins import StandIn, stand_in
from engram.runs import Row, canonical


@dataclass(frozen=True)
class Summary:
    """One method in one setting: its newest result for each seed."""

    rows: tuple[Row, ...]  # in the order of their seeds

    @property
    def identity(self) -> Mapping[str, Any]:
        """What was run, seeds aside."""
        return self.rows[0].identity

    @property
    def method(self) -> str:
        """The method's name."""
        return str(self.identity["method"])

    @property
    def setting(self) -> Setting:
        """Where the method was run."""
        names = ("benchmark", "tasks", "examples", "split")
        known = {name: self.identity[name] for name in names if name in self.identity}
        if self.stand_in:
            return Setting(**known, stand_in=self.stand_in.label)
        data = data_name(self.identity)
        return Setting(**known, other=short_data(data) if is_other(data) else "")

    @property
    def stand_in(self) -> StandIn | None:
        """What stands in for the benchmark's data, if it is a listed stand-in."""
        return stand_in(self.identity)

    @property
    def seconds(self) -> float:
        """Mean wall-clock seconds of a run."""
        return statistics.fmean(row.seconds for row in self.rows)

    @property
    def device(self) -> str:
        """The device, or all of them."""
        return ", ".join(sorted({row.device for row in self.rows}))

    @property
    def machine(self) -> str:
        """The device, or all of them, a CPU by its model where the runs tell it."""
        return ", ".join(sorted({_machine(row) for row in self.rows}))

    @property
    def dates(self) -> str:
        """The day of the runs, or the first and the last."""
        days = sorted({row.created[:10] for row in self.rows})
        return days[0] if len(days) == 1 else f"{days[0]} to {days[-1]}"

    @property
    def commands(self) -> list[str]:
        """What was typed to make the runs."""
        return list(dict.fromkeys(row.command for row in self.rows))

    @property
    def address(self) -> str:
        """Ten digits for these runs."""
        return set_address([self])

    @property
    def failures(self) -> dict[int, str]:
        """Why seeds have no numbers, for those that have none."""
        return {row.seed: row.outcome["failure"] for row in self.rows if row.outcome["failure"]}

    def statistic(self, metric: str) -> Statistic | None:
        """Return a metric over the seeds, in the paper's units, or None where it is undefined."""
        return Statistic.over([measure(row, metric) for row in self.rows])


def _machine(row: Row) -> str:
    return str(row.outcome["facts"].get("cpu", "cpu")) if row.device == "cpu" else row.device


def summarise(rows: Iterable[Row]) -> list[Summary]:
    """Group rows by what was run, in the order of appearance; later results replace earlier."""
    newest: dict[str, Row] = {}
    for row in rows:
        if row.address not in newest or newest[row.address].created <= row.created:
            newest[row.address] = row
    groups: dict[str, list[Row]] = {}
    for row in newest.values():
        groups.setdefault(canonical(row.identity), []).append(row)
    return [Summary(tuple(sorted(group, key=lambda row: row.seed))) for group in groups.values()]


def by_setting(summaries: Iterable[Summary]) -> dict[Setting, list[Summary]]:
    """Gather the methods that can be compared, in the order of appearance."""
    gathered: dict[Setting, list[Summary]] = {}
    for summary in summaries:
        gathered.setdefault(summary.setting, []).append(summary)
    return gathered


def by_data(summaries: Iterable[Summary]) -> list[list[Summary]]:
    """Gather what was run on the same data: stand-ins last, and what has more runs first."""
    gathered: dict[tuple[str, str], list[Summary]] = {}
    for summary in summaries:
        key = summary.setting.stand_in, data_name(summary.identity)
        gathered.setdefault(key, []).append(summary)
    runs = {key: sum(len(each.rows) for each in alike) for key, alike in gathered.items()}
    return [gathered[key] for key in sorted(gathered, key=lambda key: (key[0], -runs[key], key))]


def set_address(summaries: Iterable[Summary]) -> str:
    """Return ten digits for a set of results: sha256 of their addresses, sorted, one a line."""
    addresses = sorted(row.address for summary in summaries for row in summary.rows)
    return hashlib.sha256("\n".join(addresses).encode()).hexdigest()[:10]
