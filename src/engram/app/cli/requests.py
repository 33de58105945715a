"""What the user asks to be trained."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from engram.app.cli.choices import TunedSettings
from engram.app.cli.console import print_json
from engram.app.cli.options import parse_settings
from engram.app.terminal import one_line
from engram.errors import EngramError, unknown
from engram.lab import protocol

if TYPE_CHECKING:
    from engram.lab.networks import NetworkSource
    from engram.lab.protocol import Spec


@dataclass(frozen=True)
class Request:
    """What the user asked to be trained; ``tuned`` is the store whose choices are to be used."""

    benchmark: str
    methods: tuple[str, ...]
    seeds: int = 5
    tasks: int | None = None
    examples: int | None = None
    settings: tuple[str, ...] = ()
    device: str = "auto"
    tuned: Path | None = None
    record_every: int = 0  # what every so many steps are made of is recorded; 0: of none
    deterministic: bool = False
    plugins: tuple[str, ...] = ()
    passes: int = 1
    network: str | None = None
    network_settings: tuple[str, ...] = ()

    @property
    def command(self) -> str:
        """The command that makes these numbers: without the store, which is somebody's own."""
        more = [] if self.passes == 1 else ["--passes", str(self.passes)]
        more += [] if self.tuned is None else ["--tuned"]
        more += ["--record", "steps"] if self.record_every else []
        more += ["--record-every", str(self.record_every)] if self.record_every > 1 else []
        more += ["--deterministic"] if self.deterministic else []
        return _command_line("run", self, self.methods, more)


@dataclass(frozen=True)
class TuningRequest:
    """What the user asked to be tuned."""

    benchmark: str
    method: str
    seeds: int = 3
    tasks: int | None = None
    examples: int | None = None
    passes: int = 1
    settings: tuple[str, ...] = ()
    device: str = "auto"
    deterministic: bool = False
    plugins: tuple[str, ...] = ()
    network: str | None = None
    network_settings: tuple[str, ...] = ()

    @property
    def command(self) -> str:
        """The command that makes this choice."""
        more = [] if self.passes == 1 else ["--passes", str(self.passes)]
        more += ["--deterministic"] if self.deterministic else []
        return _command_line("tune", self, (self.method,), more)


def _command_line(
    verb: str, request: Request | TuningRequest, methods: Sequence[str], more: Sequence[str]
) -> str:
    """Return what is typed for a request, with all that decides its numbers."""
    words = ["engram", verb, request.benchmark, *methods, "--seeds", str(request.seeds)]
    if request.tasks is not None:
        words += ["--tasks", str(request.tasks)]
    if request.examples is not None:
        words += ["--examples", str(request.examples)]
    words += more
    for file in request.plugins:
        words += ["--plugin", file]
    words += network_words(request.network, request.network_settings)
    for setting in request.settings:
        words += ["--set", setting]
    return shlex.join([*words, "--device", request.device])


def network_words(network: str | None, settings: Sequence[str]) -> list[str]:
    """Return what is typed for a network and the arguments that it is made with."""
    words = [] if network is None else ["--network", network]
    return words + [word for setting in settings for word in ("--network-set", setting)]


def network_given(network: str | None, settings: Sequence[str]) -> NetworkSource | None:
    """Return the network that was typed, or None for the benchmark's own."""
    arguments = parse_settings(settings, "--network-set")
    if network is None:
        if arguments:
            raise EngramError("--network-set is an argument of a network: give --network too.")
        return None
    return protocol.network_source(network, arguments)


def specify(request: Request) -> list[Spec]:
    """Return a spec for each method; a setting goes to the methods that know it."""
    _check_methods(request.methods)
    settings = parse_settings(request.settings)
    known = {
        method: {item.name for item in protocol.settings_help(request.benchmark, method)}
        for method in request.methods
    }
    for key in settings:
        if not any(key in names for names in known.values()):
            raise unknown("setting", key, set().union(*known.values()))
    given = {
        method: {key: text for key, text in settings.items() if key in known[method]}
        for method in request.methods
    }
    specs = [_specify(request, method, given[method]) for method in request.methods]
    if request.tuned is None:
        return specs
    tuned = TunedSettings(request.benchmark, request.tuned)
    return [
        _specify(request, method, tuned.texts(spec, given[method]) | given[method])
        for method, spec in zip(request.methods, specs, strict=True)
    ]


def _specify(request: Request, method: str, overrides: Mapping[str, str]) -> Spec:
    return protocol.specify(
        request.benchmark,
        method,
        tasks=request.tasks,
        examples=request.examples,
        overrides=overrides,
        passes=request.passes,
        network=network_given(request.network, request.network_settings),
    )


def list_settings(request: Request, *, as_json: bool = False) -> None:
    """Print the settings of each method with their values and meaning.

    Where nothing is given they are the usual ones, for which one's own data need not be read: what
    it must be given, such as a table's target, is in the list.
    """
    _check_methods(request.methods)
    helps = {
        method: protocol.settings_help(request.benchmark, method) for method in request.methods
    }
    values = {method: {item.name: item.value for item in helps[method]} for method in helps}
    if request.settings or {request.tuned, request.tasks, request.examples} != {None}:
        values = {spec.method: dict(spec.settings) for spec in specify(request)}
    if as_json:
        listed = [{"method": method, "settings": values[method]} for method in values]
        print_json({"benchmark": request.benchmark, "methods": listed})
        return
    for method, items in helps.items():
        print(f"{method} on {one_line(request.benchmark)}")
        for item in items:
            value = one_line(f"{item.name}={values[method][item.name]}")
            print(f"  {value:<34} {item.help}")


def _check_methods(methods: Sequence[str]) -> None:
    for method in methods:
        if methods.count(method) > 1:
            raise EngramError(f"The method {method!r} is named twice.")
