"""What a run is, completely: everything that decides its numbers, apart from the seed.

Beside it: which runs can train as one stack, and how many of them are to.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import Field, asdict, dataclass, field, fields
from functools import cached_property
from typing import Any, Literal, NamedTuple, get_args

import torch
from torch import nn

from engram.errors import EngramError, shown, unknown
from engram.lab.benchmarks import (
    PRESETS,
    Benchmark,
    OwnBenchmark,
    OwnSettings,
    Preset,
    check_each_seed,
    check_tasks,
)
from engram.lab.benchmarks import benchmark as find_benchmark
from engram.lab.methods import Entry, MethodSettings, method_entry
from engram.lab.networks import NetworkSource, network_source
from engram.lab.settings import Scalar, Settings, check_whole, parse
from engram.plugins import REGISTRIES

_NUMERICS = 1  # raised when the trainer or the engine changes numbers by more than rounding
_NUMERICS_OF_PASSES = 2  # of tuning: 1 offered a memory the same examples in each pass
_MOST_PASSES = 100
_MOST_EXAMPLES = 2_500_000  # of a task, in all runs of a stack: two gigabytes of MNIST's

Split = Literal["training", "tuning"]


@dataclass(frozen=True)
class Spec:
    """A benchmark, a method and all settings. ``specify`` makes one and checks it."""

    benchmark: str
    method: str
    tasks: int
    examples: int  # at most, in each task
    settings: Mapping[str, Scalar] = field(default_factory=dict)  # complete
    split: Split = "training"
    passes: int = 1  # over the examples of each task
    network: NetworkSource | None = None  # None: the benchmark's own

    def __post_init__(self) -> None:
        for name in ("tasks", "examples", "passes"):
            check_whole(name, getattr(self, name))
        _check_name(self.split)
        most = _MOST_PASSES
        if self.split == "training":
            most = find_benchmark(self.benchmark).most_passes
        if most == 1 and self.passes != 1:
            raise EngramError(
                f"passes must be 1 on training tasks, as {self.benchmark} allows one, not "
                f"{self.passes}: several are for your own data, and for tuning."
            )
        if not 1 <= self.passes <= most:
            raise EngramError(f"passes must be from 1 to {most}, not {self.passes}.")

    def identity(self) -> dict[str, Any]:
        """Return what a result is filed under: the spec, the data, the versions of the numerics.

        The data is looked at when a spec is first asked, and never again.
        """
        return dict(self._identity)

    def plugins(self) -> dict[str, str]:
        """Return which plugins have a part in the numbers: a digest, or a version, of each.

        It is by kind and name, ``rules/mine``; where all is ours there are none.
        """
        named = [("methods", self.method), ("rules", self.method), ("benchmarks", self.benchmark)]
        for item in self._fields():
            if (kind := item.metadata["plugins"]) is not None:
                named.append((kind, str(self.settings[item.name]).partition(",")[0]))
        used = {f"{kind}/{name}": REGISTRIES[kind].identity(name) for kind, name in named}
        return {name: identity for name, identity in used.items() if identity}

    def check_data(self) -> None:
        """Refuse data that has been changed since the identity was first asked for, if it was.

        And plugins.
        """
        before = vars(self).get("_identity")
        if before and self.plugins() != before.get("plugins", {}):
            raise EngramError(
                f"A plugin that {self.method} on {self.benchmark} uses was changed after the "
                "command was given: give it again to run the plugin as it is now."
            )
        now = find_benchmark(self.benchmark).checksum(self.stream_settings()) if before else None
        if before and now != before["data"]:
            raise EngramError(
                f"The data of {self.benchmark} was changed after the command was given: give it "
                "again to run on the data as it is now."
            )
        if before:
            for name, value in self.settings.items():
                known = self._known_as(name, value)
                if known not in (value, before["settings"].get(name)):
                    raise EngramError(
                        f"The file of {name}, {str(value)!r}, was changed after the command was "
                        "given: give it again to run with the file as it is now."
                    )

    def check_network(self) -> None:
        """Refuse a network whose source has been changed since then."""
        if self.network is not None:
            self.network.check_source()

    def description(self) -> dict[str, Any]:
        """Return the identity less the data, which need not be there."""
        described = asdict(self) | {
            "settings": {
                name: self._known_as(name, value)
                for name, value in sorted(self.settings.items())
                if self._counts(name, value)
            },
            "numerics": [
                _NUMERICS_OF_PASSES if self.split == "tuning" and self.passes > 1 else _NUMERICS,
                method_entry(self.method).numerics,
            ],
        }
        if self.passes == 1:  # as it is in results from before there were more
            del described["passes"]
        del described["network"]
        if self.network is not None:
            described["network"] = self.network.identity
        return described | ({"plugins": used} if (used := self.plugins()) else {})

    @cached_property
    def _identity(self) -> dict[str, Any]:
        stream = find_benchmark(self.benchmark)
        identity = self.description() | {"data": stream.checksum(self.stream_settings())}
        if isinstance(stream, OwnBenchmark):  # it is found by its path, which does not matter
            identity["benchmark"] = stream.address(identity["data"])
        return identity

    def _counts(self, name: str, value: Scalar) -> bool:
        """Whether a setting is part of what a result is filed under."""
        (mine,) = (item for item in self._fields() if item.name == name)
        marks = mine.metadata
        return not (marks["place"] or (marks["later"] and value == mine.default))

    def _known_as(self, name: str, value: Scalar) -> Scalar:
        """Return a setting as a result is filed under it: of a file, what it holds."""
        (mine,) = (item for item in self._fields() if item.name == name)
        known_by: Callable[[Scalar], str] | None = mine.metadata["known_by"]
        return value if known_by is None or value == mine.default else known_by(value)

    def _fields(self) -> list[Field[Any]]:
        kinds = (method_entry(self.method).settings, find_benchmark(self.benchmark).settings)
        return [item for kind in kinds for item in fields(kind)]

    def method_settings(self) -> MethodSettings:
        """Return the method's share of the settings."""
        chosen: MethodSettings = _pick(method_entry(self.method).settings, self.settings)
        return chosen

    def stream_settings(self) -> Any:  # noqa: ANN401 (each stream has its own)
        """Return the stream's share of the settings."""
        return _pick(find_benchmark(self.benchmark).settings, self.settings)


def specify(
    benchmark: str,
    method: str,
    *,
    tasks: int | None = None,
    examples: int | None = None,
    overrides: Mapping[str, str] | None = None,
    split: Split = "training",
    passes: int = 1,
    network: str | Callable[..., nn.Module] | NetworkSource | None = None,
    network_arguments: Mapping[str, str | Scalar] | None = None,
) -> Spec:
    """Return the spec with the paper's settings for this benchmark, less what is overridden.

    A preset's name stands for a benchmark with tasks, examples and settings of its own. A
    ``network`` in the place of the benchmark's is given as `network_source` takes it.
    """
    source = None
    if network is not None:
        source = network_source(network, network_arguments)
    elif network_arguments:
        raise EngramError("network_arguments are those of a network, which must be given too.")
    if not isinstance(overrides, Mapping | None):
        raise EngramError(f"overrides must be texts by setting, not {shown(overrides)}.")
    _check_name(split)
    preset = PRESETS.get(benchmark) if isinstance(benchmark, str) else None
    if preset is not None:
        benchmark, examples = preset.benchmark, preset.examples if examples is None else examples
        tasks = preset.tasks if tasks is None and split == "training" else tasks
    stream, entry = find_benchmark(benchmark), method_entry(method)
    mine, others = _overridden(stream, entry, dict(overrides or {}))
    options = stream.settings(**others)
    if isinstance(stream, OwnBenchmark):
        _check_split(stream, split)
        _check_patience(options, passes)
        stream = stream.sized(options)
        _check_targets(entry, stream.kind(options))
    tasks = _tasks(stream, tasks, tuning=split == "tuning")
    examples = stream.most_examples if examples is None else examples
    check_whole("examples", examples)
    if not 1 <= examples <= stream.most_examples:
        raise EngramError(
            f"examples must be from 1 to {stream.most_examples} for {benchmark}, not {examples}."
        )
    chosen = entry.settings(**_usual(stream, entry, preset, tasks) | mine)
    if chosen.batch_size > examples:
        raise EngramError(
            f"batch_size must be at most the {examples} examples of a task, "
            f"not {chosen.batch_size}."
        )
    if entry.one_pass and passes > 1:
        raise EngramError(
            f"passes must be 1 for {entry.name}, which notes what the network answers in an "
            "example's single step."
        )
    if isinstance(options, OwnSettings) and options.patience and not chosen.plain_sgd:
        raise EngramError(
            "patience goes back to the weights of the best pass, which an optimiser's state does "
            "not: leave optimizer and schedule as they are, or patience."
        )
    if isinstance(options, OwnSettings) and options.boundaries == "none":
        _check_boundless(entry, chosen, passes)
    settings = chosen.as_dict() | options.as_dict()
    return Spec(benchmark, method, tasks, examples, settings, split, passes, source)


def _check_name(split: object) -> None:
    if not isinstance(split, str) or split not in get_args(Split):
        raise unknown("split", split, get_args(Split))


def _check_split(stream: OwnBenchmark, split: str) -> None:
    if split == "tuning":
        raise EngramError(
            f"{stream.name} has no tasks to tune on apart from those that it trains on: "
            "choose settings with --set, on data that you keep for it."
        )


def _check_patience(options: Settings, passes: int) -> None:
    if isinstance(options, OwnSettings) and options.patience and passes == 1:
        raise EngramError(
            f"patience ends a task before all of its passes are taken, and there is one: give "
            f"--passes more than {options.patience}."
        )


def _check_targets(entry: Entry, kind: str) -> None:
    if kind not in entry.targets:
        raise EngramError(
            f"{entry.name} learns {', '.join(entry.targets)} and no {kind}: take another method, "
            "er say."
        )


def _check_boundless(entry: Entry, chosen: MethodSettings, passes: int) -> None:
    if passes > 1:
        raise EngramError(
            "passes must be 1 without task boundaries (boundaries=none): a stream passes once."
        )
    if entry.boundless is None or not entry.boundless(chosen):
        raise EngramError(
            f"boundaries must be tasks for {entry.name} with these settings, which is told where "
            "a task ends: without boundaries take van, mer, or er, a-gem or mega with "
            "--set memory=reservoir (or fifo) and no max_age."
        )


def _tasks(stream: Benchmark, asked: int | None, *, tuning: bool) -> int:
    if asked is None:
        return stream.tuning_tasks if tuning else stream.paper_tasks
    check_tasks(asked)
    most = stream.tuning_tasks if tuning else stream.most_tasks
    if stream.most_tasks is not None and most is not None and asked > most:
        kind = "tuning tasks" if tuning else "tasks"
        raise EngramError(f"{kind} must be at most {most} for {stream.name}, not {asked}.")
    return asked


def _pick(kind: type[Any], values: Mapping[str, Scalar]) -> Any:  # noqa: ANN401
    return kind(**{item.name: values[item.name] for item in fields(kind)})


class SettingHelp(NamedTuple):
    """A setting that ``--set`` takes."""

    name: str
    value: Scalar
    help: str


def settings_help(benchmark: str, method: str) -> list[SettingHelp]:
    """Return the settings that a method takes on a benchmark, with their values and meaning."""
    preset = PRESETS.get(benchmark) if isinstance(benchmark, str) else None
    stream = find_benchmark(preset.benchmark if preset else benchmark)
    entry = method_entry(method)  # one's own data need not be read for this
    tasks = preset.tasks if preset else stream.paper_tasks
    chosen = entry.settings(**_usual(stream, entry, preset, tasks))
    values = chosen.as_dict() | stream.settings().as_dict()
    return [
        SettingHelp(item.name, values[item.name], item.metadata["help"])
        for kind in _kinds(stream, entry)
        for item in fields(kind)
    ]


def _overridden(
    stream: Benchmark, entry: Entry, texts: Mapping[str, str]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return what is overridden of the method's settings, and of the stream's."""
    mine, others = ({item.name for item in fields(kind)} for kind in _kinds(stream, entry))
    for name in texts:
        if name not in mine | others:
            raise unknown(f"setting of {entry.name} on {stream.name}", name, mine | others)
    return (
        dict(parse(entry.settings, {name: texts[name] for name in texts if name in mine})),
        dict(parse(stream.settings, {name: texts[name] for name in texts if name not in mine})),
    )


def _usual(stream: Benchmark, entry: Entry, preset: Preset | None, tasks: int) -> dict[str, Any]:
    """Return the values of a method's settings that a benchmark has of its own."""
    if stream.like is not None:
        values = dict(entry.presets.get(stream.like, {}))
        values.pop("memory_size", None)  # which is for as many classes and tasks as the paper has
        return values
    known = {item.name for item in fields(entry.settings)}
    more = preset.settings(known, tasks) if preset else {}
    return {**entry.presets.get(stream.name, {}), **more}


def _kinds(stream: Benchmark, entry: Entry) -> tuple[type[Settings], type[Settings]]:
    return entry.settings, stream.settings


def stacking(spec: Spec, device: str) -> tuple[int, str]:
    """Say up to how many runs of a spec are to train as one stack on a device, and why.

    They are runs of several seeds, or of several specs with one `stack_key`.
    """
    most = find_benchmark(spec.benchmark).stacks
    if most == 1 or torch.device(device).type != "cuda":
        return 1, f"a run of {spec.benchmark} keeps the device busy: runs go one by one"
    resident = max(1, _MOST_EXAMPLES // (spec.examples * spec.passes))
    if resident < most:
        return resident, "the examples of a task have to lie on the GPU for every run"
    return most, "a step leaves a GPU partly idle: runs side by side cost less than in a row"


def stack_key(spec: Spec) -> Hashable:
    """Return what the runs of one stack have in common: all but what the method lets differ."""
    return tuple(_compared(spec).items())


def one_each(spec: Spec | Sequence[Spec], seeds: Sequence[int]) -> list[Spec]:
    """Return the spec of every run, of which one may be given for all; refuse what cannot stack."""
    check_each_seed(seeds)
    if isinstance(spec, Spec):
        return [spec] * len(seeds)
    if not isinstance(spec, list | tuple) or not all(isinstance(each, Spec) for each in spec):
        raise EngramError(f"spec must be a Spec, or a list of them, not {shown(spec)}.")
    if len(spec) != len(seeds):
        raise EngramError(
            f"spec must be one for all runs or one for each of the {len(seeds)} seeds, "
            f"not {len(spec)} specs."
        )
    first = _compared(spec[0])
    for other in map(_compared, spec[1:]):
        for kind, name in {**first, **other}:
            if first.get((kind, name)) != other.get((kind, name)):
                varies = ", ".join(method_entry(spec[0].method).varies) or "their seeds"
                raise EngramError(
                    f"{name} must be the same in all runs of a stack, which may differ in {varies}."
                )
    return list(spec)


def differences(specs: Sequence[Spec], run: int) -> str:
    """Return a run's learning rate, and the other settings in which the runs of a stack differ."""
    names = dict.fromkeys(("learning_rate", *method_entry(specs[0].method).varies))
    settings = specs[run].settings
    return ", ".join(
        f"{name} {settings[name]:g}"
        for name in names
        if name == "learning_rate" or any(settings[name] != spec.settings[name] for spec in specs)
    )


def identities(specs: Sequence[Spec]) -> dict[str, Any]:
    """Return what a checkpoint says of its runs: one identity for all, or one for each as well."""
    every = [spec.identity() for spec in specs]
    alike = all(one == every[0] for one in every)
    return {"identity": every[0], **({} if alike else {"identities": every})}


def _compared(spec: Spec) -> dict[tuple[str, str], Hashable]:
    """Return all that must not differ, by whose it is (a setting may be called like a field)."""
    own = [item.name for item in fields(spec) if item.name != "settings"]
    varies = method_entry(spec.method).varies
    settings = [name for name in sorted(spec.settings) if name not in varies]
    return {
        **{("spec", name): getattr(spec, name) for name in own},
        **{("settings", name): spec.settings[name] for name in settings},
    }
