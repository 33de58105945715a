"""What a method promises of learning, one check for each promise."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import get_type_hints

import numpy as np
import torch
from torch import Tensor

from engram.errors import EngramError
from engram.methods import MethodSettings
from engram.testing._compare import close, equal, require
from engram.testing._course import Course, Subject


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
        course = sized.course()
        for moment in course.teach():
            if (mix := moment.mix) is not None:
                where = f"in step {moment.step} of task {moment.task} with batches of {size}"
                _check_loss(mix.losses, mix.weights, len(course.stream.seeds), where)
        require(bool(course.method.parameters.isfinite().all()), "ends with weights not finite.")


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
        with _random_state(state):
            weights.append(subject.course().finish().method.parameters)
    require(equal(*weights), "ends with other weights when it is run again with the same seeds.")


@contextmanager
def _random_state(seed: int) -> Iterator[None]:
    numpy_state, python_state = np.random.get_state(), random.getstate()
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        np.random.seed(seed)
        random.seed(seed)
        try:
            yield
        finally:
            np.random.set_state(numpy_state)
            random.setstate(python_state)


def stacked(subject: Subject) -> None:
    """Run each seed alone, and all as one."""
    course = subject.course(dtype=torch.float64)
    try:
        together = course.finish().result()
    except RuntimeError as error:  # what is wrong in float32 too was found before
        raise AssertionError(
            f"does not compute in the precision of its parameters, here float64: {error!r}"
        ) from error
    for run, seed in enumerate(course.stream.seeds):
        own = subject.course((seed,), dtype=torch.float64)
        alone = [part[0] for part in own.finish().result()]
        require(
            close(alone, [part[run] for part in together]),
            f"gives seed {seed} another result alone than stacked with others.",
        )


def one_pass(subject: Subject) -> None:
    """Overwrite what the method was shown as soon as it should be done with it."""
    spoiled = subject.course()
    spoiled.spoil = True
    require(
        equal(subject.course().finish().result(), spoiled.finish().result()),
        "reads a batch after its step, or a task after its end, that it made no copy of.",
    )


def predictions(subject: Subject) -> None:
    """Predict at every moment: logits for every task seen, and no trace in what is learned."""
    asked = subject.course()
    for moment in asked.teach():
        for task in range(asked.stream.tasks):
            try:
                _check_prediction(asked, task)
            except EngramError:
                require(task > moment.task, f"does not predict task {task}, which it has seen.")
        _check_without_task(asked, moment.task)
    require(
        equal(subject.course().finish().result(), asked.result()),
        "learns something else when it is asked for predictions in between.",
    )


def _check_without_task(course: Course, task: int) -> None:
    """Not to know the task is fine, or is refused in a sentence that says what is missing."""
    try:
        logits = course.predict(task, told=False)
    except EngramError as error:
        require("task" in str(error), f"refuses an unknown task without saying so: {error}")
    except Exception as error:
        raise AssertionError(f"breaks where the task is not known: {error!r}") from error
    else:
        require(
            logits.shape == course.predict(task).shape and not bool(logits.isnan().any()),
            "predicts something else than logits where the task is not known.",
        )


def _check_prediction(course: Course, task: int) -> None:
    weights = (course.method.parameters, course.method.buffers)
    before, logits = tuple(part.clone() for part in weights), course.predict(task)
    require(equal(before, weights), "changes its weights when it predicts.")
    inputs, columns = course.stream.probes(task)
    shape = [len(columns), len(inputs), course.stream.classes]
    require(
        list(logits.shape) == shape,
        f"predicts logits of shape {list(logits.shape)}, not {shape}: [runs, inputs, classes].",
    )
    # A class that a method knows nothing of may have -inf.
    decided = not logits.isnan().any() and bool(logits.amax(-1).isfinite().all())
    require(decided, "predicts logits without a finite largest one.")
    for run, places in enumerate(columns):
        whole = inputs.new_zeros(len(inputs), course.stream.features)
        whole[:, places] = inputs
        require(
            close([course.method.predict(whole, None, task)[run]], [logits[run]]),
            "does not read test inputs at the columns that the stream gives (see TestBatch).",
        )
