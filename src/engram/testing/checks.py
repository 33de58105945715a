"""The conformance kit for methods: the promises that the laboratory builds on, a check for each."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any, get_type_hints

import torch
from torch import Tensor

from engram.errors import EngramError, shown
from engram.lab.methods import Entry, MethodSettings, method_entry
from engram.lab.networks.registry import drawing_from
from engram.lab.settings import Scalar
from engram.testing.assertions import can_be_saved, close, equal, no_reads, require
from engram.testing.practice import Moment, Subject, TrainingRun


def settings(subject: Subject) -> None:
    """Build the settings of every preset and of every value of the tuning grid."""
    build: Callable[..., MethodSettings] = subject.entry.settings
    kinds = get_type_hints(build)
    for name in subject.entry.varies:
        number = kinds.get(name) is float
        require(number, f"lets runs differ in {name!r}, which is no setting that is a number.")
    grid = [{name: value} for name, values in subject.entry.search.items() for value in values]
    for values in (*subject.entry.presets.values(), *grid):
        try:
            build(**values)
        except (TypeError, EngramError) as error:
            raise AssertionError(
                f"has a preset or a tuning grid that its settings refuse: {error}"
            ) from error


def corners(subject: Subject) -> None:
    """Ask for finite losses: unequal tasks, a short last batch, a single class, batches of one."""
    for size in (subject.settings.batch_size, 1):
        sized = Subject(subject.entry, replace(subject.settings, batch_size=size))
        training = sized.fresh_run()
        for moment in training.teach():
            if (mix := moment.mix) is not None:
                where = f"in step {moment.step} of task {moment.task} with batches of {size}"
                _check_loss(mix.losses, mix.weights, len(training.stream.seeds), where)
        require(bool(training.method.parameters.isfinite().all()), "ends with weights not finite.")


def _check_loss(losses: Tensor, weights: Tensor, runs: int, where: str) -> None:
    right = losses.dim() == 2 and len(losses) == runs and losses.shape == weights.shape
    require(
        right,
        f"returns losses {list(losses.shape)} and weights {list(weights.shape)} {where}, "
        "and both must be [runs, rows].",
    )
    require(bool(losses.isfinite().all()), f"has a loss that is not finite {where}.")


def seeded(subject: Subject) -> None:
    """Run twice with the same seeds, but other states of the global random generators."""
    weights = []
    for state in (1, 2):
        with drawing_from(state):
            weights.append(subject.fresh_run().finish().method.parameters)
    require(equal(*weights), "ends with other weights when it is run again with the same seeds.")


def stacked(subject: Subject) -> None:
    """Run each seed alone, and all as one."""
    training = subject.fresh_run(dtype=torch.float64)
    try:
        together = training.finish().result()
    except RuntimeError as error:  # what is wrong in float32 too was found before
        raise AssertionError(
            f"does not compute in the precision of its parameters, here float64: {error!r}"
        ) from error
    for run, seed in enumerate(training.stream.seeds):
        own = subject.fresh_run((seed,), dtype=torch.float64)
        alone = [part[0] for part in own.finish().result()]
        require(
            close(alone, [part[run] for part in together]),
            f"gives seed {seed} another result alone than stacked with others.",
        )


def one_pass(subject: Subject) -> None:
    """Overwrite what the method was shown as soon as it should be done with it."""
    spoiled = subject.fresh_run()
    spoiled.spoil = True
    require(
        equal(subject.fresh_run().finish().result(), spoiled.finish().result()),
        "reads a batch after its step, or a task after its end, that it made no copy of.",
    )


def predictions(subject: Subject) -> None:
    """Predict at every moment: logits for every task seen, and no trace in what is learned."""
    asked = subject.fresh_run()
    for moment in asked.teach():
        for task in range(asked.stream.tasks):
            try:
                _check_prediction(asked, task)
            except EngramError:
                require(task > moment.task, f"does not predict task {task}, which it has seen.")
        _check_without_task(asked, moment.task)
    require(
        equal(subject.fresh_run().finish().result(), asked.result()),
        "learns something else when it is asked for predictions in between.",
    )


def _check_without_task(training: TrainingRun, task: int) -> None:
    """Not to know the task is fine, or is refused in a sentence that says what is missing."""
    try:
        logits = training.predict(task, known=False)
    except EngramError as error:
        require("task" in str(error), f"refuses an unknown task without saying so: {error}")
    except Exception as error:
        raise AssertionError(f"breaks where the task is not known: {error!r}") from error
    else:
        require(
            logits.shape == training.predict(task).shape and not bool(logits.isnan().any()),
            "predicts something else than logits where the task is not known.",
        )


def _check_prediction(training: TrainingRun, task: int) -> None:
    weights = (training.method.parameters, training.method.buffers)
    before, logits = tuple(part.clone() for part in weights), training.predict(task)
    require(equal(before, weights), "changes its weights when it predicts.")
    inputs, columns = training.stream.probes(task)
    shape = [len(columns), len(inputs), training.stream.classes]
    require(
        list(logits.shape) == shape,
        f"predicts logits of shape {list(logits.shape)}, not {shape}: [runs, inputs, classes].",
    )
    # A class that a method knows nothing of may have -inf.
    decided = not logits.isnan().any() and bool(logits.amax(-1).isfinite().all())
    require(decided, "predicts logits without a finite largest one.")
    for run, places in enumerate(columns):
        whole = inputs.new_zeros(len(inputs), training.stream.features)
        whole[:, places] = inputs
        require(
            close([training.method.predict(whole, None, task)[run]], [logits[run]]),
            "does not read test inputs at the columns that the stream gives (see TestBatch).",
        )


def varied(subject: Subject) -> None:
    """Run two values of a setting alone and as one stack, for all in which its runs may differ.

    The other value is one that makes a difference; where none does there is nothing to see.
    """
    usual = _alone(subject, subject.settings)
    for name in subject.entry.varies:
        for other in _others(subject, name):
            theirs = _alone(subject, other)
            weights = theirs[0]
            if bool(weights.isfinite().all()) and not close(usual, theirs):
                _compare_stacked(subject, name, [(subject.settings, usual), (other, theirs)])
                break


def _compare_stacked(
    subject: Subject, name: str, both: list[tuple[MethodSettings, list[Tensor]]]
) -> None:
    training = subject.fresh_run((3, 3), each=[own for own, _ in both], dtype=torch.float64)
    together = training.finish().result()
    for run, (own, alone) in enumerate(both):
        require(
            close(alone, [part[run] for part in together]),
            f"gives a run with {name} {getattr(own, name):g} another result alone than stacked "
            "with a run of another value, which `varies` says it can be.",
        )


def _alone(subject: Subject, settings: MethodSettings) -> list[Tensor]:
    training = Subject(subject.entry, settings).fresh_run((3,), dtype=torch.float64)
    return [part[0] for part in training.finish().result()]


def _others(subject: Subject, name: str) -> Iterator[MethodSettings]:
    """Yield settings with other values, those of the tuning grid first, that are possible."""
    value = getattr(subject.settings, name)
    factors = (value * factor for factor in (0.1, 10, 0.01, 100, 1e3, 1e4))
    for other in (*subject.entry.search.get(name, ()), *factors, 0.0, 1.0, 1e3):
        changed: dict[str, Any] = {name: other}
        try:
            settings = replace(subject.settings, **changed)
        except EngramError:  # beyond its bounds
            continue
        yield settings


def resumed(subject: Subject) -> None:
    """Save at every other moment, load into a fresh method, and go on: to the same bits."""
    training = subject.fresh_run()
    saved = []
    for moment in training.teach():
        state = training.method.state_dict()
        require(
            can_be_saved(state), "has a state_dict with more than tensors, arrays and JSON values."
        )
        saved.append((moment, state, copy.deepcopy(state)))
    for moment, state, untouched in saved[::2]:
        loaded = subject.fresh_run()
        loaded.method.load_state_dict(state)
        loaded.finish(after=moment)
        where = f"when it is saved {_place(moment)} and loaded into a fresh method"
        require(equal(training.result(), loaded.result()), f"goes on to another result {where}.")
        require(
            equal(state, untouched), f"changes the state it saved {_place(moment)} by going on."
        )


def settled(subject: Subject) -> None:
    """Compare what is predicted of each task when it ends with every moment after."""
    training, ended = subject.fresh_run(), list[Tensor]()
    for moment in training.teach():
        for task, then in enumerate(ended):
            require(
                equal(training.predict(task), then),
                f"says that it is settled, but predicts task {task} otherwise {_place(moment)} "
                "than at its end.",
            )
        if moment.mix is None:
            ended.append(training.predict(moment.task))


def _place(moment: Moment) -> str:
    where = "the end" if moment.mix is None else f"step {moment.step}"
    return f"after {where} of task {moment.task}"


def budget(subject: Subject) -> None:
    """Compare ``memory_bytes`` with what the settings allow, at every moment."""
    training = subject.fresh_run()
    stream, given = training.stream, subject.settings.as_dict()
    allowed = int(given.get("memory_size") or 0)  # 0: the method's own default
    if "memory_per_class" in given:
        allowed = int(given["memory_per_class"] or 0) * stream.classes_per_task * stream.tasks
    # An example is its stored input, its label and, at the most, its task, its place and what
    # the network said of it.
    most = allowed * (stream.features + 3 * 8 + stream.classes * 4)
    for _ in training.teach():
        held = training.method.facts().get("memory_bytes", 0)
        require(
            not held or "memory_size" in given or "memory_per_class" in given,
            "reports memory_bytes, and has no setting memory_size or memory_per_class.",
        )
        require(not allowed or held <= most, f"holds {held} bytes, and its settings allow {most}.")


def captured(subject: Subject) -> None:
    """Refuse to let a step read from the device, and take it as if it were replayed."""
    for device in ("cpu", "cuda") if torch.cuda.is_available() else ("cpu",):
        subject.fresh_run(device=device).finish()  # whatever is set up once is set up now
        training = subject.fresh_run(device=device)
        training.around = partial(no_reads, device)
        training.finish()
    plain, replayed = (subject.fresh_run(dtype=torch.float64) for _ in range(2))
    replayed.replay = True
    require(
        close(plain.finish().result(), replayed.finish().result()),
        "says that it is capturable, but its steps depend on more than their kind and position.",
    )


_BATCH_SIZE = 4
_CHECKS: dict[str, Callable[[Subject], None]] = {
    "settings": settings,
    "corners": corners,
    "seeded": seeded,
    "predictions": predictions,
    "stacked": stacked,
    "varied": varied,
    "one pass": one_pass,
    "resumed": resumed,
    "budget": budget,
    "settled": settled,
    "captured": captured,
}
_CLAIMS = {"settled": "settled", "captured": "captured"}  # checked only where they are made


@torch.no_grad()
def check_method(method: str | Entry, **settings: Scalar) -> list[str]:
    """Check a method, registered or not, on tasks of a few examples; return the checks done.

    A promise that is not kept raises an AssertionError that says which one and where. Give
    ``settings`` where the defaults would hide something: an interval longer than the kit's tasks
    (of 14, 3, 9 and 10 examples, in batches of 4), a memory that they do not fill. "settled" and
    "captured" are left out for a method that does not claim to be settled, or capturable, "varied"
    for one whose runs may not differ in a setting.

    >>> check_method("gem", memory_per_class=2)[:7]
    ['settings', 'corners', 'seeded', 'predictions', 'stacked', 'varied', 'one pass']
    """
    entry = method_entry(method) if isinstance(method, str) else method
    if not isinstance(entry, Entry):
        raise EngramError(f"method must be the name of one, or its Entry, not {shown(method)}.")
    build: Callable[..., MethodSettings] = entry.settings
    subject = Subject(entry, build(**{"batch_size": _BATCH_SIZE, **settings}))
    learner = subject.fresh_run().method
    unclaimed = {check for check, claim in _CLAIMS.items() if not getattr(learner, claim)}
    unclaimed |= set() if entry.varies else {"varied"}
    chosen = {name: check for name, check in _CHECKS.items() if name not in unclaimed}
    for check in chosen.values():
        try:
            check(subject)
        except AssertionError as broken:
            raise AssertionError(f"{entry.name} {broken}") from broken
    return list(chosen)
