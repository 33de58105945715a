"""What the user asks to be trained."""

from __future__ import annotations

import json
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from engram import runs
from engram.errors import EngramError, unknown

if TYPE_CHECKING:
    from engram.protocol import Spec


@dataclass(frozen=True)
class Request:
    """What the user asked to be trained."""

    benchmark: str
    methods: tuple[str, ...]
    seeds: int = 5
    tasks: int | None = None
    examples: int | None = None
    settings: tuple[str, ...] = ()
    device: str = "auto"

    @property
    def command(self) -> str:
        """The command that makes these numbers: without the store, which is somebody's own."""
        words = ["engram", "run", self.benchmark, *self.methods, "--seeds", str(self.seeds)]
        if self.tasks is not None:
            words += ["--tasks", str(self.tasks)]
        if self.examples is not None:
            words += ["--examples", str(self.examples)]
        for setting in self.settings:
            words += ["--set", setting]
        return shlex.join([*words, "--device", self.device])


def specify(request: Request, laboratory: runs.Laboratory) -> list[Spec]:
    """Return a spec for each method; a setting goes to the methods that know it."""
    for method in request.methods:
        if request.methods.count(method) > 1:
            raise EngramError(f"The method {method!r} is named twice.")
    settings = _parse(request.settings)
    known = {
        method: {item.name for item in laboratory.settings_help(request.benchmark, method)}
        for method in request.methods
    }
    for key in settings:
        if not any(key in names for names in known.values()):
            raise unknown("setting", key, set().union(*known.values()))
    return [
        laboratory.specify(
            request.benchmark,
            method,
            tasks=request.tasks,
            examples=request.examples,
            overrides={key: text for key, text in settings.items() if key in known[method]},
        )
        for method in request.methods
    ]


def list_settings(request: Request, laboratory: runs.Laboratory, *, as_json: bool = False) -> None:
    """Print the settings of each method with their values and meaning."""
    specs = specify(request, laboratory)
    if as_json:
        listed = [{"method": spec.method, "settings": dict(spec.settings)} for spec in specs]
        print(json.dumps({"benchmark": request.benchmark, "methods": listed}, indent=1))
        return
    for spec in specs:
        print(f"{spec.method} on {spec.benchmark}")
        for item in laboratory.settings_help(spec.benchmark, spec.method):
            value = f"{item.name}={spec.settings[item.name]}"
            print(f"  {value:<34} {item.help}")


def _parse(texts: Sequence[str]) -> dict[str, str]:
    settings: dict[str, str] = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not (key and equals):
            raise EngramError(f"--set takes KEY=VALUE, not {text!r}.")
        if key in settings:
            raise EngramError(f"--set gives {key!r} twice.")
        settings[key] = value
    return settings
