"""What models are trained and asked with: tables, texts, folders of images, tensors, batches.

A source is read into `Data`: inputs as they were given, targets, ids and tags. What a network
makes of them is the business of `engram.production.preprocessing`.
"""

from __future__ import annotations

import hashlib
import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from engram.errors import EngramError, shown, unknown
from engram.lab.data import Columns, decode_photos, find_photos, natural, read_table
from engram.lab.settings import Settings, setting

IMAGES = "class"  # what the target of a folder of images is called
_WHOLE = re.compile(r"([+-]?\d+)\.0+")
_MISSING = {"", "?", "n/a", "na", "nan", "none", "null"}


@dataclass(frozen=True)
class DataSettings(Settings):
    """How data is read: fixed when a model is first trained, and kept with it."""

    target: str = setting(
        "", "the column to predict; several labels or numbers with commas between them"
    )
    kind: Literal["classes", "labels", "numbers"] = setting(
        "classes", "what the target is: one of several classes, several labels (0 or 1), numbers"
    )
    text: str = setting("", "the column of texts that a network hf:DIR reads; the only input then")
    time: str = setting("", "the column of dates or times; it names the periods and is no input")
    id: str = setting("", "the column that names an example, by which it can be erased")
    tags: str = setting(
        "", "columns kept beside each example to find it by (customer, …), with commas; no inputs"
    )
    ignore: str = setting("", "columns to leave out, with commas between them")
    categories: str = setting("", "columns of numbers that are names in truth, with commas")
    most_categories: int = setting(
        1_000, "texts of a column that are told apart; all others count as one", least=1, most=1_000
    )
    size: int = setting(64, "pixels of each side that images are resized to", least=16, most=1024)
    length: int = setting(64, "the most tokens of a text that are read", least=4, most=512)


def listed(text: str) -> list[str]:
    """Return the names in a text that has commas between them."""
    return [name.strip() for name in text.split(",") if name.strip()]


@dataclass(frozen=True)
class Data:
    """Examples as they were given; every list has an element for each."""

    name: str  # of the source, as it was given
    kind: Literal["table", "text", "images", "tensors"]
    columns: Columns = field(default_factory=dict)  # inputs by column, of a table or of texts
    values: Tensor | None = None  # uint8 [n, 3, size, size] of images, or tensors
    targets: Columns | Tensor | None = None  # by column, or [n] or [n, outputs]; None: not given
    ids: Sequence[str] = ()  # as given, or their place in the source
    own_ids: bool = False  # whether they name an example beyond this source
    tags: Sequence[Mapping[str, str]] = ()
    times: Sequence[str] = ()
    passed_over: int = 0  # files of a folder that are no images
    given: str = ""  # the digest of what was given, where something of it has been changed since

    def __len__(self) -> int:
        return len(self.ids)

    @cached_property
    def contents(self) -> list[bytes]:
        """What tells an example's input from others, 16 bytes each: equal inputs, equal bytes."""
        return [
            hashlib.blake2b(each, digest_size=16).digest()
            for each in (self._rows() if self.values is None else _bytes(self.values))
        ]

    @cached_property
    def examples(self) -> list[bytes]:
        """What tells an example from others: its input, targets, tags and time."""
        if isinstance(self.targets, Tensor):
            targets = list(_bytes(self.targets))
        else:
            columns = [map(_plain, column) for column in (self.targets or {}).values()]
            targets = ["\x1f".join(row).encode() for row in zip(*columns, strict=True)]
        times = self.times or [""] * len(self)
        return [
            content + target + f"\x1e{sorted(tags.items())}\x1e{time}".encode()
            for content, target, tags, time in zip(
                self.contents, targets, self.tags, times, strict=True
            )
        ]

    @cached_property
    def repeats(self) -> bool:
        """Whether rows recur, more than one in ten: then equal ones need not be one example."""
        return len(set(self.examples)) < 0.9 * len(self)

    @cached_property
    def digest(self) -> str:
        """SHA-256 of inputs, targets, ids and tags as they were given, in their order."""
        if self.given:
            return self.given
        digest = hashlib.sha256()
        for content, id_, tags in zip(self.contents, self.ids, self.tags, strict=True):
            digest.update(content + f"\x1e{id_}\x1e{sorted(tags.items())}".encode())
        if isinstance(self.targets, Tensor):
            for each in _bytes(self.targets):
                digest.update(each)
        else:
            for name, column in (self.targets or {}).items():
                digest.update(f"\x1e{name}\x1f".encode() + "\x1f".join(column).encode())
        return digest.hexdigest()

    @property
    def period(self) -> str:
        """What these examples are called in reports: their times, else the name of the source."""
        if times := [each for each in self.times if each]:
            first, last = min(times, key=natural), max(times, key=natural)
            return first if first == last else f"{first} to {last}"
        kind, colon, path = self.name.partition(":")
        return Path(path).stem or self.name if colon else kind

    def chosen(self, rows: Sequence[int]) -> Data:
        """Return some of the examples, in this order."""
        places = torch.as_tensor(rows, dtype=torch.int64)

        def some(column: Sequence[Any]) -> list[Any]:
            return [column[row] for row in rows] if column else []

        targets = self.targets
        return replace(
            self,
            columns={name: some(column) for name, column in self.columns.items()},
            values=None if self.values is None else self.values[places],
            targets=targets[places]
            if isinstance(targets, Tensor)
            else targets and {name: some(column) for name, column in targets.items()},
            ids=some(self.ids),
            tags=some(self.tags),
            times=some(self.times),
        )

    def _rows(self) -> Iterator[bytes]:
        """Yield the inputs of a row, numbers however they are written, as bytes."""
        names = sorted(self.columns)
        for values in zip(*(map(_plain, self.columns[name]) for name in names), strict=True):
            pairs = zip(names, values, strict=True)
            yield "\x1e".join(f"{name}\x1f{value}" for name, value in pairs).encode()


def _plain(text: str) -> str:
    try:
        return repr(float(text))
    except ValueError:
        return text


def _bytes(values: Tensor) -> Iterator[bytes]:
    for row in values.detach().cpu().contiguous().numpy():
        yield str(row.dtype).encode() + np.ascontiguousarray(row).tobytes()


def read(source: object, settings: DataSettings, *, asked: bool = False, name: str = "") -> Data:
    """Return the examples of a source.

    A source is ``table:FILE``, ``folder:FOLDER`` or ``tensors:FILE.safetensors``, a data frame or
    another mapping of columns, a pair ``(inputs, targets)`` of tensors, or an iterable of such
    pairs, as a DataLoader is. ``asked`` is for data that is to be predicted: it needs no targets.
    """
    if isinstance(source, str | Path):
        return _from_path(str(source), settings, asked)
    if asked and isinstance(source, list | tuple) and source and _is_path(source[0]):
        return _images_at([Path(each) for each in source], settings)
    if hasattr(source, "columns") and hasattr(source, "to_dict"):  # pandas, without importing it
        names = [str(name) for name in source.columns]
        if len(set(names)) < len(names):
            twice = Counter(names).most_common(1)[0][0]
            raise EngramError(f"The data frame has two columns called {twice!r}.")
        source = {str(name): source[name].tolist() for name in source.columns}  # type: ignore[index]
    if isinstance(source, Mapping):
        for key, values in source.items():
            if isinstance(values, str | bytes) or not isinstance(values, Iterable):
                raise EngramError(
                    f"Column {str(key)!r} must be a list of values, one for each example, not "
                    f"{shown(values)}."
                )
        columns = {str(key): [_text(value) for value in values] for key, values in source.items()}
        lengths = {len(column) for column in columns.values()}
        if len(lengths) != 1 or lengths == {0}:
            raise EngramError("The columns must be of one length, with a row at least.")
        return _table(name or "a data frame", columns, settings, asked)
    if isinstance(source, Tensor | np.ndarray):
        return _tensors(name or "tensors", source, None, asked)
    if isinstance(source, tuple) and len(source) == 2:
        return _tensors(name or "tensors", *source, asked)
    if isinstance(source, Iterable):
        return _batches(name or "batches", source, asked)
    raise EngramError(
        f"The data is {shown(source)}; give table:FILE, folder:FOLDER, a data frame, tensors or "
        "batches of them."
    )


def _is_path(value: object) -> bool:
    return isinstance(value, str | Path)


def _from_path(source: str, settings: DataSettings, asked: bool) -> Data:
    kind, colon, path = source.partition(":")
    if not colon or kind not in ("table", "folder", "tensors"):
        raise EngramError(
            f"The data is {shown(source)}; give it as table:FILE, folder:FOLDER or tensors:FILE."
        )
    place = Path(path).expanduser()
    if kind == "table":
        ignore = set(listed(settings.ignore))
        return _table(source, read_table(place, ignore=ignore), settings, asked)
    if kind == "tensors":
        return _tensor_file(source, place, asked)
    return _folder(source, place, settings, asked)


def _table(name: str, columns: Columns, settings: DataSettings, asked: bool) -> Data:
    """Return the rows of a table, its columns told apart by the settings."""
    targets, tags = listed(settings.target), listed(settings.tags)
    if not targets:
        raise EngramError(
            "target must name the column to predict (--set target=…); the columns are "
            f"{', '.join(columns)}."
        )
    if settings.kind == "classes" and len(targets) > 1:
        raise EngramError(
            "target must be a single column of classes; for several give --set kind=labels or "
            "--set kind=numbers as well."
        )
    rows = len(next(column for column in columns.values() if column))
    columns = {key: column or [""] * rows for key, column in columns.items()}
    needed = {"target": [] if asked else targets}
    if not asked:
        needed |= {"time": [settings.time], "id": [settings.id], "tags": tags}
    needed["text"] = [settings.text]
    for what, names in needed.items():
        for each in names:
            if each and each not in columns:
                raise unknown(f"column for {what} called", each, columns)
    apart = {*targets, *tags, settings.time, settings.id, *listed(settings.ignore)}
    inputs = {key: column for key, column in columns.items() if key not in apart}
    if settings.text:
        inputs = {settings.text: columns[settings.text]}
    if not inputs:
        raise EngramError(f"No column is left to predict {settings.target!r} from.")
    given = all(each in columns for each in targets)
    for each in targets if not asked else ():
        if "" in columns[each]:
            place = columns[each].index("") + 1
            raise EngramError(f"Every row must have a target; row {place} has none in {each!r}.")
    named = settings.id and settings.id in columns
    ids = [*map(handle, columns[settings.id])] if named else None
    if ids is not None and not asked:
        _check_ids(settings.id, ids)
    return Data(
        name,
        "text" if settings.text else "table",
        columns=inputs,
        targets={each: columns[each] for each in targets} if given else None,
        ids=ids or [str(row) for row in range(1, rows + 1)],
        own_ids=ids is not None,
        tags=[
            {each: handle(columns[each][row]) for each in tags if each in columns}
            for row in range(rows)
        ],
        times=columns.get(settings.time, []) if settings.time else [],
    )


def handle(text: str) -> str:
    """Return what an example is found by, a whole number however it is written.

    A column of whole numbers is one of fractions as soon as one is missing.

    >>> handle("7.0"), handle("7"), handle("7.5"), handle("1.0.0")
    ('7', '7', '7.5', '1.0.0')
    """
    found = _WHOLE.fullmatch(text.strip())
    return found[1] if found else text


def _check_ids(column: str, ids: Sequence[str]) -> None:
    if "" in ids:
        raise EngramError(
            f"Every row must have an id; row {ids.index('') + 1} has none in {column!r}."
        )
    if len(set(ids)) < len(ids):
        twice = Counter(ids).most_common(1)[0][0]
        raise EngramError(f"The id {shown(twice)} is there twice in column {column!r}.")


def _text(value: object) -> str:
    """Return a value of a data frame as a table's file would have it; empty where it is missing."""
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return ""
    text = value.isoformat() if hasattr(value, "isoformat") else str(value)
    text = text.strip()
    return "" if text.lower() in _MISSING or text in ("NaT", "<NA>") else text


def _folder(source: str, folder: Path, settings: DataSettings, asked: bool) -> Data:
    """Return a folder's images, by class where there is a folder for each."""
    found = find_photos(folder, flat=asked)
    data = _images_at([path for path, _ in found.images], settings)
    return replace(
        data,
        name=source,
        targets={IMAGES: [name for _, name in found.images]} if found.named else None,
        ids=[path.relative_to(folder).as_posix() for path, _ in found.images],
        passed_over=sum(found.passed_over.values()),
    )


def _images_at(paths: Sequence[Path], settings: DataSettings) -> Data:
    pixels = torch.from_numpy(decode_photos(paths, settings.size))
    names = [str(path) for path in paths]
    return Data("images", "images", values=pixels, ids=names, tags=[{} for _ in paths])


def _tensor_file(source: str, path: Path, asked: bool) -> Data:
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        found = load_file(path)
    except (OSError, ValueError, SafetensorError) as error:
        raise EngramError(f"{str(path)!r} is no file of tensors: {error}.") from error
    if "inputs" not in found or not (asked or "targets" in found):
        raise EngramError(
            f"{str(path)!r} must hold the tensors inputs and targets, not {', '.join(found)}."
        )
    return _tensors(source, found["inputs"], found.get("targets"), asked)


def _tensors(name: str, inputs: Any, targets: Any, asked: bool) -> Data:  # noqa: ANN401
    values = torch.as_tensor(inputs)
    if values.ndim < 2 or not len(values):
        raise EngramError(
            f"inputs must be a tensor [examples, …], one example at least, not {shown(inputs)}."
        )
    if values.is_complex() or (values.is_floating_point() and not values.isfinite().all()):
        raise EngramError("inputs must be finite real numbers.")
    own: Tensor | None = None
    if targets is not None and not asked:
        own = torch.as_tensor(targets)
        if own.shape[:1] != values.shape[:1]:
            raise EngramError(
                f"There are {len(values)} inputs, and targets of shape {list(own.shape)}."
            )
    elif not asked:
        raise EngramError("Every example must have a target: give a pair (inputs, targets).")
    ids = [str(row) for row in range(1, len(values) + 1)]
    return Data(
        name, "tensors", values=values.detach().cpu(), targets=own, ids=ids, tags=[{} for _ in ids]
    )


def _batches(name: str, batches: Iterable[Any], asked: bool) -> Data:
    inputs, targets = list[Tensor](), list[Tensor]()
    for batch in batches:
        pair = batch if isinstance(batch, tuple | list) else (batch,)
        if not pair or (len(pair) != 2 and not asked):
            raise EngramError(f"A batch must be a pair (inputs, targets), not {shown(batch)}.")
        try:
            inputs.append(torch.as_tensor(pair[0]))
            if not asked:
                targets.append(torch.as_tensor(pair[1]))
        except (TypeError, ValueError, RuntimeError) as error:
            raise EngramError(f"A batch must be of tensors, not {shown(pair)}: {error}.") from error
    if not inputs:
        raise EngramError("There is not a single batch.")
    try:
        return _tensors(name, torch.cat(inputs), torch.cat(targets) if targets else None, asked)
    except RuntimeError as error:
        raise EngramError(f"The batches do not fit together: {error}.") from error
