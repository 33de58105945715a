"""An artefact's first version: trained on the first data, or adopted from elsewhere.

What is half done lies in ``work/`` and is gone on with when the same command is given again.
"""

from __future__ import annotations

import dataclasses
import shutil
from collections.abc import Mapping
from os import PathLike
from pathlib import Path
from typing import Literal

import numpy as np
import torch

from engram.errors import EngramError
from engram.lab.plan import generator
from engram.lab.settings import Scalar
from engram.memory import ClassSample, Memory
from engram.production.artefact import Artefact, LockedError
from engram.production.exam import new_exam, split
from engram.production.model import device_of, load_weights
from engram.production.networks import Factory, Network, take_network
from engram.production.preprocessing import Preprocessing
from engram.production.publishing import (
    Result,
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
from engram.production.sources import Data, DataSettings, read
from engram.production.training import (
    CHECKPOINT,
    Listener,
    Loop,
    Training,
    TrainingSettings,
    run_training,
    settings_from,
)


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
            request = request_digest([kind, data.digest, settings, asked])
            if finished := unpointed(artefact, request, None):
                return finished
            if artefact.versions():
                raise EngramError(
                    f"{str(artefact.folder)!r} has a version of other data or settings that does "
                    "not answer yet: give the same command again, or another --out."
                )
            work = begin_work(artefact)
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
    work = artefact.work
    data = named(data, 1)
    unseen, none = [(False, False)] * len(data), [False] * len(data)
    parts = split(data, chances(data), unseen, none, how.exam_share, how.exam_most)
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
        training = Training(
            module.to(device), preprocessing, some(rows, parts.train),
            None, np.zeros(0, np.int64), how, 1, device,
        )  # fmt: skip
        same = request_digest([request, network.as_json()])  # the code in it included
        seconds = run_training(training, loop, work / CHECKPOINT, same, every, listener)
    memory = Memory(
        ClassSample(how.memory, include_current=True), max_examples=how.memory, seed=how.seed
    )
    exam = new_exam()
    keep(memory, preprocessing, data, rows, parts.train, 1)
    keep(exam, preprocessing, data, rows, parts.exam, 1)
    notes = [*split_notes(parts, data), *preprocessing.notes(data)]
    if kind == "adopt":
        notes.append("Adopted: whether the model was trained on the exam's examples is not known.")
    facts = facts_of(kind, None, data, period, own, how, device, seconds, parts, request)
    publish(
        artefact, 1, facts | {"verdict": "accepted", "notes": notes}, module, preprocessing,
        (network, work), memory, exam, seen_hashes(artefact, data, parts), None,
    )  # fmt: skip
    artefact.point(1, kind)
    shutil.rmtree(work, ignore_errors=True)
    return Result(1, "accepted", 1, None, notes)
