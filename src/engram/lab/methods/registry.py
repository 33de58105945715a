"""Methods by their names."""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from engram.errors import EngramError, shown, unknown
from engram.lab.methods.method import Method, MethodSettings, Setup
from engram.lab.methods.replay import PRESETS, Replay, ReplaySettings, boundless
from engram.lab.settings import Scalar, setting
from engram.plugins import Listed, Registry
from engram.rules import Rule
from engram.rules.rule import RULES


@dataclass(frozen=True)
class Entry:
    """A method by name: how to build it, its settings, and the paper's values by benchmark."""

    name: str
    build: Callable[[Setup, Any], Method]
    settings: type[MethodSettings]
    presets: Mapping[str, Mapping[str, Scalar]] = field(default_factory=dict)
    search: Mapping[str, Sequence[Scalar]] = field(default_factory=dict)  # the tuning grid
    joint: bool = False  # trains on the shuffled union of all tasks
    numerics: int = 1  # raised when a change of the code changes the numbers
    varies: tuple[str, ...] = ()  # the numbers in which runs of one stack may differ
    targets: tuple[str, ...] = ("classes",)  # the kinds that it can learn (`engram.lab.targets`)
    one_pass: bool = False  # notes something of every example in its single step
    boundless: Callable[[Any], bool] | None = None
    """Whether, with these settings, it needs not be told where tasks end; None: it needs to be."""


def always(settings: object) -> bool:  # noqa: ARG001
    """Whether a method needs not be told where tasks end: whatever its settings."""
    return True


# Of a method whose steps follow the gradients of whatever loss a stream has.
ALL_TARGETS = ("classes", "labels", "numbers")

# The grid that the paper's baselines were tuned on.
LEARNING_RATES = {"learning_rate": (0.3, 0.1, 0.03, 0.01, 0.003, 0.001, 3e-4, 1e-4)}


def _check(name: str, value: object) -> Entry:
    if not isinstance(value, Entry) or value.name != name:
        raise EngramError(f"The method {shown(name)} must be an Entry of that name.")
    return value


METHODS: Registry[Entry] = Registry("methods", "method", _check)


def register(entry: Entry) -> None:
    """Make a method known by its name; one that another module's method has is refused.

    Results are filed under the name, so two methods must not share it.
    """
    METHODS.add(entry.name, entry, module=entry.build.__module__)


def names() -> list[str]:
    """Return the names of the methods that come with Engram."""
    return sorted(METHODS.ours())


def listed() -> list[Listed]:
    """Return all methods, with those that plugins' rules make, and where each comes from."""
    ruled = [each for each in RULES.listed() if each.name not in RULES.ours()]
    return [*METHODS.listed(), *ruled]


def method_entry(name: str) -> Entry:
    """Return the method of that name, or an error that lists the valid ones.

    It is ours, a plugin's, or that of a plugin's rule: `Replay` with the rule.
    """
    if (entry := METHODS.find(name)) is not None:
        return entry
    if (rule := RULES.find(name)) is not None and name not in RULES.ours():
        return _of_rule(name, rule)
    foreign = set(RULES.names()) - set(RULES.ours())
    raise unknown("method", name, {*METHODS.names(), *foreign})


@cache
def _of_rule(name: str, rule: Any) -> Entry:  # noqa: ANN401 (a dataclass that is a Rule)
    """Return the method that mixes gradients by a rule, whose fields are settings of it."""
    own = [item for item in dataclasses.fields(rule) if item.init]
    taken = {item.name for item in dataclasses.fields(ReplaySettings)}
    for item in own:
        if item.name in taken:
            raise EngramError(
                f"The rule {name!r} has a field {item.name!r}, which is a setting of every method "
                "with a memory: it needs another name."
            )
    kinds = typing.get_type_hints(rule)

    def made(settings: Any) -> Rule:  # noqa: ANN401
        weighs: Rule = rule(**{item.name: getattr(settings, item.name) for item in own})
        return weighs

    def check(self: ReplaySettings) -> None:
        ReplaySettings.__post_init__(self)
        made(self)  # what the rule itself refuses

    def build(setup: Setup, settings: ReplaySettings) -> Replay:
        return Replay(setup, settings, setup.rule(settings, made))

    fields = [(item.name, kinds[item.name], _as_setting(name, item)) for item in own]
    settings = dataclasses.make_dataclass(
        f"{rule.__name__}Settings",
        fields,
        bases=(ReplaySettings,),
        namespace={"__post_init__": check, "__module__": rule.__module__},
        frozen=True,
    )

    def is_boundless(settings: ReplaySettings) -> bool:
        return made(settings).reference != "per task" and boundless(settings)

    numbers = tuple(item.name for item in own if kinds[item.name] is float)
    varies = ("learning_rate", *numbers)
    return Entry(
        name,
        build,
        settings,
        PRESETS,
        LEARNING_RATES,
        varies=varies,
        targets=ALL_TARGETS,
        boundless=is_boundless,
    )


def _as_setting(name: str, item: dataclasses.Field[Any]) -> Any:  # noqa: ANN401
    """Return a field of a rule as one of settings, with its help and bounds if it has any."""
    if item.default is dataclasses.MISSING:
        raise EngramError(f"The rule {name!r} must have a default for {item.name}.")
    return setting(item.default, **{"help": f"of the rule {name}", **item.metadata})
