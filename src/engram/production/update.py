"""From data to a version: the first training, updates that a gate decides on, adoption.

A candidate is the current version, trained on by new data and its memory. Its parent is not
touched; what is half done lies in ``work/`` and is gone on with when the same update is given
again.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import platform
import shutil
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from os import PathLike
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

import engram
from engram.errors import EngramError, shown, unknown
from engram.files import replacement
from engram.lab.plan import generator
from engram.lab.settings import Scalar, Settings, parse
from engram.lab.targets import Classes
from engram.memory import ClassSample, Memory
from engram.production import drift, erasure
from engram.production.artefact import (
    Artefact,
    Document,
    LockedError,
    Version,
    file_digest,
    now,
    write_json,
)
from engram.production.drift import Contradiction
from engram.production.erasure import EXAM, MEMORY, SEEN, ErasureReport, Erasures, Seen
from engram.production.exam import (
    Answers,
    Questions,
    Split,
    assess,
    new_exam,
    questions,
    split,
)
from engram.production.gate import Gate, Judged, Part, Verdict, judge
from engram.production.model import (
    WEIGHTS,
    Model,
    device_of,
    load_weights,
    open_version,
    read_network,
)
from engram.production.networks import Factory, Network, grow, take_network
from engram.production.preprocessing import (
    TARGET,
    Preprocessing,
    Rows,
    Schema,
    TableInputs,
)
from engram.production.report import part_document, write_page
from engram.production.sources import Data, DataSettings, read
from engram.production.training import (
    CHECKPOINT,
    Loop,
    Training,
    TrainingSettings,
    answer,
    read_memory,
    train_network,
)

Listener = Callable[[int, int], None]
_WEIGHTS_TRIED = (0.75, 0.5, 0.25)  # of the candidate, in an interpolation with its parent
_WORK = "work"
_MOST_COLUMNS = 100  # of tensors that are tested for drift


@dataclass(frozen=True)
class Result:
    """What came of a training or an update."""

    version: int
    verdict: Verdict
    current: int  # the version that answers now
    report: Document | None
    notes: list[str]


@dataclass(frozen=True)
class Plan:
    """What an update would do: its data is read and held to the schema, nothing is trained."""

    parent: int
    examples: int
    exam: int
    new_classes: list[str]
    steps: int
    notes: list[str]


def settings_from(
    texts: Mapping[str, Scalar], bases: Sequence[Settings]
) -> tuple[DataSettings, TrainingSettings]:
    """Return the settings of data and of training, changed by what was given by name."""
    known = {each.name: base for base in bases for each in dataclasses.fields(base)}
    made = []
    for name in texts:
        if name not in known:
            raise unknown("setting", name, known)
    for base in bases:
        mine = {name: value for name, value in texts.items() if known[name] is base}
        as_text = {name: value for name, value in mine.items() if isinstance(value, str)}
        values = {**mine, **parse(type(base), as_text)}
        made.append(replace(base, **values))
    data, training = made
    assert isinstance(data, DataSettings)
    assert isinstance(training, TrainingSettings)
    return data, training


def train(
    data: object,
    out: str | PathLike[str],
    *,
    network: str | Factory | None = None,
    arguments: Mapping[str, Scalar] | None = None,
    settings: Mapping[str, Scalar] | None = None,
    period: str | None = None,
    trust_code: bool = False,
    device: str = "auto",
    loop: Loop | None = None,
    every: float = 30.0,
    listener: Listener | None = None,
) -> Result:
    """Train a first version and make it the current one of a new artefact.

    Args:
        data: see `engram.production.sources.read`.
        out: the artefact's folder; an unfinished one is gone on with.
        network: a registered name, ``FILE.py:name``, ``hf:DIR`` for texts, or a class or function
            at the top level of a file; by default ``mlp``, or ``resnet18-reduced`` for images.
        arguments: of the network.
        settings: see `DataSettings` and `TrainingSettings`.
        period: what this data is called in reports; by default its times or its source.
        trust_code: whether a file's code may be run, now.
        device: ``auto``, ``cpu``, ``cuda`` or ``cuda:N``.
        loop: your own training in place of ours; it is called with a `Training`.
        every: seconds between the moments from which a killed training goes on.
        listener: is told how many steps are done, and of how many.
    """
    own, how = settings_from(settings or {}, (DataSettings(), TrainingSettings()))
    return _first(
        "train", data, out, network, arguments, own, how, period, trust_code, device, loop, every,
        listener, None,
    )  # fmt: skip


def adopt(
    network: str | Factory,
    weights: str | PathLike[str],
    data: object,
    out: str | PathLike[str],
    *,
    arguments: Mapping[str, Scalar] | None = None,
    settings: Mapping[str, Scalar] | None = None,
    period: str | None = None,
    trust_code: bool = False,
    device: str = "auto",
) -> Result:
    """Take a model that was trained elsewhere as the first version; its memory is from ``data``.

    The weights, a file of tensors, must fit the network for inputs as we encode them: scaled
    numbers and columns of 0 and 1 for a table, tensors as they are.
    """
    own, how = settings_from(settings or {}, (DataSettings(), TrainingSettings()))
    return _first(
        "adopt", data, out, network, arguments, own, how, period, trust_code, device, None, 0.0,
        None, Path(weights),
    )  # fmt: skip


def _first(
    kind: Literal["train", "adopt"],
    source: object,
    out: str | PathLike[str],
    network: str | Factory | None,
    arguments: Mapping[str, Scalar] | None,
    own: DataSettings,
    how: TrainingSettings,
    period: str | None,
    trust_code: bool,
    device: str,
    loop: Loop | None,
    every: float,
    listener: Listener | None,
    weights: Path | None,
) -> Result:
    place = device_of(device)
    data = read(source, own)
    existed = Path(out).exists()
    artefact = Artefact.create(out)
    try:
        with artefact.lock():
            asked = [str(network), dict(arguments or {}), period]
            settings = [dataclasses.asdict(own), dataclasses.asdict(how)]
            request = _digest([kind, data.digest, settings, asked])
            if finished := _unpointed(artefact, request, None):
                return finished
            if artefact.versions():
                raise EngramError(
                    f"{str(artefact.folder)!r} has a version of other data or settings that does "
                    "not answer yet: give the same command again, or another --out."
                )
            work = _begin_work(artefact)
            given = network or ("resnet18-reduced" if data.kind == "images" else "mlp")
            found = take_network(given, arguments, work, trust_code)
            return _first_version(
                artefact, kind, given, found, data, own, how, period, place, loop, every, listener,
                weights, request,
            )  # fmt: skip
    except LockedError:
        raise  # it is another process's
    except EngramError:
        if not existed and not artefact.versions():
            shutil.rmtree(artefact.folder, ignore_errors=True)  # a mistake leaves nothing behind
        raise


def _first_version(
    artefact: Artefact,
    kind: Literal["train", "adopt"],
    given: str | Factory,
    network: Network,
    data: Data,
    own: DataSettings,
    how: TrainingSettings,
    period: str | None,
    device: torch.device,
    loop: Loop | None,
    every: float,
    listener: Listener | None,
    weights: Path | None,
    request: str,
) -> Result:
    work = artefact.folder / _WORK
    data = _named(data, 1)
    parts = split(data, _chances(data), [(False, False)] * len(data), how.exam_share, how.exam_most)
    if not parts.train:
        raise EngramError("No example is left to train on: give more of them.")
    preprocessing = Preprocessing.fit(data, own, artefact.hashed, network.tokeniser(work))
    if kind == "train":  # scaling is fitted to what is trained on alone
        fitted = Preprocessing.fit(
            data.chosen(parts.train), own, artefact.hashed, network.tokeniser(work)
        )
        preprocessing = fitted.extended(data, artefact.hashed, "keep")
    rows = preprocessing.rows(data)
    seed = generator(how.seed, "production network", 1).integers(2**62)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(int(seed))
        module = network.build(
            work, preprocessing.inputs.shape, preprocessing.target.outputs, trust_code=True
        )
    if network.reads_text:
        from engram.production.texts import load_pretrained

        load_pretrained(module, Path(str(given).removeprefix("hf:")).expanduser())
    seconds = 0.0
    if weights is not None:
        load_weights(module, weights)
        module.to(device).eval()
    else:
        training = _training(module, preprocessing, _some(rows, parts.train), None, how, 1, device)
        same = _digest([request, network.as_json()])  # the code in it included
        seconds = _run(training, loop, work / CHECKPOINT, same, every, listener)
    memory = Memory(
        ClassSample(how.memory, include_current=True), max_examples=how.memory, seed=how.seed
    )
    exam = new_exam()
    _keep(memory, preprocessing, data, rows, parts.train, 1)
    _keep(exam, preprocessing, data, rows, parts.exam, 1)
    notes = [*_notes(parts, data), *preprocessing.notes(data)]
    if kind == "adopt":
        notes.append("Adopted: whether the model was trained on the exam's examples is not known.")
    facts = _facts(kind, None, data, period, own, how, device, seconds, parts, request)
    _publish(
        artefact, 1, facts | {"verdict": "accepted", "notes": notes}, module, preprocessing,
        (network, work), memory, exam, _seen(artefact, data, parts), None,
    )  # fmt: skip
    artefact.point(1, kind)
    shutil.rmtree(work, ignore_errors=True)
    return Result(1, "accepted", 1, None, notes)


def update(
    folder: str | PathLike[str],
    data: object,
    *,
    gate: Gate | None = None,
    slices: Sequence[str] = (),
    schema: Schema = "keep",
    settings: Mapping[str, Scalar] | None = None,
    period: str | None = None,
    force: str = "",
    trust_code: bool = False,
    device: str = "auto",
    loop: Loop | None = None,
    every: float = 30.0,
    listener: Listener | None = None,
) -> Result:
    """Train a candidate from the current version, examine it, and let it answer if it may.

    Args:
        folder: the artefact's.
        data: see `engram.production.sources.read`; read as the first data was.
        gate: what is asked of the candidate.
        slices: columns of texts, tags or the target, each value of which is examined apart.
        schema: "extend" takes in new columns and texts, and columns that are gone as missing.
        settings: of the training, where they are to be others than the parent's.
        period: what this data is called in reports.
        force: a reason to let the candidate answer whatever the gate says; it is recorded.
        trust_code: whether the code of the network may be run.
        device: ``auto``, ``cpu``, ``cuda`` or ``cuda:N``.
        loop: your own training in place of ours; it is called with a `Training`.
        every: seconds between the moments from which a killed update goes on.
        listener: is told how many steps are done, and of how many.
    """
    artefact, place, gate = Artefact(folder), device_of(device), gate or Gate()
    with artefact.lock():
        artefact.remove_leftovers()
        erasure.purge(artefact, write_page)
        parent = open_version(artefact.current, place, trust_code)
        job = _Update(artefact, parent, data, schema, settings or {}, place)
        asked = [gate.as_json(), list(slices), force, period]
        request = _digest([job.request, schema, asked])
        if finished := _unpointed(artefact, request, parent.version):
            return finished
        job.prepare()
        candidate, start, seconds = job.train(loop, every, listener)
        return job.decide(candidate, start, seconds, gate, slices, force, period, request)


def plan_update(
    folder: str | PathLike[str],
    data: object,
    *,
    schema: Schema = "keep",
    settings: Mapping[str, Scalar] | None = None,
    trust_code: bool = False,
) -> Plan:
    """Return what an update would do; nothing is trained and nothing is written."""
    artefact = Artefact(folder)
    parent = open_version(artefact.current, torch.device("cpu"), trust_code)
    job = _Update(artefact, parent, data, schema, settings or {}, torch.device("cpu"))
    job.prepare()
    before = set(parent.preprocessing.target.names)
    new = [name for name in job.preprocessing.target.names if name not in before]
    steps = -(-len(job.parts.train) // job.how.batch_size) * job.how.passes
    classes = new if isinstance(job.preprocessing.target, Classes) else []
    return Plan(
        parent.version, len(job.parts.train), len(job.parts.exam), classes, steps, job.notes
    )


class _Update:
    """One update, from its data to its verdict."""

    def __init__(
        self,
        artefact: Artefact,
        parent: Model,
        source: object,
        schema: Schema,
        settings: Mapping[str, Scalar],
        device: torch.device,
    ) -> None:
        if schema not in ("keep", "extend"):
            raise EngramError(f"schema must be keep or extend, not {shown(schema)}.")
        self.artefact, self.parent, self.schema, self.device = artefact, parent, schema, device
        self.version = artefact.version(parent.version)
        before = TrainingSettings(**self.version.facts["training"])
        own, self.how = settings_from(settings, (parent.preprocessing.settings, before))
        if own != parent.preprocessing.settings:
            raise EngramError(
                "Settings of how data is read are fixed when a model is first trained: train a new "
                "one to change them."
            )
        if self.how.memory != before.memory:
            raise EngramError(
                f"memory is {before.memory:,} since the model was first trained, and stays so."
            )
        self.number = artefact.next_number()
        self.erasures = Erasures(artefact)
        self.data = read(source, parent.preprocessing.settings)
        self.notes: list[str] = []
        # The number has no part in it: a candidate that was never pointed at is found again.
        training = dataclasses.asdict(self.how)
        self.request = _digest(["update", self.parent.version, self.data.digest, training])

    def prepare(self) -> None:
        """Hold the data to the schema and part it; refuse it before anything is trained."""
        data, artefact = _named(self.data, self.number), self.artefact
        blocked = self.erasures.blocks(data)
        if any(blocked):
            data = data.chosen([row for row, out in enumerate(blocked) if not out])
            self.notes.append(f"{sum(blocked):,} examples of the blocked were left out.")
        self.data = data
        chain = _chain(artefact, self.version)
        seen = [Seen.load(each.folder / SEEN) for each in chain]
        examined = set[bytes]().union(*(each.examined for each in seen))
        trained = set[bytes]().union(*(each.trained for each in seen))
        contents = [artefact.hashed("content", each.hex()) for each in data.contents]
        self.parts = split(
            data,
            _chances(data),
            [(each in examined, each in trained) for each in contents],
            self.how.exam_share,
            self.how.exam_most,
        )
        if not self.parts.train:
            raise EngramError("No example is left to train on: give more of them.")
        before = self.parent.preprocessing
        self.preprocessing = before.extended(data, artefact.hashed, self.schema)
        if self.schema == "extend" and isinstance(self.preprocessing.inputs, TableInputs):
            names = self.preprocessing.inputs.names
            gone = [name for name in names if name not in data.columns]
            columns = data.columns | {name: [""] * len(data) for name in gone}
            if gone:
                self.notes.append(f"Columns that are gone count as missing: {', '.join(gone)}.")
            data = self.data = replace(data, columns=columns)
        new = [each for each in self.preprocessing.target.names if each not in before.target.names]
        if new and isinstance(before.target, Classes):
            self.notes.append(f"New classes: {', '.join(new)}.")
        self.rows = self.preprocessing.rows(data)
        self.notes += [*_notes(self.parts, data), *self.preprocessing.notes(data)]
        self.memory = erasure.load_memory(self.version, MEMORY, self.erasures)
        self.exam = erasure.load_memory(self.version, EXAM, self.erasures)

    def train(
        self, loop: Loop | None, every: float, listener: Listener | None
    ) -> tuple[nn.Module, dict[str, Tensor], float]:
        """Return the candidate, the weights that it began with, and the seconds it took."""
        work = _begin_work(self.artefact)
        past, tasks = read_memory(self.memory, self.preprocessing)
        candidate = self._begun()
        start = {name: each.detach().clone() for name, each in candidate.state_dict().items()}
        training = _training(
            candidate, self.preprocessing, _some(self.rows, self.parts.train),
            past, self.how, self.number, self.device, tasks,
        )  # fmt: skip
        request = _digest([self.request, self.number, self.schema, len(self.erasures)])
        seconds = _run(training, loop, work / CHECKPOINT, request, every, listener)
        return candidate, start, seconds

    def _begun(self) -> nn.Module:
        """Return the parent's network with room for what is new."""
        inputs, target = self.preprocessing.inputs, self.preprocessing.target
        network = read_network(self.version)
        seed = generator(self.how.seed, "production network", self.number).integers(2**62)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(int(seed))
            module = network.build(
                self.version.folder, inputs.shape, target.outputs, trust_code=True
            )
        grow(self.parent.network.state_dict(), module)
        return module.to(self.device)

    def decide(
        self,
        candidate: nn.Module,
        start: Mapping[str, Tensor],
        seconds: float,
        gate: Gate,
        slices: Sequence[str],
        force: str,
        period: str | None,
        request: str,
    ) -> Result:
        """Examine the candidate, try interpolations where it fails, and publish what came of it."""
        artefact, number, how = self.artefact, self.number, self.how
        name = period or self.data.period
        names = self._period_names() | {number: name}
        old_ids = {each.id for each in self.exam.examples()}
        again = sum(id_ in old_ids for id_ in (self.data.ids[row] for row in self.parts.exam))
        if again:
            self.notes.append(f"{again:,} ids of earlier exams came again, and replace them.")
        self.exam = self._widened(self.exam)
        _keep(self.exam, self.preprocessing, self.data, self.rows, self.parts.exam, number)
        asked = questions(self.exam, self.preprocessing)
        parts = _parts(asked, names, number, slices, self.preprocessing)
        before = self._assess(self.parent.network, asked, self.parent.preprocessing)
        after = self._assess(candidate, asked, self.preprocessing)
        against = self._contradiction(asked, before)
        verdict, judged, words = judge(
            gate, parts, before, after, self.preprocessing.target, against
        )
        mixed: Document | None = None
        if verdict != "accepted" and len(asked):
            found = self._interpolate(candidate, start, gate, parts, before, asked, against)
            if found is not None:
                first = [part_document(each, before, after, None) for each in judged]
                weight, judged, after, examined = found
                verdict = "accepted"
                mixed = {
                    "weight": weight,
                    "candidate": first,
                    "words": f"The candidate itself was not accepted. Its weights count {weight:g} "
                    f"and those of version {self.parent.version} {1 - weight:g}: chosen on one "
                    f"half of the exam, and judged on the {examined:,} examples of the other.",
                }
        force = force if verdict != "accepted" else ""
        ids_before = {each.id for each in self.memory.examples()}
        self.memory = self._widened(self.memory)
        _keep(self.memory, self.preprocessing, self.data, self.rows, self.parts.train, number)
        ids_after = {each.id for each in self.memory.examples()}
        ever = sum(each.facts["examples"] for each in _chain(artefact, self.version))
        ever += len(self.parts.train)
        per_row = seconds / max(len(self.parts.train) * how.passes, 1)
        per_row *= how.batch_size / (how.batch_size + min(how.reference_batch, len(ids_before)))
        report: Document = {
            "version": number,
            "parent": self.parent.version,
            "period": name,
            "metric": self.preprocessing.target.metric_name,
            "level": gate.level,
            "gate": gate.as_json(),
            "verdict": verdict,
            "forced": force,
            "reasons": _reasons(verdict, judged, [] if mixed else words, force),
            "parts": [
                part_document(
                    each, before, after, asked.ids if each.part.what in ("period", "new") else None
                )
                for each in judged
            ],
            "interpolation": mixed,
            "memory": {
                "before": len(ids_before),
                "after": len(ids_after),
                "in": len(ids_after - ids_before),
                "out": len(ids_before - ids_after),
            },
            "drift": [each._asdict() for each in self._drift(asked, before)],
            "contradiction": against
            and against._asdict() | {"contradicts": against.loss(gate.level).low > 0.05},
            "cost": {
                "seconds": seconds,
                "examples_ever": ever,
                "projected_seconds": per_row * ever * how.passes,
            },
            "notes": self.notes,
        }
        facts = _facts(
            "update", self.parent.version, self.data, name, self.preprocessing.settings, how,
            self.device, seconds, self.parts, request,
        )  # fmt: skip
        facts |= {"verdict": verdict, "forced": force, "notes": self.notes}
        _publish(
            artefact, number, facts, candidate, self.preprocessing,
            (read_network(self.version), self.version.folder), self.memory, self.exam,
            _seen(artefact, self.data, self.parts), report,
        )  # fmt: skip
        accepted = verdict == "accepted" or bool(force)
        if accepted:
            artefact.point(number, "update", force)
        shutil.rmtree(artefact.folder / _WORK, ignore_errors=True)
        current = number if accepted else self.parent.version
        return Result(number, verdict, current, report, self.notes)

    def _period_names(self) -> dict[int, str]:
        return {each.number: each.facts["period"] for each in self.artefact.versions()}

    def _assess(
        self, network: nn.Module, asked: Questions, preprocessing: Preprocessing
    ) -> Answers:
        target = self.preprocessing.target
        if not len(asked):
            empty = torch.zeros(0, target.outputs)
            return assess(empty, torch.zeros(0, dtype=torch.int64), target, None)
        outputs = answer(network, preprocessing, asked.rows, self.device)
        allowed = self.preprocessing.allowed
        return assess(outputs, asked.rows[TARGET], target, allowed)

    def _interpolate(
        self,
        candidate: nn.Module,
        start: Mapping[str, Tensor],
        gate: Gate,
        parts: Sequence[Part],
        before: Answers,
        asked: Questions,
        against: Contradiction | None,
    ) -> tuple[float, list[Judged], Answers, int] | None:
        """Put weights between the parent's and the candidate's in the latter's place, if they pass.

        They are chosen on one half of the exam and judged on the other.
        """
        order = generator(self.how.seed, "production halves", self.number).permutation(len(asked))
        half = np.zeros(len(asked), bool)
        half[order[: len(asked) // 2]] = True
        end = {name: each.detach().clone() for name, each in candidate.state_dict().items()}
        target = self.preprocessing.target
        for weight in _WEIGHTS_TRIED:
            candidate.load_state_dict(_between(start, end, weight))
            after = self._assess(candidate, asked, self.preprocessing)
            chosen = [part._replace(rows=part.rows & half) for part in parts]
            verdict, _, _ = judge(gate, chosen, before, after, target, against)
            if verdict != "accepted":
                continue
            others = [part._replace(rows=part.rows & ~half) for part in parts]
            verdict, judged, _ = judge(gate, others, before, after, target, against)
            if verdict == "accepted":
                return weight, judged, after, int((~half).sum())
            break  # a second one judged on the same half would have a third chance
        candidate.load_state_dict(end)
        return None

    def _widened(self, memory: Memory) -> Memory:
        """Return a memory with rows of today's width."""
        if not len(memory):
            return memory
        rows = memory.read(range(len(memory))).batch
        wide = self.preprocessing.inputs.widened(rows)
        if all(rows[name].shape == wide[name].shape for name in rows):
            return memory
        return erasure.with_rows(memory, wide)

    def _drift(self, asked: Questions, before: Answers) -> list[drift.Drift]:
        """Test all columns, and the parent's confidence: the exam of the past against new data."""
        numbers: dict[str, tuple[NDArray[np.float64], NDArray[np.float64]]] = {}
        texts: dict[str, tuple[Sequence[str], Sequence[str]]] = {}
        old = asked.periods != self.number
        past = {name: column[torch.from_numpy(old)] for name, column in asked.rows.items()}
        inputs = self.preprocessing.inputs
        if isinstance(inputs, TableInputs) and len(asked):
            for place, number in enumerate(inputs.numbers):
                there = [
                    each["numbers"][:, place][~each["missing"][:, place]].numpy()
                    for each in (past, self.rows)
                ]
                numbers[number.name] = (there[0], there[1])
            for place, column in enumerate(inputs.categories):
                texts[column.name] = tuple(  # type: ignore[assignment]
                    [str(code) for code in each["codes"][:, place].tolist()]
                    for each in (past, self.rows)
                )
        elif len(asked):
            one, other = (_summaries(each["inputs"], inputs.kind) for each in (past, self.rows))
            numbers |= {name: (one[name], other[name]) for name in one}
        if isinstance(self.preprocessing.target, Classes) and len(asked):
            texts["target"] = tuple(  # type: ignore[assignment]
                [str(each) for each in rows[TARGET].tolist()] for rows in (past, self.rows)
            )
        if before.confidence is not None:
            numbers["(confidence of the parent)"] = (
                before.confidence[old],
                before.confidence[~old],
            )
        return drift.drifts(numbers, texts)

    def _contradiction(self, asked: Questions, before: Answers) -> Contradiction | None:
        """Compare what the parent is sure of in the exam of the past and in all of the new data.

        It was trained on none of either. Of classes that it does not know it says nothing.
        """
        if before.confidence is None or before.right is None or not len(asked):
            return None
        known = self.parent.preprocessing.target.outputs
        outputs = answer(self.parent.network, self.parent.preprocessing, self.rows, self.device)
        new = assess(
            outputs, self.rows[TARGET], self.preprocessing.target, self.preprocessing.allowed
        )
        assert new.confidence is not None
        assert new.right is not None
        old_met = (asked.rows[TARGET] < known).numpy() & (asked.periods != self.number)
        new_met = (self.rows[TARGET] < known).numpy()
        return drift.contradiction(
            before.confidence[old_met],
            before.right[old_met],
            new.confidence[new_met],
            new.right[new_met],
        )


def _between(
    start: Mapping[str, Tensor], end: Mapping[str, Tensor], weight: float
) -> dict[str, Tensor]:
    return {
        name: torch.lerp(start[name], last, weight) if last.is_floating_point() else last
        for name, last in end.items()
    }


def _summaries(inputs: Tensor, kind: str) -> dict[str, NDArray[np.float64]]:
    """Return a few numbers of each example, whose distributions are compared."""
    if kind == "images":
        means = inputs.double().mean((2, 3)).numpy()
        return {name: means[:, place] for place, name in enumerate(("red", "green", "blue"))}
    if kind == "text":
        return {"length": (inputs > 0).sum(1).double().numpy()}
    flat = inputs.double().flatten(1)
    if flat.shape[1] > _MOST_COLUMNS:
        return {"mean": flat.mean(1).numpy(), "deviation": flat.std(1).numpy()}
    return {str(place): flat[:, place].numpy() for place in range(flat.shape[1])}


def _parts(
    asked: Questions,
    names: Mapping[int, str],
    number: int,
    slices: Sequence[str],
    preprocessing: Preprocessing,
) -> list[Part]:
    """Return what is judged: all the past, its periods, slices of it, and the new data."""
    old = asked.periods != number
    parts = [Part("past", "", old)]
    periods = sorted({int(each) for each in asked.periods[old]})
    shown_names = [names.get(each, str(each)) for each in periods]
    for each, name in zip(periods, shown_names, strict=True):
        twice = shown_names.count(name) > 1
        parts.append(Part("period", f"{name} ({each})" if twice else name, asked.periods == each))
    for column in slices:
        values = np.array(asked.slices(column, preprocessing), dtype=object)
        for value in sorted({str(each) for each in values[old]}):
            parts.append(Part("slice", f"{column}={value}", old & (values == value)))
    return [*parts, Part("new", names[number], ~old)]


def _reasons(
    verdict: Verdict, judged: Sequence[Judged], more: Sequence[str], force: str
) -> list[str]:
    found = [words for each in judged if each.decision == verdict for words in each.reasons]
    found += more
    if verdict == "accepted":
        found = ["Every limit is kept for certain."]
    if force:
        found.append(f"It answers all the same, by force: {force}.")
    return found or ["The gate asks nothing of any part that has examples."]


def _training(
    module: nn.Module,
    preprocessing: Preprocessing,
    rows: Rows,
    past: Rows | None,
    how: TrainingSettings,
    number: int,
    device: torch.device,
    tasks: NDArray[np.int64] | None = None,
) -> Training:
    module.to(device)
    none = np.zeros(0, np.int64)
    return Training(
        module, preprocessing, rows, past, none if tasks is None else tasks, how, number, device
    )


def _run(
    training: Training,
    loop: Loop | None,
    checkpoint: Path,
    request: str,
    every: float,
    listener: Listener | None,
) -> float:
    if loop is None:
        return train_network(
            training,
            checkpoint=checkpoint,
            request=request,
            every=every,
            listener=listener,
        )
    begun = time.perf_counter()
    training.network.train()
    loop(training)
    training.network.eval()
    for name, value in training.network.state_dict().items():
        if value.is_floating_point() and not value.isfinite().all():
            raise EngramError(f"The loop left values of {name} that are not finite.")
    return time.perf_counter() - begun


def _named(data: Data, number: int) -> Data:
    """Return data whose ids name its examples for ever: their own, or version and place."""
    return data if data.own_ids else replace(data, ids=[f"{number}:{each}" for each in data.ids])


def _chances(data: Data) -> list[float]:
    """Return a draw for each example that depends on its input alone, in every artefact."""
    hashes = (hashlib.blake2b(b"exam" + each, digest_size=7).digest() for each in data.contents)
    return [int.from_bytes(each) / 2**56 for each in hashes]


def _some(rows: Rows, places: Sequence[int]) -> Rows:
    chosen = torch.as_tensor(places, dtype=torch.int64)
    return {name: column[chosen] for name, column in rows.items()}


def _keep(
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
    batch = _some(rows, places)
    classes = isinstance(preprocessing.target, Classes)
    memory.add(
        batch,
        tasks=number,
        labels=batch[TARGET] if classes else [0] * len(places),
        ids=[data.ids[row] for row in places],
        tags=[dict(data.tags[row]) or None for row in places],
    )


def _seen(artefact: Artefact, data: Data, parts: Split) -> Seen:
    contents = data.contents

    def hashed(rows: Iterable[int]) -> set[bytes]:
        return {artefact.hashed("content", contents[row].hex()) for row in rows}

    subjects = {artefact.hashed("id", data.ids[row]) for row in parts.train}
    for row in parts.train:
        subjects |= {artefact.hashed(f"tag:{name}", text) for name, text in data.tags[row].items()}
    return Seen(hashed(parts.train), hashed(parts.exam), subjects)


def _notes(parts: Split, data: Data) -> list[str]:
    notes = []
    if parts.examined_before:
        notes.append(
            f"{parts.examined_before:,} examples are in an exam of the past: not trained on."
        )
    if parts.trained_before:
        notes.append(
            f"{parts.trained_before:,} examples were trained on before, and are in no exam."
        )
    if data.passed_over:
        notes.append(f"{data.passed_over:,} files are no images of a class, and were passed over.")
    return notes


def _chain(artefact: Artefact, version: Version) -> list[Version]:
    """Return a version and all that it comes from."""
    found = [version]
    while (parent := found[-1].parent) is not None:
        found.append(artefact.version(parent))
    return found


def _facts(
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


def _publish(
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
    from safetensors.torch import save_file

    with artefact.building(number) as folder:
        held = {name: each.detach().cpu().clone() for name, each in module.state_dict().items()}
        with replacement(folder / WEIGHTS) as part:
            save_file({name: each.contiguous() for name, each in held.items()}, part)
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
            "erasures": len(Erasures(artefact)),
        }
        write_json(folder / "version.json", facts)


def _unpointed(artefact: Artefact, request: str, parent: int | None) -> Result | None:
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
    shutil.rmtree(artefact.folder / _WORK, ignore_errors=True)
    verdict: Any = last.verdict
    return Result(last.number, verdict, last.number, last.report(), list(last.facts["notes"]))


def _begin_work(artefact: Artefact) -> Path:
    work = artefact.folder / _WORK
    work.mkdir(mode=0o700, exist_ok=True)
    return work


def _digest(document: object) -> str:
    text = json.dumps(document, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()


def rollback(folder: str | PathLike[str], to: int | None = None, reason: str = "") -> int:
    """Let an earlier version answer: the one before the current one, or another that once did."""
    artefact = Artefact(folder)
    with artefact.lock():
        artefact.remove_leftovers()
        moves, current = artefact.moves(), artefact.current
        pointed = [move["version"] for move in moves]
        number = to
        if number is None:
            number = current.parent
            if number is None:
                raise EngramError(f"Version {current.number} is the first: nothing is before it.")
        if number == current.number:
            raise EngramError(f"Version {number} answers already.")
        artefact.version(number)
        if number not in pointed:
            raise EngramError(
                f"Version {number} has never answered: it was {artefact.version(number).verdict}."
            )
        artefact.point(number, "rollback", reason)
        return number


def erase(
    folder: str | PathLike[str],
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
        return erasure.erase(
            artefact, ids=ids, where=where, block=block, reason=reason, show=write_page
        )


def history(folder: str | PathLike[str]) -> list[Document]:
    """Return every version, the oldest first: where it comes from, and what the gate said."""
    artefact = Artefact(folder)
    moves = artefact.moves()
    current = moves[-1]["version"] if moves else None
    return [
        {
            "version": each.number,
            "parent": each.parent,
            "when": each.facts["when"],
            "how": each.facts["how"],
            "data": each.facts["data"]["name"],
            "period": each.facts["period"],
            "examples": each.facts["examples"],
            "exam": each.facts["exam"],
            "verdict": each.verdict,
            "forced": each.facts.get("forced", ""),
            "current": each.number == current,
            "moves": [move for move in moves if move["version"] == each.number],
        }
        for each in artefact.versions()
    ]


def history_page(folder: str | PathLike[str]) -> str:
    """Return an HTML page of all versions and their reports."""
    from engram.production.report import page

    artefact = Artefact(folder)
    reports = [found for each in artefact.versions() if (found := each.report()) is not None]
    title = f"The versions of {artefact.folder.resolve().name}"
    return page(list(reversed(reports)), title, history(folder))
