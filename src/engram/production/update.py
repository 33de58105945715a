"""From data to the next version: a candidate, what it is worth, and whether it may answer.

A candidate is the current version, trained on by new data and its memory. Its parent is not
touched; what is half done lies in ``work/`` and is gone on with when the same update is given
again.
"""

from __future__ import annotations

import dataclasses
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from os import PathLike

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from engram.errors import EngramError, shown
from engram.lab.plan import generator
from engram.lab.settings import Scalar
from engram.lab.targets import Classes
from engram.memory import Memory
from engram.production import drift, erasure
from engram.production.artefact import Artefact, Document, Version
from engram.production.drift import Contradiction, Drift
from engram.production.erasure import EXAM, MEMORY, Erasures, Seen
from engram.production.exam import Answers, Questions, assess, check_slice, questions, split
from engram.production.gate import Gate, Judged, Part, Verdict, exam_parts, judge
from engram.production.model import Model, device_of, open_version, read_network
from engram.production.networks import grow
from engram.production.preprocessing import TARGET, Preprocessing, Schema, TableInputs
from engram.production.publishing import (
    Result,
    ancestry,
    begin_work,
    chances,
    facts_of,
    keep,
    named,
    publish,
    request_digest,
    seen_hashes,
    some,
    split_notes,
    unpointed,
)
from engram.production.report import part_document
from engram.production.sources import read
from engram.production.training import (
    CHECKPOINT,
    Listener,
    Loop,
    Training,
    TrainingSettings,
    answer,
    read_memory,
    run_training,
    settings_from,
)

_WEIGHTS_TRIED = (0.75, 0.5, 0.25)  # of the candidate, in an interpolation with its parent


@dataclass(frozen=True)
class Plan:
    """What an update would do: its data is read and held to the schema, nothing is trained."""

    parent: int
    examples: int
    exam: int
    new_classes: list[str]
    steps: int
    notes: list[str]


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
        erasure.purge(artefact)
        parent = open_version(artefact, artefact.current, place, trust_code)
        job = _Update(artefact, parent, data, schema, settings or {}, place)
        asked = [gate.as_json(), list(slices), force, period]
        request = request_digest([job.request, schema, asked])
        if finished := unpointed(artefact, request, parent.version):
            return finished
        job.prepare(gate, slices)
        candidate, start, seconds = job.train(loop, every, listener)
        return job.decide(candidate, start, seconds, gate, slices, force, period, request)


def plan_update(
    folder: str | PathLike[str],
    data: object,
    *,
    gate: Gate | None = None,
    slices: Sequence[str] = (),
    schema: Schema = "keep",
    settings: Mapping[str, Scalar] | None = None,
    trust_code: bool = False,
) -> Plan:
    """Return what an update would do; nothing is trained and nothing is written."""
    artefact = Artefact(folder)
    parent = open_version(artefact, artefact.current, torch.device("cpu"), trust_code)
    job = _Update(artefact, parent, data, schema, settings or {}, torch.device("cpu"))
    job.prepare(gate or Gate(), slices)
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
        self.request = request_digest(["update", self.parent.version, self.data.digest, training])

    def prepare(self, gate: Gate, slices: Sequence[str]) -> None:
        """Hold the data to the schema and part it; refuse it before anything is trained.

        So is a gate that asks for what there is not.
        """
        data, artefact = named(self.data, self.number), self.artefact
        blocked = self.erasures.blocks(data)
        if any(blocked):
            data = data.chosen([row for row, out in enumerate(blocked) if not out])
            self.notes.append(f"{sum(blocked):,} examples of the blocked were left out.")
        self.data = data
        chain = ancestry(artefact, self.version)
        self._check_new(chain)
        seen = [Seen.load(each) for each in chain]
        examined = set[bytes]().union(*(each.examined for each in seen))
        trained = set[bytes]().union(*(each.trained for each in seen))
        contents = [artefact.hashed("content", each.hex()) for each in data.contents]
        given = set[bytes]().union(*(each.examples for each in seen))
        again = [
            not data.repeats and artefact.hashed("example", each.hex()) in given
            for each in data.examples
        ]
        self.fresh = ~np.array(again)
        self.parts = split(
            data,
            chances(data),
            [(each in examined, each in trained) for each in contents],
            [each and not data.own_ids for each in again],
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
            more = [name for name in names if name not in _columns(before)]
            if more:
                self.notes.append(f"New columns: {', '.join(more)}.")
            columns = data.columns | {name: [""] * len(data) for name in gone}
            if gone:
                self.notes.append(f"Columns that are gone count as missing: {', '.join(gone)}.")
            data = self.data = replace(data, columns=columns)
        gate.check(self.preprocessing.target)
        for column in gate.columns(slices):
            check_slice(column, self.preprocessing)
        new = [each for each in self.preprocessing.target.names if each not in before.target.names]
        if new and isinstance(before.target, Classes):
            self.notes.append(f"New classes: {', '.join(new)}.")
        self.rows = self.preprocessing.rows(data)
        self.notes += [*split_notes(self.parts, data), *self.preprocessing.notes(data)]
        self.memory = erasure.load_memory(self.version, MEMORY, self.erasures)
        self.exam = erasure.load_memory(self.version, EXAM, self.erasures)

    def _check_new(self, chain: Sequence[Version]) -> None:
        """Refuse the very data of a version that the current one comes from."""
        for version in chain:
            if version.facts["data"]["sha256"] == self.data.digest:
                anew = "train a new artefact"
                if version.parent is not None:
                    anew = f"roll back to version {version.parent} first"
                raise EngramError(
                    f"The current version has learned this very data already, in version "
                    f"{version.number}: give what came since. To train on it anew, {anew}."
                )

    def train(
        self, loop: Loop | None, every: float, listener: Listener | None
    ) -> tuple[nn.Module, dict[str, Tensor], float]:
        """Return the candidate, the weights that it began with, and the seconds it took."""
        work = begin_work(self.artefact)
        past, tasks = read_memory(self.memory, self.preprocessing)
        candidate = self._begun()
        start = {name: each.detach().clone() for name, each in candidate.state_dict().items()}
        training = Training(
            candidate, self.preprocessing, some(self.rows, self.parts.train),
            past, tasks, self.how, self.number, self.device,
        )  # fmt: skip
        request = request_digest([self.request, self.number, self.schema, len(self.erasures)])
        seconds = run_training(training, loop, work / CHECKPOINT, request, every, listener)
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
        keep(self.exam, self.preprocessing, self.data, self.rows, self.parts.exam, number)
        asked = questions(self.exam, self.preprocessing)
        parts = exam_parts(asked, names, number, gate, slices, self.preprocessing)
        unmet = gate.unmet(parts)
        if unmet:
            self.notes.append(
                f"The gate limits {', '.join(unmet)}, of which the exam has no example."
            )
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
        keep(self.memory, self.preprocessing, self.data, self.rows, self.parts.train, number)
        ids_after = {each.id for each in self.memory.examples()}
        ever = sum(each.facts["examples"] for each in ancestry(artefact, self.version))
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
                part_document(each, before, after, asked.ids if each.part.what != "past" else None)
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
        facts = facts_of(
            "update", self.parent.version, self.data, name, self.preprocessing.settings, how,
            self.device, seconds, self.parts, request,
        )  # fmt: skip
        facts |= {"verdict": verdict, "forced": force, "notes": self.notes}
        publish(
            artefact, number, facts, candidate, self.preprocessing,
            (read_network(self.version), self.version.folder), self.memory, self.exam,
            seen_hashes(artefact, self.data, self.parts), report,
        )  # fmt: skip
        accepted = verdict == "accepted" or bool(force)
        if accepted:
            artefact.point(number, "update", force)
        shutil.rmtree(artefact.work, ignore_errors=True)
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

    def _drift(self, asked: Questions, before: Answers) -> list[Drift]:
        """Test all columns, and the parent's confidence: the exam of the past against new data."""
        if not len(asked):
            return []
        old = asked.periods != self.number
        past = {name: column[torch.from_numpy(old)] for name, column in asked.rows.items()}
        sure = before.confidence
        pair = None if sure is None else (sure[old], sure[~old])
        return drift.compared(self.preprocessing, past, self.rows, pair)

    def _contradiction(self, asked: Questions, before: Answers) -> Contradiction | None:
        """Compare what the parent is sure of in the exam of the past and in all of the new data.

        It was trained on none of either. Of classes that it does not know, and of examples that it
        has seen, it says nothing.
        """
        if before.confidence is None or before.right is None or not len(asked):
            return None
        outputs = answer(self.parent.network, self.parent.preprocessing, self.rows, self.device)
        new = assess(
            outputs, self.rows[TARGET], self.preprocessing.target, self.preprocessing.allowed
        )
        assert new.confidence is not None
        assert new.right is not None
        old_met = self._met(asked.rows[TARGET]) & (asked.periods != self.number)
        new_met = self._met(self.rows[TARGET]) & self.fresh
        return drift.contradiction(
            before.confidence[old_met],
            before.right[old_met],
            new.confidence[new_met],
            new.right[new_met],
        )

    def _met(self, targets: Tensor) -> NDArray[np.bool_]:
        """Return whether the parent knows what each target says, [n]."""
        target = self.parent.preprocessing.target
        if not isinstance(target, Classes):
            return np.ones(len(targets), bool)
        known: NDArray[np.bool_] = (targets < target.outputs).numpy()
        return known


def _columns(preprocessing: Preprocessing) -> list[str]:
    inputs = preprocessing.inputs
    return inputs.names if isinstance(inputs, TableInputs) else []


def _between(
    start: Mapping[str, Tensor], end: Mapping[str, Tensor], weight: float
) -> dict[str, Tensor]:
    return {
        name: torch.lerp(start[name], last, weight) if last.is_floating_point() else last
        for name, last in end.items()
    }


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
