"""Settings as a reader types them."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from engram.settings import Scalar


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
