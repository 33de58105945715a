"""What a run is, completely: everything that decides its numbers, apart from the seed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any, Literal, NamedTuple

from engram.errors import EngramError, unknown
from engram.methods import MethodSettings, method_entry
from engram.settings import Scalar, parse
from engram.streams import Benchmark
from engram.streams import benchmark as find_benchmark

_NUMERICS = 1  # raised when a change of the trainer or the engine changes the numbers


@dataclass(frozen=True)
class Spec:
    """A benchmark, a method and all settings. ``specify`` makes one and checks it."""

    benchmark: str
    method: str
    tasks: int
    examples: int  # at most, in each task
    settings: Mapping[str, Scalar] = field(default_factory=dict)  # complete
    split: Literal["training", "tuning"] = "training"

    def identity(self) -> dict[str, Any]:
        """Return what a result is filed under: the spec, the data, the versions of the numerics."""
        return asdict(self) | {
            "settings": {
                name: value
                for name, value in sorted(self.settings.items())
                if self._counts(name, value)
            },
            "data": find_benchmark(self.benchmark).checksum(self.stream_settings()),
            "numerics": [_NUMERICS, method_entry(self.method).numerics],
        }

    def _counts(self, name: str, value: Scalar) -> bool:
        """Whether a setting is part of what a result is filed under."""
        kinds = (method_entry(self.method).settings, find_benchmark(self.benchmark).settings)
        (mine,) = (item for kind in kinds for item in fields(kind) if item.name == name)
        marks = mine.metadata
        return not (marks["place"] or (marks["later"] and value == mine.default))

    def method_settings(self) -> MethodSettings:
        """Return the method's share of the settings."""
        chosen: MethodSettings = _pick(method_entry(self.method).settings, self.settings)
        return chosen

    def stream_settings(self) -> Any:  # noqa: ANN401 (each stream has its own)
        """Return the stream's share of the settings."""
        return _pick(find_benchmark(self.benchmark).settings, self.settings)


class SettingHelp(NamedTuple):
    """A setting that ``--set`` takes."""

    name: str
    value: Scalar
    help: str


def specify(
    benchmark: str,
    method: str,
    *,
    tasks: int | None = None,
    examples: int | None = None,
    overrides: Mapping[str, str] | None = None,
    split: Literal["training", "tuning"] = "training",
) -> Spec:
    """Return the spec with the paper's settings for this benchmark, less what is overridden."""
    stream, entry = find_benchmark(benchmark), method_entry(method)
    tasks = _tasks(stream, tasks, tuning=split == "tuning")
    examples = stream.most_examples if examples is None else examples
    if not 1 <= examples <= stream.most_examples:
        raise EngramError(
            f"examples must be from 1 to {stream.most_examples} for {benchmark}, not {examples}."
        )
    texts = dict(overrides or {})
    known = {item.name for kind in (entry.settings, stream.settings) for item in fields(kind)}
    for name in texts:
        if name not in known:
            raise unknown(f"setting of {method} on {benchmark}", name, known)
    mine = {item.name for item in fields(entry.settings)}
    values: dict[str, Any] = dict(entry.presets.get(benchmark, {}))
    values |= parse(entry.settings, {name: texts[name] for name in texts if name in mine})
    options: dict[str, Any] = parse(
        stream.settings, {name: texts[name] for name in texts if name not in mine}
    )
    chosen = entry.settings(**values)
    if chosen.batch_size > examples:
        raise EngramError(
            f"batch_size must be at most the {examples} examples of a task, "
            f"not {chosen.batch_size}."
        )
    settings = chosen.as_dict() | stream.settings(**options).as_dict()
    return Spec(benchmark, method, tasks, examples, settings, split)


def _tasks(stream: Benchmark, asked: int | None, *, tuning: bool) -> int:
    if asked is None:
        return stream.tuning_tasks if tuning else stream.paper_tasks
    if asked < 1:
        raise EngramError(f"tasks must be at least 1, not {asked}.")
    most = stream.tuning_tasks if tuning else stream.most_tasks
    if stream.most_tasks is not None and most is not None and asked > most:
        kind = "tuning tasks" if tuning else "tasks"
        raise EngramError(f"{kind} must be at most {most} for {stream.name}, not {asked}.")
    return asked


def settings_help(benchmark: str, method: str) -> list[SettingHelp]:
    """Return the settings that a method takes on a benchmark, with their values and meaning."""
    spec = specify(benchmark, method)
    kinds = (method_entry(method).settings, find_benchmark(benchmark).settings)
    return [
        SettingHelp(item.name, spec.settings[item.name], item.metadata["help"])
        for kind in kinds
        for item in fields(kind)
    ]


def _pick(kind: type[Any], values: Mapping[str, Scalar]) -> Any:  # noqa: ANN401
    return kind(**{item.name: values[item.name] for item in fields(kind)})
