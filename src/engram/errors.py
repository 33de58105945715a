"""The one error a user's mistake raises."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Sequence

_MOST = 399  # characters of a sentence
_ENDS = 120  # of which so many are kept of its end, where it has to be cut
_VALUE = 60  # characters of a value that is quoted in one


class EngramError(ValueError):
    r"""A mistake in what the user gave, told in one sentence.

    The command line prints the sentence alone; everywhere else it is an ordinary ``ValueError``.
    Whatever the sentence quotes, it is one printable line of fewer than 400 characters: what is
    longer loses its middle.

    >>> print(EngramError("name must be plain, not 'a\n\x1b[2Jb'."))
    name must be plain, not 'a \x1b[2Jb'.
    """

    def __init__(self, sentence: object) -> None:
        super().__init__(_cut(on_one_line(str(sentence)), _MOST, _ENDS))


def shown(value: object) -> str:
    """Return a value as a sentence can quote it: its ``repr``, short and on one line.

    >>> shown("one"), shown("x" * 1000)[-3:]
    ("'one'", "xx'")
    """
    try:
        text = repr(value)
    except Exception:  # whatever it is, the mistake is another one
        if isinstance(value, int):  # Python refuses to write very long ones
            return f"an integer of {value.bit_length()} bits"
        name = type(value).__name__
        text = f"{'an' if name[:1].lower() in 'aeiou' else 'a'} {name}"
    return _cut(on_one_line(text), _VALUE, _VALUE // 3)


def unknown(kind: str, name: object, valid: Iterable[str]) -> EngramError:
    """Return the error for a name that nobody knows, with the nearest match and all valid ones.

    >>> print(unknown("method", "MEGA2", ["mega-i", "mega-ii"]))
    There is no method 'MEGA2' (did you mean 'mega-ii'?); valid are mega-i, mega-ii.
    """
    names = sorted(valid)
    near = _nearest(name[:_MOST] if isinstance(name, str) else "", names)
    hint = f" (did you mean {near!r}?)" if near else ""
    rest = f"valid are {', '.join(names)}" if names else "there are none"
    return EngramError(f"There is no {kind} {shown(name)}{hint}; {rest}.")


def _nearest(text: str, names: Sequence[str]) -> str | None:
    """Return what was written another way, else what looks alike, else what has it as a word."""
    alike = [name for name in names if _sound(name) == _sound(text)]
    alike += difflib.get_close_matches(text, names, n=1, cutoff=0.5)
    alike += [name for name in names if text in re.split("[-_]", name)]
    return alike[0] if text and alike else None


def _sound(name: str) -> str:
    """Return a name without what people leave out or change: case, hyphens, 2 or II."""
    return re.sub("[-_ ]", "", name.lower()).replace("2", "ii").replace("1", "i")


def on_one_line(text: str) -> str:
    """Return a text as a terminal may show it: on one line, with nothing that is not printed."""
    joined = re.sub(r"\s*[\r\n]\s*", " ", text)
    return "".join(each if each.isprintable() else repr(each)[1:-1] for each in joined)


def _cut(text: str, most: int, ends: int) -> str:
    return text if len(text) <= most else f"{text[: most - ends - 1]}…{text[-ends:]}"
