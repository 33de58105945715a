"""What was erased, for ever: keyed hashes outside of versions, and the purge of every version.

``erasures.jsonl`` is written first: from that moment nothing that is loaded through the artefact
holds what was erased, whatever its files hold. Then every version is purged; where that is
interrupted, the next command that changes the artefact goes on with it. A version or a memory file
that is put back from a copy is filtered when it is loaded, and purged likewise.

docs/production/erasing.md says what erasing does not do.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from engram.errors import EngramError, shown
from engram.memory import Memory
from engram.memory.examples import to_bytes
from engram.production.artefact import (
    Artefact,
    Document,
    Version,
    file_digest,
    now,
    read_json,
    write_json,
    write_tensors,
    write_text,
)
from engram.production.exam import questions
from engram.production.preprocessing import Preprocessing, Rows
from engram.production.report import write_page
from engram.production.sources import Data, handle, listed

LIST = "erasures.jsonl"
MEMORY, EXAM, SEEN = "memory.safetensors", "exam.safetensors", "seen.safetensors"


@dataclass(frozen=True)
class Erased:
    """One line of the list: ids or tags of this hash, in the periods up to one, or in all."""

    when: str
    kind: str  # id, or tag:NAME
    digest: str
    up_to: int | None  # None: blocked, whenever it comes
    reason: str


class Erasures:
    """The list of what was erased."""

    def __init__(self, artefact: Artefact) -> None:
        self._artefact = artefact
        self._path = artefact.folder / LIST
        # Before the list: whoever only reads may meet an erasure, which adds to the list first.
        applied = max((each.facts["erasures"] for each in artefact.versions()), default=0)
        self.lines = [_line(self._path, text) for text in _texts(self._path)]
        self._known = {(each.kind, each.digest): each.up_to for each in self.lines}
        for each in self.lines:
            before = self._known[each.kind, each.digest]
            both = None if None in (before, each.up_to) else max(before, each.up_to)  # type: ignore[type-var]
            self._known[each.kind, each.digest] = both
        if applied > len(self.lines):
            raise EngramError(
                f"{str(self._path)!r} has {len(self.lines)} lines, and {applied} erasures were "
                "made: put the whole file back, or what was erased may return."
            )

    def __len__(self) -> int:
        return len(self.lines)

    def add(self, erased: Iterable[tuple[str, str, int | None]], reason: str) -> None:
        """Write further lines, all at once; from now on nothing that they name is read.

        Each is a kind, a digest, and the last period of which it holds; None: all to come as well.
        """
        when = now()
        for kind, digest, up_to in erased:
            if (kind, digest) in self._known and up_to is not None:
                before = self._known[kind, digest]
                if before is None or before >= up_to:
                    continue
            self.lines.append(Erased(when, kind, digest, up_to, reason))
            self._known[kind, digest] = up_to
        text = "".join(json.dumps(vars(each)) + "\n" for each in self.lines)
        write_text(self._path, text)

    def has(self, kind: str, text: str, period: int) -> bool:
        """Whether what has this id or tag was erased, if it came in this period."""
        return self.has_digest(kind, self._artefact.hashed(kind, text).hex(), period)

    def has_digest(self, kind: str, digest: str, period: int) -> bool:
        """Whether what has this hash was erased, if it came in this period."""
        if (kind, digest) not in self._known:
            return False
        up_to = self._known[kind, digest]
        return up_to is None or period <= up_to

    def of_period(self, period: int) -> Callable[[str], bool]:
        """Return whether a hash, of an id or of any tag, was erased, if it came in this period."""
        found = {digest for kind, digest in self._known if self.has_digest(kind, digest, period)}
        return found.__contains__

    def has_example(self, id_: str, tags: Mapping[str, Any], period: int) -> bool:
        """Whether an example was erased, by its id or by one of its tags."""
        if not self.lines:
            return False
        return self.has("id", id_, period) or any(
            self.has(f"tag:{name}", str(value), period) for name, value in tags.items()
        )

    def blocks(self, data: Data) -> list[bool]:
        """Return which examples of new data are of somebody who is blocked."""
        never = 2**62  # a period that no erasure reaches but a block
        return [
            self.has_example(id_, tags, never)
            for id_, tags in zip(data.ids, data.tags, strict=True)
        ]


def _texts(path: Path) -> list[str]:
    try:
        return path.read_text("utf-8").splitlines() if path.exists() else []
    except (OSError, UnicodeDecodeError) as error:
        raise EngramError(f"{str(path)!r} cannot be read: {error}.") from error


def _line(path: Path, text: str) -> Erased:
    try:
        found = Erased(**json.loads(text))
        good = all(isinstance(each, str) for each in (found.kind, found.digest, found.reason))
        good = good and (found.up_to is None or type(found.up_to) is int)
    except (ValueError, TypeError):
        good = False
    if not good:
        raise EngramError(f"{str(path)!r} is damaged: {shown(text)} is no line of it.")
    return found


def load_memory(version: Version, name: str, erasures: Erasures) -> Memory:
    """Return a version's memory or exam, without anything that was erased."""
    memory = _memory(version, name)
    leaving = erased_in(memory, erasures)
    return without(memory, leaving) if leaving else memory


def _memory(version: Version, name: str) -> Memory:
    try:
        return Memory.load(version.folder / name)
    except EngramError as error:
        raise EngramError(f"{str(version.folder / name)!r} cannot be read: {error}") from error


def erased_in(memory: Memory, erasures: Erasures) -> list[int | str]:
    """Return the ids of the examples that a memory holds and should not."""
    if not len(erasures):
        return []
    return [
        each.id
        for each in memory.examples()
        if erasures.has_example(str(each.id), each.tags or {}, each.task or 0)
    ]


def without(memory: Memory, ids: Sequence[int | str]) -> Memory:
    """Return a memory without some examples, and without a record of which they were."""
    memory.erase(ids)
    state = memory.state_dict()
    state["erasures"] = torch.from_numpy(to_bytes([]))
    state["ledger"]["erased"] = torch.from_numpy(to_bytes([]))
    return _loaded(memory, state)


def with_rows(memory: Memory, rows: Rows) -> Memory:
    """Return a memory of the same examples with other rows, by slot."""
    state = memory.state_dict()
    state["storage"]["structure"] = {"dict": dict.fromkeys(rows, "tensor")}
    state["storage"]["rows"] = {str(place): rows[name] for place, name in enumerate(rows)}
    return _loaded(memory, state)


def _loaded(memory: Memory, state: dict[str, Any]) -> Memory:
    found = Memory(memory.policy)
    found.load_state_dict(state)
    return found


class Seen:
    """What a version has seen, as keyed hashes: the contents and the subjects of its own data.

    ``trained`` and ``examined`` are contents; ``subjects`` the ids and tags of what it was trained
    on; ``examples`` whole rows of either. They say whether a duplicate would leak, which versions
    an erased subject is in, and what is given again.
    """

    def __init__(
        self,
        trained: set[bytes],
        examined: set[bytes],
        subjects: set[bytes],
        examples: set[bytes],
    ) -> None:
        self.trained, self.examined, self.subjects = trained, examined, subjects
        self.examples = examples

    def save(self, path: Path) -> None:
        """Write a file of tensors."""
        write_tensors(path, {name: _table(hashes) for name, hashes in vars(self).items()})

    @classmethod
    def load(cls, version: Version) -> Seen:
        """Read that of a version."""
        from safetensors import SafetensorError
        from safetensors.torch import load_file

        path = version.folder / SEEN
        if file_digest(path) != version.facts["files"][SEEN]:
            raise EngramError(f"{str(path)!r} is damaged: its checksum does not match.")
        try:
            found = load_file(path)
            parts = [found[name] for name in ("trained", "examined", "subjects", "examples")]
        except (OSError, KeyError, SafetensorError) as error:
            raise EngramError(f"{str(path)!r} is damaged: {error}.") from error
        return cls(*({row.tobytes() for row in part.numpy()} for part in parts))


def _table(hashes: set[bytes]) -> Tensor:
    rows: NDArray[np.uint8] = np.frombuffer(b"".join(sorted(hashes)), np.uint8).reshape(-1, 16)
    return torch.from_numpy(rows.copy())


@dataclass
class ErasureReport:
    """What an erasure has taken, from where, and what it cannot take."""

    memory: dict[int, int] = field(default_factory=dict)  # examples, by version
    exam: dict[int, int] = field(default_factory=dict)
    reports: list[int] = field(default_factory=list)  # versions whose reports named it
    texts: dict[int, int] = field(default_factory=dict)  # fitted categories and classes
    trained_with: list[int] = field(default_factory=list)  # whose own training data it was in
    weights: list[int] = field(default_factory=list)  # versions whose weights learned from it
    blocked: bool = False

    def as_json(self) -> Document:
        """Return everything as JSON values."""
        return dict(vars(self))

    def sentences(self) -> list[str]:
        """Say what is gone, what is not, and which versions were trained with it."""
        memory, exam = sum(self.memory.values()), sum(self.exam.values())
        found = [
            f"Erased: {memory:,} rows of memories and {exam:,} of exams, in "
            f"{len({*self.memory, *self.exam}):,} versions."
        ]
        if self.reports:
            found.append(f"Reports that named it, cleared: those of {_numbers(self.reports)}.")
        if self.texts:
            count = sum(self.texts.values())
            found.append(f"Categories and classes that only it had, cleared: {count:,}.")
        if self.trained_with:
            found.append(
                "Not gone: the weights. It was in the training data of "
                f"{_numbers(self.trained_with)}, and the weights of {_numbers(self.weights)} "
                "learned from it: train anew without it where they must not have."
            )
        else:
            found.append("No version's own training data had it.")
        found.append(
            "It is left out of all later updates."
            if self.blocked
            else "Later data of the same id or tag is taken again; --block refuses it."
        )
        return found


def _numbers(versions: Sequence[int]) -> str:
    return f"version{'s' if len(versions) > 1 else ''} {', '.join(map(str, versions))}"


def erase(
    folder: str | os.PathLike[str],
    *,
    ids: Sequence[str] = (),
    where: Mapping[str, str] | None = None,
    block: bool = False,
    reason: str = "",
) -> ErasureReport:
    """Erase examples from everything an artefact holds, for ever, by id or by a tag.

    With ``block``, examples of the same id or tag are left out of all later updates as well.
    """
    artefact = Artefact(folder)
    with artefact.lock():
        artefact.remove_leftovers()
        return _erase(artefact, ids, where or {}, block, reason)


def _erase(
    artefact: Artefact, ids: Sequence[str], where: Mapping[str, str], block: bool, reason: str
) -> ErasureReport:
    where = {name: handle(str(value)) for name, value in where.items()}
    ids = [handle(str(id_)) for id_ in ids]
    if not ids and not where:
        raise EngramError("Say what to erase: ids, or a tag as in customer=7.")
    if len(where) > 1:
        raise EngramError("Erase by one tag at a time: each is for ever.")
    _check_tags(artefact, where)
    erasures, report = Erasures(artefact), ErasureReport(blocked=block)
    wanted = [("id", id_) for id_ in ids]
    wanted += [(f"tag:{name}", value) for name, value in where.items()]
    lines = [(kind, artefact.hashed(kind, text).hex()) for kind, text in wanted]
    hashes = {artefact.hashed(kind, text) for kind, text in wanted}
    for version in artefact.versions():
        if Seen.load(version).subjects & hashes:
            report.trained_with.append(version.number)
        found = version.parent in report.weights or version.number in report.trained_with
        report.weights += [version.number] if found else []
        for name in (MEMORY, EXAM) if where else ():  # their reports know them by their ids
            lines += [
                ("id", artefact.hashed("id", str(each.id)).hex())
                for each in load_memory(version, name, erasures).examples()
                if all((each.tags or {}).get(tag) == value for tag, value in where.items())
            ]
    last = max((each.number for each in artefact.versions()), default=0)
    subjects = set(lines[: len(wanted)])
    erasures.add(
        [(*line, None if block and line in subjects else last) for line in dict.fromkeys(lines)],
        reason,
    )
    shutil.rmtree(artefact.work, ignore_errors=True)
    return purge(artefact, report, every=True)


def _check_tags(artefact: Artefact, where: Mapping[str, str]) -> None:
    for name in where:
        known = listed(
            read_json(artefact.current.folder / "preprocessing.json")["settings"]["tags"]
        )
        if name not in known:
            raise EngramError(
                f"{name!r} is no column of tags, by which examples could be found; "
                f"{', '.join(known) or 'there are none'}. Tags are named when a model is first "
                "trained (--set tags=…)."
            )


def purge(
    artefact: Artefact, report: ErasureReport | None = None, *, every: bool = False
) -> ErasureReport:
    """Take what was erased out of the files of versions; go on where that was interrupted.

    Those that say that it was done are looked at only with ``every``.
    """
    erasures, report = Erasures(artefact), report or ErasureReport()
    if not len(erasures):
        return report
    for version in artefact.versions():
        done = version.facts["erasures"] == len(erasures)
        if done and not every and _digests(version) == version.facts["files"]:
            continue
        _purge_version(version, erasures, report)
        facts = version.facts | {"erasures": len(erasures), "files": _digests(version)}
        write_json(version.folder / "version.json", facts)
    return report


def _digests(version: Version) -> Document:
    """Return the digests of the files that are purged, beside that which never changes."""
    return {**version.facts["files"], **purged_digests(version.folder)}


def purged_digests(folder: Path) -> Document:
    """Return the digests of a version's files that a purge may change."""
    names = (MEMORY, EXAM, "preprocessing.json", "report.json", "report.html")
    return {name: file_digest(folder / name) for name in names if (folder / name).exists()}


def _purge_version(version: Version, erasures: Erasures, report: ErasureReport) -> None:
    folder, number = version.folder, version.number
    document, _, forgotten, texts = _fitted(version, erasures)
    memories = {name: _memory(version, name) for name in (EXAM, MEMORY)}
    leaving = {name: erased_in(memory, erasures) for name, memory in memories.items()}
    left = {
        name: without(memories[name], leaving[name]) if leaving[name] else memories[name]
        for name in memories
    }
    # What is fitted and the exam come last: they say what is to be cleared elsewhere.
    found = version.report()
    if found is not None:
        cleared = _cleared_report(found, version, erasures, left[EXAM])
        if cleared != found:
            report.reports.append(number)
            write_json(folder / "report.json", cleared)
        write_page(folder / "report.html", cleared)
    if texts:
        version.facts["notes"] = _cleared(version.facts["notes"], texts)
        write_json(folder / "version.json", version.facts)
        report.texts[number] = len(texts)
    if forgotten != document:
        write_json(folder / "preprocessing.json", forgotten)
    for name, counts in ((EXAM, report.exam), (MEMORY, report.memory)):
        if leaving[name]:
            counts[number] = len(leaving[name])
            left[name].save(folder / name)


def _fitted(
    version: Version, erasures: Erasures
) -> tuple[Document, Preprocessing, Document, set[str]]:
    """Return what a version's file of what was fitted holds, as a document too, and should hold.

    The last are the texts that it holds and should not.
    """
    document = read_json(version.folder / "preprocessing.json")
    # Only what is fitted is looked at, so that no encoder has to be read.
    preprocessing = Preprocessing.from_json(document, _no_tokens)
    left = preprocessing.forget(erasures.of_period(version.number))
    forgotten = json.loads(json.dumps(left.as_json()))
    return document, preprocessing, forgotten, _texts_of(document) - _texts_of(forgotten)


def _cleared_report(
    report: Document, version: Version, erasures: Erasures, exam: Memory
) -> Document:
    """Return a report of nothing but what is left in the version's exam."""
    _, preprocessing, _, texts = _fitted(version, erasures)
    held = {str(each.id) for each in exam.examples()}
    listed_ids = {
        id_ for part in report["parts"] for ids in part.get("flips", {}).values() for id_ in ids
    }
    emptied = _emptied(report, exam, preprocessing, version.number)
    # The notes of a file that was put back may say more.
    report = report | {"notes": version.facts["notes"]}
    return clear_report(report, erasures, version.number, texts, listed_ids - held, emptied)


def _no_tokens(texts: Sequence[str], length: int) -> Tensor:
    return torch.zeros(len(texts), length)


def _texts_of(document: Document) -> set[str]:
    known = [
        each for column in document["inputs"].get("categories", ()) for each in column["known"]
    ]
    known += document["target"].get("classes", ())
    return {each["text"] for each in known if each["text"]}


def _cleared(notes: Sequence[str], texts: Collection[str]) -> list[str]:
    """Return notes without texts that are erased, where these are whole words."""
    for text in texts:
        word = re.compile(rf"(?<!\w){re.escape(text)}(?!\w)")
        notes = [word.sub("(erased)", note) for note in notes]
    return list(notes)


def _emptied(report: Document, exam: Memory, preprocessing: Preprocessing, number: int) -> set[str]:
    """Return the slices of a report of whose examples none is left in the exam."""
    asked, emptied = questions(exam, preprocessing), set[str]()
    for what, rows in (("slice", asked.periods != number), ("new slice", asked.periods == number)):
        names = {part["name"] for part in report["parts"] if part["what"] == what}
        held = {
            f"{column}={values[row]}"
            for column in {name.partition("=")[0] for name in names}
            for values in [asked.slices(column, preprocessing)]
            for row in np.flatnonzero(rows)
        }
        emptied |= names - held
    return emptied


def clear_report(
    report: Document,
    erasures: Erasures,
    number: int,
    texts: Collection[str] = (),
    ids: Collection[str] = (),
    slices: Collection[str] = (),
) -> Document:
    """Return a report without the ids, the slices and the texts of what was erased.

    ``texts``, ``ids`` and ``slices`` are those that the list of erasures does not name.
    """

    def gone(name: str) -> bool:
        column, _, value = name.partition("=")
        return name in slices or value in texts or erasures.has(f"tag:{column}", value, number)

    def kept(parts: Sequence[Document]) -> list[Document]:
        return [
            part | {"flips": {name: kept_ids(listed) for name, listed in part["flips"].items()}}
            if "flips" in part
            else part
            for part in parts
            if "slice" not in part["what"] or not gone(part["name"])
        ]

    def kept_ids(listed: Sequence[str]) -> list[str]:
        return [id_ for id_ in listed if id_ not in ids and not erasures.has("id", id_, number)]

    lost = [part["name"] for part in report["parts"] if "slice" in part["what"]]
    lost = [name for name in lost if gone(name)]
    cleared = report | {
        "parts": kept(report["parts"]),
        "notes": _cleared(report["notes"], texts),
        "reasons": [
            words for words in report["reasons"] if not any(f" {name}:" in words for name in lost)
        ],
        "gate": report["gate"]
        | {"slices": {n: each for n, each in report["gate"]["slices"].items() if not gone(n)}},
    }
    if mixed := report["interpolation"]:
        cleared["interpolation"] = mixed | {"candidate": kept(mixed["candidate"])}
    return cleared


def report_of(version: Version, erasures: Erasures) -> Document | None:
    """Return a version's report without what was erased, whatever its file holds; or None."""
    found = version.report()
    if found is None or not len(erasures):
        return found
    return _cleared_report(found, version, erasures, load_memory(version, EXAM, erasures))
