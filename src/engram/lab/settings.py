"""Settings of streams and methods: dataclasses whose fields carry their help and bounds."""

from __future__ import annotations

import dataclasses
import math
import typing
from collections.abc import Callable, Mapping
from typing import Any, Literal, get_args, get_origin

from engram.errors import EngramError, shown, unknown

Scalar = int | float | str | bool

_MOST = 2**31  # more than anything that is counted here, and room in every array


def setting(
    default: Any,  # noqa: ANN401 (a field's default is of the field's own type)
    help: str,
    *,
    least: float = -math.inf,
    above: float = -math.inf,
    most: float = math.inf,
    later: bool = False,
    place: bool = False,
    check: Callable[[str], object] | None = None,
    plugins: str | None = None,
    known_by: Callable[[str], str] | None = None,
) -> Any:  # noqa: ANN401
    """Declare a field: its default, one line of help, and what values are possible.

    ``later`` marks a field that results already in stores do not have. Where it has its default,
    it is no part of what a result is filed under, so that they are still found. ``place`` marks
    one that only says where something lies: what lies there counts, by its checksum. ``check``
    refuses a text in an EngramError. Where what comes before a comma in it may name a thing of a
    plugin's, ``plugins`` is the kind of thing (see `engram.plugins.KINDS`). Of a text other than
    the default ``known_by`` returns what a result is filed under in its place: a file's checksum.
    """
    bounds = {"least": least, "above": above, "most": most}
    marks = {"help": help, "later": later, "place": place, "check": check, "plugins": plugins}
    marks["known_by"] = known_by
    return dataclasses.field(default=default, metadata=marks | bounds)


def other_default(kind: type[Settings], name: str, default: Any) -> Any:  # noqa: ANN401
    """Declare a field of another class of settings again, with a default of its own."""
    (held,) = (item for item in dataclasses.fields(kind) if item.name == name)
    return dataclasses.field(default=default, metadata=held.metadata)


@dataclasses.dataclass(frozen=True)
class Settings:
    """A set of named values, each of its field's type and within its bounds.

    Fields have the paper's words for names.
    """

    def __post_init__(self) -> None:
        hints = typing.get_type_hints(type(self))
        for field in dataclasses.fields(self):
            value, bounds = getattr(self, field.name), field.metadata
            if not _fits(value, hints[field.name]):
                raise _misfit(field.name, value, hints[field.name])
            if isinstance(value, str) and (check := field.metadata["check"]) is not None:
                check(value)
            if isinstance(value, bool | str):
                continue
            inside = bounds["least"] <= value <= bounds["most"] and value > bounds["above"]
            whole = isinstance(value, int)
            if not (inside and abs(value) < (_MOST if whole else math.inf)):
                wanted, given = _describe(bounds, whole), shown(value)
                raise EngramError(f"{field.name} must be {wanted}, not {given}.")

    def as_dict(self) -> dict[str, Scalar]:
        """Return all settings by name."""
        return dataclasses.asdict(self)


def check_whole(name: str, value: object) -> None:
    """Refuse what is not a whole number."""
    if not isinstance(value, int) or isinstance(value, bool):
        raise EngramError(f"{name} must be a whole number, not {shown(value)}.")


def parse(kind: type[Settings], texts: Mapping[str, str]) -> dict[str, Scalar]:
    """Turn ``key=value`` texts into values of the fields' types."""
    hints = typing.get_type_hints(kind)
    values = {}
    for name, text in texts.items():
        if name not in hints:
            raise unknown("setting", name, hints)
        if not isinstance(text, str):
            raise EngramError(f"{name} must be given as a text, not {shown(text)}.")
        values[name] = _value(name, text, hints[name])
    return values


def _value(name: str, text: str, kind: Any) -> Scalar:  # noqa: ANN401
    if kind in (int, float):
        try:
            number: int | float = kind(text)
        except ValueError:
            raise _misfit(name, text, kind) from None
        return number
    value = {"true": True, "false": False}.get(text.lower(), text) if kind is bool else text
    if not _fits(value, kind):
        raise _misfit(name, text, kind)
    return value


def _fits(value: object, kind: Any) -> bool:  # noqa: ANN401
    if get_origin(kind) is Literal:
        return isinstance(value, str) and value in get_args(kind)
    if isinstance(value, bool):  # which Python takes for a whole number
        return kind is bool
    return isinstance(value, int | float if kind is float else kind)


def _misfit(name: str, value: object, kind: Any) -> EngramError:  # noqa: ANN401
    if get_origin(kind) is Literal:
        return unknown(f"value of {name}", str(value), get_args(kind))
    what = {bool: "true or false", int: "a whole number", float: "a number", str: "a text"}[kind]
    return EngramError(f"{name} must be {what}, not {shown(value)}.")


def _describe(bounds: Mapping[str, Any], whole: bool) -> str:
    parts = ["a whole number below 2^31" if whole else "a finite number"]
    if bounds["least"] > -math.inf:
        parts.append(f"at least {bounds['least']:g}")
    if bounds["above"] > -math.inf:
        parts.append(f"above {bounds['above']:g}")
    if bounds["most"] < math.inf:
        parts.append(f"at most {bounds['most']:g}")
    return " and ".join(parts)
