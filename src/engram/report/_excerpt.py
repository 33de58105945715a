"""Lines of source code, found by the name of what they define."""

from __future__ import annotations

import ast
import re
import textwrap
from collections.abc import Sequence

from engram.errors import EngramError

_NOTE = re.compile(r"\s*# (noqa|type:|fmt:).*$")  # a word to a tool, not to a reader

Definition = ast.FunctionDef | ast.ClassDef


def excerpt(source: str, name: str, first: str = "", last: str = "") -> str:
    r"""Return a function's or a class's lines, without its docstring.

    ``name`` is as Python says it, ``Class.method``. With ``first`` and ``last``, only the lines
    from the one that begins with ``first`` to the next one that begins with ``last``.

    >>> print(excerpt("def f(x):\n    '''Say y.'''\n    y = x\n    return y\n", "f"))
    def f(x):
        y = x
        return y
    """
    found = _find(ast.parse(source), name)
    lines: list[str | None] = [_NOTE.sub("", line) for line in source.splitlines()]
    if ast.get_docstring(found) is not None:
        docstring = found.body[0]
        lines[docstring.lineno - 1 : docstring.end_lineno] = [None] * _height(docstring)
    start = min([found.lineno, *(decorator.lineno for decorator in found.decorator_list)])
    mine = [line for line in lines[start - 1 : found.end_lineno] if line is not None]
    if first or last:
        mine = _part(mine, name, first, last)
    return textwrap.dedent("\n".join(mine))


def _find(module: ast.Module, name: str) -> Definition:
    body: Sequence[ast.stmt] = module.body
    found: Definition | None = None
    for word in name.split("."):
        named = (node for node in body if isinstance(node, Definition) and node.name == word)
        found = next(named, None)
        if found is None:
            raise EngramError(f"there is no {name!r}.")
        body = found.body
    assert found is not None  # a name has a word
    return found


def _part(lines: Sequence[str], name: str, first: str, last: str) -> list[str]:
    start = _index(lines, 0, name, first)
    return list(lines[start : _index(lines, start, name, last) + 1])


def _index(lines: Sequence[str], start: int, name: str, beginning: str) -> int:
    for index in range(start, len(lines)):
        if lines[index].lstrip().startswith(beginning):
            return index
    raise EngramError(f"no line of {name!r} begins with {beginning!r}.")


def _height(node: ast.stmt) -> int:
    assert node.end_lineno is not None  # ast.parse has set it
    return node.end_lineno - node.lineno + 1
