"""What a method promises of what it keeps, and of the device."""

from __future__ import annotations

import copy
from functools import partial

import torch
from torch import Tensor

from engram.testing._compare import can_be_saved, close, equal, require
from engram.testing._course import Moment, Subject
from engram.testing._host import no_reads


def resumed(subject: Subject) -> None:
    """Save at every other moment, load into a fresh method, and go on: to the same bits."""
    course = subject.course()
    saved = []
    for moment in course.teach():
        state = course.method.state_dict()
        require(
            can_be_saved(state), "has a state_dict with more than tensors, arrays and JSON values."
        )
        saved.append((moment, state, copy.deepcopy(state)))
    for moment, state, untouched in saved[::2]:
        loaded = subject.course()
        loaded.method.load_state_dict(state)
        loaded.finish(after=moment)
        where = f"when it is saved {_place(moment)} and loaded into a fresh method"
        require(equal(course.result(), loaded.result()), f"goes on to another result {where}.")
        require(
            equal(state, untouched), f"changes the state it saved {_place(moment)} by going on."
        )


def settled(subject: Subject) -> None:
    """Compare what is predicted of each task when it ends with every moment after."""
    course, ended = subject.course(), list[Tensor]()
    for moment in course.teach():
        for task, then in enumerate(ended):
            require(
                equal(course.predict(task), then),
                f"says that it is settled, but predicts task {task} otherwise {_place(moment)} "
                "than at its end.",
            )
        if moment.mix is None:
            ended.append(course.predict(moment.task))


def _place(moment: Moment) -> str:
    where = "the end" if moment.mix is None else f"step {moment.step}"
    return f"after {where} of task {moment.task}"


def budget(subject: Subject) -> None:
    """Compare ``memory_bytes`` with what the settings allow, at every moment."""
    course = subject.course()
    stream, given = course.stream, subject.settings.as_dict()
    allowed = int(given.get("memory_size") or 0)  # 0: the method's own default
    if "memory_per_class" in given:
        allowed = int(given["memory_per_class"] or 0) * stream.classes_per_task * stream.tasks
    # An example is its stored input, its label and, at the most, its task, its place and what
    # the network said of it.
    most = allowed * (stream.features + 3 * 8 + stream.classes * 4)
    for _ in course.teach():
        held = course.method.facts().get("memory_bytes", 0)
        require(
            not held or "memory_size" in given or "memory_per_class" in given,
            "reports memory_bytes, and has no setting memory_size or memory_per_class.",
        )
        require(not allowed or held <= most, f"holds {held} bytes, and its settings allow {most}.")


def captured(subject: Subject) -> None:
    """Refuse to let a step read from the device, and take it as if it were replayed."""
    for device in ("cpu", "cuda") if torch.cuda.is_available() else ("cpu",):
        subject.course(device=device).finish()  # whatever is set up once is set up now
        course = subject.course(device=device)
        course.around = partial(no_reads, device)
        course.finish()
    plain, replayed = (subject.course(dtype=torch.float64) for _ in range(2))
    replayed.replay = True
    require(
        close(plain.finish().result(), replayed.finish().result()),
        "says that it is capturable, but its steps depend on more than their kind and position.",
    )
