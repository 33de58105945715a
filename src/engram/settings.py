"""Settings of streams and methods: dataclasses whose fields carry their help and bounds."""

from __future__ import annotations

import dataclasses
import math
import typing
from collections.abc import Mapping
from typing import Any, Literal, get_args, get_origin

from engram.errors import EngramError, unknown

Scalar = int | float | str | bool | None


def setting(
    default: Any,  # noqa: ANN401 (a field's default is of the field's own type)
    help: str,
    *,
    least: float = -math.inf,
    above: float = -math.inf,
    most: float = math.inf,
) -> Any:  # noqa: ANN401
    """Declare a field: its default, one line of help, and what values are possible."""
    bounds = {"least": least, "above": above, "most": most}
    return dataclasses.field(default=default, metadata={"help": help, **bounds})


@dataclasses.dataclass(frozen=True)
class Settings:
    """A set of named values, each within its bounds. Fields have the paper's words for names."""

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            value, bounds = getattr(self, field.name), field.metadata
            if isinstance(value, bool | str | None):
                continue
            inside = bounds["least"] <= value <= bounds["most"] and value > bounds["above"]
            limit = 2**63 if isinstance(value, int) else math.inf  # an array's whole numbers
            if not (inside and abs(value) < limit):
                raise EngramError(f"{field.name} must be {_describe(bounds)}, not {value}.")

    def as_dict(self) -> dict[str, Scalar]:
        """Return all settings by name."""
        return dataclasses.asdict(self)


def parse(kind: type[Settings], texts: Mapping[str, str]) -> dict[str, Scalar]:
    """Turn ``key=value`` texts into values of the fields' types."""
    hints = typing.get_type_hints(kind)
    values = {}
    for name, text in texts.items():
        if name not in hints:
            raise unknown("setting", name, hints)
        values[name] = _value(name, text, hints[name])
    return values


def _value(name: str, text: str, kind: Any) -> Scalar:  # noqa: ANN401
    if get_origin(kind) is Literal:
        if text not in get_args(kind):
            raise unknown(f"value of {name}", text, get_args(kind))
        return text
    if kind is bool:
        if text.lower() not in ("true", "false"):
            raise EngramError(f"{name} must be true or false, not {text!r}.")
        return text.lower() == "true"
    try:
        value: int | float = kind(text)
    except ValueError:
        what = "a whole number" if kind is int else "a number"
        raise EngramError(f"{name} must be {what}, not {text!r}.") from None
    return value


def _describe(bounds: Mapping[str, Any]) -> str:
    parts = []
    if bounds["least"] > -math.inf:
        parts.append(f"at least {bounds['least']:g}")
    if bounds["above"] > -math.inf:
        parts.append(f"above {bounds['above']:g}")
    if bounds["most"] < math.inf:
        parts.append(f"at most {bounds['most']:g}")
    return " and ".join(["a finite number", *parts])
