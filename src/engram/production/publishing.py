"""What the making of any version has in common: its examples, its facts, and how it is written."""

from __future__ import annotations

import hashlib
import json
import platform
import shutil
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

import engram
from engram.lab.targets import Classes
from engram.memory import Memory
from engram.production.artefact import (
    Artefact,
    Document,
    Version,
    file_digest,
    now,
    write_json,
    write_tensors,
)
from engram.production.erasure import EXAM, MEMORY, SEEN, Erasures, Seen, purged_digests
from engram.production.exam import Split
from engram.production.gate import Verdict
from engram.production.model import WEIGHTS
from engram.production.networks import Network
from engram.production.preprocessing import TARGET, Preprocessing, Rows
from engram.production.report import write_page
from engram.production.sources import Data, DataSettings
from engram.production.training import TrainingSettings


@dataclass(frozen=True)
class Result:
    """What came of a training or an update."""

    version: int
    verdict: Verdict
    current: int  # the version that answers now
    report: Document | None
    notes: list[str]


def named(data: Data, number: int) -> Data:
    """Return data whose ids name its examples for ever: their own, or version and place."""
    ids = data.ids if data.own_ids else [f"{number}:{each}" for each in data.ids]
    return replace(data, ids=ids, given=data.digest)


def chances(data: Data) -> list[float]:
    """Return a draw for each example that depends on its input alone, in every artefact."""
    hashes = (hashlib.blake2b(b"exam" + each, digest_size=7).digest() for each in data.contents)
    return [int.from_bytes(each) / 2**56 for each in hashes]


def some(rows: Rows, places: Sequence[int]) -> Rows:
    """Return some of the rows, in this order."""
    chosen = torch.as_tensor(places, dtype=torch.int64)
    return {name: column[chosen] for name, column in rows.items()}


def keep(
    memory: Memory,
    preprocessing: Preprocessing,
    data: Data,
    rows: Rows,
    places: Sequence[int],
    number: int,
) -> None:
    """Offer examples of a period to a memory."""
    if not places:
        return
    batch = some(rows, places)
    classes = isinstance(preprocessing.target, Classes)
    memory.add(
        batch,
        tasks=number,
        labels=batch[TARGET] if classes else [0] * len(places),
        ids=[data.ids[row] for row in places],
        tags=[dict(data.tags[row]) or None for row in places],
    )


def seen_hashes(artefact: Artefact, data: Data, parts: Split) -> Seen:
    """Return what a version is to remember of its data: keyed hashes alone."""
    contents = data.contents

    def hashed(rows: Iterable[int]) -> set[bytes]:
        return {artefact.hashed("content", contents[row].hex()) for row in rows}

    subjects = {artefact.hashed("id", data.ids[row]) for row in parts.train}
    for row in parts.train:
        subjects |= {artefact.hashed(f"tag:{name}", text) for name, text in data.tags[row].items()}
    examples = data.examples
    rows = {artefact.hashed("example", examples[row].hex()) for row in (*parts.train, *parts.exam)}
    return Seen(hashed(parts.train), hashed(parts.exam), subjects, rows)


def split_notes(parts: Split, data: Data) -> list[str]:
    """Say which examples are neither trained on nor in the exam."""
    notes = []
    if parts.examined_before:
        notes.append(
            f"{parts.examined_before:,} examples are in an exam of the past: not trained on."
        )
    if parts.examined_again:
        notes.append(
            f"{parts.examined_again:,} examples are in an exam of the past: not asked twice."
        )
    if parts.trained_before:
        notes.append(
            f"{parts.trained_before:,} examples were trained on before, and are in no exam."
        )
    if data.passed_over:
        notes.append(f"{data.passed_over:,} files are no images of a class, and were passed over.")
    return notes


def ancestry(artefact: Artefact, version: Version) -> list[Version]:
    """Return a version and all that it comes from."""
    found = [version]
    while (parent := found[-1].parent) is not None:
        found.append(artefact.version(parent))
    return found


def facts_of(
    kind: str,
    parent: int | None,
    data: Data,
    period: str | None,
    own: DataSettings,
    how: TrainingSettings,
    device: torch.device,
    seconds: float,
    parts: Split,
    request: str,
) -> Document:
    """Return where a version comes from; see `Version`."""
    return {
        "how": kind,
        "parent": parent,
        "when": now(),
        "period": period or data.period,
        "data": {"name": data.name, "sha256": data.digest, "examples": len(data)},
        "examples": len(parts.train),
        "exam": len(parts.exam),
        "reading": own.as_dict(),
        "training": how.as_dict(),
        "seconds": seconds,
        "device": str(device),
        "code": {
            "engram": engram.__version__,
            "torch": torch.__version__,
            "python": platform.python_version(),
            "threads": torch.get_num_threads(),
        },
        "request": request,
    }


def publish(
    artefact: Artefact,
    number: int,
    facts: Document,
    module: nn.Module,
    preprocessing: Preprocessing,
    network: tuple[Network, Path],
    memory: Memory,
    exam: Memory,
    seen: Seen,
    report: Document | None,
) -> None:
    """Write a version as a whole."""
    with artefact.building(number) as folder:
        write_tensors(folder / WEIGHTS, module.state_dict(), mode=0o666)
        source, place = network
        source.copy_files(place, folder)
        write_json(folder / "network.json", source.as_json())
        write_json(folder / "preprocessing.json", preprocessing.as_json())
        memory.save(folder / MEMORY)
        exam.save(folder / EXAM)
        seen.save(folder / SEEN)
        if report is not None:
            write_json(folder / "report.json", report)
            write_page(folder / "report.html", report)
        facts = facts | {
            "weights": file_digest(folder / WEIGHTS),
            "files": {SEEN: file_digest(folder / SEEN), **purged_digests(folder)},
            "erasures": len(Erasures(artefact)),
        }
        write_json(folder / "version.json", facts)


def unpointed(artefact: Artefact, request: str, parent: int | None) -> Result | None:
    """Finish what was killed between the making of a version and the move of ``current`` to it."""
    versions = artefact.versions()
    last = versions[-1] if versions else None
    pointed = {move["version"] for move in artefact.moves()}
    if last is None or last.number in pointed or last.parent != parent:
        return None
    forced = str(last.facts.get("forced", ""))
    passed = last.verdict == "accepted" or forced
    if not passed or last.facts["request"] != request:
        return None
    artefact.point(last.number, str(last.facts["how"]), forced)
    shutil.rmtree(artefact.work, ignore_errors=True)
    verdict: Any = last.verdict
    return Result(last.number, verdict, last.number, last.report(), list(last.facts["notes"]))


def begin_work(artefact: Artefact) -> Path:
    """Return the folder of what is half done, which is there from now on."""
    work = artefact.work
    work.mkdir(mode=0o700, exist_ok=True)
    return work


def request_digest(document: object) -> str:
    """Return what tells one training or update from any other that is asked for."""
    text = json.dumps(document, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()
