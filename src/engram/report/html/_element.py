"""HTML elements that cannot be broken by what they hold."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape

_EMPTY = {"meta", "br"}  # elements that have no end


class Markup(str):
    """HTML as it goes into the page: whatever came from outside has been escaped in it."""

    __slots__ = ()


def element(name: str, /, *children: object, **attributes: str | bool | None) -> Markup:
    """Return an element with its children; every text that is not Markup is escaped.

    An underscore in an attribute's name stands for a hyphen, one at the end for nothing. An
    attribute that is True has no value; one that is None or False is left out.

    >>> element("a", "<b>", class_="x", data_method='"', hidden=True)
    '<a class="x" data-method="&quot;" hidden>&lt;b&gt;</a>'
    """
    opening = "".join(
        f" {key.rstrip('_').replace('_', '-')}" + ("" if value is True else f'="{escape(value)}"')
        for key, value in attributes.items()
        if value is not None and value is not False
    )
    ending = "" if name in _EMPTY else f"{fragment(*children)}</{name}>"
    return Markup(f"<{name}{opening}>{ending}")


def fragment(*children: object) -> Markup:
    """Return children one after another: texts escaped, Markup as it is, None left out.

    >>> fragment("a & b", [element("br"), None])
    'a &amp; b<br>'
    """
    return Markup("".join(_shown(child) for child in children))


def _shown(child: object) -> str:
    if child is None:
        return ""
    if isinstance(child, Markup):
        return child
    if isinstance(child, str):
        return escape(child)
    if isinstance(child, Iterable):
        return fragment(*child)
    raise TypeError(f"{child!r} is not a text")
