"""How runs differ from the paper's own setting, and whether they may stand beside its numbers."""

from __future__ import annotations

import json
import shlex
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from engram.app.paper import Printed, printed, settings
from engram.app.report.stand_ins import data_name, is_other, short_data
from engram.app.report.summary import Setting, Summary
from engram.app.runs import canonical
from engram.errors import EngramError
from engram.plugins import loading_nothing

if TYPE_CHECKING:
    from engram.lab.protocol import Spec
    from engram.lab.settings import Scalar

PRECISION = "precision"  # in which a device multiplies: no setting of the paper's


class PaperDefaults:
    """Compares what was run with the paper's own setting, which ``specify`` returns.

    That is `engram.lab.protocol.specify`, given the names of a benchmark and a method.
    """

    def __init__(self, specify: Callable[[str, str], Spec]) -> None:
        self._specify = specify
        self._known: dict[tuple[str, str], Mapping[str, Any]] = {}

    def label(self, summary: Summary) -> str:
        """Return the name of one line that stands alone."""
        return self.labels([summary])[0]

    def labels(self, summaries: Sequence[Summary]) -> list[str]:
        """Return the name of each line of a table: ``mega-i epsilon=0.01``.

        It is the method's, with whatever is not as usual; on tuning tasks with all that is tried.
        What was run alike on two versions of the data is distinguished by their names.
        """
        labels = [self._label(summary, _tried(summary, summaries)) for summary in summaries]
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
        usual, given = _flat(self._preset(summary)), _flat(summary.identity)
        unusual = [f"{key}={given[key]}" for key in given if given[key] != usual.get(key)]
        return " ".join([summary.method, *unusual])

    def heading(self, summaries: Sequence[Summary]) -> tuple[str, list[str]]:
        """Return the title of a table and the names of its lines.

        What is unusual in the same way in every line is said once, in the title.
        """
        unusual = [set(self._unusual(summary, ())) for summary in summaries]
        common = sorted(set.intersection(*unusual)) if len(unusual) > 1 else []
        title = ", ".join([summaries[0].setting.title, *common])
        labels = [
            " ".join(word for word in label.split(" ") if word not in common)
            for label in self.labels(summaries)
        ]
        return title, labels

    def _label(self, summary: Summary, tried: Collection[str]) -> str:
        return " ".join([summary.method, *self._unusual(summary, tried)])

    def _unusual(self, summary: Summary, tried: Collection[str]) -> list[str]:
        given, usual = _flat(summary.identity), _flat(self._usual(summary))
        unusual = (key for key in given if key in tried or given[key] != usual.get(key))
        return [f"{key}={given[key]}" for key in unusual]

    def command(self, summary: Summary) -> str:
        """Return the command that trains these runs again, or that was typed to (`was_typed`)."""
        return (
            summary.rows[-1].command
            if was_typed(summary)
            else _again(summary, self._usual(summary))
        )

    def printed(self, summary: Summary, metric: str) -> Printed | None:
        """Return the paper's number if setting and data are the paper's own, else None.

        In which precision a device multiplies is no setting of the paper's. A listed stand-in has
        the paper's numbers beside it, as other data has not.
        """
        usual, given = self._usual(summary), summary.identity
        same = all(usual.get(key) == given.get(key) for key in ("tasks", "examples"))
        if not same or summary.setting.other or not _same_settings(usual, given):
            return None
        return printed(summary.setting.benchmark, summary.method, metric)

    def share(self, summary: Summary) -> float | None:
        """Return how much of the paper's own run this was, in examples, or None of another's."""
        usual, given = self._usual(summary), summary.identity
        if not usual or summary.setting.other or not _same_settings(usual, given):
            return None
        done, whole = (each["tasks"] * each["examples"] for each in (given, usual))
        return float(done / whole)

    def is_preset(self, summary: Summary) -> bool:
        """Say whether this is what the laboratory runs in this setting, in whatever precision."""
        usual, given = self._preset(summary), summary.identity
        return usual.get("examples") == given.get("examples") and _same_settings(usual, given)

    def distance(self, summary: Summary) -> tuple[int, int, bool]:
        """Return how many settings are not as the paper's nearest setting has them, and its rank.

        One that has a name of its own, such as 20 tasks of 200 examples, comes before what a
        benchmark usually is; at last, the precision that is usual before any other.
        """
        names = [*_preset_names(summary.setting), summary.setting.benchmark]
        usual = [_flat(self._usual_of(name, summary.method)) for name in names]
        given = _flat(summary.identity)
        apart = [{key for key in given if given[key] != each.get(key)} for each in usual]
        return min(
            (len(keys - {PRECISION}), rank, PRECISION in keys) for rank, keys in enumerate(apart)
        )

    def _preset(self, summary: Summary) -> Mapping[str, Any]:
        """Return what is usual where the setting has a name of its own, or else the benchmark."""
        names = [*_preset_names(summary.setting), summary.setting.benchmark]
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
            with loading_nothing():  # a result's names are nobody's order to run code
                spec = self._specify(benchmark, method)
        except EngramError:  # a result of another version's method: nothing is usual about it
            return {}
        usual: Mapping[str, Any] = json.loads(canonical(spec.description()))
        return usual


def representatives(summaries: Sequence[Summary], defaults: PaperDefaults) -> dict[str, Summary]:
    """Return the line that speaks for each method in one setting.

    It is the one with the fewest settings that are not the paper's; of these the one with most
    seeds.
    """
    chosen: dict[str, tuple[tuple[int, int, bool], int, Summary]] = {}
    for summary in summaries:
        rank = (defaults.distance(summary), -len(summary.rows))
        if summary.method not in chosen or rank < chosen[summary.method][:2]:
            chosen[summary.method] = (*rank, summary)
    return {method: entry[2] for method, entry in chosen.items()}


def was_typed(summary: Summary) -> bool:
    """Say whether there is no other command for these runs than the one that was typed.

    Where one's own data lies, other weights, or a plugin's or a network's file is no part of what a
    result is filed under.
    """
    data = data_name(summary.identity)
    return (
        is_other(data)
        or summary.identity.keys() & {"plugins", "network"} != set()
        or summary.setting.benchmark.endswith(f"-{data}")
    )


def value_text(value: Scalar) -> str:
    """Return a value as ``--set`` takes it.

    >>> value_text(True), value_text(1e-10), value_text(10.0)
    ('true', '1e-10', '10')
    """
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float) and float(f"{value:g}") == value:
        return f"{value:g}"
    return str(value)


def _same_settings(usual: Mapping[str, Any], given: Mapping[str, Any]) -> bool:
    """Whether both are of the same split, network and settings, whatever the precision."""
    ones, others = (
        {key: value for key, value in each.get("settings", {}).items() if key != PRECISION}
        for each in (usual, given)
    )
    rest = all(usual.get(name) == given.get(name) for name in ("split", "network"))
    return ones == others and rest


def _tried(summary: Summary, beside: Sequence[Summary]) -> set[str]:
    """Return the settings that a search varies: no value of theirs is usual where one is sought."""
    if summary.setting.split != "tuning":
        return set()
    given = _flat(summary.identity)
    others = [_flat(other.identity) for other in beside if other.method == summary.method]
    return {key for key in given if any(given[key] != other.get(key) for other in others)}


def _flat(identity: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings and whatever else is not in a table's own columns and headings."""
    apart = ("benchmark", "method", "tasks", "examples", "split", "data", "settings", "plugins")
    rest = {key: value for key, value in identity.items() if key not in apart}
    if "network" in rest:
        rest["network"] = network_label(rest["network"])
    plugins = {name: _short(source) for name, source in identity.get("plugins", {}).items()}
    return {**identity.get("settings", {}), **rest, **plugins}


def network_label(network: Mapping[str, Any]) -> str:
    """Return which network it was, in a word: its name, its version, its arguments.

    >>> network_label({"name": "Tiny", "source": "sha256:86c9b187451f", "arguments": {"width": 8}})
    'Tiny@86c9b187,width=8'
    >>> network_label({"name": "mlp", "source": "engram 1", "arguments": {}})
    'mlp'
    """
    source = str(network["source"])
    version = "" if source.startswith("engram ") else f"@{_short(source)}"
    arguments = (f"{name}={value}" for name, value in network["arguments"].items())
    return ",".join([f"{network['name']}{version}", *arguments])


def _short(source: str) -> str:
    """Return a plugin's digest or version in short, as one word.

    >>> _short("sha256:86c9b187451fddc7"), _short("engram-cagrad 1.0")
    ('86c9b187', 'engram-cagrad-1.0')
    """
    digest = source.removeprefix("sha256:")
    return "-".join(source.split()) if digest == source else digest[:8]


def _again(summary: Summary, usual: Mapping[str, Any]) -> str:
    """Return the command that trains these runs again, with today's presets."""
    given = summary.identity
    words = ["engram", "run", summary.setting.benchmark, summary.method]
    words += ["--seeds", str(max(row.seed for row in summary.rows) + 1)]
    for name in ("tasks", "examples"):
        if given[name] != usual.get(name):
            words += [f"--{name}", str(given[name])]
    for key, value in given["settings"].items():
        if value != usual.get("settings", {}).get(key):
            words += ["--set", f"{key}={value_text(value)}"]
    return shlex.join(words)


def _preset_names(setting: Setting) -> list[str]:
    """Return the names by which the paper's settings with so many tasks and examples are run.

    >>> _preset_names(Setting("permuted-mnist", 20, 200))
    ['permuted-mnist-200']
    """
    return [
        name
        for known in settings().values()
        if (known["tasks"], known.get("examples")) == (setting.tasks, setting.examples)
        and setting.benchmark in known["benchmarks"]
        for name in known["benchmarks"]
        if name != setting.benchmark
    ]
