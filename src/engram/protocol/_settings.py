"""What can be told on a benchmark, and what a method is told there unless somebody says else."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any, NamedTuple

from engram.errors import unknown
from engram.methods import Entry, method_entry
from engram.settings import Scalar, Settings, parse
from engram.streams import PRESETS, Benchmark, OwnBenchmark, Preset
from engram.streams import benchmark as find_benchmark


class SettingHelp(NamedTuple):
    """A setting that ``--set`` takes."""

    name: str
    value: Scalar
    help: str


def settings_help(benchmark: str, method: str) -> list[SettingHelp]:
    """Return the settings that a method takes on a benchmark, with their values and meaning."""
    preset = PRESETS.get(benchmark) if isinstance(benchmark, str) else None
    stream = find_benchmark(preset.benchmark if preset else benchmark)
    entry = method_entry(method)  # one's own data need not be read to tell
    tasks = preset.tasks if preset else stream.paper_tasks
    chosen = entry.settings(**usual(stream, entry, preset, tasks))
    values = chosen.as_dict() | stream.settings().as_dict()
    return [
        SettingHelp(item.name, values[item.name], item.metadata["help"])
        for kind in _kinds(stream, entry)
        for item in fields(kind)
    ]


def overridden(
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


def usual(stream: Benchmark, entry: Entry, preset: Preset | None, tasks: int) -> dict[str, Any]:
    """Return the values of a method's settings that a benchmark has of its own."""
    if isinstance(stream, OwnBenchmark):
        values = dict(entry.presets.get(stream.like, {}))
        values.pop("memory_size", None)  # which is for as many classes and tasks as the paper has
        return values
    known = {item.name for item in fields(entry.settings)}
    more = preset.settings(known, tasks) if preset else {}
    return {**entry.presets.get(stream.name, {}), **more}


def _kinds(stream: Benchmark, entry: Entry) -> tuple[type[Settings], type[Settings]]:
    return entry.settings, stream.settings
