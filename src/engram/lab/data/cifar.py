"""CIFAR-100 in its two official forms: binary records, and pickles of Python 2.

A pickle is a program, and none is run here. Its instructions are listed by `pickletools`, and those
that build plain values are followed; a class or function that the pickle names stays a name, and a
call of it stays a record of the call. Any other instruction or name is refused. Byte strings come
out as text, a letter a byte.
"""

from __future__ import annotations

import pickletools
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from engram.errors import EngramError
from engram.lab.data.images import Decoded, Layout

_PIXELS = 3 * 32 * 32
_RECORD = 2 + _PIXELS  # coarse label, fine label, then the red, green and blue planes
_CLASSES = 100
_AT_ONCE = 10_000  # images
_ARRAYS = ("numpy.core.multiarray _reconstruct", "numpy._core.multiarray _reconstruct")
_DTYPE = "numpy dtype"
_NAMES = {*_ARRAYS, "numpy ndarray", _DTYPE}  # that a pickle may have


class _Part(NamedTuple):
    images: np.ndarray  # uint8 [N, 3072]
    labels: np.ndarray  # int64 [N], the fine ones


def binary_layout(folder: Path) -> Layout:
    """Return the layout of ``cifar-100-binary``: train.bin and test.bin."""
    names = folder / "fine_label_names.txt"
    files = (folder / "train.bin", folder / "test.bin")

    def decode() -> Decoded:
        named = tuple(names.read_text("utf-8").split()) if names.is_file() else ()
        return _decoded(_records(files[0]), _records(files[1]), _hundred(names, named))

    return Layout("cifar-100", files + ((names,) if names.is_file() else ()), decode)


def python_layout(folder: Path) -> Layout:
    """Return the layout of ``cifar-100-python``: the pickles train, test and meta."""
    names = folder / "meta"
    files = (folder / "train", folder / "test")

    def decode() -> Decoded:
        named = _read_names(names) if names.is_file() else ()
        train, test = (_checked(path, _read_part(path)) for path in files)
        return _decoded(train, test, _hundred(names, named))

    return Layout("cifar-100", files + ((names,) if names.is_file() else ()), decode)


def _records(path: Path) -> _Part:
    try:
        content = np.fromfile(path, dtype=np.uint8)
    except OSError as error:
        raise EngramError(f"{str(path)!r} cannot be read: {error.strerror}.") from error
    if not len(content) or len(content) % _RECORD:
        raise EngramError(
            f"{str(path)!r} is not a binary file of CIFAR-100, or is cut short: it has "
            f"{len(content)} bytes, which is not a multiple of {_RECORD}."
        )
    records = content.reshape(-1, _RECORD)
    return _checked(path, _Part(records[:, 2:], records[:, 1].astype(np.int64)))


def _checked(path: Path, part: _Part) -> _Part:
    if part.labels.min() < 0 or part.labels.max() >= _CLASSES:
        raise EngramError(f"{str(path)!r} is not CIFAR-100: a fine label is not 0 to 99.")
    return part


def _hundred(path: Path, names: tuple[str, ...]) -> tuple[str, ...]:
    if len(names) not in (0, _CLASSES):
        raise EngramError(f"{str(path)!r} names {len(names)} classes, not {_CLASSES}.")
    return names


def _decoded(train: _Part, test: _Part, class_names: tuple[str, ...]) -> Decoded:
    images = _pieces(train, test)
    return Decoded(train.labels, test.labels, class_names, (32, 32), images)


def _pieces(*parts: _Part) -> Iterator[np.ndarray]:
    for part in parts:
        for start in range(0, len(part.images), _AT_ONCE):
            yield part.images[start : start + _AT_ONCE].reshape(-1, 3, 32, 32)


def _read_part(path: Path) -> _Part:
    """Return the images and the fine labels in the file ``train`` or ``test``."""
    content = _read_pickle(path, _NAMES)
    try:
        images = _array(content["data"])
        labels = np.array(_list(content["fine_labels"], int), dtype=np.int64)
        if images.shape != (len(labels), _PIXELS) or not len(labels):
            raise ValueError
    except (KeyError, TypeError, ValueError) as error:
        raise _foreign(path) from error
    return _Part(images, labels)


def _read_names(path: Path) -> tuple[str, ...]:
    """Return the names of the fine classes in the file ``meta``."""
    content = _read_pickle(path, _NAMES)
    try:
        return tuple(str(name) for name in _list(content["fine_label_names"], str))
    except (KeyError, TypeError) as error:
        raise _foreign(path) from error


def _foreign(path: Path) -> EngramError:
    return EngramError(f"{str(path)!r} is not a python file of CIFAR-100, or is damaged.")


def _array(value: object) -> np.ndarray:
    """Return the array of a call with the state (version, shape, dtype, by columns?, content)."""
    if not isinstance(value, _Call) or value.function not in [_Name(name) for name in _ARRAYS]:
        raise TypeError
    if not isinstance(value.state, tuple):
        raise TypeError
    _, shape, kind, by_columns, content = value.state
    if (
        not isinstance(kind, _Call)
        or kind.function != _Name(_DTYPE)
        or not isinstance(content, str)
    ):
        raise TypeError
    if not isinstance(kind.arguments, tuple) or kind.arguments[:1] != ("u1",):
        raise TypeError
    array = np.frombuffer(content.encode("latin-1"), dtype=np.uint8)
    return array.reshape(shape, order="F" if by_columns else "C")


def _list(value: object, kind: type) -> list[object]:
    if not isinstance(value, list) or not all(isinstance(item, kind) for item in value):
        raise TypeError
    return value


class _Name(NamedTuple):
    """A class or function that a pickle names."""

    text: str  # "module name"


@dataclass
class _Call:
    """What a pickle would have called, and the state it would have given to the result."""

    function: object
    arguments: object
    state: object = None


def _read_pickle(path: Path, names: Collection[str]) -> dict[object, object]:
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


_MARK = _Name("mark")
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
            self.stack.append(_Name(argument))
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
        if function == _Name(_ENCODE) and arguments[1:] == ("latin1",):
            self.stack.append(arguments[0])
        else:
            self.stack.append(_Call(function, arguments))

    def build(self) -> None:
        (state,) = self.take(1)
        if not isinstance(self.stack[-1], _Call):
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
