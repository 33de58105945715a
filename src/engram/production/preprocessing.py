"""What was fitted to the first data and travels with the weights: columns, categories, classes.

Everything that is fitted only ever grows at its end: a column, a category or a class keeps its
place, so that rows stored years ago mean what they meant. It is JSON; nothing is pickled.

A stored example is a row of plain tensors, before scaling. `Preprocessing.rows` makes them of
`Data`, `Preprocessing.encode` makes a network's input of them.
"""

from __future__ import annotations

import dataclasses
import math
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Literal, TypeAlias

import numpy as np
import torch
from torch import Tensor

from engram.errors import EngramError, shown
from engram.lab.data import Columns, natural
from engram.lab.targets import Classes, Labels, Numbers, Target
from engram.production.sources import Data, DataSettings, handle, listed

Rows: TypeAlias = dict[str, Tensor]
Hashed: TypeAlias = Callable[[str, str], bytes]
"""A kind and a text to the artefact's own hash."""

Schema: TypeAlias = Literal["keep", "extend"]
TARGET = "target"

_FURTHEST = 10.0  # deviations: a number far away is cut there
_MOST_WIDTH = 2**16  # inputs
_MOST_HOLDERS = 20  # of a text: those of a text that more people have say nothing of any of them
_YES, _NO = {"1", "true", "yes", "1.0"}, {"0", "false", "no", "0.0"}
_ERASED = "erased"


@dataclass(frozen=True)
class Known:
    """A text that was learned, a category or a class, and from whom if these are few.

    ``holders`` has for ids, and for each column of tags, the hashes of those that had it; None
    where they are more than 20. The text is None once all whom it was known from are erased.
    """

    text: str | None
    holders: Mapping[str, tuple[str, ...] | None] = field(default_factory=dict)

    def seen(self, more: Mapping[str, set[str]]) -> Known:
        """Return it with further holders."""
        merged = dict[str, tuple[str, ...] | None](self.holders)
        for name, hashes in more.items():
            known = merged.get(name, ())
            every = None if known is None else {*known, *hashes}
            few = every is not None and len(every) <= _MOST_HOLDERS
            merged[name] = tuple(sorted(every)) if every is not None and few else None
        return Known(self.text, merged)

    def without(self, erased: Callable[[str], bool]) -> Known:
        """Return it without the erased holders; without its text if by any account none is left."""
        left = {
            kind: each and tuple(hash_ for hash_ in each if not erased(hash_))
            for kind, each in self.holders.items()
        }
        gone = any(each and not left[kind] for kind, each in self.holders.items())
        return Known(None, {}) if gone else Known(self.text, left)


class _Holders:
    """Who has which text, of some data."""

    def __init__(self, data: Data, hashed: Hashed) -> None:
        self._names = [
            {
                "id": hashed("id", id_).hex(),
                **{tag: hashed(f"tag:{tag}", value).hex() for tag, value in tags.items()},
            }
            for id_, tags in zip(data.ids, data.tags, strict=True)
        ]

    def by_text(self, texts: Sequence[str]) -> dict[str, dict[str, set[str]]]:
        found: dict[str, dict[str, set[str]]] = {}
        for text, names in zip(texts, self._names, strict=True):
            mine = found.setdefault(text, {})
            for kind, value in names.items():
                group = mine.setdefault(kind, set())
                if len(group) <= _MOST_HOLDERS:
                    group.add(value)
        return found


def _noted(known: Sequence[Known], texts: Sequence[str], holders: _Holders) -> list[Known]:
    found = holders.by_text(texts)
    return [
        each.seen(found[each.text]) if each.text is not None and each.text in found else each
        for each in known
    ]


class Inputs(ABC):
    """What one kind of data is to a network."""

    kind: ClassVar[str]

    @property
    @abstractmethod
    def shape(self) -> tuple[int, ...]:
        """The shape of one example as the network sees it."""

    @abstractmethod
    def rows(self, data: Data) -> Rows:
        """Return examples as they are stored, or refuse what was not fitted."""

    @abstractmethod
    def encode(self, rows: Rows) -> Tensor:
        """Return the network's input."""

    def widened(self, rows: Rows) -> Rows:
        """Return rows that were stored before columns were added."""
        return rows

    def extended(self, data: Data, holders: _Holders, schema: Schema, most: int) -> Inputs:  # noqa: ARG002
        """Return the inputs with what new data adds to them."""
        return self

    def forget(self, erased: Callable[[str], bool]) -> Inputs:  # noqa: ARG002
        """Return the inputs without the texts that only the erased had."""
        return self

    def notes(self, data: Data) -> list[str]:  # noqa: ARG002
        """Return what somebody should know of how data is read."""
        return []

    @abstractmethod
    def as_json(self) -> dict[str, Any]:
        """Return the fitted values."""


@dataclass(frozen=True)
class NumberColumn:
    """A column of numbers: its place, and the mean and deviation of the first data."""

    name: str
    at: int  # of the scaled number; whether it is missing is beside it
    mean: float
    deviation: float


@dataclass(frozen=True)
class CategoryColumn:
    """A column of texts: the place of "any other", and the known ones with theirs."""

    name: str
    other: int
    known: tuple[Known, ...] = ()
    at: tuple[int, ...] = ()  # the place of each of the known


@dataclass(frozen=True)
class TableInputs(Inputs):
    """Numbers less their mean over their deviation; texts as columns of 0 and 1."""

    numbers: tuple[NumberColumn, ...]
    categories: tuple[CategoryColumn, ...]
    width: int
    kind: ClassVar[str] = "table"

    @classmethod
    def fit(cls, data: Data, settings: DataSettings, holders: _Holders) -> TableInputs:
        """Fit to the first data."""
        empty = cls((), (), 0)
        wrong = [each for each in listed(settings.categories) if each not in data.columns]
        if wrong:
            raise EngramError(f"There is no column for categories called {wrong[0]!r}.")
        names = set(listed(settings.categories))
        return empty._grown(data.columns, names, holders, settings.most_categories)

    @property
    def shape(self) -> tuple[int, ...]:
        """How many inputs there are."""
        return (self.width,)

    @property
    def names(self) -> list[str]:
        """The columns that are read."""
        return [each.name for each in self.numbers] + [each.name for each in self.categories]

    def _grown(
        self, columns: Columns, as_names: set[str], holders: _Holders, most: int
    ) -> TableInputs:
        """Return it with further columns at its end."""
        numbers, categories, width = list(self.numbers), list(self.categories), self.width
        for name, texts in columns.items():
            found = None if name in as_names else _floats(texts)
            if found is not None:
                there = found[~np.isnan(found)]
                mean, deviation = float(there.mean()), float(there.std())
                if not (math.isfinite(mean) and math.isfinite(deviation)):
                    raise EngramError(f"The numbers of column {name!r} are too large to be scaled.")
                numbers.append(NumberColumn(name, width, mean, deviation or 1.0))
                width += 2
            else:
                if name not in as_names:
                    _refuse_numbers(name, texts)
                column = _with_texts(CategoryColumn(name, width), width + 1, texts, holders, most)
                categories.append(column)
                width += 1 + len(column.known)
        if width > _MOST_WIDTH:
            raise EngramError(
                f"The columns of texts would be {width:,} inputs, more than {_MOST_WIDTH:,}: leave "
                "some out (--set ignore=…) or tell fewer texts apart (--set most_categories=…)."
            )
        return TableInputs(tuple(numbers), tuple(categories), width)

    def _as_known(self, columns: Columns) -> Columns:
        """Return columns whose texts are written as they are known."""
        own = {each.name: each.known for each in self.categories}
        return {
            name: _as_known(own[name], texts) if name in own else texts
            for name, texts in columns.items()
        }

    def check(self, columns: Columns) -> None:
        """Refuse columns that are not those that were fitted, by name."""
        gone = [name for name in self.names if name not in columns]
        new = [name for name in columns if name not in self.names]
        for what, names in (("lacks", gone), ("has the new", new)):
            if names:
                raise EngramError(
                    f"The data {what} column{'s' if len(names) > 1 else ''} "
                    f"{', '.join(map(repr, names[:5]))}{', …' if len(names) > 5 else ''}; the "
                    f"model reads {', '.join(self.names)}. Mend it, or take the change in by "
                    "--schema extend."
                )

    def extended(self, data: Data, holders: _Holders, schema: Schema, most: int) -> TableInputs:
        """Note who has the known texts; with "extend", take in new columns and new texts."""
        columns = self._as_known(data.columns)
        if schema == "keep":
            self.check(columns)
        categories = tuple(
            replace(each, known=tuple(_noted(each.known, columns[each.name], holders)))
            if each.name in columns
            else each
            for each in self.categories
        )
        found = TableInputs(self.numbers, categories, self.width)
        if schema == "keep":
            return found
        grown, width = list[CategoryColumn](), self.width
        for each in categories:
            texts = columns.get(each.name, [])
            more = _with_texts(each, width, texts, holders, most) if texts else each
            width += len(more.known) - len(each.known)
            grown.append(more)
        found = TableInputs(self.numbers, tuple(grown), width)
        new = {name: texts for name, texts in columns.items() if name not in self.names}
        return found._grown(new, set(), holders, most)

    def rows(self, data: Data) -> Rows:
        """Return numbers, which of them are missing, and the numbers of the texts."""
        count, columns = len(data), self._as_known(data.columns)
        self.check(columns)
        numbers = np.zeros((count, len(self.numbers)))
        missing = np.zeros((count, len(self.numbers)), bool)
        codes = np.full((count, len(self.categories)), -1, np.int64)
        for place, number in enumerate(self.numbers):
            texts = columns[number.name]
            found = _floats(texts, any_missing=True)
            if found is None:
                row = next(row for row, text in enumerate(texts) if _floats([text], True) is None)
                raise EngramError(
                    f"Column {number.name!r} was of numbers when the model was fitted, and row "
                    f"{row + 1} has {shown(texts[row])}."
                )
            missing[:, place] = np.isnan(found)
            numbers[:, place] = np.where(missing[:, place], 0, found)
        for place, column in enumerate(self.categories):
            known = _numbered(column.known)
            codes[:, place] = [known.get(text, -1) for text in columns[column.name]]
        return {
            "numbers": torch.from_numpy(numbers),
            "missing": torch.from_numpy(missing),
            "codes": torch.from_numpy(codes),
        }

    def widened(self, rows: Rows) -> Rows:
        """Return rows with what they have not as missing numbers and other texts."""
        count = len(rows["numbers"])
        numbers = len(self.numbers) - rows["numbers"].shape[1]
        texts = len(self.categories) - rows["codes"].shape[1]
        return rows | {
            "numbers": torch.cat([rows["numbers"], torch.zeros(count, numbers).double()], 1),
            "missing": torch.cat([rows["missing"], torch.ones(count, numbers).bool()], 1),
            "codes": torch.cat([rows["codes"], torch.full((count, texts), -1)], 1),
        }

    def encode(self, rows: Rows) -> Tensor:
        """Return the inputs [n, width]; what a later version has added is not seen."""
        count, numbers = len(rows["numbers"]), len(self.numbers)
        made = torch.zeros(count, self.width)
        if self.numbers:
            means = torch.tensor([each.mean for each in self.numbers], dtype=torch.float64)
            scales = torch.tensor([each.deviation for each in self.numbers], dtype=torch.float64)
            places = torch.tensor([each.at for each in self.numbers])
            missing = rows["missing"][:, :numbers]
            scaled = (rows["numbers"][:, :numbers] - means) / scales
            cut = scaled.clamp(-_FURTHEST, _FURTHEST).masked_fill(missing, 0)
            made[:, places] = cut.float()
            made[:, places + 1] = missing.float()
        for place, column in enumerate(self.categories):
            at = torch.tensor([*column.at, column.other])  # a code of -1 is the last
            codes = rows["codes"][:, place]
            made[torch.arange(count), at[codes.where(codes < len(column.known), -1)]] = 1
        return made

    def forget(self, erased: Callable[[str], bool]) -> TableInputs:
        """Let the texts go that only the erased had; what they were stays a place of its own."""
        return TableInputs(
            self.numbers,
            tuple(
                replace(each, known=tuple(known.without(erased) for known in each.known))
                for each in self.categories
            ),
            self.width,
        )

    def notes(self, data: Data) -> list[str]:
        """Say how many values of which column of texts are not known."""
        columns = self._as_known(data.columns)
        counts = {
            column.name: sum(text not in known for text in columns.get(column.name, []))
            for column in self.categories
            for known in [_numbered(column.known)]
        }
        return [
            f"{count:,} of {len(data):,} values of {name!r} were not known and count as one text; "
            "--schema extend tells them apart."
            for name, count in counts.items()
            if count
        ]

    def as_json(self) -> dict[str, Any]:
        """Return all columns."""
        return dataclasses.asdict(self)

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> TableInputs:
        """Return what `as_json` described."""
        return cls(
            tuple(NumberColumn(**each) for each in document["numbers"]),
            tuple(
                CategoryColumn(
                    each["name"], each["other"], _known(each["known"]), tuple(each["at"])
                )
                for each in document["categories"]
            ),
            int(document["width"]),
        )


def _with_texts(
    column: CategoryColumn, width: int, texts: Sequence[str], holders: _Holders, most: int
) -> CategoryColumn:
    """Return a column with the texts that it does not know, at the end of all inputs."""
    known = _numbered(column.known)
    counts = Counter(text for text in texts if text not in known)
    frequent = sorted(counts, key=lambda text: (-counts[text], text))
    new = sorted(frequent[: max(most - len(column.known), 0)])
    found = holders.by_text(texts)
    return replace(
        column,
        known=(*column.known, *(Known(text).seen(found[text]) for text in new)),
        at=(*column.at, *range(width, width + len(new))),
    )


def _as_known(known: Sequence[Known], texts: Sequence[str]) -> list[str]:
    """Return texts as they are known: a whole number is the same as 7 and as 7.0.

    A frame's column of whole numbers is one of fractions as soon as one is missing.
    """
    names = _numbered(known)
    alike = {handle(name): name for name in names}
    return [text if text in names else alike.get(handle(text), text) for text in texts]


def _numbered(known: Sequence[Known]) -> dict[str, int]:
    return {each.text: place for place, each in enumerate(known) if each.text is not None}


def _known(documents: Sequence[Mapping[str, Any]]) -> tuple[Known, ...]:
    return tuple(
        Known(
            each["text"],
            {
                name: None if hashes is None else tuple(hashes)
                for name, hashes in each["holders"].items()
            },
        )
        for each in documents
    )


def _floats(texts: Sequence[str], any_missing: bool = False) -> np.ndarray | None:
    """Return texts as numbers, NaN where there is none, or None where one is no finite number."""
    try:
        numbers = np.array([float(text) if text else math.nan for text in texts])
    except ValueError:
        return None
    there = np.array([bool(text) for text in texts], bool)
    if not np.isfinite(numbers[there]).all() or not (there.any() or any_missing):
        return None
    return numbers


def _refuse_numbers(name: str, texts: Sequence[str]) -> None:
    """Refuse a column of texts most of which are numbers: the others are mistakes."""
    given = [text for text in texts if text]
    wrong = [text for text in given if _floats([text]) is None]
    if wrong and 2 * len(wrong) < len(given):
        raise EngramError(
            f"Column {name!r} is of numbers, but in one row it has {shown(wrong[0])}: correct it, "
            f"or take the column for texts with --set categories={name}."
        )


@dataclass(frozen=True)
class ImageInputs(Inputs):
    """Pixels less the mean of the first images over their deviation, channel by channel."""

    size: int
    means: tuple[float, ...]
    deviations: tuple[float, ...]
    kind: ClassVar[str] = "images"

    @classmethod
    def fit(cls, data: Data, settings: DataSettings) -> ImageInputs:
        """Fit to the first images."""
        total, squares, count = torch.zeros(3).double(), torch.zeros(3).double(), 0
        assert data.values is not None
        for part in torch.split(data.values, 256):
            pixels = part.double()
            total += pixels.sum((0, 2, 3))
            squares += pixels.square().sum((0, 2, 3))
            count += pixels[:, 0].numel()
        means = total / count
        deviations = (squares / count - means.square()).clamp(min=1).sqrt()
        return cls(settings.size, tuple(means.tolist()), tuple(deviations.tolist()))

    @property
    def shape(self) -> tuple[int, ...]:
        """Channels, height, width."""
        return (3, self.size, self.size)

    def rows(self, data: Data) -> Rows:
        """Return the pixels, 8 bits each."""
        if data.values is None or data.values.shape[1:] != self.shape:
            raise EngramError(f"The model reads images [3, {self.size}, {self.size}].")
        return {"inputs": data.values}

    def encode(self, rows: Rows) -> Tensor:
        """Return the scaled pixels."""
        means = torch.tensor(self.means).view(3, 1, 1)
        return (rows["inputs"].float() - means) / torch.tensor(self.deviations).view(3, 1, 1)

    def as_json(self) -> dict[str, Any]:
        """Return the size, the means and the deviations."""
        return dataclasses.asdict(self)

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> ImageInputs:
        """Return what `as_json` described."""
        return cls(int(document["size"]), tuple(document["means"]), tuple(document["deviations"]))


@dataclass(frozen=True)
class TensorInputs(Inputs):
    """Tensors as they are, but for 8-bit ones, which are scaled to [0, 1]."""

    example: tuple[int, ...]
    dtype: str
    kind: ClassVar[str] = "tensors"

    @classmethod
    def fit(cls, data: Data) -> TensorInputs:
        """Take the shape and the dtype of the first data."""
        assert data.values is not None
        dtype = str(data.values.dtype).removeprefix("torch.")
        return cls(tuple(data.values.shape[1:]), dtype)

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of an example."""
        return self.example

    def rows(self, data: Data) -> Rows:
        """Return the tensors."""
        values = data.values
        if values is None or tuple(values.shape[1:]) != self.example:
            given = None if values is None else list(values.shape[1:])
            raise EngramError(f"The model reads tensors {list(self.example)}, not {given}.")
        if str(values.dtype).removeprefix("torch.") != self.dtype:
            raise EngramError(f"The model reads tensors of {self.dtype}, not {values.dtype}.")
        return {"inputs": values}

    def encode(self, rows: Rows) -> Tensor:
        """Return the inputs as floats."""
        values = rows["inputs"]
        return values.float() / 255 if values.dtype == torch.uint8 else values.float()

    def as_json(self) -> dict[str, Any]:
        """Return the shape and the dtype."""
        return dataclasses.asdict(self)

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> TensorInputs:
        """Return what `as_json` described."""
        return cls(tuple(document["example"]), str(document["dtype"]))


@dataclass(frozen=True)
class TextInputs(Inputs):
    """Texts as the numbers of their tokens, by the encoder's own tokeniser."""

    column: str
    length: int
    tokenise: Callable[[Sequence[str], int], Tensor] = field(repr=False, compare=False)
    kind: ClassVar[str] = "text"

    @property
    def shape(self) -> tuple[int, ...]:
        """How many tokens an example has at most."""
        return (self.length,)

    def rows(self, data: Data) -> Rows:
        """Return the tokens, 0 where a text has ended."""
        if [*data.columns] != [self.column]:
            raise EngramError(f"The model reads a column of texts called {self.column!r}.")
        return {"inputs": self.tokenise(data.columns[self.column], self.length)}

    def encode(self, rows: Rows) -> Tensor:
        """Return the tokens, as many as the longest of these texts has."""
        tokens = rows["inputs"].long()
        longest = int((tokens != 0).sum(1).max()) if len(tokens) else 1
        return tokens[:, : max(longest, 1)]

    def as_json(self) -> dict[str, Any]:
        """Return the column and the length; the tokeniser's files lie beside."""
        return {"column": self.column, "length": self.length}


@dataclass(frozen=True)
class Preprocessing:
    """What was fitted: the inputs, and the target with the order of its classes."""

    settings: DataSettings
    inputs: Inputs
    target: Target
    classes: tuple[Known, ...] = ()  # of a target of classes, in the order of the outputs

    @classmethod
    def fit(
        cls,
        data: Data,
        settings: DataSettings,
        hashed: Hashed,
        tokenise: Callable[[Sequence[str], int], Tensor] | None = None,
    ) -> Preprocessing:
        """Fit to the first data."""
        holders = _Holders(data, hashed)
        inputs: Inputs
        if data.kind == "table":
            inputs = TableInputs.fit(data, settings, holders)
        elif data.kind == "text":
            if tokenise is None:
                raise EngramError("A column of texts is read by a network hf:DIR alone.")
            inputs = TextInputs(settings.text, settings.length, tokenise)
        elif data.kind == "images":
            inputs = ImageInputs.fit(data, settings)
        else:
            inputs = TensorInputs.fit(data)
        if settings.kind == "classes":
            texts = _class_texts(data)
            names = sorted(set(texts), key=natural)
            _check_classes(names, texts)
            known = _noted([Known(name) for name in names], texts, holders)
            return cls(settings, inputs, Classes(tuple(names)), tuple(known))
        names = _output_names(data)
        values = _target_values(data, names)
        target = Labels(tuple(names)) if settings.kind == "labels" else None
        return cls(settings, inputs, target or Numbers.fitted(names, values))

    def extended(self, data: Data, hashed: Hashed, schema: Schema) -> Preprocessing:
        """Return it with what new data adds: classes always, columns and texts with "extend"."""
        if self.inputs.kind != data.kind:
            raise EngramError(f"The model reads {self.inputs.kind}, not {data.kind}.")
        holders = _Holders(data, hashed)
        inputs = self.inputs.extended(data, holders, schema, self.settings.most_categories)
        if not isinstance(self.target, Classes):
            return replace(self, inputs=inputs)
        texts = _as_known(self.classes, _class_texts(data))
        new = sorted(set(texts) - _numbered(self.classes).keys(), key=natural)
        if _too_many(new, texts):
            raise EngramError(
                f"The target has {len(new):,} new values in {len(texts):,} rows, which are no "
                "classes: is it the right column?"
            )
        known = _noted([*self.classes, *map(Known, new)], texts, holders)
        return replace(self, inputs=inputs)._with_classes(known)

    def _with_classes(self, known: Sequence[Known]) -> Preprocessing:
        names = [
            each.text if each.text is not None else f"({_ERASED} {place + 1})"
            for place, each in enumerate(known)
        ]
        return replace(self, target=Classes(tuple(names)), classes=tuple(known))

    @property
    def kind(self) -> str:
        """The kind of the inputs."""
        return self.inputs.kind

    @property
    def allowed(self) -> Tensor | None:
        """Which classes may be answered, [outputs]; None: all of them."""
        gone = [each.text is None for each in self.classes]
        return ~torch.tensor(gone) if any(gone) else None

    def rows(self, data: Data, *, asked: bool = False) -> Rows:
        """Return examples as they are stored, with their targets unless they are only asked for."""
        if self.inputs.kind != data.kind:
            raise EngramError(f"The model reads {self.inputs.kind}, not {data.kind}.")
        rows = self.inputs.rows(data)
        return rows if asked else rows | {TARGET: self.targets(data)}

    def targets(self, data: Data) -> Tensor:
        """Return targets as they are stored; a class must be known."""
        if isinstance(self.target, Classes):
            known = _numbered(self.classes)
            texts = _as_known(self.classes, _class_texts(data))
            return torch.tensor([known[text] for text in texts])
        return self.target.check(_target_values(data, self.target.names))

    def encode(self, rows: Rows) -> Tensor:
        """Return the network's input."""
        return self.inputs.encode(rows)

    def notes(self, data: Data) -> list[str]:
        """Return what somebody should know of how data is read."""
        return self.inputs.notes(data)

    def forget(self, erased: Callable[[str], bool]) -> Preprocessing:
        """Return it without the texts that only the erased had."""
        found = replace(self, inputs=self.inputs.forget(erased))
        known = [each.without(erased) for each in self.classes]
        return found._with_classes(known) if known else found

    def as_json(self) -> dict[str, Any]:
        """Return everything as JSON values."""
        target: dict[str, Any] = {"kind": self.target.kind}
        if isinstance(self.target, Classes):
            target["classes"] = [dataclasses.asdict(each) for each in self.classes]
        else:
            target["names"] = list(self.target.names)
        if isinstance(self.target, Numbers):
            target |= {"means": list(self.target.means), "scales": list(self.target.scales)}
        return {
            "settings": self.settings.as_dict(),
            "kind": self.inputs.kind,
            "inputs": self.inputs.as_json(),
            "target": target,
        }

    @classmethod
    def from_json(
        cls,
        document: Mapping[str, Any],
        tokenise: Callable[[Sequence[str], int], Tensor] | None = None,
    ) -> Preprocessing:
        """Return what `as_json` described."""
        settings = DataSettings(**document["settings"])
        kind, given, target = document["kind"], document["inputs"], document["target"]
        inputs: Inputs
        if kind == "text":
            assert tokenise is not None  # whoever reads the artefact has read its encoder
            inputs = TextInputs(given["column"], given["length"], tokenise)
        else:
            kinds: dict[str, Any] = {
                each.kind: each for each in (TableInputs, ImageInputs, TensorInputs)
            }
            inputs = kinds[kind].from_json(given)
        if target["kind"] == "classes":
            empty = cls(settings, inputs, Classes(("a", "b")))
            return empty._with_classes(_known(target["classes"]))
        names = tuple(target["names"])
        if target["kind"] == "labels":
            return cls(settings, inputs, Labels(names))
        numbers = Numbers(names, tuple(target["means"]), tuple(target["scales"]))
        return cls(settings, inputs, numbers)


def _class_texts(data: Data) -> list[str]:
    """Return the name of each example's class."""
    if isinstance(data.targets, Tensor):
        if data.targets.is_floating_point() or data.targets.ndim != 1:
            raise EngramError(
                "targets must be whole numbers of classes, [examples]; for others give "
                "kind='labels' or kind='numbers'."
            )
        return [str(value) for value in data.targets.tolist()]
    assert data.targets is not None  # `read` refuses it
    (texts,) = data.targets.values()
    return texts


def _too_many(names: Sequence[str], texts: Sequence[str]) -> bool:
    return 2 * len(names) > len(texts) and len(names) > 2


def _check_classes(names: Sequence[str], texts: Sequence[str]) -> None:
    numbers = _floats(names)
    measured = numbers is not None and bool((numbers != np.floor(numbers)).any())
    if measured or _too_many(names, texts):
        raise EngramError(
            f"The target has {len(names):,} different values in {len(texts):,} rows, which are no "
            "classes: give --set kind=numbers, or cut it into ranges."
        )
    if len(names) < 2:
        raise EngramError(f"The target must have two classes or more, and has only {names[0]!r}.")


def _output_names(data: Data) -> list[str]:
    if isinstance(data.targets, Tensor):
        width = 1 if data.targets.ndim == 1 else data.targets.shape[1]
        return [str(place) for place in range(width)]
    return list(data.targets or {})


def _target_values(data: Data, names: Sequence[str]) -> Tensor:
    """Return numbers or labels, [n, outputs]."""
    if isinstance(data.targets, Tensor):
        values = data.targets.double().reshape(len(data), -1)
        if values.shape[1] != len(names):
            raise EngramError(f"The model has {len(names)} outputs, not {values.shape[1]}.")
        return values
    assert data.targets is not None
    columns = []
    for name in names:
        texts = data.targets[name]
        if all(text.lower() in _YES | _NO for text in texts):
            columns.append(np.array([float(text.lower() in _YES) for text in texts]))
            continue
        found = _floats(texts)
        if found is None:
            row = next(row for row, text in enumerate(texts) if _floats([text]) is None)
            raise EngramError(
                f"The target {name!r} must be a number, and row {row + 1} has {shown(texts[row])}."
            )
        columns.append(found)
    return torch.from_numpy(np.stack(columns, 1))
