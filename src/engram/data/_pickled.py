"""The plain values in a pickle of Python 2, read without unpickling anything.

A pickle is a program. Here its instructions are listed by `pickletools`, which runs none of them,
and those that build plain values are followed; a class or function that the pickle names stays a
name, and a call of it stays a record of the call. Any other instruction or name is refused.
Byte strings come out as text, a letter a byte.
"""

from __future__ import annotations

import pickletools
from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from engram.errors import EngramError


class Name(NamedTuple):
    """A class or function that a pickle names."""

    text: str  # "module name"


@dataclass
class Call:
    """What a pickle would have called, and the state it would have given to the result."""

    function: object
    arguments: object
    state: object = None


def read_pickle(path: Path, names: Collection[str]) -> dict[object, object]:
    """Return the dictionary in a pickle: plain values, and calls of those names alone."""
    machine = _Machine(names)
    try:
        # Its bytes: of an open file, room is made for any length that an instruction claims.
        for opcode, argument, _ in pickletools.genops(path.read_bytes()):
            machine.follow(opcode.name, argument)
        (value,) = machine.stack
        if isinstance(value, dict):
            return value
    except OSError as error:
        raise EngramError(f"{str(path)!r} cannot be read: {error.strerror}.") from error
    except (ValueError, LookupError, TypeError, AttributeError, OverflowError) as error:
        reason = str(error).split("\n")[0]
        raise EngramError(f"{str(path)!r} is not a pickle of plain values: {reason}.") from error
    raise EngramError(f"{str(path)!r} is a pickle, but not one of a dictionary.")


_MARK = Name("mark")
_ENCODE = "_codecs encode"  # how Python 3 writes a byte string for Python 2


class _Machine:
    """The stack and the memo of a pickle; follows one instruction at a time."""

    def __init__(self, names: Collection[str]) -> None:
        self.stack: list[Any] = []
        self._names = names
        self._memo: dict[int, Any] = {}

    def follow(self, name: str, argument: Any) -> None:  # noqa: ANN401 (an instruction's own)
        if name in _VALUES:
            self.stack.append(argument)
        elif name in ("BINPUT", "LONG_BINPUT"):
            self._memo[argument] = self.stack[-1]
        elif name in ("BINGET", "LONG_BINGET"):
            self.stack.append(self._memo[argument])
        elif name == "GLOBAL" and argument in (_ENCODE, *self._names):
            self.stack.append(Name(argument))
        elif name in _CONSTANTS:
            self.stack.append(_CONSTANTS[name]())
        elif name in _STEPS:
            _STEPS[name](self)
        elif name not in ("PROTO", "STOP"):
            what = name if argument is None else f"{name} {argument!r:.80}"
            raise ValueError(f"it has the instruction {what}")

    def take(self, count: int) -> tuple[Any, ...]:
        if len(self.stack) < count:
            raise ValueError("its stack is empty")
        return tuple(self.stack.pop() for _ in range(count))[::-1]

    def since_mark(self) -> tuple[Any, ...]:
        for depth, value in enumerate(reversed(self.stack)):
            if value is _MARK:
                return self.take(depth + 1)[1:]
        raise ValueError("it has no mark")

    def tuple_of(self, count: int) -> None:
        self.stack.append(self.take(count))

    def extend(self, values: tuple[Any, ...]) -> None:
        self.stack[-1].extend(values)

    def fill(self, values: tuple[Any, ...]) -> None:
        names = values[::2]
        if not all(isinstance(name, str) for name in names):  # a deep tuple's hash ends the process
            raise ValueError("it has a name that is no text")
        self.stack[-1].update(zip(names, values[1::2], strict=True))

    def call(self) -> None:
        function, arguments = self.take(2)
        if function == Name(_ENCODE) and arguments[1:] == ("latin1",):
            self.stack.append(arguments[0])
        else:
            self.stack.append(Call(function, arguments))

    def build(self) -> None:
        (state,) = self.take(1)
        if not isinstance(self.stack[-1], Call):
            raise ValueError("it gives a state to a plain value")
        self.stack[-1].state = state


_VALUES = {"BININT", "BININT1", "BININT2", "SHORT_BINSTRING", "BINSTRING", "BINUNICODE"}
_CONSTANTS: dict[str, Callable[[], object]] = {
    "EMPTY_DICT": dict,
    "EMPTY_LIST": list,
    "EMPTY_TUPLE": tuple,
    "MARK": lambda: _MARK,
    "NONE": lambda: None,
    "NEWTRUE": lambda: True,
    "NEWFALSE": lambda: False,
}
_STEPS: dict[str, Callable[[_Machine], None]] = {
    "APPEND": lambda machine: machine.extend(machine.take(1)),
    "APPENDS": lambda machine: machine.extend(machine.since_mark()),
    "SETITEM": lambda machine: machine.fill(machine.take(2)),
    "SETITEMS": lambda machine: machine.fill(machine.since_mark()),
    "TUPLE": lambda machine: machine.stack.append(machine.since_mark()),
    "TUPLE1": lambda machine: machine.tuple_of(1),
    "TUPLE2": lambda machine: machine.tuple_of(2),
    "TUPLE3": lambda machine: machine.tuple_of(3),
    "REDUCE": lambda machine: machine.call(),
    "BUILD": lambda machine: machine.build(),
}
